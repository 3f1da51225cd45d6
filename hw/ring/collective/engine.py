"""The RING engine: collectives of a group of tiles, from memory to memory."""

from amaranth.hdl import Module, Mux, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from ...control.engine import RING_EVENTS, EnginePort, JobState
from ...isa import RING
from ...memory.port import LEAF_TAG_BITS, MemoryPort
from ..flit import STOP_BITS, Direction, flit_layout
from .core import CollectiveCore
from .ends import Receiver, Sender

__all__ = ["RingEngine"]


class RingEngine(wiring.Component):
    """All-reduce, reduce-scatter, all-gather, broadcast and barrier. See docs/collectives.md for the schedule.

    Sums go CLOCKWISE by REDUCE, results COUNTERCLOCKWISE by BROADCAST; the other two ways are not used. Cycles from
    an accepted command to its first read: 6; from a flit at ``eject`` to ``inject``: 2. Throughput one flit a cycle
    each way, a flit a cycle and two more in memory while a piece ends.

    Up to four commands are in the engine: a command starts when those before have nothing left to read, and ``done``
    comes in order. What it must not do before another one's writes are seen is a matter of semaphores.
    Faults: BAD_FIELD, MEMORY_WINDOW (address: the first byte outside), MEMORY_ERROR (address: the line that was read,
    or the destination of the command whose write failed).

    Flits that have come for a later job survive ``clear``, so the engine must not be reset from outside between jobs.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    port : In(EnginePort(RING))
    job : In(JobState)
    clear : In, ends everything but what the ring has brought
    tile : In, number of this tile; it never changes
    memory : Out(MemoryPort).array(P)
    reduce_inject, broadcast_inject : Out(stream of flits).array(directions)
    reduce_eject, broadcast_eject : In(stream of flits).array(directions)
    events : Out(RING_EVENTS)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        memory = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        flits = stream.Signature(flit_layout(config))
        super().__init__({
            "port": In(EnginePort(RING)),
            "job": In(JobState(address_bits=config.address_bits)),
            "clear": In(1),
            "tile": In(STOP_BITS),
            "memory": Out(memory).array(config.ports),
            "reduce_inject": Out(flits).array(len(Direction)), "reduce_eject": In(flits).array(len(Direction)),
            "broadcast_inject": Out(flits).array(len(Direction)), "broadcast_eject": In(flits).array(len(Direction)),
            "events": Out(RING_EVENTS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, tile = self._config, self.tile
        connect, flipped = wiring.connect, wiring.flipped
        core = CollectiveCore(config=config)
        m.submodules.core = ResetInserter(self.clear)(core)
        connect(m, core.port, flipped(self.port))
        connect(m, core.job, flipped(self.job))
        for index in range(config.ports):
            connect(m, core.memory[index], flipped(self.memory[index]))
        last = config.tiles - 1
        ways = (("reduce", Direction.CLOCKWISE, core.sums_out, core.sums_in, Mux(tile == last, 0, tile + 1)),
                ("broadcast", Direction.COUNTERCLOCKWISE, core.results_out, core.results_in,
                 Mux(tile == 0, last, tile - 1)))
        for name, direction, out, received, neighbour in ways:
            m.submodules[f"{name}_sender"] = sender = Sender(config=config)
            m.submodules[f"{name}_receiver"] = receiver = Receiver(config=config)
            inject, eject = getattr(self, f"{name}_inject"), getattr(self, f"{name}_eject")
            connect(m, out, sender.i)
            connect(m, sender.inject, flipped(inject[direction]))
            connect(m, flipped(eject[direction]), receiver.eject)
            connect(m, receiver.o, received)
            m.d.comb += [sender.source.eq(tile), sender.destination.eq(neighbour), eject[1 - direction].ready.eq(1)]
        m.d.comb += [core.tile.eq(tile), self.events.eq(core.events)]
        return m
