"""What lies on the core's bus: selector, memories, timer, and the bridge to the registers."""

import random

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from ringloom.hw.control.axi_lite import AxiResponse
from ringloom.hw.control.core.bridge import RegisterBridge
from ringloom.hw.control.core.management import ManagementCore
from ringloom.hw.control.core.timer import Timer
from tests.hw.control.core.programs import csr, i_type, jal, s_type, u_type


async def access(ctx, port, address, data=None, strobe=15, limit=50):
    """One access of a bus port: (data, error, cycles)."""
    request = port.requests
    ctx.set(request.payload, {"address": address, "write": data is not None, "data": data or 0, "strobe": strobe})
    ctx.set(request.valid, 1)
    taken = False
    for cycle in range(limit):
        if ctx.get(port.responses.valid):
            payload = ctx.get(port.responses.payload)
            await ctx.tick()
            return payload.data, payload.error, cycle
        taken = bool(ctx.get(request.ready)) and not taken
        await ctx.tick()
        if taken:
            ctx.set(request.valid, 0)
    raise AssertionError(f"no answer from {address:#x}")


def simulate(dut, *bodies):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for body in bodies:
        simulator.add_testbench(body)
    simulator.run()


def test_timer_counts_compares_and_refuses():
    dut = Timer()

    async def body(ctx):
        first, _, latency = await access(ctx, dut.port, 0)
        assert latency == 1
        await ctx.tick().repeat(20)
        second, _, _ = await access(ctx, dut.port, 0)
        assert second - first == 20 + latency + 1
        assert not ctx.get(dut.interrupt)
        assert (await access(ctx, dut.port, 0, 5))[1] == 1  # the count cannot be written
        await access(ctx, dut.port, 12, 0)
        due = second + 60
        await access(ctx, dut.port, 8, due)
        assert (await access(ctx, dut.port, 8))[0] == due
        while not ctx.get(dut.interrupt):
            await ctx.tick()
        now, _, _ = await access(ctx, dut.port, 0)
        assert now - due == 1  # the line follows a cycle behind
        await access(ctx, dut.port, 12, 1)
        await ctx.tick()
        assert not ctx.get(dut.interrupt)

    simulate(dut, body)


class Host(wiring.Component):
    """The bridge with registers that answer address + 1, and errors above 0x100."""

    def __init__(self):
        super().__init__({})
        self.bridge = RegisterBridge()

    def elaborate(self, platform):
        m = Module()
        m.submodules.bridge = bridge = self.bridge
        bus = bridge.bus
        for kind, address in ((bus.read_response, bus.read_address), (bus.write_response, bus.write_address)):
            with m.If(address >= 0x100):
                m.d.comb += kind.eq(AxiResponse.DECERR)
        m.d.comb += bus.read_data.eq(bus.read_address + 1)
        return m


@pytest.mark.parametrize("seed", range(3))
def test_bridge_lets_the_host_first_and_loses_nothing(seed):
    dut = Host()
    bridge, chance = dut.bridge, random.Random(seed)
    print("seed", seed)
    host_log, core_log, writes = [], [], []

    async def host(ctx):
        for _ in range(300):
            read, write = chance.random() < .4, chance.random() < .4
            address = chance.randrange(0, 0x100, 4)
            ctx.set(bridge.host.read, read)
            ctx.set(bridge.host.read_address, address)
            ctx.set(bridge.host.write, write)
            ctx.set(bridge.host.write_address, address)
            ctx.set(bridge.host.write_data, address | 0x1000)
            await ctx.delay(1e-7)
            if read:
                assert ctx.get(bridge.host.read_data) == address + 1
            if write:
                host_log.append((address, address | 0x1000))
            if ctx.get(bridge.bus.write):
                writes.append((ctx.get(bridge.bus.write_address), ctx.get(bridge.bus.write_data)))
            await ctx.tick()

    async def core(ctx):
        for _ in range(40):
            address = chance.randrange(0, 0x200, 4)
            if chance.random() < .5:
                _, error, _ = await access(ctx, bridge.core, address, 7)
                core_log.append((address, 7))
            else:
                data, error, _ = await access(ctx, bridge.core, address)
                assert data == address + 1
            assert error == (address >= 0x100)

    simulate(dut, host, core)
    assert [item for item in writes if item[1] != 7] == host_log
    assert [item for item in writes if item[1] == 7] == core_log


class Slow(Host):
    """The same, where each access lasts three cycles."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        bus = self.bridge.bus
        for way in ("read", "write"):
            waited, ready = Signal(2, name=f"{way}_waited"), getattr(bus, f"{way}_ready")
            m.d.comb += ready.eq(waited == 2)
            m.d.sync += waited.eq(Mux(getattr(bus, way) & ~ready, waited + 1, 0))
        return m


@pytest.mark.parametrize("pause", [1, 2])
@pytest.mark.parametrize("write", [False, True])
def test_a_host_that_polls_keeps_the_core_from_no_register(write, pause):
    """The core's access ends within the host's that has begun and its own; no access changes before it has ended."""
    dut = Slow()
    bus, host_bus, way = dut.bridge.bus, dut.bridge.host, "write" if write else "read"
    ended, held = [], []

    async def host(ctx):
        for number in range(60):
            ctx.set(getattr(host_bus, f"{way}_address"), 4 * (number % 8))
            ctx.set(getattr(host_bus, way), 1)
            await ctx.tick().until(getattr(host_bus, f"{way}_ready"))
            ended.append(number)
            ctx.set(getattr(host_bus, way), 0)
            await ctx.tick().repeat(pause)

    async def watch(ctx):
        before = None
        async for _, _, active, address, ready in ctx.tick().sample(
                getattr(bus, way), getattr(bus, f"{way}_address"), getattr(bus, f"{way}_ready")):
            held.append(before is None or address == before)
            before = address if active and not ready else None

    async def core(ctx):
        for number in range(20):
            _, _, cycles = await access(ctx, dut.bridge.core, 0x80 + 4 * number, 7 if write else None)
            assert cycles <= 8
            if number % 4:
                await ctx.tick().repeat(number % 4)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(host)
    simulator.add_testbench(watch, background=True)
    simulator.add_testbench(core)
    simulator.run()
    assert len(ended) == 60 and all(held)


def test_the_core_reaches_every_region_and_missing_ones_fault():
    """A program stores a word to each region and reads it back; nowhere and code memory trap."""
    store, load = s_type(2, 5, 6, 4), i_type(0x03, 7, 2, 5, 4)
    words = [i_type(0x13, 2, 0, 0, 0x80), csr(1, 0, 0x305, 2), i_type(0x13, 6, 0, 0, 77)]
    for region in (0x00000, 0x10000, 0x30000, 0x40000, 0x70000):
        words += [u_type(0x37, 5, region), store, load]
    words += [jal(0, 0)]
    words += [0x13] * (32 - len(words))
    words += [csr(2, 8, 0x341, 0), i_type(0x13, 8, 0, 8, 4), csr(1, 0, 0x341, 8), 0x30200073]
    dut = ManagementCore(code_words=64, data_words=16, firmware=words)
    seen, traps, asked = [], [], []

    async def device(ctx):
        """Both ports answer address + 9 after a few cycles."""
        waits = []
        for _ in range(150):
            for port in (dut.registers, dut.queues):
                ctx.set(port.responses.valid, 0)
                ctx.set(port.requests.ready, 1)
                if ctx.get(port.requests.valid):
                    payload = ctx.get(port.requests.payload)
                    asked.append((payload.address, payload.write, payload.data))
                    waits.append((port, payload.address, 3))
            for port, address, left in list(waits):
                waits.remove((port, address, left))
                if left:
                    waits.append((port, address, left - 1))
                else:
                    ctx.set(port.responses.payload, {"data": address + 9, "error": 0})
                    ctx.set(port.responses.valid, 1)
            trace = dut.trace
            if ctx.get(trace.retired) and ctx.get(trace.writes) and ctx.get(trace.rd) == 7:
                seen.append(ctx.get(trace.value))
            if ctx.get(trace.trap):
                traps.append((ctx.get(trace.pc), ctx.get(trace.cause), ctx.get(trace.value)))
            await ctx.tick()

    simulate(dut, device)
    assert seen == [words[1], 77, 0x3000000D, 0x4000000D]
    assert traps == [(0x10, 7, 4), (0x40, 7, 0x70000004), (0x44, 5, 0x70000004)]
    assert [(address, write) for address, write, _ in asked] == [
        (0x30000004, 1), (0x30000004, 0), (0x40000004, 1), (0x40000004, 0)]
    assert all(data == 77 for _, write, data in asked if write)
