"""Memories of the management core: firmware in one that it cannot write, data in another."""

from collections.abc import Iterable

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from .bus import REGION_SHIFT, BusPort
from .core import FetchPort

__all__ = ["CodeMemory", "DataMemory"]


def _outside(address, words: int):
    """Whether the address lies behind the ``words`` words at the start of its region."""
    return address[2 + (words - 1).bit_length():REGION_SHIFT].any()


class CodeMemory(wiring.Component):
    """Firmware: fetched from, and read for its constants; a write is answered with an error. Latency 1.

    It lies in region 0: a fetch from elsewhere faults.

    Parameters
    ----------
    words : int
        Size in 32-bit words, a power of two.
    init : iterable of int
        Its words; the rest is 0, which is an illegal instruction.
    """

    def __init__(self, *, words: int, init: Iterable[int] = ()) -> None:
        self.words = words
        self.init = list(init)
        assert words & (words - 1) == 0 and len(self.init) <= words
        super().__init__({"fetch": In(FetchPort()), "port": In(BusPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=32, depth=self.words, init=self.init)
        fetch, read = memory.read_port(), memory.read_port()
        m.d.comb += [
            fetch.addr.eq(self.fetch.address[2:]),
            fetch.en.eq(self.fetch.enable),
            self.fetch.data.eq(fetch.data),
        ]
        with m.If(self.fetch.enable):
            m.d.sync += self.fetch.fault.eq(
                self.fetch.address[REGION_SHIFT:].any() | _outside(self.fetch.address, self.words))

        request, response = self.port.requests, self.port.responses
        m.d.comb += [
            request.ready.eq(1),
            read.addr.eq(request.payload.address[2:]),
            read.en.eq(request.valid),
            response.payload.data.eq(read.data),
        ]
        m.d.sync += [
            response.valid.eq(request.valid),
            response.payload.error.eq(request.payload.write | _outside(request.payload.address, self.words)),
        ]
        return m


class DataMemory(wiring.Component):
    """Stack, variables and tables of the firmware. Latency 1, byte strobes.

    Parameters
    ----------
    words : int
        Size in 32-bit words, a power of two.
    """

    def __init__(self, *, words: int) -> None:
        self.words = words
        assert words & (words - 1) == 0
        super().__init__({"port": In(BusPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=32, depth=self.words, init=[])
        read, write = memory.read_port(), memory.write_port(granularity=8)
        request, response = self.port.requests, self.port.responses
        outside = Signal()
        m.d.comb += [
            outside.eq(_outside(request.payload.address, self.words)),
            request.ready.eq(1),
            read.addr.eq(request.payload.address[2:]),
            read.en.eq(request.valid & ~request.payload.write),
            write.addr.eq(request.payload.address[2:]),
            write.data.eq(request.payload.data),
            response.payload.data.eq(read.data),
        ]
        with m.If(request.valid & request.payload.write & ~outside):
            m.d.comb += write.en.eq(request.payload.strobe)
        m.d.sync += [response.valid.eq(request.valid), response.payload.error.eq(outside)]
        return m
