"""The management core's data bus: one request of at most 32 bits at a time, answered before the next."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["REGION_SHIFT", "request_layout", "response_layout", "BusPort", "BusSelector"]

REGION_SHIFT = 28
"""Address bits 31:28 name a region; what lies behind it sees the whole address."""

request_layout = data.StructLayout({"address": 32, "write": 1, "data": 32, "strobe": 4})
"""address: of the word, bits 1:0 zero. data, strobe: bytes in their lanes; of a read, the bytes that are wanted."""

response_layout = data.StructLayout({"data": 32, "error": 1})
"""data: of a read, the whole word. error: nothing answers there, or it refuses; nothing was written."""


class BusPort(wiring.Signature):
    """The bus as its master sees it.

    The master makes its next request once the last is answered. A response comes a cycle after its request at
    the soonest, and the master always takes it.
    """

    def __init__(self) -> None:
        super().__init__({
            "requests": Out(stream.Signature(request_layout)),
            "responses": In(stream.Signature(response_layout, always_ready=True)),
        })


class BusSelector(wiring.Component):
    """One master to the region its address names; an address in no region is answered with an error.

    Adds no cycle. The answer of a missing region takes one.

    Parameters
    ----------
    regions : mapping of str to int
        Member name of each region's port to bits 31:28 of its addresses.

    Members
    -------
    master : In(BusPort())
    <name> : Out(BusPort())
        One for each region.
    """

    def __init__(self, *, regions: Mapping[str, int]) -> None:
        self.regions = dict(regions)
        assert len(set(self.regions.values())) == len(self.regions)
        super().__init__({"master": In(BusPort()), **{name: Out(BusPort()) for name in self.regions}})

    def elaborate(self, platform):
        m = Module()
        master = self.master
        ports = [getattr(self, name) for name in self.regions]
        missing = Signal()
        # The region that answers: the last one asked, since the master waits for it.
        selected = Signal(ceil_log2(len(ports) + 1), init=len(ports))

        m.d.sync += missing.eq(0)
        with m.Switch(master.requests.payload.address[REGION_SHIFT:]):
            for index, (region, port) in enumerate(zip(self.regions.values(), ports, strict=True)):
                m.d.comb += port.requests.payload.eq(master.requests.payload)
                with m.Case(region):
                    m.d.comb += [port.requests.valid.eq(master.requests.valid),
                                 master.requests.ready.eq(port.requests.ready)]
                    with m.If(master.requests.valid):
                        m.d.sync += selected.eq(index)
            with m.Default():
                m.d.comb += master.requests.ready.eq(1)
                m.d.sync += missing.eq(master.requests.valid)
                with m.If(master.requests.valid):
                    m.d.sync += selected.eq(len(ports))

        m.d.comb += master.responses.valid.eq(Cat(missing, *(port.responses.valid for port in ports)).any())
        with m.Switch(selected):
            for index, port in enumerate(ports):
                with m.Case(index):
                    m.d.comb += master.responses.payload.eq(port.responses.payload)
            with m.Default():
                m.d.comb += master.responses.payload.error.eq(1)
        return m
