# ruff: noqa: C408 - a command reads best as keywords
"""STORE against numpy: every alignment and shape, late writes, faults, and the figures the tile counts on."""

import random
from fractions import Fraction

import numpy as np
import pytest

from ringloom.hw.config import (
    AccumulatorConfig,
    ArrayConfig,
    DeviceConfig,
    IdealConfig,
    MemoryConfig,
    ParametersConfig,
    RequantizerConfig,
    TileConfig,
)
from ringloom.hw.isa import Code, Rounding
from tests.support.store_bench import StoreBench

FLAT = dict(rows=3, columns=5, address=512, row_stride=64, accumulator=2, accumulator_n_pitch=4, clamp_low=-128,
            clamp_high=127)


def config(rows=4, columns=4, lanes=4, ports=1):
    return DeviceConfig(
        tile=TileConfig(array=ArrayConfig(rows=rows, columns=columns), requantizer=RequantizerConfig(lanes=lanes),
                        accumulator=AccumulatorConfig(bytes=4 * columns * 64), parameters=ParametersConfig(columns=64)),
        memory=MemoryConfig(bytes=65536), ideal=IdealConfig(bytes_per_cycle=32 * ports))


def expected(bench, commands):
    """The memory after ``commands``, element by element, in exact fractions."""
    memory, tile = bench.memory.copy(), bench.config.tile
    for c in commands:
        for m in range(c["rows"]):
            for n in range(c["columns"]):
                block, column = divmod(n, tile.array.columns)
                value = int(bench.words[c["accumulator"] + block * c["accumulator_n_pitch"] + m, column])
                record = c.get("parameter", 0) + block * tile.column_records + column
                if c.get("bias"):
                    value = (value + int(bench.biases[record]) + (1 << 31)) % (1 << 32) - (1 << 31)
                size = 4 if c["rounding"] == Rounding.RAW else 1
                if size == 1:
                    scale = Fraction(float(np.uint32(bench.scales[record]).view(np.float32)))
                    value = round(value * scale) + int(bench.zero_points[record])  # Fraction rounds half to even
                    value = min(max(value, c["clamp_low"]), c["clamp_high"])
                start = c["address"] + m * c["row_stride"] + n * size
                memory[start:start + size] = np.frombuffer((value & 0xFFFFFFFF).to_bytes(4, "little")[:size], np.uint8)
    return memory


def check(bench, commands, **options):
    result = bench.run(commands, **options)
    assert len(result.done) == len(commands), f"fault {result.fault}, seed {bench.seed}"
    wrong = np.flatnonzero(result.memory != expected(bench, commands))
    assert not wrong.size, f"bytes differ at {wrong[:8]} (seed {bench.seed})"
    assert result.bytes == sum(c["rows"] * c["columns"] * (4 if c["rounding"] == Rounding.RAW else 1)
                               for c in commands)
    return result


def fill_parameters(bench, generator):
    """Scales that bring int32 into and around int8; EXACT_RNE alone is used here, the lanes have tests of their own."""
    count = len(bench.scales)
    bench.scales = generator.integers(100, 107, count) << 23 | generator.integers(0, 1 << 23, count)
    bench.biases = generator.integers(-1 << 31, 1 << 31, count)
    bench.zero_points = generator.integers(-128, 128, count)


def random_command(rng, tile, region):
    """A command inside ``region`` (base, bytes), rows packed, spaced, or downwards."""
    raw = rng.random() < 0.4
    columns, rows = rng.randint(1, 3 * tile.array.columns), rng.randint(1, 7)
    size = columns * (4 if raw else 1)
    pitch = size + rng.choice((0, 0, 1, 3, rng.randint(0, 70)))
    base, length = region
    rows = max(1, min(rows, (length - size) // pitch))
    down = rng.random() < 0.2
    address = base + rng.randint(0, length - size - (rows - 1) * pitch) + (pitch * (rows - 1) if down else 0)
    return dict(rounding=Rounding.RAW if raw else Rounding.EXACT_RNE, bias=rng.randint(0, 1), rows=rows,
                columns=columns, address=address, row_stride=-pitch if down else pitch,
                accumulator=rng.randint(0, 20), accumulator_n_pitch=rng.choice((0, 7, 16)),
                parameter=rng.randint(0, 64 - 3 * tile.column_records), clamp_low=-100, clamp_high=110)


@pytest.mark.parametrize("rows, columns, lanes, ports", [
    (2, 3, 4, 1), (4, 4, 4, 1), (8, 4, 8, 2), (4, 4, 1, 1), (3, 5, 2, 2), (8, 8, 4, 1), (16, 16, 8, 2), (16, 16, 16, 2),
    (16, 16, 16, 1)])
def test_random_commands(rows, columns, lanes, ports):
    seed = rows * 1000 + columns * 10 + lanes + ports
    print("seed", seed)
    rng = random.Random(seed)
    tile = config(rows, columns, lanes, ports)
    for round_ in range(3):
        bench = StoreBench(tile, seed=seed + round_, ready=(1.0, 0.6, 0.3)[round_], delay=(3, 200, 20)[round_],
                           accumulator_ready=(1.0, 0.7, 0.4)[round_])
        fill_parameters(bench, np.random.default_rng(seed + round_))
        check(bench, [random_command(rng, tile.tile, (i * 900, 900)) for i in range(9)], gaps=round_ > 0)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("lanes, ports", [(8, 2), (16, 2), (8, 1)])
def test_every_alignment(raw, lanes, ports):
    """Start and end of a row at every byte of a line, rows side by side: no byte between them is touched."""
    tile = config(16, 16, lanes, ports)
    bench = StoreBench(tile, seed=3, memory_bytes=65536)
    fill_parameters(bench, np.random.default_rng(3))
    commands = []
    for offset in range(64):
        columns = (offset * 7) % 33 + 1
        size = columns * (4 if raw else 1)
        commands.append(dict(rounding=Rounding.RAW if raw else Rounding.EXACT_RNE, rows=3, columns=columns,
                             address=960 * offset + offset, row_stride=size + offset % 3, accumulator=offset % 9,
                             accumulator_n_pitch=16, clamp_low=-128, clamp_high=127))
    check(bench, commands)


def test_commands_that_overlap_in_memory_keep_their_order():
    bench = StoreBench(config(4, 4, 4, 2), seed=8, ready=0.7, delay=60)
    commands = [{**FLAT, "rounding": Rounding.RAW, "accumulator": i, "row_stride": 20, "address": 512 + i}
                for i in range(6)]
    check(bench, commands)


def test_parameters_are_read_only_where_used():
    bench = StoreBench(config(), seed=1)
    assert check(bench, [{**FLAT, "rounding": Rounding.RAW}]).parameter_reads == 0
    assert check(bench, [{**FLAT, "rounding": Rounding.RAW, "bias": 1}]).parameter_reads == 6
    # A raw command uses no record, so that its address does not count.
    check(bench, [{**FLAT, "rounding": Rounding.RAW, "parameter": 65535}])


@pytest.mark.parametrize("rounding, first_beat, from_last_read", [(Rounding.RAW, 6, 5), (Rounding.F32, 14, 10)])
def test_latency(rounding, first_beat, from_last_read):
    """16x16 with 8 lanes: a word is two groups, and a line two groups of int32 or (two words) four of int8."""
    bench = StoreBench(config(16, 16, 8, 2), seed=2)
    bench.scales[:] = 110 << 23
    command = dict(rounding=rounding, rows=4, columns=64, address=0, row_stride=256, accumulator=0,
                   accumulator_n_pitch=4, clamp_low=-128, clamp_high=127)
    result = bench.run([command])
    assert result.reads[0] - result.accepted[0] == 2
    assert result.offered[0] - result.accepted[0] == first_beat
    assert result.offered[-1] - result.reads[-1] == from_last_read
    assert result.done[0] == result.acknowledged[-1] + 1


@pytest.mark.parametrize("rounding, lanes, ports, unit", [
    (Rounding.RAW, 8, 2, 8), (Rounding.RAW, 16, 2, 16), (Rounding.RAW, 8, 1, 8), (Rounding.F32, 8, 2, 8),
    (Rounding.F32, 8, 1, 8), (Rounding.F32, 16, 2, 16)])
def test_no_gap_between_rows_blocks_and_commands(rounding, lanes, ports, unit):
    """One group of columns a cycle with memory that takes what it is given, for int32 and for int8."""
    bench = StoreBench(config(16, 16, lanes, ports), seed=2, memory_bytes=65536, delay=40)
    commands = [dict(rounding=rounding, rows=8, columns=48, address=8192 * i, row_stride=192 if i % 2 else 256,
                     accumulator=0, accumulator_n_pitch=8, clamp_low=-128, clamp_high=127) for i in range(4)]
    result = bench.run(commands)
    groups = 4 * 8 * 48 // unit
    assert result.reads[-1] - result.reads[0] == groups - 16 // unit
    assert result.offered[-1] - result.reads[0] <= groups + 12


def test_unaligned_int8_rows_run_without_a_gap():
    """A row's last line goes out with the first group of the next row."""
    bench = StoreBench(config(16, 16, 8, 2), seed=2)
    result = bench.run([dict(rounding=Rounding.F32, rows=16, columns=64, address=29, row_stride=101, accumulator=0,
                             accumulator_n_pitch=16, clamp_low=-128, clamp_high=127)])
    assert result.reads[-1] - result.reads[0] <= 16 * 8 - 2 + 3  # rows that end and begin across a line cost one


def test_next_command_runs_while_writes_are_in_flight():
    bench = StoreBench(config(16, 16, 8, 2), seed=2)
    bench.delay = 0
    commands = [dict(rounding=Rounding.RAW, rows=1, columns=16, address=256 * i, row_stride=0, accumulator=0,
                     accumulator_n_pitch=1) for i in range(4)]
    result = bench.run(commands)
    assert result.reads[3] < result.done[0]


def test_waits_for_the_accumulators_are_counted():
    bench = StoreBench(config(), seed=5, accumulator_ready=0.2)
    result = check(bench, [{**FLAT, "rounding": Rounding.RAW}])
    assert result.stalled_on_accumulator > 0


WORDS, RECORDS = 64, 64
BIG = 1 << 40
FAULTS = {
    "no rows": (dict(rows=0), Code.BAD_FIELD, 0),
    "no columns": (dict(columns=0), Code.BAD_FIELD, 0),
    "reserved rounding": (dict(rounding=6), Code.BAD_FIELD, 0),
    "last rounding": (dict(rounding=15), Code.BAD_FIELD, 0),
    "row scale": (dict(per_row_scale=1), Code.BAD_FIELD, 0),
    "residual": (dict(residual=1), Code.BAD_FIELD, 0),
    "clamp": (dict(rounding=Rounding.F32, clamp_low=3, clamp_high=2), Code.BAD_FIELD, 0),
    "accumulator": (dict(accumulator=WORDS), Code.SCRATCHPAD_RANGE, WORDS),
    "accumulator of the last row": (dict(accumulator=WORDS - 2, accumulator_n_pitch=0), Code.SCRATCHPAD_RANGE, WORDS),
    "accumulator of the second block": (dict(accumulator_n_pitch=65535), Code.SCRATCHPAD_RANGE, 2 + 65535),
    "accumulator beyond its bits": (dict(accumulator=(1 << 32) - 1), Code.SCRATCHPAD_RANGE, (1 << 32) - 1),
    "record": (dict(rounding=Rounding.F32, parameter=RECORDS), Code.SCRATCHPAD_RANGE, RECORDS + 3),
    "record of the last column": (dict(rounding=Rounding.F32, parameter=RECORDS - 4), Code.SCRATCHPAD_RANGE, RECORDS),
    "record for a bias": (dict(bias=1, parameter=65535), Code.SCRATCHPAD_RANGE, 65535 + 3),
    "below the window": (dict(address=255), Code.MEMORY_WINDOW, 255),
    "one byte beyond": (dict(address=4096 - 20 - 2 * 64 + 1), Code.MEMORY_WINDOW, 4096),
    "beyond": (dict(address=4096), Code.MEMORY_WINDOW, 4096),
    "second row below": (dict(address=300, row_stride=-64), Code.MEMORY_WINDOW, 236),
    "row below zero": (dict(address=300, row_stride=-1000), Code.MEMORY_WINDOW, (300 - 1000) % (1 << 64)),
    "row far beyond": (dict(row_stride=(1 << 31) - 1), Code.MEMORY_WINDOW, 512 + (1 << 31) - 1),
    "row far below": (dict(row_stride=-(1 << 31)), Code.MEMORY_WINDOW, (512 - (1 << 31)) % (1 << 64)),
    "address of 64 bits": (dict(address=512 + BIG), Code.MEMORY_WINDOW, 512 + BIG),
    "highest address": (dict(address=(1 << 64) - 1), Code.MEMORY_WINDOW, (1 << 64) - 1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    """Earlier commands end first; what was written before the fault lies inside the window and is right."""
    change, code, address = FAULTS[name]
    before = [{**FLAT, "rounding": Rounding.RAW, "address": 2000 + 100 * i, "row_stride": 20} for i in range(2)]
    bad = {**FLAT, "rounding": Rounding.RAW, **change}
    bench = StoreBench(config(), seed=4, ready=0.7, delay=50, window=(256, 4096))
    result = bench.run([*before, bad, before[0]])
    assert result.fault == (code, address)
    assert len(result.done) == result.fault_after_done == 2
    after_earlier = expected(bench, before)
    assert (result.memory[:256] == bench.memory[:256]).all() and (result.memory[4096:] == bench.memory[4096:]).all()
    changed = result.memory != after_earlier
    if code == Code.BAD_FIELD:
        assert not changed.any()
    else:
        rows = {**bad, "rows": 3, "columns": 5}
        reach = np.zeros(len(changed), bool)
        for m in range(3):
            start = rows["address"] + m * rows["row_stride"]
            if 256 <= start < 4096:
                reach[start:min(4096, start + 20)] = True
        assert not (changed & ~reach).any()


@pytest.mark.parametrize("rows, columns, lanes, ports", [(1, 1, 1, 1), (4, 20, 8, 2)])
def test_nothing_is_cut_before_it_is_checked(rows, columns, lanes, ports):
    """Words and records whose low bits alone would lie in the tile."""
    device = config(rows, columns, lanes, ports)
    words, records = device.tile.accumulator_words, device.tile.parameter_records
    command = {**FLAT, "rounding": Rounding.F32, "rows": 1, "columns": columns + 1, "accumulator": 0, "address": 1024}
    changes = [({"accumulator": value}, value) for value in (words, 1 << 31)]
    changes += [({"accumulator_n_pitch": value}, value) for value in (words, 0xFFFF)]
    first = min(lanes, columns, device.tile.lanes) - 1
    changes += [({"parameter": value}, value + first) for value in (records, 0xFFFF)]
    for change, address in changes:
        result = StoreBench(device, seed=7, window=(0, 8192)).run([{**command, **change}])
        assert result.fault == (Code.SCRATCHPAD_RANGE, address), change


def test_the_window_counts_only_bytes_written():
    """A row whose last byte is the window's last, in a line that goes on."""
    bench = StoreBench(config(), seed=4, window=(513, 513 + 5))
    command = {**FLAT, "rounding": Rounding.EXACT_RNE, "rows": 1, "address": 513}
    check(bench, [command])


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_memory_error(bad):
    commands = [{**FLAT, "rounding": Rounding.RAW, "address": 1024 * i + 64, "row_stride": 32} for i in range(4)]
    bench = StoreBench(config(), seed=6, ready=0.8, delay=30, error_at=1024 * bad + 64 + 33)
    result = bench.run(commands)
    assert result.fault == (Code.MEMORY_ERROR, 1024 * bad + 64)
    assert len(result.done) == bad


@pytest.mark.parametrize("stop_at", range(0, 60, 7))
def test_stop(stop_at):
    """After ``stop`` nothing new is offered, and ``quiet`` rises with the last answer (the bench checks both)."""
    commands = [{**FLAT, "rounding": Rounding.RAW, "address": 1024 * i + 61, "row_stride": 32} for i in range(4)]
    bench = StoreBench(config(ports=2), seed=stop_at, ready=0.5, delay=100, stop_at=stop_at)
    result = bench.run(commands)
    late = [cycle for cycle, _, _ in result.beats if cycle > stop_at]
    assert len(late) <= bench.config.ports
    assert result.fault is None
