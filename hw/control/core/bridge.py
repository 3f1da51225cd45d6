"""The management core on the device's register bus, beside the host."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...regmap import ADDRESS_BITS
from ..axi_lite import AxiResponse, RegisterBus
from .bus import BusPort

__all__ = ["RegisterBridge"]


class RegisterBridge(wiring.Component):
    """Two masters of one register bus: the host goes first, and the core waits for a cycle without it.

    Reads and writes pass each other. The core's answer comes a cycle behind its access; where the registers answer
    with an error, so does the bus.

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
        m.d.comb += [
            bus.write.eq(host.write | (request.valid & own.write)),
            bus.write_address.eq(Mux(host.write, host.write_address, own.address)),
            bus.write_data.eq(Mux(host.write, host.write_data, own.data)),
            bus.strobe.eq(Mux(host.write, host.strobe, own.strobe)),
            host.write_response.eq(bus.write_response),
            host.write_ready.eq(bus.write_ready),
            host.read_ready.eq(bus.read_ready),
            bus.read.eq(host.read | (request.valid & ~own.write)),
            bus.read_address.eq(Mux(host.read, host.read_address, own.address)),
            host.read_data.eq(bus.read_data),
            host.read_response.eq(bus.read_response),
            request.ready.eq(Mux(own.write, ~host.write & bus.write_ready, ~host.read & bus.read_ready)),
        ]
        m.d.sync += [
            response.valid.eq(request.valid & request.ready),
            response.payload.data.eq(bus.read_data),
            response.payload.error.eq(
                Mux(own.write, bus.write_response, bus.read_response) != AxiResponse.OKAY),
        ]
        return m
