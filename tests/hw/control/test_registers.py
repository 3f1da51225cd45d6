"""Registers behind the AXI4-Lite slave: every entry of the map, strobes, channel order, back-pressure, errors."""

import random

import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from ringloom.hw import regmap
from ringloom.hw.control.axi_lite import AxiLite, AxiLiteSlave
from ringloom.hw.control.registers import ControlRegisters, TileRegisters
from ringloom.hw.counters import COUNTERS
from ringloom.hw.regmap import Access, control_register, tile_register
from tests.support.bare import bare

CONFIG = bare("tiny")
OKAY, SLVERR, DECERR = 0, 2, 3


class Registers(wiring.Component):
    """Both register blocks and the slave, with what they look at made up by the bench."""

    axi: Out(AxiLite(address_bits=regmap.ADDRESS_BITS))

    def __init__(self):
        super().__init__()
        self.control, self.tile = ControlRegisters(config=CONFIG), TileRegisters(config=CONFIG)

    def elaborate(self, platform):
        m = Module()
        m.submodules.slave = slave = AxiLiteSlave(address_bits=regmap.ADDRESS_BITS)
        m.submodules.control, m.submodules.tile = self.control, self.tile
        wiring.connect(m, wiring.flipped(self.axi), slave.axi)
        wiring.connect(m, slave.bus, self.control.bus)
        wiring.connect(m, self.control.tiles[0], self.tile.bus)
        side = self.tile.control
        m.d.comb += [
            # A semaphore shows 3 * its number, a counter (number << 40) + 5 * number.
            side.semaphore_value.eq(3 * side.semaphore_index),
            self.tile.counter_value.eq((self.tile.counter_index << 40) + 5 * self.tile.counter_index),
            self.tile.start.eq(self.control.start[0]),
        ]
        return m


class Bench:
    def __init__(self, seed=0, stall=0.0):
        self.dut, self.chance, self.stall = Registers(), random.Random(seed), stall
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-6)

    def run(self, body):
        self.simulator.add_testbench(body)
        self.simulator.run()

    async def transfer(self, ctx, offers, answer, *fields, limit=200):
        """Offer channels (each after a random while) and take the answer (after a random while)."""
        axi = self.dut.axi
        delay = {c: self.chance.randrange(6) if self.stall else 0 for c in (*offers, answer)}
        left = dict(offers)
        for cycle in range(limit):
            for channel, values in left.items():
                if cycle == delay[channel]:
                    for name, value in values.items():
                        ctx.set(getattr(axi, channel + name), value)
                    ctx.set(getattr(axi, f"{channel}valid"), 1)
            ctx.set(getattr(axi, f"{answer}ready"), cycle >= delay[answer] and self.chance.random() >= self.stall)
            ready = ctx.get(getattr(axi, f"{answer}ready"))
            channels = [*left]
            *_, valid, flags, values = await ctx.tick().sample(
                getattr(axi, f"{answer}valid"),
                Cat(getattr(axi, f"{c}valid") & getattr(axi, f"{c}ready") for c in channels),
                Cat(getattr(axi, answer + f) for f in fields))
            for n, channel in enumerate(channels):
                if flags >> n & 1:
                    ctx.set(getattr(axi, f"{channel}valid"), 0)
                    del left[channel]
            if valid and ready:
                ctx.set(getattr(axi, f"{answer}ready"), 0)
                assert not left
                return values
        raise AssertionError(f"no answer on {answer} in {limit} cycles; still offered: {[*left]}")

    async def write(self, ctx, address, value, strobe=0xF):
        return await self.transfer(ctx, {"aw": {"addr": address}, "w": {"data": value, "strb": strobe}}, "b", "resp")

    async def read(self, ctx, address):
        packed = await self.transfer(ctx, {"ar": {"addr": address}}, "r", "data", "resp")
        return packed & 0xFFFFFFFF, packed >> 32




EXPECTED = {"id": 0x4D4C4E52, "version": 1, "tiles": 1, "array": 4 << 16 | 4, "doorbell": 0, "abort": 0, "busy": 0,
            "irq_status": 0, "irq_enable": 0, "snapshot": 0}


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_every_register(stall):
    """Reset values, RW keeps what is written byte by byte, RO refuses, everything else is DECERR."""
    bench = Bench(seed=3, stall=stall)

    async def body(ctx):
        for register in regmap.CONTROL:
            value, response = await bench.read(ctx, control_register(register.name))
            assert response == OKAY
            if not register.name.startswith("cycle"):
                assert value == EXPECTED[register.name], register.name
        for register in regmap.TILE:
            address = tile_register(0, register.name)
            if register.access is Access.RW:
                value, _ = await bench.read(ctx, address)
                assert value == (CONFIG.memory.bytes if register.name == "window_limit_low" else 0)
                assert await bench.write(ctx, address, 0x12345678) == OKAY
                assert await bench.write(ctx, address, 0xAABBCCDD, strobe=0b0110) == OKAY
                assert await bench.read(ctx, address) == (0x12BBCC78, OKAY)
            elif register.access is Access.WO:
                assert await bench.read(ctx, address) == (0, OKAY)
                assert await bench.write(ctx, address, 0xFFFFFFFF) == OKAY
            elif not register.name.startswith(("counter", "semaphore1", "semaphore2")):
                assert (await bench.read(ctx, address))[1] == OKAY
                assert await bench.write(ctx, address, 0xFFFFFFFF) == SLVERR
        for address in (0x030, 0xFFC, 0x1078, 0x107C, 0x1FFC, 0x2000, 0x1FFFC):
            assert await bench.read(ctx, address) == (0, DECERR), hex(address)
            assert await bench.write(ctx, address, 1) == DECERR
        side = bench.dut.tile.control
        for name in ("job", "window_base", "window_limit"):
            assert ctx.get(getattr(side, name)) == 0x12BBCC78_12BBCC78
    bench.run(body)


def test_tables_behind_ports():
    """Every semaphore and counter is shown at its own address."""
    bench = Bench()

    async def body(ctx):
        for i in (0, 1, 7, 30, 31):
            assert await bench.read(ctx, tile_register(0, f"semaphore{i}")) == (3 * i, OKAY)
        for i, counter in enumerate(COUNTERS):
            name = f"counter_{counter.name.replace('.', '_')}"
            assert await bench.read(ctx, tile_register(0, f"{name}_low")) == (5 * i, OKAY)
            assert await bench.read(ctx, tile_register(0, f"{name}_high")) == (i << 8, OKAY)
        side = bench.dut.tile.control
        ctx.set(side.busy, 1)
        ctx.set(side.status, 2)
        ctx.set(side.code, 9)
        ctx.set(side.states[1], 0x00070501)
        ctx.set(side.fetched, 77)
        assert await bench.read(ctx, tile_register(0, "status")) == (1 | 2 << 8 | 9 << 16, OKAY)
        assert await bench.read(ctx, tile_register(0, "matmul_state")) == (0x00070501, OKAY)
        assert await bench.read(ctx, tile_register(0, "fetched")) == (77, OKAY)
    bench.run(body)


def test_doorbell_interrupt_and_cycle():
    """A doorbell is one pulse, through its strobe; an interrupt waits for its enable, and clears by a one."""
    bench = Bench()
    control = bench.dut.control
    starts = []

    async def watch(ctx):
        async for _, _, start, abort, snapshot in ctx.tick().sample(control.start, control.abort, control.snapshot):
            if start or abort or snapshot:
                starts.append((start, abort, snapshot))

    async def body(ctx):
        assert await bench.write(ctx, control_register("doorbell"), 1) == OKAY
        assert await bench.write(ctx, control_register("doorbell"), 1, strobe=0b1110) == OKAY
        assert await bench.write(ctx, control_register("doorbell"), 0xFFFE) == OKAY
        assert await bench.write(ctx, control_register("abort"), 1) == OKAY
        assert await bench.write(ctx, control_register("snapshot"), 1) == OKAY
        assert starts == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
        ctx.set(control.ended, 1)
        await ctx.tick()
        ctx.set(control.ended, 0)
        assert await bench.read(ctx, control_register("irq_status")) == (1, OKAY)
        assert not ctx.get(control.irq)
        await bench.write(ctx, control_register("irq_enable"), 1)
        assert ctx.get(control.irq)
        await bench.write(ctx, control_register("irq_status"), 0)
        assert ctx.get(control.irq)
        await bench.write(ctx, control_register("irq_status"), 1)
        assert not ctx.get(control.irq)
        # An end in the very cycle of the clear is kept.
        ctx.set(control.ended, 1)
        await bench.write(ctx, control_register("irq_status"), 1)
        ctx.set(control.ended, 0)
        assert ctx.get(control.irq)
        low, _ = await bench.read(ctx, control_register("cycle_low"))
        later, _ = await bench.read(ctx, control_register("cycle_low"))
        assert 0 < low < later < low + 10
        assert await bench.read(ctx, control_register("cycle_high")) == (0, OKAY)
    bench.simulator.add_testbench(watch, background=True)
    bench.run(body)
