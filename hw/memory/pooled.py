"""A tile's memory ports where the memories of all tiles are one: clients here, and requests of other stops."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .pooled_port import CLIENTS, PooledPort, tile_bits
from .port import (
    LEAF_TAG_BITS,
    ORIGIN_BITS,
    TAG_BITS,
    MemoryPort,
    memory_tag_bits,
    request_layout,
    response_layout,
    write_layout,
)

__all__ = ["PooledArbiter"]


class PooledArbiter(wiring.Component):
    """Every port of a tile's memory, shared by its clients and by other stops; requests elsewhere go to the ring.

    In each cycle a port grants one request, round robin among those whose way is free: to this tile's memory through
    one register, to another's into a queue for the ring. Write data follow in the order of the grants. Responses of
    both ways join.

    Nothing here makes requests of other stops wait for the ring: a remote write is granted only once its data have a
    place, so that no data before the memory waits for the ring either, and the answers of the ring's requests leave
    by themselves. So REQUEST flits are always taken in the end, and RESPONSE flits as soon as their client takes them.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    tile : In
        This tile's number.
    control, load, store, collective : In(MemoryPort(leaf tag)).array(P)
    ring_requests, ring_data : In(stream).array(P, directions)
        Requests of other stops, for this tile's memory; tags of :data:`ORIGIN_BITS`.
    ring_responses : Out(stream).array(P)
    memory : Out(MemoryPort(memory tag)).array(P)
    remote_requests, remote_data : Out(stream).array(P)
        Requests for other tiles' memories; a write's data may come a cycle behind it.
    remote_responses : In(stream).array(P, directions)
    near, far : Out(1)
        A request of LOAD or STORE is unanswered by this tile's memory; by another's.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        ports, bits = config.ports, config.address_bits
        leaf = MemoryPort(address_bits=bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "tile": In(tile_bits(config)),
            **{name: In(leaf).array(ports) for name in CLIENTS},
            "ring_requests": In(stream.Signature(request_layout(bits, ORIGIN_BITS))).array(ports, 2),
            "ring_data": In(stream.Signature(write_layout())).array(ports, 2),
            "ring_responses": Out(stream.Signature(response_layout(ORIGIN_BITS))).array(ports),
            "memory": Out(MemoryPort(address_bits=bits, tag_bits=memory_tag_bits(config))).array(ports),
            "remote_requests": Out(stream.Signature(request_layout(bits, TAG_BITS))).array(ports),
            "remote_data": Out(stream.Signature(write_layout())).array(ports),
            "remote_responses": In(stream.Signature(response_layout(TAG_BITS))).array(ports, 2),
            "near": Out(1), "far": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        near, far = [], []
        for index in range(self._config.ports):
            m.submodules[f"port{index}"] = port = PooledPort(config=self._config)
            m.d.comb += port.tile.eq(self.tile)
            for name in (*CLIENTS, "ring_responses", "memory", "remote_requests", "remote_data"):
                wiring.connect(m, wiring.flipped(getattr(self, name)[index]), getattr(port, name))
            for direction in range(2):
                for name in ("ring_requests", "ring_data", "remote_responses"):
                    wiring.connect(m, wiring.flipped(getattr(self, name)[index][direction]),
                                   getattr(port, name)[direction])
            near.append(port.near)
            far.append(port.far)
        m.d.comb += [self.near.eq(Cat(near).any()), self.far.eq(Cat(far).any())]
        return m
