"""Compiled streams, accepted by the checker and run in numpy, against numpy's int64."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringloom.compiler import compile_gemm, make_plan
from ringloom.errors import UnsupportedError
from ringloom.hw.config import load
from tests.support.bare import bare
from tests.support.compiled import ARRAYS, int32_problem, run_functional, small_config


def check(problem, config, seed=None):
    got = run_functional(problem, config, seed=seed).view(np.int32).reshape(problem.want.shape)
    np.testing.assert_array_equal(got, problem.want)


@pytest.mark.parametrize("rows,columns", ARRAYS)
def test_shapes_around_the_array(rows, columns):
    """Case 6: M, N, K each in 1, R-1, R, R+1, 2R+1."""
    rng = np.random.default_rng(rows * 100 + columns)
    config = small_config(rows, columns)

    def sizes(unit):
        return sorted({1, max(1, unit - 1), unit, unit + 1, 2 * unit + 1})

    for i, m in enumerate(sizes(rows)):
        for j, k in enumerate(sizes(rows)):
            for n in (sizes(columns)[(i + j) % len(sizes(columns))],):
                check(int32_problem(rng, m, k, n), config, seed=i)


@pytest.mark.parametrize("k", [15, 16, 17, 31, 32, 33, 255, 256, 4096])
def test_all_minimum(k):
    """Case 1: A and B all -128."""
    problem = int32_problem(np.random.default_rng(0), 5, k, 6, extreme=-128)
    assert (problem.want == k * 16384).all()
    check(problem, small_config(16, 16))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_product(data):
    rows, columns = data.draw(st.sampled_from(ARRAYS))
    config = small_config(rows, columns,
        accumulator_bytes=data.draw(st.sampled_from([max(1024, 16 * columns), 8192])),
        scratchpad_weight_bytes=data.draw(st.sampled_from([1024, 4096])),
        scratchpad_activation_bytes=data.draw(st.sampled_from([1024, 4096])),
        parameters_columns=data.draw(st.sampled_from([32, 128])))
    booleans = {name: data.draw(st.booleans()) for name in (
        "a_signed", "b_signed", "a_columns", "b_columns", "row_zero_points", "column_zero_points")}
    m, n = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    k = data.draw(st.integers(0, 200))
    problem = int32_problem(np.random.default_rng(data.draw(st.integers(0, 999))), m, k, n, **booleans)
    check(problem, config, seed=data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("m,k,n", [(3, 8192, 20), (70, 8192, 9), (1, 5000, 1)])
def test_long_k(m, k, n):
    check(int32_problem(np.random.default_rng(k), m, k, n, a_signed=False), bare("tiny"))


@pytest.mark.parametrize("name", ["inference", "edge", "training", "tiny"])
def test_presets(name):
    check(int32_problem(np.random.default_rng(1), 150, 170, 130), load(name))


def test_same_bytes_twice():
    problem = int32_problem(np.random.default_rng(2), 50, 60, 70)
    config = bare("tiny")
    first, second = (compile_gemm(problem.gemm, config) for _ in range(2))
    assert first.bind({}) == second.bind({})


def test_sums_of_a_full_bank():
    """The plan keeps what it promises: chunks and sums fit their memories, twice where there is room."""
    config = bare("inference")
    plan = make_plan(int32_problem(np.random.default_rng(3), 512, 512, 512).gemm, config)
    tile = config.tile
    assert plan.rows * plan.n_steps <= tile.accumulator_words // 2
    assert plan.a_slots >= 2 and plan.b_slots >= 2
    assert plan.a_slots * plan.rows * plan.k_steps <= tile.activation_blocks
    assert plan.b_slots * plan.n_steps * plan.n_pitch <= tile.weight_blocks


def test_scratchpad_too_small_for_a_weight_tile():
    config = bare("tiny", {"tile.array.rows": 64, "tile.array.columns": 64, "tile.scratchpad.weight_bytes": 2048})
    with pytest.raises(UnsupportedError, match="weight_bytes"):
        make_plan(int32_problem(np.random.default_rng(4), 2, 3, 4).gemm, config)
