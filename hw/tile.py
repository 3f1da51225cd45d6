"""One tensor tile: engines, memory, and what controls them."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import DeviceConfig
from .control.border import ControlBorder, TileBorder
from .control.command_processor import ENGINES, CommandProcessor
from .control.core.slots import JobSlots
from .control.performance import PerformanceCounters
from .control.registers import TileRegisters
from .memory.arbiter import MemoryArbiter, PortRouter
from .memory.hbm.counters import ChannelCounters
from .memory.hbm.memory import HbmMemory
from .memory.ideal import IdealMemory
from .memory.load import LoadEngine
from .memory.pooled import PooledArbiter
from .memory.port import LEAF_TAG_BITS, MemoryPort, storage_port
from .ring.collective.engine import RingEngine
from .ring.flit import STOP_BITS, Direction, Network, RingLink
from .ring.requester import RemoteRequester
from .ring.server import RemoteServer
from .ring.stop import RingStop
from .tensor.engine import TensorEngine
from .tensor.store import StoreEngine

__all__ = ["Tile", "tile_members"]

_JOB = ("context", "epoch", "window_base", "window_limit", "stop")


def tile_members(config: DeviceConfig) -> dict[str, wiring.Member]:
    """Members of the tiles of a device."""
    links = RingLink(config)
    return {
        "number": In(STOP_BITS),
        "control": Out(TileBorder()),
        **({"host": In(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS))}
           if config.tiles == 1 else
           {"link_in": In(links).array(len(Direction)), "link_out": Out(links).array(len(Direction))}),
        "storage": Out(storage_port(config)).array(config.ports),
    }


class Tile(wiring.Component):
    """Command processor, LOAD, tensor and STORE engines behind one memory.

    The engines are reset at the end of every job, so that none depends on what ran before.

    Where there are several tiles, each has a stop of the ring in it, and no path through its border is combinational:
    links are registers, and so is every wire of ``control``, both ways. All tiles of a device are one module.

    Parameters
    ----------
    config : DeviceConfig
        The device.

    Members
    -------
    number : In
        Number of this tile; it never changes.
    control : Out(TileBorder())
    host : In(MemoryPort(...))
        The host's window on the memory, where this is the only tile.
    link_in, link_out : RingLink.array(directions)
        To the neighbours on the ring, where there are several.
    storage : Out(StoragePort(...)).array(ports)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__(tile_members(config))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        connect, flipped = wiring.connect, wiring.flipped
        m.submodules.control = control = CommandProcessor(config=config)
        load, tensor, store = LoadEngine(config=config), TensorEngine(config=config), StoreEngine(config=config)
        clear = ResetInserter(control.clear)
        m.submodules.load = clear(load)
        m.submodules.tensor = clear(tensor)
        m.submodules.store = clear(store)
        engines: dict[str, Any] = dict(zip(ENGINES, (load, tensor, store), strict=True))
        connect(m, control.load, load.port)
        connect(m, control.matmul, tensor.port)
        connect(m, control.store, store.port)
        connect(m, load.write, tensor.load)
        connect(m, store.accumulator, tensor.accumulator)
        connect(m, store.parameters, tensor.parameters)
        for engine in (load, store):
            for name in _JOB:
                m.d.comb += getattr(engine.job, name).eq(getattr(control.job, name))

        if config.tiles > 1:
            m.submodules.border = border = ControlBorder(config=config)
            connect(m, flipped(self.control), border.outer)
            own = border.inner
        else:
            own = flipped(self.control)
        m.submodules.control_router = control_router = PortRouter(config=config)
        clients = {"control": control_router.o, "load": load.memory, "store": store.memory}
        memory: HbmMemory | IdealMemory
        memory = HbmMemory(config=config) if config.memory.kind == "hbm" else IdealMemory(config=config)
        m.submodules.memory = memory
        connect(m, control.memory, control_router.i)
        m.d.comb += control.tile.eq(self.number)
        m.submodules.performance = performance = PerformanceCounters(config=config)
        arbiter = self._ring(m, control, performance, clients) if config.tiles > 1 else self._alone(m, clients)
        for p in range(config.ports):
            for name, ports in clients.items():
                connect(m, ports[p], getattr(arbiter, name)[p])
            connect(m, arbiter.memory[p], memory.ports[p])
            connect(m, memory.storage[p], flipped(self.storage[p]))
        # The watchdog's idea of progress beside dispatch and ``done``: an engine moves data, not only memory.
        m.d.comb += control.progress.eq(Cat(
            load.write.valid, tensor.events.active, store.events.bytes != 0, performance.ring_events.progress,
            *(port.responses.valid & port.responses.ready for engine in (load, store) for port in engine.memory),
        ).any())

        m.submodules.registers = registers = TileRegisters(config=config)
        connect(m, own.bus, registers.bus)
        if config.control.kind == "firmware":
            m.submodules.job_slots = slots = JobSlots()
            connect(m, registers.control, slots.registers)
            connect(m, slots.processor, control.control)
            written = registers.slot_command
            m.d.comb += [
                registers.slots.eq(Cat(slots.ended, Const(0, 6), slots.failed, slots.full, slots.held)),
                slots.acknowledge.eq(written[:2]), slots.resume.eq(written[8]), slots.cancel.eq(written[9]),
                slots.hold.eq(written[10]), slots.start.eq(own.start), slots.job.eq(own.job),
                slots.window_base.eq(own.window_base), slots.window_limit.eq(own.window_limit),
                own.reported.eq(slots.ended != 0), own.full.eq(slots.full),
            ]
        else:
            connect(m, registers.control, control.control)
        accepted = [(p.requests.valid & p.requests.ready, p.requests.payload.write) for p in memory.ports]
        m.d.comb += [
            registers.start.eq(own.start), registers.abort.eq(own.abort), registers.cycle.eq(own.cycle),
            own.busy.eq(control.control.busy), own.ended.eq(control.control.ended),
            performance.index.eq(registers.counter_index), registers.counter_value.eq(performance.value),
            performance.snapshot.eq(own.snapshot),
            performance.load_events.eq(load.events), performance.matmul_events.eq(tensor.events),
            performance.store_events.eq(store.events),
            performance.busy.eq(Cat(e.port.busy for e in engines.values())),
            performance.done.eq(Cat(e.port.done for e in engines.values())),
            performance.reads.eq(sum(beat & ~write for beat, write in accepted)),
            performance.writes.eq(sum(beat & write for beat, write in accepted)),
        ]
        if isinstance(memory, HbmMemory):
            values = []
            for p in range(config.ports):
                m.submodules[f"channel_counters_{p}"] = counters = ChannelCounters()
                connect(m, memory.events[p], counters.events)
                m.d.comb += [counters.active.eq(control.control.active),
                             counters.index.eq(registers.channel_index)]
                values.append(counters.value)
            m.d.comb += registers.channel_value.eq(Array(values)[registers.channel[:(config.ports - 1).bit_length()]])
        for name in ("active", "ended", "matmul_queued", "matmul_waiting"):
            m.d.comb += getattr(performance, name).eq(getattr(control.control, name))
        return m

    def _alone(self, m: Module, clients: dict) -> MemoryArbiter:
        """The only tile: its memory is the device's, and the host comes here."""
        m.submodules.arbiter = arbiter = MemoryArbiter(config=self.config)
        m.submodules.host_router = host_router = PortRouter(config=self.config)
        wiring.connect(m, wiring.flipped(self.host), host_router.i)
        clients["host"] = host_router.o
        return arbiter

    def _ring(self, m: Module, control: CommandProcessor, performance: PerformanceCounters,
              clients: dict) -> PooledArbiter:
        """One of several: a stop, requests from here and to here, signals, collectives."""
        config, connect = self.config, wiring.connect
        m.submodules.arbiter = arbiter = PooledArbiter(config=config)
        m.submodules.ring_stop = stop = RingStop(config=config)
        m.submodules.requester = requester = RemoteRequester(config=config, ports=config.ports)
        m.submodules.server = server = RemoteServer(config=config)
        m.submodules.ring = ring = RingEngine(config=config)
        connect(m, control.ring, ring.port)
        clients["collective"] = ring.memory
        m.d.comb += [getattr(block, "tile" if block is arbiter else "stop").eq(self.number)
                     for block in (arbiter, stop, requester, server)]
        for d in range(len(Direction)):
            connect(m, wiring.flipped(self.link_in[d]), stop.link_in[d])
            connect(m, stop.link_out[d], wiring.flipped(self.link_out[d]))
            connect(m, requester.inject[d], stop.inject[Network.REQUEST][d])
            connect(m, stop.eject[Network.RESPONSE][d], requester.eject[d])
            connect(m, stop.eject[Network.REQUEST][d], server.eject[d])
            connect(m, server.inject[d], stop.inject[Network.RESPONSE][d])
            for network, name in ((Network.REDUCE, "reduce"), (Network.BROADCAST, "broadcast")):
                connect(m, getattr(ring, f"{name}_inject")[d], stop.inject[network][d])
                connect(m, stop.eject[network][d], getattr(ring, f"{name}_eject")[d])
            for p in range(config.ports):
                connect(m, server.requests[p][d], arbiter.ring_requests[p][d])
                connect(m, server.write_data[p][d], arbiter.ring_data[p][d])
                connect(m, requester.responses[p][d], arbiter.remote_responses[p][d])
        for p in range(config.ports):
            connect(m, arbiter.remote_requests[p], requester.requests[p])
            connect(m, arbiter.remote_data[p], requester.write_data[p])
            connect(m, arbiter.ring_responses[p], server.responses[p])
        connect(m, control.notices, requester.notices)
        m.d.comb += [
            control.notice.eq(server.notice), control.notice_valid.eq(server.notice_valid),
            ring.tile.eq(self.number), ring.clear.eq(control.clear), performance.ring_events.eq(ring.events),
            *(getattr(ring.job, name).eq(getattr(control.job, name)) for name in _JOB),
            performance.near.eq(arbiter.near), performance.far.eq(arbiter.far),
            *(performance.lanes[d].eq(stop.events[d]) for d in Direction),
        ]
        return arbiter
