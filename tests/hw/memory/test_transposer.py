"""Transposer alone: numpy's transpose for every block size, at one row in and one write out a cycle."""

import random

import numpy as np
import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.transposer import Transposer
from tests.support.bare import bare
from tests.support.memory import bench


def transpose(config, lanes, per_write, pieces, *, stall=0.0, seed=0):
    """Send pieces (rows, positions, address) of random bytes; returns (table, blocks, cycles of rows, of writes)."""
    dut, line = Transposer(config=config, lanes=lanes, per_write=per_write), config.line_bytes
    rng = random.Random(seed)
    tables = [np.frombuffer(rng.randbytes(rows * line), np.uint8).reshape(rows, line) for rows, _, _ in pieces]
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    blocks, written, entered, ends = {}, [], [], []

    async def feed(ctx):
        cycle = 0
        for number, (rows, positions, address) in enumerate(pieces):
            for row in range(rows):
                while rng.random() < stall:
                    await ctx.tick()
                    cycle += 1
                ctx.set(dut.i.payload, {
                    "data": int.from_bytes(tables[number][row].tobytes(), "little"), "target": 1, "address": address,
                    "pitch": 3, "count": 1, "part": 0, "whole": 1, "done": row == rows - 1, "transpose": 1, "lane": row,
                    "lane_end": row == rows - 1, "positions": positions, "pad": 0xEE})
                ctx.set(dut.i.valid, 1)
                ready = False
                while not ready:
                    _, _, ready = await ctx.tick().sample(dut.i.ready)
                    cycle += 1
                entered.append(cycle - 1)
                ctx.set(dut.i.valid, 0)

    async def collect(ctx):
        for cycle in range(3000):
            _, _, valid, o = await ctx.tick().sample(dut.o_valid, dut.o)
            if not valid:
                continue
            written.append(cycle)
            for block in range(o.count):
                blocks[o.address + 3 * block] = o.data >> 8 * lanes * block & (1 << 8 * lanes) - 1
            if o.done:
                ends.append(cycle)
            if len(ends) == len(pieces):
                return
        raise AssertionError(f"{len(ends)} of {len(pieces)} pieces came out")

    bench(simulator, feed, background=True)
    bench(simulator, collect)
    simulator.run()
    wanted = {}
    for table, (rows, positions, address) in zip(tables, pieces, strict=True):
        full = np.full((lanes, line), 0xEE, np.uint8)
        full[:rows] = table
        for position in range(positions):
            wanted[address + 3 * position] = int.from_bytes(full[:, position].tobytes(), "little")
    assert blocks == wanted
    return entered, written


@pytest.mark.parametrize("preset, lanes, per_write", [
    ("tiny", 1, 32), ("tiny", 2, 16), ("tiny", 3, 1), ("tiny", 4, 8), ("tiny", 5, 1), ("tiny", 64, 1),
    ("inference", 16, 4), ("inference", 1, 64), ("inference", 48, 1),
])
def test_blocks(preset, lanes, per_write):
    config = bare(preset, {"memory.bytes": 65536})
    line = config.line_bytes
    shapes = [(lanes, line), (1, line), (max(1, lanes - 1), 1), (lanes, line - 1), (lanes, per_write), (lanes, line)]
    pieces = [(rows, positions, 1000 * number) for number, (rows, positions) in enumerate(shapes)]
    transpose(config, lanes, per_write, pieces, stall=0.3 * (lanes % 2), seed=lanes)


def test_full_rate():
    """16 rows of 64 bytes in 16 cycles, out again in 16: pieces follow one another without a bubble."""
    config = bare("inference", {"memory.bytes": 65536})
    entered, written = transpose(config, 16, 4, [(16, 64, 200 * number) for number in range(6)])
    assert entered == list(range(entered[0], entered[0] + 96))
    assert written == list(range(written[0], written[0] + 96))
    assert written[0] - entered[15] == 2
