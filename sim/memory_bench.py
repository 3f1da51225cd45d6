"""Runs a trace of requests through the RTL of a tile's DRAM, verilated."""

import ctypes
import dataclasses
import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringloom.hw import export
from ringloom.hw.config import DeviceConfig
from ringloom.hw.memory.hbm.command import ColumnOp, RowOp
from ringloom.hw.memory.hbm.events import Cause

from .checkers.dram import Command
from .memory_top import MemoryTop
from .progress import Progress
from .verilated.build import Builder
from .verilated.cache import digest

__all__ = ["MemoryBench", "TraceResult"]

_VALUES = ("cycles", "reads", "writes", "row_hits", "row_misses", "row_conflicts", "refreshes", "level", "errors",
           "first_error", "records")
_CAUSES = 8


@dataclass(frozen=True)
class TraceResult:
    """What a trace did. ``loss``: share of the cycles of all channels by cause; ``data`` is the share in use.

    latencies: cycles from acceptance to response of each request. commands: (cycle, channel, op, bank, row, column)
    a row, in order of the cycles, where they were recorded.
    """

    requests: int
    completed: int
    cycles: int
    reads: int
    writes: int
    row_hits: int
    row_misses: int
    row_conflicts: int
    refreshes: int
    occupancy: float
    errors: int
    loss: dict[str, float]
    latencies: np.ndarray
    commands: np.ndarray

    def channel_commands(self, channel: int) -> Iterator[Command]:
        """The recorded commands of one channel."""
        names = {8 + op: op.name for op in ColumnOp} | {op.value: op.name for op in RowOp}
        for cycle, _, op, bank, row, column in self.commands[self.commands[:, 1] == channel].tolist():
            yield Command(cycle, names[op], bank, row, column)


class MemoryBench:
    """A tile's DRAM under ``verilated``; built once for a configuration of ``memory``, then cached.

    config: ``memory.kind`` must be hbm. progress: told what is built.
    """

    def __init__(self, config: DeviceConfig, progress: Progress) -> None:
        if config.memory.kind != "hbm":
            raise ValueError(f"memory.kind = {config.memory.kind!r}: only 'hbm' has a command bus")
        self.config = config
        builder = Builder(progress)
        folder = Path(export.__file__).parent
        sources = [path.read_bytes() for root in (folder, Path(__file__).parent) for path in sorted(root.rglob("*.py"))]
        key = digest("memory", repr(dataclasses.asdict(config.memory)), repr(config.timing),
                     importlib.metadata.version("amaranth"), *sources)

        def make(scratch: Path) -> Path:
            progress(f"converting the controller of {config.memory.timing} to Verilog")
            path = scratch / "memory.v"
            path.write_text(export.to_verilog(MemoryTop(config=config), export.TOP), encoding="utf-8")
            return path

        verilog = builder.cache.get(f"{key}.v", make).read_text(encoding="utf-8")
        self._library = ctypes.CDLL(str(builder.library(verilog, harness="memory_bench.cpp")))
        self._library.rl_bench_create.restype = ctypes.c_void_p
        self._library.rl_bench_destroy.argtypes = [ctypes.c_void_p]
        self._library.rl_bench_run.restype = ctypes.c_uint64
        self._library.rl_bench_run.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, *([ctypes.c_void_p] * 4), ctypes.c_int, ctypes.c_int, ctypes.c_uint32,
            ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
        self._library.rl_bench_results.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._library.rl_bench_records.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def run(self, writes: np.ndarray, addresses: np.ndarray, times: np.ndarray | None = None, *,
            record: bool = False, stall: int = 0, window: int | None = None, limit: int | None = None) -> TraceResult:
        """Run a trace from reset.

        writes: bool a request. addresses: bytes. times: cycle in which each request may start, ascending; none:
        the queues are kept full. stall: of 256 cycles so many, at random, in which responses are not taken and
        write data not given. window: requests that may follow the oldest one without a response; by default any number.
        limit: cycles; by default far more than any controller needs.
        """
        count = len(addresses)
        write = np.ascontiguousarray(writes, np.uint8)
        address = np.ascontiguousarray(addresses, np.uint64)
        if len(address) and int(address.max()) >= self.config.memory.bytes:
            raise ValueError(f"address {int(address.max())} lies behind the memory's {self.config.memory.bytes} bytes")
        time = np.zeros(count, np.uint64) if times is None else np.ascontiguousarray(times, np.uint64)
        latencies = np.zeros(count, np.uint32)
        if limit is None:
            limit = 100_000 + 1000 * count + (int(time.max()) if count else 0)
        bench = self._library.rl_bench_create()
        try:
            completed = self._library.rl_bench_run(
                bench, count, time.ctypes.data, write.ctypes.data, address.ctypes.data, latencies.ctypes.data,
                times is None, record, stall, self.config.memory.interleave_bytes,
                max(1, count) if window is None else window, limit)
            values = np.zeros(len(_VALUES) + _CAUSES, np.uint64)
            self._library.rl_bench_results(bench, values.ctypes.data)
            result = dict(zip(_VALUES, values.tolist(), strict=False))
            commands = np.zeros((result["records"], 6), np.uint64)
            self._library.rl_bench_records(bench, commands.ctypes.data)
        finally:
            self._library.rl_bench_destroy(bench)
        slots = max(1, result["cycles"] * self.config.ports)
        loss = {cause.name.lower(): int(values[len(_VALUES) + cause.value]) / slots for cause in Cause}
        return TraceResult(
            requests=count, completed=completed, latencies=latencies, commands=commands, loss=loss,
            occupancy=result["level"] / slots,
            **{name: result[name] for name in _VALUES if name not in ("level", "first_error", "records")})
