"""``ringloom memory``: traces that are wrong, what it prints and what it writes."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ringloom.cli import main
from ringloom.hw.memory.hbm.timing import load_timing
from ringloom.memory_bench import TraceError, read_trace
from ringloom.sim.checkers.dram import DramChecker, read_commands

GOOD = "cycle,op,address\n0,R,0x40\n3,w,64\n3,R,0x2000\n"


@pytest.mark.parametrize(("text", "words"), [
    ("", ("no requests", "cycle,op,address")),
    ("cycle,op,address\n", ("no requests",)),
    ("0,R\n", ("line 1", "'0,R'", "12,R,0x40")),
    ("0,R,0,7\n", ("line 1", "12,R,0x40")),
    ("op,cycle,address\nR,0,0\n", ("line 1", "'op,cycle,address'")),
    ("0,R,0\n1,X,0\n", ("line 2", "'1,X,0'")),
    ("1.5,R,0\n", ("line 1",)),
    ("0,R," + "z" * 5000 + "\n", ("line 1",)),
    ("-1,R,0\n", ("line 1", "cycle -1", "ascend")),
    ("5,R,0\n4,R,0\n", ("line 2", "cycle 4", "before 5", "sort")),
    ("0,R,-32\n", ("line 1", "address -32", "0..")),
    (f"0,R,{1 << 70}\n", ("line 1", "address", "0..")),
    (f"0,R,0\n{1 << 70},R,0\n", ("line 2", "--saturate")),
])
def test_wrong_traces_are_refused(tmp_path, text, words):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert all(word in str(error.value) for word in (str(path), *words)), error.value
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("data", [b"\xff\xfe0\x00", b"0,R,0\n\x00\x00,R\n"])
def test_files_that_are_no_text_are_refused(tmp_path, data):
    path = tmp_path / "trace.csv"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="trace.csv"):
        read_trace(path)


def test_a_trace_is_read(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("\ufeff" + GOOD + "\n")
    trace = read_trace(path)
    assert trace.cycles.tolist() == [0, 3, 3] and trace.writes.tolist() == [False, True, False]
    assert trace.addresses.tolist() == [64, 64, 8192] and trace.addresses.dtype == np.uint64


def run(path, *arguments):
    return CliRunner().invoke(main, ["memory", str(path), "--timing", "tiny", *arguments], catch_exceptions=False)


def test_json_and_the_command_dump(tmp_path):
    trace, dump = tmp_path / "trace.csv", tmp_path / "commands.csv"
    trace.write_text("\n".join(f"{4 * k},{'RW'[k % 3 == 0]},{k % 7 * 1024 + 32 * k}" for k in range(60)))
    result = run(trace, "--json", "--dump-commands", str(dump))
    assert result.exit_code == 0, result.output
    tree = json.loads(result.stdout)
    assert list(tree) == ["requests", "cycles", "bandwidth_fraction", "row_hit_rate", "read_latency_mean",
                          "read_latency_p99", "violations", "loss"]
    assert tree["requests"] == 60 and tree["violations"] == 0
    assert sum(tree["loss"].values()) == pytest.approx(1)
    timing = load_timing("tiny")
    assert tree["bandwidth_fraction"] == pytest.approx(60 * timing.burst_clocks / tree["cycles"])
    commands = list(read_commands(dump, timing))
    accesses = sum(command.op in ("RD", "WR") for _, command in commands)
    assert accesses == 60 and not DramChecker(timing).check(command for _, command in commands)


@pytest.mark.parametrize(("arguments", "words"), [
    (("--pseudo-channels", "3"), ("memory.pseudo_channels = 3", "1, 2, 4 or 8")),
    (("--timing", "hbm9"), ("memory.timing = 'hbm9'", "hbm2")),
    (("--set", "read_queu=3"), ("read_queu", "read_queue")),
])
def test_wrong_options_are_refused(tmp_path, arguments, words):
    trace = tmp_path / "trace.csv"
    trace.write_text(GOOD)
    result = run(trace, *arguments)
    assert result.exit_code == 2
    assert all(word in " ".join(result.stderr.split()) for word in words), result.stderr


def test_an_address_behind_the_memory_is_refused(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(f"0,R,0\n1,R,{1 << 30}\n")
    result = run(trace)
    assert result.exit_code == 2 and "request 2" in result.stderr and "0x40000000" in result.stderr
