"""A device with Ringloom's ports and nothing inside but a copy engine, to test the simulators alone.

Writing N to ``doorbell`` copies N beats from beat ``job_low`` to beat ``job_high`` and then raises the interrupt;
``irq_status`` clears it. Every ready of the buses comes from a shift register, so that both sides wait.
"""

from amaranth import Cat, Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.config import DeviceConfig
from ringloom.hw.memory.port import StoragePort
from ringloom.hw.regmap import ADDRESS_BITS, control_register, tile_register


class ToyBlock(wiring.Component):
    """Counts its enabled cycles: something below the top for waves to show."""

    enable: In(1)
    count: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.enable):
            m.d.sync += self.count.eq(self.count + 1)
        return m


class ToyDevice(wiring.Component):
    """Copies beats between the storage ports on request; one port is used at a time."""

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        bits = config.address_bits
        lite = {"awvalid": In(1), "awready": Out(1), "awaddr": In(ADDRESS_BITS), "wvalid": In(1), "wready": Out(1),
                "wdata": In(32), "wstrb": In(4), "bvalid": Out(1), "bready": In(1), "bresp": Out(2),
                "arvalid": In(1), "arready": Out(1), "araddr": In(ADDRESS_BITS), "rvalid": Out(1), "rready": In(1),
                "rdata": Out(32), "rresp": Out(2)}
        full = {"awvalid": In(1), "awready": Out(1), "awaddr": In(bits), "awlen": In(8), "awsize": In(3),
                "awburst": In(2), "wvalid": In(1), "wready": Out(1), "wdata": In(256), "wstrb": In(32),
                "wlast": In(1), "bvalid": Out(1), "bready": In(1), "bresp": Out(2),
                "arvalid": In(1), "arready": Out(1), "araddr": In(bits), "arlen": In(8), "arsize": In(3),
                "arburst": In(2), "rvalid": Out(1), "rready": In(1), "rdata": Out(256), "rresp": Out(2),
                "rlast": Out(1)}
        super().__init__({
            "irq": Out(1), **{f"s_axil_{k}": v for k, v in lite.items()}, **{f"s_axi_{k}": v for k, v in full.items()},
            **{f"storage0_{p}": Out(StoragePort(address_bits=bits)) for p in range(config.ports)}})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.block = block = ToyBlock()
        random = Signal(16, init=0xACE1)
        m.d.sync += random.eq(Cat(random[15] ^ random[13] ^ random[12] ^ random[10], random[:15]))
        source, target, left = Signal(20), Signal(20), Signal(20)
        bits = self.config.address_bits - 5
        enable, write, address = Signal(), Signal(), Signal(bits)
        data, strobe = Signal(256), Signal(32)
        ports = [getattr(self, f"storage0_{p}") for p in range(self.config.ports)]
        shift = (self.config.memory.interleave_bytes // 32 - 1).bit_length()
        read = Signal(256)
        last = Signal(range(max(2, len(ports))))
        for p, port in enumerate(ports):
            mine = (address >> shift)[:max(1, (len(ports) - 1).bit_length())] == p if len(ports) > 1 else 1
            m.d.sync += [port.enable.eq(enable & mine), port.write.eq(write), port.address.eq(address),
                         port.write_data.eq(data), port.strobe.eq(strobe)]
            with m.If(port.enable):
                m.d.sync += last.eq(p)
            with m.If(last == p):
                m.d.comb += read.eq(port.read_data)

        # registers
        doorbell = Signal()
        value = Signal(32)
        with m.If(self.s_axil_awvalid & self.s_axil_wvalid & ~self.s_axil_bvalid & random[0]):
            m.d.comb += [self.s_axil_awready.eq(1), self.s_axil_wready.eq(1)]
            m.d.sync += self.s_axil_bvalid.eq(1)
            with m.Switch(self.s_axil_awaddr):
                with m.Case(control_register("doorbell")):
                    m.d.sync += left.eq(self.s_axil_wdata)
                    m.d.comb += doorbell.eq(1)
                with m.Case(control_register("irq_status")):
                    m.d.sync += self.irq.eq(0)
                with m.Case(tile_register(0, "job_low")):
                    m.d.sync += source.eq(self.s_axil_wdata)
                with m.Case(tile_register(0, "job_high")):
                    m.d.sync += target.eq(self.s_axil_wdata)
        with m.If(self.s_axil_bvalid & self.s_axil_bready):
            m.d.sync += self.s_axil_bvalid.eq(0)
        m.d.sync += value.eq(value + 1)
        m.d.comb += self.s_axil_arready.eq(random[1] & ~self.s_axil_rvalid)
        with m.If(self.s_axil_arvalid & self.s_axil_arready):
            m.d.sync += [self.s_axil_rvalid.eq(1), self.s_axil_rdata.eq(0), self.s_axil_rresp.eq(0)]
            with m.Switch(self.s_axil_araddr):
                with m.Case(control_register("cycle_low")):
                    m.d.sync += self.s_axil_rdata.eq(value)
                with m.Case(control_register("irq_status")):
                    m.d.sync += self.s_axil_rdata.eq(self.irq)
                with m.Case(control_register("busy")):
                    m.d.sync += self.s_axil_rdata.eq(left != 0)
                with m.Default():
                    m.d.sync += self.s_axil_rresp.eq(3)
        with m.If(self.s_axil_rvalid & self.s_axil_rready):
            m.d.sync += self.s_axil_rvalid.eq(0)

        beats = Signal(9)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(doorbell):
                    m.next = "READ"
                with m.Elif(self.s_axi_awvalid & random[2]):
                    m.d.comb += self.s_axi_awready.eq(1)
                    m.d.sync += target.eq(self.s_axi_awaddr >> 5)
                    m.next = "AXI_WRITE"
                with m.Elif(self.s_axi_arvalid & random[3]):
                    m.d.comb += self.s_axi_arready.eq(1)
                    m.d.sync += [source.eq(self.s_axi_araddr >> 5), beats.eq(self.s_axi_arlen)]
                    m.next = "AXI_READ"
            with m.State("READ"):
                m.d.comb += [enable.eq(1), address.eq(source)]
                m.d.sync += source.eq(source + 1)
                m.next = "WAIT"
            with m.State("WAIT"):
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [block.enable.eq(1), enable.eq(1), write.eq(1), address.eq(target), data.eq(read),
                             strobe.eq(0xFFFFFFFF)]
                m.d.sync += [target.eq(target + 1), left.eq(left - 1)]
                with m.If(left == 1):
                    m.next = "ENDING"
                with m.Else():
                    m.next = "READ"
            with m.State("ENDING"):
                m.d.sync += self.irq.eq(1)
                m.next = "IDLE"
            with m.State("AXI_WRITE"):
                m.d.comb += self.s_axi_wready.eq(random[4])
                with m.If(self.s_axi_wvalid & self.s_axi_wready):
                    m.d.comb += [enable.eq(1), write.eq(1), address.eq(target), data.eq(self.s_axi_wdata),
                                 strobe.eq(self.s_axi_wstrb)]
                    m.d.sync += target.eq(target + 1)
                    with m.If(self.s_axi_wlast):
                        m.d.sync += self.s_axi_bvalid.eq(1)
                        m.next = "AXI_RESPONSE"
            with m.State("AXI_RESPONSE"):
                with m.If(self.s_axi_bready):
                    m.d.sync += self.s_axi_bvalid.eq(0)
                    m.next = "IDLE"
            with m.State("AXI_READ"):
                m.d.comb += [enable.eq(1), address.eq(source)]
                m.d.sync += source.eq(source + 1)
                m.next = "AXI_WAIT"
            with m.State("AXI_WAIT"):
                m.next = "AXI_DATA"
            with m.State("AXI_DATA"):
                m.d.comb += [self.s_axi_rvalid.eq(1), self.s_axi_rdata.eq(read), self.s_axi_rlast.eq(beats == 0)]
                with m.If(self.s_axi_rready):
                    m.d.sync += beats.eq(beats - 1)
                    m.next = "AXI_READ"
                    with m.If(beats == 0):
                        m.next = "IDLE"
        return m
