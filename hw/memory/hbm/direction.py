"""Whether reads or writes have the data bus."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Direction", "BATCH", "FRUITLESS"]

BATCH = 64       # column commands after which the other direction gets its turn
FRUITLESS = 64   # cycles without one after which it does: an open row may wait for the other direction
_PATIENCE = 16    # cycles without a read before a few writes are worth two turns of the bus
_LOW = 2          # writes left when reads that wait get the bus back


class Direction(wiring.Component):
    """Reads go first; writes gather and are drained in batches, so that the bus seldom turns.

    Reads give way when the write queue is three quarters full (or its oldest entry is old, or a read waits for a
    write) and either no read is left or a batch of 64 is done; and when no read came for 16 cycles. Writes
    give way when they are down to two, or a batch is done, or none can go.

    Parameters
    ----------
    entries : int
        Capacity of the write queue.

    Members
    -------
    reads, writes : In(1)
        There is a request of that direction that waits for nothing but the DRAM.
    level : In
        Writes in the queue.
    stuck : In(1)
        A read waits for a write, or the request at the door is a write and finds no room.
    write_old : In(1)
        The oldest write is over the age limit.
    issued : In(1)
        A column command is issued in this cycle.
    write : Out(1)
        Writes have the bus.
    """

    def __init__(self, *, entries: int) -> None:
        self._high = entries - entries // 4
        super().__init__({
            "reads": In(1), "writes": In(1), "level": In(range(entries + 1)), "stuck": In(1),
            "write_old": In(1), "issued": In(1), "write": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        done = Signal(range(BATCH + 1))
        fruitless = Signal(range(FRUITLESS + 1))
        whole = Signal()
        waited = Signal(range(_PATIENCE + 1))
        turn = Signal()
        m.d.comb += whole.eq((done == BATCH) | (fruitless == FRUITLESS))
        with m.If(turn):
            m.d.sync += [self.write.eq(~self.write), done.eq(0), fruitless.eq(0)]
        with m.Elif(self.issued):
            m.d.sync += fruitless.eq(0)
            with m.If(done != BATCH):
                m.d.sync += done.eq(done + 1)
        with m.Elif(fruitless != FRUITLESS):
            m.d.sync += fruitless.eq(fruitless + 1)
        with m.If(self.reads | ~self.writes):
            m.d.sync += waited.eq(0)
        with m.Elif(waited != _PATIENCE):
            m.d.sync += waited.eq(waited + 1)
        with m.If(self.write):
            low = (self.level <= _LOW) & ~self.write_old
            m.d.comb += turn.eq(self.reads & (~self.writes | whole | low))
        with m.Else():
            urgent = (self.level >= self._high) | self.write_old | self.stuck
            m.d.comb += turn.eq(self.writes & Mux(self.reads, urgent & whole, urgent | (waited == _PATIENCE)))
        return m
