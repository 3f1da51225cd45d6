"""When to close a row that no waiting request wants."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .command import RowOp
from .vectors import lowest, number_of

__all__ = ["PageCloser"]

_SHORTEST, _LONGEST = 4, 10   # log2 of the adaptive policy's time limits, in cycles
_VOTES = 8                    # net mistakes of one kind that change the limit


class PageCloser(wiring.Component):
    """Offers a bank to close when the row bus has nothing better to do.

    ``open``: never. ``closed``: as soon as no waiting request wants the row. ``adaptive``: when nobody used it for
    one to two time limits; the limit doubles when rows closed by it are opened again, and halves when requests
    find other rows open.

    Parameters
    ----------
    address : AddressMap
        Banks and widths.
    policy : str
        "open", "closed" or "adaptive".

    Members
    -------
    open, closable : In(banks)
        From the bank machines.
    wanted : In(banks)
        Banks whose open row a request waits for.
    used : In(banks)
        Banks that a column command goes to in this cycle.
    rows : In(row_bits), an array
        The open row of each bank, or the last one.
    row_op, row_bank, row : In
        The row command of this cycle.
    close, bank : Out
        A bank to close.
    """

    def __init__(self, *, address: AddressMap, policy: str) -> None:
        self._address = address
        self._policy = policy
        banks = address.timing.banks
        super().__init__({
            "open": In(banks), "closable": In(banks), "wanted": In(banks), "used": In(banks),
            "rows": In(address.row_bits).array(banks),
            "row_op": In(RowOp), "row_bank": In(address.bank_bits), "row": In(address.row_bits),
            "close": Out(1), "bank": Out(address.bank_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._address.timing.banks
        if self._policy == "open":
            return m
        idle = self._idle(m, banks) if self._policy == "adaptive" else self.open
        choice = Signal(banks)
        m.d.comb += [
            choice.eq(lowest(idle & self.open & self.closable & ~self.wanted)),
            self.close.eq(choice.any()),
        ]
        m.d.comb += self.bank.eq(Cat(number_of(choice, k) for k in range(self._address.bank_bits)))
        return m

    def _idle(self, m: Module, banks: int) -> Signal:
        touched, idle, timed_out = Signal(banks), Signal(banks), Signal(banks)
        count = Signal(_LONGEST + 1)
        scale = Signal(range(_LONGEST + 1), init=(_SHORTEST + _LONGEST) // 2)
        votes = Signal(range(2 * _VOTES + 1), init=_VOTES)
        over = Signal()
        bank = Signal(banks)
        act = Signal()
        m.d.comb += [over.eq((count >> scale) != 0), bank.eq(1 << self.row_bank),
                     act.eq(self.row_op == RowOp.ACT)]
        m.d.sync += count.eq(Mux(over, 0, count + 1))
        opened = Mux(act, bank, 0)
        with m.If(over):
            m.d.sync += [idle.eq(~touched & ~self.used & ~opened), touched.eq(0)]
        with m.Else():
            m.d.sync += [idle.eq(idle & ~self.used & ~opened), touched.eq(touched | self.used | opened)]

        closes = Signal()
        m.d.comb += closes.eq(self.row_op == RowOp.PRE)
        with m.If(closes):
            mine = self.close & (self.bank == self.row_bank)
            m.d.sync += timed_out.eq(Mux(mine, timed_out | bank, timed_out & ~bank))
        early = act & (timed_out & bank).any() & (Array(self.rows)[self.row_bank] == self.row)
        late = closes & ~(self.close & (self.bank == self.row_bank))
        with m.If(early):
            m.d.sync += votes.eq(votes + 1)
            with m.If(votes == 2 * _VOTES - 1):
                m.d.sync += [votes.eq(_VOTES), scale.eq(Mux(scale == _LONGEST, scale, scale + 1))]
        with m.Elif(late):
            m.d.sync += votes.eq(votes - 1)
            with m.If(votes == 1):
                m.d.sync += [votes.eq(_VOTES), scale.eq(Mux(scale == _SHORTEST, scale, scale - 1))]
        return idle
