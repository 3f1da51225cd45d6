"""Jobs of several tiles through the firmware's queues: exact beside other queues' jobs, and after what goes wrong."""

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw import isa
from ringloom.numerics.reference import qlinear_matmul
from tests.support.bare import bare
from tests.support.simulators import quiet

pytestmark = pytest.mark.xdist_group("device")
TILES = 3
CONFIG = bare("tiny", {"tiles": TILES, "control.kind": "firmware", "ideal.jitter": 11, "memory.bytes": 1 << 20,
                       "control.watchdog_cycles": 4000})
MODES = ["data", "tensor-n", "tensor-k", "auto"]


@pytest.fixture(scope="module")
def shared():
    with rl.open(CONFIG, progress=quiet) as dev:
        yield dev


@pytest.fixture
def device(shared):
    """No job is left, and no queue but the default one."""
    yield shared
    shared.reset()
    for queue in list(shared._jobs._open.values())[1:]:
        queue.close()


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def draw(rng, shape, dtype=np.int8):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def product(rng, m, k, n):
    a, b = draw(rng, (m, k)), draw(rng, (k, n))
    return a, b, a.astype(int) @ b.astype(int)


def vectors(rng, count, tiles=TILES):
    arrays = [draw(rng, count, np.int32) for _ in range(tiles)]
    return arrays, np.sum(arrays, axis=0, dtype=np.int64).astype(np.int32)


def equal(results, wanted):
    assert len(results) == len(wanted)
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(result), want)


def layers_of(rng):
    layers = []
    for k, n in ((20, 16), (16, 9), (9, 5)):
        layers.append((draw(rng, (k, n)), {
            "a_scale": 0.02, "a_zero_point": 1, "b_scale": 0.02, "b_zero_point": 0, "y_scale": 0.05 * k ** 0.5,
            "y_zero_point": np.uint8(5), "activation": "relu", "bias": rng.integers(-99, 99, n).astype(np.int32)}))
    return layers


def in_turn(x, layers):
    for weights, options in layers:
        x = qlinear_matmul(x, weights, **options)
    return x


def long_job(device, queue, rng):
    """A product that takes much longer than the start of a group."""
    a, b, want = product(rng, 150, 100, 30)
    return queue.submit("matmul", a, b), want


# -- what there is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 64, 3001])
def test_collectives(device, rng, count):
    arrays, total = vectors(rng, count)
    placed = [device.put(array, tile=tile) for tile, array in enumerate(arrays)]
    equal(device.reduce_scatter(placed), np.array_split(total, TILES))
    equal(device.all_gather(placed), [np.concatenate(arrays)] * TILES)
    equal(device.broadcast(arrays[0], root=1), [arrays[0]] * TILES)
    equal(device.all_reduce(placed, out=placed), [total] * TILES)
    pair = np.sum(arrays[1:], axis=0, dtype=np.int64).astype(np.int32)
    equal(device.all_reduce(arrays[1:], tiles=[1, 2]), [pair] * 2)
    device.barrier()
    ends = [np.minimum(127, array.astype(int) // 2 ** 25).astype(np.int8) for array in arrays]
    equal(device.all_gather(ends, tiles=range(3)), [np.concatenate(ends)] * TILES)


@pytest.mark.parametrize("mode", MODES)
def test_products(device, rng, mode):
    for m, k, n in ((37, 40, 33), (2, 61, 9)):  # ragged, and fewer rows than tiles
        a, b, want = product(rng, m, k, n)
        for left, right in ((a, b), (device.put(a, tile=1), device.prepare(b, tiles=[0, 2]))):
            equal([device.matmul(left, right, parallel=mode)], [want])
        equal([device.matmul(a, b, parallel=mode, tiles=[1, 2])], [want])
        call = {"a_scale": 0.02, "a_zero_point": 9, "b_scale": 0.02, "b_zero_point": 0, "y_scale": 0.9,
                "y_zero_point": np.int8(3), "bias": rng.integers(-99, 99, n).astype(np.int32)}
        equal([device.qmatmul(a, b, parallel=mode, **call)], [qlinear_matmul(a, b, **call)])


def test_pipeline_and_one_product_a_tile(device, rng):
    layers, x = layers_of(rng), draw(rng, (40, 20), np.uint8)
    equal([device.pipeline(layers)(x), device.pipeline(layers, tiles=[1, 2], micro_batch=7)(x)],
          [in_turn(x, layers)] * 2)
    parts = [product(rng, m, 9, 8) for m in (4, 11, 1)]
    equal(device.each("matmul", [a for a, _, _ in parts], [b for _, b, _ in parts]), [want for *_, want in parts])


# -- beside others ---------------------------------------------------------------------------------------------


def test_groups_among_the_jobs_of_several_queues(device, rng):
    """Any order of submission and of asking; a group reads what a job before it wrote, and the other way round."""
    layers, x = layers_of(rng), draw(rng, (12, 20), np.uint8)
    pipe = device.pipeline(layers)
    with device.queue(priority=9) as high, device.queue(tiles=[1, 2]) as some, device.queue(memory=1 << 15) as own:
        waiting = []
        for turn in range(8):
            for number, queue in enumerate((high, device, some, own)):
                a, b, want = product(rng, 5 + 3 * turn, 17, 6 + number)
                waiting.append((queue.submit("matmul", a, b), want))
            a, b, want = product(rng, 9 + turn, 40, 9)
            waiting.append((device.submit("matmul", a, b, parallel=MODES[turn % 4]), want))
            arrays, total = vectors(rng, 40 * turn + 1)
            waiting.append((device.submit("all_reduce", arrays), [total] * TILES))
            waiting.append((pipe.submit(x), in_turn(x, layers)))
        order = rng.permutation(len(waiting))
        for index in order:
            job, want = waiting[index]
            got = job.result()
            equal(got if isinstance(got, list) else [got], want if isinstance(want, list) else [want])
    call = {"a_scale": 1.0, "a_zero_point": 0, "b_scale": 1.0, "b_zero_point": 0, "y_scale": 64.0,
            "y_zero_point": np.int8(0)}
    a, b, _ = product(rng, 8, 12, 8)
    first = device.submit("qmatmul", device.put(a), b, **call)
    narrow = first._outputs[0]
    second = device.submit("matmul", narrow, b[:8], parallel="data")
    wide = second._outputs[0]
    third = device.submit("all_gather", [wide], tiles=[0])
    hidden = qlinear_matmul(a, b, **call)
    equal(third.result(), [hidden.astype(int) @ b[:8]])
    assert first.end < second.start and second.end < third.start


def test_a_group_waits_for_a_long_job_of_another_queue(device, rng):
    arrays, total = vectors(rng, 100)
    with device.queue(priority=200) as other:
        job, want = long_job(device, other, rng)
        other._push()
        device.simulator.run(500)
        behind = [long_job(device, other, rng) for _ in range(2)]
        equal(device.all_reduce(arrays), [total] * TILES)
        assert job.done and not behind[-1][0].done
        equal([job.result(), *(j.result() for j, _ in behind)], [want, *(w for _, w in behind)])


def test_two_groups_side_by_side_in_the_queue(device, rng):
    (first, _), (second, two) = vectors(rng, 500), vectors(rng, 200)
    jobs = [device.submit("all_reduce", first[:2], tiles=[0, 1]), device.submit("all_reduce", second)]
    equal(jobs[1].result(), [two] * TILES)
    equal(jobs[0].result(), [(first[0].astype(np.int64) + first[1]).astype(np.int32)] * 2)
    assert jobs[0].end <= jobs[1].start


# -- what goes wrong -------------------------------------------------------------------------------------------


def bad_opcode(job, tile):
    job.parts[tile]._view[isa.RECORD_BYTES + 1] = 0x63


def outside(job, tile):
    """The first LOAD of ``tile`` reads behind all memory."""
    edit(job, tile, isa.Opcode.LOAD, isa.LOAD, lambda record: record | {"address": TILES << 20})


def older(job, tile):
    """A collective that the group has passed: ``tile`` drops what comes, and the others wait for it for ever."""
    edit(job, tile, isa.Opcode.RING, isa.RING, lambda record: record | {"number": record["number"] - 1 & 0xFFFF})


def edit(job, tile, opcode, layout, change):
    view = job.parts[tile]._view
    at = next(i for i in range(isa.RECORD_BYTES, view.size, isa.RECORD_BYTES) if view[i + 1] == opcode)
    raw = layout.encode(**change(layout.decode(view[at:at + isa.RECORD_BYTES].tobytes())))
    view[at:at + isa.RECORD_BYTES] = np.frombuffer(raw, np.uint8)


WRONG = [(bad_opcode, rl.DeviceFault, "BAD_OPCODE at command 0, tile {}", None),
         (outside, rl.DeviceFault, r"MEMORY_(WINDOW|ERROR) at command \d+ \(LOAD\), tile {}", None),
         (older, rl.TimeoutError, "WATCHDOG|did not end within", None),
         (older, rl.TimeoutError, r"did not end within 1500 cycles.*tile 0: RING is running at command \d+, REDUCE",
          1500)]


@pytest.mark.parametrize("tile", range(TILES))
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_goes_wrong(device, rng, number, tile):
    """The error names tile and command; jobs of others are exact, and the next job and the next group too."""
    spoil, kind, text, limit = WRONG[number]
    a, b, want = product(rng, 7, 40, 8)
    arrays, total = vectors(rng, 99)
    with device.queue(priority=5) as other:
        for _ in range(2):
            before, beside = device.submit("matmul", a, b), other.submit("matmul", a, b)
            job = device.submit("matmul", a, b, parallel="tensor-k")
            behind, later = device.submit("matmul", a, b), device.submit("all_reduce", arrays)
            spoil(job, tile)
            with pytest.raises(kind, match=text.format(tile)):
                job.result(timeout_cycles=limit)
            equal([before.result(), beside.result(), behind.result()], [want] * 3)
            equal(later.result(), [total] * TILES)
            equal([device.matmul(a, b, parallel="tensor-k")], [want])
            assert job.done and device.telemetry()["uptime_cycles"] > 0


def test_reset_between(device, rng):
    a, b, want = product(rng, 7, 40, 8)
    arrays, total = vectors(rng, 99)
    weights = device.prepare(b, tiles=None)
    with device.queue(priority=5) as other:
        jobs = [other.submit("matmul", a, b), device.submit("matmul", a, b, parallel="tensor-k"),
                device.submit("all_reduce", arrays)]
        with pytest.raises(rl.TimeoutError):
            jobs[1].wait(timeout_cycles=30)
        device.reset()
        with pytest.raises(rl.DeviceFault, match="was reset"):
            jobs[2].result()
        equal([device.matmul(a, weights, parallel="data"), other.submit("matmul", a, b).result()], [want] * 2)
        equal(device.all_reduce(arrays), [total] * TILES)


def test_abort_of_another_queue(device, rng):
    """A group behind a job that hangs in another queue: that one is ended, or aborted, and the group is exact."""
    arrays, total = vectors(rng, 99)
    hangs = isa.LOAD.encode(version=isa.VERSION, opcode=isa.Opcode.LOAD, wait0_enable=1, wait0_count=1, rows=1,
                            planes=1, row_blocks=1, block_pitch=1, row_pitch=1)
    with device.queue(priority=5) as other:
        for way in ("watchdog", "abort"):
            job = other.submit_raw(hangs)
            other._push()
            device.simulator.run(300)
            if way == "abort":
                other.abort()
            equal(device.all_reduce(arrays), [total] * TILES)
            with pytest.raises(rl.Error, match="WATCHDOG" if way == "watchdog" else "aborted"):
                job.result()
