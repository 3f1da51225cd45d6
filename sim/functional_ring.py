"""RING commands in numpy: what the tiles of a group hold once a collective has ended."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Code, Collective
from ringloom.hw.ring.collective.schedule import block_bytes, fold_order

from .functional_engines import Fault

__all__ = ["check_ring", "run_ring"]

_ALIGNMENT = 64


def check_ring(c: dict[str, int], tile: int, config: DeviceConfig, inside: Callable[[int, int], None]) -> None:
    """Raise the fault of a RING command of ``tile``. inside: raises where bytes leave the job's window."""
    if c["operation"] not in list(Collective):
        raise Fault(Code.BAD_FIELD)
    operation = Collective(c["operation"])
    first, size = c["first"], c["size"]
    bad: Any = not size or first + size > config.tiles or not first <= tile < first + size
    if operation != Collective.BARRIER:
        bad = bad or not c["bytes"] or c["source"] % _ALIGNMENT or c["destination"] % _ALIGNMENT
    if operation == Collective.BROADCAST:
        bad = bad or not first <= c["root"] < first + size
    if operation in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
        bad = bad or c["pitch"] % _ALIGNMENT or c["pitch"] < c["bytes"]
    if operation in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER):
        bad = bad or (not c["saturate"] and c["bytes"] % 4)
    if bad:
        raise Fault(Code.BAD_FIELD)
    reads, writes = _extents(c, tile)
    low, high = tile * config.memory.bytes, (tile + 1) * config.memory.bytes
    for address, count in ((c["source"], reads), (c["destination"], writes)):
        if count:
            inside(address, count)
            if not low <= address or address + count > high:
                raise Fault(Code.MEMORY_WINDOW, address)


def _extents(c: dict[str, int], tile: int) -> tuple[int, int]:
    """Bytes from ``source`` and from ``destination`` on that the command of ``tile`` touches."""
    whole = c["pitch"] * (c["size"] - 1) + c["bytes"]
    return {Collective.BARRIER: (0, 0), Collective.REDUCE_SCATTER: (whole, c["bytes"]),
            Collective.ALL_GATHER: (c["bytes"], whole),
            Collective.BROADCAST: (c["bytes"] if tile == c["root"] else 0, c["bytes"]),
            }.get(Collective(c["operation"]), (c["bytes"], c["bytes"]))


def _sum(vectors: Sequence[np.ndarray], saturate: int) -> np.ndarray:
    """The sum in the order given: int32 wraps; int8 saturates at each addition."""
    if not saturate:
        return np.sum([v.view(np.int32).astype(np.int64) for v in vectors], axis=0).astype(np.int32).view(np.uint8)
    total = vectors[0].view(np.int8).astype(np.int16)
    for vector in vectors[1:]:
        total = np.clip(total + vector.view(np.int8), -128, 127)
    return total.astype(np.int8).view(np.uint8)


def _pieces(count: int, size: int, config: DeviceConfig) -> np.ndarray:
    """The piece that each byte of an all-reduce over all ``size`` tiles belongs to: blocks of flits go round."""
    return np.arange(count) // block_bytes(config) % size


def run_ring(commands: Sequence[dict[str, int]], memory: np.ndarray, config: DeviceConfig) -> None:
    """Run the collective whose command of each tile of the group is given, in the order of the tiles.

    On the closed ring (the group is all tiles) piece p is summed from tile p + 1 on around to tile p, where the pieces
    of an all-reduce are blocks that take turns; in an open group everything is summed from the first tile to the last.
    """
    c = commands[0]
    size, count, pitch, saturate = c["size"], c["bytes"], c["pitch"], c["saturate"]
    closed = size == config.tiles
    operation = Collective(c["operation"])

    def order(piece: int) -> list[int]:
        return fold_order(config, 0, size, piece)

    def at(address: int, length: int) -> np.ndarray:
        return memory[address:address + length]

    results: list[tuple[int, np.ndarray]] = []  # all is read before anything is written
    if operation == Collective.ALL_REDUCE:
        vectors = [at(k["source"], count).copy() for k in commands]
        total = _sum([vectors[t] for t in order(0)], saturate)
        if closed and saturate:  # only there does the order show
            sums = [_sum([vectors[t] for t in order(p)], saturate) for p in range(size)]
            total = np.choose(_pieces(count, size, config), sums)
        results = [(k["destination"], total) for k in commands]
    elif operation == Collective.REDUCE_SCATTER:
        results = [(k["destination"], _sum([at(commands[t]["source"] + p * pitch, count).copy() for t in order(p)],
                                           saturate)) for p, k in enumerate(commands)]
    elif operation == Collective.ALL_GATHER:
        pieces = [at(k["source"], count).copy() for k in commands]
        results = [(k["destination"] + p * pitch, piece) for k in commands for p, piece in enumerate(pieces)]
    elif operation == Collective.BROADCAST:
        root = commands[c["root"] - c["first"]]
        results = [(k["destination"], at(root["source"], count).copy()) for k in commands]
    for address, values in results:
        at(address, len(values))[:] = values
