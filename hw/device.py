"""The device: tiles behind AXI4-Lite registers, an AXI4 window on memory, and an interrupt."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from .config import DeviceConfig
from .control.axi_lite import AxiLite, AxiLiteSlave
from .control.core.bridge import RegisterBridge
from .control.core.management import ManagementCore
from .control.core.queues import QueueUnit
from .control.registers import ControlRegisters
from .memory.axi import Axi, AxiWindow
from .memory.merge import PortMerge
from .memory.port import StoragePort
from .regmap import ADDRESS_BITS
from .tile import Tile

__all__ = ["Device"]


class Device(wiring.Component):
    """All tiles of a configuration, and the host's interfaces.

    In Verilog a port is the path of its member, joined by underscores: ``s_axil_awaddr``, ``s_axi_rdata``,
    ``storage0_1_enable``.

    Parameters
    ----------
    config : DeviceConfig
        The device.
    firmware : sequence of int, optional
        Words of the management core's code memory, where ``control.kind`` is firmware; built from source by default.

    Members
    -------
    irq : Out(1)
        High while a job that ``irq_enable`` lets through has ended.
    s_axil : Out(AxiLite(...)), s_axi : Out(Axi(...))
        Registers and memory, as the slave drives them.
    storage{t}_{p} : Out(StoragePort(...))
        Port p of the storage of tile t.
    """

    def __init__(self, *, config: DeviceConfig, firmware: Sequence[int] | None = None) -> None:
        self.config = config
        self.firmware = firmware or ()
        if firmware is None and config.control.kind == "firmware":
            from ringloom.firmware.build import image
            self.firmware = image(config)
        storage = StoragePort(address_bits=(config.memory.bytes - 1).bit_length())
        super().__init__({
            "irq": Out(1),
            "s_axil": Out(AxiLite(address_bits=ADDRESS_BITS)),
            "s_axi": Out(Axi()),
            **{f"storage{t}_{p}": Out(storage) for t in range(config.tiles) for p in range(config.ports)},
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.axi_lite = axi_lite = AxiLiteSlave(address_bits=ADDRESS_BITS)
        m.submodules.registers = registers = ControlRegisters(config=config)
        m.submodules.window = window = AxiWindow(config=config)
        wiring.connect(m, wiring.flipped(self.s_axil), axi_lite.axi)
        wiring.connect(m, wiring.flipped(self.s_axi), window.axi)
        m.d.comb += self.irq.eq(registers.irq)
        tiles = []
        for t in range(config.tiles):
            tile = Tile(config=config, tile=t)
            tiles.append(tile)
            m.submodules[f"tile{t}"] = tile
            wiring.connect(m, registers.tiles[t], tile.bus)
            m.d.comb += [
                tile.abort.eq(registers.abort[t]),
                tile.snapshot.eq(registers.snapshot[t]), tile.cycle.eq(registers.cycle),
                registers.busy[t].eq(tile.busy),
            ]
            for p in range(config.ports):
                wiring.connect(m, tile.storage[p], wiring.flipped(getattr(self, f"storage{t}_{p}")))
        # One tile has all of the memory; with more, the ring carries the window's beats to theirs.
        if config.control.kind == "direct":
            m.d.comb += registers.ended.eq(Cat(tile.ended for tile in tiles))
            m.d.comb += [tile.start.eq(start) for tile, start in zip(tiles, registers.start, strict=True)]
            wiring.connect(m, axi_lite.bus, registers.bus)
            wiring.connect(m, window.memory, tiles[0].host)
        else:
            m.submodules.management = management = ManagementCore(
                code_words=config.control.code_bytes // 4, data_words=config.control.data_bytes // 4,
                firmware=self.firmware)
            m.submodules.bridge = bridge = RegisterBridge()
            m.submodules.queues = queues = QueueUnit(config=config)
            m.submodules.merge = merge = PortMerge(address_bits=config.address_bits)
            wiring.connect(m, axi_lite.bus, bridge.host)
            wiring.connect(m, management.registers, bridge.core)
            wiring.connect(m, bridge.bus, registers.bus)
            wiring.connect(m, registers.queues, queues.bus)
            wiring.connect(m, management.queues, queues.port)
            wiring.connect(m, window.memory, merge.main)
            wiring.connect(m, queues.memory, merge.reader)
            wiring.connect(m, merge.o, tiles[0].host)
            m.d.comb += [
                management.external.eq(queues.attention),
                registers.ended.eq(queues.notify),
                queues.ended.eq(Cat(tile.reported for tile in tiles)),
                queues.full.eq(Cat(tile.full for tile in tiles)),
            ]
            for tile, start in zip(tiles, queues.start, strict=True):
                m.d.comb += tile.start.eq(start)
                m.d.comb += [getattr(tile, name).eq(getattr(queues, name))
                             for name in ("job", "window_base", "window_limit")]
        return m
