"""A whole device: jobs from doorbell to interrupt, exact results, counters, faults, aborts, the watchdog."""

import numpy as np
import pytest

from ringloom.hw import isa
from ringloom.hw.counters import CAUSES
from ringloom.hw.regmap import control_register, tile_register
from tests.support.bare import bare
from tests.support.control import command, job
from tests.support.device import COMPLETION, JOB, A, B, C, DeviceBench, gemm

TINY = bare("tiny")
DONE, FAULT, ABORTED = isa.Status.DONE, isa.Status.FAULT, isa.Status.ABORTED


def operands(seed, m, k, n, a_type=np.int8, b_type=np.int8):
    print("seed", seed)
    random = np.random.default_rng(seed)
    return (random.integers(np.iinfo(t).min, np.iinfo(t).max, shape, t, endpoint=True)
            for t, shape in ((a_type, (m, k)), (b_type, (k, n))))


async def multiply(bench, ctx, a, b, a_zero_point=0, b_zero_point=0, **fields):
    """Run ``a @ b`` and check every byte of C and the guards around it; returns the completion."""
    raw, a_bytes, b_bytes = gemm(bench.config, a, b, a_zero_point=a_zero_point, b_zero_point=b_zero_point, **fields)
    size = 4 * a.shape[0] * b.shape[1]
    bench.memory[A:A + len(a_bytes)], bench.memory[B:B + len(b_bytes)] = a_bytes, b_bytes
    bench.memory[C - 64:C + size + 64] = b"\xA5" * (size + 128)
    await bench.start(ctx, raw)
    record = await bench.finish(ctx)
    expected = (a.astype(np.int64) - a_zero_point) @ (b.astype(np.int64) - b_zero_point)
    assert record["status"] == DONE, record
    found = np.frombuffer(bytes(bench.memory[C:C + size]), np.int32).reshape(expected.shape)
    assert (found == expected).all()
    assert bench.memory[C - 64:C] == bench.memory[C + size:C + size + 64] == b"\xA5" * 64
    return record


def test_gemm_counters_and_repetition():
    """Ragged in every dimension, with zero points; twice the same cycles; the causes add up to the job's cycles."""
    a, b = operands(7, 5, 6, 7, b_type=np.uint8)
    bench = DeviceBench(TINY)

    async def body(ctx):
        before, cycles = dict.fromkeys((await bench.counters(ctx)), 0), []
        for repetition in range(2):
            record = await multiply(bench, ctx, a, b, -100, 200, job=repetition + 40, context=3, epoch=repetition)
            assert (record["job"], record["context"], record["epoch"]) == (repetition + 40, 3, repetition)
            cycles.append(record["end"] - record["start"])
            after = await bench.counters(ctx)
            grown = {name: after[name] - before[name] for name in after}
            before = after
            assert grown["cycles"] == cycles[-1] == sum(grown[name] for name in CAUSES)
            assert grown["array.active"] == 5 * 2 * 2
            assert (grown["load.bytes"], grown["store.bytes"]) == (5 * 6 + 6 * 7, 4 * 5 * 7)
            assert [grown[f"commands.{e}"] for e in ("load", "matmul", "store")] == [2, 1, 1]
            assert grown["jobs"] == 1
        assert cycles[0] == cycles[1]
        print("cycles", cycles, grown)
        assert await bench.read_tile(ctx, "fetched") == 4
    bench.run(body)


@pytest.mark.parametrize("preset, overrides", [
    ("tiny", {"ideal.jitter": 40, "ideal.reorder": True, "ideal.write_delay": 60, "ideal.bytes_per_cycle": 64}),
    ("tiny", {"tile.array.rows": 3, "tile.array.columns": 5, "ideal.latency": 4}),
])
def test_gemm_on_other_devices(preset, overrides):
    """Late, reordered answers and odd arrays change cycles, never a byte; completion is seen behind all bytes."""
    bench = DeviceBench(bare(preset, overrides))
    a, b = operands(8, 9, 11, 6, np.uint8)

    async def body(ctx):
        first = await multiply(bench, ctx, a, b, 128, -5)
        assert first["end"] > first["start"]
    bench.run(body)


def test_faults_aborts_and_the_watchdog():
    """Each ends its job with its own words, and the next job is exact and takes the cycles it always takes."""
    a, b = operands(9, 4, 8, 4)
    bench = DeviceBench(TINY)
    outside = TINY.memory.bytes

    def load(**fields):
        return command("load", **{"target": isa.Target.ACTIVATION, "address": A, "rows": 1, "planes": 1,
                                  "row_bytes": 4, "row_blocks": 1, "block_pitch": 1, "row_pitch": 1} | fields)

    cases = [  # records, code, command, address
        ([load(), load(address=outside - 2)], isa.Code.MEMORY_WINDOW, 1, None),
        ([load(), load(), load(destination=1 << 20)], isa.Code.SCRATCHPAD_RANGE, 2, None),
        ([load(rows=0)], isa.Code.BAD_FIELD, 0, None),
        ([load(), b"\x01\x07" + bytes(62)], isa.Code.BAD_OPCODE, 1, JOB + 128),
        ([command("matmul")], isa.Code.BAD_FIELD, 0, None),
        ([command("store", address=outside, rows=1, columns=1)], isa.Code.MEMORY_WINDOW, 0, None),
    ]

    async def body(ctx):
        good = await multiply(bench, ctx, a, b)
        cycles = good["end"] - good["start"]
        for records, code, index, address in cases:
            print(f"{code.name} at command {index}")
            await bench.start(ctx, job(records, completion_address=COMPLETION))
            record = await bench.finish(ctx)
            assert (record["status"], record["code"], record["command"]) == (FAULT, code, index), record
            assert address is None or record["address"] == address
            good = await multiply(bench, ctx, a, b)
            assert good["end"] - good["start"] == cycles

        # A deadlock: the MATMUL waits for a semaphore that nothing signals.
        await bench.start(ctx, job([load(signals=[0]), command("matmul", waits=[(0, 1), (21, 1)])],
                                   completion_address=COMPLETION, watchdog_cycles=200))
        record = await bench.finish(ctx)
        assert (record["status"], record["code"], record["command"]) == (FAULT, isa.Code.WATCHDOG, 1)
        assert await bench.read_tile(ctx, "matmul_state") == 1 | 21 << 8 | 1 << 16
        assert await bench.read_tile(ctx, "load_state") == await bench.read_tile(ctx, "store_state") == 0
        assert await bench.read_tile(ctx, "semaphore0") == 1

        for after in (1, 30, 55, 80, 110):
            raw, *_ = gemm(TINY, a, b)
            await bench.start(ctx, raw)
            await ctx.tick().repeat(after)
            await bench.write(ctx, control_register("abort"), 1)
            record = await bench.finish(ctx)
            assert (record["status"], record["code"]) == (ABORTED, isa.Code.ABORT)
            good = await multiply(bench, ctx, a, b)
            assert good["end"] - good["start"] == cycles
    bench.run(body)


def test_long_commands_are_progress():
    """A MATMUL and a LOAD that only fills, each many times the watchdog's patience and without memory, end well."""
    commands = [
        command("load", signals=[0], target=isa.Target.ACTIVATION, rows=300, planes=1, row_blocks=1, block_pitch=1),
        command("load", signals=[0], target=isa.Target.WEIGHT, transpose=1, rows=300, planes=1, row_blocks=1),
        command("matmul", waits=[(0, 2)], signals=[1], rows=30, k_steps=10, n_steps=1, weight_row_pitch=1),
        command("matmul", rows=1, k_steps=150, n_steps=1, weight_row_pitch=1),
    ]
    bench = DeviceBench(TINY)

    async def body(ctx):
        await bench.start(ctx, job(commands, completion_address=COMPLETION, watchdog_cycles=100))
        record = await bench.finish(ctx)
        print(record)
        assert record["status"] == DONE
        assert record["end"] - record["start"] > 300 + 300 + 300 + 150
    bench.run(body)


def test_window_keeps_a_job_inside():
    """With a window around everything but C the STORE is refused and C keeps its bytes."""
    a, b = operands(10, 4, 4, 4)
    bench = DeviceBench(TINY)

    async def body(ctx):
        await bench.write(ctx, tile_register(0, "window_limit_low"), C)
        raw, *_ = gemm(TINY, a, b, completion_address=C - 64)
        bench.memory[C:C + 64] = b"\x5A" * 64
        await bench.start(ctx, raw)
        await ctx.tick().repeat(300)
        record = isa.COMPLETION.decode(bytes(bench.memory[C - 64:C]))
        assert (record["status"], record["code"], record["command"]) == (FAULT, isa.Code.MEMORY_WINDOW, 3)
        assert bench.memory[C:C + 64] == b"\x5A" * 64
    bench.run(body)


def test_completion_comes_after_the_bytes():
    """With write answers up to 200 cycles late, C is whole in storage when the completion record appears in it."""
    a, b = operands(11, 6, 4, 4)
    bench = DeviceBench(bare("tiny", {"ideal.write_delay": 200}))
    seen = []

    async def watch(ctx):
        async for _ in ctx.tick():
            if bench.memory[COMPLETION + 4] and not seen:
                seen.append(bytes(bench.memory[C:C + 96]))

    async def body(ctx):
        await multiply(bench, ctx, a, b)
        assert seen == [(a.astype(np.int32) @ b.astype(np.int32)).tobytes()]
    bench.simulator.add_testbench(watch, background=True)
    bench.run(body)


def test_host_window_beside_a_job():
    """The AXI4 window reads and writes memory while a job runs, and the job's result stays exact."""
    a, b = operands(12, 8, 8, 8)
    bench = DeviceBench(TINY)
    axi = bench.dut.s_axi
    data = np.random.default_rng(12).integers(0, 256, 32 * 16, np.uint8).tobytes()

    finished = []

    async def host(ctx):
        for name, value in (("awaddr", 0x9000), ("awlen", 15), ("awsize", 5), ("awburst", 1), ("bready", 1)):
            ctx.set(getattr(axi, name), value)
        while not finished:
            ctx.set(axi.awvalid, 1)
            await ctx.tick().until(axi.awready)
            ctx.set(axi.awvalid, 0)
            for k in range(16):
                ctx.set(axi.wdata, int.from_bytes(data[32 * k:32 * k + 32], "little"))
                ctx.set(axi.wstrb, (1 << 32) - 1)
                ctx.set(axi.wvalid, 1)
                await ctx.tick().until(axi.wready)
            ctx.set(axi.wvalid, 0)
            await ctx.tick().until(axi.bvalid)

    async def body(ctx):
        await multiply(bench, ctx, a, b)
        finished.append(True)
        assert bench.memory[0x9000:0x9000 + len(data)] == data
        for name, value in (("araddr", 0x9000), ("arlen", 15), ("arsize", 5), ("arburst", 1), ("rready", 1),
                            ("arvalid", 1)):
            ctx.set(getattr(axi, name), value)
        await ctx.tick().until(axi.arready)
        ctx.set(axi.arvalid, 0)
        read = b""
        while len(read) < len(data):
            value, response = await ctx.tick().sample(axi.rdata, axi.rresp).until(axi.rvalid)
            assert response == 0
            read += value.to_bytes(32, "little")
        assert read == data
    bench.simulator.add_testbench(host)
    bench.run(body)
