"""The bare array against numpy: random tiles, the extremes of 9 bits, a new tile every ``load_cycles`` cycles."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from ringloom.hw.config import ArrayConfig
from ringloom.hw.tensor.array import SystolicArray, sum_bits


def test_sum_bits_hold_the_extremes():
    for rows in range(1, 65):
        assert rows * 256 * 256 < 1 << sum_bits(rows) - 1


@pytest.mark.parametrize(("rows", "columns", "per_cycle"), [
    (1, 1, 1), (1, 5, 4), (5, 1, 4), (2, 2, 1), (2, 3, 2), (3, 5, 2), (3, 5, 4), (4, 4, 4), (5, 3, 4), (8, 4, 2),
    (4, 8, 8),
])
def test_tiles_follow_each_other(rows, columns, per_cycle):
    """Tiles at the highest rate, at random distances, each with one row or several."""
    seed = 100 * rows + 10 * columns + per_cycle
    print("seed", seed)
    rng = np.random.default_rng(seed)
    config = ArrayConfig(rows=rows, columns=columns, weight_rows_per_cycle=per_cycle)
    dut = SystolicArray(config=config)
    lanes, groups = config.load_rows, config.load_cycles

    # what enters in each cycle, and what must come out
    loads, enters, expected = {}, {}, {}
    start = previous = groups
    for tile in range(18):
        kind = tile % 6
        shape = (groups * lanes, columns)
        weights = rng.integers(-256, 256, shape) if kind else np.full(shape, -256)
        for g in range(groups):
            loads[start - groups + g] = (g, tile % 2, weights[g * lanes:(g + 1) * lanes])
        count = int(rng.choice([1, 1, 2, 7]))
        for row in range(count):
            activations = rng.integers(-256, 256, rows) if kind else np.full(rows, -256)
            enters[start + row] = (tile % 2, activations)
            sums = activations.astype(np.int64) @ weights[:rows].astype(np.int64)
            for c in range(columns):
                expected[start + row + rows + c, c] = int(sums[c])
        # the next tile may come once this one is in use, and be used when it is whole
        previous, start = start, max(start + count, start + groups) + int(rng.choice([0, 0, 0, 3]))
        assert start - groups >= previous
    end = max(cycle for cycle, _ in expected) + 1

    async def bench(ctx):
        for cycle in range(end):
            for c in range(columns):
                if (cycle, c) in expected:
                    assert ctx.get(dut.sums[c]) == expected[cycle, c], f"column {c} in cycle {cycle}"
            plane, activations = enters.get(cycle, (int(rng.integers(2)), rng.integers(-256, 256, rows)))
            ctx.set(dut.plane, plane)
            for r in range(rows):
                ctx.set(dut.activations[r], int(activations[r]))
            noise = (None, int(rng.integers(2)), rng.integers(-256, 256, (lanes, columns)))
            group, plane, weights = loads.get(cycle, noise)
            ctx.set(dut.load, 0 if group is None else 1 << group)
            ctx.set(dut.load_plane, plane)
            for c in range(columns):
                for lane in range(lanes):
                    ctx.set(dut.weights[c][lane], int(weights[lane, c]))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
