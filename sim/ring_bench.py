"""Random traffic through the RTL of a ring, verilated, with every flit checked."""

import ctypes
import dataclasses
import importlib.metadata
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from ringloom.hw import export
from ringloom.hw.config import DeviceConfig
from ringloom.hw.ring.flit import Network, buffer_flits, stops, turn_flits

from .progress import Progress
from .ring_top import RingTop
from .verilated.build import Builder
from .verilated.cache import digest

__all__ = ["Pattern", "Traffic", "RingResult", "RingBench", "longest_wait"]

_OPTIONS = ("stops", "seed", "packets", "limit", "warm", "pattern", "hot", "hot_share", "load", "shortest_packet",
            "longest_packet", "networks", "stall", "patience", "gaps", "any_way", "echo")


class Pattern(IntEnum):
    """Where packets go. OTHERS: all stops but their own, uniformly. ALL: all stops, uniformly."""

    OTHERS = 0
    ALL = 1
    HOT = 2        # ``hot_share`` of them to stop ``hot``, the others uniformly
    NEIGHBOUR = 3  # one hop, in either direction


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What the sources and sinks do.

    packets: drawn in all. load: flits that a stop draws in a cycle. warm: cycles before ``delivered`` counts.
    shortest_packet, longest_packet: flits, uniformly. networks: those in use, equally.
    stall: sinks refuse flits at random, some for long, but none for more than ``patience`` cycles.
    gaps: share of cycles in which a source does not offer its next flit. any_way: directions at random; else the
    shorter. echo: each REQUEST flit is answered by a RESPONSE flit, and a stop with four answers waiting takes no
    request. A packet to its own stop does not enter the ring: the stop hands itself one flit a cycle.
    """

    packets: int = 1 << 62
    limit: int = 1 << 62
    warm: int = 0
    seed: int = 1
    pattern: Pattern = Pattern.OTHERS
    hot: int = 0
    hot_share: float = 1.0
    load: float = 1.0
    shortest_packet: int = 1
    longest_packet: int = 1
    networks: tuple[Network, ...] = tuple(Network)
    stall: bool = False
    patience: int = 256
    gaps: float = 0.0
    any_way: bool = False
    echo: bool = False


@dataclass(frozen=True, kw_only=True)
class RingResult:
    """What came of it: flits, unless told otherwise.

    own: handed to the own stop. errors: lost from its place, doubled, reordered, damaged or at a wrong stop.
    stuck: nothing moved any more. wait: longest time an offered flit was refused, in cycles. latency: cycles from
    inject to eject, of all together. hops: of all injected. delivered: out of the ring or to the own stop, from cycle
    ``warm`` on. count_*: the stops' own events. seconds: of the run.
    """

    cycles: int
    drawn: int
    injected: int
    ejected: int
    own: int
    errors: int
    stuck: bool
    wait: int
    latency: int
    latency_limit: int
    hops: int
    delivered: int
    count_injected: int
    count_forwarded: int
    count_ejected: int
    count_stalled: int
    seconds: float


_RESULTS = tuple(field.name for field in dataclasses.fields(RingResult))[:-1]


def longest_wait(config: DeviceConfig, networks: int, patience: int = 0) -> int:
    """Cycles after which a flit that is offered to the ring has gone in at the latest; derived in docs/ring.md.

    networks: how many are in use. patience: cycles that a sink refuses a flit at the most.
    """
    count, hop, places = stops(config), 2 + config.ring.link_stages, buffer_flits(config)
    flits = count * (places + turn_flits(config))  # that may go before while the turn stays at one stop
    if patience or places <= 2 * hop:
        stay = flits * (count + 2) * (networks + patience + 2 * hop)
    else:
        stay = flits * networks
    return 2 * count * (stay + hop)


class RingBench:
    """A ring of ``tiles`` + 1 stops under ``verilated``; built once for a configuration, then cached.

    progress: told what is built.
    """

    def __init__(self, config: DeviceConfig, progress: Progress) -> None:
        self.config = config
        self.stops = stops(config)
        builder = Builder(progress)
        folder = Path(export.__file__).parent
        paths = (*sorted((folder / "ring").glob("*.py")), folder / "export.py", folder / "memory" / "port.py",
                 Path(__file__).with_name("ring_top.py"))
        key = digest("ring", str(config.tiles), str(config.address_bits), repr(config.ring),
                     importlib.metadata.version("amaranth"), *(path.read_bytes() for path in paths))

        def make(scratch: Path) -> Path:
            progress(f"converting a ring of {self.stops} stops to Verilog")
            path = scratch / "ring.v"
            path.write_text(export.to_verilog(RingTop(config=config), export.TOP), encoding="utf-8")
            return path

        verilog = builder.cache.get(f"{key}.v", make).read_text(encoding="utf-8")
        self._library = ctypes.CDLL(str(builder.library(verilog, harness="ring_bench.cpp")))
        self._library.rl_ring_run.restype = None
        self._library.rl_ring_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def run(self, traffic: Traffic) -> RingResult:
        """Run from reset until all packets have come out, nothing moves any more, or ``limit`` cycles have passed."""
        if not 0 <= traffic.hot < self.stops:
            raise ValueError(f"hot = {traffic.hot}: must be one of the {self.stops} stops, 0..{self.stops - 1}")
        values = dataclasses.asdict(traffic) | {
            "stops": self.stops, "load": round(traffic.load * 65536), "hot_share": round(256 * traffic.hot_share),
            "gaps": round(256 * traffic.gaps), "networks": sum(1 << network for network in traffic.networks)}
        options = (ctypes.c_uint64 * len(_OPTIONS))(*(int(values[name]) for name in _OPTIONS))
        results = (ctypes.c_uint64 * len(_RESULTS))()
        begin = time.perf_counter()
        self._library.rl_ring_run(options, results)
        found = dict(zip(_RESULTS, results, strict=True))
        return RingResult(**found | {"stuck": bool(found["stuck"])}, seconds=time.perf_counter() - begin)
