"""Timing sets of DRAMs: data read from YAML and checked, in clocks (one controller cycle is one tCK)."""

import dataclasses
import difflib
from dataclasses import dataclass
from pathlib import Path

import yaml

from ...config import ConfigError

__all__ = ["TimingSet", "timing_sets", "load_timing"]

_DIRECTORY = Path(__file__).parent.parent / "timings"


@dataclass(frozen=True, kw_only=True)
class TimingSet:
    """One pseudo-channel of a DRAM. Times are distances between commands, in clocks.

    access_bytes: bytes of a burst; a request of 32 bytes takes a whole burst. activate_clocks: clocks an ACT holds the
    row-command bus. read_to_write: RD to WR. wtr_s, wtr_l: end of write data to RD in another, in the same bank
    group. wr: end of write data to PRE. rp_all: PRE of all banks to ACT or refresh. rfc, refi: all-bank
    refresh and its average interval; rfc_bank, refi_bank: of one bank. rrefd: refresh of a bank to ACT or refresh of
    another, 0 where the source has no such rule.
    """

    name: str
    source: str
    clock_ps: int
    access_bytes: int
    burst_clocks: int
    bank_groups: int
    banks_per_group: int
    row_bytes: int
    rows: int
    activate_clocks: int
    cl: int
    cwl: int
    rcd_read: int
    rcd_write: int
    rp: int
    rp_all: int = 0
    ras: int
    rc: int
    ccd_s: int
    ccd_l: int
    rrd_s: int
    rrd_l: int
    faw: int
    wtr_s: int
    wtr_l: int
    wr: int
    rtp: int
    read_to_write: int
    rfc: int
    rfc_bank: int
    refi: int
    refi_bank: int
    rrefd: int

    def __post_init__(self) -> None:
        if not self.rp_all:
            object.__setattr__(self, "rp_all", self.rp)

        def rule(condition: bool, key: str, text: str) -> None:
            if not condition:
                raise ConfigError(f"{key} = {getattr(self, key)!r}: {text}")

        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.type is int and entry.name != "rrefd":
                rule(1 <= value <= 1 << 20, entry.name, "must lie in 1..1048576")
        for key in ("bank_groups", "banks_per_group", "row_bytes", "rows", "access_bytes"):
            value = getattr(self, key)
            rule(value & (value - 1) == 0, key, "must be a power of two")
        rule(self.banks <= 64, "banks_per_group", "bank_groups x banks_per_group must be 64 or fewer")
        rule(self.access_bytes in (32, 64), "access_bytes", "must be 32 or 64")
        rule(self.row_bytes >= 4 * self.access_bytes, "row_bytes", "must hold four bursts or more")
        rule(self.rows >= 2, "rows", "must be 2 or more")
        rule(self.cl >= 4, "cl", "must be 4 or more: the controller's data path needs them")
        rule(self.cwl >= 2, "cwl", "must be 2 or more: the controller's data path needs them")
        rule(self.burst_clocks <= self.ccd_s <= self.ccd_l, "ccd_s", "must lie in burst_clocks..ccd_l")
        rule(self.rrd_s <= self.rrd_l, "rrd_s", "must not exceed rrd_l")
        rule(self.wtr_s <= self.wtr_l, "wtr_s", "must not exceed wtr_l")
        rule(self.ras + self.rp <= self.rc, "rc", "must be ras + rp or more")
        rule(self.rp <= self.rp_all, "rp_all", "must be rp or more")
        rule(self.cl + self.burst_clocks <= self.read_to_write + self.cwl, "read_to_write",
             "must keep read and write data apart: cl + burst_clocks - cwl or more")
        rule(0 <= self.rrefd <= 1 << 12, "rrefd", "must lie in 0..4096")
        rule(self.refi > self.rfc, "refi", "must exceed rfc")
        rule(self.refi_bank * self.banks > self.rfc_bank, "refi_bank", "times the banks must exceed rfc_bank")

    @property
    def banks(self) -> int:
        return self.bank_groups * self.banks_per_group

    @property
    def columns(self) -> int:
        """Bursts of a row."""
        return self.row_bytes // self.access_bytes

    @property
    def bytes(self) -> int:
        """Capacity of the pseudo-channel."""
        return self.banks * self.rows * self.row_bytes

    @property
    def write_to_read_s(self) -> int:
        """WR to RD in another bank group."""
        return self.cwl + self.burst_clocks + self.wtr_s

    @property
    def write_to_read_l(self) -> int:
        """WR to RD in the same bank group."""
        return self.cwl + self.burst_clocks + self.wtr_l

    @property
    def write_to_precharge(self) -> int:
        return self.cwl + self.burst_clocks + self.wr


def timing_sets() -> list[str]:
    """Names of the built-in sets."""
    return sorted(path.stem for path in _DIRECTORY.glob("*.yaml"))


def load_timing(name: str) -> TimingSet:
    """The set of that name, or of the YAML file at that path.

    Raises :class:`ConfigError` naming file, key, value and rule.
    """
    path = _DIRECTORY / f"{name}.yaml"
    if name not in timing_sets():
        path = Path(name)
        if not path.is_file():
            near = difflib.get_close_matches(name, timing_sets(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(
                f"memory.timing = {name!r}: neither a timing set ({', '.join(timing_sets())}) nor a YAML file{hint}")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a YAML file: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: the file must hold keys and values, not {type(tree).__name__}")
    fields = {entry.name: entry for entry in dataclasses.fields(TimingSet) if entry.name != "name"}
    for key, value in tree.items():
        if key not in fields:
            near = difflib.get_close_matches(str(key), list(fields), 1)
            hint = f"the nearest valid key is {near[0]!r}" if near else f"valid keys: {', '.join(fields)}"
            raise ConfigError(f"{path}: {key} = {value!r}: unknown key; {hint}")
        kind = fields[key].type
        if not isinstance(value, kind) or isinstance(value, bool):  # type: ignore[arg-type]
            raise ConfigError(f"{path}: {key} = {value!r}: must be {kind.__name__}")  # type: ignore[union-attr]
    missing = [key for key, entry in fields.items() if entry.default is dataclasses.MISSING and key not in tree]
    if missing:
        raise ConfigError(f"{path}: missing {', '.join(missing)}")
    try:
        return TimingSet(name=path.stem, **tree)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
