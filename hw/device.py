"""The device: tiles behind AXI4-Lite registers, an AXI4 window on memory, and an interrupt."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from .config import DeviceConfig
from .control.axi_lite import AxiLite, AxiLiteSlave
from .control.registers import ControlRegisters
from .memory.axi import Axi, AxiWindow
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

    Members
    -------
    irq : Out(1)
        High while a job that ``irq_enable`` lets through has ended.
    s_axil : Out(AxiLite(...)), s_axi : Out(Axi(...))
        Registers and memory, as the slave drives them.
    storage{t}_{p} : Out(StoragePort(...))
        Port p of the storage of tile t.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
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
        wiring.connect(m, axi_lite.bus, registers.bus)
        wiring.connect(m, wiring.flipped(self.s_axil), axi_lite.axi)
        wiring.connect(m, wiring.flipped(self.s_axi), window.axi)
        m.d.comb += self.irq.eq(registers.irq)
        for t in range(config.tiles):
            tile = Tile(config=config, tile=t)
            m.submodules[f"tile{t}"] = tile
            wiring.connect(m, registers.tiles[t], tile.bus)
            m.d.comb += [
                tile.start.eq(registers.start[t]), tile.abort.eq(registers.abort[t]),
                tile.snapshot.eq(registers.snapshot[t]), tile.cycle.eq(registers.cycle),
                registers.busy[t].eq(tile.busy), registers.ended[t].eq(tile.ended),
            ]
            for p in range(config.ports):
                wiring.connect(m, tile.storage[p], wiring.flipped(getattr(self, f"storage{t}_{p}")))
        # One tile has all of the memory; with more, the ring carries the window's beats to theirs.
        wiring.connect(m, window.memory, tile.host)
        return m
