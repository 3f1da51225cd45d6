"""Counters of a stretch of work turned into the figures people ask for."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ringloom.errors import UnsupportedError
from ringloom.hw.config import DeviceConfig
from ringloom.hw.counters import CAUSES, CHANNEL_COUNTERS, COUNTER_BITS, COUNTERS, LOST

__all__ = ["Bottleneck", "MemoryCheck", "Profile"]

_KINDS = {"array.active": "compute", "idle.fill": "compute", "idle.memory": "memory", "idle.ring": "communication",
          "idle.command": "control"}
"""What a cycle of each cause counts for: filling and draining the array is part of computing."""


class Bottleneck(str):
    """The verdict, ``compute-bound`` and so on, with ``shares``: kind to its part of all cycles (0..1)."""

    shares: dict[str, float]

    def __new__(cls, shares: dict[str, float]) -> "Bottleneck":
        verdict = f"{max(shares, key=lambda kind: shares[kind])}-bound" if any(shares.values()) else "idle"
        self = super().__new__(cls, verdict)
        self.shares = shares
        return self


@dataclass(frozen=True)
class MemoryCheck:
    """commands: how many were checked. violations: each rule of the timing set that was broken, in words."""

    commands: int
    violations: list[str]


class Profile:
    """What the jobs of a ``with device.profile() as p`` cost; filled in when the block ends.

    counters: ``tile0.array.active`` and so on. cycles: in which a job ran. macs: useful multiply-accumulates.
    memory_check: with ``check_memory=True``, what an independent checker found on the command buses of the DRAM.
    With several tiles, shares and rates are those of the tiles that ran jobs, taken together.
    """

    def __init__(self, config: DeviceConfig, simulator: str) -> None:
        self.config = config
        self.simulator = simulator
        self.macs = 0
        self.jobs = 0
        self._counters: dict[str, int] | None = None
        self._before: dict[str, int] = {}
        self._sum: dict[str, int] = {}  # up to the last reset
        self._lost = False
        self.memory_check: MemoryCheck | None = None
        self._spans: list[tuple[int, int]] = []

    def start(self, counters: dict[str, int]) -> None:
        """Begin at what the counters hold now."""
        self._before, self._sum = counters, dict.fromkeys(counters, 0)

    def reset(self, counters: dict[str, int] | None) -> None:
        """The hardware is about to be reset, and its counters with it; None: they cannot be read any more."""
        if counters is None:
            self._lost = True
        else:
            self._add(counters)
            self._before = dict.fromkeys(counters, 0)

    def fill(self, counters: dict[str, int], *, macs: int, jobs: int, spans: list[tuple[int, int]]) -> None:
        """End at what the counters hold now. spans: first and last cycle of each job."""
        self._add(counters)
        self._spans = spans
        self._counters = self._sum
        self.macs, self.jobs = macs, jobs

    def _add(self, counters: dict[str, int]) -> None:
        for name, value in counters.items():  # a counter that wrapped in between is still right
            self._sum[name] += (value - self._before[name]) % (1 << COUNTER_BITS)

    @property
    def counters(self) -> dict[str, int]:
        if self._counters is None:
            raise UnsupportedError("the profile is filled in when its 'with' block ends: read it behind the block")
        if self._lost:
            raise UnsupportedError("the device stopped answering inside this profile and was reset, and its counters "
                                   "went with that: profile again")
        return self._counters

    @property
    def tiles(self) -> list[int]:
        """The tiles that ran jobs; the first where none did."""
        return [tile for tile in range(self.config.tiles)
                if self.counters[f"tile{tile}.cycles"] or self.counters[f"tile{tile}.jobs"]] or [0]

    @property
    def cycles(self) -> int:
        """Cycles in which a job ran, on whichever tiles."""
        counters = self.counters
        if self.config.tiles == 1:
            return counters["tile0.cycles"]
        total, end = 0, 0
        for first, last in sorted(self._spans):  # with firmware, jobs of several queues run side by side
            total += max(0, last - max(first, end))
            end = max(end, last)
        return total

    def total(self, counter: str) -> int:
        """A counter, over the tiles that ran jobs."""
        return sum(self.counters[f"tile{tile}.{counter}"] for tile in self.tiles)

    @property
    def utilization(self) -> float:
        """Useful MACs over what the arrays could do in the same cycles, 0..1."""
        return self._per_cycle(self.macs) / (len(self.tiles) * self.config.tile.array.macs_per_cycle)

    @property
    def bytes(self) -> int:
        """Bytes of operands and results that LOAD and STORE moved."""
        return self.total("load.bytes") + self.total("store.bytes")

    @property
    def bandwidth(self) -> float:
        """Bytes a cycle achieved."""
        return self._per_cycle(self.bytes)

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: useful MACs a byte."""
        return self.macs / self.bytes if self.bytes else 0.0

    @property
    def peak_bandwidth(self) -> int:
        """Bytes a cycle that the memories of the tiles could move."""
        return len(self.tiles) * self.config.peak_bytes_per_cycle

    @property
    def roofline(self) -> dict[str, float]:
        """MACs a cycle: what was ``achieved``, and what is ``attainable`` at this intensity (the lower roof)."""
        peak = float(len(self.tiles) * self.config.tile.array.macs_per_cycle)
        attainable = min(peak, self.intensity * self.peak_bandwidth) if self.bytes else peak
        achieved = self._per_cycle(self.macs)
        return {"peak": peak, "attainable": attainable, "achieved": achieved,
                "fraction": achieved / attainable if attainable else 0.0}

    @property
    def causes(self) -> dict[str, float]:
        """Share of each cause in all cycles; they add up to 1."""
        cycles = self.total("cycles")
        return {cause: self.total(cause) / cycles if cycles else 0.0 for cause in CAUSES}

    @property
    def communication(self) -> dict[str, Any]:
        """What the ring did; empty on a device of one tile.

        share: of the tiles' cycles that the array idled for the ring. busy: of them in which a RING command ran.
        overlap: of those, the part in which the array worked or waited for something else. bytes: of collectives.
        links: ``tile0.clockwise`` and so on, to ``flits`` a cycle, those of them that were ``forwarded`` for other
        stops, and ``stalls``, the share of cycles in which a flit could not go.
        """
        if self.config.tiles == 1:
            return {}
        cycles, busy, idle = (self.total(name) for name in ("cycles", "ring.busy", "idle.ring"))
        links = {}
        for tile in range(self.config.tiles):
            for way in ("clockwise", "counterclockwise"):
                links[f"tile{tile}.{way}"] = {kind: self._per_cycle(self.counters[f"tile{tile}.ring.{kind}_{way}"])
                                              for kind in ("flits", "forwarded", "stalls")}
        return {"share": idle / cycles if cycles else 0.0, "busy": busy / cycles if cycles else 0.0,
                "overlap": max(0.0, 1 - idle / busy) if busy else 0.0, "bytes": self.total("ring.bytes"),
                "links": links}

    @property
    def memory_loss(self) -> dict[str, float]:
        """With DRAM, the share of the data buses' cycles by what they were used (``data``) or lost for; it adds up
        to 1."""
        if self.config.memory.kind != "hbm":
            return {}
        cycles = self.total("cycles") * self.config.ports
        return {cause: sum(self.total(f"hbm{c}.bus.{cause}") for c in range(self.config.ports)) / cycles
                if cycles else 0.0 for cause in ("data", *LOST)}

    @property
    def bottleneck(self) -> Bottleneck:
        shares = dict.fromkeys(dict.fromkeys(_KINDS.values()), 0.0)
        for cause, share in self.causes.items():
            shares[_KINDS[cause]] += share
        return Bottleneck(shares)

    def _per_cycle(self, amount: int) -> float:
        return amount / self.cycles if self.cycles else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "config": self.config.name, "simulator": self.simulator, "tiles": self.tiles, "jobs": self.jobs,
            "cycles": self.cycles,
            "seconds": self.cycles / self.config.clock_hz, "macs": self.macs, "utilization": self.utilization,
            "bytes": self.bytes, "bandwidth": self.bandwidth,
            "bandwidth_fraction": self.bandwidth / self.peak_bandwidth,
            "bytes_per_mac": self.bytes / self.macs if self.macs else 0.0, "intensity": self.intensity,
            "roofline": self.roofline, "bottleneck": str(self.bottleneck), "shares": self.bottleneck.shares,
            "causes": self.causes, "memory_loss": self.memory_loss, "communication": self.communication,
            "counters": self.counters,
            "memory_check": None if self.memory_check is None else vars(self.memory_check),
        }

    def table(self) -> Table:
        """The figures as a ``rich`` table."""
        roof = self.roofline
        table = Table(title=f"{self.config.name} on {self.simulator}: {self.jobs} job{'s' * (self.jobs != 1)}",
                      title_justify="left")
        table.add_column("figure")
        table.add_column("value", justify="right")
        table.add_column("meaning", overflow="fold")
        shares = ", ".join(f"{kind} {share:.1%}" for kind, share in self.bottleneck.shares.items())
        many = self.config.tiles > 1
        rows = [
            ("cycles", f"{self.cycles:,}", f"{self.cycles / self.config.clock_hz * 1e6:,.1f} us at "
                                           f"{self.config.clock_hz / 1e9:g} GHz"),
            ("utilization", f"{self.utilization:.1%}", f"{self.macs:,} useful MACs of "
                                                       f"{self.config.tile.array.macs_per_cycle} a cycle"
                                                       + f" and tile, {len(self.tiles)} tiles" * many),
            ("bottleneck", str(self.bottleneck), shares),
            ("bandwidth", f"{self.bandwidth:.2f} B/cycle", f"of {self.peak_bandwidth}; "
                                                           f"{self.bytes:,} bytes moved"),
            ("intensity", f"{self.intensity:.2f} MAC/B", "arithmetic intensity"),
            ("roofline", f"{roof['fraction']:.1%}", f"{roof['achieved']:.1f} MAC/cycle reached, "
                                                    f"{roof['attainable']:.1f} attainable at this intensity"),
        ]
        rows += [(cause, f"{share:.1%}", next(c.doc for c in COUNTERS if c.name == cause))
                 for cause, share in self.causes.items()]
        documents = {counter.name: counter.doc for counter in CHANNEL_COUNTERS.values()}
        rows += [(f"memory bus: {cause}", f"{share:.1%}", documents[f"bus.{cause}"])
                 for cause, share in self.memory_loss.items()]
        if self.memory_check is not None:
            found = self.memory_check.violations
            rows.append(("memory check", f"{len(found)} violations" if found else "passed",
                         found[0] if found else f"{self.memory_check.commands:,} DRAM commands break no timing rule"))
        if many:
            ring = self.communication
            fullest = max(ring["links"], key=lambda name: ring["links"][name]["flits"])
            link = ring["links"][fullest]
            rows += [
                ("ring", f"{ring['busy']:.1%}", f"cycles with a RING command, {ring['overlap']:.1%} of them hidden "
                                                f"behind other work; {ring['bytes']:,} bytes"),
                ("fullest link", f"{link['flits']:.2f} flit/cycle", f"{fullest}; {link['stalls']:.1%} of the cycles "
                                                                    "it could not go"),
            ]
        for row in rows:
            table.add_row(*row)
        return table

    def summary(self) -> str:
        """The table as text, 110 columns wide."""
        console = Console(width=110, force_terminal=False, color_system=None)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get()
