"""Places that two engines touch: scratchpad blocks, accumulator words, and bytes of memory that are read and written.

Whatever touches a place after another engine must know that the other's command has ended.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.memory.blocks import block_shapes

if TYPE_CHECKING:
    from .checker import Command

__all__ = ["Hazard", "check_memory_order", "check_scratchpads"]


class Hazard(Exception):
    """Two commands that nothing orders, or a place that is read before it is written."""


class _Places:
    """The last command of each engine that read, and that wrote, each place; commands count from 1, 0 is none."""

    def __init__(self, order: Sequence["Command"], count: int, name: str, first: int = 0) -> None:
        engines = max((c.engine for c in order), default=0) + 1
        self._order, self._name, self._first = order, name, first
        self._reads = np.zeros((engines, count), np.int64)
        self._writes = np.zeros((engines, count), np.int64)

    def written(self, places: np.ndarray) -> bool:
        return bool(self._writes[:, places].any(axis=0).all())

    def read(self, command: "Command", places: np.ndarray) -> None:
        self._ordered(command, places, self._writes, "read after write")
        self._reads[command.engine, places] = command.order + 1

    def write(self, command: "Command", places: np.ndarray) -> None:
        self._ordered(command, places, self._writes, "write after write")
        self._ordered(command, places, self._reads, "write after read")
        self._writes[command.engine, places] = command.order + 1

    def _ordered(self, command: "Command", places: np.ndarray, before: np.ndarray, what: str) -> None:
        for engine in range(len(before)):
            late = before[engine, places] > command.knows[engine]
            if engine != command.engine and late.any():
                place = int(places[late][0])
                other = next(c for c in self._order if c.engine == engine and c.order == before[engine, place] - 1)
                tiles = f" (tiles {command.tile}, {other.tile})" if other.tile != command.tile else ""
                raise Hazard(f"{what}: {command} and {other}{tiles} touch {self._name} {self._first + place}, and "
                             "nothing orders them")


def check_scratchpads(order: Sequence["Command"], config: DeviceConfig) -> None:
    """Raise :class:`Hazard` for blocks of the scratchpads; ``order`` is one in which the commands can run."""
    shapes = block_shapes(config)
    places = {(tile, target): _Places(order, shape.blocks, f"{target.name} block")
              for tile in {c.tile for c in order} for target, shape in shapes.items()}
    for command in order:
        for target, blocks in command.touches.reads.items():
            if not places[command.tile, target].written(blocks):
                raise Hazard(f"{command} reads {target.name} blocks that nothing has written")
            places[command.tile, target].read(command, blocks)
        for target, blocks in command.touches.writes.items():
            places[command.tile, target].write(command, blocks)


def check_memory_order(order: Sequence["Command"], address: int, size: int) -> None:
    """Raise :class:`Hazard` for the ``size`` bytes of memory at ``address``."""
    places = _Places(order, size, "byte", address)
    for command in order:
        for runs, touch in ((command.touches.fetched, places.read), (command.touches.stored, places.write)):
            if runs.extent and runs.extent[0] < address + size and address < runs.extent[1]:
                where = runs.bytes - address
                touch(command, where[(where >= 0) & (where < size)])
