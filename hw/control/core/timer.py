"""The machine timer of the management core."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .bus import BusPort

__all__ = ["Timer"]


class Timer(wiring.Component):
    """64-bit cycle count and compare value: the interrupt asks while count >= compare.

    Words: 0 count, 1 its upper half, 2 compare, 3 its upper half; the count cannot be written, compare takes whole
    words. Compare starts at its largest value. Latency 1; the interrupt follows one cycle behind.

    Members
    -------
    port : In(BusPort())
    interrupt : Out(1)
    """

    def __init__(self) -> None:
        super().__init__({
            "port": In(BusPort()),
            "interrupt": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        count, compare = Signal(64), Signal(64, init=(1 << 64) - 1)
        m.d.sync += [count.eq(count + 1), self.interrupt.eq(count >= compare)]

        request, response = self.port.requests, self.port.responses
        index = request.payload.address[2:4]
        m.d.comb += request.ready.eq(1)
        m.d.sync += [response.valid.eq(request.valid), response.payload.error.eq(request.payload.write & ~index[1])]
        for word, half in enumerate((count[:32], count[32:], compare[:32], compare[32:])):
            with m.If(index == word):
                m.d.sync += response.payload.data.eq(half)
        with m.If(request.valid & request.payload.write & index[1]):
            with m.If(index[0]):
                m.d.sync += compare[32:].eq(request.payload.data)
            with m.Else():
                m.d.sync += compare[:32].eq(request.payload.data)
        return m
