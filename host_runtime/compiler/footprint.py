"""What a command touches: scratchpad blocks, accumulator words, parameter records and bytes of memory.

Written from ``hw/isa.py`` for the checker; it shares nothing with the scheduler that made the commands.
"""

from dataclasses import dataclass, field

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Collective, Opcode, Rounding, Target
from ringloom.hw.memory.blocks import block_shapes

__all__ = ["Footprint", "Runs", "BadField", "footprint"]


class BadField(Exception):
    """A field that the hardware cannot do."""


@dataclass
class Runs:
    """Bytes of memory: ``length`` bytes from each of ``starts`` on."""

    starts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    length: int = 0

    @property
    def extent(self) -> tuple[int, int] | None:
        """The first byte and the one behind the last; None where there are none."""
        if not self.starts.size or not self.length:
            return None
        return int(self.starts.min()), int(self.starts.max()) + self.length

    @property
    def bytes(self) -> np.ndarray:
        """Every address."""
        return (self.starts[:, None] + np.arange(self.length)).ravel()


@dataclass
class Footprint:
    """reads, writes: block numbers of each on-chip memory. fetched, stored: bytes of memory."""

    reads: dict[Target, np.ndarray] = field(default_factory=dict)
    writes: dict[Target, np.ndarray] = field(default_factory=dict)
    fetched: Runs = field(default_factory=Runs)
    stored: Runs = field(default_factory=Runs)


def _grid(base: int, *axes: tuple[int, int]) -> np.ndarray:
    """base + every sum of one multiple of each axis' pitch: axes are (count, pitch)."""
    total = np.array([base], np.int64)
    for count, pitch in axes:
        total = (total[:, None] + pitch * np.arange(count, dtype=np.int64)).ravel()
    return total


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise BadField(text)


def footprint(command: dict[str, int], config: DeviceConfig, tile: int = 0) -> Footprint:
    """Everything that ``command`` of ``tile`` reads and writes. Raises :class:`BadField`."""
    opcode = Opcode(command["opcode"])
    if opcode == Opcode.RING:
        return _ring(command, config, tile)
    result = {Opcode.LOAD: _load, Opcode.MATMUL: _matmul, Opcode.STORE: _store}[opcode](command, config)
    shapes = block_shapes(config)
    for touched in (result.reads, result.writes):
        for target, blocks in touched.items():
            outside = blocks[(blocks < 0) | (blocks >= shapes[target].blocks)]
            _require(not outside.size, f"{target.name} block {outside[:1]} of {shapes[target].blocks}")
    return result


def _load(c: dict[str, int], config: DeviceConfig) -> Footprint:
    _require(c["target"] in list(Target), f"target {c['target']}")
    target = Target(c["target"])
    shape = block_shapes(config)[target]
    rows = c["rows"] - c["pad_top"] - c["pad_bottom"]
    _require(c["rows"] > 0 and c["planes"] > 0 and c["row_blocks"] > 0, "a count of zero")
    _require(rows >= 0, "more padding than rows")
    _require(c["row_blocks"] == 1 or shape.per_write == 1 or c["block_pitch"] % 2 == 1, "an even block pitch")
    room = c["row_blocks"] * (1 if c["transpose"] else shape.bytes)
    _require(c["pad_left"] + c["row_bytes"] <= room, "more bytes in a row than its blocks hold")
    _require(not (c["transpose"] and c["pad_left"]), "pad_left in a transposed LOAD")
    groups = -(-c["rows"] // shape.bytes) if c["transpose"] else c["rows"]
    blocks = _grid(c["destination"], (c["planes"], c["plane_pitch"]), (groups, c["row_pitch"]),
                   (c["row_blocks"], c["block_pitch"]))
    memory = _grid(c["address"], (c["planes"], c["plane_stride"]), (rows if c["row_bytes"] else 0, c["row_stride"]))
    return Footprint(writes={target: blocks}, fetched=Runs(memory, c["row_bytes"]))


def _matmul(c: dict[str, int], config: DeviceConfig) -> Footprint:
    array = config.tile.array
    _require(c["rows"] > 0 and c["k_steps"] > 0 and c["n_steps"] > 0, "a count of zero")
    _require(array.load_rows == 1 or c["weight_row_pitch"] % 2 == 1, "an even weight row pitch")
    for name, signed in (("a_zero_point", c["a_signed"]), ("b_zero_point", c["b_signed"])):
        low, high = (-128, 127) if signed else (0, 255)
        _require(low <= c[name] <= high, f"{name} {c[name]} outside its type")
    bank = config.tile.accumulator_words // 2
    first = _grid(c["accumulator"], (c["n_steps"], c["accumulator_n_pitch"]))
    _require(bool((first // bank == (first + c["rows"] - 1) // bank).all()), "an n step in both accumulator banks")
    words = _grid(c["accumulator"], (c["n_steps"], c["accumulator_n_pitch"]), (c["rows"], 1))
    reads = {
        Target.ACTIVATION: _grid(c["activation"], (c["rows"], c["activation_row_pitch"]),
                                 (c["k_steps"], c["activation_k_pitch"])),
        Target.WEIGHT: _grid(c["weight"], (c["n_steps"], c["weight_n_pitch"]), (c["k_steps"], c["weight_k_pitch"]),
                             (array.rows, c["weight_row_pitch"])),
    }
    if c["b_zero_point_table"]:
        reads[Target.ZERO_POINT] = _grid(c["zero_point_base"], (c["n_steps"], 1))
    if c["accumulate"]:
        reads[Target.ACCUMULATOR] = words
    return Footprint(reads=reads, writes={Target.ACCUMULATOR: words})


def _store(c: dict[str, int], config: DeviceConfig) -> Footprint:
    tile, columns = config.tile, config.tile.array.columns
    _require(c["rows"] > 0 and c["columns"] > 0, "a count of zero")
    _require(c["rounding"] in list(Rounding), f"rounding {c['rounding']}")
    _require(not c["per_row_scale"] and not c["residual"], "a reserved flag")
    steps = -(-c["columns"] // columns)
    reads = {Target.ACCUMULATOR: _grid(c["accumulator"], (steps, c["accumulator_n_pitch"]), (c["rows"], 1))}
    raw = c["rounding"] == Rounding.RAW
    if c["bias"] or not raw:
        column = np.arange(c["columns"])
        reads[Target.PARAMETER] = c["parameter"] + column // columns * tile.column_records + column % columns
    if not raw:
        _require(c["clamp_low"] <= c["clamp_high"] and c["clamp_low"] >= -128 and c["clamp_high"] <= 255,
                 "bounds that no 8-bit type holds")
    return Footprint(reads=reads, stored=Runs(_grid(c["address"], (c["rows"], c["row_stride"])),
                                              c["columns"] * (4 if raw else 1)))


def _ring(c: dict[str, int], config: DeviceConfig, tile: int) -> Footprint:
    _require(config.tiles > 1, "a RING command, on a device of one tile")
    _require(c["operation"] in list(Collective), f"operation {c['operation']}")
    operation = Collective(c["operation"])
    group = range(c["first"], c["first"] + c["size"])
    _require(tile in group and group.stop <= config.tiles, f"a group of tiles {group.start}..{group.stop - 1}")
    if operation == Collective.BARRIER:
        return Footprint()
    _require(c["bytes"] > 0, "a count of zero")
    for name in ("source", "destination"):
        _require(c[name] % 64 == 0, f"a {name} that is not aligned to 64 bytes")
    fetched, stored = (_grid(c[name], (c["size"] if operation == spread else 1, c["pitch"])) for name, spread in
                       (("source", Collective.REDUCE_SCATTER), ("destination", Collective.ALL_GATHER)))
    if operation in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER):
        _require(c["pitch"] % 64 == 0 and c["pitch"] >= c["bytes"], f"pieces {c['pitch']} bytes apart")
    if operation == Collective.BROADCAST:
        _require(c["root"] in group, f"root {c['root']}, which is not of the group")
        if tile == c["root"]:
            stored = stored[:0] if c["source"] == c["destination"] else stored
        else:
            fetched = fetched[:0]
    for runs in (fetched, stored):
        own = runs // config.memory.bytes == tile
        _require(bool(own.all()), "memory of another tile")
    return Footprint(fetched=Runs(fetched, c["bytes"]), stored=Runs(stored, c["bytes"]))
