"""What a device has once: the host's interfaces, its registers, the management core, the host's place on the ring."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import DeviceConfig
from .control.axi_lite import AxiLite, AxiLiteSlave
from .control.border import TileBorder
from .control.core.bridge import RegisterBridge
from .control.core.mailbox import Mailbox
from .control.core.management import ManagementCore
from .control.core.queues import QueueUnit
from .control.core.sweep import MemorySweep
from .control.registers import ControlRegisters
from .memory.axi import Axi, AxiWindow
from .memory.merge import PortMerge
from .memory.port import LEAF_TAG_BITS, MemoryPort
from .regmap import ADDRESS_BITS
from .ring.flit import Direction, RingLink
from .ring.host_stop import HostStop
from .ring.link import LinkStages

__all__ = ["Shell", "shell_members"]


def shell_members(config: DeviceConfig) -> dict[str, wiring.Member]:
    """Members of the shell of a device."""
    tiles, links = range(config.tiles), RingLink(config)
    return {
        "irq": Out(1),
        "s_axil": Out(AxiLite(address_bits=ADDRESS_BITS)),
        "s_axi": Out(Axi()),
        **{f"tile{t}": In(TileBorder()) for t in tiles},
        **({"memory": Out(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS))}
           if config.tiles == 1 else
           {f"tile{t}_link_{way}": flow(links).array(len(Direction))
            for t in tiles for way, flow in (("in", Out), ("out", In))}),
    }


class Shell(wiring.Component):
    """Everything of a device but its tiles, and the links between them.

    Parameters
    ----------
    config : DeviceConfig
        The device.
    firmware : sequence of int
        Words of the management core's code memory, where ``control.kind`` is firmware.

    Members
    -------
    irq, s_axil, s_axi
        As :class:`~ringloom.hw.device.Device` has them.
    tile{t} : In(TileBorder())
    memory : Out(MemoryPort(...))
        The host's, where there is one tile.
    tile{t}_link_in, tile{t}_link_out : RingLink.array(directions)
        What the tile's members of these names are joined with, where there are several.
    """

    def __init__(self, *, config: DeviceConfig, firmware: Sequence[int] = ()) -> None:
        self.config, self.firmware = config, firmware
        super().__init__(shell_members(config))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.axi_lite = axi_lite = AxiLiteSlave(address_bits=ADDRESS_BITS)
        m.submodules.registers = registers = ControlRegisters(config=config)
        m.submodules.window = window = AxiWindow(config=config)
        wiring.connect(m, wiring.flipped(self.s_axil), axi_lite.axi)
        wiring.connect(m, wiring.flipped(self.s_axi), window.axi)
        m.d.comb += self.irq.eq(registers.irq)
        tiles = [getattr(self, f"tile{t}") for t in range(config.tiles)]
        for t, tile in enumerate(tiles):
            wiring.connect(m, registers.tiles[t], wiring.flipped(tile).bus)
            m.d.comb += [
                tile.abort.eq(registers.abort[t]),
                tile.snapshot.eq(registers.snapshot[t]), tile.cycle.eq(registers.cycle),
                registers.busy[t].eq(tile.busy),
            ]
        if config.tiles == 1:
            memory = wiring.flipped(self.memory)
        else:
            memory = self._ring(m)
        if config.control.kind == "direct":
            m.d.comb += registers.ended.eq(Cat(tile.ended for tile in tiles))
            m.d.comb += [tile.start.eq(start) for tile, start in zip(tiles, registers.start, strict=True)]
            wiring.connect(m, axi_lite.bus, registers.bus)
            wiring.connect(m, window.memory, memory)
        else:
            m.submodules.management = management = ManagementCore(
                code_words=config.control.code_bytes // 4, data_words=config.control.data_bytes // 4,
                firmware=self.firmware)
            m.submodules.bridge = bridge = RegisterBridge()
            m.submodules.queues = queues = QueueUnit(config=config)
            m.submodules.merge = merge = PortMerge(
                address_bits=config.address_bits, clients=("reader", "main", "sweep"))
            m.submodules.sweep = sweep = MemorySweep(config=config)
            m.submodules.mailbox = mailbox = Mailbox()
            wiring.connect(m, axi_lite.bus, bridge.host)
            wiring.connect(m, management.registers, bridge.core)
            wiring.connect(m, bridge.bus, registers.bus)
            wiring.connect(m, registers.queues, queues.bus)
            wiring.connect(m, management.queues, queues.port)
            wiring.connect(m, window.memory, merge.main)
            wiring.connect(m, queues.memory, merge.reader)
            wiring.connect(m, sweep.memory, merge.sweep)
            wiring.connect(m, management.sweep, sweep.port)
            wiring.connect(m, management.mailbox, mailbox.port)
            wiring.connect(m, registers.mailbox, mailbox.bus)
            wiring.connect(m, merge.o, memory)
            m.d.comb += [
                management.external.eq(queues.attention | mailbox.attention),
                registers.ended.eq(queues.notify),
                queues.ended.eq(Cat(tile.reported for tile in tiles)),
                queues.full.eq(Cat(tile.full for tile in tiles)),
            ]
            for tile, start in zip(tiles, queues.start, strict=True):
                m.d.comb += tile.start.eq(start)
                m.d.comb += [getattr(tile, name).eq(getattr(queues, name))
                             for name in ("job", "window_base", "window_limit")]
        return m

    def _ring(self, m: Module):
        """The host's stop and all links; returns the host's port on memory."""
        config = self.config
        m.submodules.host_stop = host = HostStop(config=config)
        out, into = ([*([wiring.flipped(link) for link in getattr(self, f"tile{t}_{name}")]
                        for t in range(config.tiles)), getattr(host, name)] for name in ("link_out", "link_in"))
        for stop, links in enumerate(out):
            for direction in Direction:
                behind = (stop + (1 if direction is Direction.CLOCKWISE else -1)) % len(out)
                link = LinkStages(config=config)
                m.submodules[f"link{stop}_{direction.name.lower()}"] = link
                wiring.connect(m, links[direction], link.i)
                wiring.connect(m, link.o, into[behind][direction])
        return host.memory
