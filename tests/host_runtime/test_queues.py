"""Queues served by the firmware, through the public API: order, priorities, windows, faults, aborts, fuzzing."""

import gc
import os
import random
import time

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw import isa
from ringloom.hw.config import load
from ringloom.hw.counters import COUNTERS

LATENCY = 32
OVERRIDES = {"tiles": 1, "control.kind": "firmware", "memory.kind": "ideal", "ideal.latency": LATENCY,
             "memory.bytes": 1 << 20, "control.watchdog_cycles": 3000}
FIRST_COMMAND = LATENCY + 7
"""Cycles from a job's start to its first command at an engine."""


@pytest.fixture(scope="module")
def shared():
    with rl.open("tiny", sim="verilated", overrides=OVERRIDES) as device:
        yield device


@pytest.fixture
def device(shared):
    shared.reset()
    return shared


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def operands(rng, m=8, k=12, n=8):
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
    return a, b, a.astype(int) @ b.astype(int)


def waits_for_ever():
    """A LOAD whose semaphore nobody signals."""
    return isa.LOAD.encode(version=isa.VERSION, opcode=isa.Opcode.LOAD, wait0_enable=1, wait0_count=1, rows=1, planes=1,
                           row_blocks=1, block_pitch=1, row_pitch=1)


def test_synchronous_calls_go_through_the_default_queue(device, rng):
    a, b, expected = operands(rng, 33, 41, 29)
    assert (device.matmul(a, b) == expected).all()
    assert device.telemetry()["queues"][0] == {"jobs": 1, "faults": 0}


def test_doorbell_to_first_command_and_back_to_back_jobs(device, rng):
    """The floors: 600 cycles on an empty device, 120 between jobs; more jobs than the ring has places."""
    a, b, expected = operands(rng)
    jobs = [device.submit("matmul", a, b) for _ in range(40)]
    before = device.regs.control.cycle_low
    jobs[-1].wait()
    first = jobs[0].start - before + FIRST_COMMAND
    gaps = [later.start - earlier.end + FIRST_COMMAND for earlier, later in zip(jobs, jobs[1:], strict=False)]
    # Where the host has to refill the ring it takes part in the gap: only jobs of one filling count.
    inside = [gap for i, gap in enumerate(gaps) if (i + 1) % 16]
    print(f"\ndoorbell to first command {first} cycles; between jobs {sorted(inside)[len(inside) // 2]}, at most "
          f"{max(inside)}")
    assert first <= 600
    assert max(inside) <= 120
    for job in jobs:
        assert (job.result() == expected).all()


def test_the_python_simulator_takes_the_same_cycles(device, rng):
    a, b, expected = operands(rng)
    with rl.open("tiny", sim="python", overrides=OVERRIDES) as other:
        times = []
        for dev in (device, other):
            if dev is other:
                dev.reset()
            queue = dev.queue(priority=1)
            jobs = [dev.submit("matmul", a, b), queue.submit("matmul", a, b), queue.submit_raw(b"\xff" * 64)]
            for job in jobs[:2]:
                assert (job.result() == expected).all()
            with pytest.raises(rl.DeviceFault):
                jobs[2].result()
            times.append([(job.start, job.end) for job in jobs])
            queue.close()
    assert times[0] == times[1]


def test_the_greater_priority_overtakes(device, rng):
    a, b, expected = operands(rng)
    with device.queue(priority=1) as low, device.queue(priority=200) as high:
        slow = [low.submit("matmul", a, b) for _ in range(6)]
        fast = [high.submit("matmul", a, b) for _ in range(3)]
        for job in slow + fast:
            assert (job.result() == expected).all()
        # Two of the low queue may sit in the tile's slots before the firmware sees the high one.
        assert max(job.end for job in fast) < sorted(job.start for job in slow)[2]


def test_queues_are_opened_closed_and_refused(device):
    queues = [device.queue() for _ in range(3)]
    with pytest.raises(rl.UnsupportedError, match="all 4 queues are open"):
        device.queue()
    queues[1].close()
    queues[1].close()
    with pytest.raises(rl.ClosedError, match="queue is closed"):
        queues[1].submit("matmul", np.ones((1, 1), np.int8), np.ones((1, 1), np.int8))
    again = device.queue(priority=7)
    assert again.index == queues[1].index
    for bad, words in (({"priority": 256}, "priority = 256"), ({"tiles": [1]}, r"tiles = \[1\]"),
                       ({"tiles": []}, "tiles"), ({"memory": 64}, "memory = 64"), ({"prioritty": 1}, "priority")):
        with pytest.raises(rl.UnsupportedError, match=words):
            device.queue(**bad)
    with pytest.raises(rl.UnsupportedError, match="descriptor: 3 bytes"):
        again.submit_raw(b"", descriptor=b"abc")
    for queue in (queues[0], queues[2], again):
        queue.close()


def test_direct_control_has_no_queues():
    with rl.open("tiny", sim="functional", overrides={"control.kind": "firmware"}) as dev:
        with pytest.raises(rl.UnsupportedError, match="control.kind is direct"):
            dev.queue()
        assert dev.telemetry()["queues"] == {}


def test_a_job_waits_for_the_one_that_writes_its_operand(device, rng):
    """In another queue too; and where that fails, nobody's bytes are taken for a result."""
    a, b, _ = operands(rng)
    x = device.put(a)
    middle = device.empty((8, 8), np.int32)
    with device.queue(priority=9) as queue:
        first = device.submit("qmatmul", x, b, a_scale=1.0, a_zero_point=np.int8(0), b_scale=1.0,
                              b_zero_point=np.int8(0), y_scale=64.0, y_zero_point=np.int8(0))
        narrow = first._outputs[0]
        second = queue.submit("matmul", narrow, np.eye(8, dtype=np.int8), out=middle)
        second.wait()
        assert first.done and first.end < second.start
        assert (np.asarray(middle) == np.asarray(narrow)).all()
    with device.queue(memory=1 << 16) as small:
        broken = small.submit("matmul", a, b, out=middle)  # outside that queue's memory
        after = device.submit("matmul", x, device.prepare(b))
        with pytest.raises(rl.DeviceFault, match="MEMORY_WINDOW"):
            broken.result()
        with pytest.raises(rl.DeviceFault, match="was to write this array, failed"):
            np.asarray(middle)
        after.wait()


# -- protection ----------------------------------------------------------------------------------------------


def test_a_job_cannot_leave_its_queues_memory(device, rng):
    a, b, expected = operands(rng)
    outside = device.put(a)
    target = device.empty(expected.shape, np.int32)
    np.asarray(target)[:] = 7
    with device.queue(memory=1 << 16) as queue:
        assert (queue.submit("matmul", a, b).result() == expected).all()
        assert (np.asarray(queue.submit("matmul", queue.put(a), queue.put(b)).result()) == expected).all()
        reads = queue.submit("matmul", outside, b)
        writes = queue.submit("matmul", a, b, out=target)
        fine = queue.submit("matmul", a, b)
        with pytest.raises(rl.DeviceFault, match="MEMORY_WINDOW at command 0") as caught:
            reads.result()
        assert caught.value.code == "MEMORY_WINDOW" and caught.value.address == outside.address
        with pytest.raises(rl.DeviceFault, match="MEMORY_WINDOW") as caught:
            writes.result()
        assert caught.value.address == target.address
        assert (fine.result() == expected).all()
        assert device.telemetry()["queues"][queue.index] == {"jobs": 5, "faults": 2}
    assert (target._view == 7).all()


def test_a_faulting_queue_leaves_the_others_alone(device, rng):
    """The working queue's results are exact, and its jobs take the same cycles within 1 %."""
    a, b, expected = operands(rng, 24, 32, 24)
    with device.queue(priority=1) as good, device.queue(priority=1, memory=1 << 16) as bad:
        alone = [good.submit("matmul", a, b) for _ in range(10)]
        alone[-1].wait()
        faulty, beside = [], []
        for _ in range(10):
            faulty += [bad.submit_raw(b"\xff" * 64), bad.submit_raw(b"", descriptor=bytes(64))]
            beside.append(good.submit("matmul", a, b))
        for job in beside:
            assert (job.result() == expected).all()
        for job in faulty:
            with pytest.raises(rl.DeviceFault):
                job.result()
        before, after = (sum(job.cycles for job in jobs) for jobs in (alone, beside))
        print(f"\n10 jobs: {before} cycles alone, {after} beside a queue that faults")
        assert abs(after - before) <= 0.01 * before


def test_arrays_outlive_their_queue(device, rng):
    """What lies in a queue's memory keeps that memory taken after the queue is gone."""
    a, b, expected = operands(rng)
    gc.collect()
    used = device._allocator.used
    queue = device.queue(memory=1 << 16)
    result = queue.submit("matmul", queue.put(a), b).result()
    queue.close()
    del queue
    gc.collect()
    others = [device.put(np.full(1 << 14, 9, np.int8)) for _ in range(8)]
    assert (np.asarray(result) == expected).all()
    del result, others
    gc.collect()
    assert device._allocator.used == used


# -- time-outs, aborts, resets ----------------------------------------------------------------------------------


def test_a_job_that_hangs_is_aborted_and_the_rest_runs(device, rng):
    a, b, expected = operands(rng)
    with device.queue(priority=3) as queue:
        hangs, behind, other = queue.submit_raw(waits_for_ever()), queue.submit("matmul", a, b), device.submit(
            "matmul", a, b)
        with pytest.raises(rl.TimeoutError, match="LOAD waits at command 0 for semaphore 0") as caught:
            hangs.result(timeout_cycles=1000)
        assert "LOAD waits" in caught.value.waiting[0]
        assert (behind.result() == expected).all() and (other.result() == expected).all()


def test_the_watchdog_ends_what_makes_no_progress(device, rng):
    a, b, expected = operands(rng)
    with device.queue() as queue:
        hangs, behind = queue.submit_raw(waits_for_ever()), queue.submit("matmul", a, b)
        with pytest.raises(rl.TimeoutError, match="WATCHDOG"):
            hangs.result()
        assert (behind.result() == expected).all()
        assert hangs.cycles < 3200


def test_abort_ends_a_queues_jobs_and_no_others(device, rng):
    a, b, expected = operands(rng)
    with device.queue(priority=1) as queue:
        running, waiting = queue.submit_raw(waits_for_ever()), queue.submit("matmul", a, b)
        queue._push()
        device.simulator.run(300)  # the first is in the tile before the other queue has a job
        other = device.submit("matmul", a, b)
        with pytest.raises(rl.TimeoutError):
            other.wait(timeout_cycles=500)  # the tile is taken: this one's queue is aborted, and not the culprit
        assert not running.done
        queue.abort()
        for job in (running, waiting):
            with pytest.raises(rl.DeviceFault, match="ABORT|aborted"):
                job.result()
        assert (queue.submit("matmul", a, b).result() == expected).all()
        assert (device.submit("matmul", a, b).result() == expected).all()


def test_a_closed_queues_memory_can_be_taken_again(device):
    """Errors that were raised hold their frames, and these the queue: nobody has to wait until Python cleans up."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(40):  # 1 MiB of memory in all
            with device.queue(memory=1 << 16) as queue:
                job = queue.submit_raw(b"\xff" * 64)
                with pytest.raises(rl.DeviceFault):
                    job.result()
    finally:
        gc.enable()


def test_reset_ends_all_jobs_and_the_next_are_exact(device, rng):
    a, b, expected = operands(rng)
    weights = device.prepare(b)
    queue = device.queue(priority=2)
    jobs = [queue.submit("matmul", a, b), device.submit("matmul", a, b), queue.submit_raw(waits_for_ever())]
    with pytest.raises(rl.TimeoutError):
        jobs[1].wait(timeout_cycles=20) and device.submit("matmul", a, b).wait(timeout_cycles=20)
    device.reset()
    for job in jobs[1:]:
        with pytest.raises(rl.Error):
            job.result()
    assert (queue.submit("matmul", a, b).result() == expected).all()
    assert (device.matmul(a, weights) == expected).all()
    first, second = (device.submit("matmul", a, b).wait().cycles for _ in range(2))
    assert first == second
    queue.close()


# -- fuzzing -------------------------------------------------------------------------------------------------------


def mutated(chance, stream):
    """A stream with some bits turned, a record repeated or left out, or nothing but noise."""
    records = [bytearray(stream[i:i + 64]) for i in range(0, len(stream), 64)]
    kind = chance.randrange(10)
    if kind == 0:
        return chance.randbytes(64 * chance.randrange(1, 5))
    if kind == 1:
        records.insert(chance.randrange(len(records)), bytearray(chance.choice(records)))
    elif kind == 2:
        del records[chance.randrange(len(records))]
    else:
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            record = chance.choice(records)
            record[chance.randrange(64)] ^= 1 << chance.randrange(8)
    return b"".join(records)


def fuzz(device, seed, count):
    """``count`` jobs of broken bytes in a queue with its own memory: the device keeps going, and nothing outside
    changes. Every 50 jobs a good one is checked."""
    print(f"\nseed {seed}", flush=True)
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    a, b, expected = operands(rng, 9, 11, 7)
    outcomes = {}
    with device.queue(priority=1, memory=1 << 16) as queue:
        model = device._submit(queue, "matmul", (a, b), {})
        stream = bytes(model.program._view[64:-64])
        model.wait()
        low, high = queue.window
        memory = device.simulator.memory(0)
        ring = queue._ring
        cuts = sorted([(low, high), (ring.address, ring.address + ring.nbytes)])
        others = [memory[:cuts[0][0]], memory[cuts[0][1]:cuts[1][0]], memory[cuts[1][1]:]]
        before = [part.copy() for part in others]
        for index in range(count):
            descriptor = None
            if chance.random() < 0.3:
                fields = {"version": 1, "opcode": 1, "job": index, "commands": chance.randrange(6),
                          "completion_address": chance.choice((queue._completions.address, chance.getrandbits(64))),
                          "address": chance.choice((low + 64 * chance.randrange(64), chance.getrandbits(64))),
                          "watchdog_cycles": chance.choice((0, 100, chance.getrandbits(32)))}
                raw = bytearray(isa.DESCRIPTOR.encode(**fields))
                for _ in range(chance.randrange(3)):
                    raw[chance.randrange(64)] ^= 1 << chance.randrange(8)
                descriptor = bytes(raw)
            job = queue.submit_raw(mutated(chance, stream), descriptor=descriptor)
            try:
                job.result(timeout_cycles=20_000)
                name = "DONE"
            except rl.DeviceFault as error:
                name = error.code or "no record"
            except rl.TimeoutError as error:
                name = "time-out" if "aborted" in str(error) else "WATCHDOG"
            outcomes[name] = outcomes.get(name, 0) + 1
            if index % 10 == 9:
                same = all(np.array_equal(part, old) for part, old in zip(others, before, strict=True))
                assert same, f"job {index}, or one of the nine before it, wrote outside its queue's window"
            if index % 50 == 49:
                job = device.submit("matmul", a, b)  # its buffers lie outside the window
                assert (job.result() == expected).all(), f"after job {index}"
                before = [part.copy() for part in others]
    print(outcomes)
    assert sum(outcomes.values()) == count and len(outcomes) > 5


def test_a_thousand_broken_jobs(device):
    fuzz(device, 1, 1000)


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_a_hundred_thousand_broken_jobs(device):
    seed = int.from_bytes(os.urandom(4), "little")
    start = time.monotonic()
    end = start + 60 * float(os.environ.get("FUZZ_MINUTES", "30"))
    for part in range(1, 101):
        fuzz(device, seed + part, 1000)
        seconds = time.monotonic() - start
        print(f"{1000 * part} broken jobs, {1000 * part / seconds:.0f} a second", flush=True)
        if time.monotonic() > end:
            break


def test_every_preset_takes_firmware():
    for preset in ("tiny", "edge", "inference", "training"):
        assert load(preset, {"control.kind": "firmware"}).control.kind == "firmware"
    assert len(COUNTERS) == len({counter.name for counter in COUNTERS})
