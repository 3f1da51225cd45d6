"""A static checker of command streams: no deadlock, no hazard, nothing outside the buffers.

It reads the command bytes of every tile of a group and knows nothing of how they were made. It runs the semaphores
and collectives alone, with the shortest queues the hardware could have, and carries along what each command may rely
on to have ended (one number an engine, since an engine's commands end in order; and one a tile: its job runs). Two
commands of different engines that touch one place, one of them writing, must be ordered by that knowledge; one engine
keeps its own order. A collective brings to every tile what all of its tiles knew when they began it, a broadcast what
its root knew.

Each semaphore must have one engine that signals and one that waits. Then the streams behave the same in every
timing, and a deadlock or a hazard that exists is found, whatever the order in which they are walked.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ringloom.errors import Error
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import RECORD_BYTES, SEMAPHORE_BITS, VERSION, Collective, Opcode, record_of

from .footprint import BadField, Footprint, Runs, footprint
from .hazards import Hazard, check_memory_order, check_scratchpads

__all__ = ["Region", "StreamError", "check_group", "check_stream"]

_LANES = (Opcode.LOAD, Opcode.MATMUL, Opcode.STORE, Opcode.RING)


class StreamError(Error):
    """A command stream that must not run."""


@dataclass(frozen=True)
class Region:
    """A buffer: ``size`` bytes at ``address``; ``writable`` buffers are written alone, the others read alone.

    whole: every byte must be written exactly once. shared: read and written, in an order that semaphores keep.
    """

    address: int
    size: int
    writable: bool = False
    whole: bool = False
    shared: bool = False


@dataclass
class Command:
    """engine: of all tiles' engines. order: among the commands of its engine. knows: for each engine, how many of its
    commands have surely ended when this one starts; behind these, for each tile, whether its job surely runs."""

    tile: int
    index: int
    engine: int
    order: int
    fields: dict[str, int]
    touches: Footprint
    knows: np.ndarray

    @property
    def lane(self) -> Opcode:
        return _LANES[self.engine % len(_LANES)]

    def __str__(self) -> str:
        return f"command {self.index} ({self.lane.name})"


def check_stream(raw: bytes, regions: Sequence[Region], config: DeviceConfig, *, queue_depth: int = 1) -> None:
    """Raise :class:`StreamError` naming the command for anything wrong in the command records ``raw`` of one tile."""
    check_group({0: raw}, regions, config, queue_depth=queue_depth)


def check_group(streams: Mapping[int, bytes], regions: Sequence[Region], config: DeviceConfig, *,
                queue_depth: int = 1) -> None:
    """Raise :class:`StreamError` for anything wrong in what the tiles of a group run together, tile to records."""
    group = _Group(streams, config)
    group.check_memory(regions)
    group.check_semaphores()
    order = group.simulate(queue_depth)
    try:
        check_scratchpads(order, config)
        for region in regions:
            if region.shared:
                check_memory_order(order, region.address, region.size)
    except Hazard as error:
        raise StreamError(str(error)) from None


class _Group:
    def __init__(self, streams: Mapping[int, bytes], config: DeviceConfig) -> None:
        self.tiles = list(streams)
        self.engines = len(_LANES) * len(self.tiles)
        self.many = len(self.tiles) > 1
        self.streams = [self._decode(tile, raw, config) for tile, raw in streams.items()]

    def name(self, command: Command) -> str:
        return f"tile {command.tile}: {command}" if self.many else str(command)

    def _decode(self, tile: int, raw: bytes, config: DeviceConfig) -> list[Command]:
        if len(raw) % RECORD_BYTES:
            raise StreamError(f"{len(raw)} bytes are no whole number of {RECORD_BYTES}-byte records")
        commands: list[Command] = []
        orders = [0] * len(_LANES)
        for index in range(len(raw) // RECORD_BYTES):
            record = raw[index * RECORD_BYTES:(index + 1) * RECORD_BYTES]
            if record[0] != VERSION or record[1] not in _LANES:
                raise StreamError(f"command {index}: version {record[0]}, opcode {record[1]}")
            lane = _LANES.index(Opcode(record[1]))
            fields = record_of(record[1]).decode(record)
            try:
                touches = footprint(fields, config, tile)
            except BadField as error:
                raise StreamError(f"command {index} ({_LANES[lane].name}): {error}") from None
            commands.append(Command(tile, index, self.tiles.index(tile) * len(_LANES) + lane, orders[lane], fields,
                                    touches, self._nothing()))
            orders[lane] += 1
        return commands

    def _nothing(self) -> np.ndarray:
        return np.zeros(self.engines + len(self.tiles), np.int64)

    def check_memory(self, regions: Sequence[Region]) -> None:
        written = {i: np.zeros(r.size, np.uint8) for i, r in enumerate(regions) if r.whole}
        for command in (c for stream in self.streams for c in stream):
            for runs, stores in ((command.touches.fetched, False), (command.touches.stored, True)):
                self._check_runs(command, runs, stores, regions, written)
        for i, count in written.items():
            if not (count == 1).all():
                at = int(np.argmax(count != 1))
                raise StreamError(f"byte {at} of the buffer at {regions[i].address:#x} is written {count[at]} times")

    def _check_runs(self, command: Command, runs: Runs, stores: bool, regions: Sequence[Region],
                    written: dict[int, np.ndarray]) -> None:
        if runs.extent is None:
            return
        low, high = runs.extent
        inside = [i for i, r in enumerate(regions) if r.address <= low and high <= r.address + r.size
                  and (r.shared or r.writable == stores)]
        if not inside:
            verb = "writes" if stores else "reads"
            raise StreamError(f"{self.name(command)} {verb} bytes {low:#x}..{high:#x}, which lie in no buffer it may "
                              "use")
        if inside[0] in written:
            np.add.at(written[inside[0]], runs.bytes - regions[inside[0]].address, 1)

    def _ports(self, command: Command, kind: str) -> list[tuple[tuple[int, int], int]]:
        """((tile, semaphore), count) of the command's waits or signals."""
        c = command.fields
        ports = []
        for i in range(2):
            if c[f"{kind}{i}_enable"]:
                remote = kind == "signal" and c[f"signal{i}_remote"]
                tile = c[f"signal{i}_tile"] if remote else command.tile
                if tile not in self.tiles:
                    raise StreamError(f"{self.name(command)} signals tile {tile}, which is not of the group")
                ports.append(((tile, c[f"{kind}{i}_semaphore"]), c[f"wait{i}_count"] if kind == "wait" else 1))
        return ports

    def check_semaphores(self) -> None:
        for kind in ("wait", "signal"):
            users: dict[tuple[int, int], set[int]] = defaultdict(set)
            for command in (c for stream in self.streams for c in stream):
                names = [s for s, _ in self._ports(command, kind)]
                if len(set(names)) < len(names):
                    raise StreamError(f"{self.name(command)} names semaphore {names[0][1]} twice")
                for semaphore in names:
                    users[semaphore].add(command.engine)
            for (_, number), engines in users.items():
                if len(engines) > 1:
                    raise StreamError(f"semaphore {number}: several engines {kind} it, so its order depends on "
                                      "timing")

    # -- the order in which commands can run --------------------------------------------------------------

    def simulate(self, queue_depth: int) -> list[Command]:
        """Run the semaphores; the commands in an order in which they can run, with what each knows to have ended."""
        self._tokens: dict[tuple[int, int], list[np.ndarray]] = defaultdict(list)  # what each signal not taken tells
        self._queues: list[list[Command]] = [[] for _ in range(self.engines)]
        self._latest = [self._nothing() for _ in range(self.engines)]
        self._order: list[Command] = []
        fetched = [0] * len(self.tiles)
        while True:
            for t, stream in enumerate(self.streams):
                while fetched[t] < len(stream) and len(self._queues[stream[fetched[t]].engine]) < queue_depth:
                    self._queues[stream[fetched[t]].engine].append(stream[fetched[t]])
                    fetched[t] += 1
            members = next((m for q in self._queues if q and (m := self._runnable(q[0]))), None)
            if members is None:
                break
            self._run(members)
        if len(self._order) < sum(map(len, self.streams)):
            raise StreamError("deadlock: " + "; ".join(self._waits(q[0]) for q in self._queues if q))
        left = {number: len(tokens) for (_, number), tokens in self._tokens.items() if tokens}
        if left:
            raise StreamError(f"signals that nobody takes are left on semaphores {left}")
        return self._order

    def _ready(self, command: Command) -> bool:
        return all(len(self._tokens[s]) >= n for s, n in self._ports(command, "wait"))

    def _runnable(self, command: Command) -> list[Command] | None:
        """The commands that run together with ``command``, itself alone mostly; None: not yet."""
        if not self._ready(command):
            return None
        if command.lane != Opcode.RING:
            return [command]
        c, members = command.fields, []
        for tile in range(c["first"], c["first"] + c["size"]):
            if tile not in self.tiles:
                raise StreamError(f"{self.name(command)} waits for tile {tile}, which runs nothing")
            queue = self._queues[self.tiles.index(tile) * len(_LANES) + _LANES.index(Opcode.RING)]
            if not queue or not self._ready(queue[0]):
                return None
            for name in ("operation", "first", "size", "number", "bytes", "root", "saturate"):
                if queue[0].fields[name] != c[name]:
                    raise StreamError(f"{self.name(command)} and {self.name(queue[0])}: one collective, but {name} is "
                                      f"{c[name]} and {queue[0].fields[name]}")
            members.append(queue[0])
        return members

    def _run(self, members: list[Command]) -> None:
        for command in members:
            self._queues[command.engine].pop(0)
            knows = self._latest[command.engine].copy()
            knows[self.engines + self.tiles.index(command.tile)] = 1
            for semaphore, count in self._ports(command, "wait"):
                taken, self._tokens[semaphore] = self._tokens[semaphore][:count], self._tokens[semaphore][count:]
                knows = np.maximum.reduce([knows, *taken])
            command.knows = knows
        c = members[0].fields
        told = [m.knows for m in members]
        if members[0].lane == Opcode.RING and c["operation"] == Collective.BROADCAST:
            told = [m.knows for m in members if m.tile == c["root"]]
        for command in members:
            after = np.maximum.reduce([command.knows, *told])
            self._latest[command.engine] = after
            tells = after.copy()
            tells[command.engine] = command.order + 1
            for semaphore, _ in self._ports(command, "signal"):
                if not tells[self.engines + self.tiles.index(semaphore[0])]:
                    raise StreamError(f"{self.name(command)} signals tile {semaphore[0]}, whose job may not run yet: a "
                                      "BARRIER must come first")
                self._tokens[semaphore].append(tells)
                if len(self._tokens[semaphore]) >> SEMAPHORE_BITS:
                    raise StreamError(f"{self.name(command)}: semaphore {semaphore[1]} counts beyond {SEMAPHORE_BITS} "
                                      "bits")
            self._order.append(command)

    def _waits(self, command: Command) -> str:
        missing = [str(s) for (_, s), n in self._ports(command, "wait") if len(self._tokens[(command.tile, s)]) < n]
        if missing:
            return f"{self.name(command)} waits for semaphore {' and '.join(missing)}"
        c = command.fields
        return f"{self.name(command)} waits for tiles {c['first']}..{c['first'] + c['size'] - 1}"
