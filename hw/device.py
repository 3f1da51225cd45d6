"""The device: tiles behind AXI4-Lite registers, an AXI4 window on memory, and an interrupt."""

from collections.abc import Sequence

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from .config import DeviceConfig
from .control.axi_lite import AxiLite
from .memory.axi import Axi
from .memory.port import StoragePort
from .regmap import ADDRESS_BITS
from .ring.flit import Direction
from .shell import Shell
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
        connect, flipped = wiring.connect, wiring.flipped
        m.submodules.shell = shell = self.shell()
        connect(m, flipped(self.s_axil), shell.s_axil)
        connect(m, flipped(self.s_axi), shell.s_axi)
        m.d.comb += self.irq.eq(shell.irq)
        for t in range(config.tiles):
            m.submodules[f"tile{t}"] = tile = self.tile()
            m.d.comb += tile.number.eq(t)
            connect(m, getattr(shell, f"tile{t}"), tile.control)
            if config.tiles == 1:
                connect(m, shell.memory, tile.host)
            else:
                for d in range(len(Direction)):
                    connect(m, getattr(shell, f"tile{t}_link_in")[d], tile.link_in[d])
                    connect(m, tile.link_out[d], getattr(shell, f"tile{t}_link_out")[d])
            for p in range(config.ports):
                connect(m, tile.storage[p], flipped(getattr(self, f"storage{t}_{p}")))
        return m

    def shell(self) -> wiring.Component:
        """What all tiles are joined to."""
        return Shell(config=self.config, firmware=self.firmware)

    def tile(self) -> wiring.Component:
        """One tile; they are all alike."""
        return Tile(config=self.config)
