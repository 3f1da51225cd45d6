"""The systolic array's exported Verilog against numpy: random tiles, one behind the other at the highest rate."""

import cocotb
import numpy as np

from tests.support.cocotb_bench import config, edge, note, settings, settled, start, value


def _signed(number: int, bits: int) -> int:
    return number - (number >> bits - 1 << bits)


@cocotb.test()
async def tiles_follow_each_other(dut):
    array = config().tile.array
    rng = np.random.default_rng(settings()["seed"])
    cocotb.log.info("seed %d", settings()["seed"])
    rows, columns, lanes, groups = array.rows, array.columns, array.load_rows, array.load_cycles

    # What enters in each cycle, and what must come out; the first tile is all extremes.
    loads, enters, expected = {}, {}, {}
    first = groups
    for tile in range(settings()["tiles"]):
        shape = (groups * lanes, columns)
        weights = rng.integers(-256, 256, shape) if tile else np.full(shape, -256)
        for group in range(groups):
            loads[first - groups + group] = (group, tile % 2, weights[group * lanes:(group + 1) * lanes])
        count = int(rng.choice([1, 1, 2, 7]))
        for row in range(count):
            activations = rng.integers(-256, 256, rows) if tile else np.full(rows, -256)
            enters[first + row] = (tile % 2, activations)
            for c, total in enumerate(activations.astype(np.int64) @ weights[:rows].astype(np.int64)):
                expected[first + row + rows + c, c] = int(total)
        first = max(first + count, first + groups) + int(rng.choice([0, 0, 3]))

    await start(dut, load=0)
    for cycle in range(max(cycle for cycle, _ in expected) + 1):
        plane, activations = enters.get(cycle, (0, rng.integers(-256, 256, rows)))
        group, load_plane, weights = loads.get(cycle, (None, 0, rng.integers(-256, 256, (lanes, columns))))
        dut.plane.value = plane
        dut.load.value = 0 if group is None else 1 << group
        dut.load_plane.value = load_plane
        for r in range(rows):
            getattr(dut, f"activations_{r}").value = int(activations[r]) & 0x1FF
        for c in range(columns):
            for lane in range(lanes):
                getattr(dut, f"weights_{c}_{lane}").value = int(weights[lane, c]) & 0x1FF
        await settled(dut)
        for c in range(columns):
            if (cycle, c) in expected:
                port = getattr(dut, f"sums_{c}")
                got = _signed(value(port), len(port))
                assert got == expected[cycle, c], f"column {c} in cycle {cycle}"
        await edge(dut)
    note(checked=len(expected))
