"""The second job slot against a model of one running job."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.control.core.slots import JobSlots
from ringloom.hw.isa import Status


@pytest.mark.parametrize("seed", range(4))
def test_every_accepted_job_runs_once_in_order(seed):
    """Random doorbells and ends, some bad; the manager acknowledges, cancels and resumes."""
    print("seed", seed)
    chance = random.Random(seed)
    dut = JobSlots()
    accepted, started, cancelled, ended = [], [], [], []

    async def body(ctx):
        number, busy, left = 0, False, 0
        fields = ("job", "window_base", "window_limit")
        seen = 0
        for _ in range(3000):
            # the manager: a doorbell only where there is room, as the firmware sees it
            hold_on = ctx.get(dut.held)
            room = not ctx.get(dut.full) and len(accepted) - len(cancelled) - seen < 2
            start = room and not hold_on and chance.random() < .2
            ctx.set(dut.start, start)
            if start:
                number += 1
                for offset, name in enumerate(fields):
                    ctx.set(getattr(dut, name), 10 * number + offset)
                accepted.append(number)
            unseen = ctx.get(dut.ended)
            acknowledge = unseen if chance.random() < .3 else 0
            resume = bool(hold_on and acknowledge == unseen and chance.random() < .5)
            cancel = bool(resume and ctx.get(dut.full) and chance.random() < .5)
            ctx.set(dut.acknowledge, acknowledge)
            ctx.set(dut.resume, resume)
            ctx.set(dut.cancel, cancel)
            seen += acknowledge
            if cancel:
                cancelled.append(accepted[-1])
            # the command processor
            processor = dut.processor
            end = busy and left == 0
            good = chance.random() < .8
            ctx.set(processor.busy, busy)
            ctx.set(processor.ended, end)
            ctx.set(processor.status, Status.DONE if good else Status.FAULT)
            await ctx.delay(1e-7)
            if ctx.get(processor.start):
                assert not busy and not hold_on
                job = ctx.get(processor.job) // 10
                assert [ctx.get(getattr(processor, name)) for name in fields] == [10 * job + k for k in range(3)]
                started.append(job)
            if end:
                ended.append(good)
            starting = ctx.get(processor.start)
            await ctx.tick()
            if end:
                busy = False
            if starting:
                busy, left = True, chance.randrange(1, 12)
            elif busy:
                left = max(0, left - 1)
            if end and not good:
                assert ctx.get(dut.held) and ctx.get(dut.failed)
        assert len(ended) - seen == ctx.get(dut.ended)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()
    assert len(started) > 100 and len(cancelled) > 3
    expected = [job for job in accepted if job not in cancelled]
    assert started == expected[:len(started)] and len(expected) - len(started) <= 1


def test_hold_keeps_the_next_job_out_until_resume():
    dut = JobSlots()

    async def body(ctx):
        ctx.set(dut.hold, 1)
        await ctx.tick()
        ctx.set(dut.hold, 0)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for _ in range(5):
            assert ctx.get(dut.full) and ctx.get(dut.held) and not ctx.get(dut.failed)
            assert not ctx.get(dut.processor.start)
            await ctx.tick()
        ctx.set(dut.resume, 1)
        await ctx.tick()
        ctx.set(dut.resume, 0)
        assert ctx.get(dut.processor.start)
        await ctx.tick()
        assert not ctx.get(dut.full)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()
