"""Requests of the host to the firmware, their answers, and what the self-test found."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...regmap import MAILBOX, MAILBOX_ADDRESS_BITS, Access
from ..axi_lite import RegisterBus
from ..registers import register_table
from .bus import BusPort

__all__ = ["PORT", "Mailbox"]

_WRITTEN = [r for r in MAILBOX if r.access is Access.RO and r.name != "pending"]

PORT = {r.name: r.address for r in MAILBOX}
"""Addresses of the firmware's side, from the start of its region: the host's own. The firmware reads the request and
its arguments, writes what the host reads, and ends the request by a write to ``pending``."""


class Mailbox(wiring.Component):
    """Registers between the host and the firmware.

    A write of ``request`` makes it pending until the firmware has answered. A second one before that takes its place.

    Members
    -------
    bus : In(RegisterBus(...))
        The host's side.
    port : In(BusPort())
        The firmware's side. Latency 1; every address answers.
    attention : Out(1)
        A request is pending.
    """

    def __init__(self) -> None:
        super().__init__({
            "bus": In(RegisterBus(address_bits=MAILBOX_ADDRESS_BITS)),
            "port": In(BusPort()),
            "attention": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        request, response = self.port.requests, self.port.responses
        shown = {r.name: Signal(32, name=r.name) for r in _WRITTEN}
        written = register_table(m, self.bus, MAILBOX, {**shown, "pending": self.attention}.__getitem__)
        address = request.payload.address[:MAILBOX_ADDRESS_BITS]
        m.d.comb += request.ready.eq(1)
        m.d.sync += response.valid.eq(request.valid)
        with m.Switch(address):
            for name, value in {**written, "pending": self.attention}.items():
                with m.Case(PORT[name]):
                    m.d.sync += response.payload.data.eq(value)
        with m.If(request.valid & request.payload.write):
            with m.Switch(address):
                for name, value in shown.items():
                    with m.Case(PORT[name]):
                        m.d.sync += value.eq(request.payload.data)
                with m.Case(PORT["pending"]):
                    m.d.sync += self.attention.eq(0)
        with m.If(self.bus.write & (self.bus.write_address == PORT["request"])):
            m.d.sync += self.attention.eq(1)
        return m
