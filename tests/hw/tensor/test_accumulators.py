"""The accumulators against numpy: repeated addresses, both banks, STORE's reads and LOAD's writes beside updates."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from ringloom.hw.tensor.accumulators import Accumulators
from ringloom.hw.tensor.array import sum_bits
from tests.support.bare import bare
from tests.support.tensor import wrap


@pytest.mark.parametrize(("rows", "columns", "spread"), [(1, 1, 2), (4, 4, 1), (2, 3, 3), (4, 4, 100)])
def test_updates_reads_and_writes(rows, columns, spread):
    seed = 10 * rows + columns + spread
    print("seed", seed)
    rng = np.random.default_rng(seed)
    config = bare("tiny", {"tile.array.rows": rows, "tile.array.columns": columns, "tile.accumulator.bytes": 1024})
    words = config.tile.accumulator_words
    half, delay, cycles = words // 2, rows + 1, 600
    dut = Accumulators(config=config, delay=delay)

    # MATMUL's bank changes now and then; LOAD writes the other one once no update of it is on its way.
    bank, switched = 0, 0
    updates, writes = [], []
    for cycle in range(cycles):
        if rng.integers(60) == 0:
            bank, switched = 1 - bank, cycle
        address = bank * half + int(rng.integers(min(spread, half)))
        updates.append((int(rng.integers(4) > 0), int(rng.integers(4) == 0), address))
        far = cycle - switched > delay + columns + 2
        writes.append((far and bool(rng.integers(3) == 0), (1 - bank) * half + int(rng.integers(half))))
    low, high = -(1 << sum_bits(rows) - 1), (1 << sum_bits(rows) - 1) - 1
    sums = rng.choice([low, high, -1, 0, 12345], (cycles, columns))
    loaded = rng.integers(-(1 << 31), 1 << 31, (cycles, columns))
    model = np.zeros((words, columns), dtype=np.int64)
    refused = granted = 0

    async def bench(ctx):
        nonlocal refused, granted
        pending = None
        for cycle in range(cycles):
            if pending is not None:
                np.testing.assert_array_equal([ctx.get(dut.read.data[c]) for c in range(columns)], pending)
            valid, overwrite, address = updates[cycle]
            ctx.set(dut.update.valid, valid)
            ctx.set(dut.update.overwrite, overwrite)
            ctx.set(dut.update.address, address)
            ctx.set(dut.update.last, valid)
            for c in range(columns):
                source = cycle - delay - 1 - c
                ctx.set(dut.sums[c], int(sums[source, c]) if source >= 0 else 0)
            write, write_address = writes[cycle]
            ctx.set(dut.write_enable, write)
            ctx.set(dut.write_address, write_address)
            ctx.set(dut.write_data, sum((int(v) & 0xFFFFFFFF) << 32 * c for c, v in enumerate(loaded[cycle])))
            read, read_address = bool(rng.integers(2)), int(rng.integers(words))
            ctx.set(dut.read.valid, read)
            ctx.set(dut.read.address, read_address)

            reading = {updates[at][2] // half for c in range(columns)
                       if (at := cycle - delay - c) >= 0 and updates[at][0] and not updates[at][1]}
            ready = read_address // half not in reading
            assert not read or ctx.get(dut.read.ready) == ready
            pending = model[read_address].copy() if read and ready else None
            refused, granted = refused + (read and not ready), granted + (read and ready)
            at = cycle - delay - columns
            assert ctx.get(dut.ended) == (at >= 0 and bool(updates[at][0]))

            await ctx.tick()
            for c in range(columns):
                at = cycle - delay - 1 - c
                if at >= 0 and updates[at][0]:
                    _, first, word = updates[at]
                    model[word, c] = wrap((0 if first else model[word, c]) + sums[at, c])
            if write:
                model[write_address] = loaded[cycle]

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert refused > 20 and granted > 20
