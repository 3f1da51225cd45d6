"""Traces of requests on the RTL of the DRAM controller: what it reaches, and what the DRAM would allow."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringloom.hw.config import DeviceConfig, load
from ringloom.hw.memory.hbm.timing import TimingSet, load_timing
from ringloom.sim.checkers.dram import DramChecker, Violation
from ringloom.sim.memory_bench import MemoryBench, TraceResult

from .errors import Error

__all__ = ["TraceError", "Trace", "Report", "read_trace", "memory_config", "measure", "bounds", "patterns"]


class TraceError(Error, ValueError):
    """A trace file that cannot be read; the message names file, line and value."""


@dataclass(frozen=True)
class Trace:
    """Requests of 32 bytes: cycles (ascending), whether they write, byte addresses."""

    cycles: np.ndarray
    writes: np.ndarray
    addresses: np.ndarray


@dataclass(frozen=True)
class Report:
    """What a trace reached. bandwidth_fraction: bursts over those the data buses could have carried. Latencies: cycles
    from acceptance to response. loss: shares of all cycles; ``data`` is the share in use."""

    requests: int
    cycles: int
    bandwidth_fraction: float
    row_hit_rate: float
    read_latency_mean: float
    read_latency_p99: float
    violations: list[Violation]
    loss: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "violations": len(self.violations)}


_LAST_CYCLE = 1 << 30       # a quarter of an hour of simulation
_LAST_ADDRESS = 1 << 40
_FORM = "cycle,op,address with op R or W, such as 12,R,0x40"


def read_trace(path: Path) -> Trace:
    """A CSV file of ``cycle,op,address``: R or W, byte address (decimal or 0x...); a header line may come first.

    Raises :class:`TraceError`.
    """
    cycles: list[int] = []
    writes: list[bool] = []
    addresses: list[int] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, line in enumerate(csv.reader(file), 1):
                if not line or (number == 1 and line[0].strip().lower() == "cycle"):
                    continue
                try:
                    cycle, op, address = (part.strip() for part in line)
                    moment, place, kind = int(cycle, 0), int(address, 0), {"R": False, "W": True}[op.upper()]
                except (ValueError, KeyError):
                    raise TraceError(f"{path}, line {number}: {','.join(line)[:80]!r} is not {_FORM}") from None
                before = cycles[-1] if cycles else 0
                if moment < before:
                    raise TraceError(f"{path}, line {number}: cycle {moment} lies before {before}: cycles must ascend "
                                     "from 0; sort the trace by them")
                if moment > _LAST_CYCLE:
                    raise TraceError(f"{path}, line {number}: cycle {cycle[:40]} is over {_LAST_CYCLE}, the last one a "
                                     "trace may name; cut the trace, or ignore its cycles with --saturate")
                if not 0 <= place < _LAST_ADDRESS:
                    raise TraceError(f"{path}, line {number}: address {address[:40]} must lie in "
                                     f"0..{_LAST_ADDRESS - 1}")
                cycles.append(moment)
                writes.append(kind)
                addresses.append(place)
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: no CSV file of {_FORM} ({error})") from error
    if not cycles:
        raise TraceError(f"{path}: no requests in it; a line is {_FORM}")
    return Trace(np.array(cycles, np.uint64), np.array(writes, bool), np.array(addresses, np.uint64))


def memory_config(timing: str = "hbm2", channels: int = 1, **memory: Any) -> DeviceConfig:
    """A configuration whose memory is the whole of ``channels`` pseudo-channels. memory: other keys of ``memory``."""
    size = min(1 << 34, load_timing(timing).bytes * channels)
    return load("inference", {"tiles": 1, "memory.kind": "hbm", "memory.timing": timing,
                              "memory.pseudo_channels": channels, "memory.bytes": size,
                              **{f"memory.{key}": value for key, value in memory.items()}})


def measure(bench: MemoryBench, trace: Trace, *, saturate: bool = False) -> tuple[Report, TraceResult]:
    """Run a trace and check it. saturate: keep the queues full, whatever the trace's cycles say.

    Raises ``AssertionError`` where a byte comes back wrong or a request does not end.
    """
    config, timing = bench.config, bench.config.timing
    behind = trace.addresses >= config.memory.bytes
    if behind.any():
        raise TraceError(f"request {int(behind.argmax()) + 1}: address {int(trace.addresses[behind.argmax()]):#x} lies "
                         f"behind the {config.memory.bytes} bytes of {config.ports} pseudo-channels of {timing.name}; "
                         "take more pseudo-channels or smaller addresses")
    result = bench.run(trace.writes, trace.addresses, None if saturate else trace.cycles, record=True)
    if result.completed < result.requests or result.errors:
        raise AssertionError(f"{result.requests - result.completed} of {result.requests} requests did not end, "
                             f"{result.errors} responses were wrong")
    violations = []
    for channel in range(config.ports):
        checker = DramChecker(timing, refresh=config.memory.refresh)
        checker.check(result.channel_commands(channel))
        violations += checker.finish(result.cycles)
    reads = result.latencies[~trace.writes]
    accesses = result.row_hits + result.row_misses + result.row_conflicts
    return Report(
        requests=result.requests, cycles=result.cycles,
        bandwidth_fraction=result.requests * timing.burst_clocks / (result.cycles * config.ports),
        row_hit_rate=result.row_hits / accesses,
        read_latency_mean=float(reads.mean()) if len(reads) else 0.0,
        read_latency_p99=float(np.percentile(reads, 99)) if len(reads) else 0.0,
        violations=violations, loss=result.loss), result


def bounds(timing: TimingSet, refresh: str) -> dict[str, float]:
    """What the timings and the refresh allow, as fractions of the peak.

    stream: row hits alone. random: a new row each time, in any bank. one_bank: a new row each time, in one.
    """
    t = timing
    if refresh == "all-bank":
        left = 1 - (t.rtp + t.rp + t.rfc + t.rcd_read) / t.refi
        stream, opening, single = left, left, left
    elif refresh == "per-bank":
        # Other banks carry on; a refresh keeps ACTs away for tRREFD instead of tRRD_S.
        stream, opening = 1.0, 1 - max(0, t.rrefd - t.rrd_s) / t.refi_bank
        single = 1 - t.rfc_bank / (t.banks * t.refi_bank)
    else:
        stream = opening = single = 1.0
    activate = max(t.rrd_s, t.faw / 4, t.rc / t.banks)
    return {"stream": stream, "random": t.burst_clocks / activate * opening,
            "one_bank": t.burst_clocks / t.rc * single}


def patterns(config: DeviceConfig, count: int) -> Iterator[tuple[str, Trace]]:
    """The traces that the project's figures are measured with."""
    timing, index = config.timing, np.arange(count, dtype=np.uint64)
    none, other = np.zeros(count, bool), index % 2 == 1
    half, row = config.memory.bytes // 2, timing.banks * timing.row_bytes * config.ports
    random = np.random.default_rng(1).integers(0, config.memory.bytes // 32, count).astype(np.uint64)

    def trace(writes: np.ndarray, addresses: np.ndarray) -> Trace:
        return Trace(np.zeros(len(addresses), np.uint64), writes, addresses.astype(np.uint64))

    yield "sequential read", trace(none, index * 32)
    yield "sequential write", trace(~none, index * 32)
    yield "alternating", trace(other, index * 32)
    yield "copy", trace(other, index // 2 * 32 + other * np.uint64(half))
    yield "random read", trace(none, random * 32)
    short = index[:count // 8]
    yield "one bank", trace(none[:len(short)], short % timing.rows * row)
