"""Packer alone: every offset, length and padding of a row, with lines and chunks held back."""

import random

import pytest
from amaranth.sim import Simulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringloom.hw.isa import LOAD, Target
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.memory.packer import Packer
from tests.support.bare import bare
from tests.support.load import DEFAULTS, expected_blocks
from tests.support.memory import bench

CONTENTS = random.Random(5).randbytes(4096)
CONFIGS = {
    "4x4": bare("tiny", {"memory.bytes": 65536}),
    "3x5": bare("inference", {"memory.bytes": 65536, "tile.array.rows": 3, "tile.array.columns": 5}),
    "64x16": bare("edge", {"memory.bytes": 65536, "tile.array.rows": 64, "tile.array.columns": 16}),
}


def pack(config, commands, *, stall=0.0, seed=0):
    """The blocks that ``commands`` make, and the cycles of their chunks."""
    dut, line = Packer(config=config), config.line_bytes
    rng = random.Random(seed)
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    blocks, cycles, finished = {}, [], []

    async def issue(ctx):
        for command in commands:
            raw = int.from_bytes(LOAD.encode(**(DEFAULTS | command)), "little")
            ctx.set(dut.commands.payload, LOAD.layout.from_bits(raw))
            ctx.set(dut.commands.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.commands.ready)
            ctx.set(dut.commands.valid, 0)

    async def feed(ctx):
        lines = []
        for command in commands:
            c = {name.name: 0 for name in LOAD.fields} | DEFAULTS | command
            for row in range(c["rows"] - c["pad_top"] - c["pad_bottom"]):
                start = c["address"] + row * c["row_stride"]
                if c["row_bytes"]:
                    lines += range(start // line, (start + c["row_bytes"] - 1) // line + 1)
        for number in lines:
            while rng.random() < stall:
                await ctx.tick()
            word = int.from_bytes(CONTENTS[number * line:(number + 1) * line], "little")
            ctx.set(dut.lines.payload, {"data": word, "error": 0, "address": number})
            ctx.set(dut.lines.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.lines.ready)
            ctx.set(dut.lines.valid, 0)

    async def collect(ctx):
        parts = b""
        for cycle in range(4000):
            take = rng.random() >= stall
            ctx.set(dut.chunks.ready, take)
            _, _, valid, chunk = await ctx.tick().sample(dut.chunks.valid, dut.chunks.payload)
            if not (valid and take):
                continue
            cycles.append(cycle)
            size = block_shapes(config)[Target(chunk.target)].bytes
            raw = chunk.data.to_bytes(line, "little")
            if size > line:
                assert chunk.part == len(parts) // line
                parts += raw
                if chunk.whole:
                    blocks[int(chunk.target), chunk.address] = parts[:size]
                    parts = b""
            else:
                for number in range(chunk.count):
                    at = chunk.address + number * chunk.pitch
                    blocks[int(chunk.target), at] = raw[number * size:(number + 1) * size]
            if chunk.done:
                finished.append(cycle)
            if len(finished) == len(commands):
                return
        raise AssertionError(f"{len(finished)} of {len(commands)} commands packed")

    bench(simulator, issue, background=True)
    bench(simulator, feed, background=True)
    bench(simulator, collect)
    simulator.run()
    return blocks, cycles


def expected(config, commands):
    return {(c.get("target", 0), at): raw for c in commands for at, raw in expected_blocks(config, CONTENTS, c).items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_offset(name):
    """Rows of a line + 1 at all offsets in a line, for each target with its own block size."""
    config = CONFIGS[name]
    line = config.line_bytes
    for target, shape in block_shapes(config).items():
        row_blocks = -(-(line + 1) // shape.bytes)
        commands = [{"target": int(target), "address": 640 + offset, "row_bytes": line + 1, "row_blocks": row_blocks,
                     "destination": offset * row_blocks % (shape.blocks // 4), "pad_value": offset}
                    for offset in range(0, line, 5)]
        blocks, _ = pack(config, commands)
        assert blocks == expected(config, commands)


@st.composite
def rows(draw, config):
    target = draw(st.sampled_from(list(Target)))
    shape = block_shapes(config)[target]
    row_blocks = draw(st.integers(1, max(1, 200 // shape.bytes)))
    capacity = row_blocks * shape.bytes
    pad_left = draw(st.integers(0, capacity))
    count = draw(st.integers(1, 4))
    pad_top = draw(st.integers(0, count))
    return {"target": int(target), "rows": count, "row_blocks": row_blocks, "row_pitch": row_blocks,
            "pad_left": pad_left, "row_bytes": draw(st.integers(0, capacity - pad_left)),
            "pad_top": pad_top, "pad_bottom": draw(st.integers(0, count - pad_top)),
            "address": draw(st.integers(1000, 2000)), "row_stride": draw(st.integers(-200, 300)),
            "pad_value": draw(st.integers(0, 255))}


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_of_every_kind(name):
    config = CONFIGS[name]

    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(rows(config), min_size=1, max_size=4), st.sampled_from([0.0, 0.4]))
    def run(commands, stall):
        kept = [c for c in commands if c["rows"] * c["row_blocks"] <= block_shapes(config)[Target(c["target"])].blocks]
        if kept:
            blocks, _ = pack(config, kept, stall=stall)
            assert blocks == expected(config, kept)

    run()


def test_one_chunk_a_cycle():
    """Aligned, short and padded rows leave no cycle out; an unaligned row costs one more."""
    config = CONFIGS["4x4"]
    for address, stride, extra in ((64, 64, 0), (70, 64, 1)):
        command = {"address": address, "rows": 10, "row_bytes": 64, "row_blocks": 16, "row_stride": stride,
                   "row_pitch": 16}
        _, cycles = pack(config, [command, command])
        assert cycles[-1] - cycles[0] + 1 == 40 + 20 * extra - extra
    short = {"address": 64, "rows": 40, "row_bytes": 4, "row_blocks": 1, "row_stride": 36, "row_pitch": 1}
    _, cycles = pack(config, [short | {"row_stride": 32}])
    assert cycles[-1] - cycles[0] == 39
