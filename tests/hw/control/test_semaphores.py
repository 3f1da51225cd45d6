"""The semaphores against a plain Python model of taking and adding."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.control.semaphores import Semaphores


def simulate(dut, body):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()


def test_overflow():
    """An addition past the largest value is a fault that names engine and semaphore; a take in its cycle makes room."""
    dut = Semaphores(engines=3, bits=3)

    async def body(ctx):
        for e in range(3):
            ctx.set(dut.signals[e], [{"enable": 1, "semaphore": 4}, {"enable": 1, "semaphore": 4}])
        ctx.set(dut.read_index, 4)
        for value in (2, 4, 6):
            ctx.set(dut.signal, 1)
            assert not ctx.get(dut.overflow)
            await ctx.tick()
            assert ctx.get(dut.read_value) == value
        ctx.set(dut.signal, 0b100)
        assert ctx.get(dut.overflow) and ctx.get(dut.overflow_engine) == 2 and ctx.get(dut.overflow_semaphore) == 4
        await ctx.tick()
        assert ctx.get(dut.read_value) == 6
        ctx.set(dut.waits[0], [{"enable": 1, "semaphore": 4, "count": 1}, {"enable": 0}])
        ctx.set(dut.request, 1)
        assert ctx.get(dut.grant) == 1 and not ctx.get(dut.overflow)
        await ctx.tick()
        assert ctx.get(dut.read_value) == 7
        ctx.set(dut.clear, 1)
        ctx.set(dut.request, 0)
        await ctx.tick()
        assert ctx.get(dut.read_value) == 0
    simulate(dut, body)


def test_overflow_by_another_tile():
    """It is told apart from an engine's, and an engine's of the same cycle is named before it."""
    dut = Semaphores(engines=3, bits=3, remote=True)

    async def body(ctx):
        ctx.set(dut.read_index, 4)
        ctx.set(dut.remote, {"enable": 1, "semaphore": 4})
        for value in range(7):
            assert ctx.get(dut.read_value) == value and not ctx.get(dut.overflow)
            await ctx.tick()
        assert ctx.get(dut.overflow) and ctx.get(dut.overflow_remote) and ctx.get(dut.overflow_semaphore) == 4
        ctx.set(dut.signals[1], [{"enable": 1, "semaphore": 4}, {"enable": 0}])
        ctx.set(dut.signal, 0b010)
        assert ctx.get(dut.overflow) and not ctx.get(dut.overflow_remote) and ctx.get(dut.overflow_engine) == 1
        await ctx.tick()
        assert ctx.get(dut.read_value) == 7
    simulate(dut, body)


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_random(seed, remote):
    """Every engine, and perhaps another tile, adds and takes in every cycle, on few semaphores: they collide."""
    print("seed", seed)
    chance = random.Random(seed)
    dut = Semaphores(engines=3, remote=remote)
    names = [0, 1, 17, 31]
    values = dict.fromkeys(range(32), 0)

    def pair(low):
        return [{"enable": chance.random() < 0.7, "semaphore": chance.choice(names), "count": chance.choice(low)}
                for _ in range(2)]

    async def body(ctx):
        granted = collided = 0
        for _ in range(400):
            waits = [pair((0, 1, 1, 2, 5)) for _ in range(3)]
            signals = [pair((0,)) for _ in range(3)]
            request, signal = chance.randrange(8), chance.randrange(8)
            for e in range(3):
                ctx.set(dut.waits[e], waits[e])
                ctx.set(dut.signals[e], [{k: v for k, v in s.items() if k != "count"} for s in signals[e]])
            ctx.set(dut.request, request)
            ctx.set(dut.signal, signal)
            far = {"enable": remote and chance.random() < 0.5, "semaphore": chance.choice(names)}
            ctx.set(dut.remote, far)
            claimed, takes, grant = set(), [], 0
            for e in range(3):
                wanted = {}
                for wait in waits[e]:
                    if wait["enable"]:
                        wanted[wait["semaphore"]] = wanted.get(wait["semaphore"], 0) + wait["count"]
                if request >> e & 1 and all(values[s] >= n for s, n in wanted.items()):
                    if claimed & set(wanted):
                        collided += 1
                        continue
                    grant |= 1 << e
                    claimed |= set(wanted)
                    takes += wanted.items()
            assert ctx.get(dut.grant) == grant
            granted += grant.bit_count()
            for s, n in takes:
                values[s] -= n
            for e in range(3):
                for s in signals[e]:
                    values[s["semaphore"]] += s["enable"] and signal >> e & 1
            values[far["semaphore"]] += far["enable"]
            await ctx.tick()
            index = chance.choice(names)
            ctx.set(dut.read_index, index)
            assert ctx.get(dut.read_value) == values[index]
        assert granted > 100 and collided > 15
        for index, value in values.items():
            ctx.set(dut.read_index, index)
            assert ctx.get(dut.read_value) == value
    simulate(dut, body)
