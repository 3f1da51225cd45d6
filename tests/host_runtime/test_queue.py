"""Jobs that meet: shared outputs, failed operands, full memory, missing completion records, resets."""

import gc

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw.isa import COMPLETION, LOAD, RECORD_BYTES, Code
from ringloom.hw.regmap import control_register
from ringloom.sim import SimulationTimeout
from ringloom.sim.functional import FunctionalSimulator
from tests.support.bare import bare
from tests.support.tiles import tiles

A, B = np.ones((3, 4), np.int8), np.ones((4, 5), np.int8)
Q = {"a_scale": 1.0, "a_zero_point": 0, "b_scale": 1.0, "b_zero_point": 0, "y_scale": 1.0, "y_zero_point": np.int8(0)}
WRONG = 77


class Faulty(FunctionalSimulator):
    """Jobs to come go wrong as ``faults`` says, one entry a job.

    fault: a wrong opcode. hang: wait for nobody. mute: its record goes nowhere. misplaced: a record of another job.
    """

    faults: list = []
    silent = False  # the bus does not answer until a reset

    def write(self, address, value):
        if address != control_register("doorbell"):
            super().write(address, value)
            return
        fault = self.faults.pop(0) if self.faults else None
        tile = self._tiles[0]
        at = tile.registers["job_high"] << 32 | tile.registers["job_low"]
        if fault == "fault":
            self._memory[at + RECORD_BYTES + 1] = 0x63
        elif fault == "hang":
            raw = self._memory[at + RECORD_BYTES:at + 2 * RECORD_BYTES].tobytes()
            waits = LOAD.encode(**(LOAD.decode(raw) | {"wait0_enable": 1, "wait0_semaphore": 3, "wait0_count": 2}))
            self._memory[at + RECORD_BYTES:at + 2 * RECORD_BYTES] = np.frombuffer(waits, np.uint8)
        super().write(address, value)
        if fault == "mute":
            end = tile.job["completion_address"]
            self._memory[end:end + RECORD_BYTES] = 0
            tile.registers["status"] = 2 << 8 | Code.MEMORY_ERROR << 16
        elif fault == "misplaced":
            end = tile.job["completion_address"]
            record = COMPLETION.decode(self._memory[end:end + RECORD_BYTES].tobytes())
            raw = COMPLETION.encode(**(record | {"job": record["job"] + 9}))
            self._memory[end:end + RECORD_BYTES] = np.frombuffer(raw, np.uint8)

    def read(self, address):
        if self.silent:
            raise SimulationTimeout("no answer on channel R")
        return super().read(address)

    def reset(self):
        super().reset()
        self.silent = False


@pytest.fixture
def device():
    config = bare("tiny", {"memory.bytes": 65536})
    with rl.Device(config, Faulty(config)) as dev:
        dev.simulator.faults = []
        yield dev


def test_out_is_no_operand(device):
    """A later part of the result would be made of an earlier one: how the work is cut must not show."""
    x, y = device.put(np.ones((8, 8), np.int8)), device.put(np.ones((8, 8), np.int8))
    for call, name in [
        (lambda: device.qmatmul(x, y, out=x, **Q), "a"),
        (lambda: device.qmatmul(x, y, out=y, **Q), "b"),
        (lambda: device.submit("qmatmul", y, y, out=y, **Q), "a"),
    ]:
        with pytest.raises(rl.UnsupportedError, match=f"out: is the memory of {name},"):
            call()
    weights = device.prepare(np.ones((1, 8, 4), np.int8))
    assert weights.array.shape == (1, 1, 8, 4)
    with pytest.raises(rl.UnsupportedError, match="out: is the memory of b"):
        device.qmatmul(np.ones((1, 1, 8, 8), np.int8), weights, out=weights.array,
                       **{k: v for k, v in Q.items() if k != "b_zero_point"})
    assert not len(device._jobs) and (np.asarray(x) == 1).all() and (np.asarray(y) == 1).all()
    # a host view of out is copied when the job is submitted: nothing is shared
    assert (np.asarray(device.qmatmul(np.asarray(x), y, out=x, **Q)) == 8).all()


def test_one_output_of_two_jobs(device):
    """Looking at an array waits for the last of the jobs that write it."""
    out = device.empty((3, 5), np.int32)
    first = device.submit("matmul", A, B, out=out)
    second = device.submit("matmul", 2 * A, B, out=out)
    first.wait()
    assert not second.done
    assert (np.asarray(out) == 8).all() and second.done


@pytest.mark.parametrize("fault,kind,text", [
    ("fault", rl.DeviceFault, "BAD_OPCODE"), ("hang", rl.TimeoutError, "did not end"),
    ("mute", rl.DeviceFault, "completion record"),
])
def test_output_of_a_failed_job(device, fault, kind, text):
    device.simulator.faults = [fault]
    out, result = device.empty((3, 4), np.int8), device.empty((3, 5), np.int32)
    square = np.ones((4, 4), np.int8)
    failed = device.submit("qmatmul", A, square, out=out, **Q)
    dependent = device.submit("matmul", out, B, out=result)
    unrelated = device.submit("matmul", A, B)
    if fault == "hang":
        with pytest.raises(rl.TimeoutError):
            failed.wait(timeout_cycles=100)
    jobs = device.jobs
    with pytest.raises(kind, match=rf"job {failed.number} \(qmatmul\), which was to write this array.*{text}"):
        dependent.result()
    for look in (lambda: np.asarray(out), lambda: device.put(out), lambda: out @ B, lambda: np.from_dlpack(out)):
        with pytest.raises(kind, match=f"job {failed.number} "):
            look()
    with pytest.raises(kind, match=f"job {dependent.number}.*job {failed.number}"):
        np.asarray(result)
    assert (unrelated.result() == 4).all() and device.jobs == jobs + 1
    again = device.submit("qmatmul", A, square, out=out, **Q)
    after = device.submit("matmul", out, B, out=result)
    assert (np.asarray(result) == 16).all() and again.done and after.done and (np.asarray(out) == 4).all()


def test_output_of_a_job_between_two_that_write_it(device):
    device.simulator.faults = ["fault"]
    out = device.empty((3, 4), np.int8)
    device.submit("qmatmul", A, np.ones((4, 4), np.int8), out=out, **Q)
    between = device.submit("matmul", out, B)
    device.submit("qmatmul", A, np.ones((4, 4), np.int8), out=out, **Q)
    assert (np.asarray(out) == 4).all()
    with pytest.raises(rl.DeviceFault, match="BAD_OPCODE"):
        between.result()


def test_output_of_a_job_that_a_reset_ended(device):
    out = device.empty((3, 5), np.int32)
    job = device.submit("matmul", A, B, out=out)
    device.reset()
    with pytest.raises(rl.DeviceFault, match=f"job {job.number}.*reset"):
        np.asarray(out)
    assert (np.asarray(device.matmul(A, B, out=out)) == 4).all()


def test_failed_jobs_hold_no_memory(device):
    gc.collect()
    gc.disable()
    try:
        used = device._allocator.used
        for _ in range(4):
            device.simulator.faults = ["fault"]
            job = device.submit("matmul", A, B)
            with pytest.raises(rl.DeviceFault):
                job.wait()
        assert device._allocator.used == used
    finally:
        gc.enable()


@pytest.mark.parametrize("fault,text", [("mute", "fault, MEMORY_ERROR"), ("misplaced", "done, NONE")])
def test_missing_completion_record(device, fault, text):
    device.simulator.faults = [fault]
    with pytest.raises(rl.DeviceFault, match=f"without a completion record.*{text}") as caught:
        device.matmul(A, B)
    assert caught.value.code == text.split()[-1]
    assert (device.matmul(A, B) == 4).all()


def test_memory_full_of_jobs(device):
    """Jobs that wait make room for the next by running, and their results stay right."""
    rng = np.random.default_rng(3)
    b = rng.integers(-128, 128, (30, 30)).astype(np.int8)
    operands = [rng.integers(-128, 128, (60, 30)).astype(np.int8) for _ in range(30)]
    jobs = [device.submit("matmul", a, b) for a in operands]
    assert jobs[0].done and not jobs[-1].done
    assert (device.matmul(A, B) == 4).all()
    for a, job in zip(operands, jobs, strict=True):
        np.testing.assert_array_equal(job.result(), a.astype(int) @ b)


def test_memory_errors_say_what_holds_it(device):
    jobs = [device.submit("matmul", np.ones((60, 30), np.int8), np.ones((30, 30), np.int8)) for _ in range(4)]
    with pytest.raises(rl.OutOfMemoryError, match=r"queued jobs, which hold [1-9]\d{4} bytes"):
        device.empty(50000)
    jobs[-1].wait()
    with pytest.raises(rl.OutOfMemoryError) as caught:
        device.matmul(np.ones((30000, 4), np.int8), B)
    assert "queued" not in str(caught.value)
    held = device.put(np.ones((4, 4), np.int8))
    rest = [device.empty(device._allocator._free[-1][1] - 400)]
    with pytest.raises(rl.OutOfMemoryError, match="the commands of this job"):
        device.matmul(held, held, out=device.empty((4, 4), np.int32))
    del rest
    assert (device.matmul(A, B) == 4).all()


def test_resets_set_everything_up(device):
    """Whoever resets the hardware: interrupts are on again, and jobs run."""
    def silent():
        device.simulator.silent = True
        with pytest.raises(rl.TimeoutError, match="was reset and is usable"):
            device.regs.control.id  # noqa: B018

    def interrupted():
        device.simulator.faults = ["hang"]
        job = device.submit("matmul", A, B)
        run, device.simulator.run = device.simulator.run, lambda limit: (_ for _ in ()).throw(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            job.wait()
        device.simulator.run = run

    for reset in (device.reset, silent, interrupted):
        device.regs.control.irq_enable = 0
        reset()
        assert device.regs.control.irq_enable == 1
        assert (device.matmul(A, B) == 4).all()


def test_profile_across_resets(device):
    with device.profile() as plain:
        device.matmul(A, B)
    with device.profile() as p:
        device.matmul(A, B)
        device.reset()
        device.matmul(A, B)
        device.matmul(A, B)
        device.reset()
    assert p.jobs == 3 and p.counters == {name: 3 * value for name, value in plain.counters.items()}


def test_profile_of_a_device_that_stopped_answering(device):
    with device.profile() as p:
        device.matmul(A, B)
        device.simulator.silent = True
        with pytest.raises(rl.TimeoutError):
            device.regs.control.id  # noqa: B018
    with pytest.raises(rl.UnsupportedError, match="profile again"):
        p.summary()


def test_a_bus_that_stays_silent_is_one_error(device):
    device.simulator.write = lambda address, value: (_ for _ in ()).throw(SimulationTimeout("no answer on channel B"))
    with pytest.raises(rl.TimeoutError, match="during a reset"):
        device._write(control_register("irq_enable"), 1)


def test_faults_count_where_they_happened():
    """A job on one tile that faults or times out is a fault of that tile; a reset begins anew."""
    with tiles(2) as device:
        def faults():
            return [of["faults"] for of in device.telemetry()["tiles"].values()]

        for tile in (1, 0, 1):
            job = device.submit("matmul", A, B, parallel="data", tiles=[tile])
            job.parts[tile]._view[RECORD_BYTES + 1] = 0x63
            with pytest.raises(rl.DeviceFault):
                job.result()
        assert faults() == [1, 2]
        job = device.submit("matmul", A, B, parallel="data", tiles=[0])
        head = LOAD.decode(job.parts[0]._view[RECORD_BYTES:2 * RECORD_BYTES].tobytes())
        hangs = LOAD.encode(**head | {"wait0_enable": 1, "wait0_semaphore": 3, "wait0_count": 2})
        job.parts[0]._view[RECORD_BYTES:2 * RECORD_BYTES] = np.frombuffer(hangs, np.uint8)
        with pytest.raises(rl.TimeoutError):
            job.result(timeout_cycles=2000)
        device.matmul(A, B, parallel="data")
        assert faults() == [2, 2]
        device.reset()
        assert faults() == [0, 0]
