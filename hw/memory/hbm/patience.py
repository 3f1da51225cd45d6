"""How long a DRAM may keep a requester waiting."""

import math

from ...config import WAITING_BEATS, MemoryConfig
from .direction import BATCH, FRUITLESS
from .queue import AGE_LIMIT
from .timing import TimingSet

__all__ = ["longest_access", "patience_cycles"]

_ACCESSES = 4     # one after the other without progress that shows, as IdealConfig counts them
_POSTPONED = 4    # refreshes of one bank that may be owed


def longest_access(memory: MemoryConfig, timing: TimingSet) -> int:
    """Cycles from a request to its response, at the very most, with the beats of all clients in front of it.

    Every request before it needs a new row of the same bank, the bus turns for each batch, and refreshes come in
    between: all of them with all-bank refresh, those of the bank with per-bank refresh.
    """
    t = timing
    row = max(t.rc, t.rcd_write + t.write_to_precharge + t.rp)
    in_front = memory.read_queue + memory.write_queue + max(BATCH, WAITING_BEATS)
    turns = 2 * math.ceil(in_front / BATCH) + 2
    work = in_front * row + turns * (FRUITLESS + t.write_to_read_l + t.read_to_write) + AGE_LIMIT + t.cl
    if memory.refresh == "off":
        return work
    whole = memory.refresh == "all-bank"
    interval = t.refi if whole else t.refi_bank * t.banks
    refresh = row + (t.rp_all + t.rfc if whole else t.rp + t.rfc_bank)
    # n refreshes come in T cycles, each of which makes T longer: T = work + n * refresh, n = postponed + T / interval
    return math.ceil((work + (_POSTPONED + 1) * refresh) / (1 - min(0.9, refresh / interval)))


def patience_cycles(memory: MemoryConfig, timing: TimingSet) -> int:
    """Cycles without progress that are no fault."""
    return _ACCESSES * longest_access(memory, timing)
