"""Whether a channel has anything to do."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .command import ColumnOp, RowOp
from .timing import TimingSet

__all__ = ["Activity"]


class Activity(wiring.Component):
    """Keeps a channel awake while something waits, and behind a command until its distances and its data are over.

    A channel that stands still delays no rule that runs: it would only make a distance longer.

    Parameters
    ----------
    timing : TimingSet
        How long a command has consequences.

    Members
    -------
    row_op, column_op : In
        The commands decided in this cycle.
    waiting : In(1)
        Something waits, in whatever queue.
    busy : Out(1)
        The channel's registers must go on.
    """

    def __init__(self, *, timing: TimingSet) -> None:
        self._timing = timing
        super().__init__({"row_op": In(RowOp), "column_op": In(ColumnOp), "waiting": In(1), "busy": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self._timing
        after = 2 + max(t.rc, t.rp_all, t.faw, t.rrd_l, t.read_to_write, t.write_to_precharge, t.write_to_read_l,
                        t.cl + t.burst_clocks)
        after_refresh = max(4, t.rrefd)   # tRFC is the refresh clock's; the bus shows the command a cycle later
        left = Signal(range(after + 1))
        refresh = Signal()
        m.d.comb += [
            refresh.eq((self.row_op == RowOp.REFPB) | (self.row_op == RowOp.REFAB)),
            self.busy.eq(self.waiting | (left != 0)),
        ]
        with m.If((self.column_op != ColumnOp.NONE) | ((self.row_op != RowOp.NONE) & ~refresh)):
            m.d.sync += left.eq(after)
        with m.Elif(refresh):
            m.d.sync += left.eq(Mux(left > after_refresh, left - 1, after_refresh))
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        return m
