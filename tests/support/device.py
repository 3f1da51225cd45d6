"""A whole device in Amaranth's simulator: storage, register accesses, jobs."""

import numpy as np
from amaranth.sim import Simulator

from ringloom.hw import isa
from ringloom.hw.counters import COUNTERS
from ringloom.hw.device import Device
from ringloom.hw.regmap import control_register, tile_register
from tests.support.control import command, job
from tests.support.memory import bench, storage_process

JOB, COMPLETION, A, B, C = 0x1000, 0x8000, 0x2000, 0x3000, 0x4000


class DeviceBench:
    """Runs jobs on tile 0; ``memory`` is its storage."""

    def __init__(self, config):
        self.config = config
        self.memory = bytearray(config.memory.bytes)
        self.dut = Device(config=config)
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-6)
        for p in range(config.ports):
            bench(self.simulator, storage_process, getattr(self.dut, f"storage0_{p}"), self.memory, background=True)

    def run(self, body):
        self.simulator.add_testbench(body)
        self.simulator.run()

    async def write(self, ctx, address, value):
        axi = self.dut.s_axil
        for name, item in (("awaddr", address), ("awvalid", 1), ("wdata", value), ("wstrb", 15), ("wvalid", 1),
                           ("bready", 1)):
            ctx.set(getattr(axi, name), item)
        await ctx.tick()  # the slave is free: it takes both at once
        ctx.set(axi.awvalid, 0)
        ctx.set(axi.wvalid, 0)
        response, = await ctx.tick().sample(axi.bresp).until(axi.bvalid)
        assert response == 0, f"write of {address:#x} answered {response}"

    async def read(self, ctx, address):
        axi = self.dut.s_axil
        for name, item in (("araddr", address), ("arvalid", 1), ("rready", 1)):
            ctx.set(getattr(axi, name), item)
        await ctx.tick()
        ctx.set(axi.arvalid, 0)
        value, response = await ctx.tick().sample(axi.rdata, axi.rresp).until(axi.rvalid)
        assert response == 0, f"read of {address:#x} answered {response}"
        return value

    async def read_tile(self, ctx, name):
        return await self.read(ctx, tile_register(0, name))

    async def start(self, ctx, raw, address=JOB):
        """Put a job into memory and ring its doorbell."""
        self.memory[address:address + len(raw)] = raw
        self.memory[COMPLETION:COMPLETION + 64] = bytes(64)
        await self.write(ctx, tile_register(0, "job_low"), address)
        await self.write(ctx, control_register("irq_enable"), 1)
        await self.write(ctx, control_register("doorbell"), 1)

    async def finish(self, ctx, limit=5000):
        """Wait for the interrupt; returns the completion record's fields, checked against the registers.

        Where the job ended before its completion address was known, status and code are the registers'.
        """
        for _ in range(limit):
            if ctx.get(self.dut.irq):
                break
            await ctx.tick()
        else:
            states = {n: hex(await self.read_tile(ctx, n)) for n in ("load_state", "matmul_state", "store_state")}
            raise AssertionError(f"no interrupt in {limit} cycles: {states}, "
                                 f"fetched {await self.read_tile(ctx, 'fetched')}")
        record = isa.COMPLETION.decode(bytes(self.memory[COMPLETION:COMPLETION + 64]))
        status = await self.read_tile(ctx, "status")
        if record["status"] == isa.Status.PENDING:
            record |= {"status": status >> 8 & 0xFF, "code": status >> 16}
        assert status == record["status"] << 8 | record["code"] << 16
        await self.write(ctx, control_register("irq_status"), 1)
        assert not ctx.get(self.dut.irq)
        return record

    async def counters(self, ctx):
        await self.write(ctx, control_register("snapshot"), 1)
        names = {c.name: f"counter_{c.name.replace('.', '_')}" for c in COUNTERS}
        return {name: await self.read_tile(ctx, f"{register}_low") | await self.read_tile(ctx, f"{register}_high") << 32
                for name, register in names.items()}


def gemm(config, a, b, *, a_zero_point=0, b_zero_point=0, c_address=C, **fields):
    """A job that multiplies ``a`` (M, K) at A by ``b`` (K, N) at B into int32 at ``c_address``; and the bytes at A, B.

    One LOAD for each operand, one MATMUL, one STORE. Rows and columns need not fill the array.
    """
    array = config.tile.array
    (m, k), (_, n) = a.shape, b.shape
    k_steps, n_steps = -(-k // array.rows), -(-n // array.columns)
    pitch = n_steps | 1  # odd: weight rows that are read together lie in different banks
    padded = k_steps * array.rows
    commands = [
        command("load", signals=[0], target=isa.Target.ACTIVATION, address=A, rows=m, planes=1, row_bytes=k,
                row_stride=k, row_blocks=k_steps, block_pitch=1, row_pitch=k_steps, pad_value=a_zero_point & 0xFF),
        command("load", signals=[1], target=isa.Target.WEIGHT, address=B, rows=padded, planes=1, row_bytes=n,
                row_stride=n, row_blocks=n_steps, block_pitch=1, row_pitch=pitch, pad_bottom=padded - k,
                pad_value=b_zero_point & 0xFF),
        command("matmul", waits=[(0, 1), (1, 1)], signals=[2], a_signed=a.dtype == np.int8, b_signed=b.dtype == np.int8,
                activation_row_pitch=k_steps, activation_k_pitch=1, weight_row_pitch=pitch,
                weight_k_pitch=pitch * array.rows, weight_n_pitch=1, rows=m, k_steps=k_steps, n_steps=n_steps,
                accumulator_n_pitch=m, a_zero_point=a_zero_point, b_zero_point=b_zero_point),
        command("store", waits=[(2, 1)], rounding=isa.Rounding.RAW, address=c_address, row_stride=4 * n, rows=m,
                columns=n, accumulator_n_pitch=m),
    ]
    return job(commands, **{"completion_address": COMPLETION} | fields), a.tobytes(), b.tobytes()
