"""Timers against lists of when each lane last started."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from ringloom.hw.memory.hbm.timers import DelayRing, LaneHistory, Timer


def simulate(component, body) -> None:
    async def run(ctx):
        await body(ctx)

    m = Module()
    m.submodules.dut = component
    m.d.sync += Signal().eq(1)   # some of them have no register
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(run)
    simulator.run()


@pytest.mark.parametrize("cycles", [0, 1, 2, 3, 14, 64, 65, 350])
def test_timer(cycles):
    timer, rng = Timer(cycles=cycles), random.Random(cycles)

    async def body(ctx):
        last = -10_000
        for now in range(1500):
            assert ctx.get(timer.busy) == (now - last < cycles), f"cycle {now}"
            start = rng.random() < 0.02
            ctx.set(timer.start, start)
            last = now if start else last
            await ctx.tick()

    simulate(timer, body)


@pytest.mark.parametrize("cycles", [1, 2, 4, 8])
def test_lane_history(cycles):
    lanes, rng = 4, random.Random(cycles)
    history = LaneHistory(lanes=lanes, cycles=cycles)

    async def body(ctx):
        last = [-10_000] * lanes
        for now in range(500):
            assert ctx.get(history.busy) == sum((now - last[k] < cycles) << k for k in range(lanes))
            start = rng.getrandbits(lanes) & rng.getrandbits(lanes)
            ctx.set(history.start, start)
            last = [now if start >> k & 1 else last[k] for k in range(lanes)]
            await ctx.tick()

    simulate(history, body)


@pytest.mark.parametrize(("distances", "spacing"), [((1, 2, 3), 1), ((14, 12, 34, 48), 4), ((23,), 2), ((72, 5), 3)])
def test_delay_ring(distances, spacing):
    """Lanes may start again before they end: the last start counts."""
    lanes, rng = 16, random.Random(spacing)
    ring = DelayRing(lanes=lanes, cycles=distances, spacing=spacing)

    async def body(ctx):
        last, free = [-10_000] * lanes, 0
        for now in range(2000):
            for index, distance in enumerate(distances):
                expected = sum((now - last[k] < distance) << k for k in range(lanes))
                assert ctx.get(ring.busy[index]) == expected, f"cycle {now}, distance {distance}"
            start = now >= free and rng.random() < 0.7
            lane = rng.randrange(lanes if rng.random() < 0.7 else 2)
            ctx.set(ring.start, start)
            ctx.set(ring.lane, lane)
            if start:
                last[lane], free = now, now + spacing
            await ctx.tick()

    simulate(ring, body)
