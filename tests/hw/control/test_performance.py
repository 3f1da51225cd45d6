"""The counters against sums made from the same random events in Python."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.control.performance import PerformanceCounters
from ringloom.hw.counters import CAUSES, COUNTERS
from tests.support.bare import bare


@pytest.mark.parametrize("seed", [5])
def test_counts(seed):
    print("seed", seed)
    chance = random.Random(seed)
    dut = PerformanceCounters(config=bare("inference"))
    sums = dict.fromkeys((c.name for c in COUNTERS), 0)

    def bit(p=0.4):
        return int(chance.random() < p)

    async def body(ctx):
        for cycle in range(600):
            load = {"bytes": chance.randrange(65), "wait": bit(), "reading": bit()}
            matmul = {"active": bit(), "idle_weight": bit(), "filling": bit()}
            store = {"bytes": chance.randrange(65), "wait": bit(), "wait_accumulator": bit(), "writing": bit(0.2)}
            busy, done = chance.randrange(8), chance.randrange(8)
            active, ended, queued, waiting = bit(0.8), bit(0.05), bit(), bit()
            reads, writes = chance.randrange(3), chance.randrange(3)
            for name, value in (("load_events", load), ("matmul_events", matmul), ("store_events", store),
                                ("busy", busy), ("done", done),
                                ("active", active), ("ended", ended), ("matmul_queued", queued | waiting),
                                ("matmul_waiting", waiting), ("reads", reads), ("writes", writes),
                                ("snapshot", cycle == 599)):
                ctx.set(getattr(dut, name), value)
            if cycle < 599:  # what the snapshot's own cycle brings is not in it
                cause = ("array.active" if matmul["active"] else
                         "idle.memory" if load["reading"] or store["writing"] else
                         "idle.fill" if matmul["filling"] or busy & 6 else "idle.command")
                idle = active and not matmul["active"]
                sums["cycles"] += active
                sums[cause] += active
                sums["array.idle_weight"] += idle and matmul["idle_weight"]
                sums["array.idle_semaphore"] += idle and not busy & 2 and waiting
                sums["array.idle_command"] += idle and not busy & 2 and not (queued | waiting)
                for k, engine in enumerate(("load", "matmul", "store")):
                    sums[f"commands.{engine}"] += done >> k & 1
                    if engine != "matmul":
                        events = load if k == 0 else store
                        sums[f"{engine}.busy"] += busy >> k & 1
                        sums[f"{engine}.bytes"] += events["bytes"]
                        sums[f"{engine}.wait"] += events["wait"]
                sums["store.wait_accumulator"] += store["wait_accumulator"]
                sums["memory.reads"] += reads
                sums["memory.writes"] += writes
                sums["jobs"] += ended
            await ctx.tick()
        ctx.set(dut.snapshot, 0)
        await ctx.tick()
        found = {}
        for index, counter in enumerate(COUNTERS):
            ctx.set(dut.index, index)
            found[counter.name] = ctx.get(dut.value)
        assert found == sums
        assert sum(found[name] for name in CAUSES) == found["cycles"]
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()
