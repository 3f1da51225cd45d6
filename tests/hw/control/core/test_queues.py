"""The queue unit alone: the prefetcher under random memory, starts, restarts in the middle of a fetch."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from ringloom.hw import isa, regmap
from ringloom.hw.control.core.queues import DEPTH, PORT, QueueUnit
from tests.support.bare import bare

CONFIG = bare("tiny", {"control.kind": "firmware", "control.queues": 3})
RING = {0: 0x1000, 1: 0x2000, 2: 0x3000}
SIZE = 4


class Bench:
    """The unit between a memory of its own, a host and a firmware."""

    def __init__(self, seed):
        self.dut = QueueUnit(config=CONFIG)
        self.chance = random.Random(seed)
        self.memory = {}  # descriptor number of (queue, place in the ring); anything else reads as zeros
        self.bad = set()  # addresses that answer with an error
        self.started, self.reads = [], []
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-6)
        self.simulator.add_testbench(self._memory, background=True)
        self.simulator.add_testbench(self._starts, background=True)

    def run(self, body):
        self.simulator.add_testbench(body)
        self.simulator.run()

    def beat(self, address):
        for queue, ring in RING.items():
            place, offset = divmod(address - ring, 64)
            if 0 <= place < SIZE and (queue, place) in self.memory:
                raw = isa.DESCRIPTOR.encode(address=self.memory[queue, place] * 64)
                return int.from_bytes(raw[offset:offset + 32], "little")
        return 0

    async def _memory(self, ctx):
        """Two tags, answered in any order between them."""
        port, waiting, shown = self.dut.memory, deque(), None
        ready = False
        async for _, _, valid, payload in ctx.tick().sample(port.requests.valid, port.requests.payload):
            if valid and ready:
                assert not payload.write
                self.reads.append(payload.address)
                waiting.append((payload.address, payload.tag, self.chance.randrange(1, 20)))
            ready = self.chance.random() < .7
            ctx.set(port.requests.ready, ready)
            ctx.set(port.responses.valid, 0)
            waiting = deque((a, t, left - 1) for a, t, left in waiting)
            due = [item for item in waiting if item[2] <= 0]
            if due:
                shown = self.chance.choice(due)
                waiting.remove(shown)
                ctx.set(port.responses.valid, 1)
                ctx.set(port.responses.payload, {"data": self.beat(shown[0]), "tag": shown[1], "write": 0,
                                                 "error": shown[0] & ~63 in self.bad, "context": 0, "epoch": 0})

    async def _starts(self, ctx):
        dut = self.dut
        async for _, _, start, job, base, limit in ctx.tick().sample(dut.start, dut.job, dut.window_base,
                                                                     dut.window_limit):
            if start:
                self.started.append((start, job, base, limit))

    async def register(self, ctx, queue, name, value=None):
        bus = self.dut.bus
        address = regmap.queue_register(queue, name) - regmap.QUEUE_BASE
        ctx.set(bus.strobe, 15)
        for part, data in (("write", value), ("read", None)):
            ctx.set(getattr(bus, f"{part}_address"), address)
            if part == "write" and data is not None:
                ctx.set(bus.write_data, data)
                ctx.set(bus.write, 1)
                await ctx.tick()
                ctx.set(bus.write, 0)
                return None
        await ctx.delay(1e-7)
        return ctx.get(bus.read_data)

    async def port(self, ctx, name, value=None, queue=0):
        request, response = self.dut.port.requests, self.dut.port.responses
        ctx.set(request.payload, {"address": 0x40000000 + PORT[name] + 32 * queue, "write": value is not None,
                                  "data": value or 0, "strobe": 15})
        ctx.set(request.valid, 1)
        await ctx.tick()
        ctx.set(request.valid, 0)
        assert ctx.get(response.valid)
        answer = ctx.get(response.payload.data)
        await ctx.tick()
        return answer

    async def open(self, ctx, queue):
        for name, value in (("ring_low", RING[queue]), ("window_base_low", 0x100 * (queue + 1)),
                            ("window_limit_low", 0x10000 * (queue + 1)), ("policy", 1 << 16 | queue),
                            ("ring_size", SIZE), ("command", 1)):
            await self.register(ctx, queue, name, value)


@pytest.mark.parametrize("seed", range(3))
def test_every_descriptor_comes_once_in_order(seed):
    print("seed", seed)
    bench = Bench(seed)
    expected = []

    async def body(ctx):
        for queue in RING:
            await bench.open(ctx, queue)
        written, taken, number = [0] * 3, [0] * 3, 100
        for _ in range(400):
            queue = bench.chance.randrange(3)
            if written[queue] - taken[queue] < SIZE and bench.chance.random() < .5:
                number += 1
                bench.memory[queue, written[queue] % SIZE] = number
                written[queue] += 1
                await bench.register(ctx, queue, "tail", written[queue])
            ready = await bench.port(ctx, "ready")
            if ready >> queue & 1:
                assert ctx.get(bench.dut.attention)
                expected.append((1, bench.memory[queue, taken[queue] % SIZE] * 64, 0x100 * (queue + 1),
                                 0x10000 * (queue + 1)))
                await bench.port(ctx, "start", queue)
                taken[queue] += 1
                assert await bench.register(ctx, queue, "head") == taken[queue]
        await ctx.tick().repeat(3)

    bench.run(body)
    assert bench.started == expected and len(expected) > 40


def test_the_prefetcher_reads_no_further_than_its_memory_and_the_tail():
    bench = Bench(1)

    async def body(ctx):
        await bench.open(ctx, 1)
        await ctx.tick().repeat(100)
        assert bench.reads == []
        await bench.register(ctx, 1, "tail", 4)
        await ctx.tick().repeat(300)
        assert sorted(bench.reads) == [0x2000 + 32 * i for i in range(2 * DEPTH)]
        await bench.port(ctx, "start", 1)
        await ctx.tick().repeat(200)
        assert len(bench.reads) == 2 * (DEPTH + 1)

    bench.run(body)


@pytest.mark.parametrize("delay", range(1, 40, 3))
def test_a_restart_drops_what_is_on_its_way(delay):
    """Whatever cycle it falls into, the ring starts again from its first place."""
    bench = Bench(delay)
    bench.memory |= {(0, place): 10 + place for place in range(SIZE)}

    async def body(ctx):
        await bench.open(ctx, 0)
        await bench.register(ctx, 0, "tail", 3)
        await ctx.tick().repeat(delay)
        await bench.register(ctx, 0, "command", 1)
        assert await bench.register(ctx, 0, "tail") == 0
        bench.memory |= {(0, place): 20 + place for place in range(SIZE)}
        await bench.register(ctx, 0, "tail", 2)
        for _ in range(2):
            while not await bench.port(ctx, "ready") & 1:
                pass
            await bench.port(ctx, "start", 0)
        await ctx.tick().repeat(60)
        assert not await bench.port(ctx, "ready")

    bench.run(body)
    assert [job for _, job, _, _ in bench.started] == [20 * 64, 21 * 64]


def test_a_stopped_queue_and_full_tiles_are_not_ready_and_aborts_wait():
    bench = Bench(2)
    dut = bench.dut
    bench.memory[0, 0] = 5

    async def body(ctx):
        await bench.open(ctx, 0)
        await bench.register(ctx, 0, "tail", 1)
        while not await bench.port(ctx, "ready"):
            pass
        ctx.set(dut.full, 1)
        assert await bench.port(ctx, "ready") == 0 and await bench.port(ctx, "tiles") == 1 << 16
        ctx.set(dut.full, 0)
        await bench.port(ctx, "status", 1 | 0x0502_00, queue=0)
        assert await bench.register(ctx, 0, "status") == 1 | 0x0502_00
        assert await bench.port(ctx, "ready") == 0 and not ctx.get(dut.attention)
        await bench.register(ctx, 0, "command", 2)
        assert ctx.get(dut.attention) and await bench.port(ctx, "aborts") == 1
        await bench.port(ctx, "aborts", 1)
        assert await bench.port(ctx, "aborts") == 0
        await bench.port(ctx, "jobs", 7, queue=0)
        await bench.register(ctx, 0, "command", 1)
        assert await bench.register(ctx, 0, "status") == 0 and await bench.register(ctx, 0, "jobs") == 7
        ctx.set(dut.ended, 1)
        assert await bench.port(ctx, "tiles") == 1 and ctx.get(dut.attention)

    bench.run(body)


def test_a_descriptor_that_cannot_be_read_is_zeros():
    bench = Bench(3)
    bench.memory[2, 0] = 77
    bench.bad.add(RING[2])

    async def body(ctx):
        await bench.open(ctx, 2)
        await bench.register(ctx, 2, "tail", 1)
        while not await bench.port(ctx, "ready"):
            pass
        await bench.port(ctx, "start", 2)
        await ctx.tick().repeat(3)

    bench.run(body)
    assert [job for _, job, _, _ in bench.started] == [0]
