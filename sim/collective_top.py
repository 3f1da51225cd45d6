"""The collective engines of all tiles on their ring, each with a memory of its own and nothing else, for benches."""

from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import RECORD_BYTES
from ringloom.hw.memory.hbm.memory import HbmMemory
from ringloom.hw.memory.ideal import IdealMemory
from ringloom.hw.memory.port import CONTEXT_BITS, EPOCH_BITS, StoragePort
from ringloom.hw.ring.collective.engine import RingEngine
from ringloom.hw.ring.flit import NETWORKS, Direction, Network
from ringloom.hw.ring.ring import Ring

__all__ = ["CollectiveTop"]

_WAYS = ((Network.REDUCE, "reduce", Direction.CLOCKWISE), (Network.BROADCAST, "broadcast", Direction.COUNTERCLOCKWISE))


class CollectiveTop(wiring.Component):
    """Tile t's engine has plain ports ``t{t}_*``, and the storage ports ``storage{t}_{p}_*``.

    ``t{t}_hold`` stops one of its streams for a cycle each: bit 0 and 1 what comes by REDUCE and BROADCAST, bit 2 and 3
    what goes out by them, bit 4 and up the requests to each memory port. ``moving`` is high while a flit is on a way
    out.

    Parameters
    ----------
    config : DeviceConfig
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        ports: dict[str, Any] = {}
        for t in range(config.tiles):
            ports |= {
                f"t{t}_valid": In(1), f"t{t}_ready": Out(1), f"t{t}_command": In(8 * RECORD_BYTES),
                f"t{t}_done": Out(1), f"t{t}_busy": Out(1), f"t{t}_quiet": Out(1), f"t{t}_progress": Out(1),
                f"t{t}_bytes": Out(8),
                f"t{t}_fault": Out(1), f"t{t}_fault_code": Out(8), f"t{t}_fault_address": Out(64),
                f"t{t}_stop": In(1), f"t{t}_clear": In(1), f"t{t}_hold": In(4 + config.ports),
                f"t{t}_context": In(CONTEXT_BITS), f"t{t}_epoch": In(EPOCH_BITS),
                f"t{t}_window_base": In(config.address_bits + 1), f"t{t}_window_limit": In(config.address_bits + 1),
                **{f"storage{t}_{p}": Out(StoragePort(address_bits=(config.memory.bytes - 1).bit_length()))
                   for p in range(config.ports)},
            }
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.ring = ring = Ring(config=config)
        for t in range(config.tiles + 1):
            for n in range(NETWORKS):
                for direction in Direction:
                    if t == config.tiles or (n, direction) not in [(way[0], way[2]) for way in _WAYS]:
                        m.d.comb += ring.eject[t][n][direction].ready.eq(1)
        for t in range(config.tiles):
            self._tile(m, ring, t)
        return m

    def _tile(self, m: Module, ring: Ring, t: int) -> None:
        config = self._config

        def port(name: str) -> Any:
            return getattr(self, f"t{t}_{name}")

        m.submodules[f"engine{t}"] = engine = RingEngine(config=config)
        memory: HbmMemory | IdealMemory
        memory = HbmMemory(config=config) if config.memory.kind == "hbm" else IdealMemory(config=config)
        m.submodules[f"memory{t}"] = memory
        m.d.comb += [
            engine.tile.eq(t), engine.clear.eq(port("clear")),
            engine.port.commands.valid.eq(port("valid")), engine.port.commands.payload.eq(port("command")),
            port("ready").eq(engine.port.commands.ready),
            *(port(name).eq(getattr(engine.port, name)) for name in ("done", "busy", "quiet")),
            port("progress").eq(engine.events.progress), port("bytes").eq(engine.events.bytes),
            port("fault").eq(engine.port.fault_valid), port("fault_code").eq(engine.port.fault.code),
            port("fault_address").eq(engine.port.fault.address),
            *(getattr(engine.job, name).eq(port(name))
              for name in ("stop", "context", "epoch", "window_base", "window_limit")),
        ]
        hold = port("hold")
        for index, (network, name, direction) in enumerate(_WAYS):
            inject, eject = getattr(engine, f"{name}_inject"), getattr(engine, f"{name}_eject")
            for source, sink, held in ((ring.eject[t][network][direction], eject[direction], hold[index]),
                                       (inject[direction], ring.inject[t][network][direction], hold[2 + index])):
                m.d.comb += [sink.payload.eq(source.payload), sink.valid.eq(source.valid & ~held),
                             source.ready.eq(sink.ready & ~held)]
        for p in range(config.ports):
            mine, theirs, held = engine.memory[p], memory.ports[p], hold[4 + p]
            m.d.comb += [
                theirs.requests.valid.eq(mine.requests.valid & ~held),
                mine.requests.ready.eq(theirs.requests.ready & ~held),
                theirs.write_data.valid.eq(mine.write_data.valid), mine.write_data.ready.eq(theirs.write_data.ready),
                theirs.write_data.payload.eq(mine.write_data.payload),
                mine.responses.valid.eq(theirs.responses.valid), theirs.responses.ready.eq(mine.responses.ready),
                *(mine.responses.payload[name].eq(theirs.responses.payload[name])
                  for name in ("data", "tag", "write", "error", "context", "epoch")),
            ]
            for name in ("address", "write", "context", "epoch", "tag"):
                m.d.comb += theirs.requests.payload[name].eq(mine.requests.payload[name])
            wiring.connect(m, memory.storage[p], wiring.flipped(getattr(self, f"storage{t}_{p}")))
