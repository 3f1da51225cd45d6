"""The mailbox: a request is pending until it is answered, and the host sees what the firmware writes."""

from amaranth.sim import Simulator

from ringloom.hw.control.core.mailbox import PORT, Mailbox
from ringloom.hw.regmap import MAILBOX, Access


def test_requests_and_answers():
    dut = Mailbox()
    registers = {r.name: r.address for r in MAILBOX}

    async def host(ctx, name, value=None):
        bus = dut.bus
        if value is None:
            ctx.set(bus.read_address, registers[name])
            await ctx.delay(1e-7)
            return ctx.get(bus.read_data)
        for field, data in (("write_address", registers[name]), ("write_data", value), ("strobe", 15), ("write", 1)):
            ctx.set(getattr(bus, field), data)
        await ctx.tick()
        ctx.set(bus.write, 0)

    async def firmware(ctx, name, value=None):
        request, response = dut.port.requests, dut.port.responses
        ctx.set(request.payload, {"address": 0x60000000 + PORT[name], "write": value is not None, "data": value or 0,
                                  "strobe": 15})
        ctx.set(request.valid, 1)
        await ctx.tick()
        ctx.set(request.valid, 0)
        assert ctx.get(response.valid)
        return ctx.get(response.payload.data)

    async def body(ctx):
        assert not ctx.get(dut.attention)
        await host(ctx, "argument1", 77)
        assert not ctx.get(dut.attention)
        await host(ctx, "request", 0x302)
        assert ctx.get(dut.attention) and await host(ctx, "pending") == 1
        assert await firmware(ctx, "pending") == 1
        assert await firmware(ctx, "request") == 0x302 and await firmware(ctx, "argument1") == 77
        await firmware(ctx, "request", 5)  # not the firmware's to write
        assert await host(ctx, "request") == 0x302
        shown = [r.name for r in MAILBOX if r.access is Access.RO and r.name != "pending"]
        for number, name in enumerate(shown):
            await firmware(ctx, name, 1000 + number)
        for number, name in enumerate(shown):
            assert await host(ctx, name) == 1000 + number
        assert await host(ctx, "pending") == 1
        await firmware(ctx, "pending", 0)
        assert await host(ctx, "pending") == 0 and not ctx.get(dut.attention)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()
