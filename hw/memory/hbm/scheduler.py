"""Which request gets the column bus, and which the row bus."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .queue import QueueView
from .vectors import lowest, matches, pick_field, spread

__all__ = ["ColumnScheduler", "RowScheduler"]


def _fields(m: Module, reads: Value, writes: Value, write: Value, name: str) -> list[Signal]:
    """One field, bit by bit, of the queue that ``write`` selects."""
    chosen = []
    for k, (a, b) in enumerate(zip(getattr(reads, name), getattr(writes, name), strict=True)):
        plane = Signal(max(len(a), len(b)), name=f"{name}_{k}")
        m.d.comb += plane.eq(Mux(write, b, a))
        chosen.append(plane)
    return chosen


class ColumnScheduler(wiring.Component):
    """Issues the oldest request of the direction in turn whose row is open and whose bank and bus are ready.

    Combinational. When the oldest request of all is over the age limit and its row is closed, younger requests of
    its bank stand back, so that its bank can be closed.

    Parameters
    ----------
    views : tuple of QueueView
        Of reads and writes.
    address : AddressMap
        Widths.

    Members
    -------
    reads, writes : In(QueueView)
    write : In(1)
        Writes have the bus.
    readable, writable, hold : In(banks)
        Banks ready for a command, and banks that must get none.
    room : In(1)
        A response will find a place.
    chosen, issue, bank, column, slot : Out
        The entry, whether there is one, and its fields.
    starving : Out(1)
        The oldest request waits for its row over the age limit.
    """

    def __init__(self, *, views: tuple[QueueView, QueueView], address: AddressMap) -> None:
        banks = address.timing.banks
        self._width = max(view.members["valid"].shape for view in views)
        super().__init__({
            "reads": In(views[0]), "writes": In(views[1]), "write": In(1),
            "readable": In(banks), "writable": In(banks), "hold": In(banks), "room": In(1),
            "chosen": Out(self._width), "issue": Out(1), "bank": Out(address.bank_bits),
            "column": Out(address.column_bits), "slot": Out(views[0].members["slots"].dimensions[0]),
            "starving": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, write, reads, writes = self._width, self.write, self.reads, self.writes
        able, ready = Signal(width), Signal(len(self.readable))
        candidates, aside = Signal(width), Signal(width)
        m.d.comb += [
            able.eq(Mux(write, writes.able & writes.hits, reads.able & reads.hits)),
            ready.eq(Mux(write, self.writable, self.readable) & ~self.hold),
            self.starving.eq(Mux(write, writes.old & ~writes.hits[0], reads.old & ~reads.hits[0])),
            self.issue.eq(self.chosen.any()),
        ]
        banks = _fields(m, reads, writes, write, "banks")
        with m.If(self.starving):
            m.d.comb += aside.eq(matches(banks, [plane[0] for plane in banks], width))
        with m.If(self.room & (able != 0) & (ready != 0)):
            m.d.comb += [
                candidates.eq(able & spread(banks, ready, width) & ~aside),
                self.chosen.eq(lowest(candidates)),
            ]
        with m.If(self.issue):
            columns, slots = _fields(m, reads, writes, write, "columns"), _fields(m, reads, writes, write, "slots")
            m.d.comb += [
                self.bank.eq(Cat(pick_field(banks, self.chosen))),
                self.column.eq(Cat(pick_field(columns, self.chosen))),
                self.slot.eq(Cat(pick_field(slots, self.chosen))),
            ]
        return m


class RowScheduler(wiring.Component):
    """Opens a row for the oldest request that an ACT would help now, else closes the row in the way of another.

    ACTs go first because their rate is bounded (tRRD, tFAW) and PREs fit between them. Banks that two requests or more
    are for go first, because they would otherwise be what is left to do, one after the other, when the others are done;
    not so while the oldest request is starving.
    Combinational but for one bit. It looks at the direction in turn; in a cycle after one that found nothing there,
    at the other one, in banks that the first leaves alone. A row that a waiting request wants is not closed, unless
    the oldest request is starving.

    Parameters
    ----------
    views : tuple of QueueView
        Of reads and writes.
    address : AddressMap
        Widths.

    Members
    -------
    reads, writes : In(QueueView)
    write, starving : In(1)
        As the column scheduler has them.
    activatable, closable, hold : In(banks)
        Banks ready for a command, and banks that must get none.
    enable : In(1)
        The row bus is free.
    found, bank, row : Out
        Whether there is a bank to open or close, which, and the row wanted there.
    """

    def __init__(self, *, views: tuple[QueueView, QueueView], address: AddressMap) -> None:
        banks = address.timing.banks
        self._width = max(view.members["valid"].shape for view in views)
        super().__init__({
            "reads": In(views[0]), "writes": In(views[1]), "write": In(1), "starving": In(1),
            "activatable": In(banks), "closable": In(banks), "hold": In(banks), "enable": In(1),
            "found": Out(1), "bank": Out(address.bank_bits), "row": Out(address.row_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width, reads, writes = self._width, self.reads, self.writes
        aside, write = Signal(), Signal()
        m.d.comb += write.eq(self.write ^ aside)
        waiting = Signal(width)
        usable, useful, protected, wanted, opens, candidates, preferred = (
            Signal(len(self.hold), name=name)
            for name in ("usable", "useful", "protected", "wanted", "opens", "candidates", "preferred"))
        banks = _fields(m, reads, writes, write, "banks")
        first = Cat(plane[0] for plane in banks)
        m.d.comb += [
            waiting.eq(Mux(write, writes.valid & ~writes.hits, reads.valid & ~reads.hits)),
            usable.eq(~(self.hold | Mux(aside, Mux(self.write, writes.wanted, reads.wanted), 0))),
            protected.eq(Mux(write, writes.wanted_open, reads.wanted_open)
                         & ~Mux(self.starving & ~aside, 1 << first, 0)),
            wanted.eq(Mux(write, writes.wanted, reads.wanted) & usable),
            opens.eq(self.activatable & wanted),
            candidates.eq(Mux(opens.any(), opens, self.closable & wanted & ~protected)),
            preferred.eq(Mux(self.starving, 0, candidates & Mux(write, writes.crowded, reads.crowded))),
            useful.eq(Mux(preferred.any(), preferred, candidates)),
        ]
        chosen = Signal(width)
        with m.If(self.enable & (waiting != 0) & (useful != 0)):
            m.d.comb += chosen.eq(lowest(waiting & spread(banks, useful, width)))
        m.d.comb += self.found.eq(chosen.any())
        with m.If(self.found):
            m.d.comb += [
                self.bank.eq(Cat(pick_field(banks, chosen))),
                self.row.eq(Cat(pick_field(_fields(m, reads, writes, write, "rows"), chosen))),
            ]
        m.d.sync += aside.eq(~self.found & ~aside & Mux(self.write, reads.valid[0], writes.valid[0]))
        return m
