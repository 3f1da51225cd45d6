"""LoadEngine: exact blocks for every shape and alignment, its rate, its faults, its stop."""

import random

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from ringloom.hw.isa import LOAD, Code, Target
from ringloom.hw.memory.arbiter import MemoryArbiter
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.memory.ideal import IdealMemory
from ringloom.hw.memory.load import LoadEngine
from tests.support.bare import bare
from tests.support.load import DEFAULTS, LoadRun, expected_blocks, run_loads
from tests.support.memory import bench, storage_process

MEMORY = random.Random(0).randbytes(65536)


def engine_config(preset="inference", rows=None, columns=None, **overrides):
    changes = {"memory.bytes": 65536, **overrides}
    if rows is not None:
        changes |= {"tile.array.rows": rows, "tile.array.columns": columns, "tile.accumulator.bytes": 65536}
    return bare(preset, changes)


def check(config, commands, **options) -> LoadRun:
    """Run ``commands`` and compare every block written, and no other, with numpy."""
    run = run_loads(config, commands, contents=MEMORY, **options)
    expected = {target: {} for target in range(5)}
    for command in commands:
        expected[command.get("target", 0)] |= expected_blocks(config, MEMORY, command)
    assert run.blocks == expected
    assert run.fault is None
    return run


SHAPES = [("tiny", None, None, {}), ("tiny", 2, 3, {}), ("edge", None, None, {}), ("inference", None, None, {}),
          ("inference", 3, 5, {}), ("inference", 64, 20, {"memory.interleave_bytes": 128}),
          ("inference", 1, 32, {"ideal.bytes_per_cycle": 128}),
          ("inference", 48, 64, {"memory.interleave_bytes": 4096}),
          ("tiny", 5, 4, {"ideal.bytes_per_cycle": 8})]


def random_command(rng: random.Random, config) -> dict:
    """A LOAD that stays inside its target and inside memory."""
    while True:
        target = rng.choice([0, 0, 1, 1, 2, 3, 4])
        shape = block_shapes(config)[Target(target)]
        transpose = int(target < 2 and rng.random() < 0.5)
        planes = rng.choice([1, 1, 2, 3])
        if transpose:
            rows, pad_left = rng.randint(1, 2 * shape.bytes + 2), 0
            row_blocks = rng.choice([rng.randint(1, 12), rng.randint(1, 150)])
            row_bytes = rng.choice([row_blocks, row_blocks, rng.randint(0, row_blocks), row_blocks + rng.randint(0, 9)])
            groups = -(-rows // shape.bytes)
        else:
            rows, row_blocks = rng.randint(1, 8), rng.choice([1, 1, rng.randint(1, 9)])
            capacity = row_blocks * shape.bytes
            pad_left = rng.choice([0, 0, rng.randint(0, capacity)])
            row_bytes = rng.choice([capacity - pad_left, rng.randint(0, capacity - pad_left)])
            groups = rows
        pad_top = rng.choice([0, 0, rng.randint(0, rows)])
        pad_bottom = rng.choice([0, 0, rng.randint(0, rows - pad_top)])
        block_pitch = rng.choice([1, 1, 3, 5])
        row_pitch = row_blocks * block_pitch + rng.choice([0, 0, 1, 3])
        plane_pitch = groups * row_pitch + rng.randint(0, 2)
        span = (planes - 1) * plane_pitch + (groups - 1) * row_pitch + (row_blocks - 1) * block_pitch
        if span < shape.blocks and planes * rows * (row_bytes + 1) < 2000 and rows < 66:
            address = rng.randint(20000, 45000)
            return {"target": target, "transpose": transpose, "planes": planes, "rows": rows, "pad_left": pad_left,
                    "row_bytes": row_bytes, "row_blocks": row_blocks, "pad_top": pad_top, "pad_bottom": pad_bottom,
                    "block_pitch": block_pitch, "row_pitch": row_pitch, "plane_pitch": plane_pitch,
                    "row_stride": rng.choice([row_bytes, 64, -64, rng.randint(-300, 300), 0]),
                    "plane_stride": rng.randint(-900, 900), "address": rng.choice([address, address & ~63]),
                    "pad_value": rng.randrange(256), "destination": rng.randrange(shape.blocks - span)}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}-{shape[1]}x{shape[2]}")
def test_random_loads(shape, seed):
    """Strides, pads, alignments, planes and targets at random; answers late and in any order."""
    print("seed", seed)
    preset, rows, columns, overrides = shape
    config = engine_config(preset, rows, columns, **overrides)
    rng = random.Random(f"{shape}{seed}")
    commands = [random_command(rng, config) for _ in range(6)]
    run = check(config, commands, seed=seed, latency=[(4, 4), (0, 90)][seed], ready=rng.choice([1, 0.6]),
                reorder=seed > 0, idle=rng.choice([0, 0.5]))
    assert run.bytes == sum(
        c["planes"] * (c["rows"] - c["pad_top"] - c["pad_bottom"])
        * (min(c["row_bytes"], c["row_blocks"]) if c["transpose"] else c["row_bytes"]) for c in commands)


@pytest.mark.parametrize("preset", ["edge", "inference"])
def test_any_byte_offset_and_length(preset):
    """0, 1, a beat, a beat + 1, a line +/- 1, at every kind of offset, across beats, lines, interleave and 4 KiB."""
    config = engine_config(preset)
    size = block_shapes(config)[Target.ACTIVATION].bytes
    commands = []
    for offset in (0, 1, 31, 32, 63):
        for length in (0, 1, 31, 32, 33, 63, 64, 65, 257):
            at = (4096 if length % 2 else 8192 - 256) - 64 + offset
            row_blocks = max(1, -(-length // size))
            commands.append({"address": at, "row_bytes": length, "row_blocks": row_blocks, "destination": 0,
                             "pad_value": 0xA5})
    for first in range(0, len(commands), 35):
        batch = commands[first:first + 35]
        place = 0
        for command in batch:
            command["destination"] = place
            place += command["row_blocks"]
        check(config, batch, latency=(2, 30), reorder=True, ready=0.9)


def test_padding_longer_than_a_line_around_a_burst():
    """cases.md 10: pads of many lines before, behind and around rows, and straight into the accumulators."""
    config = engine_config()
    check(config, [
        {"target": 0, "address": 1000, "rows": 4, "row_bytes": 300, "row_blocks": 60, "row_stride": 300,
         "row_pitch": 60, "pad_left": 333, "pad_top": 1, "pad_bottom": 1, "pad_value": 0x80},
        {"target": 0, "rows": 3, "row_blocks": 20, "row_pitch": 20, "pad_top": 3, "pad_value": 7, "destination": 300},
        {"target": 2, "address": 4096, "rows": 9, "row_bytes": 64, "row_blocks": 1, "row_stride": 64, "row_pitch": 1},
        {"target": 2, "address": 77, "rows": 2, "row_bytes": 100, "row_blocks": 3, "row_stride": 999, "row_pitch": 5,
         "pad_left": 50, "pad_value": 3, "destination": 100},
        {"target": 1, "address": 333, "rows": 2, "row_bytes": 64, "row_blocks": 4, "pad_left": 0, "row_pitch": 4},
    ], latency=(5, 90), reorder=True)


@pytest.mark.parametrize("rows, columns", [(1, 3), (16, 16), (5, 33)])
def test_transposed_edges(rows, columns):
    """One row, T - 1, T, T + 1 and 2 T + 1 rows; one position, a piece of a line, a piece + 1."""
    config = engine_config("edge", rows, columns)
    commands = []
    for target, lanes in ((0, rows), (1, columns)):
        place = 0
        for count in sorted({1, max(1, lanes - 1), lanes, lanes + 1, 2 * lanes + 1}):
            for positions in (1, 32, 33):
                groups = -(-count // lanes)
                blocks = block_shapes(config)[Target(target)].blocks
                if place + groups * positions > blocks:
                    place = 0
                    commands.append(None)
                commands.append({"target": target, "transpose": 1, "rows": count, "row_bytes": positions,
                                 "row_blocks": positions, "row_stride": 32 + positions % 2, "row_pitch": positions,
                                 "address": 4096 + 32 * count, "destination": place, "pad_value": 99})
                place += groups * positions
    batch: list[dict] = []
    for command in [*commands, None]:
        if command is not None:
            batch.append(command)
        elif batch:
            check(config, batch, latency=(3, 20), reorder=True, limit=20000)
            batch = []


def test_no_combinational_loop():
    """Conversion finds loops that the Python simulator does not; here with a transposer for each block size."""
    assert rtlil.convert(LoadEngine(config=engine_config("tiny", 3, 5)))


# -- rates and latencies

def test_latencies():
    run = check(engine_config("edge"), [{"address": 64, "row_bytes": 32, "row_blocks": 4}], latency=(20, 20))
    assert run.requested[0] - run.accepted[0] == 2
    assert run.writes[0][0] - run.answered[0] == 3
    assert run.done[0] == run.writes[-1][0]


@pytest.mark.parametrize("preset, line", [("edge", 32), ("inference", 64)])
@pytest.mark.parametrize("target", [0, 1])
def test_linear_rows_stream_at_the_full_rate(preset, line, target):
    """Successive commands of long rows: one line a cycle from the first to the last write, nothing lost between."""
    config = engine_config(preset)
    size = block_shapes(config)[Target(target)].bytes
    lines = 64
    commands = [{"target": target, "address": line * lines * i, "row_bytes": line * lines,
                 "row_blocks": line * lines // size, "destination": line * lines // size * i} for i in range(4)]
    run = check(config, commands, latency=(32, 32))
    assert {b - a for a, b in zip(run.accepted[1:], run.accepted[2:], strict=False)} == {lines}
    # The second port's share starts when the first port's has been asked for: that is all there is to lose.
    assert run.writes[-1][0] - run.writes[0][0] + 1 <= 4 * lines + 4
    assert run.done[-1] <= run.accepted[0] + 4 * lines + 32 + 12


@pytest.mark.parametrize("options, commands, cycles", [
    ("aligned rows of a line", {"rows": 96, "row_bytes": 64, "row_blocks": 4, "row_stride": 64, "row_pitch": 4}, 96),
    ("unaligned long rows", {"rows": 4, "row_bytes": 1000, "row_blocks": 63, "row_stride": 1001, "row_pitch": 63,
                             "address": 13}, 4 * 17),
    ("16-byte rows", {"rows": 96, "row_bytes": 16, "row_blocks": 1, "row_stride": 64, "row_pitch": 1}, 96),
    ("pads alone", {"rows": 96, "row_blocks": 4, "row_pitch": 4}, 96),
    ("transposed", {"target": 1, "transpose": 1, "rows": 64, "row_bytes": 128, "row_blocks": 128, "row_stride": 128,
                    "row_pitch": 128}, 128),
], ids=lambda value: value if isinstance(value, str) else "")
def test_rate_of_other_shapes(options, commands, cycles):
    run = check(engine_config(), [commands], latency=(32, 32))
    assert run.writes[-1][0] - run.writes[0][0] + 1 <= cycles + 6


def test_nothing_is_lost_when_memory_is_slow():
    """cases.md 8: answers 0 to 200 cycles late and out of order, requests often refused."""
    config = engine_config()
    commands = [{"target": 1, "address": 100 + 4000 * i, "row_bytes": 2000, "row_blocks": 125, "destination": 125 * i}
                for i in range(2)]
    check(config, commands, latency=(0, 200), ready=0.3, reorder=True, seed=8)


# -- faults

GOOD = {"address": 0, "row_bytes": 256, "row_blocks": 16, "destination": 100}
FAULTS = [
    ("target", Code.BAD_FIELD, 0, {"target": 5}),
    ("rows", Code.BAD_FIELD, 0, {"rows": 0}),
    ("planes", Code.BAD_FIELD, 0, {"planes": 0}),
    ("blocks", Code.BAD_FIELD, 0, {"row_blocks": 0}),
    ("even pitch", Code.BAD_FIELD, 0, {"row_blocks": 2, "block_pitch": 2}),
    ("pitch zero", Code.BAD_FIELD, 0, {"row_blocks": 2, "block_pitch": 0}),
    ("pad left of a transposed row", Code.BAD_FIELD, 0, {"transpose": 1, "pad_left": 1}),
    ("transposed parameters", Code.BAD_FIELD, 0, {"transpose": 1, "target": 3}),
    ("row too long", Code.BAD_FIELD, 0, {"row_bytes": 17}),
    ("row and pad too long", Code.BAD_FIELD, 0, {"row_bytes": 10, "pad_left": 7}),
    ("row far too long", Code.BAD_FIELD, 0, {"row_bytes": 0xFFFFFFFF, "row_blocks": 0xFFFF}),
    ("more pads than rows", Code.BAD_FIELD, 0, {"rows": 3, "pad_top": 2, "pad_bottom": 2}),
    ("end of the window", Code.MEMORY_WINDOW, 1024, {"row_bytes": 16, "address": 1009}),
    ("start of the window", Code.MEMORY_WINDOW, 15, {"row_bytes": 1, "address": 15}),
    ("beyond memory", Code.MEMORY_WINDOW, 1 << 16, {"row_bytes": 16, "address": 1 << 16}),
    ("beyond 32 bits", Code.MEMORY_WINDOW, 1 << 32, {"row_bytes": 16, "address": 1 << 32}),
    ("around 64 bits", Code.MEMORY_WINDOW, 2**64 - 8, {"row_bytes": 16, "address": 2**64 - 8}),
    ("negative stride", Code.MEMORY_WINDOW, 0, {"row_bytes": 16, "rows": 5, "row_stride": -16, "address": 32}),
    ("huge stride", Code.MEMORY_WINDOW, 2**31 + 15, {"row_bytes": 16, "rows": 3, "row_stride": 2**31 - 1,
                                                     "address": 16}),
    ("huge plane stride", Code.MEMORY_WINDOW, 2**30 + 16, {"row_bytes": 16, "planes": 2, "plane_stride": 2**30,
                                                          "address": 16}),
    ("second piece of a transposed row", Code.MEMORY_WINDOW, 1024, {"row_bytes": 100, "row_blocks": 100,
                                                                    "transpose": 1, "address": 960}),
    ("block behind the target", Code.SCRATCHPAD_RANGE, 4096, {"address": 32, "row_bytes": 16, "destination": 4096}),
    ("block far behind", Code.SCRATCHPAD_RANGE, 2**32 - 1, {"address": 32, "row_bytes": 16, "destination": 2**32 - 1}),
    ("last block of a write", Code.SCRATCHPAD_RANGE, 4097, {"address": 64, "row_bytes": 64, "row_blocks": 4,
                                                            "destination": 4094}),
    ("second row", Code.SCRATCHPAD_RANGE, 4096, {"address": 64, "row_bytes": 16, "rows": 2, "row_pitch": 4090,
                                                 "destination": 6}),
    ("second plane of pads", Code.SCRATCHPAD_RANGE, 65545, {"planes": 2, "plane_pitch": 65535, "destination": 10}),
    ("transposed", Code.SCRATCHPAD_RANGE, 4097, {"address": 64, "row_bytes": 64, "row_blocks": 64, "transpose": 1,
                                                 "destination": 4090}),
    ("memory", Code.MEMORY_ERROR, 512,  # the line is named; the beat at fault is its second
     {"address": 500, "row_bytes": 64, "row_blocks": 4}),
]


@pytest.mark.parametrize("preset, rows, columns, target", [
    ("tiny", None, None, Target.WEIGHT), ("inference", None, None, Target.ACTIVATION),
    ("inference", 5, 32, Target.WEIGHT), ("inference", None, None, Target.PARAMETER)])
def test_no_pitch_is_cut_before_it_is_checked(preset, rows, columns, target):
    """A block pitch whose bits on the write bus alone would lie in the target."""
    config = engine_config(preset, rows, columns)
    shape = block_shapes(config)[target]
    bits = max(s.blocks for s in block_shapes(config).values()).bit_length()
    for change in [{}] + [{"transpose": 1}] * (target != Target.PARAMETER):
        pitch = (1 << bits) + 1
        command = {"target": target, "row_blocks": 2, "destination": 3, "block_pitch": pitch} | change
        run = run_loads(config, [command], contents=MEMORY, settle=4)
        assert run.fault == (Code.SCRATCHPAD_RANGE, 3 + pitch)
        assert set(run.blocks[target]) <= ({3} if shape.per_write == 1 else set())


@pytest.mark.parametrize("name, code, address, command", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_faults(name, code, address, command):
    """A fault comes when the commands before are done, with its code and address, and nothing is asked for after it."""
    config = engine_config()
    before = [GOOD | {"address": 128}, {"target": 1, "transpose": 1, "address": 256, "rows": 16, "row_bytes": 64,
                                        "row_blocks": 64, "row_stride": 8}]
    run = run_loads(config, [*before, command, GOOD], contents=MEMORY, window=(16, 1024),
                    errors=(544,) if name == "memory" else (), latency=(5, 40), reorder=True)
    assert run.fault == (code, address)
    assert len(run.done) == 2 and run.fault_cycle > run.done[-1]
    for index, good in enumerate(before):
        assert expected_blocks(config, MEMORY, good).items() <= run.blocks[index].items()
    assert all(at + 31 >= 16 and at < 1024 for _, _, at in run.memory.reads)
    assert max(cycle for cycle, _, _ in run.memory.reads) <= run.fault_cycle + 1


def test_beats_that_are_not_needed_are_not_asked_for():
    """A row inside one beat reads that beat; the error of a beat next to it does not matter; window to the byte."""
    config = engine_config()
    run = check(config, [{"address": 1000, "row_bytes": 16, "row_blocks": 1}], window=(1000, 1016), errors=(960, 1024))
    assert [at for _, _, at in run.memory.reads] == [992]


@pytest.mark.parametrize("at", [0, 1, 3, 9, 20, 33, 47])
def test_stop(at):
    """After a stop no new request is shown; those on their way are answered; then the engine is quiet and stays so."""
    config = engine_config()
    command = {"row_bytes": 2048, "row_blocks": 128}
    run = run_loads(config, [command, command], contents=MEMORY, stop_at=at, latency=(5, 40), ready=0.5, reorder=True,
                    seed=at)
    assert not run.done
    late = [cycle for cycle, _, _ in run.memory.reads if cycle > at]
    assert len(late) <= config.ports  # one that was shown already, on each port


# -- on the memory it will have

@pytest.mark.parametrize("ideal", [{}, {"jitter": 12, "reorder": True}, {"latency": 100}], ids=str)
def test_through_the_arbiter_on_ideal_memory(ideal):
    """16 KiB of weights in commands of 4 KiB: exact, and a line a cycle but for the way to memory and back."""
    config = engine_config(**{f"ideal.{key}": value for key, value in ideal.items()})
    m = Module()
    m.submodules.load = engine = LoadEngine(config=config)
    m.submodules.arbiter = arbiter = MemoryArbiter(config=config)
    m.submodules.memory = memory = IdealMemory(config=config)
    contents, blocks, done = bytearray(MEMORY), {}, []
    for index in range(config.ports):
        wiring.connect(m, engine.memory[index], arbiter.load[index])
        wiring.connect(m, arbiter.memory[index], memory.ports[index])
    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    for index in range(config.ports):
        bench(simulator, storage_process, memory.storage[index], contents, background=True)

    async def issue(ctx):
        for number in range(4):
            command = {"target": 1, "address": 8192 + 4096 * number, "row_bytes": 4096, "row_blocks": 256,
                       "destination": 256 * number}
            raw = int.from_bytes(LOAD.encode(**DEFAULTS | command), "little")
            ctx.set(engine.port.commands.payload, LOAD.layout.from_bits(raw))
            ctx.set(engine.port.commands.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(engine.port.commands.ready)
        ctx.set(engine.port.commands.valid, 0)

    async def watch(ctx):
        ctx.set(engine.job.window_limit, 65536)
        for cycle in range(2000):
            _, _, valid, address, count, word, ended = await ctx.tick().sample(
                engine.write.valid, engine.write.address, engine.write.count, engine.write.data, engine.port.done)
            if valid:
                for block in range(count):
                    blocks[address + block] = (word >> 128 * block & (1 << 128) - 1).to_bytes(16, "little")
            if ended:
                done.append(cycle)
            if len(done) == 4:
                return
        raise AssertionError(f"{len(done)} of 4 commands done")

    bench(simulator, issue, background=True)
    bench(simulator, watch)
    simulator.run()
    assert blocks == {number: MEMORY[8192 + 16 * number:8208 + 16 * number] for number in range(1024)}
    if not config.ideal.jitter:  # 2 to the request, 1 in the arbiter, 3 to the write, 4 to the second port's share
        assert done[-1] <= 256 + config.ideal.latency + 10
