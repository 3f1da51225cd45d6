"""The management core with its memories, timer and bus."""

from collections.abc import Iterable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bus import BusPort, BusSelector
from .core import Core, trace_layout
from .memory import CodeMemory, DataMemory
from .timer import Timer

__all__ = ["REGIONS", "ManagementCore"]

REGIONS = {"code": 0x0, "data": 0x1, "timer": 0x2, "registers": 0x3, "queues": 0x4, "sweep": 0x5,
           "mailbox": 0x6}
"""Address bits 31:28 of what the core sees; the firmware's header and linker script take them from here."""
_OUTSIDE = ("registers", "queues", "sweep", "mailbox")


class ManagementCore(wiring.Component):
    """RV32I core, firmware in code memory, data memory, timer; the device lies behind four more ports.

    Parameters
    ----------
    code_words, data_words : int
        Sizes of the memories in 32-bit words, powers of two.
    firmware : iterable of int
        Words of code memory from its start, where the core begins.

    Members
    -------
    registers : Out(BusPort())
        The device's registers, at their own addresses.
    queues : Out(BusPort())
        The firmware's side of the job queues.
    sweep : Out(BusPort())
        What reads and writes device memory.
    mailbox : Out(BusPort())
        The firmware's side of the host's requests.
    external : In(1)
        External interrupt, high as long as it asks.
    trace : Out(trace_layout)
    """

    def __init__(self, *, code_words: int, data_words: int, firmware: Iterable[int] = ()) -> None:
        self.code_words = code_words
        self.data_words = data_words
        self.firmware = list(firmware)
        super().__init__({**{name: Out(BusPort()) for name in _OUTSIDE}, "external": In(1), "trace": Out(trace_layout)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = Core(reset_address=0)
        m.submodules.code = code = CodeMemory(words=self.code_words, init=self.firmware)
        m.submodules.data = data = DataMemory(words=self.data_words)
        m.submodules.machine_timer = timer = Timer()
        m.submodules.bus = bus = BusSelector(regions=REGIONS)
        connect(m, core.fetch, code.fetch)
        connect(m, core.bus, bus.master)
        connect(m, bus.code, code.port)
        connect(m, bus.data, data.port)
        connect(m, bus.timer, timer.port)
        for name in _OUTSIDE:
            connect(m, getattr(bus, name), flipped(getattr(self, name)))
        m.d.comb += [core.timer.eq(timer.interrupt), core.external.eq(self.external), self.trace.eq(core.trace)]
        return m
