"""The scratchpad against a numpy array of blocks: every bank count, odd pitches, reads beside writes."""

import numpy as np
import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.blocks import BlockShape
from ringloom.hw.memory.scratchpad import Scratchpad

SHAPES = [
    (BlockShape(bytes=4, blocks=16, per_write=1, banks=1), 1),
    (BlockShape(bytes=3, blocks=8, per_write=1, banks=4), 3),
    (BlockShape(bytes=16, blocks=64, per_write=4, banks=4), 4),
    (BlockShape(bytes=16, blocks=64, per_write=4, banks=4), 1),
    (BlockShape(bytes=8, blocks=64, per_write=8, banks=8), 4),
    (BlockShape(bytes=16, blocks=32, per_write=2, banks=8), 8),
    (BlockShape(bytes=1, blocks=256, per_write=64, banks=64), 1),
    (BlockShape(bytes=1, blocks=256, per_write=32, banks=128), 5),
    (BlockShape(bytes=2, blocks=4, per_write=4, banks=4), 4),
]


@pytest.mark.parametrize(("shape", "reads"), SHAPES, ids=lambda value: getattr(value, "banks", value))
def test_reads_and_writes(shape, reads):
    seed = shape.banks + 1000 * reads
    print("seed", seed)
    rng = np.random.default_rng(seed)
    dut = Scratchpad(shape=shape, reads=reads)
    blocks = [0] * shape.blocks

    def pitch(count):
        value = int(rng.integers(shape.blocks))
        return value if count == 1 else value | 1

    async def bench(ctx):
        shown = None
        for _ in range(200):
            count = int(rng.integers(shape.per_write + 1))
            writes = bool(rng.integers(2))
            address, step = int(rng.integers(shape.blocks)), pitch(count)
            values = [int.from_bytes(rng.bytes(shape.bytes), "little") for _ in range(count)]
            ctx.set(dut.write_enable, writes)
            ctx.set(dut.write_address, address)
            ctx.set(dut.write_pitch, step)
            ctx.set(dut.write_count, count)
            ctx.set(dut.write_data, sum(v << 8 * shape.bytes * i for i, v in enumerate(values)))

            read = bool(rng.integers(2))
            read_address, read_pitch = int(rng.integers(shape.blocks)), pitch(reads)
            ctx.set(dut.read_enable, read)
            ctx.set(dut.read_address, read_address)
            ctx.set(dut.read_pitch, read_pitch)
            await ctx.tick()
            if read:
                shown = [blocks[(read_address + i * read_pitch) % shape.blocks] for i in range(reads)]
            if writes:
                for i, value in enumerate(values):
                    blocks[(address + i * step) % shape.blocks] = value
            if shown is not None:
                assert [ctx.get(dut.read_data[i]) for i in range(reads)] == shown

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()

