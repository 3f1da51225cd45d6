"""A checker of recorded DRAM command buses, written from the timing tables alone."""

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ringloom.hw.memory.hbm.timing import TimingSet

__all__ = ["Command", "Violation", "DramChecker", "RULES", "write_commands", "read_commands"]

_LONG_AGO = -(1 << 60)
_UNKNOWN = -1   # a row, or none: seen by no command yet

RULES = (
    "row bus", "column bus", "address", "ACT of an open bank", "access to a closed bank", "PRE of a closed bank",
    "refresh of an open bank", "tRCDRD", "tRCDWR", "tRP", "tRAS", "tRC", "tCCD_S", "tCCD_L", "tRRD_S", "tRRD_L", "tFAW",
    "tWTR_S", "tWTR_L", "tWR", "tRTP", "tRTW", "data bus", "tRFC", "tRFCpb", "tRREFD", "tREFI",
)
"""Every rule a violation can name. Distances are counted from command to command."""


class Command(NamedTuple):
    """op: ACT, PRE, PREA, RD, WR, REFPB or REFAB. bank: bank group in its low part (bank % bank_groups)."""

    cycle: int
    op: str
    bank: int = 0
    row: int = 0
    column: int = 0


class Violation(NamedTuple):
    rule: str
    cycle: int
    bank: int
    message: str


class DramChecker:
    """Checks commands of one pseudo-channel in the order of their cycles.

    Parameters
    ----------
    timing : TimingSet
        The table the commands are held to.
    refresh : str
        "per-bank", "all-bank" or "off": what must come at least every nine refresh intervals.
    rows : int
        Rows in use; a higher row address is a violation.
    since : int
        The cycle in which the recording begins.
    unknown : bool
        It begins in the middle of things: a bank may have any row open until its first command tells.
    """

    def __init__(self, timing: TimingSet, *, refresh: str = "per-bank", rows: int | None = None, since: int = 0,
                 unknown: bool = False) -> None:
        self._t = timing
        self._refresh = refresh
        self._rows = timing.rows if rows is None else rows
        banks, groups = timing.banks, timing.bank_groups
        self._open: list[int | None] = [_UNKNOWN if unknown else None] * banks
        self._act = [_LONG_AGO] * banks
        self._pre = [_LONG_AGO] * banks
        self._pre_all = _LONG_AGO
        self._read = [_LONG_AGO] * banks
        self._write = [_LONG_AGO] * banks
        self._bank_refresh = [_LONG_AGO] * banks
        self._refreshed = [since] * banks
        self._any_bank_refresh = (_LONG_AGO, -1)
        self._all_refresh = _LONG_AGO
        self._group_act = [_LONG_AGO] * groups
        self._group_access = [_LONG_AGO] * groups
        self._group_write = [_LONG_AGO] * groups
        self._last_act = _LONG_AGO
        self._last_access = _LONG_AGO
        self._last_read = _LONG_AGO
        self._last_write = _LONG_AGO
        self._acts: deque[int] = deque([_LONG_AGO] * 4, 4)
        self._row_free = _LONG_AGO
        self._column_free = _LONG_AGO
        self._data_free = _LONG_AGO
        self.commands = 0
        self.violations: list[Violation] = []

    def _fail(self, rule: str, command: Command, message: str) -> None:
        self.violations.append(Violation(rule, command.cycle, command.bank, message))

    def _after(self, rule: str, command: Command, since: int, distance: int) -> None:
        if command.cycle < since + distance:
            self._fail(rule, command, f"{command.op} of bank {command.bank} in cycle {command.cycle} is "
                                      f"{command.cycle - since} clocks after cycle {since}; {rule} asks for {distance}")

    def check(self, commands: Iterable[Command]) -> list[Violation]:
        """Feed commands; the violations so far come back. May be called again with later commands."""
        for command in commands:
            self.commands += 1
            if not (0 <= command.bank < self._t.banks and 0 <= command.row < self._rows
                    and 0 <= command.column < self._t.row_bytes // 32):
                self._fail("address", command, f"{command} does not exist in this DRAM")
                continue
            if command.op in ("RD", "WR"):
                self._column(command)
            else:
                self._row(command)
        return self.violations

    def finish(self, cycle: int) -> list[Violation]:
        """State that the recording ended in ``cycle``: refreshes that should have come by then are missed."""
        for bank in range(self._t.banks):
            self._refresh_in_time(Command(cycle, "end", bank))
        return self.violations

    def _refresh_in_time(self, command: Command) -> None:
        if self._refresh == "off":
            return
        interval = self._t.refi if self._refresh == "all-bank" else self._t.refi_bank * self._t.banks
        if command.cycle - self._refreshed[command.bank] > 9 * interval:
            self._fail("tREFI", command, f"bank {command.bank} was not refreshed between cycles "
                                         f"{self._refreshed[command.bank]} and {command.cycle}")
            self._refreshed[command.bank] = command.cycle

    def _row(self, c: Command) -> None:
        t, bank, now = self._t, c.bank, c.cycle
        if now < self._row_free:
            self._fail("row bus", c, f"{c.op} in cycle {now}: the row-command bus is taken until {self._row_free}")
        self._row_free = now + (t.activate_clocks if c.op == "ACT" else 1)
        if c.op == "ACT":
            group = bank % t.bank_groups
            if self._open[bank] not in (None, _UNKNOWN):
                self._fail("ACT of an open bank", c, f"bank {bank} has row {self._open[bank]} open in cycle {now}")
            self._after("tRC", c, self._act[bank], t.rc)
            self._idle_bank(c, bank)
            self._after("tRRD_L", c, self._group_act[group], t.rrd_l)
            self._after("tRRD_S", c, self._last_act, t.rrd_s)
            self._after("tFAW", c, self._acts[0], t.faw)
            if self._any_bank_refresh[1] != bank:
                self._after("tRREFD", c, self._any_bank_refresh[0], t.rrefd)
            self._open[bank] = c.row
            self._act[bank] = self._group_act[group] = self._last_act = now
            self._acts.append(now)
        elif c.op == "PRE":
            if self._open[bank] is None:
                self._fail("PRE of a closed bank", c, f"bank {bank} is closed in cycle {now}")
            self._closing(c, bank)
            self._pre[bank] = now
        elif c.op == "PREA":
            for each in range(t.banks):
                self._closing(c._replace(bank=each), each)
            self._pre_all = now
        elif c.op == "REFPB":
            if self._open[bank] not in (None, _UNKNOWN):
                self._fail("refresh of an open bank", c, f"bank {bank} has row {self._open[bank]} open in cycle {now}")
            self._after("tRC", c, self._act[bank], t.rc)
            self._idle_bank(c, bank)
            self._after("tRRD_S", c, self._last_act, t.rrd_s)
            self._after("tRREFD", c, self._any_bank_refresh[0], t.rrefd)
            self._open[bank] = None
            self._bank_refresh[bank] = now
            self._any_bank_refresh = (now, bank)
            self._refresh_in_time(c)
            self._refreshed[bank] = now
        elif c.op == "REFAB":
            for each in range(t.banks):
                one = c._replace(bank=each)
                if self._open[each] not in (None, _UNKNOWN):
                    self._fail("refresh of an open bank", one, f"bank {each} is open in cycle {now}")
                self._after("tRC", one, self._act[each], t.rc)
                self._idle_bank(one, each)
                self._refresh_in_time(one)
                self._open[each] = None
                self._refreshed[each] = now
            self._all_refresh = now
        else:
            raise ValueError(f"{c.op!r} is no DRAM command")

    def _idle_bank(self, c: Command, bank: int) -> None:
        """Rules between whatever closed a bank and the next ACT or refresh of it."""
        self._after("tRP", c, self._pre[bank], self._t.rp)
        self._after("tRP", c, self._pre_all, self._t.rp_all)
        self._after("tRFCpb", c, self._bank_refresh[bank], self._t.rfc_bank)
        self._after("tRFC", c, self._all_refresh, self._t.rfc)

    def _closing(self, c: Command, bank: int) -> None:
        t = self._t
        if self._open[bank] is None:
            return
        self._after("tRAS", c, self._act[bank], t.ras)
        self._after("tRTP", c, self._read[bank], t.rtp)
        self._after("tWR", c, self._write[bank], t.write_to_precharge)
        self._open[bank] = None

    def _column(self, c: Command) -> None:
        t, bank, now = self._t, c.bank, c.cycle
        group = bank % t.bank_groups
        if now < self._column_free:
            self._fail("column bus", c, f"{c.op} in cycle {now}: two column commands in one clock")
        self._column_free = now + 1
        if self._open[bank] is None:
            self._fail("access to a closed bank", c, f"{c.op} of bank {bank} in cycle {now}: no row is open")
        elif c.op == "RD":
            self._after("tRCDRD", c, self._act[bank], t.rcd_read)
        else:
            self._after("tRCDWR", c, self._act[bank], t.rcd_write)
        self._after("tCCD_S", c, self._last_access, t.ccd_s)
        self._after("tCCD_L", c, self._group_access[group], t.ccd_l)
        if c.op == "RD":
            self._after("tWTR_S", c, self._last_write, t.cwl + t.burst_clocks + t.wtr_s)
            self._after("tWTR_L", c, self._group_write[group], t.cwl + t.burst_clocks + t.wtr_l)
            self._read[bank] = self._last_read = now
            data = now + t.cl
        else:
            self._after("tRTW", c, self._last_read, t.read_to_write)
            self._write[bank] = self._group_write[group] = self._last_write = now
            data = now + t.cwl
        if data < self._data_free:
            self._fail("data bus", c, f"{c.op} in cycle {now}: its data would meet the last burst's")
        self._data_free = data + t.burst_clocks
        self._last_access = self._group_access[group] = now


_HEADER = "cycle,channel,command,bank_group,bank,row,column"


def write_commands(path: str | Path, commands: Iterable[tuple[int, Command]], timing: TimingSet) -> None:
    """Write recorded (channel, command) pairs as CSV for other checkers; ``column`` counts 32-byte beats."""
    with open(path, "w", encoding="ascii") as file:
        file.write(_HEADER + "\n")
        for channel, c in commands:
            file.write(f"{c.cycle},{channel},{c.op},{c.bank % timing.bank_groups},{c.bank // timing.bank_groups},"
                       f"{c.row},{c.column}\n")


def read_commands(path: str | Path, timing: TimingSet) -> Iterator[tuple[int, Command]]:
    """The (channel, command) pairs of a file that :func:`write_commands` wrote."""
    with open(path, encoding="ascii") as file:
        if file.readline().strip() != _HEADER:
            raise ValueError(f"{path}: the first line must be {_HEADER}")
        for line in file:
            cycle, channel, op, group, bank, row, column = line.split(",")
            number = int(group) + int(bank) * timing.bank_groups
            yield int(channel), Command(int(cycle), op, number, int(row), int(column))
