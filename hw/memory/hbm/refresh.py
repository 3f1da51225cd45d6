"""When to refresh, and which bank."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .command import RowOp
from .vectors import lowest, number_of

__all__ = ["Refresher"]

_PULL = 8
"""Postponed refreshes of single banks from which even a bank that may soon be used is taken."""


class Refresher(wiring.Component):
    """Owes a refresh every interval and pays where it costs least.

    ``all-bank``: a refresh is postponed while requests wait, by eight intervals at most; then everything stops for
    one. ``per-bank``: each round refreshes every bank once, in any order. A bank that has no request waiting and
    was used a short while ago is best (a linear stream comes back to it last); banks untouched for longer follow
    when eight are owed or nothing waits at all, and at half of what the DRAM tolerates any bank is taken by force.

    Parameters
    ----------
    address : AddressMap
        Timing set and widths.
    mode : str
        "per-bank", "all-bank" or "off".

    Members
    -------
    wanted : In(banks)
        Banks that have requests waiting.
    used : In(banks)
        Banks that a column command goes to in this cycle.
    open, closable, refreshable, all_closable, all_refreshable : In
        From the bank machines.
    granted : In(1)
        The command of ``op`` is taken in this cycle.
    tick, recovering : In(1)
        From the refresh clock.
    paid : Out(1)
        A refresh is issued in this cycle.
    pending : Out(1)
        There is something to do about refreshes.
    hold, hold_columns : Out(banks)
        Banks that must get no other row command, and no column command.
    op, bank : Out
        The row command to issue now, or none.
    active : Out(banks)
        Banks that are held or refreshed: requests to them wait for it.
    """

    def __init__(self, *, address: AddressMap, mode: str) -> None:
        self._address = address
        self._mode = mode
        banks = address.timing.banks
        super().__init__({
            "wanted": In(banks), "used": In(banks),
            "open": In(banks), "closable": In(banks), "refreshable": In(banks),
            "all_closable": In(1), "all_refreshable": In(1),
            "granted": In(1), "tick": In(1), "recovering": In(1), "paid": Out(1), "pending": Out(1),
            "hold": Out(banks), "hold_columns": Out(banks), "op": Out(RowOp), "bank": Out(address.bank_bits),
            "active": Out(banks),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self._address.timing
        if self._mode == "off":
            return m
        per_bank = self._mode == "per-bank"
        limit = 4 * t.banks if per_bank else 8
        owed, busy, quiet = Signal(range(2 * limit + 1)), Signal(), Signal()
        with m.If(self.tick & ~self.paid):
            m.d.sync += owed.eq(owed + 1)
        with m.Elif(self.paid & ~self.tick):
            m.d.sync += owed.eq(owed - 1)
        m.d.comb += [
            quiet.eq(~self.wanted.any()),
            self.paid.eq(self.granted & ((self.op == RowOp.REFPB) | (self.op == RowOp.REFAB))),
            self.pending.eq(busy | ((owed != 0) & ~self.recovering)),
        ]
        if per_bank:
            self._one(m, owed, limit, quiet, busy)
        else:
            self._all(m, owed, limit, quiet, busy)
        return m

    def _all(self, m: Module, owed: Signal, limit: int, quiet: Signal, busy: Signal) -> None:
        banks = self._address.timing.banks
        with m.If(self.paid):
            m.d.sync += busy.eq(0)
        with m.Elif((owed >= limit) | ((owed != 0) & quiet)):
            m.d.sync += busy.eq(1)
        every = (1 << banks) - 1
        # Rows opened just before are used first, or their ACTs would be lost.
        grace = self._address.timing.rcd_read + 2
        rest = Signal(range(grace + 1))
        with m.If(~busy):
            m.d.sync += rest.eq(grace)
        with m.Elif(rest != 0):
            m.d.sync += rest.eq(rest - 1)
        m.d.comb += [
            self.hold.eq(Mux(busy, every, 0)), self.hold_columns.eq(Mux(busy & (rest == 0), every, 0)),
            self.active.eq(Mux(busy | self.recovering, every, 0)),
        ]
        with m.If(busy & (rest == 0)):
            with m.If(self.open.any()):
                with m.If(self.all_closable):
                    m.d.comb += self.op.eq(RowOp.PREA)
            with m.Elif(self.all_refreshable):
                m.d.comb += self.op.eq(RowOp.REFAB)

    def _one(self, m: Module, owed: Signal, limit: int, quiet: Signal, busy: Signal) -> None:
        banks = self._address.timing.banks
        due = Signal(banks, init=-1)          # banks this round still owes
        fresh, recent = Signal(banks), Signal(banks)   # used since the last tick; in the interval before
        with m.If(self.tick):
            m.d.sync += [recent.eq(fresh), fresh.eq(self.used)]
        with m.Else():
            m.d.sync += fresh.eq(fresh | self.used)

        target = Signal(banks)   # one-hot: the refresh that is being brought about while ``busy``
        last = Signal(banks)     # one-hot: the bank refreshed last
        free, choice = Signal(banks), Signal(banks)
        m.d.comb += free.eq(due & ~self.wanted)
        with m.If((free & fresh).any()):
            m.d.comb += choice.eq(lowest(free & fresh))
        with m.Elif((free & recent).any()):
            m.d.comb += choice.eq(lowest(free & recent))
        with m.Elif(quiet | (owed >= _PULL)):
            m.d.comb += choice.eq(lowest(free))
        with m.If((owed >= limit) & ~free.any()):
            m.d.comb += choice.eq(lowest(due))
        with m.If(busy):
            with m.If(self.paid):
                m.d.sync += [busy.eq(0), last.eq(target)]
                m.d.sync += due.eq(Mux((due & ~target) == 0, (1 << banks) - 1, due & ~target))
        with m.Elif((owed != 0) & choice.any() & ~self.recovering):
            m.d.sync += [busy.eq(1), target.eq(choice)]

        m.d.comb += [
            self.bank.eq(Cat(number_of(target, k) for k in range(self._address.bank_bits))),
            self.hold.eq(Mux(busy, target, 0)), self.hold_columns.eq(self.hold),
            self.active.eq(self.hold | Mux(self.recovering, last, 0)),
        ]
        with m.If((target & self.open & self.closable).any() & busy):
            m.d.comb += self.op.eq(RowOp.PRE)
        with m.Elif((target & self.refreshable).any() & busy):
            m.d.comb += self.op.eq(RowOp.REFPB)
