"""Proofs of the management core's decoder and ALU: every instruction word, all operands.

The specification's side is written from the instruction listing (masks, matches, formulas); no code of the core's.
"""

import pytest
from amaranth.hdl import Assert, C, Cat, Module, Mux, Signal
from amaranth.hdl import signed as signed_shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ringloom.hw.control.core.alu import Alu
from ringloom.hw.control.core.decoder import Decoder, Result
from tests.support.proof import counterexample

FLAGS = ("branch", "jal", "jalr", "load", "store", "csr", "mret", "wfi", "ecall", "ebreak")

# name: (mask, match, the flag it raises)
LISTING = {
    "lui": (0x7F, 0x37, None), "auipc": (0x7F, 0x17, None), "jal": (0x7F, 0x6F, "jal"),
    "jalr": (0x707F, 0x67, "jalr"),
    **{name: (0x707F, 0x63 | f << 12, "branch")
       for name, f in (("beq", 0), ("bne", 1), ("blt", 4), ("bge", 5), ("bltu", 6), ("bgeu", 7))},
    **{name: (0x707F, 0x03 | f << 12, "load") for name, f in (("lb", 0), ("lh", 1), ("lw", 2), ("lbu", 4), ("lhu", 5))},
    **{name: (0x707F, 0x23 | f << 12, "store") for name, f in (("sb", 0), ("sh", 1), ("sw", 2))},
    **{name: (0x707F, 0x13 | f << 12, None)
       for name, f in (("addi", 0), ("slti", 2), ("sltiu", 3), ("xori", 4), ("ori", 6), ("andi", 7))},
    "slli": (0xFE00707F, 0x1013, None), "srli": (0xFE00707F, 0x5013, None), "srai": (0xFE00707F, 0x40005013, None),
    **{name: (0xFE00707F, 0x33 | f << 12 | u << 25, None)
       for name, f, u in (("add", 0, 0), ("sub", 0, 32), ("sll", 1, 0), ("slt", 2, 0), ("sltu", 3, 0), ("xor", 4, 0),
                          ("srl", 5, 0), ("sra", 5, 32), ("or", 6, 0), ("and", 7, 0))},
    "fence": (0x707F, 0x0F, None), "fence.i": (0x707F, 0x100F, None),
    "ecall": (0xFFFFFFFF, 0x73, "ecall"), "ebreak": (0xFFFFFFFF, 0x100073, "ebreak"),
    "mret": (0xFFFFFFFF, 0x30200073, "mret"), "wfi": (0xFFFFFFFF, 0x10500073, "wfi"),
    **{f"csr{f}": (0x707F, 0x73 | f << 12, "csr") for f in (1, 2, 3, 5, 6, 7)},
}
NO_RESULT = ("beq", "bne", "blt", "bge", "bltu", "bgeu", "sb", "sh", "sw", "fence", "fence.i", "ecall", "ebreak",
             "mret", "wfi")


def signed(value):
    return value.as_signed()


def word(value):
    """32 bits of it, extended by its sign."""
    return (value + C(0, signed_shape(40)))[:32]


class Specified(wiring.Component):
    """Decoder and ALU joined as the core joins them, beside what the specification says.

    fault: a control signal that is inverted between the two, to show that the proof can fail.
    """

    instruction: In(32)
    rs1: In(32)
    rs2: In(32)

    def __init__(self, fault=None):
        self.fault = fault
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = Decoder()
        m.submodules.alu = alu = Alu()
        i, a, b = self.instruction, self.rs1, self.rs2
        control = Signal.like(decoder.control)
        m.d.comb += [decoder.instruction.eq(i), control.eq(decoder.control)]
        if self.fault:
            m.d.comb += control[self.fault].eq(~decoder.control[self.fault])
        m.d.comb += [
            alu.function.eq(control.function), alu.subtract.eq(control.subtract),
            alu.arithmetic.eq(control.arithmetic), alu.left.eq(control.left), alu.a.eq(Mux(control.zero_operand, 0, a)),
            alu.b.eq(Mux(control.immediate_operand, decoder.immediate, b)),
        ]

        # immediates as numbers: the sign bit counts negative
        sign = i[31]
        i_value = signed(i[20:32])
        s_value = i[7:12] + (i[25:31] << 5) - (sign << 11)
        b_value = (i[8:12] << 1) + (i[25:31] << 5) + (i[7] << 11) - (sign << 12)
        j_value = (i[21:31] << 1) + (i[20] << 11) + (i[12:20] << 12) - (sign << 20)
        u_value = i[12:32] << 12
        amount, by = i[20:25], b[:5]
        results = {
            "lui": u_value, "addi": a + i_value, "slti": signed(a) < i_value,
            "sltiu": a < Cat(i[20:32], sign.replicate(20)),
            "xori": a ^ i_value, "ori": a | i_value, "andi": a & i_value,
            "slli": a << amount, "srli": a >> amount, "srai": signed(a) >> amount,
            "add": a + b, "sub": a - b, "sll": a << by, "slt": signed(a) < signed(b), "sltu": a < b, "xor": a ^ b,
            "srl": a >> by, "sra": signed(a) >> by, "or": a | b, "and": a & b,
        }
        conditions = {"beq": a == b, "bne": a != b, "blt": signed(a) < signed(b), "bge": signed(a) >= signed(b),
                      "bltu": a < b, "bgeu": a >= b}
        holds = {"beq": alu.equal, "bne": ~alu.equal, "blt": alu.less, "bge": ~alu.less,
                 "bltu": alu.less_unsigned, "bgeu": ~alu.less_unsigned}
        addresses = {**dict.fromkeys(("jalr", "lb", "lh", "lw", "lbu", "lhu"), a + i_value),
                     **dict.fromkeys(("sb", "sh", "sw"), a + s_value)}
        immediates = {"auipc": u_value, "jal": j_value, **dict.fromkeys(conditions, b_value)}

        known = C(0, 1)
        for name, (mask, match, flag) in LISTING.items():
            known = known | ((i & mask) == match)
            with m.If((i & mask) == match):
                m.d.comb += [Assert(~control.illegal), Assert(control.writes == (name not in NO_RESULT))]
                m.d.comb += [Assert(control[other] == (other == flag)) for other in FLAGS]
                if name in results:
                    m.d.comb += [Assert(alu.o == word(results[name])), Assert(control.result == Result.ALU)]
                if name in conditions:
                    m.d.comb += Assert(holds[name] == conditions[name])
                if name in addresses:
                    m.d.comb += Assert(alu.sum == word(addresses[name]))
                if name in immediates:
                    m.d.comb += Assert(decoder.immediate == word(immediates[name]))
                if flag == "csr":
                    m.d.comb += [Assert(decoder.immediate[:12] == i[20:32]), Assert(control.result == Result.CSR),
                                 Assert(control.csr_writes == ((match >> 12 & 3 == 1) | (i[15:20] != 0)))]
                if flag in ("jal", "jalr", "load"):
                    m.d.comb += Assert(control.result == (Result.LOAD if flag == "load" else Result.LINK))
                if name == "auipc":
                    m.d.comb += Assert(control.result == Result.TARGET)
                if flag in ("branch", "load", "store", "csr"):
                    m.d.comb += Assert(control.function == i[12:15])
        with m.If(~known):
            m.d.comb += [Assert(control.illegal), Assert(~control.writes)]
            m.d.comb += [Assert(~control[flag]) for flag in FLAGS]
        return m


def test_every_instruction_word(tmp_path):
    assert counterexample(Specified(), tmp_path) is None


@pytest.mark.parametrize("fault", ["subtract", "illegal"])
def test_the_proof_can_fail(fault, tmp_path):
    assert "Assert failed" in counterexample(Specified(fault), tmp_path)
