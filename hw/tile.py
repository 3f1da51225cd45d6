"""One tensor tile: engines, memory, and what controls them."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, ResetInserter
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import DeviceConfig
from .control.axi_lite import RegisterBus
from .control.command_processor import ENGINES, CommandProcessor
from .control.core.slots import JobSlots
from .control.performance import PerformanceCounters
from .control.registers import TILE_ADDRESS_BITS, TileRegisters
from .memory.arbiter import MemoryArbiter, PortRouter
from .memory.hbm.counters import ChannelCounters
from .memory.hbm.memory import HbmMemory
from .memory.ideal import IdealMemory
from .memory.load import LoadEngine
from .memory.port import LEAF_TAG_BITS, MemoryPort, StoragePort
from .tensor.engine import TensorEngine
from .tensor.store import StoreEngine

__all__ = ["Tile"]


class Tile(wiring.Component):
    """Command processor, LOAD, tensor and STORE engines behind one memory.

    The engines are reset at the end of every job, so that none depends on what ran before.

    Parameters
    ----------
    config : DeviceConfig
        The device.
    tile : int
        Number of this tile.

    Members
    -------
    bus : In(RegisterBus(...))
        Reads and writes of this tile's register block.
    start, abort, snapshot : In(1), busy, ended : Out(1), cycle : In(64)
        As ``ControlRegisters`` has them.
    reported, full : Out(1)
        With firmware: jobs have ended that it has not acknowledged; the second job slot is taken.
    job, window_base, window_limit : In(64)
        With firmware: what ``start`` starts, in place of the registers.
    host : In(MemoryPort(...))
        The host's window on this tile's memory.
    storage : Out(StoragePort(...)).array(ports)
    """

    def __init__(self, *, config: DeviceConfig, tile: int) -> None:
        self.config, self.tile = config, tile
        storage = StoragePort(address_bits=(config.memory.bytes - 1).bit_length())
        super().__init__({
            "bus": In(RegisterBus(address_bits=TILE_ADDRESS_BITS)),
            "start": In(1), "abort": In(1), "snapshot": In(1), "busy": Out(1), "ended": Out(1), "cycle": In(64),
            "reported": Out(1), "full": Out(1),
            "job": In(64), "window_base": In(64), "window_limit": In(64),
            "host": In(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)),
            "storage": Out(storage).array(config.ports),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        connect, flipped = wiring.connect, wiring.flipped
        m.submodules.control = control = CommandProcessor(config=config, tile=self.tile)
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
            for name in ("context", "epoch", "window_base", "window_limit", "stop"):
                m.d.comb += getattr(engine.job, name).eq(getattr(control.job, name))

        m.submodules.arbiter = arbiter = MemoryArbiter(config=config)
        m.submodules.control_router = control_router = PortRouter(config=config)
        m.submodules.host_router = host_router = PortRouter(config=config)
        memory: HbmMemory | IdealMemory
        memory = HbmMemory(config=config) if config.memory.kind == "hbm" else IdealMemory(config=config)
        m.submodules.memory = memory
        connect(m, control.memory, control_router.i)
        connect(m, flipped(self.host), host_router.i)
        clients = {"control": control_router.o, "host": host_router.o, "load": load.memory, "store": store.memory}
        for p in range(config.ports):
            for name, ports in clients.items():
                connect(m, ports[p], getattr(arbiter, name)[p])
            connect(m, arbiter.memory[p], memory.ports[p])
            connect(m, memory.storage[p], flipped(self.storage[p]))
        # The watchdog's idea of progress beside dispatch and ``done``: an engine moves data, not only memory.
        m.d.comb += control.progress.eq(Cat(
            load.write.valid, tensor.events.active, store.events.bytes != 0,
            *(port.responses.valid & port.responses.ready for engine in (load, store) for port in engine.memory),
        ).any())

        m.submodules.registers = registers = TileRegisters(config=config)
        m.submodules.performance = performance = PerformanceCounters(config=config)
        connect(m, flipped(self.bus), registers.bus)
        if config.control.kind == "firmware":
            m.submodules.slots = slots = JobSlots()
            connect(m, registers.control, slots.registers)
            connect(m, slots.processor, control.control)
            written = registers.slot_command
            m.d.comb += [
                registers.slots.eq(Cat(slots.ended, Const(0, 6), slots.failed, slots.full, slots.held)),
                slots.acknowledge.eq(written[:2]), slots.resume.eq(written[8]), slots.cancel.eq(written[9]),
                slots.hold.eq(written[10]), slots.start.eq(self.start), slots.job.eq(self.job),
                slots.window_base.eq(self.window_base), slots.window_limit.eq(self.window_limit),
                self.reported.eq(slots.ended != 0), self.full.eq(slots.full),
            ]
        else:
            connect(m, registers.control, control.control)
        accepted = [(p.requests.valid & p.requests.ready, p.requests.payload.write) for p in memory.ports]
        m.d.comb += [
            registers.start.eq(self.start), registers.abort.eq(self.abort), registers.cycle.eq(self.cycle),
            self.busy.eq(control.control.busy), self.ended.eq(control.control.ended),
            performance.index.eq(registers.counter_index), registers.counter_value.eq(performance.value),
            performance.snapshot.eq(self.snapshot),
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
