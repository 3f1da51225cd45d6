"""Each rule of the DRAM checker catches its own fault and no other trace."""

import pytest

from ringloom.hw.memory.hbm.timing import load_timing, timing_sets
from ringloom.sim.checkers.dram import RULES, Command, DramChecker, read_commands, write_commands

T = load_timing("tiny")
# Banks of `tiny`: group = bank % 2, so 0 and 2 share a group, 0 and 1 do not.
FAR = 100


def legal_traces() -> dict[str, list[Command]]:
    """For each distance rule a legal trace with its last command as early as that rule allows."""
    act0 = Command(FAR, "ACT", 0, 3)
    closed = [act0, Command(FAR + T.rcd_read, "RD", 0, 3), Command(FAR + 40, "PRE", 0)]
    both = [act0, Command(FAR + 10, "ACT", 2, 1), Command(FAR + 20, "ACT", 1, 1)]
    return {
        "tRCDRD": [act0, Command(FAR + T.rcd_read, "RD", 0)],
        "tRCDWR": [act0, Command(FAR + T.rcd_write, "WR", 0)],
        "tRP": [*closed, Command(FAR + 40 + T.rp, "ACT", 0)],
        "tRAS": [act0, Command(FAR + T.ras, "PRE", 0)],
        "tRC": [act0, Command(FAR + T.ras, "PRE", 0), Command(FAR + T.rc, "ACT", 0)],
        "tCCD_S": [*both, Command(200, "RD", 0), Command(200 + T.ccd_s, "RD", 1)],
        "tCCD_L": [*both, Command(200, "RD", 0), Command(200 + T.ccd_l, "RD", 2)],
        "tRRD_S": [act0, Command(FAR + T.rrd_s, "ACT", 1)],
        "tRRD_L": [act0, Command(FAR + T.rrd_l, "ACT", 2)],
        "tWTR_S": [*both, Command(200, "WR", 0), Command(200 + T.write_to_read_s, "RD", 1)],
        "tWTR_L": [*both, Command(200, "WR", 0), Command(200 + T.write_to_read_l, "RD", 2)],
        "tWR": [act0, Command(200, "WR", 0), Command(200 + T.write_to_precharge, "PRE", 0)],
        "tRTP": [act0, Command(200, "RD", 0), Command(200 + T.rtp, "PRE", 0)],
        "tRTW": [*both, Command(200, "RD", 0), Command(200 + T.read_to_write, "WR", 1)],
        "tRFC": [Command(FAR, "REFAB"), Command(FAR + T.rfc, "ACT", 1)],
        "tRFCpb": [Command(FAR, "REFPB", 1), Command(FAR + T.rfc_bank, "ACT", 1)],
        "tRREFD": [Command(FAR, "REFPB", 1), Command(FAR + T.rrefd, "ACT", 0)],
    }


def found(commands: list[Command], **options: str) -> set[str]:
    return {v.rule for v in DramChecker(T, **options).check(commands)}


@pytest.mark.parametrize("rule", legal_traces())
def test_distance_rule_catches_one_clock_too_early(rule: str) -> None:
    commands = legal_traces()[rule]
    assert found(commands) == set()
    early = commands[-1]._replace(cycle=commands[-1].cycle - 1)
    assert rule in found([*commands[:-1], early])


def test_faw_counts_four_activates() -> None:
    close = Command(FAR + T.ras, "PRE", 0)
    fifth = Command(FAR + T.faw, "ACT", 0)
    # The table of `tiny` has tFAW = 16 and tRC = 14: the fifth ACT is bound by the window alone.
    acts = [Command(FAR, "ACT", 0), Command(FAR + 3, "ACT", 1), Command(FAR + 6, "ACT", 2), close,
            Command(FAR + 11, "ACT", 3), fifth]
    assert found(acts) == set()
    assert found([*acts[:-1], fifth._replace(cycle=fifth.cycle - 1)]) == {"tFAW"}


@pytest.mark.parametrize(("rule", "commands"), [
    ("row bus", [Command(FAR, "ACT", 0), Command(FAR + 1, "REFPB", 1)]),
    ("column bus", [Command(FAR, "ACT", 0), Command(FAR + 3, "ACT", 1), Command(150, "RD", 0), Command(150, "RD", 1)]),
    ("address", [Command(FAR, "ACT", 4)]),
    ("address", [Command(FAR, "ACT", 0, T.rows)]),
    ("ACT of an open bank", [Command(FAR, "ACT", 0), Command(200, "ACT", 0)]),
    ("access to a closed bank", [Command(FAR, "RD", 0)]),
    ("PRE of a closed bank", [Command(FAR, "PRE", 0)]),
    ("refresh of an open bank", [Command(FAR, "ACT", 0), Command(200, "REFPB", 0)]),
    ("refresh of an open bank", [Command(FAR, "ACT", 0), Command(200, "REFAB")]),
    ("data bus", [Command(FAR, "ACT", 0), Command(FAR + 3, "ACT", 1), Command(150, "RD", 0), Command(151, "RD", 1)]),
    ("tREFI", [Command(9 * T.refi + 1, "REFPB", 0)]),
])
def test_state_rule(rule: str, commands: list[Command]) -> None:
    assert rule in found(commands)


def test_missed_refresh_is_found_at_the_end() -> None:
    for refresh, expected in (("per-bank", {"tREFI"}), ("all-bank", {"tREFI"}), ("off", set())):
        checker = DramChecker(T, refresh=refresh)
        assert {v.rule for v in checker.finish(20 * T.refi)} == expected


def test_every_rule_has_a_test() -> None:
    here = {"row bus", "column bus", "address", "ACT of an open bank", "access to a closed bank",
            "PRE of a closed bank", "refresh of an open bank", "data bus", "tREFI", "tFAW"}
    assert here | set(legal_traces()) == set(RULES)


def test_a_violation_names_rule_bank_and_cycle() -> None:
    violation = DramChecker(T).check([Command(FAR, "ACT", 3), Command(FAR + 1 + T.rcd_read - 2, "RD", 3)])[0]
    assert violation[:3] == ("tRCDRD", FAR + T.rcd_read - 1, 3)
    assert "asks for 5" in violation.message


def test_recording_survives_a_file(tmp_path) -> None:
    commands = legal_traces()["tWTR_L"]
    pairs = [(number % 2, command) for number, command in enumerate(commands)]
    write_commands(tmp_path / "c.csv", pairs, T)
    assert list(read_commands(tmp_path / "c.csv", T)) == pairs


@pytest.mark.parametrize("name", timing_sets())
def test_each_set_is_held_to_its_own_table(name: str) -> None:
    t = load_timing(name)
    trace = [Command(0, "ACT", 1), Command(t.rcd_read, "RD", 1)]
    assert not DramChecker(t).check(trace)
    assert DramChecker(t).check([trace[0], trace[1]._replace(cycle=t.rcd_read - 1)])[0].rule == "tRCDRD"
