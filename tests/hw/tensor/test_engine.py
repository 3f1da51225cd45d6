"""The tensor engine against numpy: every array shape, operand type and loop order, and its cycles."""

import numpy as np
import pytest

from ringloom.hw.isa import Code, Target
from tests.support.bare import bare
from tests.support.tensor import TensorBench

SHAPES = [(1, 1), (2, 2), (2, 3), (3, 5), (4, 4), (4, 8), (8, 4)]


def config(rows=4, columns=4, **overrides):
    return bare("tiny", {"tile.array.rows": rows, "tile.array.columns": columns,
                         **{key.replace("__", "."): value for key, value in overrides.items()}})


def operand(rng, shape, dtype, kind="random"):
    info = np.iinfo(dtype)
    if kind == "random":
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return np.full(shape, info.min if kind == "low" else info.max, dtype=dtype)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_random_products(rows, columns):
    seed = 1000 * rows + columns
    print("seed", seed)
    bench = TensorBench(config(rows, columns), seed=seed)
    rng = bench.rng

    async def program(ctx):
        half = bench.config.tile.accumulator_words // 2
        sizes = [(1, 1, 1), (1, rows, columns), (2, rows + 1, columns + 1), (rows, max(rows - 1, 1), columns),
                 (2 * rows + 1, 2 * rows + 1, max(columns - 1, 1)), (7, rows, 2 * columns + 1)]
        place, commands = 0, []
        for m, k, n in sizes:
            types = [(np.int8, np.uint8)[i] for i in rng.integers(2, size=2)]
            a, b = operand(rng, (m, k), types[0]), operand(rng, (k, n), types[1])
            zero = [int(rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1)) for t in types]
            table = operand(rng, n, types[1]) if rng.integers(2) else None
            words = m * -(-n // columns)
            if place % half + words > half:
                place = half
            commands.append(await bench.place(ctx, a, b, accumulator=place, a_zero_point=zero[0],
                                              b_zero_point=0 if table is not None else zero[1], zero_points=table))
            place += words
        for command in commands:
            await bench.issue(ctx, command, idle=int(rng.choice([0, 0, 1, 5, 20])))
        await bench.drain(ctx)
        await bench.check(ctx, range(place))

    bench.run(program)


@pytest.mark.parametrize(("a_type", "b_type", "a_zero", "b_zero"), [
    (np.int8, np.int8, 127, 127), (np.int8, np.uint8, 127, 255), (np.uint8, np.int8, 0, -128), (np.int8, np.int8, 0, 0),
])
@pytest.mark.parametrize("depth", [4, 5, 64])
def test_extremes(a_type, b_type, a_zero, b_zero, depth):
    """Operands at one end of their type, zero points at the other."""
    bench = TensorBench(config(), seed=depth)

    async def program(ctx):
        for i, (a_end, b_end) in enumerate([("low", "low"), ("low", "high"), ("high", "low")]):
            command = await bench.place(ctx, operand(bench.rng, (3, depth), a_type, a_end),
                                        operand(bench.rng, (depth, 4), b_type, b_end), accumulator=3 * i,
                                        a_zero_point=a_zero, b_zero_point=b_zero)
            await bench.issue(ctx, command)
        await bench.drain(ctx)
        await bench.check(ctx, range(9))

    bench.run(program)


@pytest.mark.parametrize(("rows", "columns", "m"), [(1, 1, 1), (4, 4, 1), (4, 8, 3), (3, 5, 2)])
@pytest.mark.parametrize("idle", [0, 1, 40])
def test_accumulate_onto_loaded_words(rows, columns, m, idle):
    """LOAD's words plus the same product two and three times, sums beyond 32 bits, with and without idle cycles."""
    bench = TensorBench(config(rows, columns), seed=idle)

    async def program(ctx):
        start = bench.config.tile.accumulator_words // 2
        ends = [[(1 << 31) - 1, -(1 << 31), 7][i % 3] for i in range(m * columns)]
        await bench.write_words(ctx, start, np.array(ends).reshape(m, columns))
        a, b = (operand(bench.rng, shape, np.int8) for shape in ((m, 3 * rows), (3 * rows, columns)))
        command = await bench.place(ctx, a, b, accumulator=start, accumulate=1)
        for _ in range(3):
            await bench.issue(ctx, command, idle=idle)
        await bench.drain(ctx)
        await bench.check(ctx, range(start, start + m))

    bench.run(program)


@pytest.mark.parametrize(("rows", "columns", "m"), [(4, 4, 16), (8, 4, 1), (1, 1, 1), (4, 4, 1), (5, 3, 1)])
def test_full_rate(rows, columns, m):
    """The array never waits longer than its weights take, and ends a fixed time after the last row."""
    bench = TensorBench(config(rows, columns), seed=1)
    array = bench.config.tile.array

    async def program(ctx):
        a, b = operand(bench.rng, (m, 4 * rows), np.int8), operand(bench.rng, (4 * rows, 3 * columns), np.uint8)
        command = await bench.place(ctx, a, b, accumulator=0)
        for _ in range(2):
            await bench.issue(ctx, command)
        await bench.drain(ctx)
        await bench.check(ctx, range(3 * m))

    bench.run(program)
    tile = max(m, array.load_cycles)
    assert len(bench.active) == 2 * 12 * m
    between = 0 if m >= 4 or array.load_cycles >= 4 else 4 - tile  # the rules take four cycles
    assert bench.active[-1] - bench.active[0] + 1 == 24 * tile - (tile - m) + max(between, 0)
    assert bench.active[0] - bench.accepted[0] == max(array.load_cycles, 4) + 1
    assert bench.done[-1] - bench.active[-1] == rows + columns + 1
    if m >= array.load_cycles:
        assert not [cycle for cycle in bench.waiting if cycle > bench.active[0]]


def test_store_reads_beside_matmul():
    """The other bank can be read in every cycle; the bank that is updated only when no column reads it."""
    bench = TensorBench(config(), seed=3)
    half = bench.config.tile.accumulator_words // 2
    port = bench.dut.accumulator
    waits = {0: 0, half: 0}

    async def program(ctx):
        await bench.write_words(ctx, half, bench.rng.integers(-1000, 1000, (8, 4)))
        command = await bench.place(ctx, operand(bench.rng, (40, 8), np.int8), operand(bench.rng, (8, 4), np.int8),
                                    accumulate=1)
        await bench.issue(ctx, command)
        while len(bench.active) < 20:
            await ctx.tick()
        for address in (half, 0, half + 3):
            start = bench.cycle
            await bench.read(ctx, address)
            waits[address - address % half] += bench.cycle - start - 1
            await bench.check(ctx, [half + 1])
        await bench.drain(ctx)
        await bench.check(ctx, [*range(40), *range(half, half + 8)])
        assert ctx.get(port.ready)

    bench.run(program)
    assert waits[half] == 0 and waits[0] > 30


def test_fault_after_a_good_command():
    bench = TensorBench(config(), seed=4)

    async def program(ctx):
        command = await bench.place(ctx, operand(bench.rng, (5, 9), np.int8), operand(bench.rng, (9, 6), np.int8))
        await bench.issue(ctx, command)
        words = bench.config.tile.accumulator_words
        await bench.issue(ctx, {**command.fields, "accumulator": words - 3})
        await ctx.tick().until(bench.dut.port.fault_valid)
        assert ctx.get(bench.dut.port.fault.code) == Code.SCRATCHPAD_RANGE
        assert ctx.get(bench.dut.port.fault.address) == words - 3 + 5 + 4
        assert ctx.get(bench.dut.port.busy) and not ctx.get(bench.dut.port.commands.ready)
        await bench.check(ctx, range(10))

    bench.run(program)
    assert len(bench.done) == 1


def test_parameters():
    """Column records from any record on, ``lanes`` at once, one cycle later."""
    bench = TensorBench(config(), seed=5)
    port = bench.dut.parameters

    async def program(ctx):
        records = [bench.rng.bytes(16) for _ in range(20)]
        await bench.write(ctx, Target.PARAMETER, 3, records)
        for first in range(3, 20):
            ctx.set(port.enable, 1)
            ctx.set(port.address, first)
            await ctx.tick()
            ctx.set(port.enable, 0)
            for i in range(min(bench.config.tile.lanes, 23 - first)):
                raw = ctx.get(port.data[i].as_value()).to_bytes(16, "little")
                assert raw == records[first - 3 + i]

    bench.run(program)


def test_a_large_array_takes_a_ragged_product():
    """The array of ``inference`` through the pure-Python simulator: 17 x 35 x 18 with a table of zero points."""
    bench = TensorBench(bare("inference"), seed=6)

    async def program(ctx):
        a, b = operand(bench.rng, (17, 35), np.int8), operand(bench.rng, (35, 18), np.uint8)
        command = await bench.place(ctx, a, b, a_zero_point=-128, zero_points=operand(bench.rng, 18, np.uint8))
        await bench.issue(ctx, command)
        await bench.drain(ctx)
        await bench.check(ctx, range(34))

    bench.run(program)
