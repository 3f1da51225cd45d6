"""Memory without DRAM behind it: fixed latency, full rate, and the disturbances that tests ask for."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import BEAT_BYTES, DeviceConfig
from .delay import DelayQueue
from .port import BEAT_SHIFT, MemoryPort, memory_tag_bits, request_layout, response_layout, storage_port, write_layout

__all__ = ["IdealMemory"]

_LANES = 4        # requests of tags that differ modulo this may overtake
_HASHES = 32      # entries of the scoreboard that keeps the order at one address
_RESPONSES = 4    # two responses on their way out of storage, one shown, one to keep the rate
_OVERHEAD = 3     # cycles a read spends outside its delay: storage register, storage, response


class IdealMemory(wiring.Component):
    """P independent ports, each a queue of requests in front of its storage port.

    A request waits on its way in, and storage is accessed when it is due: a late write is late for every reader.
    A read's response is valid ``ideal.latency`` cycles after its request was accepted; a write's acknowledgement
    too, when its data came no later. Throughput one beat a port and cycle (below 32 B/cycle one beat in
    ``32 / bytes_per_cycle`` cycles) with any number of beats in flight up to the latency and more.

    Parameters
    ----------
    config : DeviceConfig
        ``memory.bytes``, ``ideal.*``.

    Members
    -------
    ports : In(MemoryPort).array(P)
    storage : Out(StoragePort).array(P)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "ports": In(MemoryPort(address_bits=config.address_bits,
                                   tag_bits=memory_tag_bits(config))).array(config.ports),
            "storage": Out(storage_port(config)).array(config.ports),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        for index in range(self._config.ports):
            port = _Port(config=self._config, index=index)
            m.submodules[f"port{index}"] = port
            wiring.connect(m, wiring.flipped(self.ports[index]), port.port)
            wiring.connect(m, port.storage, wiring.flipped(self.storage[index]))
        return m


class _Port(wiring.Component):
    """One port: accept and delay, choose a lane, storage, responses."""

    def __init__(self, *, config: DeviceConfig, index: int) -> None:
        self._config, self._ideal, self._index = config, config.ideal, index
        super().__init__({
            "port": In(MemoryPort(address_bits=config.address_bits, tag_bits=memory_tag_bits(config))),
            "storage": Out(storage_port(config)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        ideal, port, storage = self._ideal, self.port, self.storage
        request = request_layout(self._config.address_bits, memory_tag_bits(self._config))
        entry = data.StructLayout({**request.members, "slot": 8})
        response = response_layout(memory_tag_bits(self._config))
        longest = ideal.latency - _OVERHEAD + ideal.jitter + ideal.write_delay
        depth = max(8, 1 << longest.bit_length())
        lanes = _LANES if ideal.reorder else 1

        queues = [DelayQueue(shape=entry, depth=depth, longest=longest) for _ in range(lanes)]
        for number, queue in enumerate(queues):
            m.submodules[f"lane{number}"] = queue
        writes = _ReorderedWrites() if ideal.reorder else _WritesInOrder(depth=depth)
        m.submodules.writes = writes
        m.submodules.responses = responses = fifo.SyncFIFO(width=response.size, depth=_RESPONSES)

        # -- accept
        seen = port.requests
        lane = seen.p.tag[:(lanes - 1).bit_length()]
        open_ = Signal()
        free = Signal()
        gap = Signal(range(BEAT_BYTES))
        accepted = Signal()
        m.d.comb += [
            open_.eq((gap == 0) & free & (writes.slot_free | ~seen.p.write)),
            seen.ready.eq(open_ & Array(queue.i.ready for queue in queues)[lane]),
            accepted.eq(seen.valid & seen.ready),
            writes.claim.eq(accepted & seen.p.write),
        ]
        every = BEAT_BYTES // min(BEAT_BYTES, ideal.bytes_per_cycle)
        if every > 1:
            with m.If(accepted):
                m.d.sync += gap.eq(every - 1)
            with m.Elif(gap != 0):
                m.d.sync += gap.eq(gap - 1)
        delay = ideal.latency - _OVERHEAD + self._random(m, ideal.jitter, "jitter")
        if ideal.write_delay:
            delay = delay + Mux(seen.p.write, self._random(m, ideal.write_delay, "late"), 0)
        for number, queue in enumerate(queues):
            m.d.comb += [
                queue.i.valid.eq(seen.valid & open_ & (lane == number)),
                *(queue.i.payload[name].eq(seen.payload[name]) for name in request.members),
                queue.i.p.slot.eq(writes.slot),
                queue.delay.eq(delay),
            ]

        # -- choose: of the lanes that are due, starting at a random one
        head = Signal(entry)
        chosen = Signal(range(max(2, lanes)))
        able = Signal(lanes)
        enabled, reading = Signal(), Signal()
        for number, queue in enumerate(queues):
            m.d.comb += [
                able[number].eq(queue.o.valid & (~queue.o.p.write | writes.present(m, queue.o.p.slot, number))),
                queue.o.ready.eq(reading & able[number] & (chosen == number)),
            ]
        if lanes > 1:
            first = self._random(m, lanes - 1, "lane")
            for step in reversed(range(lanes)):
                candidate = (first + step)[:(lanes - 1).bit_length()]
                with m.If(able.bit_select(candidate, 1)):
                    m.d.comb += chosen.eq(candidate)
        m.d.comb += head.eq(Array(queue.o.payload for queue in queues)[chosen])

        # -- storage: registered outputs, its answer one cycle behind them
        meta = data.StructLayout({name: response[name].shape for name in ("tag", "write", "context", "epoch")})
        asked, answered = Signal(meta), Signal(meta)
        answering = Signal()
        m.d.comb += [
            # Room for what is in storage already and for this one.
            reading.eq(responses.level + storage.enable + answering < _RESPONSES),
            enabled.eq(reading & (able != 0)),
            writes.slot_read.eq(head.slot),
            writes.release.eq(enabled & head.write),
        ]
        m.d.sync += [storage.enable.eq(enabled), answering.eq(storage.enable)]
        with m.If(enabled):
            m.d.sync += [
                storage.write.eq(head.write),
                storage.address.eq(head.address[BEAT_SHIFT:]),
                *(asked[name].eq(head[name]) for name in meta.members),
            ]
            with m.If(head.write):
                m.d.sync += [storage.write_data.eq(writes.data.data), storage.strobe.eq(writes.data.strobe)]
        with m.If(storage.enable):
            m.d.sync += answered.eq(asked)

        # -- respond
        answer = Signal(response)
        m.d.comb += [
            answer.data.eq(storage.read_data),
            *(answer[name].eq(answered[name]) for name in meta.members),
            responses.w_data.eq(answer), responses.w_en.eq(answering),
            port.responses.valid.eq(responses.r_rdy),
            port.responses.payload.eq(responses.r_data),
            responses.r_en.eq(port.responses.ready),
        ]
        wiring.connect(m, wiring.flipped(port.write_data), writes.i)
        if ideal.reorder:
            self._scoreboard(m, seen, lane, accepted, head, enabled, chosen, free)
        else:
            m.d.comb += free.eq(1)
        return m

    def _random(self, m: Module, limit: int, name: str):
        """A value of 0..limit, new in every cycle, from a linear feedback shift register of its own."""
        if limit == 0:
            return 0
        salt = sum(name.encode()) * 257 + 4099 * self._index
        state = Signal(16, init=((self._ideal.seed * 40503 + salt) & 0xFFFF) or 1, name=f"{name}_state")
        follow = state
        for _ in range(5):  # several steps a cycle, so that successive values have little in common
            follow = Mux(follow[0], follow[1:] ^ 0xB400, follow[1:])
        m.d.sync += state.eq(follow)
        return (state * (limit + 1)) >> 16

    def _scoreboard(self, m, seen, lane, accepted, head, enabled, chosen, free) -> None:
        """Hold a request back while its address may be in flight in another lane, which could overtake."""
        bits = (_HASHES - 1).bit_length()
        # Addresses of one port: the bits above the beat fold together, so that a linear stream spreads.
        enters = (seen.p.address[BEAT_SHIFT:] ^ (seen.p.address[BEAT_SHIFT:] >> bits))[:bits]
        leaves = (head.address[BEAT_SHIFT:] ^ (head.address[BEAT_SHIFT:] >> bits))[:bits]
        counts = Array(Signal(12, name=f"count{i}") for i in range(_HASHES))
        owners = Array(Signal(range(_LANES), name=f"owner{i}") for i in range(_HASHES))
        m.d.comb += free.eq((counts[enters] == 0) | (owners[enters] == lane))
        for i in range(_HASHES):
            enter, leave = accepted & (enters == i), enabled & (leaves == i)
            m.d.sync += counts[i].eq(counts[i] + enter - leave)
            with m.If(enter):
                m.d.sync += owners[i].eq(lane)


def _writes_signature(slot_bits: int = 8) -> dict:
    return {
        "i": In(stream.Signature(write_layout())),
        "claim": In(1), "slot": Out(slot_bits), "slot_free": Out(1),
        "release": In(1), "slot_read": In(slot_bits), "data": Out(write_layout()),
    }


class _WritesInOrder(wiring.Component):
    """Write data of a port whose writes keep their order: a queue; slots mean nothing."""

    def __init__(self, *, depth: int) -> None:
        self._depth = depth
        self._there = Signal()
        super().__init__(_writes_signature())

    def present(self, m: Module, slot, lane: int):
        return self._there

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFO(width=write_layout().size, depth=self._depth)
        m.d.comb += [
            queue.w_en.eq(self.i.valid), queue.w_data.eq(self.i.payload), self.i.ready.eq(queue.w_rdy),
            queue.r_en.eq(self.release), self.data.eq(queue.r_data), self._there.eq(queue.r_rdy),
            self.slot_free.eq(1),
        ]
        return m


class _ReorderedWrites(wiring.Component):
    """Write data of a port whose writes may overtake: the k-th beat and the k-th write meet in slot k."""

    SLOTS = 16

    def __init__(self) -> None:
        self._there = Signal(self.SLOTS)
        super().__init__(_writes_signature())

    def present(self, m: Module, slot, lane: int):
        return self._there.bit_select(slot[:(self.SLOTS - 1).bit_length()], 1)

    def elaborate(self, platform) -> Module:
        m = Module()
        bits = (self.SLOTS - 1).bit_length()
        beats = Array(Signal(write_layout(), name=f"beat{i}") for i in range(self.SLOTS))
        claimed = Signal(self.SLOTS)
        next_beat, next_write = Signal(bits), Signal(bits)
        taken = self.i.valid & self.i.ready
        read = self.slot_read[:bits]
        m.d.comb += [
            self.i.ready.eq(~self._there.bit_select(next_beat, 1)),
            self.slot.eq(next_write),
            self.slot_free.eq(~claimed.bit_select(next_write, 1)),
            self.data.eq(beats[read]),
        ]
        m.d.sync += [next_beat.eq(next_beat + taken), next_write.eq(next_write + self.claim)]
        fills = Cat(taken & (next_beat == i) for i in range(self.SLOTS))
        claims = Cat(self.claim & (next_write == i) for i in range(self.SLOTS))
        ends = Cat(self.release & (read == i) for i in range(self.SLOTS))
        m.d.sync += [
            self._there.eq((self._there | fills) & ~ends),
            claimed.eq((claimed | claims) & ~ends),
        ]
        with m.If(taken):
            m.d.sync += beats[next_beat].eq(self.i.payload)
        return m
