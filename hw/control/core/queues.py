"""Job queues in hardware: their registers, the descriptor prefetcher, and what the firmware sees of them."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...config import BEAT_BYTES, DeviceConfig
from ...isa import DESCRIPTOR, RECORD_BYTES
from ...memory.port import BEAT_BITS, LEAF_TAG_BITS, MemoryPort
from ...regmap import QUEUE, QUEUE_STRIDE, QUEUES_ADDRESS_BITS
from ...shaped import ShapedEnum
from ..axi_lite import AxiResponse, RegisterBus
from ..registers import register_table
from .bus import BusPort

__all__ = ["DEPTH", "QueueUnit", "PORT", "RESULT_STRIDE"]

DEPTH = 2
"""Descriptors of a queue that wait in local memory."""
_RECORD_BEATS = RECORD_BYTES // BEAT_BYTES
_RECORD_SHIFT = RECORD_BYTES.bit_length() - 1

PORT = {
    "ready": 0x000,       # r: bit q, queue q has a descriptor and a tile with room
    "tiles": 0x004,       # r: bits 15:0 tiles with an ended job, bits 31:16 tiles whose second slot is full
    "aborts": 0x008,      # r: bit q, the host wants queue q's jobs aborted; writing 1 clears, once that is done
    "notify": 0x00C,      # w: bits of irq_status to set
    "start": 0x010,       # w: bits 7:0 queue, bits 15:8 tile: the queue's first job goes to the tile
    "status": 0x100,      # w: queue q's registers at + RESULT_STRIDE q; bit 0 stops the queue
    "fault_command": 0x104,
    "fault_address_low": 0x108,
    "fault_address_high": 0x10C,
    "jobs": 0x110,
    "faults": 0x114,
}
"""Addresses of the firmware's side, from the start of its region; the firmware's header is made from this table."""
_RESULTS = ("status", "fault_command", "fault_address_low", "fault_address_high", "jobs", "faults")
RESULT_STRIDE = 32
"""Bytes from one queue's results to the next's."""


class _Fetch(ShapedEnum, shape=2):
    IDLE = 0
    REQUEST = 1
    RESPONSE = 2


class QueueUnit(wiring.Component):
    """Rings of descriptors in device memory, doorbells, and a prefetcher that keeps two of each queue at hand.

    The host writes descriptors into a ring and then ``tail``. The prefetcher goes round the queues and reads one
    record at a time, two beats and a memory latency, into local memory. The firmware starts the first of a queue on a
    tile: the job goes there with the queue's window, which no software on the way can change. At a fault it stops the
    queue, which the host's ``restart`` opens again, empty.

    ``attention`` is high while the firmware has something to do that it can do.

    Parameters
    ----------
    config : DeviceConfig
        The device: queues, tiles, memory.

    Members
    -------
    bus : In(RegisterBus(...))
        The queues' registers.
    port : In(BusPort())
        The firmware's side, as ``PORT`` has it. Latency 1; every address answers.
    memory : Out(MemoryPort(...))
        The prefetcher's reads.
    start : Out(tiles), job, window_base, window_limit : Out(64)
        To the tiles; two cycles behind the firmware's write.
    ended, full : In(tiles)
        Tiles with a job that ended; tiles whose second slot is taken.
    notify : Out(queues)
    attention : Out(1)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "bus": In(RegisterBus(address_bits=QUEUES_ADDRESS_BITS)),
            "port": In(BusPort()),
            "memory": Out(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)),
            "start": Out(config.tiles), "job": Out(64), "window_base": Out(64), "window_limit": Out(64),
            "ended": In(config.tiles),
            "full": In(config.tiles),
            "notify": Out(config.control.queues),
            "attention": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        count = self.config.control.queues
        bits = self.config.address_bits
        request, response = self.port.requests, self.port.responses
        write = Signal()
        m.d.comb += [request.ready.eq(1), write.eq(request.valid & request.payload.write)]
        address = request.payload.address

        def hit(name: str, q: int = 0) -> Value:
            return write & (address[:12] == PORT[name] + q * RESULT_STRIDE)

        # -- each queue's registers and counts; all counts are modulo 2^16 ------------------------------------
        ready, aborts, restarts, wants = Signal(count), Signal(count), Signal(count), Signal(count)
        fetched = [Signal(16, name=f"fetched{q}") for q in range(count)]
        heads = [Signal(16, name=f"head{q}") for q in range(count)]  # descriptors the firmware has used
        places = [Signal(bits, name=f"place{q}") for q in range(count)]  # of the next descriptor to fetch
        landed, popped = Signal(count), Signal(count)
        blocks, windows = [], []
        for q in range(count):
            bus = RegisterBus(address_bits=QUEUE_STRIDE.bit_length() - 1).create(path=(f"block{q}",))
            blocks.append(bus)
            results = {name: Signal(32, name=f"{name}{q}") for name in _RESULTS}
            head = heads[q]
            shown = Cat(results["status"][:2], aborts[q], results["status"][3:])
            written = register_table(m, bus, QUEUE, {**results, "status": shown, "head": head}.__getitem__)
            windows.append([Cat(written[f"window_{end}_low"], written[f"window_{end}_high"])
                            for end in ("base", "limit")])
            command, policy, tail, size = (written[name] for name in ("command", "policy", "tail", "ring_size"))
            ring = Cat(written["ring_low"], written["ring_high"])
            m.d.comb += [
                restarts[q].eq(command[0]),
                popped[q].eq(hit("start") & (request.payload.data[:8] == q)),
                places[q].eq(ring + ((fetched[q] & (size - 1)[:16]) << _RECORD_SHIFT)),
                ready[q].eq((fetched[q] != head) & ~results["status"][0] & (policy[16:] & ~self.full).any()),
                wants[q].eq((size != 0) & ~results["status"][0] & (fetched[q] != tail)
                            & ((fetched[q] - head)[:16] != DEPTH)),
            ]
            with m.If(landed[q]):
                m.d.sync += fetched[q].eq(fetched[q] + 1)
            with m.If(popped[q] & (fetched[q] != head)):  # a host may have restarted the queue meanwhile
                m.d.sync += head.eq(head + 1)
            for name, value in results.items():
                with m.If(hit(name, q)):
                    m.d.sync += value.eq(request.payload.data)
            with m.If(command[0]):
                m.d.sync += [tail.eq(0), fetched[q].eq(0), head.eq(0)]
                m.d.sync += [results[name].eq(0) for name in _RESULTS if name not in ("jobs", "faults")]
            with m.If(hit("aborts") & request.payload.data[q]):
                m.d.sync += aborts[q].eq(0)
            with m.If(command[1]):
                m.d.sync += aborts[q].eq(1)
        self._pass_on(m, blocks)

        # -- prefetcher ----------------------------------------------------------------------------------------
        m.submodules.descriptors = memory = Memory(
            shape=BEAT_BITS, depth=count * DEPTH * _RECORD_BEATS, init=[])
        store, load = memory.write_port(), memory.read_port()
        state, queue, stale = Signal(_Fetch), Signal(range(max(2, count))), Signal()
        place, asked, arrived = Signal(bits), Signal(), Signal()
        reads, answers = self.memory.requests, self.memory.responses
        m.d.comb += [
            reads.valid.eq(state == _Fetch.REQUEST),
            reads.payload.address.eq(place + asked * BEAT_BYTES),
            reads.payload.tag.eq(asked),
            answers.ready.eq(1),
            store.addr.eq(Cat(answers.payload.tag[0], Array(fetched)[queue][:1], queue)),
            store.data.eq(Mux(answers.payload.error, 0, answers.payload.data)),
            store.en.eq(answers.valid),
        ]
        with m.If(restarts.bit_select(queue, 1)):
            m.d.sync += stale.eq(1)
        with m.If(answers.valid):
            m.d.sync += arrived.eq(1)
        with m.Switch(state):
            with m.Case(_Fetch.IDLE):
                following = Signal.like(queue)
                m.d.comb += following.eq(Mux(queue == count - 1, 0, queue + 1))
                m.d.sync += [queue.eq(following), place.eq(Array(places)[following]), asked.eq(0), arrived.eq(0),
                             stale.eq(restarts.bit_select(following, 1))]
                with m.If(wants.bit_select(following, 1)):
                    m.d.sync += state.eq(_Fetch.REQUEST)
            with m.Case(_Fetch.REQUEST):
                with m.If(reads.ready):
                    m.d.sync += asked.eq(1)
                    with m.If(asked):
                        m.d.sync += state.eq(_Fetch.RESPONSE)
            with m.Case(_Fetch.RESPONSE):
                with m.If(answers.valid & arrived):
                    m.d.comb += landed.bit_select(queue, 1).eq(~stale & ~restarts.bit_select(queue, 1))
                    m.d.sync += state.eq(_Fetch.IDLE)

        # -- a start: the job's address is read, then everything goes to the tile ----------------------------------
        number = Signal.like(queue)
        number_kept, reading, tile = Signal.like(queue), Signal(), Signal(8)
        job = data.View(DESCRIPTOR.layout, Cat(Const(0, BEAT_BITS), load.data))
        m.d.comb += [number.eq(request.payload.data), load.addr.eq(Cat(Const(1, 1), Array(heads)[number][:1], number))]
        m.d.sync += [reading.eq(hit("start")), tile.eq(request.payload.data[8:]), self.start.eq(0)]
        for port, end in ((self.window_base, 0), (self.window_limit, 1)):
            m.d.sync += port.eq(Array(window[end] for window in windows)[number_kept])
        with m.If(hit("start")):
            m.d.sync += number_kept.eq(number)
        with m.If(reading):
            m.d.sync += [self.start.eq(1 << tile), self.job.eq(job.address)]

        # -- what the firmware reads -----------------------------------------------------------------------------
        tiles = Cat(self.ended, Const(0, 16 - len(self.ended)), self.full)
        m.d.sync += [
            response.valid.eq(request.valid),
            response.payload.data.eq(Mux(address[3], aborts, Mux(address[2], tiles, ready))),
        ]
        m.d.comb += self.attention.eq(Cat(ready, self.ended, aborts).any())
        with m.If(hit("notify")):
            m.d.comb += self.notify.eq(request.payload.data)
        return m

    def _pass_on(self, m: Module, blocks: list) -> None:
        """Join the registers' blocks, one a queue, to the bus."""
        bus = self.bus
        low = QUEUE_STRIDE.bit_length() - 1
        m.d.comb += [bus.read_response.eq(AxiResponse.DECERR), bus.write_response.eq(AxiResponse.DECERR)]
        for q, block in enumerate(blocks):
            reads, writes = bus.read_address[low:] == q, bus.write_address[low:] == q
            m.d.comb += [
                block.read.eq(bus.read & reads),
                block.read_address.eq(bus.read_address),
                block.write.eq(bus.write & writes),
                block.write_address.eq(bus.write_address),
                block.write_data.eq(bus.write_data),
                block.strobe.eq(bus.strobe),
            ]
            with m.If(reads):
                m.d.comb += [bus.read_data.eq(block.read_data), bus.read_response.eq(block.read_response)]
            with m.If(writes):
                m.d.comb += bus.write_response.eq(block.write_response)
