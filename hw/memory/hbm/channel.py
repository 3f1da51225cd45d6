"""One pseudo-channel with its DRAM, standing still while there is nothing to do."""

from amaranth.hdl import EnableInserter, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ringloom.sim.hbm_device import TIME_BITS, HbmDevice

from ...config import MemoryConfig
from ..port import MemoryPort, StoragePort
from .address import AddressMap
from .command import COMMAND_WORD, CommandBus
from .completion import LATENCY_BITS
from .controller import Controller
from .events import CHANNEL_EVENTS
from .refresh_clock import RefreshClock

__all__ = ["Channel", "COMMAND_RECORD"]

COMMAND_RECORD = ("row_op", "row_bank", "row", "column_op", "column_bank", "column")
"""What a recording of the command bus holds."""


class Channel(wiring.Component):
    """Controller and DRAM under one clock enable: a request or a refresh that is due wakes both in the same cycle.

    Nothing is later for it: what must go on meanwhile, the refresh clock and the time, is outside. A simulator (or a
    clock gate) need not look at a channel that stands still.

    Parameters
    ----------
    memory : MemoryConfig
        Queues, refresh and page policy.
    address : AddressMap
        Timing set and address mapping.
    address_bits, tag_bits : int
        Bits of a byte address and of a tag at the port.
    channel : int
        Which pseudo-channel this is.

    Members
    -------
    port : In(MemoryPort)
    storage : Out(StoragePort)
    events : Out(CHANNEL_EVENTS)
    commands : Out
        The command bus without its data; ``storage`` has it as one word.
    now : In
        The cycle.
    """

    def __init__(self, *, memory: MemoryConfig, address: AddressMap, address_bits: int, tag_bits: int,
                 channel: int) -> None:
        self._memory = memory
        self._address = address
        self._address_bits = address_bits
        self._tag_bits = tag_bits
        self._channel = channel
        bus = CommandBus(address).members
        super().__init__({
            "port": In(MemoryPort(address_bits=address_bits, tag_bits=tag_bits)),
            "storage": Out(StoragePort(address_bits=address.beat_bits + 5, commands=True)),
            "events": Out(CHANNEL_EVENTS),
            "commands": Out(wiring.Signature({name: Out(bus[name].shape) for name in COMMAND_RECORD})),
            "now": In(TIME_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory, address = self._memory, self._address
        controller = Controller(memory=memory, address=address, address_bits=self._address_bits,
                                tag_bits=self._tag_bits)
        device = HbmDevice(address=address, channel=self._channel)
        awake = Signal(name="clock_enable")
        m.submodules.controller = EnableInserter(awake)(controller)
        m.submodules.device = EnableInserter(awake)(device)
        m.submodules.refresh_clock = clock = RefreshClock(timing=address.timing, mode=memory.refresh)
        wiring.connect(m, wiring.flipped(self.port), controller.port)
        wiring.connect(m, controller.bus, device.bus)
        for name in device.storage.signature.members:
            if name == "read_data":
                m.d.comb += device.storage.read_data.eq(self.storage.read_data)
            else:
                m.d.comb += getattr(self.storage, name).eq(getattr(device.storage, name))
        wiring.connect(m, controller.events, wiring.flipped(self.events))
        m.d.comb += [
            awake.eq(controller.busy | self.port.requests.valid | clock.tick),
            controller.now.eq(self.now[:LATENCY_BITS]), device.now.eq(self.now),
            controller.tick.eq(clock.tick), controller.recovering.eq(clock.recovering), clock.paid.eq(controller.paid),
        ]
        word = data.View(COMMAND_WORD, self.storage.commands)
        for name in COMMAND_RECORD:
            m.d.comb += [getattr(self.commands, name).eq(getattr(controller.bus, name)),
                         word[name].eq(getattr(controller.bus, name))]
        return m
