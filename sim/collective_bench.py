"""Runs collectives through the RTL of the engines, their ring and their memories, verilated."""

import ctypes
import dataclasses
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringloom.hw import export
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import RING, Code

from .collective_top import CollectiveNode
from .progress import Progress
from .verilated.build import Builder
from .verilated.cache import digest

__all__ = ["Command", "CommandResult", "CollectiveBench", "Outcome"]

_COMMAND = np.dtype([("record", np.uint8, 64), ("earliest", np.uint64), ("accepted", np.uint64), ("ended", np.uint64),
                     ("address", np.uint64), ("flags", np.uint32), ("status", np.uint32), ("code", np.uint32),
                     ("unused", np.uint32)])
_JOB = np.dtype([("window_base", np.uint64), ("window_limit", np.uint64), ("context", np.uint32),
                 ("epoch", np.uint32)])
_STATUS = ("pending", "done", "fault", "aborted")


@dataclass(frozen=True)
class Command:
    """One RING command of one tile. fields: of ``isa.RING``.

    earliest: cycle of the run from which it is offered. new_job: the engine is cleared before it, once all commands
    before have ended; abort: those that have not by ``earliest`` are stopped.
    """

    fields: dict[str, int]
    earliest: int = 0
    new_job: bool = False
    abort: bool = False


@dataclass(frozen=True)
class CommandResult:
    """status: done, fault, aborted, or pending where the limit came first. accepted, ended: cycles of the bench."""

    status: str
    accepted: int
    ended: int
    code: Code
    address: int


@dataclass(frozen=True)
class Outcome:
    """cycles: of the run. bytes: put on the links. tiles: results of each tile's commands. finished: before limit."""

    cycles: int
    bytes: int
    tiles: list[list[CommandResult]]
    finished: bool


class CollectiveBench:
    """Built once for a configuration, then cached. ``memory[t]`` holds the bytes of tile t.

    config: ``tiles``, ``ring``, ``memory`` and ``ideal`` matter. progress: told what is built.
    """

    def __init__(self, config: DeviceConfig, progress: Progress) -> None:
        self.config = config
        builder = Builder(progress)
        roots = Path(export.__file__).parent, Path(__file__).parent
        sources = [path.read_bytes() for root in roots for path in sorted(root.rglob("*.py"))]
        key = digest("collective", str(config.tiles), repr(config.ring), repr(config.memory), repr(config.ideal),
                     repr(dataclasses.asdict(config.timing)) if config.memory.kind == "hbm" else "",
                     importlib.metadata.version("amaranth"), *sources)

        def make(scratch: Path) -> Path:
            progress("converting the collective engine to Verilog")
            path = scratch / "collective.v"
            path.write_text(export.to_verilog(CollectiveNode(config=config), export.TOP), encoding="utf-8")
            return path

        verilog = builder.cache.get(f"{key}.v", make).read_text(encoding="utf-8")
        self._library = ctypes.CDLL(str(builder.library(verilog, harness="collective_bench.cpp")))
        self._library.rl_collective_create.restype = ctypes.c_void_p
        self._library.rl_collective_bytes.restype = ctypes.c_uint64
        self._library.rl_collective_run.restype = ctypes.c_uint64
        for name, types in (("create", [ctypes.c_uint32, ctypes.c_void_p]), ("destroy", [ctypes.c_void_p]),
                            ("bytes", [ctypes.c_void_p]),
                            ("run", [ctypes.c_void_p] * 4 + [ctypes.c_uint32] * 2 + [ctypes.c_uint64] * 2)):
            getattr(self._library, f"rl_collective_{name}").argtypes = types
        self.memory = [np.zeros(config.memory.bytes, np.uint8) for _ in range(config.tiles)]
        pointers = (ctypes.c_void_p * config.tiles)(*(memory.ctypes.data for memory in self.memory))
        self._bench = self._library.rl_collective_create(config.tiles, pointers)

    def close(self) -> None:
        """Free the model; the bench cannot be used afterwards."""
        self._library.rl_collective_destroy(self._bench)
        self._bench = None

    def run(self, tiles: Sequence[Sequence[Command]], *, hold: float = 0, longest: int = 8, seed: int = 1,
            limit: int = 1_000_000, windows: Sequence[tuple[int, int]] | None = None) -> Outcome:
        """Give each tile its commands, until all have ended.

        hold: chance, a cycle, that a stream that runs is held from then on, for up to ``longest`` cycles. windows: base
        and limit of each tile's job; all memory by default.
        """
        count, whole = self.config.tiles, self.config.tiles * self.config.memory.bytes
        arrays = []
        for commands in tiles:
            array = np.zeros(max(1, len(commands)), _COMMAND)
            for entry, command in zip(array, commands, strict=False):
                entry["record"] = np.frombuffer(RING.encode(**command.fields), np.uint8)
                entry["earliest"] = command.earliest
                entry["flags"] = command.new_job + 2 * command.abort
            arrays.append(array)
        jobs = np.zeros(count, _JOB)
        for job, (base, limit_address) in zip(jobs, windows or [(0, whole)] * count, strict=True):
            job["window_base"], job["window_limit"], job["context"], job["epoch"] = base, limit_address, 3, 5
        counts = np.array([len(commands) for commands in tiles], np.uint32)
        assert len(counts) == count
        pointers = (ctypes.c_void_p * count)(*(array.ctypes.data for array in arrays))
        cycles = self._library.rl_collective_run(
            self._bench, counts.ctypes.data, pointers, jobs.ctypes.data, round(256 * hold), longest, seed, limit)
        results = [[CommandResult(_STATUS[entry["status"]], int(entry["accepted"]), int(entry["ended"]),
                                  Code(int(entry["code"])), int(entry["address"])) for entry in array[:size]]
                   for array, size in zip(arrays, counts, strict=True)]
        return Outcome(cycles, self._library.rl_collective_bytes(self._bench), results, cycles < limit)
