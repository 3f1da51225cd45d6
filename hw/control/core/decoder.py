"""Instruction decoder of the management core."""

from amaranth.hdl import C, Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...shaped import ShapedEnum
from .encoding import EBREAK, ECALL, MRET, WFI, Arithmetic, Opcode, System

__all__ = ["Result", "control_layout", "Decoder"]


class Result(ShapedEnum, shape=3):
    """Where the value of ``rd`` comes from."""

    ALU = 0     # LUI too: 0 + immediate
    TARGET = 1  # AUIPC: pc + immediate
    LINK = 2    # JAL, JALR: pc + 4
    LOAD = 3
    CSR = 4


control_layout = data.StructLayout({
    "function": 3,    # funct3: ALU function, branch condition, access size or CSR operation
    "subtract": 1,    # the adder subtracts: SUB and comparisons
    "arithmetic": 1,  # right shifts extend the sign
    "left": 1,        # shifts go left
    "zero_operand": 1,       # the first operand is 0, not rs1
    "immediate_operand": 1,  # the second operand is the immediate, not rs2
    "writes": 1,      # rd takes a value
    "result": Result,
    "branch": 1,
    "jal": 1,
    "jalr": 1,
    "load": 1,
    "store": 1,
    "csr": 1,
    "csr_writes": 1,  # a CSR instruction that changes its CSR
    "mret": 1,
    "wfi": 1,
    "ecall": 1,
    "ebreak": 1,
    "illegal": 1,     # then every other flag that acts is 0
})


class Decoder(wiring.Component):
    """Splits an instruction into control signals and its immediate. Combinational.

    FENCE and FENCE.I do nothing: the core keeps memory in order and its code memory is read-only. An instruction
    that is not RV32I, Zicsr, Zifencei, MRET or WFI is illegal, reserved encodings included (hints are not). Whether
    a CSR exists is not looked at here.

    Members
    -------
    instruction : In(32)
    control : Out(control_layout)
    immediate : Out(32)
        Sign-extended; for a CSR instruction its address in bits 11:0.
    """

    def __init__(self) -> None:
        super().__init__({
            "instruction": In(32),
            "control": Out(control_layout),
            "immediate": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        i = self.instruction
        c = self.control
        opcode, function, upper, sign = i[:7], i[12:15], i[25:32], i[31]

        compare = function[1:] == Arithmetic.SLT >> 1
        with m.Switch(opcode):
            with m.Case(Opcode.STORE):
                m.d.comb += self.immediate.eq(Cat(i[7:12], i[25:31], sign.replicate(21)))
            with m.Case(Opcode.BRANCH):
                m.d.comb += self.immediate.eq(Cat(C(0, 1), i[8:12], i[25:31], i[7], sign.replicate(20)))
            with m.Case(Opcode.LUI, Opcode.AUIPC):
                m.d.comb += self.immediate.eq(Cat(C(0, 12), i[12:32]))
            with m.Case(Opcode.JAL):
                m.d.comb += self.immediate.eq(Cat(C(0, 1), i[21:31], i[20], i[12:20], sign.replicate(12)))
            with m.Default():
                m.d.comb += self.immediate.eq(Cat(i[20:31], sign.replicate(21)))

        m.d.comb += [c.function.eq(function), c.left.eq(function == Arithmetic.SLL)]
        with m.Switch(opcode):
            with m.Case(Opcode.LUI):
                m.d.comb += [c.writes.eq(1), c.function.eq(Arithmetic.ADD), c.zero_operand.eq(1),
                             c.immediate_operand.eq(1)]
            with m.Case(Opcode.AUIPC):
                m.d.comb += [c.writes.eq(1), c.result.eq(Result.TARGET)]
            with m.Case(Opcode.JAL):
                m.d.comb += [c.writes.eq(1), c.result.eq(Result.LINK), c.jal.eq(1)]
            with m.Case(Opcode.JALR):
                legal = function == 0
                m.d.comb += [c.writes.eq(legal), c.result.eq(Result.LINK), c.jalr.eq(legal), c.illegal.eq(~legal),
                             c.immediate_operand.eq(1)]
            with m.Case(Opcode.BRANCH):
                legal = function[1:] != 1
                m.d.comb += [c.branch.eq(legal), c.illegal.eq(~legal), c.subtract.eq(1)]
            with m.Case(Opcode.LOAD):
                legal = (function != 3) & (function[1:] != 3)
                m.d.comb += [c.writes.eq(legal), c.result.eq(Result.LOAD), c.load.eq(legal), c.illegal.eq(~legal),
                             c.immediate_operand.eq(1)]
            with m.Case(Opcode.STORE):
                legal = ~function[2] & (function != 3)
                m.d.comb += [c.store.eq(legal), c.illegal.eq(~legal), c.immediate_operand.eq(1)]
            with m.Case(Opcode.IMMEDIATE):
                right = function == Arithmetic.SR
                shift = right | (function == Arithmetic.SLL)
                legal = ~shift | (upper == 0) | (right & (upper == 0x20))
                m.d.comb += [c.writes.eq(legal), c.illegal.eq(~legal), c.immediate_operand.eq(1),
                             c.subtract.eq(compare), c.arithmetic.eq(upper[5])]
            with m.Case(Opcode.REGISTER):
                two = (function == Arithmetic.ADD) | (function == Arithmetic.SR)
                legal = (upper == 0) | (two & (upper == 0x20))
                m.d.comb += [c.writes.eq(legal), c.illegal.eq(~legal), c.arithmetic.eq(upper[5]),
                             c.subtract.eq(compare | ((function == Arithmetic.ADD) & upper[5]))]
            with m.Case(Opcode.FENCE):
                m.d.comb += c.illegal.eq(function[1:] != 0)
            with m.Case(Opcode.SYSTEM):
                with m.If(function == System.PRIVILEGED):
                    with m.Switch(i):
                        with m.Case(ECALL):
                            m.d.comb += c.ecall.eq(1)
                        with m.Case(EBREAK):
                            m.d.comb += c.ebreak.eq(1)
                        with m.Case(MRET):
                            m.d.comb += c.mret.eq(1)
                        with m.Case(WFI):
                            m.d.comb += c.wfi.eq(1)
                        with m.Default():
                            m.d.comb += c.illegal.eq(1)
                with m.Else():
                    # Set and clear with rs1 = x0 (or a zero immediate) only read.
                    writes = (function[:2] == System.CSRRW) | i[15:20].any()
                    legal = function[:2] != 0
                    m.d.comb += [c.writes.eq(legal), c.result.eq(Result.CSR), c.csr.eq(legal), c.illegal.eq(~legal),
                                 c.csr_writes.eq(writes)]
            with m.Default():
                m.d.comb += c.illegal.eq(1)
        return m
