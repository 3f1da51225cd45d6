"""What collectives do, in numpy, and random programs of them for all tiles."""

import random
from dataclasses import dataclass, field

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Collective
from ringloom.sim.collective_bench import Command

GUARD = 0xA5
SIZES = (4, 8, 28, 32, 36, 60, 64, 68, 124, 128, 132, 508, 512, 516, 1020, 1024, 1028, 2044, 2048, 2052, 4096, 4100)


def added(vectors: list[np.ndarray], order: list[int], saturate: bool) -> np.ndarray:
    """The bytes of ``vectors``, added in ``order``: int8 that saturates each time, or int32 that wraps."""
    total = vectors[order[0]]
    for index in order[1:]:
        if saturate:
            exact = total.view(np.int8).astype(np.int16) + vectors[index].view(np.int8)
            total = np.clip(exact, -128, 127).astype(np.int8).view(np.uint8)
        else:
            total = (total.view(np.uint32) + vectors[index].view(np.uint32)).view(np.uint8)
    return total


def around(piece: int, size: int) -> list[int]:
    """The order of a sum that goes once around the ring and ends at its piece's tile."""
    return [(piece + 1 + step) % size for step in range(size)]


def all_reduced(config: DeviceConfig, vectors: list[np.ndarray], saturate: bool) -> np.ndarray:
    """The sum, each block of 16 flits in the order of its piece where the group is the whole ring."""
    size, block = len(vectors), 16 * config.ring.data_bits // 8
    if size < config.tiles:
        return added(vectors, list(range(size)), saturate)
    parts = []
    for number, at in enumerate(range(0, len(vectors[0]), block)):
        parts.append(added([vector[at:at + block] for vector in vectors], around(number % size, size), saturate))
    return np.concatenate(parts)


@dataclass
class Program:
    """Commands of each tile, what memory holds before, and what it must hold afterwards."""

    config: DeviceConfig
    before: list[np.ndarray]
    after: list[np.ndarray]
    tiles: list[list[Command]]
    number: int = 1
    place: list[int] = field(default_factory=list)  # first free byte of each tile's memory

    @classmethod
    def empty(cls, config: DeviceConfig, number: int = 1) -> "Program":
        count = config.tiles
        before = [np.full(config.memory.bytes, GUARD, np.uint8) for _ in range(count)]
        return cls(config, before, [m.copy() for m in before], [[] for _ in range(count)], number, [64] * count)

    def take(self, tile: int, size: int, shift: int = 0) -> int:
        """Room for ``size`` bytes in a tile's memory, with guard bytes behind; its place there."""
        at = self.place[tile] + shift
        self.place[tile] = at + -(-size // 64) * 64 + 64
        assert self.place[tile] <= self.config.memory.bytes
        return at

    def add(self, operation: Collective, rng: np.random.Generator, *, first: int = 0, size: int | None = None,
            bytes: int = 4, pitch: int | None = None, saturate: bool = False, root: int = 0, in_place: bool = False,
            shifts: bool = True, extreme: bool = False, **timing) -> None:
        """One collective of a group. timing: of the commands; ``earliest`` may be a list, a cycle for each tile.

        in_place: the destination is the source. shifts: at other addresses in each tile. extreme: -128 and 127 alone.
        """
        size = self.config.tiles if size is None else size
        pitch = -(-bytes // 64) * 64 if pitch is None else pitch
        earliest = timing.pop("earliest", 0)
        scatter, gather = operation == Collective.REDUCE_SCATTER, operation == Collective.ALL_GATHER
        spread = (size - 1) * pitch + bytes
        given = []
        for index, tile in enumerate(range(first, first + size)):
            shift = 64 * int(rng.integers(0, 5)) if shifts else 0
            source_bytes, wide = spread if scatter else bytes, spread if gather else bytes
            source = self.take(tile, max(source_bytes, wide) if in_place else source_bytes, shift)
            inner = index * pitch if in_place and gather else 0  # its piece already lies where it belongs
            destination = source if in_place else self.take(tile, wide)
            values = rng.integers(0, 256, source_bytes, np.uint8)
            if extreme:
                values = rng.choice(np.array([0x80, 0x7F], np.uint8), source_bytes)
            if operation != Collective.BARRIER:
                for image in (self.before, self.after):
                    image[tile][source + inner:source + inner + source_bytes] = values
            given.append((tile, source + inner, destination, values))
            fields = {"operation": operation, "first": first, "size": size, "number": self.number & 0xFFFF,
                      "source": tile * self.config.memory.bytes + source + inner,
                      "destination": tile * self.config.memory.bytes + destination, "bytes": bytes, "pitch": pitch,
                      "saturate": saturate, "root": first + root}
            when = earliest[index] if isinstance(earliest, list) else earliest
            self.tiles[tile].append(Command(fields, earliest=when, **timing))
        self.number += 1
        vectors = [values for *_, values in given]
        for index, (tile, _, destination, _) in enumerate(given):
            def put(at: int, values: np.ndarray, tile: int = tile, destination: int = destination) -> None:
                self.after[tile][destination + at:destination + at + len(values)] = values
            if operation == Collective.ALL_REDUCE:
                put(0, all_reduced(self.config, vectors, saturate))
            elif scatter:
                whole = size == self.config.tiles
                order = around(index, size) if whole else list(range(size))
                put(0, added([vector[index * pitch:index * pitch + bytes] for vector in vectors], order, saturate))
            elif gather:
                for piece, vector in enumerate(vectors):
                    put(piece * pitch, vector)
            elif operation == Collective.BROADCAST:
                put(0, vectors[root])

    def random(self, rng: random.Random, numbers: np.random.Generator, *, most: int = 4100) -> None:
        """One collective in each of some groups, side by side on the ring."""
        at = 0
        while at < self.config.tiles:
            if rng.random() < 0.15:
                at += 1
                continue
            size = self.config.tiles - at if rng.random() < 0.4 else rng.randint(1, self.config.tiles - at)
            operation = rng.choice(list(Collective))
            count = rng.choice([rng.choice(SIZES), 4 * rng.randint(1, most // 4)])
            saturate = rng.random() < 0.5
            if saturate or operation in (Collective.ALL_GATHER, Collective.BROADCAST):
                count = max(1, count - rng.choice((0, 0, 1, 3)))
            count = min(count, most)
            in_place = operation not in (Collective.REDUCE_SCATTER,) and rng.random() < 0.4
            pitch = -(-count // 64) * 64 + 64 * rng.choice((0, 0, 1, 5))
            start = rng.choice((0, 0, rng.randint(0, 3000)))
            skew = rng.choice((0, 0, 3, 40, 2000))
            self.add(operation, numbers, first=at, size=size, bytes=count, pitch=pitch, saturate=saturate,
                     root=rng.randrange(size), in_place=in_place, extreme=rng.random() < 0.2,
                     earliest=[start + rng.randint(0, skew) for _ in range(size)])
            at += size
