"""One port of a tile's memory where the memories of all tiles are one."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .arbiter import rotate
from .port import (
    CLIENT_BITS,
    LEAF_TAG_BITS,
    ORIGIN_BITS,
    TAG_BITS,
    Client,
    MemoryPort,
    memory_tag_bits,
    request_layout,
    response_layout,
    write_layout,
)

__all__ = ["CLIENTS", "PooledPort", "tile_bits", "tile_of"]

CLIENTS = {"control": Client.CONTROL, "load": Client.LOAD, "store": Client.STORE, "collective": Client.COLLECTIVE}
_COUNTED = (Client.LOAD, Client.STORE)
_WRITES_AHEAD = 16     # writes granted whose data is still to come
_REMOTE_REQUESTS = 8   # requests of a port that wait for the ring
_REMOTE_WRITES = 16    # and beats of their data
_OPEN_BITS = 11        # requests of all clients of a port without an answer


def tile_of(config: DeviceConfig, address):
    """The tile whose memory holds the byte ``address``."""
    return address[(config.memory.bytes - 1).bit_length():]


def tile_bits(config: DeviceConfig) -> int:
    """Bits of a tile's number in an address."""
    return (config.tiles - 1).bit_length()


class PooledPort(wiring.Component):
    """One port of a :class:`~.pooled.PooledArbiter`, with its members for one index."""

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        bits = config.address_bits
        leaf = MemoryPort(address_bits=bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "tile": In(tile_bits(config)),
            **{name: In(leaf) for name in CLIENTS},
            "ring_requests": In(stream.Signature(request_layout(bits, ORIGIN_BITS))).array(2),
            "ring_data": In(stream.Signature(write_layout())).array(2),
            "ring_responses": Out(stream.Signature(response_layout(ORIGIN_BITS))),
            "memory": Out(MemoryPort(address_bits=bits, tag_bits=memory_tag_bits(config))),
            "remote_requests": Out(stream.Signature(request_layout(bits, TAG_BITS))),
            "remote_data": Out(stream.Signature(write_layout())),
            "remote_responses": In(stream.Signature(response_layout(TAG_BITS))).array(2),
            "near": Out(1), "far": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        clients = {code: getattr(self, name) for name, code in CLIENTS.items()}
        codes = [*clients, Client.RING, Client.RING]
        requests = [*(port.requests for port in clients.values()), *self.ring_requests]
        remote = request_layout(self._config.address_bits, TAG_BITS)
        # Sources of write data in front of the memory: the ring's two directions, and the clients, whose own order is
        # in ``mine``, where remote writes have their place too.
        m.submodules.order = order = fifo.SyncFIFO(width=2, depth=_WRITES_AHEAD)
        m.submodules.mine = mine = fifo.SyncFIFO(width=CLIENT_BITS + 1, depth=_WRITES_AHEAD)
        m.submodules.away = away = fifo.SyncFIFO(width=remote.size, depth=_REMOTE_REQUESTS)
        m.submodules.away_data = away_data = fifo.SyncFIFO(width=write_layout().size, depth=_REMOTE_WRITES)

        # -- who goes
        places = Signal(range(_REMOTE_WRITES + 1), init=_REMOTE_WRITES)
        room, granted, granted_far, granted_write = Signal(), Signal(), Signal(), Signal()
        last, choice = Signal(range(len(codes))), Signal(range(len(codes)))
        wants = Signal(len(codes))
        fars = Signal(len(codes))
        memory = self.memory
        near_write, far_write = Signal(), Signal()
        m.d.comb += [
            room.eq(~memory.requests.valid | memory.requests.ready),
            near_write.eq(order.w_rdy & mine.w_rdy),
            far_write.eq((places != 0) & mine.w_rdy),
        ]
        for number, (code, request) in enumerate(zip(codes, requests, strict=True)):
            write = request.p.write
            if code == Client.RING:
                m.d.comb += wants[number].eq(request.valid & room & (order.w_rdy | ~write))
            else:
                m.d.comb += [
                    fars[number].eq(tile_of(self._config, request.p.address) != self.tile),
                    wants[number].eq(request.valid & Mux(fars[number], away.w_rdy & (far_write | ~write),
                                                         room & (near_write | ~write))),
                ]
            m.d.comb += request.ready.eq(granted & (choice == number))
        rotate(m, list(wants), last, choice)
        asked = Signal(request_layout(self._config.address_bits, ORIGIN_BITS))
        code = Signal(Client)
        with m.Switch(choice):
            for number, (client, request) in enumerate(zip(codes, requests, strict=True)):
                with m.Case(number):
                    m.d.comb += [code.eq(client), *(asked[name].eq(request.payload[name]) for name in remote.members)]
        m.d.comb += [
            granted.eq(wants.any()),
            granted_far.eq((wants & fars).bit_select(choice, 1)),
            granted_write.eq(granted & asked.write),
            order.w_en.eq(granted_write & ~granted_far),
            order.w_data.eq(Mux(code == Client.RING, choice - len(clients) + 1, 0)),
            mine.w_en.eq(granted_write & (code != Client.RING)),
            mine.w_data.eq(Cat(code, granted_far)),
            away.w_en.eq(granted & granted_far),
        ]
        entry = Signal(remote)
        m.d.comb += [
            *(entry[name].eq(asked[name]) for name in ("address", "write", "context", "epoch")),
            entry.tag.eq(Cat(asked.tag[:LEAF_TAG_BITS], code)),
            away.w_data.eq(entry),
        ]
        with m.If(granted):
            m.d.sync += last.eq(choice)
        with m.If(room):
            m.d.sync += memory.requests.valid.eq(granted & ~granted_far)
        with m.If(granted & ~granted_far):
            m.d.sync += [
                *(memory.requests.payload[name].eq(asked[name]) for name in ("address", "write", "context", "epoch")),
                memory.requests.p.tag.eq(Cat(asked.tag, code)),
            ]
        m.d.comb += [
            self.remote_requests.valid.eq(away.r_rdy),
            self.remote_requests.payload.eq(away.r_data),
            away.r_en.eq(self.remote_requests.ready),
            self.remote_data.valid.eq(away_data.r_rdy),
            self.remote_data.payload.eq(away_data.r_data),
            away_data.r_en.eq(self.remote_data.ready),
        ]
        m.d.sync += places.eq(places + (self.remote_data.valid & self.remote_data.ready)
                              - (granted_write & granted_far))
        self._data(m, clients, order, mine, away_data)
        answered = self._responses(m, clients)

        # -- what LOAD and STORE wait for
        counted = Signal()
        m.d.comb += counted.eq(granted & Cat(code == c for c in _COUNTED).any())
        for name, sent, back in (("near", counted & ~granted_far, answered[0]), ("far", counted & granted_far,
                                                                                 answered[1])):
            level = Signal(_OPEN_BITS, name=f"{name}_open")
            m.d.sync += level.eq(level + sent - back)
            m.d.comb += getattr(self, name).eq(level != 0)
        return m

    def _data(self, m: Module, clients: dict, order, mine, away_data) -> None:
        """Write data: of the ring in its order, of the clients in theirs."""
        to_memory = self.memory.write_data
        ready, ours, leaves = Signal(), Signal(), Signal()
        head, away = mine.r_data[:CLIENT_BITS], mine.r_data[CLIENT_BITS]
        data, valid = Signal(write_layout()), Signal()
        m.d.comb += [
            ours.eq(order.r_rdy & (order.r_data == 0)),
            ready.eq(mine.r_rdy & Mux(away, 1, ours & to_memory.ready)),
            leaves.eq(ready & valid),
            mine.r_en.eq(leaves),
            away_data.w_en.eq(leaves & away),
            away_data.w_data.eq(data),
            order.r_en.eq(to_memory.valid & to_memory.ready),
        ]
        for code, port in clients.items():
            with m.If(mine.r_rdy & (head == code)):
                m.d.comb += [valid.eq(port.write_data.valid), data.eq(port.write_data.payload),
                             port.write_data.ready.eq(ready)]
        with m.Switch(order.r_data):
            with m.Case(0):
                m.d.comb += [to_memory.valid.eq(ours & mine.r_rdy & ~away & valid), to_memory.payload.eq(data)]
            for number, beats in enumerate(self.ring_data, 1):
                with m.Case(number):
                    m.d.comb += [to_memory.valid.eq(order.r_rdy & beats.valid), to_memory.payload.eq(beats.payload),
                                 beats.ready.eq(order.r_rdy & to_memory.ready)]

    def _responses(self, m: Module, clients: dict) -> tuple[Signal, Signal]:
        """Answers to the ring on their own; those of memory and of both directions of the ring to the clients.

        Returns whether LOAD or STORE get an answer of this memory, and of another.
        """
        answer = self.memory.responses
        others = self.ring_responses
        for_ring = Signal()
        names = ("data", "write", "error", "context", "epoch")
        m.d.comb += [
            for_ring.eq(answer.p.tag[ORIGIN_BITS:] == Client.RING),
            others.valid.eq(answer.valid & for_ring),
        ]
        with m.If(others.valid):  # wide words that nobody needs cost a simulator time
            m.d.comb += [*(others.payload[name].eq(answer.payload[name]) for name in names),
                         others.p.tag.eq(answer.p.tag)]
        sources = [*self.remote_responses, answer]
        valids = [*(source.valid for source in self.remote_responses), answer.valid & ~for_ring]
        last, choice, turn, held = Signal(range(3)), Signal(range(3)), Signal(range(3)), Signal()
        rotate(m, valids, last, choice)
        # A response that is shown stays, whatever arrives by another way meanwhile.
        m.d.comb += turn.eq(Mux(held, last, choice))
        joined = stream.Signature(response_layout(TAG_BITS)).create(path=("joined",))
        m.d.comb += joined.valid.eq(Array(valids)[turn])
        with m.Switch(turn):
            for number, source in enumerate(sources):
                with m.Case(number):
                    m.d.comb += [joined.payload[name].eq(source.payload[name]) for name in names]
                    m.d.comb += joined.p.tag.eq(
                        source.p.tag if source is not answer
                        else Cat(source.p.tag[:LEAF_TAG_BITS], source.p.tag[ORIGIN_BITS:]))
        with m.If(joined.valid):
            m.d.sync += [last.eq(turn), held.eq(~joined.ready)]
        for number, source in enumerate(self.remote_responses):
            m.d.comb += source.ready.eq(joined.ready & (turn == number))
        m.d.comb += answer.ready.eq(Mux(for_ring, others.ready, joined.ready & (turn == len(sources) - 1)))

        client = joined.p.tag[LEAF_TAG_BITS:]
        for code, port in clients.items():
            is_its = Signal(name=f"answers_{int(code)}")
            m.d.comb += [
                is_its.eq(client == code),
                port.responses.valid.eq(joined.valid & is_its),
                *(port.responses.payload[name].eq(joined.payload[name]) for name in names),
                port.responses.p.tag.eq(joined.p.tag),
            ]
            with m.If(is_its):
                m.d.comb += joined.ready.eq(port.responses.ready)
        near, far = Signal(), Signal()
        taken = joined.valid & joined.ready & Cat(client == code for code in _COUNTED).any()
        m.d.comb += [near.eq(taken & (turn == len(sources) - 1)), far.eq(taken & (turn != len(sources) - 1))]
        return near, far
