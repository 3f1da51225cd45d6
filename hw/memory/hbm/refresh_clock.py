"""What keeps time for refreshes while a channel stands still."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .timing import TimingSet

__all__ = ["RefreshClock"]


class RefreshClock(wiring.Component):
    """Ticks every refresh interval, and says how long a refresh keeps its banks.

    Parameters
    ----------
    timing : TimingSet
        Intervals and recovery times.
    mode : str
        "per-bank", "all-bank" or "off".

    Members
    -------
    tick : Out(1)
        One refresh more is owed.
    paid : In(1)
        A refresh is issued in this cycle.
    recovering : Out(1)
        It came less than tRFC or tRFCpb ago.
    """

    def __init__(self, *, timing: TimingSet, mode: str) -> None:
        self._timing = timing
        self._mode = mode
        super().__init__({"tick": Out(1), "paid": In(1), "recovering": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self._timing
        if self._mode == "off":
            return m
        interval, recovery = (t.refi_bank, t.rfc_bank) if self._mode == "per-bank" else (t.refi, t.rfc)
        count, left = Signal(range(interval), init=interval - 1), Signal(range(max(2, recovery)))
        m.d.comb += [self.tick.eq(count == 0), self.recovering.eq(left != 0)]
        m.d.sync += count.eq(count - 1)
        with m.If(self.tick):
            m.d.sync += count.eq(interval - 1)
        with m.If(self.paid):
            m.d.sync += left.eq(recovery - 1)
        with m.Elif(self.recovering):
            m.d.sync += left.eq(left - 1)
        return m
