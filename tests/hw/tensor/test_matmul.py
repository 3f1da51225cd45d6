"""The MATMUL engine without its array: order of reads, cycles, rules, at the sizes of the real presets."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from ringloom.hw.isa import MATMUL, Code
from ringloom.hw.tensor.matmul import MatmulEngine
from tests.support.bare import bare

FIELDS = {
    "a_signed": 1, "b_signed": 1, "activation_row_pitch": 1, "activation_k_pitch": 8, "weight_row_pitch": 1,
    "weight_k_pitch": 16, "weight_n_pitch": 64, "rows": 8, "k_steps": 4, "n_steps": 2, "accumulator_n_pitch": 8,
}


def reads(config, fields):
    """What a command reads and updates, in order: groups of weight rows, and rows of A."""
    tile = config.tile
    groups, rows = [], []
    for n in range(fields["n_steps"]):
        for k in range(fields["k_steps"]):
            start = fields.get("weight", 0) + n * fields["weight_n_pitch"] + k * fields["weight_k_pitch"]
            for g in range(tile.array.load_cycles):
                row = g * tile.array.load_rows
                groups.append((1 << g, (start + row * fields["weight_row_pitch"]) % tile.weight_blocks))
            for m in range(fields["rows"]):
                activation = (fields.get("activation", 0) + m * fields["activation_row_pitch"]
                              + k * fields["activation_k_pitch"])
                word = fields.get("accumulator", 0) + n * fields["accumulator_n_pitch"] + m
                rows.append((activation, word, int(k == 0 and not fields.get("accumulate", 0))))
    return groups, rows


class Bench:
    """Feeds commands (fields, idle cycles before) and notes what happens in which cycle."""

    def __init__(self, config, commands):
        self.config = config
        self.commands = commands
        self.dut = MatmulEngine(config=config)
        self.groups, self.rows, self.accepted, self.done, self.fault = [], [], [], [], None

    def run(self, cycles):
        dut, array = self.dut, self.config.tile.array
        port = dut.port

        async def commands(ctx):
            for fields, idle in self.commands:
                for _ in range(idle):
                    await ctx.tick()
                ctx.set(port.commands.payload.as_value(), int.from_bytes(MATMUL.encode(**fields), "little"))
                ctx.set(port.commands.valid, 1)
                ready = False
                while not ready:  # not ``until``: a faulted engine is left while this waits
                    _, _, ready = await ctx.tick().sample(port.commands.ready)
                ctx.set(port.commands.valid, 0)

        async def monitor(ctx):
            ends = [0] * (array.rows + array.columns + 1)  # the array and the accumulators
            for cycle in range(cycles):
                ctx.set(dut.ended, ends.pop(0))
                _, _, accept, done, weights, activations, update, fault, busy = await ctx.tick().sample(
                    port.commands.valid & port.commands.ready, port.done, dut.weights, dut.activations, dut.update,
                    port.fault_valid, port.busy)
                ends.append(update.valid & update.last)
                assert update.valid == activations.valid
                if accept:
                    self.accepted.append(cycle)
                if done:
                    self.done.append(cycle)
                if weights.load:
                    self.groups.append((cycle, weights.load, weights.address, weights.plane))
                if activations.valid:
                    self.rows.append((cycle, activations.address, update.address, update.overwrite,
                                      activations.plane))
                if fault and self.fault is None:
                    self.fault = cycle, ctx.get(port.fault.code), ctx.get(port.fault.address)
                assert self.fault is None or fault
                assert busy == (len(self.accepted) - accept > len(self.done) - done)

        simulator = Simulator(dut)
        simulator.add_clock(1e-6)
        simulator.add_testbench(commands, background=True)
        simulator.add_testbench(monitor)
        simulator.run()


@pytest.mark.parametrize("shape", [(1, 1, 4), (4, 4, 4), (3, 5, 2), (16, 16, 4), (16, 16, 8), (32, 32, 4)])
def test_order_and_planes(shape):
    """Reads come in the loops' order, and no tile is read before its plane is free or used before it is whole."""
    seed = sum(shape)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    config = bare("inference", {"tile.array.rows": shape[0], "tile.array.columns": shape[1],
                                "tile.array.weight_rows_per_cycle": shape[2]})
    commands = []
    for _ in range(8):
        rows, k_steps, n_steps = (int(rng.choice([1, 1, 2, 5, 9])), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        commands.append(({
            **FIELDS, "rows": rows, "k_steps": k_steps, "n_steps": n_steps, "activation": int(rng.integers(100)),
            "activation_row_pitch": int(rng.integers(9)), "activation_k_pitch": int(rng.integers(50)),
            "weight": int(rng.integers(100)), "weight_row_pitch": 2 * int(rng.integers(10)) + 1,
            "weight_k_pitch": int(rng.integers(99)), "weight_n_pitch": int(rng.integers(300)),
            "accumulator": int(rng.integers(100)), "accumulator_n_pitch": int(rng.integers(20)),
            "accumulate": int(rng.integers(2)),
        }, int(rng.choice([0, 0, 1, 30]))))
    bench = Bench(config, commands)
    bench.run(8 * 120 * config.tile.array.load_cycles)

    expected = [reads(config, fields) for fields, _ in commands]
    assert [group[1:3] for group in bench.groups] == [g for groups, _ in expected for g in groups]
    assert [row[1:4] for row in bench.rows] == [r for _, rows in expected for r in rows]
    assert len(bench.done) == len(commands) and bench.fault is None

    per_tile = config.tile.array.load_cycles
    tiles = [bench.groups[i:i + per_tile] for i in range(0, len(bench.groups), per_tile)]
    uses, rest = [], bench.rows
    for fields, _ in commands:
        for _ in range(fields["k_steps"] * fields["n_steps"]):
            uses.append(rest[:fields["rows"]])
            rest = rest[fields["rows"]:]
    for i, (groups, use) in enumerate(zip(tiles, uses, strict=True)):
        assert groups[-1][0] < use[0][0], "used before it is whole"
        assert {g[3] for g in groups} == {u[4] for u in use} == {i % 2}
        assert i == 0 or groups[0][0] >= uses[i - 1][0][0], "read while its plane is in use"


def test_latency_and_overlap():
    """16x16: from acceptance to the first row, no gap within a command or between two, and the end."""
    config = bare("inference")
    bench = Bench(config, [(FIELDS, 0), (FIELDS, 0), ({**FIELDS, "rows": 20, "k_steps": 1, "n_steps": 1}, 0)])
    bench.run(300)
    rows = 2 * 64 + 20
    first = bench.rows[0][0]
    assert first - bench.accepted[0] == config.tile.array.load_cycles + 1
    assert [row[0] for row in bench.rows] == list(range(first, first + rows))
    array = config.tile.array
    assert bench.done[-1] - bench.rows[-1][0] == array.rows + array.columns + 1


@pytest.mark.parametrize(("rows", "per_cycle"), [(16, 4), (16, 1), (4, 4), (32, 4)])
def test_weight_bound(rows, per_cycle):
    """With one row of A a weight tile starts every ``load_cycles`` cycles, across commands too."""
    config = bare("inference", {"tile.array.rows": rows, "tile.array.weight_rows_per_cycle": per_cycle})
    cycles = config.tile.array.load_cycles
    command = {**FIELDS, "rows": 1, "k_steps": 8, "n_steps": 3}
    bench = Bench(config, [(command, 0), (command, 0)])
    bench.run(60 * cycles + 80)
    starts = [row[0] for row in bench.rows]
    assert len(starts) == 48
    gaps = np.diff(starts)
    within = np.delete(gaps, 23)
    assert (within == cycles).all()
    assert gaps[23] == max(cycles, 4), "the rules take four cycles"


def _last(base, *steps):
    return base + sum((count - 1) * pitch for count, pitch in steps)


TILE = bare("inference").tile
BAD = [
    ({"rows": 0}, Code.BAD_FIELD, 0),
    ({"k_steps": 0}, Code.BAD_FIELD, 0),
    ({"n_steps": 0}, Code.BAD_FIELD, 0),
    ({"weight_row_pitch": 2}, Code.BAD_FIELD, 0),
    ({"weight_row_pitch": 0}, Code.BAD_FIELD, 0),
    ({"a_zero_point": 128}, Code.BAD_FIELD, 0),
    ({"a_zero_point": -129}, Code.BAD_FIELD, 0),
    ({"a_signed": 0, "a_zero_point": -1}, Code.BAD_FIELD, 0),
    ({"a_signed": 0, "a_zero_point": 256}, Code.BAD_FIELD, 0),
    ({"b_zero_point": 128}, Code.BAD_FIELD, 0),
    ({"b_signed": 0, "b_zero_point": -1}, Code.BAD_FIELD, 0),
    ({"b_signed": 0, "b_zero_point": -32768}, Code.BAD_FIELD, 0),
    ({"activation": TILE.activation_blocks - 31}, Code.SCRATCHPAD_RANGE, TILE.activation_blocks),
    ({"activation": 0xFFFFFFFF}, Code.SCRATCHPAD_RANGE, 0xFFFFFFFF + 31),
    ({"activation_row_pitch": 0xFFFF}, Code.SCRATCHPAD_RANGE, 7 * 0xFFFF + 24),
    ({"activation_k_pitch": 0xFFFF, "k_steps": 0xFFFF}, Code.SCRATCHPAD_RANGE, 0xFFFE * 0xFFFF + 7),
    ({"weight": TILE.weight_blocks - 127}, Code.SCRATCHPAD_RANGE, TILE.weight_blocks),
    ({"weight_row_pitch": 0xFFFF}, Code.SCRATCHPAD_RANGE, 15 * 0xFFFF + 3 * 16 + 64),
    ({"weight_k_pitch": 0x8000, "k_steps": 3}, Code.SCRATCHPAD_RANGE, 0x10000 + 64 + 15),
    ({"weight_n_pitch": 0x8000}, Code.SCRATCHPAD_RANGE, 0x8000 + 48 + 15),
    ({"accumulator": TILE.accumulator_words - 15}, Code.SCRATCHPAD_RANGE, TILE.accumulator_words),
    ({"accumulator_n_pitch": TILE.accumulator_words}, Code.SCRATCHPAD_RANGE, TILE.accumulator_words + 7),
    ({"b_zero_point_table": 1, "zero_point_base": TILE.zero_point_blocks - 1}, Code.SCRATCHPAD_RANGE,
     TILE.zero_point_blocks),
]
GOOD = [
    {"activation": TILE.activation_blocks - 32}, {"weight": TILE.weight_blocks - 128},
    {"accumulator": TILE.accumulator_words - 16}, {"a_zero_point": 127}, {"a_zero_point": -128},
    {"a_signed": 0, "a_zero_point": 255}, {"b_signed": 0, "b_zero_point": 255}, {"b_zero_point": -128},
    {"b_zero_point_table": 1, "zero_point_base": TILE.zero_point_blocks - 2, "b_zero_point": 999},
    {"zero_point_base": 65535}, {"activation_row_pitch": 0, "activation_k_pitch": 0},
]


@pytest.mark.parametrize(("change", "code", "address"), BAD, ids=[",".join(map(str, b[0].items())) for b in BAD])
def test_faults(change, code, address):
    """A bad command ends nothing, changes nothing, and shows its fault when the good one before it is done."""
    bench = Bench(bare("inference"), [(FIELDS, 0), ({**FIELDS, **change}, 0), (FIELDS, 0)])
    bench.run(200)
    assert len(bench.done) == 1 and len(bench.accepted) == 2
    assert len(bench.rows) == FIELDS["rows"] * FIELDS["k_steps"] * FIELDS["n_steps"]
    assert bench.fault == (bench.done[0] + 1, code, address)


@pytest.mark.parametrize("overrides", [
    {}, {"tile.array.rows": 1, "tile.array.columns": 64, "tile.scratchpad.activation_bytes": 1 << 15},
    {"tile.array.rows": 64, "tile.array.columns": 64, "tile.scratchpad.weight_bytes": 16384},
])
def test_nothing_is_cut_before_it_is_checked(overrides):
    """Pitches and bases whose low bits alone would lie in the tile, each in a command of its own."""
    config = bare("inference", overrides)
    fields = FIELDS | {"rows": 2, "k_steps": 2, "n_steps": 2} | {name: 1 for name in FIELDS if "pitch" in name}
    limits = {"activation": config.tile.activation_blocks, "weight": config.tile.weight_blocks,
              "accumulator": config.tile.accumulator_words}
    for operand, limit in limits.items():
        for name in [operand, *(n for n in fields if n.startswith(operand) and n.endswith("pitch"))]:
            if name == "weight_row_pitch" and config.tile.array.rows == 1:
                continue  # there is no second weight row
            for value in (1 << 31, limit) if name == operand else (0xFFFF, max(limit, 0x8000) | 1):
                bench = Bench(config, [({**fields, name: value}, 0)])
                bench.run(12)
                command = {operand: 0, **fields, name: value}
                last = command[operand] + sum(command[n] for n in fields if n.startswith(operand) and "_row" not in n)
                if operand == "weight":
                    last += (config.tile.array.rows - 1) * command["weight_row_pitch"]
                else:
                    last += command.get(f"{operand}_row_pitch", 1)
                assert bench.fault and bench.fault[1:] == (Code.SCRATCHPAD_RANGE, last), (name, value)


def test_fault_of_an_idle_engine():
    bench = Bench(bare("inference"), [({**FIELDS, "weight": 1 << 20}, 3)])
    bench.run(60)
    assert bench.fault and bench.fault[0] - bench.accepted[0] <= 5 and not bench.rows


def test_addresses_at_the_ends_are_good():
    bench = Bench(bare("inference"), [({**FIELDS, **change}, 0) for change in GOOD])
    bench.run(64 * len(GOOD) + 100)
    assert bench.fault is None and len(bench.done) == len(GOOD)


def test_even_pitch_is_good_where_one_row_is_read():
    config = bare("inference", {"tile.array.weight_rows_per_cycle": 1})
    bench = Bench(config, [({**FIELDS, "weight_row_pitch": 2}, 0)])
    bench.run(300)
    assert bench.fault is None and len(bench.done) == 1
