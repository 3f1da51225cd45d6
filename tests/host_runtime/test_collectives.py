"""Collectives on the functional simulator: numpy's answer for any shape and any group, and refusals by name."""

import numpy as np
import pytest

import ringloom as rl
from tests.support.tiles import tiles

SHAPES = [(1,), (5, 7), (64,), (3, 16), (8, 32), (129, 3), ()]
GROUPS = [range(4), range(1, 3), range(2, 4), range(3, 4)]


@pytest.fixture(scope="module", params=[None, 1])
def device(request):
    with tiles(4, seed=request.param) as dev:
        yield dev


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def draw(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def on(device, arrays, group):
    return [device.put(array, tile=tile) for array, tile in zip(arrays, group, strict=True)]


def same(results, wanted, group):
    assert [result.tile for result in results] == list(group)
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(result), want)
        assert result.dtype == want.dtype and result.shape == want.shape


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_wrap(device, rng, group, shape):
    arrays = [draw(rng, shape, np.int32) for _ in group]
    total = np.sum(np.array(arrays, np.int64), axis=0).astype(np.int32).reshape(shape)
    same(device.all_reduce(arrays, tiles=group), [total] * len(group), group)
    resident = on(device, arrays, group)
    same(device.all_reduce(resident), [total] * len(group), group)
    same(resident, arrays, group)
    assert device.all_reduce(resident, out=resident)[0] is resident[0]
    same(resident, [total] * len(group), group)
    if shape:
        wanted = np.array_split(total, len(group))
        same(device.reduce_scatter(arrays, tiles=group), wanted, group)
        same(device.reduce_scatter(on(device, arrays, group)), wanted, group)


@pytest.mark.parametrize("group", GROUPS)
def test_int8_saturates_along_the_ring(device, rng, group):
    """Each addition saturates, from the tile behind the one that ends the piece: another order gives another sum."""
    size, count = len(group), 64
    arrays = [draw(rng, 4 * count, np.int8) for _ in group]
    closed = size == 4

    def fold(order):
        total = arrays[order[0]].astype(np.int64)
        for i in order[1:]:
            total = np.clip(total + arrays[i], -128, 127)
        return total.astype(np.int8)

    pieces = [fold([(p + 1 + i) % size for i in range(size)] if closed else range(size)) for p in range(size)]
    cut = 4 * count // size
    if size in (1, 2, 4):
        wanted = [pieces[p][p * cut:(p + 1) * cut] for p in range(size)]
        same(device.reduce_scatter(arrays, tiles=group), wanted, group)
        if size > 1:
            assert any((piece != pieces[0]).any() for piece in pieces) == closed
    # an all-reduce over the whole ring: blocks of 16 flits of 32 bytes are the pieces' in turn
    arrays = [draw(rng, 5000, np.int8) for _ in group]
    owner = np.arange(5000) // 512 % size
    pieces = [fold([(p + 1 + i) % size for i in range(size)] if closed else range(size)) for p in range(size)]
    total = np.choose(owner, pieces)
    same(device.all_reduce(arrays, tiles=group, saturate=True), [total] * size, group)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.int64])
def test_gather_and_broadcast(device, rng, group, dtype):
    for lengths in ([4] * 4, [1, 2, 3, 4], [5, 0, 1, 16], [16] * 4):
        arrays = [rng.integers(-100, 100, (lengths[i], 3)).astype(dtype) for i in range(len(group))]
        whole = np.concatenate(arrays)
        same(device.all_gather(arrays, tiles=group), [whole] * len(group), group)
        same(device.all_gather(on(device, arrays, group)), [whole] * len(group), group)
    for root in group:
        same(device.broadcast(arrays[0], root=root, tiles=group), [arrays[0]] * len(group), group)
        resident = device.put(arrays[0], tile=root)
        results = device.broadcast(resident, tiles=group)
        assert results[root - group[0]] is resident
        same(results, [arrays[0]] * len(group), group)
    device.barrier(tiles=group)


def test_nothing_around_a_result_changes(device, rng):
    """Flits are longer than arrays: what lies behind a result stays."""
    arrays = [device.put(draw(rng, 3, np.int32), tile=t) for t in range(4)]
    guards = []
    for array in arrays:
        end = array._offset + 64
        guards.append(array._memory[end:end + 64])
        guards[-1][:] = 0xA5
    device.all_reduce(arrays, out=arrays)
    assert all((guard == 0xA5).all() for guard in guards)


def test_jobs(device, rng):
    arrays = [draw(rng, (2, 8), np.int32) for _ in range(4)]
    job = device.submit("all_reduce", arrays)
    behind = device.submit("barrier")
    assert job.status == "queued"
    results = job.result()
    assert job.done and not behind.done and job.cycles is not None
    np.testing.assert_array_equal(np.asarray(results[3]), sum(a.astype(np.int64) for a in arrays).astype(np.int32))
    assert behind.result() is None
    assert [r.shape for r in device.all_reduce([np.zeros((0, 3), np.int32)] * 2)] == [(0, 3)] * 2


def test_numbers_rise_and_wrap(device):
    device._collectives = 0xFFFE
    for _ in range(4):
        device.barrier()
    assert device._collectives == 2


X = np.ones(4, np.int32)
BAD = [
    (lambda d: d.all_reduce([X, X], op="max"), rl.UnsupportedError, "op = 'max'.*sum"),
    (lambda d: d.all_reduce([X.astype(np.float32)] * 2), rl.UnsupportedError, "float32.*int32.*int8"),
    (lambda d: d.all_reduce([np.zeros(1 << 24)] * 2), rl.UnsupportedError, "float64.*int32.*int8"),  # before any copy
    (lambda d: d.all_reduce([X.astype(np.uint8)] * 2), rl.UnsupportedError, "uint8"),
    (lambda d: d.all_reduce([X, X.astype(np.int8)]), rl.UnsupportedError, "array 1 is int8"),
    (lambda d: d.all_reduce([X, X[:2]]), rl.ShapeError, "array 1 has shape"),
    (lambda d: d.all_reduce([X, X], saturate=True), rl.UnsupportedError, "saturate"),
    (lambda d: d.all_reduce([X] * 5), rl.ShapeError, "5 arrays.*4 tiles"),
    (lambda d: d.all_reduce([X] * 2, tiles=[0, 1, 2]), rl.ShapeError, "2 arrays for the 3 tiles"),
    (lambda d: d.all_reduce([X] * 2, tiles=[0, 2]), rl.UnsupportedError, "neighbours"),
    (lambda d: d.all_reduce([X] * 2, tiles=[1, 0]), rl.UnsupportedError, "neighbours"),
    (lambda d: d.all_reduce([X] * 2, tiles=[3, 4]), rl.UnsupportedError, "tile = 4"),
    (lambda d: d.all_reduce([X] * 2, tiles=2), rl.UnsupportedError, "must list tiles"),
    (lambda d: d.all_reduce([]), rl.ShapeError, "empty"),
    (lambda d: d.all_reduce(3), rl.UnsupportedError, "list"),
    (lambda d: d.all_reduce([d.put(X), X]), rl.UnsupportedError, "some arrays"),
    (lambda d: d.all_reduce([d.put(X), d.put(X)]), rl.UnsupportedError, "array 1 lies in the memory of tile 0"),
    (lambda d: d.all_reduce([X, X], out=[d.put(X)]), rl.UnsupportedError, "out"),
    (lambda d: d.all_reduce([X, X], out=[d.put(X), d.put(X)]), rl.UnsupportedError, "out 1 lies"),
    (lambda d: d.all_reduce([X, X], out=[d.put(X), d.put(X[:1], tile=1)]), rl.ShapeError, "out 1 has shape"),
    (lambda d: d.all_reduce([X, X], ou=[]), rl.UnsupportedError, "did you mean 'out'"),
    (lambda d: d.reduce_scatter([X[0], X[0]]), rl.ShapeError, "scalars"),
    (lambda d: d.all_gather([X, X.reshape(2, 2)]), rl.ShapeError, "array 1 has shape"),
    (lambda d: d.broadcast(X, root=3, tiles=[0, 1]), rl.UnsupportedError, "root = 3"),
    (lambda d: d.broadcast(d.put(X), root=1), rl.UnsupportedError, "lies in the memory of tile 0"),
    (lambda d: d.broadcast(np.array(["a"])), rl.UnsupportedError, "numbers"),
    (lambda d: d.barrier(root=1), rl.UnsupportedError, "unknown keyword 'root'"),
    (lambda d: d.submit("barrier", X), rl.UnsupportedError, "takes 0 operands"),
    (lambda d: d.put(X, tile=4), rl.UnsupportedError, "tile = 4"),
    (lambda d: d.empty(3, tile=-1), rl.UnsupportedError, "tile = -1"),
    (lambda d: d.prepare(np.ones((2, 2), np.int8), tiles=[0, 0]), rl.UnsupportedError, "each once"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_refusals(device, number):
    call, kind, text = BAD[number]
    used = [a.used for a in device._allocators]
    with pytest.raises(kind, match=text):
        call(device)
    assert [a.used for a in device._allocators] == used, "memory is lost"


def test_one_tile():
    """A group of one is a copy, also where there is no ring."""
    with tiles(1) as device:
        x = np.arange(7, dtype=np.int32)
        for results in (device.all_reduce([x]), device.reduce_scatter([x]), device.all_gather([x]),
                        device.broadcast(x)):
            same(results, [x], [0])
        device.barrier()
