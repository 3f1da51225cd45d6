"""The floors of all-reduce: engines, ring and memories alone, with every byte compared with numpy."""

from collections.abc import Callable, Iterator

import numpy as np

from ringloom.hw.config import DeviceConfig, load
from ringloom.hw.isa import Collective
from ringloom.sim.collective_bench import CollectiveBench, Command
from ringloom.sim.progress import ProgressLine

from .bench import Figure

__all__ = ["run", "all_reduce_bound", "all_reduce_cycles"]

_IDEAL = {"memory.kind": "ideal", "ideal.latency": 32, "ideal.bytes_per_cycle": 128}
_HBM = {"memory.kind": "hbm", "memory.timing": "hbm2", "memory.pseudo_channels": 4}
_CASES = (
    (4, "ideal memory, 128 B/cycle", _IDEAL, ((64, 80.0), (256, 90.0))),
    (8, "ideal memory, 128 B/cycle", _IDEAL, ((64, 80.0), (256, 90.0))),
    (4, "hbm2, 4 pseudo-channels", _HBM, ((256, 80.0),)),
    (8, "hbm2, 4 pseudo-channels", _HBM, ((256, 80.0),)),
)
_MEMORY = 1 << 20


def all_reduce_bound(config: DeviceConfig, size: int) -> float:
    """Cycles that links and memory need for ``size`` bytes a tile, over all tiles."""
    tiles = config.tiles
    return max((tiles - 1) / tiles * size / (config.ring.data_bits // 8), 2 * size / config.peak_bytes_per_cycle)


def all_reduce_cycles(bench: CollectiveBench, size: int, number: int, *, offset: int = 0) -> int:
    """Cycles from the first command's acceptance to the last ``done``. offset: of the result from the vector, bytes.

    Raises ``AssertionError`` where a byte is wrong.
    """
    config = bench.config
    rng = np.random.default_rng(number)
    vectors = [rng.integers(-1 << 31, 1 << 31, size // 4).astype(np.int32) for _ in range(config.tiles)]
    for memory, vector in zip(bench.memory, vectors, strict=True):
        memory[:size] = vector.view(np.uint8)
    fields = {"operation": Collective.ALL_REDUCE, "size": config.tiles, "bytes": size, "number": number}
    places = [tile * config.memory.bytes for tile in range(config.tiles)]
    commands = [[Command(fields | {"source": place, "destination": place + offset})] for place in places]
    outcome = bench.run(commands)
    want = np.sum(vectors, axis=0, dtype=np.int64).astype(np.int32).view(np.uint8)
    assert outcome.finished, outcome
    for memory in bench.memory:
        assert (memory[offset:offset + size] == want).all(), "a wrong sum"
    results = [tile[0] for tile in outcome.tiles]
    return max(result.ended for result in results) - min(result.accepted for result in results)


def run(*, tell: Callable[[str], None] = lambda text: None) -> Iterator[Figure]:
    """Measure all-reduce of int32, in place, over all tiles, always ``verilated``."""
    for tiles, name, overrides, sizes in _CASES:
        tell(f"all-reduce, {tiles} tiles, {name}")
        config = load("inference", {"tiles": tiles, "memory.bytes": _MEMORY, "ring.data_bits": 256,
                                    "ring.link_stages": 1, **overrides})
        with ProgressLine() as progress:
            bench = CollectiveBench(config, progress)
        for number, (kilobytes, floor) in enumerate(sizes, 1):
            size = kilobytes << 10
            cycles = all_reduce_cycles(bench, size, number)
            bound = all_reduce_bound(config, size)
            yield Figure(f"all-reduce, int32, {tiles} tiles, {kilobytes} KiB a tile, {name}", 100 * bound / cycles,
                         "% of the bound", floor, detail=f"{cycles:,} cycles, bound {bound:,.0f}; engines alone")
        bench.close()
