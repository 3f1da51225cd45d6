"""The core's cycles, interrupts and WFI, in Amaranth's simulator."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from ringloom.hw.control.core.core import Core
from ringloom.hw.control.core.memory import CodeMemory, DataMemory
from tests.hw.control.core.programs import b_type, csr, i_type, jal, r_type, s_type, u_type

NOP, WFI, MRET = 0x13, 0x10500073, 0x30200073
DATA = 0x10000


def addi(rd, rs1, value):
    return i_type(0x13, rd, 0, rs1, value)


class Bench(wiring.Component):
    """Core and code memory; the data memory lies on the bus wherever an address points."""

    def __init__(self, words):
        self.core, self.code, self.data = Core(), CodeMemory(words=256, init=words), DataMemory(words=64)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.core, m.submodules.code, m.submodules.data = self.core, self.code, self.data
        wiring.connect(m, self.core.fetch, self.code.fetch)
        wiring.connect(m, self.core.bus, self.data.port)
        return m


def run(words, cycles, lines=()):
    """Run ``words``, then for ever in place.

    lines: (cycle, member, value) to set. Returns (cycle, kind, pc, value) of what retires ("r") or traps ("t").
    """
    dut = Bench([*words, jal(0, 0)])
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    seen = []

    async def body(ctx):
        for cycle in range(cycles):
            for at, name, value in lines:
                if at == cycle:
                    ctx.set(getattr(dut.core, name), value)
            trace = dut.core.trace
            if ctx.get(trace.retired):
                seen.append((cycle, "r", ctx.get(trace.pc), ctx.get(trace.value)))
            if ctx.get(trace.trap):
                seen.append((cycle, "t", ctx.get(trace.pc), ctx.get(trace.cause) | ctx.get(trace.interrupt) << 31))
            await ctx.tick()

    simulator.add_testbench(body)
    simulator.run()
    return seen


@pytest.mark.parametrize(("name", "word", "cost"), [
    ("addi", addi(1, 0, 5), 1), ("lui", u_type(0x37, 1, 5), 1), ("csr", csr(2, 1, 0x340, 0), 1),
    ("branch not taken", b_type(1, 0, 0, 8), 1), ("branch taken", b_type(0, 0, 0, 8), 2), ("jal", jal(1, 8), 2),
    ("load", i_type(0x03, 1, 2, 0, 4), 3), ("store", s_type(2, 0, 0, 4), 2), ("ebreak and mret", 0x100073, 4)])
def test_cycles_are_as_documented(name, word, cost):
    words = [addi(2, 0, 64), csr(1, 0, 0x305, 2), NOP, word, NOP, NOP, NOP] + [NOP] * 9
    words += [csr(2, 3, 0x341, 0), addi(3, 3, 4), csr(1, 0, 0x341, 3), MRET]
    seen = [(cycle, pc) for cycle, kind, pc, _ in run(words, 60) if kind == "r"]
    at = {pc: cycle for cycle, pc in reversed(seen)}
    if name == "ebreak and mret":  # each takes its instruction's place and three cycles more
        assert at[0x40] - at[8] == cost
        assert at[0x10] - at[0x4C] == cost - 1
        return
    following = 0x14 if cost == 2 and name != "store" else 0x10
    assert at[following] - at[8] - 1 == cost


def test_interrupts_are_taken_between_instructions_and_in_order():
    """Whatever cycle a line rises in: the interrupted instruction runs once, after the handler."""
    loop = [addi(2, 0, 0x80), csr(1, 0, 0x305, 2), u_type(0x37, 3, 1), addi(3, 3, -0x780), csr(1, 0, 0x304, 3),
            csr(6, 0, 0x300, 8), addi(5, 0, 0),
            addi(5, 5, 1), i_type(0x03, 6, 2, 0, 16), s_type(2, 0, 5, 16), jal(0, -12)]
    words = loop + [NOP] * (32 - len(loop)) + [csr(2, 7, 0x342, 0), MRET]
    for at in range(14, 22):
        for line, cause in (("timer", 7), ("external", 11)):
            # The line falls when the handler has read the cause.
            seen = run(words, 70, [(at, line, 1), (at + 8, line, 0)])
            traps = [item for item in seen if item[1] == "t"]
            assert traps and all(item[3] == 1 << 31 | cause for item in traps), (at, line)
            assert 0 < traps[0][0] - at <= 5, (at, line)
            counts = [value for _, kind, pc, value in seen if kind == "r" and pc == 7 * 4]
            assert counts == list(range(1, len(counts) + 1)), (at, line)
            resumed = next(pc for cycle, kind, pc, _ in seen
                           if kind == "r" and cycle > traps[-1][0] and pc < 0x80)
            assert resumed == traps[-1][2], (at, line)


def test_external_goes_before_timer_and_masks_hold():
    words = [addi(2, 0, 0x40), csr(1, 0, 0x305, 2), u_type(0x37, 3, 1), addi(3, 3, -0x780), csr(1, 0, 0x304, 3),
             csr(6, 0, 0x300, 8)] + [NOP] * 20
    traps = [item for item in run(words, 40, [(0, "timer", 1), (0, "external", 1)]) if item[1] == "t"]
    assert [item[3] for item in traps] == [1 << 31 | 11]  # and MIE is 0 from then on
    only_timer = words[:2] + [addi(3, 0, 0x80), NOP] + words[4:]
    traps = [item for item in run(only_timer, 40, [(0, "timer", 1), (0, "external", 1)]) if item[1] == "t"]
    assert [item[3] for item in traps] == [1 << 31 | 7]


def test_wfi_waits_for_an_enabled_line_and_then_goes_on():
    words = [u_type(0x37, 3, 1), addi(3, 3, -0x800), csr(1, 0, 0x304, 3), WFI, addi(1, 0, 1)] + [NOP] * 10  # external
    at = 30
    seen = run(words, 60, [(10, "timer", 1), (at, "external", 1)])
    retired = {pc: cycle for cycle, kind, pc, _ in reversed(seen) if kind == "r"}
    assert retired[12] == at and retired[16] == at + 1
    assert not [item for item in seen if item[1] == "t"]


def test_a_fetch_outside_and_a_store_to_code_trap():
    words = [addi(2, 0, 0x40), csr(1, 0, 0x305, 2), u_type(0x37, 4, 0x20000), i_type(0x67, 0, 0, 4, 0)] + [NOP] * 12
    words += [csr(2, 7, 0x341, 0)]
    traps = [item for item in run(words, 40) if item[1] == "t"]
    assert [(item[2], item[3]) for item in traps] == [(0x20000000, 1)]


def test_random_programs_end_as_a_small_interpreter_says():
    """A second opinion without Unicorn, on loads, stores and shifts alone."""
    chance = random.Random(7)
    words, registers, memory = [], [0] * 32, bytearray(256)
    for _ in range(120):
        rd, rs = chance.randrange(1, 8), chance.randrange(8)
        kind = chance.randrange(4)
        if kind == 0:
            value = chance.randrange(-2048, 2048)
            words.append(addi(rd, rs, value))
            registers[rd] = registers[rs] + value & 0xFFFFFFFF
        elif kind == 1:
            amount = chance.randrange(32)
            words.append(i_type(0x13, rd, 1, rs, amount))
            registers[rd] = registers[rs] << amount & 0xFFFFFFFF
        elif kind == 2:
            size = chance.randrange(3)
            offset = chance.randrange(0, 256, 1 << size)
            words.append(s_type(size, 0, rs, offset))
            memory[offset:offset + (1 << size)] = registers[rs].to_bytes(4, "little")[:1 << size]
        else:
            size, signed = chance.randrange(3), chance.random() < .5
            offset = chance.randrange(0, 256, 1 << size)
            words.append(i_type(0x03, rd, size if signed or size == 2 else size | 4, 0, offset))
            registers[rd] = int.from_bytes(memory[offset:offset + (1 << size)], "little", signed=signed) & 0xFFFFFFFF
    words += [r_type(0x33, 8, 0, rd, 0) for rd in range(1, 8)]
    results = [value for _, kind, pc, value in run(words, 500) if kind == "r" and 480 <= pc < 508]
    assert results == registers[1:8]
