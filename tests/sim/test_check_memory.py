"""Command buses of a running device: recorded alike by both simulators, and held to the timing set."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import ringloom as rl
from ringloom.cli import main
from ringloom.hw.memory.hbm.command import COMMAND_WORD
from ringloom.hw.memory.hbm.timing import load_timing
from ringloom.numerics.reference import matmul_reference
from ringloom.sim.checkers.bus import BusChecker
from tests.support.bare import bare

TINY = bare("tiny", {"memory.kind": "hbm", "memory.timing": "tiny", "memory.pseudo_channels": 2,
                     "memory.read_queue": 8, "memory.write_queue": 8})
A = np.arange(-30, 30).reshape(6, 10).astype(np.int8)


class Kept:
    """A sink that keeps everything; a reset is a row of its own."""

    def __init__(self):
        self.rows = []

    def take(self, commands):
        assert commands.dtype == np.uint64 and commands.shape[1] == 3
        self.rows += commands.tolist()

    def reset(self, cycle):
        self.rows.append(["reset", cycle])


def test_both_simulators_record_the_same_commands():
    recorded = []
    for sim in ("python", "verilated"):
        kept = Kept()
        with rl.open(TINY, sim=sim) as device:
            device.matmul(A, A.T)
            device.simulator.record_commands(kept)
            device.matmul(A[:3], A.T)
            device.reset()
            device.matmul(A[:2], A.T)
            device.simulator.record_commands(None)
            device.matmul(A[:2], A.T)
        recorded.append(kept.rows)
    assert recorded[0] == recorded[1]
    assert sum(row[0] == "reset" for row in recorded[0]) == 1
    assert {row[1] for row in recorded[0] if row[0] != "reset"} == {0, 1}


def test_a_profile_checks_the_memory():
    with rl.open(TINY) as device:
        with device.profile(check_memory=True) as profile:
            assert np.array_equal(device.matmul(A, A.T), matmul_reference(A, A.T))
        check = profile.memory_check
        reads = sum(profile.counters[f"tile0.hbm{channel}.reads"] for channel in range(2))
        assert check.violations == [] and check.commands > reads > 0
        assert "memory check" in profile.summary() and "passed" in profile.summary()
        assert profile.to_dict()["memory_check"] == {"commands": check.commands, "violations": []}
        with device.profile() as profile:
            device.matmul(A, A.T)
        assert profile.memory_check is None and profile.to_dict()["memory_check"] is None


def test_waves_in_the_middle_lose_no_command(tmp_path):
    rows = []
    for waves in (False, True):
        kept = Kept()
        with rl.open(TINY) as device:
            device.simulator.record_commands(kept)
            device.matmul(A, A.T)
            if waves:
                device.simulator.waves_start(tmp_path / "w.vcd", blocks=["tile0.tensor"])
            device.matmul(A, A.T)
        rows.append(kept.rows)
    assert rows[0] == rows[1]


def words(*commands):
    """(cycle, port, fields) as a simulator gives them."""
    return np.array([[cycle, port, COMMAND_WORD.const(fields).as_bits()] for cycle, port, fields in commands],
                    np.uint64)


def test_a_broken_rule_is_named_with_its_channel():
    checker, t = BusChecker(TINY, 100), TINY.timing
    checker.take(words((100, 1, {"row_op": 1, "row_bank": 2, "row": 3}),
                       (100 + t.rcd_read - 1, 1, {"column_op": 1, "column_bank": 2, "column": 4}),
                       (100 + t.rcd_read + 20, 0, {"column_op": 2, "column_bank": 1})))   # opened before the recording
    checker.finish(100 + t.rcd_read + 30)
    [(tile, channel, violation)] = checker.violations
    assert (tile, channel, violation.rule, violation.bank) == (0, 1, "tRCDRD", 2)
    assert checker.commands == 3


def test_after_a_reset_every_bank_is_closed():
    checker = BusChecker(TINY, 0)
    checker.reset(50)
    checker.take(words((60, 0, {"column_op": 1, "column_bank": 1})))
    checker.finish(61)
    assert [violation.rule for _, _, violation in checker.violations][:1] == ["access to a closed bank"]


def test_a_recording_without_refreshes_is_a_violation():
    checker, t = BusChecker(TINY, 1000), TINY.timing
    checker.finish(1000 + 10 * t.refi_bank * t.banks)
    assert {violation.rule for _, _, violation in checker.violations} == {"tREFI"}


ARGUMENTS = ["profile", "6", "10", "6", "--config", "tiny", "--check-memory", "--json",
             *(f"--set={key}={value}" for key, value in {
                 "tiles": 1, "control.kind": "direct", "memory.kind": "hbm", "memory.timing": "tiny",
                 "memory.pseudo_channels": 2, "memory.read_queue": 8, "memory.write_queue": 8}.items())]


def test_the_command_line_tells_by_its_status(monkeypatch):
    result = CliRunner().invoke(main, ARGUMENTS, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["memory_check"]["violations"] == []
    # the same run, held to a DRAM that is slower by one clock
    slower = {**vars(load_timing("tiny")), "rcd_read": load_timing("tiny").rcd_read + 1}

    def stricter(self, *arguments, **keywords):
        original(self, type(arguments[0])(**slower), **keywords)

    from ringloom.sim.checkers import bus
    original = bus.DramChecker.__init__
    monkeypatch.setattr(bus.DramChecker, "__init__", stricter)
    result = CliRunner().invoke(main, ARGUMENTS, catch_exceptions=False)
    assert result.exit_code == 1
    tree = json.loads(result.stdout)
    assert tree["correct"] and "tRCDRD" in tree["memory_check"]["violations"][0]


@pytest.mark.parametrize(("config", "sim", "words"), [
    (bare("tiny"), "python", "memory.kind"),
    (TINY, "functional", "functional"),
])
def test_without_command_buses_it_is_refused(config, sim, words):
    with rl.open(config, sim=sim) as device:
        with pytest.raises(rl.UnsupportedError, match=words), device.profile(check_memory=True):
            raise AssertionError("not reached")
        with device.profile():
            device.matmul(A, A.T)


def test_two_checks_at_once_are_refused():
    with rl.open(TINY, sim="python") as device, device.profile(check_memory=True):
        with pytest.raises(rl.UnsupportedError, match="another profile"), device.profile(check_memory=True):
            raise AssertionError("not reached")
