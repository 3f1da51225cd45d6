"""One tile as far as collectives go: the engine, its stop of the ring and a memory of its own, for benches."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import RECORD_BYTES
from ringloom.hw.memory.hbm.memory import HbmMemory
from ringloom.hw.memory.ideal import IdealMemory
from ringloom.hw.memory.port import CONTEXT_BITS, EPOCH_BITS, storage_port
from ringloom.hw.ring.collective.engine import RingEngine
from ringloom.hw.ring.flit import STOP_BITS, Direction, Network, RingLink
from ringloom.hw.ring.link import LinkStages
from ringloom.hw.ring.stop import RingStop

__all__ = ["CollectiveNode"]

_WAYS = ((Network.REDUCE, "reduce", Direction.CLOCKWISE), (Network.BROADCAST, "broadcast", Direction.COUNTERCLOCKWISE))


class CollectiveNode(wiring.Component):
    """Plain ports for the command processor's part. Nodes are joined by their links, which are registers.

    ``hold`` stops one of its streams for a cycle each: bit 0 and 1 what comes by REDUCE and BROADCAST, bit 2 and 3
    what goes out by them, bit 4 and up the requests to each memory port.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    stop : In
        Number of the tile; the host's makes a stop that nobody uses.
    link_in, link_out : RingLink.array(directions)
    storage0_{p} : Out(StoragePort)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "stop": In(STOP_BITS),
            "link_in": In(RingLink(config)).array(len(Direction)),
            "link_out": Out(RingLink(config)).array(len(Direction)),
            "valid": In(1), "ready": Out(1), "command": In(8 * RECORD_BYTES),
            "done": Out(1), "busy": Out(1), "quiet": Out(1), "progress": Out(1), "bytes": Out(8),
            "fault": Out(1), "fault_code": Out(8), "fault_address": Out(64),
            "halt": In(1), "clear": In(1), "hold": In(4 + config.ports),
            "context": In(CONTEXT_BITS), "epoch": In(EPOCH_BITS),
            "window_base": In(config.address_bits + 1), "window_limit": In(config.address_bits + 1),
            **{f"storage0_{p}": Out(storage_port(config)) for p in range(config.ports)},
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.ring_stop = stop = RingStop(config=config)
        m.submodules.engine = engine = RingEngine(config=config)
        m.d.comb += [
            stop.stop.eq(self.stop), engine.tile.eq(self.stop), engine.clear.eq(self.clear),
            engine.port.commands.valid.eq(self.valid), engine.port.commands.payload.eq(self.command),
            self.ready.eq(engine.port.commands.ready),
            *(getattr(self, name).eq(getattr(engine.port, name)) for name in ("done", "busy", "quiet")),
            *(getattr(self, name).eq(getattr(engine.events, name)) for name in ("progress", "bytes")),
            self.fault.eq(engine.port.fault_valid), self.fault_code.eq(engine.port.fault.code),
            self.fault_address.eq(engine.port.fault.address), engine.job.stop.eq(self.halt),
            *(getattr(engine.job, name).eq(getattr(self, name))
              for name in ("context", "epoch", "window_base", "window_limit")),
        ]
        used = []
        for index, (network, name, direction) in enumerate(_WAYS):
            used.append((network, direction))
            inject, eject = getattr(engine, f"{name}_inject"), getattr(engine, f"{name}_eject")
            for source, sink, held in ((stop.eject[network][direction], eject[direction], self.hold[index]),
                                       (inject[direction], stop.inject[network][direction], self.hold[2 + index])):
                m.d.comb += [sink.payload.eq(source.payload), sink.valid.eq(source.valid & ~held),
                             source.ready.eq(sink.ready & ~held)]
        for direction in Direction:
            for network in Network:
                if (network, direction) not in used:
                    m.d.comb += stop.eject[network][direction].ready.eq(1)
            m.submodules[f"link_{direction.name.lower()}"] = link = LinkStages(config=config)
            wiring.connect(m, stop.link_out[direction], link.i)
            wiring.connect(m, link.o, wiring.flipped(self.link_out[direction]))
            wiring.connect(m, wiring.flipped(self.link_in[direction]), stop.link_in[direction])
        self._memory(m, engine)
        return m

    def _memory(self, m: Module, engine: RingEngine) -> None:
        config = self._config
        memory: HbmMemory | IdealMemory
        memory = HbmMemory(config=config) if config.memory.kind == "hbm" else IdealMemory(config=config)
        m.submodules.memory = memory
        for p in range(config.ports):
            mine: Any = engine.memory[p]
            theirs, held = memory.ports[p], self.hold[4 + p]
            m.d.comb += [
                theirs.requests.valid.eq(mine.requests.valid & ~held),
                mine.requests.ready.eq(theirs.requests.ready & ~held),
                theirs.write_data.valid.eq(mine.write_data.valid), mine.write_data.ready.eq(theirs.write_data.ready),
                theirs.write_data.payload.eq(mine.write_data.payload),
                mine.responses.valid.eq(theirs.responses.valid), theirs.responses.ready.eq(mine.responses.ready),
                *(mine.responses.payload[name].eq(theirs.responses.payload[name])
                  for name in ("data", "tag", "write", "error", "context", "epoch")),
                *(theirs.requests.payload[name].eq(mine.requests.payload[name])
                  for name in ("address", "write", "context", "epoch", "tag")),
            ]
            wiring.connect(m, memory.storage[p], wiring.flipped(getattr(self, f"storage0_{p}")))
