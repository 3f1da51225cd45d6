"""NoticeUnit: every signal of every ended command leaves once, with its job's context; nothing behind a clear."""

import random
from collections import Counter

import pytest
from amaranth.sim import Simulator

from ringloom.hw.control.dispatch import FLIGHT_DEPTH
from ringloom.hw.control.notices import NoticeUnit
from tests.support.bare import bare

CONFIG = bare("tiny", {"tiles": 5})
ENGINES, LIMIT = 3, 20_000


def simulate(dut, body):
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(body)
    simulator.run()


@pytest.mark.parametrize("ready", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_every_signal_leaves_once(ready, seed):
    """Engines get commands whenever there is room and end them at random; the ring takes signals at random."""
    print("seed", seed)
    rng = random.Random(seed)
    dut = NoticeUnit(config=CONFIG, engines=ENGINES)
    sent, got = Counter(), Counter()

    async def body(ctx):
        flight, left, number = [0] * ENGINES, [120] * ENGINES, 0
        ctx.set(dut.context, 77)
        ctx.set(dut.epoch, 5)
        for _ in range(LIMIT):
            accept = ended = 0
            room = ctx.get(dut.room)
            for e in range(ENGINES):
                if flight[e] and rng.random() < 0.5:
                    ended |= 1 << e
                    flight[e] -= 1
                    pair = []
                    for _ in range(2):
                        enable = rng.random() < 0.6
                        pair.append({"enable": enable, "tile": rng.randrange(5), "semaphore": number % 32})
                        if enable:
                            sent[pair[-1]["tile"], number % 32] += 1
                            number += 1
                    ctx.set(dut.far[e], pair)
                if left[e] and room >> e & 1 and rng.random() < 0.8:
                    accept |= 1 << e
                    left[e] -= 1
                    flight[e] += 1
                    assert flight[e] <= FLIGHT_DEPTH
            take = rng.random() < ready
            ctx.set(dut.accept, accept)
            ctx.set(dut.ended, ended)
            ctx.set(dut.notices.ready, take)
            _, _, valid, notice, quiet = await ctx.tick().sample(dut.notices.valid, dut.notices.payload, dut.quiet)
            if valid and take:
                assert (notice.context, notice.epoch) == (77, 5)
                got[notice.tile, notice.semaphore] += 1
            if not any(left) and not any(flight) and not accept and not ended and quiet:
                break
        else:
            raise AssertionError(f"{sum(got.values())} of {sum(sent.values())} signals")
    simulate(dut, body)
    assert got == sent


def test_a_clear_forgets_what_waits():
    dut = NoticeUnit(config=CONFIG, engines=ENGINES)

    async def body(ctx):
        both = [{"enable": 1, "tile": 1, "semaphore": 2}, {"enable": 1, "tile": 3, "semaphore": 4}]
        for e in range(ENGINES):
            ctx.set(dut.far[e], both)
        ctx.set(dut.accept, 0b111)
        await ctx.tick()
        ctx.set(dut.accept, 0)
        ctx.set(dut.ended, 0b111)
        await ctx.tick()
        ctx.set(dut.ended, 0)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.notices.valid)  # one is shown, and must stay
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        ctx.set(dut.notices.ready, 1)
        await ctx.tick()
        for _ in range(10):
            assert not ctx.get(dut.notices.valid) and ctx.get(dut.quiet) and ctx.get(dut.room) == 0b111
            await ctx.tick()
    simulate(dut, body)
