"""Work on several tiles on the RTL: collectives, split products, pipelines, training, and what goes wrong."""

import numpy as np
import pytest

import ringloom as rl
from ringloom import training
from ringloom.hw.isa import RECORD_BYTES, RING, Opcode
from ringloom.numerics.reference import qlinear_matmul
from tests.support.bare import bare
from tests.support.simulators import quiet

pytestmark = pytest.mark.xdist_group("device")
# memory that jitters, so that tiles run apart
CONFIG = bare("tiny", {"tiles": 3, "ideal.jitter": 11, "ring.link_stages": 0})


@pytest.fixture(scope="module")
def device():
    with rl.open(CONFIG, progress=quiet) as dev:
        yield dev


def draw(rng, shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def equal(results, wanted):
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(result), want)


@pytest.mark.parametrize("count", [1, 5, 64, 1000, 3001])
def test_collectives(device, count):
    rng = np.random.default_rng(count)
    arrays = [draw(rng, count, np.int32) for _ in range(3)]
    total = np.sum(np.array(arrays, np.int64), axis=0).astype(np.int32)
    placed = [device.put(array, tile=tile) for tile, array in enumerate(arrays)]
    equal(device.reduce_scatter(placed), np.array_split(total, 3))
    equal(device.all_gather(placed), [np.concatenate(arrays)] * 3)
    equal(device.all_reduce(placed, out=placed), [total] * 3)
    equal(device.broadcast(arrays[0], root=1), [arrays[0]] * 3)
    pair = np.sum(np.array(arrays[1:], np.int64), axis=0).astype(np.int32)
    equal(device.all_reduce(arrays[1:], tiles=[1, 2]), [pair] * 2)
    equal(device.reduce_scatter(arrays[:2], tiles=[0, 1]), np.array_split(
        np.sum(np.array(arrays[:2], np.int64), axis=0).astype(np.int32), 2))
    device.barrier()


def test_int8_as_on_the_functional_simulator(device):
    rng = np.random.default_rng(8)
    arrays = [draw(rng, 4000, np.int8) for _ in range(3)]
    with rl.open(CONFIG, sim="functional") as other:
        want = [np.array(result) for result in other.all_reduce(arrays)]
    equal(device.all_reduce(arrays), want)


@pytest.mark.parametrize("mode", ["data", "tensor-n", "tensor-k", "auto"])
def test_products(device, mode):
    rng = np.random.default_rng(1)
    for m, k, n in ((37, 40, 33), (2, 61, 9)):  # ragged, and fewer rows than tiles
        a, b = draw(rng, (m, k), np.uint8), draw(rng, (k, n), np.int8)
        want = (a.astype(np.int64) - 9) @ b.astype(np.int64)
        for left, right in ((a, b), (device.put(a), device.put(b, tile=2)), (device.put(a, tile=1), device.prepare(b))):
            got = device.matmul(left, right, a_zero_point=9, parallel=mode)
            np.testing.assert_array_equal(np.asarray(got), want)
        call = {"a_scale": 0.02, "a_zero_point": 9, "b_scale": 0.02, "b_zero_point": 0, "y_scale": 0.9,
                "y_zero_point": np.int8(3), "bias": rng.integers(-99, 99, n).astype(np.int32)}
        np.testing.assert_array_equal(device.qmatmul(a, b, parallel=mode, **call), qlinear_matmul(a, b, **call))


@pytest.mark.parametrize("micro_batch", [None, 4, 7])
def test_pipeline(device, micro_batch):
    rng = np.random.default_rng(2)
    layers, x = [], draw(rng, (40, 20), np.uint8)
    want = x
    for k, n in ((20, 16), (16, 12), (12, 9), (9, 5)):
        layers.append((draw(rng, (k, n), np.int8), {
            "a_scale": 0.02, "a_zero_point": 1, "b_scale": 0.02, "b_zero_point": 0, "y_scale": 0.05 * k ** 0.5,
            "y_zero_point": np.uint8(5), "activation": "relu", "bias": rng.integers(-99, 99, n).astype(np.int32)}))
        want = qlinear_matmul(want, layers[-1][0], **layers[-1][1])
    np.testing.assert_array_equal(device.pipeline(layers, micro_batch=micro_batch)(x), want)  # two share a tile
    job = device.pipeline(layers[:3], micro_batch=micro_batch).submit(x)
    assert job.result().shape == (40, 9) and job.cycles > 0


def test_a_job_spans_its_group(device):
    a, b = np.ones((48, 32), np.int8), np.ones((32, 24), np.int8)
    one = device.submit("matmul", a, b, tiles=[1]).wait()
    with device.profile() as p:
        job = device.submit("matmul", a, b, parallel="data").wait()
    assert p.cycles == job.cycles < 0.6 * one.cycles
    assert p.tiles == [0, 1, 2] and sum(p.causes.values()) == pytest.approx(1)
    with device.profile() as p:
        device.all_reduce([np.ones(20000, np.int32)] * 3)
    assert p.bottleneck == "communication-bound" or p.bottleneck == "memory-bound"
    assert p.communication["busy"] > 0.8 and p.communication["bytes"] >= 2 * 80000


def test_training_step():
    report = training.run(CONFIG, overrides={}, steps=2, images=40)
    assert report.mismatches == 0 and report.steps[1].loss != report.steps[0].loss


def test_what_goes_wrong(device):
    """A fault of one tile ends the job on all; a time-out says which tile waits for which; the next job is exact."""
    a, b = np.ones((8, 8), np.int8), np.ones((8, 8), np.int8)
    for spoil, kind, text in (("opcode", rl.DeviceFault, "BAD_OPCODE at command 0, tile 1"),
                              ("number", rl.TimeoutError, r"tile 0: RING is running at command \d+, REDUCE_SCATTER")):
        job = device.submit("matmul", a, b, parallel="tensor-k", tiles=[0, 1])
        view = job.parts[1]._view
        if spoil == "opcode":
            view[RECORD_BYTES + 1] = 0x63
        else:  # an older number than the rest of the group has
            at = next(i for i in range(RECORD_BYTES, view.size, RECORD_BYTES) if view[i + 1] == Opcode.RING)
            record = RING.decode(view[at:at + RECORD_BYTES].tobytes())
            raw = RING.encode(**record | {"number": record["number"] - 1})
            view[at:at + RECORD_BYTES] = np.frombuffer(raw, np.uint8)
        with pytest.raises(kind, match=text):
            job.wait(timeout_cycles=5000)
        assert (device.matmul(a, b, parallel="tensor-k") == 8).all()
        equal(device.all_reduce([np.arange(99, dtype=np.int32)] * 3), [3 * np.arange(99)] * 3)
