"""The device: tiles behind AXI4-Lite registers, an AXI4 window on memory, and an interrupt."""

import enum
from collections.abc import Sequence
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Value, ValueCastable
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from .config import DeviceConfig
from .control.axi_lite import AxiLite
from .memory.axi import Axi
from .memory.port import storage_port
from .regmap import ADDRESS_BITS
from .ring.flit import Direction
from .shell import Shell, shell_members
from .tile import Tile, tile_members

__all__ = ["Part", "Device", "flat_ports"]


class Part(enum.Enum):
    """Modules of a device that holds its parts by name."""

    SHELL = "ringloom_shell"
    TILE = "ringloom_tile"


def flat_ports(component: Any) -> dict[str, tuple[Value, wiring.Flow]]:
    """Port name in Verilog to value and flow, for every port in the component's signature (not ``clk`` and ``rst``)."""
    ports = {}
    for path, member, value in component.signature.flatten(component):
        name = "_".join(map(str, path))
        if name in ports:
            raise ValueError(f"two ports of {type(component).__name__} are both called {name!r} in Verilog")
        ports[name] = (value.as_value() if isinstance(value, ValueCastable) else value, member.flow)
    return ports


class Device(wiring.Component):
    """All tiles of a configuration, and the host's interfaces.

    In Verilog a port is the path of its member, joined by underscores: ``s_axil_awaddr``, ``s_axi_rdata``,
    ``storage0_1_enable``.

    Parameters
    ----------
    config : DeviceConfig
        The device.
    instances : bool
        Name the modules of its parts instead of holding them, for Verilog that has each of them once.
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

    def __init__(self, *, config: DeviceConfig, firmware: Sequence[int] | None = None,
                 instances: bool = False) -> None:
        self.config, self._instances = config, instances
        self.firmware = firmware
        storage = storage_port(config)
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
        shell = self._part(m, "shell", Part.SHELL)
        connect(m, flipped(self.s_axil), shell.s_axil)
        connect(m, flipped(self.s_axi), shell.s_axi)
        m.d.comb += self.irq.eq(shell.irq)
        for t in range(config.tiles):
            tile = self._part(m, f"tile{t}", Part.TILE)
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

    def part(self, part: "Part") -> wiring.Component:
        """What all tiles are joined to, or one of the tiles, which are all alike."""
        if part is Part.TILE:
            return Tile(config=self.config)
        firmware = self.firmware
        if firmware is None and self.config.control.kind == "firmware":
            from ringloom.firmware.build import image
            firmware = image(self.config)
        return Shell(config=self.config, firmware=firmware or ())

    def _part(self, m: Module, name: str, part: "Part") -> Any:
        if not self._instances:
            m.submodules[name] = component = self.part(part)
            return component
        members = shell_members if part is Part.SHELL else tile_members
        wires = wiring.Signature(members(self.config)).create(path=(name,))
        ports = {f"{'i' if flow == wiring.In else 'o'}_{port}": value
                 for port, (value, flow) in flat_ports(wires).items() if len(value)}
        m.submodules[name] = Instance(part.value, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)
        return wires
