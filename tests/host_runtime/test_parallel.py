"""Products split over tiles: numpy's answer in every mode, wherever the operands lie."""

import itertools

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw.isa import RECORD_BYTES, RING, Collective, Opcode
from ringloom.numerics.reference import qlinear_matmul
from tests.support.tiles import streams_of, tiles

MODES = ["data", "tensor-n", "tensor-k", "auto"]
SHAPES = [(1, 1, 1), (2, 9, 5), (7, 40, 33), (16, 16, 16), (30, 5, 3), (3, 70, 2), (5, 3, 1)]


@pytest.fixture(scope="module")
def device():
    with tiles(4, seed=5) as dev:
        yield dev


def draw(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def exact(a, b, az, bz, bias):
    total = (a.astype(np.int64) - np.reshape(az, (-1, 1))) @ (b.astype(np.int64) - bz) + bias
    return total.astype(np.int32)


def commands(job):
    """Opcode and fields of every RING command of the first tile."""
    raw = next(iter(streams_of(job).values()))
    records = [raw[i:i + RECORD_BYTES] for i in range(0, len(raw), RECORD_BYTES)]
    return [RING.decode(record) for record in records if record[1] == Opcode.RING]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_place(device, mode, shape):
    (m, k, n), seed = shape, 11
    rng = np.random.default_rng(seed)
    a, b = draw(rng, (m, k), np.uint8), draw(rng, (k, n), np.int8)
    az, bz, bias = draw(rng, m, np.uint8), draw(rng, n, np.int8), rng.integers(-999, 999, n).astype(np.int32)
    want = exact(a, b, az.astype(np.int64), bz.astype(np.int64), bias)
    lefts = [a, np.asfortranarray(a), device.put(a), device.put(a, tile=3)]
    rights = [b, np.asfortranarray(b), device.put(b, tile=1), device.prepare(b, zero_point=bz, tiles=[0, 2])]
    groups = itertools.cycle([None, [1, 2, 3], [0, 1], [2]])
    for (left, right), group in zip(itertools.product(lefts, rights), groups, strict=False):
        own = {} if isinstance(right, rl.PreparedWeights) else {"b_zero_point": bz}
        got = device.matmul(left, right, a_zero_point=az, bias=bias, parallel=mode, tiles=group, **own)
        np.testing.assert_array_equal(np.asarray(got), want)
        assert isinstance(got, rl.DeviceArray) == isinstance(left, rl.DeviceArray)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounding", ["f32", "exact_rne", "half_away"])
def test_quantized(device, mode, rounding):
    """Bias and rounding come after the sum over all of K, whatever tiles computed it."""
    rng = np.random.default_rng(3)
    for m, k, n in SHAPES[1:5]:
        a, b = draw(rng, (m, k), np.int8), draw(rng, (k, n), np.int8)
        call = {"a_scale": 0.02, "a_zero_point": 5, "b_scale": rng.uniform(0.01, 0.02, n).astype(np.float32),
                "b_zero_point": 0, "y_scale": 0.3, "y_zero_point": np.uint8(9), "activation": (-3.0, 30.0),
                "bias": rng.integers(-999, 999, n).astype(np.int32), "rounding": rounding}
        want = qlinear_matmul(a, b, **call)
        np.testing.assert_array_equal(device.qmatmul(a, b, parallel=mode, **call), want)
        out = device.empty((m, n), np.uint8, tile=2)
        assert device.qmatmul(device.put(a), device.put(b), parallel=mode, out=out, **call) is out
        np.testing.assert_array_equal(np.asarray(out), want)


@pytest.mark.parametrize("mode", MODES)
def test_batches(device, mode):
    rng = np.random.default_rng(4)
    a, b = draw(rng, (3, 2, 5, 6), np.int8), draw(rng, (2, 6, 9), np.int8)
    turned = np.ascontiguousarray(a.swapaxes(-1, -2))
    for place in (lambda x: x, device.put):
        for left, right in ((a, b), (a, b[0]), (a[0, 0], b), (a[0, 0, 0], b), (a, b[0, :, 0]), (a[:, :, :0], b)):
            got = device.matmul(place(left), place(right), parallel=mode)
            np.testing.assert_array_equal(np.asarray(got), left.astype(int) @ right)
        got = device.matmul(place(turned), place(b), transpose_a=True, parallel=mode)
        np.testing.assert_array_equal(np.asarray(got), a.astype(int) @ b)
    np.testing.assert_array_equal(device.matmul(a[..., :0], b[:, :0], parallel=mode), np.zeros((3, 2, 5, 9)))


def test_modes_are_what_they_say(device):
    """Rows, columns and K: what each tile multiplies, and which collective adds up."""
    a, b = np.ones((8, 32), np.int8), np.ones((32, 16), np.int8)
    for mode, kinds in (("data", []), ("tensor-n", []), ("tensor-k", [Collective.REDUCE_SCATTER])):
        job = device.submit("matmul", a, b, parallel=mode)
        assert list(job.parts) == [0, 1, 2, 3]
        assert [c["operation"] for c in commands(job)] == kinds
        assert (job.result() == 32).all() and job.macs == 8 * 32 * 16
    job = device.submit("matmul", a[:3], b, parallel="tensor-k")
    assert [c["operation"] for c in commands(job)] == [Collective.ALL_REDUCE]  # fewer rows than tiles
    assert (job.result() == 32).all()
    assert len(device.submit("matmul", a[:2], b, parallel="data").parts) == 2


def test_shared_operands_are_broadcast():
    """B in one tile's memory goes round once rather than to be read by all, where the planner finds that faster."""
    rng, device = np.random.default_rng(5), tiles(4, **{"tile.array.rows": 16, "tile.array.columns": 16})
    a, b = draw(rng, (4, 128), np.int8), draw(rng, (128, 128), np.int8)
    job = device.submit("matmul", a, device.put(b, tile=2), parallel="data")
    assert [(c["operation"], c["root"]) for c in commands(job)] == [(Collective.BROADCAST, 2)]
    np.testing.assert_array_equal(job.result(), a.astype(int) @ b)
    far = device.submit("matmul", a, device.put(b, tile=3), parallel="data", tiles=[0, 1, 2])
    assert not commands(far)  # the ring of a group is the group's
    np.testing.assert_array_equal(far.result(), a.astype(int) @ b)


def test_auto_weighs_communication(device):
    """One tile where there is little to do, rows or columns where there are many."""
    one = device.submit("matmul", np.ones((1, 4), np.int8), np.ones((4, 4), np.int8), parallel="auto")
    assert len(one.parts) == 1
    many = device.submit("matmul", np.ones((256, 64), np.int8), np.ones((64, 64), np.int8), parallel="auto")
    assert len(many.parts) == 4 and not commands(many)
    deep = device.submit("matmul", np.ones((4, 2048), np.int8), np.ones((2048, 4), np.int8), parallel="auto")
    assert len(deep.parts) == 4 and commands(deep)
    assert (deep.result() == 2048).all()


def test_each(device):
    rng = np.random.default_rng(6)
    xs, w = [draw(rng, (i + 3, 9), np.int8) for i in range(3)], draw(rng, (9, 6), np.int8)
    for b in (w, device.put(w), device.prepare(w, tiles=[0, 2]), [w] * 3):
        for got, x in zip(device.each("matmul", xs, b), xs, strict=True):
            np.testing.assert_array_equal(got, x.astype(int) @ w)
        resident = [device.put(x, tile=i + 1) for i, x in enumerate(xs)]
        results = device.each("matmul", resident, b)
        assert [r.tile for r in results] == [1, 2, 3]
        for got, x in zip(results, xs, strict=True):
            np.testing.assert_array_equal(np.asarray(got), x.astype(int) @ w)
    for call, kind, text in (
        (lambda: device.each("matmul", xs, [w]), rl.ShapeError, "3 a and 1 b"),
        (lambda: device.each("matmul", xs[0], w), rl.UnsupportedError, "list"),
        (lambda: device.each("conv", xs, w), rl.UnsupportedError, "conv"),
        (lambda: device.each("matmul", [device.put(xs[0]), xs[1]], w), rl.UnsupportedError, "some arrays"),
    ):
        with pytest.raises(kind, match=text):
            call()


def test_refusals(device):
    a, b = np.ones((4, 4), np.int8), np.ones((4, 4), np.int8)
    for call, text in (
        (lambda: device.matmul(a, b, parallel="rows"), "parallel = 'rows'.*data, tensor-n, tensor-k, auto"),
        (lambda: device.matmul(a, b, parallel="data", tiles=[0, 2]), "neighbours"),
        (lambda: device.matmul(a, b, tiles=[4]), "tile = 4"),
        (lambda: device.matmul(device.put(a), b, out=device.empty((4, 4), np.int8), parallel="data"), "int8"),
    ):
        with pytest.raises(rl.UnsupportedError, match=text):
            call()
    x = device.put(np.zeros((4, 4), np.int8))
    call = {"a_scale": 1.0, "a_zero_point": 0, "b_scale": 1.0, "b_zero_point": 0, "y_scale": 1.0,
            "y_zero_point": np.int8(0)}
    with pytest.raises(rl.UnsupportedError, match="out: is the memory of a"):
        device.qmatmul(x, b, out=x, parallel="data", **call)


def test_a_group_that_faults_or_hangs(device):
    """One tile's fault ends the job on all of them; a time-out tells which tile waits for which."""
    a, b = np.ones((8, 8), np.int8), np.ones((8, 8), np.int8)
    job = device.submit("matmul", a, b, parallel="tensor-k")
    program = job.parts[1]
    program._view[RECORD_BYTES + 1] = 0x63
    with pytest.raises(rl.DeviceFault, match=r"BAD_OPCODE at command 0, tile 1: address"):
        job.result()
    assert (device.matmul(a, b, parallel="tensor-k") == 8).all()
    job = device.submit("matmul", a, b, parallel="tensor-k")
    last = streams_of(job)[1]
    at = RECORD_BYTES * (len(last) // RECORD_BYTES)
    assert last[-RECORD_BYTES + 1] == Opcode.RING
    job.parts[1]._view[at + 40] += 1  # another number than the rest of the group
    with pytest.raises(rl.TimeoutError, match=r"tile 0: RING is running at command \d+, REDUCE_SCATTER \d+ of tiles "
                                              r"0..1.*tile 1: RING is running"):
        job.wait(timeout_cycles=500)
    assert (device.matmul(a, b, parallel="tensor-k") == 8).all()


def test_one_tile_takes_the_same_calls():
    with tiles(1) as device:
        a, b = np.ones((3, 4), np.int8), np.ones((4, 5), np.int8)
        for mode in MODES:
            assert (device.matmul(a, b, parallel=mode) == 4).all()
