"""The floors of several tiles together: all-reduce, products split over tiles, simulated cycles a second."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ringloom.numerics.reference import matmul_reference

from .bench import Figure
from .device import Device, open

__all__ = ["run"]

_DIRECT = {"control.kind": "direct", "ring.data_bits": 256, "ring.link_stages": 1}
_IDEAL = {"memory.kind": "ideal", "ideal.latency": 32, "ideal.bytes_per_cycle": 64}
_WIDE = _IDEAL | {"ideal.bytes_per_cycle": 128}
_HBM = {"memory.kind": "hbm", "memory.timing": "hbm2", "memory.pseudo_channels": 4}


def run(*, sim: str = "verilated", overrides: dict[str, Any] | None = None,
        tell: Callable[[str], None] = lambda text: None) -> Iterator[Figure]:
    """Measure on the ``inference`` tile, 4 and 8 of them; a wrong result raises ``AssertionError``."""
    rng = np.random.default_rng(0)
    extra = overrides or {}
    for tiles in (4, 8):
        for memory, sizes in ((_WIDE, ((256, 90.0), (64, 80.0))), (_HBM, ((256, 80.0),))):
            name = "hbm2" if memory is _HBM else f"ideal memory, {memory['ideal.bytes_per_cycle']} B/cycle"
            with open("inference", sim=sim, overrides=_DIRECT | memory | {"tiles": tiles} | extra) as device:
                for size, floor in sizes:
                    tell(f"all-reduce of {size} KiB on {tiles} tiles, {name}")
                    yield _all_reduce(device, rng, size << 10, floor, name)
    for tiles, size, floor in ((4, 1024, 3.8), (8, 512, 6.5)):
        with open("inference", sim=sim, overrides=_DIRECT | _IDEAL | {"tiles": tiles} | extra) as device:
            tell(f"GEMM {size}x{size}x{size} on {tiles} tiles")
            yield from _speed_up(device, rng, size, floor, "ideal memory")
    with open("inference", sim=sim, overrides=_DIRECT | _HBM | {"tiles": 4} | extra) as device:
        tell("GEMM 512x512x512 on 4 tiles, hbm2")
        yield from _speed_up(device, rng, 512, None, "hbm2")


def _all_reduce(device: Device, rng: np.random.Generator, size: int, floor: float, name: str) -> Figure:
    """Memory to memory, int32, ``size`` bytes a tile; in percent of what links and memories allow."""
    config = device.config
    arrays = [rng.integers(-2 ** 31, 2 ** 31, size // 4).astype(np.int32) for _ in range(config.tiles)]
    placed = [device.put(array, tile=tile) for tile, array in enumerate(arrays)]
    job = device.submit("all_reduce", placed)
    total = np.sum(np.array(arrays, np.int64), axis=0).astype(np.int32)
    for result in job.result():
        assert np.array_equal(np.asarray(result), total), "a result differs from the reference"
    assert job.cycles is not None
    bound = max((config.tiles - 1) / config.tiles * size / (config.ring.data_bits // 8),
                2 * size / config.peak_bytes_per_cycle)
    return Figure(f"all-reduce of {size >> 10} KiB on {config.tiles} tiles, {name}", 100 * bound / max(1, job.cycles),
                  "% of the bound", floor, detail=f"{job.cycles:,} cycles, bound {bound:,.0f}")


def _speed_up(device: Device, rng: np.random.Generator, size: int, floor: float | None, name: str) -> Iterator[Figure]:
    """One product on one tile and on all of them, as the planner splits it."""
    a, b = (rng.integers(-128, 128, (size, size)).astype(np.int8) for _ in range(2))
    want = matmul_reference(a, b)
    cycles, seconds = [], 0.0
    for tiles in ([0], None):
        job = device.submit("matmul", a, b, parallel="auto", tiles=tiles)
        begin = time.perf_counter()
        job.wait()
        seconds = time.perf_counter() - begin
        assert np.array_equal(job.result(), want), "a result differs from the reference"
        cycles.append(job.cycles or 1)
    count = device.config.tiles
    yield Figure(f"GEMM {size}x{size}x{size} on {count} tiles, {name}", cycles[0] / cycles[1], "times one tile", floor,
                 detail=f"{cycles[1]:,} cycles, {cycles[0]:,} on one")
    if count == 4 and device.simulator.name == "verilated":
        yield Figure(f"simulated cycles a second, 4 tiles, {name}", cycles[1] / seconds, "cycles/s",
                     30_000 if name == "hbm2" else 45_000, detail=f"{seconds:.2f} s, {os.cpu_count()} cores")
