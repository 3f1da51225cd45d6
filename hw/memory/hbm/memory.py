"""A tile's DRAM: one channel a pseudo-channel."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.sim.hbm_device import START, TIME_BITS

from ...config import DeviceConfig
from ..port import MemoryPort, memory_tag_bits, storage_port
from .address import address_map
from .channel import COMMAND_RECORD, Channel
from .command import CommandBus
from .events import CHANNEL_EVENTS

__all__ = ["HbmMemory", "COMMAND_RECORD"]


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
        Each channel's command bus without its data; ``storage`` has it as one word.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        self._address = address_map(config)
        bus = CommandBus(self._address).members
        super().__init__({
            "ports": In(MemoryPort(address_bits=config.address_bits,
                                   tag_bits=memory_tag_bits(config))).array(config.ports),
            "storage": Out(storage_port(config)).array(config.ports),
            "events": Out(CHANNEL_EVENTS).array(config.ports),
            "commands": Out(wiring.Signature({name: Out(bus[name].shape) for name in COMMAND_RECORD})).array(
                config.ports),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now = Signal(TIME_BITS, init=START)
        m.d.sync += now.eq(now + 1)
        for index in range(self._config.ports):
            channel = Channel(memory=self._config.memory, address=self._address,
                              address_bits=self._config.address_bits, channel=index,
                              tag_bits=memory_tag_bits(self._config))
            m.submodules[f"channel_{index}"] = channel
            m.d.comb += channel.now.eq(now)
            wiring.connect(m, wiring.flipped(self.ports[index]), channel.port)
            wiring.connect(m, channel.storage, wiring.flipped(self.storage[index]))
            wiring.connect(m, channel.events, wiring.flipped(self.events[index]))
            wiring.connect(m, channel.commands, wiring.flipped(self.commands[index]))
        return m
