"""An AXI4-Lite slave in front of a register bus."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..shaped import ShapedIntEnum

__all__ = ["AxiLite", "AxiResponse", "RegisterBus", "AxiLiteSlave"]


class AxiResponse(ShapedIntEnum, shape=2):
    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class AxiLite(wiring.Signature):
    """An AXI4-Lite interface with 32 bits of data, as the slave sees it. Members carry the standard names."""

    def __init__(self, *, address_bits: int) -> None:
        super().__init__({
            "awaddr": In(address_bits), "awprot": In(3), "awvalid": In(1), "awready": Out(1),
            "wdata": In(32), "wstrb": In(4), "wvalid": In(1), "wready": Out(1),
            "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
            "araddr": In(address_bits), "arprot": In(3), "arvalid": In(1), "arready": Out(1),
            "rdata": Out(32), "rresp": Out(2), "rvalid": Out(1), "rready": In(1),
        })


class RegisterBus(wiring.Signature):
    """Reads and writes of 32-bit registers, as the master sees them; answers come in the same cycle, or later.

    The master keeps an access, its address and data as they are until the cycle in which it is ready.
    write: store ``write_data`` where ``strobe`` has a bit for the byte, at ``write_address``.
    read: ``read_data`` of ``read_address`` is taken in this cycle.
    *_response: an ``AxiResponse``; a write with another than OKAY changes nothing.
    """

    def __init__(self, *, address_bits: int) -> None:
        super().__init__({
            "write": Out(1),
            "write_address": Out(address_bits),
            "write_data": Out(32),
            "strobe": Out(4),
            "write_response": In(AxiResponse),
            "write_ready": In(1, init=1),
            "read": Out(1),
            "read_address": Out(address_bits),
            "read_data": In(32),
            "read_response": In(AxiResponse),
            "read_ready": In(1, init=1),
        })


class AxiLiteSlave(wiring.Component):
    """Turns AXI4-Lite into a register bus; one read and one write at a time, independent of each other.

    AW and W come in any order. A write happens two cycles after the later of them was shown, and is answered one
    later; a read is answered two cycles after its address; both later where the bus is. No output depends on an
    input of the same cycle.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address.

    Members
    -------
    axi : Out(AxiLite(...)), as the slave drives it
    bus : Out(RegisterBus(...))
    """

    def __init__(self, *, address_bits: int) -> None:
        super().__init__({
            "axi": Out(AxiLite(address_bits=address_bits)),
            "bus": Out(RegisterBus(address_bits=address_bits)),
        })

    def elaborate(self, platform):
        m = Module()
        axi, bus = self.axi, self.bus
        word = ~3  # registers are aligned; the two low bits select bytes that the strobes select too

        address_held, data_held = Signal(), Signal()
        m.d.comb += [
            axi.awready.eq(~address_held),
            axi.wready.eq(~data_held),
            bus.write.eq(address_held & data_held & ~axi.bvalid),
        ]
        with m.If(axi.awvalid & axi.awready):
            m.d.sync += [address_held.eq(1), bus.write_address.eq(axi.awaddr & word)]
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += [data_held.eq(1), bus.write_data.eq(axi.wdata), bus.strobe.eq(axi.wstrb)]
        with m.If(bus.write & bus.write_ready):
            m.d.sync += [address_held.eq(0), data_held.eq(0), axi.bvalid.eq(1), axi.bresp.eq(bus.write_response)]
        with m.If(axi.bvalid & axi.bready):
            m.d.sync += axi.bvalid.eq(0)

        read_held = Signal()
        m.d.comb += [axi.arready.eq(~read_held), bus.read.eq(read_held & ~axi.rvalid)]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [read_held.eq(1), bus.read_address.eq(axi.araddr & word)]
        with m.If(bus.read & bus.read_ready):
            m.d.sync += [read_held.eq(0), axi.rvalid.eq(1), axi.rdata.eq(bus.read_data),
                         axi.rresp.eq(bus.read_response)]
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += axi.rvalid.eq(0)
        return m
