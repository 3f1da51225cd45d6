"""Every floor of the project, measured through the public API with every result checked."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringloom.numerics.reference import matmul_reference, qlinear_matmul
from ringloom.sim.memory_bench import MemoryBench
from ringloom.sim.progress import ProgressLine

from .device import Device, open
from .memory_bench import bounds, measure, memory_config, patterns

__all__ = ["Figure", "run"]

_TILE = {"tiles": 1, "control.kind": "direct"}
_IDEAL = {**_TILE, "memory.kind": "ideal", "ideal.latency": 32, "ideal.bytes_per_cycle": 64}
_HBM = {**_TILE, "memory.kind": "hbm", "memory.timing": "hbm2", "memory.pseudo_channels": 4}
_FIRST_RESULT = """
import sys
import numpy as np
import ringloom
a = np.arange(-32, 32).reshape(8, 8).astype(np.int8)
with ringloom.open(sys.argv[1], sim=sys.argv[2]) as device:
    assert (device.matmul(a, a) == a.astype(int) @ a.astype(int)).all()
"""


@dataclass
class Figure:
    """One measured figure. floor: what it must reach; None is printed only. limit: it must stay below the floor."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    limit: bool = False
    detail: str = ""

    @property
    def passed(self) -> bool:
        if self.floor is None:
            return True
        return self.value <= self.floor if self.limit else self.value >= self.floor

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


def run(*, cold: bool = True, sim: str = "verilated", overrides: dict[str, Any] | None = None,
        tell: Callable[[str], None] = lambda text: None) -> Iterator[Figure]:
    """Measure all floors on the ``inference`` tile; a wrong result raises ``AssertionError``.

    cold: also time first results with an empty cache, which builds simulators anew. tell: told what runs now.
    """
    rng = np.random.default_rng(0)
    with open("inference", sim=sim, overrides={**_IDEAL, **(overrides or {})}) as device:
        tell("GEMM 512x512x512")
        yield from _gemm(device, rng)
        tell("GEMM 64x64x64")
        yield _small(device, rng)
        tell("GEMM 200x300x100")
        yield _product(device, "int8 GEMM 200x300x100, int32 out", _draw(rng, 200, 300), _draw(rng, 300, 100), 80.0)
        for prepared in (True, False):
            tell(f"GEMV, {'prepared' if prepared else 'unprepared'} weights")
            yield _gemv(device, rng, prepared)
    from .bench_parallel import run as parallel
    from .bench_queues import run as queues
    yield from queues(sim=sim, overrides=overrides, tell=tell)
    yield from parallel(sim=sim, overrides=overrides, tell=tell)
    if sim == "verilated":
        yield from _dram(rng, overrides or {}, tell)
        from .bench_ring import run as ring
        yield from ring(tell=tell)
        from .bench_collectives import run as collectives
        yield from collectives(tell=tell)
    if cold:
        for config, engine, seconds, bare in (("tiny", "python", 15.0, False), ("inference", "verilated", 120.0, False),
                                              ("inference", "verilated", 240.0, True)):
            how = "wheels alone" if bare else "a C++ compiler on PATH"
            tell(f"first result of {config} on {engine} with an empty cache, {how}")
            yield _first_result(config, engine, seconds, bare, how)


def _dram(rng: np.random.Generator, overrides: dict[str, Any], tell: Callable[[str], None]) -> Iterator[Figure]:
    """The controller alone on saturating traces, then a tile on it."""
    floors = {("sequential read", "per-bank"): 95.0, ("sequential write", "per-bank"): 95.0,
              ("sequential read", "all-bank"): 89.5, ("sequential write", "all-bank"): 89.5,
              ("alternating", "per-bank"): 80.0, ("copy", "per-bank"): 74.0}
    for refresh in ("per-bank", "all-bank"):
        tell(f"the DRAM controller alone, {refresh} refresh")
        with ProgressLine() as progress:
            tested = MemoryBench(memory_config("hbm2", refresh=refresh), progress)
        bound = bounds(tested.config.timing, refresh)
        floors |= {("random read", refresh): 95 * bound["random"], ("one bank", refresh): 97 * bound["one_bank"]}
        for name, trace in patterns(tested.config, 200_000):
            report, _ = measure(tested, trace, saturate=True)
            assert not report.violations, report.violations[0].message
            kind = {"random read": "random", "one bank": "one_bank"}.get(name, "stream")
            yield Figure(f"hbm2, {refresh} refresh: {name}", 100 * report.bandwidth_fraction, "% of peak",
                         floors.get((name, refresh)), detail=f"bound {bound[kind]:.1%}")
    tell("four pseudo-channels, linear addresses, one requester")
    with ProgressLine() as progress:
        tested = MemoryBench(memory_config("hbm2", 4), progress)
    report, _ = measure(tested, next(patterns(tested.config, 200_000))[1], saturate=True)
    yield Figure("hbm2, four channels, linear reads", 100 * report.bandwidth_fraction, "% of peak", 94.0)
    with open("inference", overrides={**_HBM, **overrides}) as device:
        tell("GEMV and GEMM on hbm2")
        a, b = _draw(rng, 1, 4096), _draw(rng, 4096, 1024)
        job = device.submit("matmul", device.put(a), device.prepare(b))
        _check(job.result(), matmul_reference(a, b))
        assert job.cycles is not None
        peak = device.config.peak_bytes_per_cycle
        yield Figure("GEMV 1x4096x1024 on hbm2, prepared weights", 100 * b.size / job.cycles / peak,
                     f"% of {peak} B/cycle", 90.0, detail=f"{job.cycles:,} cycles")
        for figure, floor in zip(_gemm(device, rng), (97.0, 150_000), strict=True):
            yield dataclasses.replace(figure, name=f"{figure.name}, hbm2", floor=floor)


def _draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype(np.int8)


def _check(got: Any, want: np.ndarray) -> None:
    assert np.array_equal(np.asarray(got), want), "a result differs from the reference"


def _share(device: Device, macs: int, cycles: int) -> float:
    return 100 * macs / cycles / device.config.tile.array.macs_per_cycle


def _gemm(device: Device, rng: np.random.Generator) -> Iterator[Figure]:
    a, b = _draw(rng, 512, 512), _draw(rng, 512, 512)
    job = device.submit("matmul", device.put(a), device.put(b))
    begin = time.perf_counter()
    job.wait()
    seconds = time.perf_counter() - begin
    _check(job.result(), matmul_reference(a, b))
    assert job.cycles is not None
    yield Figure("int8 GEMM 512x512x512", _share(device, job.macs, job.cycles), "% of peak", 98.5,
                 detail=f"{job.cycles:,} cycles")
    yield Figure("simulated cycles a second in it", job.cycles / seconds, "cycles/s", 200_000,
                 detail=f"{seconds:.2f} s, {device.simulator.name}, {os.cpu_count()} cores")


def _product(device: Device, name: str, a: np.ndarray, b: np.ndarray, floor: float) -> Figure:
    job = device.submit("matmul", device.put(a), device.put(b))
    _check(job.result(), matmul_reference(a, b))
    assert job.cycles is not None
    return Figure(name, _share(device, job.macs, job.cycles), "% of peak", floor, detail=f"{job.cycles:,} cycles")


def _small(device: Device, rng: np.random.Generator) -> Figure:
    a, b = _draw(rng, 64, 64), _draw(rng, 64, 64)
    call = {"a_scale": 0.05, "a_zero_point": 3, "b_scale": 0.02, "b_zero_point": 0, "y_scale": 1.5,
            "y_zero_point": np.int8(-4)}
    job = device.submit("qmatmul", device.put(a), device.put(b), **call)
    _check(job.result(), qlinear_matmul(a, b, **call))
    assert job.cycles is not None
    return Figure("int8 GEMM 64x64x64, int8 out", _share(device, job.macs, job.cycles), "% of peak", 72.0,
                  detail=f"{job.cycles:,} cycles")


def _gemv(device: Device, rng: np.random.Generator, prepared: bool) -> Figure:
    a, b = _draw(rng, 1, 1024), _draw(rng, 1024, 1024)
    weights = device.prepare(b) if prepared else device.put(b)
    job = device.submit("matmul", device.put(a), weights)
    _check(job.result(), matmul_reference(a, b))
    assert job.cycles is not None
    share = 100 * b.size / job.cycles / device.config.peak_bytes_per_cycle
    return Figure(f"GEMV 1x1024x1024, {'prepared' if prepared else 'unprepared'} weights", share,
                  f"% of {device.config.peak_bytes_per_cycle} B/cycle", 90.0 if prepared else None,
                  detail=f"{job.cycles:,} cycles")


def _first_result(config: str, engine: str, floor: float, bare: bool, how: str) -> Figure:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "RINGLOOM_CACHE": cache}
        if bare:  # nothing but the environment's own programs
            environment["PATH"] = str(Path(sys.executable).parent)
            environment.pop("CXX", None)
        begin = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", _FIRST_RESULT, config, engine], env=environment,
                              capture_output=True, text=True)
        seconds = time.perf_counter() - begin
    assert done.returncode == 0, f"the first result of {config} on {engine} failed:\n{done.stderr[-2000:]}"
    return Figure(f"first result, {config} on {engine}, {how}", seconds, "s", floor, limit=True,
                  detail=f"{len(done.stderr.splitlines())} progress lines")
