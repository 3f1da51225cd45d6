"""The management core on the device's register bus, beside the host."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...regmap import ADDRESS_BITS
from ..axi_lite import AxiResponse, RegisterBus
from .bus import BusPort

__all__ = ["RegisterBridge"]


class RegisterBridge(wiring.Component):
    """Two masters of one register bus: the host goes first where both begin, and an access that has begun ends.

    So a host that polls without a pause cannot keep the core from registers that take several cycles. Reads and writes
    pass each other. The core's answer comes a cycle behind its access; where the registers answer with an error, so
    does the bus.

    Members
    -------
    host : In(RegisterBus(...))
    core : In(BusPort())
    bus : Out(RegisterBus(...))
    """

    def __init__(self) -> None:
        super().__init__({
            "host": In(RegisterBus(address_bits=ADDRESS_BITS)),
            "core": In(BusPort()),
            "bus": Out(RegisterBus(address_bits=ADDRESS_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        host, bus, request, response = self.host, self.bus, self.core.requests, self.core.responses
        own = request.payload
        for way, wants in (("read", request.valid & ~own.write), ("write", request.valid & own.write)):
            hosts, ready = getattr(host, way), getattr(bus, f"{way}_ready")
            core, begun = Signal(name=f"core_{way}s"), Signal(name=f"core_{way}_begun")
            m.d.comb += [
                core.eq(wants & (begun | ~hosts)),
                getattr(bus, way).eq(hosts | wants),
                getattr(bus, f"{way}_address").eq(Mux(core, own.address, getattr(host, f"{way}_address"))),
                getattr(host, f"{way}_ready").eq(ready & ~core),
                getattr(host, f"{way}_response").eq(getattr(bus, f"{way}_response")),
            ]
            with m.If(core & ready):
                m.d.comb += request.ready.eq(1)
            m.d.sync += begun.eq(core & ~ready)
            if way == "write":
                m.d.comb += [
                    bus.write_data.eq(Mux(core, own.data, host.write_data)),
                    bus.strobe.eq(Mux(core, own.strobe, host.strobe)),
                ]
        m.d.comb += host.read_data.eq(bus.read_data)
        m.d.sync += [
            response.valid.eq(request.valid & request.ready),
            response.payload.data.eq(bus.read_data),
            response.payload.error.eq(
                Mux(own.write, bus.write_response, bus.read_response) != AxiResponse.OKAY),
        ]
        return m
