"""A bench around :class:`TensorEngine`: loads operands, runs commands, keeps a numpy model of the accumulators."""

import itertools
from dataclasses import dataclass, field

import numpy as np
from amaranth.sim import Simulator

from ringloom.hw.isa import MATMUL, Target
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.tensor.engine import TensorEngine


@dataclass
class Matmul:
    """One command with its operands; ``fields`` is what the record says."""

    a: np.ndarray
    b: np.ndarray
    fields: dict = field(default_factory=dict)
    zero_points: np.ndarray | None = None


def wrap(values):
    """int64 to what 32 bits keep of it."""
    return np.asarray(values, dtype=np.int64).astype(np.uint32).view(np.int32).astype(np.int64)


class TensorBench:
    """Runs ``program(ctx)`` beside monitors that note the cycles of each event."""

    def __init__(self, config, *, seed=0):
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.dut = TensorEngine(config=config)
        self.shapes = block_shapes(config)
        self.rows, self.columns = config.tile.array.rows, config.tile.array.columns
        self.words = np.zeros((config.tile.accumulator_words, self.columns), dtype=np.int64)
        self.cycle = 0
        self.accepted, self.done, self.active, self.waiting = [], [], [], []
        self._free = {Target.ACTIVATION: 0, Target.WEIGHT: 0, Target.ZERO_POINT: 0}

    def run(self, program, *others, limit=100_000):
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-6)
        port = self.dut.port
        commands = port.commands

        async def monitor(ctx):
            samples = ctx.tick().sample(commands.valid & commands.ready, port.done, self.dut.events.active,
                                        self.dut.events.idle_weight)
            async for _, _, accept, done, active, waiting in samples:
                for happened, log in ((accept, self.accepted), (done, self.done), (active, self.active),
                                      (waiting, self.waiting)):
                    if happened:
                        log.append(self.cycle)
                self.cycle += 1
                assert self.cycle < limit, f"hangs: {len(self.accepted)} commands accepted, {len(self.done)} done"

        simulator.add_process(monitor)
        simulator.add_testbench(program)
        for other in others:
            simulator.add_testbench(other, background=True)
        simulator.run()

    # -- the LOAD side ------------------------------------------------------------------------------

    async def write(self, ctx, target, address, blocks, pitch=1):
        """Blocks of ``target`` (bytes each), as many a cycle as pitch and shape allow, or by chance fewer."""
        shape, bus = self.shapes[target], self.dut.load
        blocks = [bytes(block) for block in blocks]
        while blocks:
            count = min(len(blocks), int(self.rng.integers(1, shape.per_write + 1))) if pitch % 2 else 1
            raw = b"".join(blocks[:count])
            ctx.set(bus.valid, 1)
            ctx.set(bus.target, target)
            ctx.set(bus.address, address)
            ctx.set(bus.pitch, pitch % (1 << len(bus.pitch)))
            ctx.set(bus.count, count)
            ctx.set(bus.data, int.from_bytes(raw, "little"))
            await ctx.tick()
            address += count * pitch
            blocks = blocks[count:]
        ctx.set(bus.valid, 0)

    async def write_words(self, ctx, address, values):
        """int32 words straight into the accumulators."""
        values = np.asarray(values, dtype=np.int64)
        await self.write(ctx, Target.ACCUMULATOR, address, [row.astype("<i4").tobytes() for row in values])
        self.words[address:address + len(values)] = values

    async def place(self, ctx, a, b, *, accumulator=0, accumulate=0, a_zero_point=0, b_zero_point=0, zero_points=None,
                    wide=None):
        """Write operands to free blocks, with random layouts, and return the command for them."""
        (m, k), (_, n) = a.shape, b.shape
        k_steps, n_steps = -(-k // self.rows), -(-n // self.columns)
        padded_a = np.full((m, k_steps * self.rows), a_zero_point, dtype=np.int64)
        padded_a[:, :k] = a
        fill = np.full(n_steps * self.columns, b_zero_point, dtype=np.int64)
        if zero_points is not None:
            fill[:n] = zero_points
        padded_b = np.tile(fill, (k_steps * self.rows, 1))
        padded_b[:k, :n] = b

        if self.rng.integers(2):
            row_pitch, k_pitch = 1, m
        else:
            row_pitch, k_pitch = k_steps, 1
        activation = self._take(Target.ACTIVATION, m * k_steps)
        for step in range(k_steps):
            await self.write(ctx, Target.ACTIVATION, activation + step * k_pitch,
                             [row[step * self.rows:(step + 1) * self.rows].astype(np.uint8).tobytes()
                              for row in padded_a], row_pitch)

        tiles = k_steps * n_steps
        if self.rng.integers(2):
            weight_row_pitch, weight_k_pitch, weight_n_pitch = 1, self.rows, self.rows * k_steps
            weight = self._take(Target.WEIGHT, self.rows * tiles)
        else:
            weight_row_pitch, weight_k_pitch, weight_n_pitch = tiles | 1, n_steps, 1
            weight = self._take(Target.WEIGHT, self.rows * weight_row_pitch)
        for ks, ns in itertools.product(range(k_steps), range(n_steps)):
            rows = padded_b[ks * self.rows:(ks + 1) * self.rows, ns * self.columns:(ns + 1) * self.columns]
            await self.write(ctx, Target.WEIGHT, weight + ks * weight_k_pitch + ns * weight_n_pitch,
                             [row.astype(np.uint8).tobytes() for row in rows], weight_row_pitch)

        base = 0
        if zero_points is not None:
            base = self._take(Target.ZERO_POINT, n_steps)
            await self.write(ctx, Target.ZERO_POINT, base,
                             [row.astype(np.uint8).tobytes() for row in fill.reshape(n_steps, self.columns)])
        return Matmul(a, b, {
            "accumulate": accumulate, "a_signed": int(a.dtype == np.int8), "b_signed": int(b.dtype == np.int8),
            "b_zero_point_table": int(zero_points is not None), "zero_point_base": base, "activation": activation,
            "activation_row_pitch": row_pitch, "activation_k_pitch": k_pitch, "weight": weight,
            "weight_row_pitch": weight_row_pitch, "weight_k_pitch": weight_k_pitch, "weight_n_pitch": weight_n_pitch,
            "rows": m, "k_steps": k_steps, "n_steps": n_steps, "accumulator": accumulator,
            "accumulator_n_pitch": m if wide is None else wide, "a_zero_point": a_zero_point,
            "b_zero_point": b_zero_point if zero_points is None else 0,
        }, zero_points)

    def _take(self, target, blocks):
        start = self._free[target]
        self._free[target] += blocks
        assert self._free[target] <= self.shapes[target].blocks, f"the test needs more {target.name} blocks"
        return start

    # -- commands and results -----------------------------------------------------------------------

    def expect(self, command):
        """Apply the command to the numpy model."""
        fields = command.fields
        b_zero = fields["b_zero_point"] if command.zero_points is None else np.asarray(command.zero_points)
        product = (command.a.astype(np.int64) - fields["a_zero_point"]) @ (command.b.astype(np.int64) - b_zero)
        m, n = product.shape
        for step in range(fields["n_steps"]):
            block = np.zeros((m, self.columns), dtype=np.int64)
            part = product[:, step * self.columns:(step + 1) * self.columns]
            block[:, :part.shape[1]] = part
            first = fields["accumulator"] + step * fields["accumulator_n_pitch"]
            old = self.words[first:first + m] if fields["accumulate"] else 0
            self.words[first:first + m] = wrap(old + block)

    async def issue(self, ctx, command, *, idle=0):
        """Hand a command over after ``idle`` cycles; returns in the cycle after it was accepted."""
        commands = self.dut.port.commands
        for _ in range(idle):
            await ctx.tick()
        fields = command.fields if isinstance(command, Matmul) else command
        ctx.set(commands.payload.as_value(), int.from_bytes(MATMUL.encode(**fields), "little"))
        ctx.set(commands.valid, 1)
        await ctx.tick().until(commands.ready)
        ctx.set(commands.valid, 0)
        if isinstance(command, Matmul):
            self.expect(command)

    async def drain(self, ctx):
        """Wait until the engine is empty."""
        while ctx.get(self.dut.port.busy):
            await ctx.tick()

    async def read(self, ctx, address):
        """One accumulator word, as STORE reads it."""
        port = self.dut.accumulator
        ctx.set(port.valid, 1)
        ctx.set(port.address, address)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)
        return np.array([ctx.get(port.data[c]) for c in range(self.columns)], dtype=np.int64)

    async def check(self, ctx, addresses):
        """Compare accumulator words with the model."""
        for address in addresses:
            word = await self.read(ctx, address)
            np.testing.assert_array_equal(word, self.words[address], f"accumulator word {address}")
