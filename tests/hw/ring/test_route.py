"""The way around, for every pair of every ring."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from ringloom.hw.ring.route import route


@pytest.mark.parametrize("stops", range(3, 18))
def test_the_shorter_way(stops):
    m, source, destination, way = Module(), Signal(5), Signal(5), Signal()
    m.d.comb += way.eq(route(stops, source, destination))
    load = {0: 0, 1: 0}  # hops in each direction

    async def bench(ctx):
        for a in range(stops):
            for b in range(stops):
                if a == b:
                    continue
                ctx.set(source, a)
                ctx.set(destination, b)
                found = ctx.get(way)
                clockwise = len(range(a, b if b > a else b + stops))
                other = stops - clockwise
                assert found == (other < clockwise if other != clockwise else a % 2), (a, b)
                load[found] += (clockwise, other)[found]

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    assert abs(load[0] - load[1]) <= (stops // 2 if stops % 2 == 0 and stops // 2 % 2 else 0) * 2, load
