"""HostStop: what lies outside all memory is answered, and nothing behind it is held up."""

from amaranth.sim import Simulator

from ringloom.hw.ring.host_stop import HostStop
from tests.support.bare import bare

CONFIG = bare("tiny", {"tiles": 3, "memory.bytes": 65536})
OUTSIDE = 3 * 65536


def test_outside_is_an_error():
    """Three memories leave a quarter of the addresses without one; requests there are answered in any number."""
    dut = HostStop(config=CONFIG)
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    script = [(OUTSIDE, 0, 1), (OUTSIDE + 65504, 1, 2), (OUTSIDE + 32, 1, 3), (OUTSIDE, 0, 4), (OUTSIDE, 1, 5)]

    async def ask(ctx):
        port = dut.memory.requests
        for address, write, tag in script:
            ctx.set(port.payload, {"address": address, "write": write, "tag": tag})
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def give(ctx):  # data come late
        port = dut.memory.write_data
        for _ in range(3):
            await ctx.tick().repeat(7)
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)

    async def body(ctx):
        port, got = dut.memory.responses, []
        ctx.set(port.ready, 1)
        for _ in range(200):
            _, _, valid, answer = await ctx.tick().sample(port.valid, port.payload)
            if valid:
                got.append((answer.error, answer.write, answer.tag))
        assert got == [(1, write, tag) for _, write, tag in script]

    simulator.add_testbench(ask, background=True)
    simulator.add_testbench(give, background=True)
    simulator.add_testbench(body)
    simulator.run()
