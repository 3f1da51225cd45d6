"""The tensor engine against numpy: every array shape, operand type and loop order, and its cycles."""

import numpy as np
import pytest

from ringloom.hw.config import load
from tests.support.tensor import TensorBench

SHAPES = [(1, 1), (2, 2), (2, 3), (3, 5), (4, 4), (4, 8), (8, 4)]


def config(rows=4, columns=4, **overrides):
    return load("tiny", {"tile.array.rows": rows, "tile.array.columns": columns,
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
