"""A static checker of command streams: no deadlock, no hazard, nothing outside the buffers.

It reads command bytes and knows nothing of how they were made. It runs the semaphores alone, with the shortest
queues the hardware could have, and carries along what each command may rely on to have ended (one number an engine,
since an engine's commands end in order). Two commands of different engines that touch one place, one of them
writing, must be ordered by that knowledge; one engine keeps its own order.

Each semaphore must have one engine that signals and one that waits. Then the stream behaves the same in every
timing, and a deadlock or a hazard that exists is found, whatever the order in which it is walked.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringloom.errors import Error
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import RECORD_BYTES, SEMAPHORE_BITS, VERSION, Opcode, Target, record_of
from ringloom.hw.memory.blocks import block_shapes

from .footprint import BadField, Footprint, footprint

__all__ = ["Region", "StreamError", "check_stream"]

_ENGINES = (Opcode.LOAD, Opcode.MATMUL, Opcode.STORE)


class StreamError(Error):
    """A command stream that must not run."""


@dataclass(frozen=True)
class Region:
    """A buffer: ``size`` bytes at ``address``; ``writable`` buffers are written alone, the others read alone.

    whole: every byte must be written exactly once.
    """

    address: int
    size: int
    writable: bool = False
    whole: bool = False


@dataclass
class _Command:
    index: int
    engine: int
    order: int  # among the commands of its engine
    fields: dict[str, int]
    touches: Footprint
    knows: np.ndarray  # for each engine, how many of its commands have surely ended when this one starts

    def __str__(self) -> str:
        return f"command {self.index} ({_ENGINES[self.engine].name})"


def check_stream(raw: bytes, regions: Sequence[Region], config: DeviceConfig, *, queue_depth: int = 1) -> None:
    """Raise :class:`StreamError` naming the command for anything wrong in the command records ``raw``."""
    commands = _decode(raw, config)
    _check_memory(commands, regions)
    _check_semaphores(commands)
    _check_hazards(_simulate(commands, queue_depth), config)


def _decode(raw: bytes, config: DeviceConfig) -> list[_Command]:
    if len(raw) % RECORD_BYTES:
        raise StreamError(f"{len(raw)} bytes are no whole number of {RECORD_BYTES}-byte records")
    commands, orders = [], [0] * len(_ENGINES)
    for index in range(len(raw) // RECORD_BYTES):
        record = raw[index * RECORD_BYTES:(index + 1) * RECORD_BYTES]
        if record[0] != VERSION or record[1] not in _ENGINES:
            raise StreamError(f"command {index}: version {record[0]}, opcode {record[1]}")
        engine = _ENGINES.index(Opcode(record[1]))
        fields = record_of(record[1]).decode(record)
        try:
            touches = footprint(fields, config)
        except BadField as error:
            raise StreamError(f"command {index} ({_ENGINES[engine].name}): {error}") from None
        commands.append(_Command(index, engine, orders[engine], fields, touches, np.zeros(len(_ENGINES), np.int64)))
        orders[engine] += 1
    return commands


def _check_memory(commands: list[_Command], regions: Sequence[Region]) -> None:
    written = {i: np.zeros(r.size, np.uint8) for i, r in enumerate(regions) if r.whole}
    for command in commands:
        touches = command.touches
        if not touches.memory.size:
            continue
        low, high = int(touches.memory.min()), int(touches.memory.max()) + touches.run
        inside = [i for i, r in enumerate(regions) if r.address <= low and high <= r.address + r.size
                  and r.writable == touches.stores]
        if not inside:
            verb = "writes" if touches.stores else "reads"
            raise StreamError(f"{command} {verb} bytes {low:#x}..{high:#x}, which lie in no buffer it may use")
        if inside[0] in written:
            where = touches.memory[:, None] - regions[inside[0]].address + np.arange(touches.run)
            written[inside[0]][where.ravel()] += 1
    for i, count in written.items():
        if not (count == 1).all():
            at = int(np.argmax(count != 1))
            raise StreamError(f"byte {at} of the buffer at {regions[i].address:#x} is written {count[at]} times")


def _ports(command: _Command, kind: str) -> list[tuple[int, int]]:
    """(semaphore, count) of the command's waits or signals."""
    c = command.fields
    return [(c[f"{kind}{i}_semaphore"], c[f"wait{i}_count"] if kind == "wait" else 1)
            for i in range(2) if c[f"{kind}{i}_enable"]]


def _check_semaphores(commands: list[_Command]) -> None:
    for kind in ("wait", "signal"):
        users: dict[int, set[int]] = defaultdict(set)
        for command in commands:
            names = [s for s, _ in _ports(command, kind)]
            if len(set(names)) < len(names):
                raise StreamError(f"{command} names semaphore {names[0]} twice")
            for semaphore in names:
                users[semaphore].add(command.engine)
        for semaphore, engines in users.items():
            if len(engines) > 1:
                raise StreamError(f"semaphore {semaphore}: several engines {kind} it, so its order depends on timing")


def _simulate(commands: list[_Command], queue_depth: int) -> list[_Command]:
    """Run the semaphores; the commands in an order in which they can run, with what each knows to have ended."""
    tokens: dict[int, list[np.ndarray]] = defaultdict(list)  # what each signal not yet taken tells
    queues: list[list[_Command]] = [[] for _ in _ENGINES]
    latest = [np.zeros(len(_ENGINES), np.int64) for _ in _ENGINES]
    order: list[_Command] = []
    fetched = 0
    while True:
        while fetched < len(commands) and len(queues[commands[fetched].engine]) < queue_depth:
            queues[commands[fetched].engine].append(commands[fetched])
            fetched += 1
        ready = [q for q in queues if q and all(len(tokens[s]) >= n for s, n in _ports(q[0], "wait"))]
        if not ready:
            break
        command = ready[0].pop(0)
        knows = latest[command.engine]
        for semaphore, count in _ports(command, "wait"):
            taken, tokens[semaphore] = tokens[semaphore][:count], tokens[semaphore][count:]
            knows = np.maximum.reduce([knows, *taken])
        latest[command.engine] = command.knows = knows
        tells = knows.copy()
        tells[command.engine] = command.order + 1
        for semaphore, _ in _ports(command, "signal"):
            tokens[semaphore].append(tells)
            if len(tokens[semaphore]) >> SEMAPHORE_BITS:
                raise StreamError(f"{command}: semaphore {semaphore} counts beyond {SEMAPHORE_BITS} bits")
        order.append(command)
    if len(order) < len(commands):
        stuck = "; ".join(f"{q[0]} waits for semaphore " + " and ".join(
            str(s) for s, n in _ports(q[0], "wait") if len(tokens[s]) < n) for q in queues if q)
        raise StreamError(f"deadlock: {stuck}")
    left = {s: len(t) for s, t in tokens.items() if t}
    if left:
        raise StreamError(f"signals that nobody takes are left on semaphores {left}")
    return order


def _check_hazards(order: list[_Command], config: DeviceConfig) -> None:
    shapes = block_shapes(config)
    engines = range(len(_ENGINES))
    # for each place the number of the last command (1 on) of each engine that read or wrote it; 0: none
    reads = {t: np.zeros((len(_ENGINES), s.blocks), np.int64) for t, s in shapes.items()}
    writes = {t: np.zeros((len(_ENGINES), s.blocks), np.int64) for t, s in shapes.items()}

    def ordered(command: _Command, target: Target, blocks: np.ndarray, before: np.ndarray, what: str) -> None:
        for engine in engines:
            if engine != command.engine:
                late = before[engine, blocks] > command.knows[engine]
                if late.any():
                    block = int(blocks[late][0])
                    other = next(c for c in order if c.engine == engine and c.order == before[engine, block] - 1)
                    raise StreamError(f"{what}: {command} and {other} touch {target.name} block {block}, and nothing "
                                      "orders them")

    for command in order:
        for target, blocks in command.touches.reads.items():
            if not writes[target][:, blocks].any(axis=0).all():
                raise StreamError(f"{command} reads {target.name} blocks that nothing has written")
            ordered(command, target, blocks, writes[target], "read after write")
            reads[target][command.engine, blocks] = command.order + 1
        for target, blocks in command.touches.writes.items():
            ordered(command, target, blocks, writes[target], "write after write")
            ordered(command, target, blocks, reads[target], "write after read")
            writes[target][command.engine, blocks] = command.order + 1
