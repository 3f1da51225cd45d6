"""Random raw jobs, good ones and ones with a fault in one record, for everything that must answer them alike."""

import random
from dataclasses import dataclass

import numpy as np

from ringloom.hw import isa
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Rounding, Target
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim.simulator import Simulator
from tests.support.control import RECORDS, command, job

WINDOW = 1 << 17
JOB, COMPLETION, DATA = 0x1000, 0x8000, 0x10000
LIMIT = 1_000_000
WORK = 6000
"""Steps of an engine beyond which a command is too long for a test."""
SCALES = (0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x3F000000,
          0xBF000000, 0x3B800000, 0x4B000000)


@dataclass
class Stream:
    """What lies in memory, where the job is, and what was done to it (for messages)."""

    memory: np.ndarray
    address: int
    change: str


def _fill(config: DeviceConfig) -> list[dict]:
    """LOADs that write every block of every target, so that no stream reads what another left."""
    return [{"engine": "load", "target": target, "address": DATA + (0 if target == Target.PARAMETER else 4096),
             "rows": 1, "planes": 1, "row_bytes": shape.bytes * shape.blocks, "row_blocks": shape.blocks,
             "block_pitch": 1} for target, shape in block_shapes(config).items()]


def _place(rng: random.Random, blocks: int, *axes: tuple[int, int]) -> int:
    room = blocks - sum((count - 1) * pitch for count, pitch in axes)
    return rng.choice((0, room - 1, rng.randrange(room)))


def _load(config: DeviceConfig, rng: random.Random) -> dict:
    target = rng.choice(list(Target))
    shape = block_shapes(config)[target]
    transpose = int(target in (Target.ACTIVATION, Target.WEIGHT) and rng.random() < 0.5)
    planes, row_blocks = rng.choice((1, 1, 2)), rng.randint(1, 5)
    rows = rng.randint(1, 2 * shape.bytes + 1 if transpose else 3)
    groups = -(-rows // shape.bytes) if transpose else rows
    room = row_blocks * shape.bytes
    pad_left = 0 if transpose else rng.choice((0, rng.randint(0, room)))
    row_bytes = rng.randint(0, row_blocks + 5) if transpose else rng.randint(0, room - pad_left)
    pad_top = rng.choice((0, rng.randint(0, rows)))
    block_pitch = rng.choice((1, 3))
    row_pitch, plane_pitch = rng.randint(0, 2), rng.randint(0, 3)
    return {"engine": "load", "target": target, "transpose": transpose, "planes": planes, "rows": rows,
            "row_blocks": row_blocks, "row_bytes": row_bytes, "pad_left": pad_left, "pad_top": pad_top,
            "pad_bottom": rng.choice((0, rng.randint(0, rows - pad_top))), "pad_value": rng.randrange(256),
            "block_pitch": block_pitch, "row_pitch": row_pitch, "plane_pitch": plane_pitch,
            "destination": _place(rng, shape.blocks, (planes, plane_pitch), (groups, row_pitch),
                                  (row_blocks, block_pitch)),
            "address": rng.randrange(DATA + 0x4000, DATA + 0xC000), "row_stride": rng.randint(-300, 300),
            "plane_stride": rng.randint(-2000, 2000)}


def _matmul(config: DeviceConfig, rng: random.Random) -> dict:
    tile = config.tile
    rows, k, n = rng.randint(1, 9), rng.randint(1, 3), rng.randint(1, 3)
    pitch = {name: rng.randint(0, 9) for name in ("activation_row_pitch", "activation_k_pitch", "weight_k_pitch",
                                                  "weight_n_pitch", "accumulator_n_pitch")}
    pitch["weight_row_pitch"] = rng.choice((1, 3, 7))
    a_signed, b_signed = rng.randrange(2), rng.randrange(2)
    middle = tile.accumulator_words // 2 - 2  # an n step in both banks
    accumulator = _place(rng, tile.accumulator_words, (n, pitch["accumulator_n_pitch"]), (rows, 1))
    return {"engine": "matmul", "rows": rows, "k_steps": k, "n_steps": n, **pitch,
            "activation": _place(rng, tile.activation_blocks, (rows, pitch["activation_row_pitch"]),
                                 (k, pitch["activation_k_pitch"])),
            "weight": _place(rng, tile.weight_blocks, (k, pitch["weight_k_pitch"]), (n, pitch["weight_n_pitch"]),
                             (tile.array.rows, pitch["weight_row_pitch"])),
            "accumulator": rng.choice((accumulator, middle)), "accumulate": rng.randrange(2),
            "a_signed": a_signed, "b_signed": b_signed, "b_zero_point_table": rng.randrange(2),
            "zero_point_base": _place(rng, tile.zero_point_blocks, (n, 1)),
            "a_zero_point": rng.randint(0, 255) - 128 * a_signed, "b_zero_point": rng.randint(0, 255) - 128 * b_signed}


def _store(config: DeviceConfig, rng: random.Random) -> dict:
    tile = config.tile
    rows, columns, pitch = rng.randint(1, 5), rng.randint(1, 13), rng.randint(0, 9)
    steps = -(-columns // tile.array.columns)
    low, high = sorted(rng.choice(((-128, 127), (0, 255), (rng.randint(-32768, 32767), rng.randint(-32768, 32767)))))
    return {"engine": "store", "rows": rows, "columns": columns, "accumulator_n_pitch": pitch,
            "rounding": rng.choice(list(Rounding)), "bias": rng.randrange(2), "clamp_low": low, "clamp_high": high,
            "accumulator": _place(rng, tile.accumulator_words, (steps, pitch), (rows, 1)),
            "parameter": _place(rng, tile.parameter_records, (steps * tile.column_records, 1)),
            "address": rng.randrange(DATA + 0x4000, DATA + 0xC000), "row_stride": rng.randint(-99, 99)}


def _extreme(rng: random.Random, field: isa.Field, value: int) -> int:
    top = (1 << field.bits) - 1
    raw = rng.choice((0, 1, 2, top, top - 1, top >> 1, (top >> 1) + 1, rng.randint(0, top), value + 1, value - 1))
    raw &= top
    return raw - (1 << field.bits) if field.signed and raw >> field.bits - 1 else raw


def _too_long_or_double(config: DeviceConfig, c: dict) -> bool:
    """Whether a command takes too many cycles, or is a LOAD with faults at both ends: either may come first."""
    if c["engine"] == "matmul":
        return c["rows"] * c["k_steps"] * c["n_steps"] > WORK
    if c["engine"] == "store":
        return False
    if c["rows"] * c["planes"] * max(c["row_blocks"], c["row_bytes"] // 16) > WORK:
        shape = block_shapes(config).get(c["target"])
        return shape is None or c["transpose"] or c["pad_left"] + c["row_bytes"] <= c["row_blocks"] * shape.bytes
    if c["target"] not in list(Target):
        return False
    shape = block_shapes(config)[c["target"]]
    groups = -(-c["rows"] // shape.bytes) if c["transpose"] else c["rows"]
    axes = ((c["planes"], c["plane_pitch"]), (groups, c["row_pitch"]), (c["row_blocks"], c["block_pitch"]))
    block = c["destination"] + sum((count - 1) * pitch for count, pitch in axes)
    rows = c["rows"] - c["pad_top"] - c["pad_bottom"]
    spans = [(count - 1) * stride for count, stride in ((c["planes"], c["plane_stride"]), (rows, c["row_stride"]))]
    low = c["address"] + sum(min(0, span) for span in spans)
    high = c["address"] + sum(max(0, span) for span in spans) + c["row_bytes"]
    return block >= shape.blocks and not 0 <= low <= high <= WINDOW


def random_stream(config: DeviceConfig, seed: int) -> Stream:
    """A job of a few commands, each waiting for the one before it; three of four have one thing wrong, perhaps."""
    rng = random.Random(seed)
    memory = np.random.default_rng(seed).integers(0, 256, WINDOW, np.uint8)
    records = memory[DATA:DATA + 4096].view(np.uint32).reshape(-1, 4)
    for record in records[:config.tile.parameter_records]:
        exponent = rng.randint(100, 140)
        record[0] = rng.choice((*SCALES, *(exponent << 23 | rng.getrandbits(23) for _ in range(20))))
        if rng.random() < 0.7:
            record[1], record[2] = rng.randint(-99, 99) & 0xFFFFFFFF, rng.randint(-128, 255) & 0xFFFF
    commands = _fill(config) + [rng.choice((_load, _matmul, _store))(config, rng)
                                     for _ in range(rng.randint(1, 5))]
    commands.append(_store(config, rng))
    change, kind = "nothing", rng.choice(("nothing", "field", "field", "field", "field", "header", "descriptor"))
    bad = rng.randrange(len(commands))
    if kind == "field":
        layout = RECORDS[commands[bad]["engine"]][0]
        commands[bad] = victim = {f.name: 0 for f in layout.fields if f not in isa.HEADER.fields} | commands[bad]
        field = rng.choice([f for f in layout.fields if f not in isa.HEADER.fields])
        value = _extreme(rng, field, victim.get(field.name, 0))
        if not _too_long_or_double(config, victim | {field.name: value}):
            victim[field.name] = value
            change = f"command {bad} {victim['engine']}.{field.name} = {value}"
    raws = []
    for index, values in enumerate(commands):
        fields = dict(values)
        waits = [((index - 1) % isa.SEMAPHORES, 1)] if index else []
        raws.append(bytearray(command(fields.pop("engine"), waits=waits, signals=[index % isa.SEMAPHORES], **fields)))
    address = JOB
    descriptor = {"completion_address": COMPLETION, "watchdog_cycles": 2000, "job": seed, "context": rng.randrange(256)}
    raw = bytearray(job(raws, **descriptor))
    if kind == "header":
        bit = rng.choice([b for b in range(96) if b not in (39, 40)])  # without its wait a command would race
        raw[64 * (bad + 1) + bit // 8] ^= 1 << bit % 8
        change = f"command {bad}: header bit {bit} flipped"
    elif kind == "descriptor":
        # not the count of commands downwards, the job's number, and what only changes when it ends
        bit = rng.choice((*range(64), *range(69, 96), *range(96, 256), *range(256, 512)))
        raw[bit // 8] ^= 1 << bit % 8
        change = f"descriptor bit {bit} flipped"
        if rng.random() < 0.2:
            address = rng.choice((JOB + 32, WINDOW, WINDOW - 32, WINDOW * 64, (1 << 64) - 64))
            change += f", descriptor at {address:#x}"
    memory[COMPLETION:COMPLETION + 64] = 0
    memory[JOB:JOB + len(raw)] = np.frombuffer(raw, np.uint8)
    return Stream(memory, address, f"seed {seed}: {change}")


def run_stream(simulator: Simulator, stream: Stream) -> tuple[tuple[int, ...], bytes]:
    """The status register and the completion's fields (zero where none is written), and the window's bytes without it.

    Left out are cycles, and the address at fault: of a command that is wrong in several places each engine names the
    one it comes to first.
    """
    memory = simulator.memory()
    memory[:WINDOW] = stream.memory
    values = {"job": stream.address, "window_base": 0, "window_limit": WINDOW}
    for name, value in values.items():
        simulator.write(tile_register(0, f"{name}_low"), value & 0xFFFFFFFF)
        simulator.write(tile_register(0, f"{name}_high"), value >> 32)
    simulator.write(control_register("irq_enable"), 1)
    simulator.write(control_register("doorbell"), 1)
    assert simulator.run(LIMIT), f"{stream.change}: no end on {simulator.name}"
    simulator.write(control_register("irq_status"), 1)
    status = simulator.read(tile_register(0, "status"))
    after = memory[:WINDOW].copy()
    record = isa.COMPLETION.decode(after[COMPLETION:COMPLETION + 64].tobytes())
    where = isa.DESCRIPTOR.decode(stream.memory[JOB:JOB + 64].tobytes())["completion_address"]
    after[where:where + 64] = 0  # where it is flipped to another place, or nowhere
    told = tuple(record[name] for name in ("job", "context", "status", "code", "command"))
    return (status, *told), after.tobytes()
