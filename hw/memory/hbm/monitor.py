"""Turns what a channel does into events."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .command import ColumnOp, RowOp
from .events import CHANNEL_EVENTS, Cause
from .timers import Timer

__all__ = ["ChannelMonitor"]


class ChannelMonitor(wiring.Component):
    """Classifies accesses (row hit, miss, conflict) and gives each cycle of the data bus its cause.

    Parameters
    ----------
    address : AddressMap
        Timing set and widths.

    Members
    -------
    row_op, row_bank, column_op, column_bank : In
        The commands decided in this cycle.
    demanded : In(1)
        The PRE of this cycle was asked for by a request for another row.
    waiting, crowded, open_hits, turning, grouped, refreshing : In(1)
        Some request waits; no place for a response; a row is open for a request of the direction that has the bus;
        the bus turns; a bank group waits; a request waits for a bank under refresh.
    events : Out(CHANNEL_EVENTS)
        Without ``level`` and latency, which pass by.
    """

    EVENTS = ("read", "write", "row_hit", "row_miss", "row_conflict", "refresh", "cause")

    def __init__(self, *, address: AddressMap) -> None:
        self._address = address
        super().__init__({
            "row_op": In(RowOp), "row_bank": In(address.bank_bits),
            "column_op": In(ColumnOp), "column_bank": In(address.bank_bits), "demanded": In(1),
            "waiting": In(1), "crowded": In(1), "open_hits": In(1), "turning": In(1), "grouped": In(1),
            "refreshing": In(1),
            "events": Out(CHANNEL_EVENTS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._address.timing.banks
        untouched, conflict = Signal(banks), Signal(banks)   # opened and not accessed yet; closed for another row
        row_bank, column_bank = Signal(banks), Signal(banks)
        m.d.comb += [row_bank.eq(1 << self.row_bank), column_bank.eq(1 << self.column_bank)]
        access = Signal()
        m.d.comb += access.eq(self.column_op != ColumnOp.NONE)
        opened = Mux(self.row_op == RowOp.ACT, row_bank, 0)
        with m.If(access | (self.row_op == RowOp.ACT)):
            m.d.sync += untouched.eq((untouched & ~Mux(access, column_bank, 0)) | opened)
        with m.Switch(self.row_op):
            with m.Case(RowOp.PRE):
                m.d.sync += conflict.eq(Mux(self.demanded, conflict | row_bank, conflict & ~row_bank))
            with m.Case(RowOp.PREA):
                m.d.sync += conflict.eq(0)
            with m.Case(RowOp.REFPB):
                m.d.sync += conflict.eq(conflict & ~row_bank)
        first = (untouched & column_bank).any()
        was_conflict = (conflict & column_bank).any()
        m.submodules.burst = burst = Timer(cycles=self._address.timing.burst_clocks)
        m.d.comb += [
            burst.start.eq(access),
            self.events.read.eq(self.column_op == ColumnOp.RD),
            self.events.write.eq(self.column_op == ColumnOp.WR),
            self.events.row_hit.eq(access & ~first),
            self.events.row_miss.eq(access & first & ~was_conflict),
            self.events.row_conflict.eq(access & first & was_conflict),
            self.events.refresh.eq((self.row_op == RowOp.REFPB) | (self.row_op == RowOp.REFAB)),
        ]
        cause = self.events.cause
        with m.If(access | burst.busy):
            m.d.comb += cause.eq(Cause.DATA)
        with m.Elif(~self.waiting):
            m.d.comb += cause.eq(Cause.IDLE)
        with m.Elif(self.crowded):
            m.d.comb += cause.eq(Cause.RESPONSE)
        with m.Elif(self.open_hits & self.turning):
            m.d.comb += cause.eq(Cause.TURNAROUND)
        with m.Elif(self.open_hits & self.grouped):
            m.d.comb += cause.eq(Cause.GROUP)
        with m.Elif(self.refreshing):
            m.d.comb += cause.eq(Cause.REFRESH)
        with m.Else():
            m.d.comb += cause.eq(Cause.ROW)
        return m
