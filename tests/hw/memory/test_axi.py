"""The AXI4 window with masters of the bench's own: every burst kind, sizes, strobes, errors, many IDs, both at once."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.axi import AxiWindow
from tests.support.bare import bare
from tests.support.control import PortMemory

SIZE = 65536
CONFIG = bare("tiny", {"memory.bytes": SIZE})
OKAY, SLVERR, DECERR = 0, 2, 3
FIXED, INCR, WRAP = range(3)


def addresses(start, beats, size, kind):
    """Address of each beat, from the formulas of the AXI4 specification."""
    width = 1 << size
    aligned = start // width * width
    low = start // (width * beats) * (width * beats)
    for n in range(beats):
        if kind == FIXED or n == 0:
            yield start
        elif kind == INCR:
            yield aligned + n * width
        else:
            yield low + (aligned + n * width - low) % (width * beats)


def lanes(address, size):
    """Byte lanes of a transfer."""
    width = 1 << size
    return range(address % 32, (address // width + 1) * width - address // 32 * 32)


class Bench:
    def __init__(self, *, stall=0.0, seed=0, **memory):
        self.chance, self.stall = random.Random(seed), stall
        self.dut = AxiWindow(config=CONFIG)
        self.memory = PortMemory(bytearray(SIZE), stall=stall, seed=seed, **memory)
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-6)

        async def answer(ctx):
            await self.memory.bench(ctx, self.dut.memory)
        self.simulator.add_testbench(answer, background=True)

    async def pause(self, ctx):
        while self.chance.random() < self.stall:
            await ctx.tick()

    async def send(self, ctx, channel, **values):
        await self.pause(ctx)
        for name, value in values.items():
            ctx.set(getattr(self.dut.axi, channel + name), value)
        ctx.set(getattr(self.dut.axi, f"{channel}valid"), 1)
        await ctx.tick().until(getattr(self.dut.axi, f"{channel}ready"))
        ctx.set(getattr(self.dut.axi, f"{channel}valid"), 0)

    async def receive(self, ctx, channel, *names):
        await self.pause(ctx)
        ctx.set(getattr(self.dut.axi, f"{channel}ready"), 1)
        values = await ctx.tick().sample(*(getattr(self.dut.axi, channel + n) for n in names)).until(
            getattr(self.dut.axi, f"{channel}valid"))
        ctx.set(getattr(self.dut.axi, f"{channel}ready"), 0)
        return values

    def run(self, *bodies):
        for body in bodies:
            self.simulator.add_testbench(body)
        self.simulator.run()


def random_burst(chance, *, low=0, high=SIZE):
    kind = chance.choice((FIXED, INCR, INCR, WRAP))
    size = chance.choice((0, 1, 2, 3, 4, 5, 5, 5))
    beats = chance.choice({FIXED: range(1, 17), INCR: (1, 2, 7, 40), WRAP: (2, 4, 8, 16)}[kind])
    span = beats << size
    start = chance.randrange(low, high - span)
    return start >> size << size if kind == WRAP else start, beats, size, kind


@pytest.mark.parametrize("seed, stall, reorder", [(1, 0.0, False), (2, 0.4, True)])
def test_reads_and_writes_at_once(seed, stall, reorder):
    """Writes go to the lower half while reads see the upper; then everything is read back. Many bursts in flight."""
    print("seed", seed)
    bench = Bench(stall=stall, seed=seed, latency=12, jitter=20 if reorder else 0, reorder=reorder)
    chance = random.Random(seed)
    bench.memory.bytes[:] = expected = bytearray(chance.randbytes(SIZE))
    writes = [random_burst(chance, high=SIZE // 2) for _ in range(25)]
    reads = [random_burst(chance, low=SIZE // 2) for _ in range(25)]

    async def write_addresses(ctx):
        for n, (start, beats, size, kind) in enumerate(writes):
            await bench.send(ctx, "aw", addr=start, len=beats - 1, size=size, burst=kind, id=n % 16)

    async def write_data(ctx):
        for start, beats, size, kind in writes:
            for n, address in enumerate(addresses(start, beats, size, kind)):
                data, strobe = bench.chance.randbytes(32), 0
                for lane in lanes(address, size):
                    if bench.chance.random() < 0.8:
                        strobe |= 1 << lane
                        expected[address // 32 * 32 + lane] = data[lane]
                await bench.send(ctx, "w", data=int.from_bytes(data, "little"), strb=strobe, last=n == beats - 1)

    async def write_responses(ctx):
        for n in range(len(writes)):
            assert (await bench.receive(ctx, "b", "id", "resp")) == (n % 16, OKAY)
        assert bench.memory.bytes == expected

    async def read_addresses(ctx):
        for n, (start, beats, size, kind) in enumerate(reads):
            await bench.send(ctx, "ar", addr=start, len=beats - 1, size=size, burst=kind, id=n * 7 % 16)

    async def read_data(ctx):
        for n, (start, beats, size, kind) in enumerate(reads):
            for k, address in enumerate(addresses(start, beats, size, kind)):
                identity, data, response, last = await bench.receive(ctx, "r", "id", "data", "resp", "last")
                assert (identity, response, last) == (n * 7 % 16, OKAY, k == beats - 1)
                raw = data.to_bytes(32, "little")
                for lane in lanes(address, size):
                    assert raw[lane] == expected[address // 32 * 32 + lane]
    bench.run(write_addresses, write_data, write_responses, read_addresses, read_data)


def test_rate():
    """A burst of 256 beats moves one beat a cycle in each direction behind the latency."""
    bench = Bench(latency=20)

    async def body(ctx):
        ctx.set(bench.dut.axi.rready, 1)
        await bench.send(ctx, "ar", addr=0, len=255, size=5, burst=INCR)
        cycles = beats = 0
        while beats < 256:
            *_, valid = await ctx.tick().sample(bench.dut.axi.rvalid)
            cycles, beats = cycles + 1, beats + valid
        assert cycles <= 256 + 26, cycles
        ctx.set(bench.dut.axi.wvalid, 1)
        ctx.set(bench.dut.axi.wstrb, (1 << 32) - 1)
        ctx.set(bench.dut.axi.bready, 1)
        await bench.send(ctx, "aw", addr=0, len=255, size=5, burst=INCR)
        cycles = 0
        while True:
            *_, valid = await ctx.tick().sample(bench.dut.axi.bvalid)
            cycles += 1
            if valid:
                break
        assert cycles <= 256 + 30, cycles
    bench.run(body)


def test_errors():
    """Each bad burst has its own number of beats and its response; nothing outside memory is asked for."""
    bench = Bench(bad={0x400})
    cases = [  # start, beats, size, burst, response of each beat
        (SIZE - 64, 4, 5, INCR, [OKAY, OKAY, DECERR, DECERR]),
        (SIZE, 2, 5, INCR, [DECERR] * 2), ((1 << 40) - 32, 1, 5, INCR, [DECERR]),
        (0, 3, 6, INCR, [SLVERR] * 3), (0, 5, 5, 3, [SLVERR] * 5), (0, 3, 5, WRAP, [SLVERR] * 3),
        (0x3E0, 3, 5, INCR, [OKAY, SLVERR, OKAY]), (0x800, 2, 5, INCR, [OKAY] * 2),
    ]

    async def body(ctx):
        for n, (start, beats, size, kind, responses) in enumerate(cases):
            await bench.send(ctx, "ar", addr=start, len=beats - 1, size=size, burst=kind, id=n)
            for k, response in enumerate(responses):
                assert await bench.receive(ctx, "r", "id", "resp", "last") == (n, response, k == beats - 1)
            await bench.send(ctx, "aw", addr=start, len=beats - 1, size=size, burst=kind, id=n)
            for k in range(beats):
                await bench.send(ctx, "w", data=k, strb=(1 << 32) - 1, last=k == beats - 1)
            assert await bench.receive(ctx, "b", "id", "resp") == (n, max(responses))
    bench.run(body)
