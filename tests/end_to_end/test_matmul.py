"""Products through the public API, against numpy's int64: one body for every simulator.

The Python simulator runs some hundred cycles a second: it gets small sizes, and beyond one array only the tests that
depend on the array's shape. The verilated one runs the presets that everybody builds anyway, with their firmware.
"""

import numpy as np
import pytest

import ringloom as rl
from ringloom.numerics.reference import qlinear_matmul
from tests.support.bare import BARE

ARRAYS = [(1, 1), (2, 3), (3, 5), (4, 8), (8, 4), (16, 16), (32, 32)]
DEVICES = {
    "functional": ARRAYS,
    "python": [(2, 3)],
    "verilated": ["tiny", "inference"],
}
WIDE = {"python": [array for array in ARRAYS if array not in [(2, 3), (16, 16)]]}


def pairs(*groups):
    return [(simulator, array) for group in groups for simulator, arrays in group.items() for array in arrays]


def name(pair):
    return f"{pair[0]}-{pair[1] if isinstance(pair[1], str) else '{}x{}'.format(*pair[1])}"


@pytest.fixture(scope="module", params=pairs(DEVICES), ids=name)
def device(request):
    simulator, array = request.param
    preset, overrides = array, {}
    if not isinstance(array, str):
        rows, columns = array
        preset = "tiny"
        overrides = {**BARE, "tile.array.rows": rows, "tile.array.columns": columns, "memory.bytes": 1 << 20,
                     "tile.accumulator.bytes": max(4096, 64 * columns),
                     "tile.scratchpad.weight_bytes": max(4096, 2 * rows * columns)}
    with rl.open(preset, sim=simulator, overrides=overrides) as dev:
        yield dev


everywhere = pytest.mark.parametrize("device", pairs(DEVICES, WIDE), ids=name, indirect=True)
"""For tests that depend on the array's shape."""


def on(*simulators):
    """Leave out simulators for which a test is nothing: no cycles (functional), or minutes for it (python)."""
    chosen = [pair for pair in pairs(DEVICES) if pair[0] in simulators]
    return pytest.mark.parametrize("device", chosen, ids=name, indirect=True)


@pytest.fixture
def rng(device):
    return np.random.default_rng(1000 * device.config.tile.array.rows + device.config.tile.array.columns)


def sizes(device, small, large):
    """Sizes that the simulator runs in a few seconds."""
    return small if device.simulator.name == "python" else large


def draw(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def product(a, b, az=0, bz=0):
    return ((a.astype(np.int64) - az) @ (b.astype(np.int64) - bz)).astype(np.int32)


@everywhere
def test_sizes_around_the_array(device, rng):
    """Case 6, with M, N and K unlike each other."""
    rows, columns = device.config.tile.array.rows, device.config.tile.array.columns
    shapes = [(1, 1, 1), (rows, rows, columns), (rows + 1, max(1, rows - 1), columns + 1),
              (2 * rows + 1, rows + 1, max(1, columns - 1)), (max(1, rows - 1), 2 * rows + 1, 2 * columns + 1)]
    if rows > 16 and device.simulator.name == "python":
        shapes = [(3, rows + 1, columns + 1)]
    for m, k, n in shapes:
        a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.int8)
        np.testing.assert_array_equal(device.matmul(a, b), product(a, b), err_msg=f"{m} x {k} x {n}")


@pytest.mark.parametrize("a_type", [np.int8, np.uint8])
@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
def test_types_and_zero_points(device, rng, a_type, b_type):
    m, k, n = sizes(device, (5, 6, 7), (19, 45, 37))
    a, b = draw(rng, (m, k), a_type), draw(rng, (k, n), b_type)
    for az in (np.iinfo(a_type).min, np.iinfo(a_type).max):
        bz = int(draw(rng, (), b_type))
        np.testing.assert_array_equal(device.matmul(a, b, a_zero_point=az, b_zero_point=bz), product(a, b, az, bz))
    rows, columns = draw(rng, m, a_type), draw(rng, n, b_type)
    got = device.matmul(a, b, a_zero_point=rows, b_zero_point=columns)
    np.testing.assert_array_equal(got, product(a, b, rows[:, None].astype(int), columns.astype(int)))


def test_extremes(device):
    """Case 1 and case 5."""
    for k in sizes(device, (15, 16, 17, 33), (15, 16, 17, 31, 32, 33, 255, 256, 4096)):
        a = np.full((2, k), -128, np.int8)
        assert (device.matmul(a, a.T.copy()) == k * 16384).all()
    a, b = np.array([[127, -128]], np.int8), np.array([[1], [0]], np.int8)
    assert device.matmul(a, b, a_zero_point=-128) == 255
    assert device.matmul(np.array([[-128]], np.int8), np.array([[1]], np.int8), a_zero_point=127) == -255


def test_layouts(device, rng):
    m, k, n = sizes(device, (5, 6, 7), (21, 50, 33))
    a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.int8)
    want = product(a, b)
    np.testing.assert_array_equal(device.matmul(a, b.T.copy(), transpose_b=True), want)
    np.testing.assert_array_equal(device.matmul(np.asfortranarray(a), np.asfortranarray(b)), want)
    np.testing.assert_array_equal(device.matmul(a, np.ascontiguousarray(b.T).T.T, transpose_b=True), want)
    wide = draw(rng, (m, 2 * k), np.int8)
    np.testing.assert_array_equal(device.matmul(wide[:, ::2], b), product(wide[:, ::2], b))
    np.testing.assert_array_equal(device.matmul(a, device.prepare(b)), want)


def test_batches(device, rng):
    m, k, n = sizes(device, (3, 4, 5), (9, 20, 13))
    for a_lead, b_lead in (((2,), ()), ((), (2,)), ((2, 1), (1, 2)), ((3,), (1,)), ((2,), (2,))):
        a, b = draw(rng, (*a_lead, m, k), np.uint8), draw(rng, (*b_lead, k, n), np.int8)
        np.testing.assert_array_equal(device.matmul(a, b, a_zero_point=100), product(a, b, 100))


@pytest.mark.parametrize("out", [np.int8, np.uint8])
@pytest.mark.parametrize("rounding", ["f32", "exact_rne", "exact_rne_zp", "half_up", "half_away"])
def test_quantized(device, rng, out, rounding):
    m, k, n = sizes(device, (4, 6, 5), (23, 40, 35))
    a, b = draw(rng, (m, k), np.uint8), draw(rng, (k, n), np.int8)
    call = {"a_scale": 0.02, "a_zero_point": 131, "b_scale": rng.uniform(0.001, 0.1, n).astype(np.float32),
            "b_zero_point": 0, "y_scale": 0.7, "y_zero_point": out(7),
            "bias": rng.integers(-5000, 5000, n).astype(np.int32), "activation": (-20.0, 60.0), "rounding": rounding}
    got = device.qmatmul(a, b, **call)
    assert got.dtype == out
    np.testing.assert_array_equal(got, qlinear_matmul(a, b, **call))


@everywhere
def test_columns_of_their_own(device, rng):
    """Scale, bias and zero point of each column, on every shape of array."""
    columns = device.config.tile.array.columns
    m, k, n = 3, 5, columns + 2
    a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.uint8)
    call = {"a_scale": 0.02, "a_zero_point": -7, "b_scale": rng.uniform(0.001, 0.1, n).astype(np.float32),
            "b_zero_point": draw(rng, n, np.uint8), "y_scale": 0.7, "y_zero_point": np.uint8(100),
            "bias": rng.integers(-500, 500, n).astype(np.int32)}
    np.testing.assert_array_equal(device.qmatmul(a, b, **call), qlinear_matmul(a, b, **call))
    np.testing.assert_array_equal(device.matmul(a, b.T.copy(), transpose_b=True), product(a, b))
    np.testing.assert_array_equal(device.matmul(a, device.prepare(b, zero_point=9)), product(a, b, 0, 9))


def test_int32_bias(device, rng):
    m, k, n = sizes(device, (4, 6, 5), (12, 30, 21))
    a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.int8)
    bias = rng.integers(-(1 << 31), 1 << 31, n).astype(np.int32)
    want = (product(a, b).astype(np.int64) + bias).astype(np.int32)
    np.testing.assert_array_equal(device.matmul(a, b, bias=bias), want)


def test_nothing_else_is_touched(device, rng):
    """Case 6: a canvas around the result, checked to the byte; the operands stay as they were."""
    m, k, n = sizes(device, (5, 6, 7), (33, 21, 17))
    a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.int8)
    canvas = device.put(np.full(4096, 0x5A, np.uint8))
    out = device.empty((m, n), np.int32)
    behind = device.put(np.full(4096, 0x5A, np.uint8))
    x, w = device.put(a), device.put(b)
    job = device.submit("matmul", x, w, out=out)
    assert job.result() is out and job.end - job.start > 0 or device.simulator.name == "functional"
    np.testing.assert_array_equal(np.asarray(out), product(a, b))
    for array, value in ((canvas, 0x5A), (behind, 0x5A), (x, a), (w, b)):
        assert (np.asarray(array) == value).all()


def test_same_job_same_cycles(device, rng):
    m, k, n = sizes(device, (5, 6, 7), (20, 40, 24))
    x, w = device.put(draw(rng, (m, k), np.int8)), device.put(draw(rng, (k, n), np.int8))
    out = device.empty((m, n), np.int32)

    def took():
        device.reset()
        return [device.submit("matmul", x, w, out=out).wait().cycles for _ in range(3)]

    first = took()
    assert took() == first
    if device.config.memory.kind == "ideal":  # a DRAM is in another state for each of them
        assert len(set(first)) == 1


def test_no_k(device):
    bias = np.arange(5, dtype=np.int32)
    got = device.matmul(np.empty((3, 0), np.int8), np.empty((0, 5), np.int8), a_zero_point=4, bias=bias)
    np.testing.assert_array_equal(got, np.tile(bias, (3, 1)))


@on("functional", "verilated")
def test_long_k(device, rng):
    a, b = draw(rng, (3, 8192), np.uint8), draw(rng, (8192, 5), np.int8)
    np.testing.assert_array_equal(device.matmul(a, b, a_zero_point=9), product(a, b, 9))


@on("python", "verilated")
def test_time_out_and_after(device, rng):
    """A job that gets too few cycles is aborted with a word on who waits; the next one is exact."""
    a, b = draw(rng, (30, 40), np.int8), draw(rng, (40, 30), np.int8)
    with pytest.raises(rl.TimeoutError, match="aborted.*LOAD.*MATMUL.*STORE"):
        device.submit("matmul", a, b).wait(timeout_cycles=100)
    np.testing.assert_array_equal(device.matmul(a[:5, :6], b[:6, :7]), product(a[:5, :6], b[:6, :7]))


def test_profile_adds_up(device, rng):
    m, k, n = sizes(device, (5, 6, 7), (24, 64, 30))
    a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.int8)
    with device.profile() as p:
        device.matmul(a, b)
    assert p.macs == m * k * n and p.jobs == 1
    rows, columns = device.config.tile.array.rows, device.config.tile.array.columns
    assert p.counters["tile0.array.active"] == m * -(-k // rows) * -(-n // columns)
    if device.simulator.name != "functional":
        assert sum(p.causes.values()) == pytest.approx(1)
        assert 0 < p.utilization <= 1 and p.bottleneck.endswith("-bound")
