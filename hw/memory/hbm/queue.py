"""The requests of one direction that wait for their column command."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .address import AddressMap
from .command import RowOp
from .vectors import lowest, matches, repeat

__all__ = ["QueueView", "RequestQueue", "AGE_LIMIT"]

AGE_LIMIT = 256
"""Cycles that the oldest request waits before row hits younger than it stand back."""


class QueueView(wiring.Signature):
    """What the schedulers see of a queue; bit i of a vector is entry i, and entry 0 is the oldest.

    valid: entries in use. hits: their row is open. able: they wait for the DRAM alone. blocks: they wait for the
    other queue. lacks: their write data is to come. rows, banks, columns, slots: the fields, bit by bit. wanted:
    banks that an entry is for. crowded: those that two or more are for. wanted_open: those where an entry's row is
    open. old: the oldest entry is
    over the age limit. level: entries in use.
    """

    def __init__(self, *, entries: int, address: AddressMap, slot_bits: int) -> None:
        banks = address.timing.banks
        super().__init__({
            "valid": Out(entries), "hits": Out(entries), "able": Out(entries), "blocks": Out(entries),
            "lacks": Out(entries),
            "rows": Out(entries).array(address.row_bits), "banks": Out(entries).array(address.bank_bits),
            "columns": Out(entries).array(address.column_bits), "slots": Out(entries).array(slot_bits),
            "wanted": Out(banks), "crowded": Out(banks), "wanted_open": Out(banks),
            "old": Out(1), "level": Out(range(entries + 1)),
        })


class RequestQueue(wiring.Component):
    """Entries in the order of their arrival, stored by bit: bit k of every entry's field is one vector.

    Taking an entry moves the younger ones down by one in the same cycle; a new entry goes behind the last. One
    entry can leave and one come in a cycle.

    Parameters
    ----------
    entries : int
        Capacity.
    address : AddressMap
        Widths of row, bank and column.
    slot_bits : int
        Bits of the number that leads to the rest of a request.

    Members
    -------
    insert, bank, row, column, slot : In
        A new entry; only while ``full`` is low.
    hit, blocked, missing : In(1)
        Of the new entry: its row is open; it must wait for an entry of the other queue; its write data is to come.
    take, take_bank : In
        The entry that leaves, or nothing, and its bank.
    row_op, row_bank, row_row : In
        The row command decided in this cycle; ``hits`` follows it.
    release : In(entries)
        Entries that need not wait for the other queue any more.
    supplied : In(1)
        Write data came for the oldest entry that lacked it.
    view : Out(QueueView)
    full : Out(1)
    """

    def __init__(self, *, entries: int, address: AddressMap, slot_bits: int) -> None:
        self._entries = entries
        super().__init__({
            "insert": In(1), "bank": In(address.bank_bits), "row": In(address.row_bits),
            "column": In(address.column_bits), "slot": In(slot_bits),
            "hit": In(1), "blocked": In(1), "missing": In(1),
            "take": In(entries), "take_bank": In(address.bank_bits),
            "row_op": In(RowOp), "row_bank": In(address.bank_bits), "row_row": In(address.row_bits),
            "release": In(entries),
            "supplied": In(1),
            "view": Out(QueueView(entries=entries, address=address, slot_bits=slot_bits)),
            "full": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        n, view = self._entries, self.view
        fields = {"rows": self.row, "banks": self.bank, "columns": self.column, "slots": self.slot}
        planes = {name: [getattr(view, name)[k] for k in range(len(field))] for name, field in fields.items()}
        takes = Signal()
        m.d.comb += [
            takes.eq(self.take.any()),
            self.full.eq(view.valid[-1]),
            view.able.eq(view.valid & ~(view.blocks | view.lacks)),
        ]
        hits, opens = self._hits(m, planes["rows"], planes["banks"])
        self._banks(m, planes["banks"], hits, opens, takes)

        # Entries below the one that leaves stay; `take` of nothing makes `stay` all ones.
        stay, after, new = Signal(n), Signal(n), Signal(n)
        m.d.comb += stay.eq(self.take - 1)

        def close_up(plane: Value) -> Value:
            return (plane & stay) | ((plane >> 1) & ~stay)

        m.d.comb += [
            after.eq(close_up(view.valid)),
            new.eq(Mux(self.insert, ~after & ((after << 1) | 1), 0)),
        ]
        with m.If(self.insert | takes):
            m.d.sync += view.valid.eq(after | new)
            for name, field in fields.items():
                for k, plane in enumerate(planes[name]):
                    m.d.sync += plane.eq((close_up(plane) & ~new) | (new & repeat(field[k], n)))
        lacks = Mux(self.supplied, view.lacks & ~lowest(view.lacks), view.lacks)
        for plane, now, bit in ((view.hits, hits, self.hit), (view.blocks, view.blocks & ~self.release, self.blocked),
                                (view.lacks, lacks, self.missing)):
            m.d.sync += plane.eq(close_up(now) | (new & repeat(bit, n)))

        age = Signal(range(AGE_LIMIT + 1))
        m.d.comb += view.old.eq(age == AGE_LIMIT)
        m.d.sync += view.level.eq(view.level + self.insert - takes)
        with m.If(self.take[0] | ~view.valid[0]):
            m.d.sync += age.eq(0)
        with m.Elif(~view.old):
            m.d.sync += age.eq(age + 1)
        return m

    def _hits(self, m: Module, rows: list[Value], banks: list[Value]) -> tuple[Signal, Signal]:
        """``hits`` after this cycle's row command, and whether an ACT opens a row for some entry."""
        n, view = self._entries, self.view
        hits, in_bank, opens = Signal(n), Signal(n), Signal()
        with m.Switch(self.row_op):
            with m.Case(RowOp.ACT):
                m.d.comb += [
                    in_bank.eq(matches([*banks, *rows], [*self.row_bank, *self.row_row], n) & view.valid),
                    hits.eq(view.hits | in_bank),
                    opens.eq(in_bank.any()),
                ]
            with m.Case(RowOp.PRE):
                m.d.comb += hits.eq(view.hits & ~matches(banks, self.row_bank, n))
            with m.Case(RowOp.PREA):
                m.d.comb += hits.eq(0)
            with m.Default():
                m.d.comb += hits.eq(view.hits)
        return hits, opens

    def _banks(self, m: Module, banks: list[Value], hits: Value, opens: Value, takes: Value) -> None:
        """Keep ``wanted`` and ``wanted_open``: an entry sets its bank's bit; the last one to leave clears it."""
        n, view = self._entries, self.view
        count = len(view.wanted)
        taken, taken_hit, thinned = Signal(count), Signal(count), Signal(count)
        commanded, new = Signal(count), Signal(count)
        others = Signal(n)
        with m.If(takes):
            m.d.comb += [
                others.eq(matches(banks, self.take_bank, n) & view.valid & ~self.take),
                taken.eq(Mux(others.any(), 0, 1 << self.take_bank)),
                thinned.eq(Mux((others & (others - 1)).any(), 0, 1 << self.take_bank)),
                taken_hit.eq(Mux((others & hits).any(), 0, 1 << self.take_bank)),
            ]
        with m.If(self.insert):
            m.d.comb += new.eq(1 << self.bank)
        kept = Signal(count)
        m.d.comb += [kept.eq(view.wanted_open), commanded.eq(1 << self.row_bank)]
        with m.Switch(self.row_op):
            with m.Case(RowOp.ACT):
                m.d.comb += kept.eq(Mux(opens, view.wanted_open | commanded, view.wanted_open))
            with m.Case(RowOp.PRE):
                m.d.comb += kept.eq(view.wanted_open & ~commanded)
            with m.Case(RowOp.PREA):
                m.d.comb += kept.eq(0)
        m.d.sync += [
            view.wanted.eq((view.wanted & ~taken) | new),
            view.crowded.eq((view.crowded & ~thinned) | (view.wanted & ~taken & new)),
            view.wanted_open.eq((kept & ~taken_hit) | Mux(self.hit, new, 0)),
        ]
