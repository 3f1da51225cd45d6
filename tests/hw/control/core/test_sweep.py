"""The sweep unit against a memory written here: every command, late answers, wrong bits, errors."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.control.core.sweep import PORT, MemorySweep, SweepCommand, SweepStatus
from tests.support.bare import bare

CONFIG = bare("tiny", {"control.kind": "firmware", "memory.bytes": 65536})
WORDS = (1 << 256) - 1
LIMIT = 3000


class Bench:
    def __init__(self, seed, config=CONFIG):
        self.chance = random.Random(seed)
        self.dut = MemorySweep(config=config)
        self.memory = {}
        self.broken = {}   # address: mask of bits that read as 1
        self.errors = set()
        self.log = []      # (is write, address), as asked
        self.most = 0
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-6)
        for bench in (self._memory, self._data):
            self.simulator.add_testbench(bench, background=True)
        self.owed = []     # writes whose data is still to come

    def run(self, body):
        self.simulator.add_testbench(body)
        self.simulator.run()

    async def _memory(self, ctx):
        """Requests in order at each address; answers in any order."""
        port, waiting, ready = self.dut.memory, [], False
        async for _, _, valid, payload in ctx.tick().sample(port.requests.valid, port.requests.payload):
            if valid and ready:
                self.log.append((bool(payload.write), payload.address))
                entry = {"tag": payload.tag, "write": payload.write, "context": 0, "epoch": 0, "data": 0,
                         "error": payload.address in self.errors}
                if payload.write:
                    self.owed.append((payload.address, entry))
                waiting.append((payload.address, entry))
            ready = self.chance.random() < .8
            ctx.set(port.requests.ready, ready)
            ctx.set(port.responses.valid, 0)
            reads = [tag for _, entry in waiting if not entry["write"] for tag in [entry["tag"]]]
            assert len(set(reads)) == len(reads), "a tag is in use twice"
            self.most = max(self.most, len(reads))
            able = [i for i, (address, entry) in enumerate(waiting)
                    if address not in [a for a, _ in waiting[:i]] and not any(e is entry for _, e in self.owed)]
            if able and self.chance.random() < .7:
                address, entry = waiting.pop(self.chance.choice(able))
                if entry["write"]:
                    self.memory[address], entry["data"] = entry["data"], 0
                else:
                    entry["data"] = self.memory.get(address, 0) | self.broken.get(address, 0)
                ctx.set(port.responses.valid, 1)
                ctx.set(port.responses.payload, entry)

    async def _data(self, ctx):
        port, ready = self.dut.memory.write_data, False
        async for _, _, valid, payload in ctx.tick().sample(port.valid, port.payload):
            if valid and ready:
                _, entry = self.owed.pop(0)
                assert payload.strobe == (1 << 32) - 1
                entry["data"] = payload.data
            ready = bool(self.owed) and self.chance.random() < .7
            ctx.set(port.ready, ready)

    async def put(self, ctx, name, value, offset=0):
        await self._access(ctx, name, offset, value)

    async def get(self, ctx, name, offset=0):
        return await self._access(ctx, name, offset, None)

    async def _access(self, ctx, name, offset, value):
        request, response = self.dut.port.requests, self.dut.port.responses
        ctx.set(request.payload, {"address": 0x50000000 + PORT[name] + offset, "write": value is not None,
                                  "data": (value or 0) & 0xFFFFFFFF, "strobe": 15})
        ctx.set(request.valid, 1)
        await ctx.tick()
        ctx.set(request.valid, 0)
        assert ctx.get(response.valid)
        answer = ctx.get(response.payload.data)
        await ctx.tick()
        return answer

    async def sweep(self, ctx, address, step, count, command):
        """Returns whether all was well."""
        for name, value in (("address_low", address), ("address_high", 0), ("step", step), ("count", count),
                            ("command", command)):
            await self.put(ctx, name, value)
        for _ in range(LIMIT):
            status = await self.get(ctx, "status")
            if not status & SweepStatus.BUSY:
                return not status & SweepStatus.BAD
        raise AssertionError(f"busy after {LIMIT} looks; last accesses {self.log[-5:]}")


def words(value):
    return sum(value << 32 * i for i in range(8))


@pytest.mark.parametrize("seed", range(3))
def test_march_elements_go_up_and_down_and_read_before_they_write(seed):
    print("seed", seed)
    bench, pattern = Bench(seed), 0x5A3C_0FF1

    async def body(ctx):
        await bench.put(ctx, "fill", pattern)
        assert await bench.sweep(ctx, 0x400, 32, 150, SweepCommand.WRITE)
        places = [0x400 + 32 * i for i in range(150)]
        assert bench.log == [(True, at) for at in places]
        assert bench.memory == {at: words(pattern) for at in places}
        bench.log.clear()
        down = SweepCommand.CHECK | SweepCommand.WRITE | SweepCommand.COMPLEMENT
        assert await bench.sweep(ctx, places[-1], -32, 150, down)
        assert bench.log == [(kind, at) for at in reversed(places) for kind in (False, True)]
        assert bench.memory == {at: words(pattern) ^ WORDS for at in places}
        assert not await bench.sweep(ctx, places[0], 32, 150, SweepCommand.CHECK)  # it is the complement
        await bench.put(ctx, "fill", pattern ^ 0xFFFFFFFF)
        assert await bench.sweep(ctx, places[0], 32, 150, SweepCommand.CHECK | SweepCommand.WRITE | SweepCommand.ZERO)
        assert set(bench.memory.values()) == {0} and 4 < bench.most <= 64

    bench.run(body)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_wrong_beat_is_kept_with_what_was_found(seed):
    print("seed", seed)
    bench = Bench(seed)
    bad, bit = 32 * bench.chance.randrange(100), bench.chance.randrange(256)

    async def body(ctx):
        await bench.put(ctx, "fill", 0)
        await bench.sweep(ctx, 0, 32, 100, SweepCommand.WRITE)
        bench.broken[bad] = 1 << bit
        assert not await bench.sweep(ctx, 0, 32, 100, SweepCommand.CHECK)
        assert await bench.get(ctx, "bad_low") == bad and await bench.get(ctx, "bad_high") == 0
        found = [await bench.get(ctx, "word", 4 * i) for i in range(8)]
        assert sum(word << 32 * i for i, word in enumerate(found)) == 1 << bit
        assert await bench.sweep(ctx, 0, 32, 0, SweepCommand.CHECK)  # nothing is wrong with no beats
        bench.broken.clear()
        bench.errors.add(bad)
        await bench.put(ctx, "fill", 0)
        assert not await bench.sweep(ctx, 0, 32, 100, SweepCommand.CHECK)
        assert await bench.get(ctx, "bad_low") == bad
        assert not await bench.sweep(ctx, 0, 32, 100, SweepCommand.WRITE)

    bench.run(body)


def test_walks_numbers_and_captures():
    bench = Bench(9)

    async def body(ctx):
        for i in range(8):
            await bench.put(ctx, "word", 0x1111_0000 * i & 0xFFFFFFFF, 4 * i)
        walk = SweepCommand.WRITE | SweepCommand.WALK | SweepCommand.ADDRESSED
        assert await bench.sweep(ctx, 0x100, 64, 5, walk)
        places = [0x100, 0x140, 0x180, 0x200, 0x300]
        assert list(bench.memory) == places
        for at in places:
            assert bench.memory[at] == sum((0x1111_0000 * i & 0xFFFFFFFF ^ at // 32) << 32 * i for i in range(8))
        assert await bench.sweep(ctx, 0x100, 64, 5, walk ^ SweepCommand.WRITE | SweepCommand.CHECK)
        assert await bench.sweep(ctx, 0x180, 0, 1, SweepCommand.CAPTURE)
        assert [await bench.get(ctx, "word", 4 * i) for i in range(8)] == [
            bench.memory[0x180] >> 32 * i & 0xFFFFFFFF for i in range(8)]

    bench.run(body)


@pytest.mark.parametrize("seed", range(2))
def test_every_port_of_every_tile_has_each_beat_of_the_command(seed):
    """Three tiles of four ports: lines that choose a port are changed, and never carry into a tile's."""
    config = bare("tiny", {"tiles": 3, "memory.bytes": 65536, "memory.interleave_bytes": 512,
                           "ideal.bytes_per_cycle": 128})
    bench, flags = Bench(seed, config), SweepCommand.PORTS | SweepCommand.TILES

    async def body(ctx):
        await bench.put(ctx, "fill", 0)
        numbers = SweepCommand.WALK | SweepCommand.ADDRESSED
        beats = [0x100, 0x140, 0x180, 0x200, 0x300]
        places = [at ^ 512 * port ^ 65536 * tile for at in beats for port in range(4) for tile in range(3)]
        assert await bench.sweep(ctx, 0x100, 64, 5, SweepCommand.WRITE | numbers | flags)
        assert bench.log == [(True, at) for at in places]
        assert bench.memory == {at: words(at // 32) for at in places}
        assert await bench.sweep(ctx, 0x100, 64, 5, SweepCommand.CHECK | numbers | flags)
        bad = bench.chance.choice(sorted(set(places)))
        bench.broken[bad] = 1 << 200
        assert not await bench.sweep(ctx, 0x100, 64, 5, SweepCommand.CHECK | numbers | flags)
        assert await bench.get(ctx, "bad_low") == bad
        for flag, others in ((SweepCommand.PORTS, [0x100 ^ 512 * port for port in range(4)]),
                             (SweepCommand.TILES, [0x100 + 65536 * tile for tile in range(3)])):
            bench.log.clear()
            assert await bench.sweep(ctx, 0x100, -32, 2, SweepCommand.WRITE | SweepCommand.ZERO | flag)
            assert bench.log == [(True, at) for at in (*others, *(at - 32 for at in others))]

    bench.run(body)


def test_answers_are_counted_for_who_waits():
    bench = Bench(5)

    async def body(ctx):
        for _ in range(3):
            before = await bench.get(ctx, "status") >> 8
            await bench.sweep(ctx, 0, 32, 60, SweepCommand.WRITE | SweepCommand.CAPTURE)
            assert (await bench.get(ctx, "status") >> 8) - before & 0xFF == 120
        assert await bench.get(ctx, "status") >> 16 == 0

    bench.run(body)
