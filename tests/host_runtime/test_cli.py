"""The command line: what it prints, and the status it ends with."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ringloom as rl
from ringloom import bench, demo
from ringloom.cli import main


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_presets():
    result = run("presets", "--json")
    assert result.exit_code == 0
    assert set(json.loads(result.stdout)) == {"tiny", "edge", "inference", "training"}
    assert "16x16" in run("presets").stdout


def test_matmul(tmp_path):
    common = ("--config", "tiny", "--sim", "functional")
    result = run("matmul", 7, 9, 5, *common, "--json", "--set", "tile.array.rows=3", "--dtype", "uint8")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["correct"] is True and json.loads(result.stdout)["shape"] == [7, 5]
    a, b = np.ones((3, 4), np.int8), np.ones((4, 2), np.int8)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    result = run("matmul", *common, "--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "--out", tmp_path / "c.npy")
    assert result.exit_code == 0, result.output
    assert (np.load(tmp_path / "c.npy") == 4).all()
    for option in ("--quantized", "--prepared"):
        assert run("matmul", 7, 9, 5, *common, option).exit_code == 0


def test_profile():
    result = run("profile", 7, 9, 5, "--config", "tiny", "--sim", "functional", "--json", "--repeat", 2)
    tree = json.loads(result.stdout)
    assert result.exit_code == 0 and tree["macs"] == 2 * 7 * 9 * 5 and tree["correct"]
    assert "tile0.load.bytes" in run("profile", 7, 9, 5, "--config", "tiny", "--sim", "functional").stdout


@pytest.mark.parametrize("arguments,text", [
    (("matmul", "--config", "tinny"), "did you mean 'tiny'"),
    (("matmul", "--set", "tile.array.rws=3"), "nearest valid key is 'rows'"),
    (("matmul", "--sim", "magic"), "verilated, python, functional"),
    (("matmul", "--sim", "functional", "--waves", "x.vcd"), "no signals"),
    (("matmul", "--set", "rows"), "key=value"),
    (("matmul", 0, 1, 1), "x>=1"),
    (("matmull",), "No such command"),
    (("export",), "--out"),
    (("matmul", "--seed", -1), "x>=0"),
    (("profile", "--seed", -1), "x>=0"),
    (("matmul", 100000, 100000, 10), "memory.bytes"),
    (("profile", 9999999999999999999999, 1, 1), "memory.bytes"),
    (("matmul", "--set", "tile.array.rows=2001-99-99"), "not a YAML value"),
    (("matmul", "--set", "clock_hz=nan"), "clock_hz"),
    (("matmul", "--config", "a" * 5000), "neither a preset"),
    (("matmul", "--config", "tiny", "--sim", "functional", "--waves", "none/x.vcd"), "no signals"),
])
def test_errors_are_one_line(arguments, text):
    result = run(*arguments)
    assert result.exit_code == 2
    assert text in result.stderr and "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("write,text", [
    (lambda path: path.write_bytes(b"garbage"), "is no .npy file"),
    (lambda path: path.write_bytes(b""), "is no .npy file"),
    (lambda path: path.write_bytes(b"PK\x03\x04 and no more"), "is no .npy file"),
    (lambda path: np.save(path, np.array([None, "x"]), allow_pickle=True), "is no .npy file"),
    (lambda path: np.savez(path.open("wb"), a=np.ones(3), b=np.ones(3)), "several arrays"),
    (lambda path: np.save(path, np.int8(3)), "needs axes"),
    (lambda path: np.save(path, np.zeros((0, 3), np.int8)), "needs axes"),
    (lambda path: np.save(path, np.zeros((2, 3))), "float64"),
    (lambda path: path.mkdir(), "is no .npy file"),
])
@pytest.mark.parametrize("name", ["a", "b"])
def test_files_that_are_no_operand(tmp_path, name, write, text):
    path = tmp_path / "x.npy"
    write(path)
    result = run("matmul", "--config", "tiny", "--sim", "functional", f"--{name}", path)
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit), result.exception
    assert text in result.stderr and len(result.stderr.splitlines()) == 1


def test_result_goes_where_it_was_asked_for(tmp_path):
    result = run("matmul", 3, 4, 5, "--config", "tiny", "--sim", "functional", "--out", tmp_path / "q.txt")
    assert result.exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["q.txt"]
    with (tmp_path / "q.txt").open("rb") as file:
        assert np.load(file).shape == (3, 5)


def test_wrong_result_is_status_1(monkeypatch):
    monkeypatch.setattr("ringloom.cli.matmul_reference", lambda a, b: np.zeros((a.shape[0], b.shape[1])))
    result = run("matmul", 3, 4, 5, "--config", "tiny", "--sim", "functional")
    assert result.exit_code == 1 and "False" in result.stdout


def test_demo():
    """The whole demo but for waves: int8 is within two points of float, every value right."""
    report = demo.run("tiny", "functional", waves=None)
    assert report.mismatches == 0 and report.checked == report.images * (64 + 32 + 10)
    assert report.float_accuracy > 0.95 and report.int8_accuracy > report.float_accuracy - 0.02


def test_demo_command_tells_mismatches(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "_record", lambda layer, images, path: 1)
    result = run("demo", "--config", "tiny", "--sim", "functional", "--json", "--waves", tmp_path / "x.vcd")
    assert result.exit_code == 1 and json.loads(result.stdout)["mismatches"] == 1


def test_bench_figures_know_their_floors():
    assert bench.Figure("x", 99.0, "%", 98.5).passed and not bench.Figure("x", 98.4, "%", 98.5).passed
    assert bench.Figure("t", 14.0, "s", 15.0, limit=True).passed
    assert not bench.Figure("t", 16.0, "s", 15.0, limit=True).passed
    assert bench.Figure("printed", 1.0, "%").passed


def test_bench_command(monkeypatch):
    figures = [bench.Figure("fast", 99.0, "%", 98.5), bench.Figure("slow", 10.0, "%", 50.0)]
    monkeypatch.setattr(bench, "run", lambda **options: iter(figures))
    result = run("bench", "--json")
    assert result.exit_code == 1
    assert [f["passed"] for f in json.loads(result.stdout)] == [True, False]
    assert "fail" in run("bench").stdout


def test_export_writes_files(tmp_path):
    result = run("export", "--config", "tiny", "--out", tmp_path / "verilog", "--json")
    assert result.exit_code == 0, result.output
    files = json.loads(result.stdout)["files"]
    assert any(f.endswith(".v") for f in files)
    assert all((tmp_path / "verilog").joinpath(f).stat().st_size for f in files)


def test_one_version_everywhere():
    stated = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    assert rl.__version__ == stated
    assert run("--version").stdout.strip().endswith(stated)
