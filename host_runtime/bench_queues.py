"""The floors of firmware control: queues, back-to-back jobs, a queue that faults beside one that works."""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from ringloom.hw.isa import RECORD_BYTES

from .bench import Figure
from .device import Device, open
from .errors import DeviceFault

__all__ = ["run"]

_IDEAL = {"tiles": 1, "memory.kind": "ideal", "ideal.latency": 32, "ideal.bytes_per_cycle": 64}
_FIRST_COMMAND = 32 + 7  # cycles from a job's start to its first command at an engine, memory latency included


def run(*, sim: str = "verilated", overrides: dict[str, Any] | None = None,
        tell: Callable[[str], None] = lambda text: None) -> Iterator[Figure]:
    """Measure on the ``inference`` tile; a wrong result raises ``AssertionError``."""
    rng = np.random.default_rng(0)
    base = {**_IDEAL, **(overrides or {})}
    with open("inference", sim=sim, overrides=base | {"control.kind": "firmware"}) as device:
        tell("queues: small jobs")
        yield from _small_jobs(device, rng)
        tell("queues: a faulting neighbour")
        yield _neighbour(device, rng)
        tell("queues: GEMM 512x512x512")
        through = _gemm(device)
    with open("inference", sim=sim, overrides=base | {"control.kind": "direct"}) as device:
        direct = _gemm(device)
    yield Figure("GEMM 512x512x512, firmware against direct", 100 * (through / direct - 1), "% slower", 0.2, True,
                 f"{through} cycles, {direct} direct")


def _draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype(np.int8)


def _small_jobs(device: Device, rng: np.random.Generator) -> Iterator[Figure]:
    a, b = _draw(rng, 16, 16), _draw(rng, 16, 16)
    expected = a.astype(np.int64) @ b
    jobs = [device.submit("matmul", a, b) for _ in range(16)]
    before = device.regs.control.cycle_low
    for job in jobs:
        assert (job.result() == expected).all()
    starts, ends = [job.start or 0 for job in jobs], [job.end or 0 for job in jobs]
    yield Figure("doorbell to first command, empty device", starts[0] - before + _FIRST_COMMAND, "cycles", 600, True)
    gaps = [start - end + _FIRST_COMMAND for start, end in zip(starts[1:], ends, strict=False)]
    yield Figure("one job's last command to the next's first", max(gaps), "cycles", 120, True,
                 f"16x16x16 jobs, median {median(gaps):g}")


def _neighbour(device: Device, rng: np.random.Generator) -> Figure:
    a, b = _draw(rng, 64, 64), _draw(rng, 64, 64)
    expected = a.astype(np.int64) @ b
    with device.queue(priority=1) as good, device.queue(priority=1, memory=1 << 20) as bad:
        alone = [good.submit("matmul", a, b).wait().cycles or 0 for _ in range(8)]
        beside, faulty = [], []
        for _ in range(8):
            faulty.append(bad.submit_raw(bytes(RECORD_BYTES)))
            beside.append(good.submit("matmul", a, b))
        for job in beside:
            assert (job.result() == expected).all()
        for job in faulty:
            try:
                job.wait()
                raise AssertionError("a job of zeros ended well")
            except DeviceFault:
                pass
        cycles = sum(job.cycles or 0 for job in beside)
    return Figure("jobs beside a queue that faults in a loop", 100 * abs(cycles / sum(alone) - 1), "% of their cycles",
                  1, True, f"{cycles} cycles, {sum(alone)} alone")


def _gemm(device: Device) -> int:
    rng = np.random.default_rng(1)
    a, b = _draw(rng, 512, 512), _draw(rng, 512, 512)
    before = device.regs.control.cycle_low
    job = device.submit("matmul", a, b)
    assert (job.result() == a.astype(np.int64) @ b).all()
    return (job.end or 0) - before
