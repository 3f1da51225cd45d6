"""Several tiles in one device: jobs for each, memory as one array, copies between memories as work."""

import random
from dataclasses import dataclass, field

import numpy as np

from ringloom.hw import isa
from ringloom.hw.config import DeviceConfig
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim.simulator import Simulator
from tests.support.control import command, job

LIMIT = 200_000
JOB, COMPLETION, SOURCE, TARGET = 0x0, 0x2000, 0x4000, 0x8000
"""In each tile's memory: its job, its completion record, bytes that are only read, bytes that are only written."""


@dataclass
class Copy:
    """``rows`` rows of 4 ``columns`` bytes, through the accumulators."""

    source: int
    target: int
    rows: int
    source_stride: int
    target_stride: int


def copy_job(config: DeviceConfig, copies: list[Copy], tile: int, *, records=(), tail=(), **fields) -> bytes:
    """A job of ``tile`` that does ``copies`` one behind the other, two at a time, between ``records`` and ``tail``."""
    width = 4 * config.tile.array.columns
    half = config.tile.accumulator_words // 2
    commands = list(records)
    for number, one in enumerate(copies):
        assert one.rows <= half
        place = half * (number % 2)
        commands += [
            command("load", waits=[(1, 1)] if number >= 2 else [], signals=[0], target=isa.Target.ACCUMULATOR,
                    address=one.source, rows=one.rows, planes=1, row_bytes=width, row_stride=one.source_stride,
                    row_blocks=1, block_pitch=1, row_pitch=1, destination=place),
            command("store", waits=[(0, 1)], signals=[1], rounding=isa.Rounding.RAW, address=one.target, rows=one.rows,
                    row_stride=one.target_stride, columns=config.tile.array.columns, accumulator=place),
        ]
    values = {"completion_address": base(config, tile) + COMPLETION, "job": tile + 1, **fields}
    return job([*commands, *tail], **values)


def base(config: DeviceConfig, tile: int) -> int:
    return tile * config.memory.bytes


def random_copies(config: DeviceConfig, seed: int, count: int, *, target_tile: int | None = None) -> list[list[Copy]]:
    """For each tile, copies from any memory to any (or one) memory, any alignment; no target byte is written twice."""
    rng = random.Random(seed)
    width = 4 * config.tile.array.columns
    room = [TARGET + 64] * config.tiles
    jobs: list[list[Copy]] = [[] for _ in range(config.tiles)]
    for _ in range(count):
        for copies in jobs:
            rows = rng.choice((1, 2, 3, rng.randrange(1, 9), 40))
            source_stride, target_stride = width + rng.choice((0, 0, 1, 17, 240)), width + rng.choice((0, 0, 3, 33))
            to = rng.randrange(config.tiles) if target_tile is None else target_tile
            target = room[to] + rng.randrange(70)
            if target + rows * target_stride > config.memory.bytes:
                continue
            room[to] = target + rows * target_stride
            source = rng.randrange(SOURCE, TARGET - rows * source_stride)
            copies.append(Copy(base(config, rng.randrange(config.tiles)) + source, base(config, to) + target, rows,
                               source_stride, target_stride))
    return jobs


def apply(config: DeviceConfig, pool: np.ndarray, jobs: list[list[Copy]]) -> None:
    """What the copies do, in numpy."""
    width = 4 * config.tile.array.columns
    for copies in jobs:
        for one in copies:
            for row in range(one.rows):
                source, target = one.source + row * one.source_stride, one.target + row * one.target_stride
                pool[target:target + width] = pool[source:source + width]


@dataclass
class Many:
    """Jobs on the tiles of a simulator without firmware."""

    simulator: Simulator
    ends: list[int] = field(default_factory=list)

    @property
    def config(self) -> DeviceConfig:
        return self.simulator.config

    def pool(self) -> np.ndarray:
        """A copy of all memories as one."""
        return np.concatenate([self.simulator.memory(t) for t in range(self.config.tiles)])

    def fill(self, seed: int) -> None:
        for t in range(self.config.tiles):
            memory = self.simulator.memory(t)
            memory[:] = np.random.default_rng((seed, t)).integers(0, 256, memory.size, np.uint8)

    def place(self, tile: int, raw: bytes, address: int = JOB) -> None:
        """Put a job into a tile's memory and name it in its registers."""
        self.simulator.memory(tile)[address:address + len(raw)] = np.frombuffer(raw, np.uint8)
        self.simulator.memory(tile)[COMPLETION:COMPLETION + 64] = 0
        where = base(self.config, tile) + address
        self.simulator.write(tile_register(tile, "job_low"), where & 0xFFFFFFFF)
        self.simulator.write(tile_register(tile, "job_high"), where >> 32)

    def start(self, tiles: int) -> None:
        """Ring the doorbells of a set of tiles at once."""
        self.simulator.write(control_register("irq_enable"), 0xFFFF)
        self.simulator.write(control_register("doorbell"), tiles)

    def finish(self, tiles: int) -> dict[int, dict[str, int]]:
        """Wait for the ends of a set of tiles; their completion records."""
        waiting = tiles
        while waiting:
            assert self.simulator.run(LIMIT), f"tiles {waiting:#b} do not end: {self.states()}"
            ended = self.simulator.read(control_register("irq_status"))
            self.simulator.write(control_register("irq_status"), ended)
            self.ends.append(self.simulator.cycle)
            waiting &= ~ended
        return {t: self.record(t) for t in range(self.config.tiles) if tiles >> t & 1}

    def record(self, tile: int) -> dict[str, int]:
        return isa.COMPLETION.decode(self.simulator.memory(tile)[COMPLETION:COMPLETION + 64].tobytes())

    def states(self) -> list[list[str]]:
        return [[hex(self.simulator.read(tile_register(t, name)))
                 for name in ("status", "load_state", "matmul_state", "store_state", "fetched")]
                for t in range(self.config.tiles)]
