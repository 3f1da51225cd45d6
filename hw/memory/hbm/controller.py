"""One pseudo-channel: requests in, DRAM commands out, responses back."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import MemoryConfig
from ..port import TAG_BITS, MemoryPort
from .activity import Activity
from .address import AddressMap
from .banks import BankMachines
from .command import ColumnOp, CommandBus, RowOp
from .completion import LATENCY_BITS, RESPONSES, Completion
from .direction import Direction
from .door import Door
from .events import CHANNEL_EVENTS
from .monitor import ChannelMonitor
from .page import PageCloser
from .queue import RequestQueue
from .refresh import Refresher
from .scheduler import ColumnScheduler, RowScheduler
from .vectors import matches

__all__ = ["Controller"]


class Controller(wiring.Component):
    """Schedules one pseudo-channel: first ready, first come, first served, with bounds.

    Each cycle the column scheduler issues the oldest request whose row is open and whose bank and bus are ready, and
    the row scheduler opens or closes a row for the oldest request that needs it; refreshes go before. Requests to one
    address keep their order: a request that meets one of the other direction waits for it.

    A read of an open row, alone, shows on the command bus three cycles after its acceptance and its response one
    cycle after its burst. Throughput one request a cycle in, one command a clock out on each bus.

    Parameters
    ----------
    memory : MemoryConfig
        Queues, refresh and page policy.
    address : AddressMap
        Timing set and address mapping.
    address_bits : int
        Bits of a byte address at the port; those above the memory's own are not looked at.
    tag_bits : int
        Bits of a tag.

    Members
    -------
    port : In(MemoryPort)
    bus : Out(CommandBus)
    events : Out(CHANNEL_EVENTS)
    now : In
        The cycle, for latencies.
    tick, recovering : In(1), paid : Out(1)
        The refresh clock.
    busy : Out(1)
        There is something to do: while it is low, and no request and no tick comes, every register may stand still.
    """

    def __init__(self, *, memory: MemoryConfig, address: AddressMap, address_bits: int,
                 tag_bits: int = TAG_BITS) -> None:
        self._memory = memory
        self._address = address
        self._address_bits = address_bits
        self._tag_bits = tag_bits
        super().__init__({
            "port": In(MemoryPort(address_bits=address_bits, tag_bits=tag_bits)),
            "bus": Out(CommandBus(address)),
            "events": Out(CHANNEL_EVENTS),
            "now": In(LATENCY_BITS), "tick": In(1), "recovering": In(1), "paid": Out(1), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory, address, t = self._memory, self._address, self._address.timing
        in_flight = min(RESPONSES, (t.cl + t.cwl + t.burst_clocks) // t.ccd_s + 4)
        slot_bits = (memory.read_queue + memory.write_queue + in_flight - 1).bit_length()

        m.submodules.banks = banks = BankMachines(address=address)
        reads = RequestQueue(entries=memory.read_queue, address=address, slot_bits=slot_bits)
        writes = RequestQueue(entries=memory.write_queue, address=address, slot_bits=slot_bits)
        m.submodules.read_queue, m.submodules.write_queue = reads, writes
        views = (reads.view.signature, writes.view.signature)
        m.submodules.door = door = Door(views=views, address=address, address_bits=self._address_bits,
                                      tag_bits=self._tag_bits)
        m.submodules.columns = columns = ColumnScheduler(views=views, address=address)
        m.submodules.rows = rows = RowScheduler(views=views, address=address)
        m.submodules.refresh = refresh = Refresher(address=address, mode=memory.refresh)
        m.submodules.completion = completion = Completion(timing=t, slots=1 << slot_bits,
                                                        tag_bits=self._tag_bits)
        m.submodules.direction = direction = Direction(entries=memory.write_queue)
        m.submodules.page = page = PageCloser(address=address, policy=memory.page_policy)
        m.submodules.monitor = monitor = ChannelMonitor(address=address)
        m.submodules.activity = activity = Activity(timing=t)
        for block in (door, columns, rows):
            wiring.connect(m, reads.view, block.reads)
            wiring.connect(m, writes.view, block.writes)

        # The commands decided in this cycle; the bus shows them in the next.
        row_op, row_bank, row = Signal(RowOp), Signal(address.bank_bits), Signal(address.row_bits)
        column_op, write = Signal(ColumnOp), direction.write
        m.d.sync += [self.bus.row_op.eq(row_op), self.bus.column_op.eq(column_op)]
        with m.If(row_op != RowOp.NONE):
            m.d.sync += [self.bus.row_bank.eq(row_bank), self.bus.row.eq(row)]
        with m.If(columns.issue):
            m.d.sync += [self.bus.column_bank.eq(columns.bank), self.bus.column.eq(columns.column)]
        for block in (banks, door, page, monitor, reads, writes):
            m.d.comb += [block.row_op.eq(row_op), block.row_bank.eq(row_bank)]
        for block in (banks, monitor):
            m.d.comb += [block.column_op.eq(column_op), block.column_bank.eq(columns.bank)]
        for block in (banks, door, page):
            m.d.comb += block.row.eq(row)
        m.d.comb += [activity.row_op.eq(row_op), activity.column_op.eq(column_op)]
        for b in range(t.banks):
            m.d.comb += [page.rows[b].eq(banks.rows[b]), door.rows[b].eq(banks.rows[b])]

        # In.
        wiring.connect(m, wiring.flipped(self.port.requests), door.requests)
        wiring.connect(m, wiring.flipped(self.port.write_data), door.write_data)
        m.d.comb += [
            door.now.eq(self.now), door.reads_full.eq(reads.full), door.writes_full.eq(writes.full),
            door.slot_free.eq(completion.slot_free), door.read_take.eq(reads.take), door.write_take.eq(writes.take),
            door.open.eq(banks.open),
            reads.insert.eq(door.insert_read), writes.insert.eq(door.insert_write),
            completion.accept.eq(door.insert_read | door.insert_write), completion.origin.eq(door.origin),
            completion.write_data.eq(door.data), completion.write_data_slot.eq(door.data_slot),
            completion.write_enable.eq(door.data_enable), writes.supplied.eq(door.data_enable),
        ]
        for queue, missing in ((reads, 0), (writes, 1)):
            m.d.comb += [
                queue.row.eq(door.place_row), queue.bank.eq(door.place_bank), queue.column.eq(door.place_column),
                queue.slot.eq(completion.slot), queue.hit.eq(door.hit), queue.blocked.eq(door.blocked),
                queue.missing.eq(missing), queue.row_row.eq(row), queue.take_bank.eq(columns.bank),
            ]

        # Columns.
        m.d.comb += [
            direction.reads.eq(reads.view.able.any()), direction.writes.eq(writes.view.able.any()),
            direction.level.eq(writes.view.level), direction.write_old.eq(writes.view.old),
            direction.stuck.eq(reads.view.blocks.any() | door.write_waits), direction.issued.eq(columns.issue),
            columns.write.eq(write), columns.readable.eq(banks.readable), columns.writable.eq(banks.writable),
            columns.hold.eq(refresh.hold_columns), columns.room.eq(completion.room),
            column_op.eq(Mux(columns.issue, Mux(write, ColumnOp.WR, ColumnOp.RD), ColumnOp.NONE)),
            completion.issue.eq(columns.issue), completion.issue_write.eq(write),
            completion.issue_slot.eq(columns.slot),
            reads.take.eq(Mux(write, 0, columns.chosen)), writes.take.eq(Mux(write, columns.chosen, 0)),
        ]
        # An entry leaves: those of the other queue that waited for its address may go.
        open_row = Array(banks.rows)[columns.bank]
        for queue, other in ((reads, write), (writes, ~write)):
            view, count = queue.view, len(queue.take)
            with m.If(columns.issue & other & view.blocks.any()):
                m.d.comb += queue.release.eq(matches([*view.banks, *view.rows, *view.columns],
                                                     [*columns.bank, *open_row, *columns.column], count))

        # Rows.
        wanted = reads.view.wanted | writes.view.wanted
        used = Signal(t.banks)
        m.d.comb += [
            used.eq(Mux(columns.issue, 1 << columns.bank, 0)),
            rows.write.eq(write), rows.starving.eq(columns.starving), rows.activatable.eq(banks.activatable),
            rows.closable.eq(banks.closable), rows.hold.eq(refresh.hold), rows.enable.eq(banks.row_free),
            refresh.wanted.eq(wanted), refresh.used.eq(used), refresh.tick.eq(self.tick),
            refresh.recovering.eq(self.recovering), banks.recovering.eq(self.recovering), self.paid.eq(refresh.paid),
            refresh.open.eq(banks.open), refresh.closable.eq(banks.closable),
            refresh.refreshable.eq(banks.refreshable), refresh.all_closable.eq(banks.all_closable),
            refresh.all_refreshable.eq(banks.all_refreshable),
            page.open.eq(banks.open), page.closable.eq(banks.closable & ~refresh.hold),
            page.wanted.eq(reads.view.wanted_open | writes.view.wanted_open), page.used.eq(used),
        ]
        with m.If(banks.row_free):
            with m.If(refresh.op != RowOp.NONE):
                m.d.comb += [row_op.eq(refresh.op), row_bank.eq(refresh.bank), refresh.granted.eq(1)]
            with m.Elif(rows.found):
                m.d.comb += [
                    row_op.eq(Mux(banks.open.bit_select(rows.bank, 1), RowOp.PRE, RowOp.ACT)),
                    row_bank.eq(rows.bank), row.eq(rows.row), monitor.demanded.eq(1),
                ]
            with m.Elif(page.close):
                m.d.comb += [row_op.eq(RowOp.PRE), row_bank.eq(page.bank)]

        # Out.
        wiring.connect(m, completion.responses, wiring.flipped(self.port.responses))
        m.d.comb += [
            self.bus.write_data.eq(completion.burst.data), self.bus.strobe.eq(completion.burst.strobe),
            completion.read_data.eq(self.bus.read_data), completion.now.eq(self.now),
            monitor.waiting.eq(reads.view.valid[0] | writes.view.valid[0]), monitor.crowded.eq(~completion.room),
            monitor.open_hits.eq((banks.settled & Mux(write, writes.view.wanted_open, reads.view.wanted_open)).any()),
            monitor.grouped.eq(banks.grouped),
            monitor.turning.eq(Mux(write, banks.turning_write, banks.turning_read)),
            monitor.refreshing.eq((refresh.active & wanted).any()),
            self.events.level.eq(reads.view.level + writes.view.level),
            self.events.latency.eq(completion.latency), self.events.latency_valid.eq(completion.latency_valid),
        ]
        closes = banks.open.any() if memory.page_policy != "open" else Const(0)
        m.d.comb += [
            activity.waiting.eq(door.full | reads.view.valid[0] | writes.view.valid[0] | ~completion.empty
                                | refresh.pending | closes),
            self.busy.eq(activity.busy),
        ]
        for name in monitor.EVENTS:
            m.d.comb += getattr(self.events, name).eq(getattr(monitor.events, name))
        return m
