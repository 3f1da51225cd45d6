"""A tile's DRAM: one controller and one device a pseudo-channel."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.sim.hbm_device import HbmDevice

from ...config import DeviceConfig
from ..port import MemoryPort, StoragePort, memory_tag_bits
from .address import address_map
from .command import CommandBus
from .controller import Controller
from .events import CHANNEL_EVENTS

__all__ = ["HbmMemory", "COMMAND_RECORD"]

COMMAND_RECORD = ("row_op", "row_bank", "row", "column_op", "column_bank", "column")
"""What a recording of the command bus holds."""


class HbmMemory(wiring.Component):
    """Answers as :class:`IdealMemory` does: P memory ports in, P storage ports out, each its own pseudo-channel.

    Parameters
    ----------
    config : DeviceConfig
        ``memory.*``.

    Members
    -------
    ports : In(MemoryPort).array(P)
    storage : Out(StoragePort).array(P)
    events : Out(CHANNEL_EVENTS).array(P)
    commands : Out, an array
        Each channel's command bus without its data, to be recorded.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        self._address = address_map(config)
        bus = CommandBus(self._address).members
        super().__init__({
            "ports": In(MemoryPort(address_bits=config.address_bits,
                                   tag_bits=memory_tag_bits(config))).array(config.ports),
            "storage": Out(StoragePort(address_bits=(config.memory.bytes - 1).bit_length())).array(config.ports),
            "events": Out(CHANNEL_EVENTS).array(config.ports),
            "commands": Out(wiring.Signature({name: Out(bus[name].shape) for name in COMMAND_RECORD})).array(
                config.ports),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for index in range(self._config.ports):
            controller = Controller(memory=self._config.memory, address=self._address,
                                    address_bits=self._config.address_bits,
                                    tag_bits=memory_tag_bits(self._config))
            device = HbmDevice(address=self._address, channel=index)
            m.submodules[f"channel_{index}"] = controller
            m.submodules[f"device_{index}"] = device
            wiring.connect(m, wiring.flipped(self.ports[index]), controller.port)
            wiring.connect(m, controller.bus, device.bus)
            wiring.connect(m, device.storage, wiring.flipped(self.storage[index]))
            wiring.connect(m, controller.events, wiring.flipped(self.events[index]))
            for name in COMMAND_RECORD:
                m.d.comb += getattr(self.commands[index], name).eq(getattr(controller.bus, name))
        return m
