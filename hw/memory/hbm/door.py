"""Where requests come in."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..port import BEAT_SHIFT, TAG_BITS, request_layout, write_layout
from .address import AddressMap
from .command import RowOp
from .completion import LATENCY_BITS, origin_layout
from .queue import QueueView
from .vectors import lowest, matches, pick_field

__all__ = ["Door"]


class Door(wiring.Component):
    """One request waits here, is compared with the other direction's queue, and enters its own.

    A request that meets one entry of the other queue with its address enters and waits there for it; one that
    meets more stays at the door. Write data follow their requests into the memory of write data. Latency one cycle,
    throughput one request a cycle.

    Parameters
    ----------
    views : tuple of QueueView
        Of reads and writes.
    address : AddressMap
        Address mapping.
    address_bits : int
        Bits of a byte address at the port.
    tag_bits : int
        Bits of a tag.

    Members
    -------
    requests, write_data : In(stream)
        The memory port.
    now : In
        The cycle, for latencies.
    reads, writes : In(QueueView)
    reads_full, writes_full, slot_free : In(1)
        What may keep a request here.
    read_take, write_take : In
        Entries that leave in this cycle.
    open, rows, row_op, row_bank, row : In
        Open rows, and the row command that changes them.
    insert_read, insert_write : Out(1), place : Out, column : Out, origin : Out
        The request that enters.
    hit, blocked : Out(1)
        Its row is open after this cycle; it must wait for the other queue.
    data_slot, data, data_enable : Out
        A beat of write data, and where it goes.
    full : Out(1)
        A request is here.
    write_waits : Out(1)
        A write finds no room.
    """

    def __init__(self, *, views: tuple[QueueView, QueueView], address: AddressMap, address_bits: int,
                 tag_bits: int = TAG_BITS) -> None:
        self._address = address
        banks = address.timing.banks
        slot_bits = views[0].members["slots"].dimensions[0]
        super().__init__({
            "requests": In(stream.Signature(request_layout(address_bits, tag_bits))),
            "write_data": In(stream.Signature(write_layout())),
            "now": In(LATENCY_BITS),
            "reads": In(views[0]), "writes": In(views[1]),
            "reads_full": In(1), "writes_full": In(1), "slot_free": In(1),
            "read_take": In(views[0].members["valid"].shape), "write_take": In(views[1].members["valid"].shape),
            "open": In(banks), "rows": In(address.row_bits).array(banks),
            "row_op": In(RowOp), "row_bank": In(address.bank_bits), "row": In(address.row_bits),
            "insert_read": Out(1), "insert_write": Out(1),
            "place_row": Out(address.row_bits), "place_bank": Out(address.bank_bits),
            "place_column": Out(address.column_bits), "origin": Out(origin_layout(tag_bits)),
            "hit": Out(1), "blocked": Out(1),
            "data_slot": Out(slot_bits), "data": Out(write_layout()), "data_enable": Out(1),
            "full": Out(1), "write_waits": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        payload = self.requests.payload
        beat = payload.address[BEAT_SHIFT:BEAT_SHIFT + self._address.beat_bits]
        row, bank, column = self._address.decode(beat)
        full, write, enter = self.full, Signal(), Signal()
        m.d.comb += self.requests.ready.eq(~full | enter)
        with m.If(self.requests.ready):
            m.d.sync += full.eq(self.requests.valid)
            with m.If(self.requests.valid):
                m.d.sync += [
                    write.eq(payload.write),
                    self.place_row.eq(row), self.place_bank.eq(bank), self.place_column.eq(column),
                    self.origin.tag.eq(payload.tag), self.origin.context.eq(payload.context),
                    self.origin.epoch.eq(payload.epoch), self.origin.arrival.eq(self.now),
                ]

        met = {}
        for name, view, take in (("reads", self.reads, self.read_take), ("writes", self.writes, self.write_take)):
            count = len(take)
            same = Signal(count, name=f"same_{name}")
            one, more = Signal(name=f"one_{name}"), Signal(name=f"more_{name}")
            with m.If(full & (write if name == "reads" else ~write) & view.valid[0]):
                m.d.comb += [
                    same.eq(matches([*view.banks, *view.rows, *view.columns],
                                    [*self.place_bank, *self.place_row, *self.place_column], count)
                            & view.valid & ~take),
                    one.eq(same.any()),
                    more.eq((same & (same - 1)).any()),
                ]
            met[name] = one, more
        crowded = met["reads"][1] | met["writes"][1]
        m.d.comb += [
            self.blocked.eq(met["reads"][0] | met["writes"][0]),
            enter.eq(full & ~crowded & self.slot_free & ~Mux(write, self.writes_full, self.reads_full)),
            self.insert_read.eq(enter & ~write), self.insert_write.eq(enter & write),
            self.write_waits.eq(full & write & self.writes_full),
        ]
        self._open_row(m)

        with m.If(self.writes.lacks.any()):
            m.d.comb += [
                self.write_data.ready.eq(1),
                self.data_enable.eq(self.write_data.valid),
                self.data_slot.eq(Cat(pick_field(self.writes.slots, lowest(self.writes.lacks)))),
            ]
        m.d.comb += self.data.eq(self.write_data.payload)
        return m

    def _open_row(self, m: Module) -> None:
        """Whether the row of the request is open after this cycle's row command."""
        mine = Signal()
        m.d.comb += [
            mine.eq(self.row_bank == self.place_bank),
            self.hit.eq(self.open.bit_select(self.place_bank, 1)
                        & (Array(self.rows)[self.place_bank] == self.place_row)),
        ]
        with m.Switch(self.row_op):
            with m.Case(RowOp.ACT):
                with m.If(mine):
                    m.d.comb += self.hit.eq(self.row == self.place_row)
            with m.Case(RowOp.PRE):
                with m.If(mine):
                    m.d.comb += self.hit.eq(0)
            with m.Case(RowOp.PREA):
                m.d.comb += self.hit.eq(0)
