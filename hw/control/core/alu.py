"""Arithmetic of the management core."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .encoding import Arithmetic

__all__ = ["Alu"]


class Alu(wiring.Component):
    """All of RV32I's operations on two registers, and the comparisons of its branches. Combinational.

    One adder adds, subtracts and compares. One shifter serves both directions: a left shift is a right shift of
    the mirrored word.

    Members
    -------
    function : In(3)
        funct3 of REGISTER.
    subtract : In(1)
        Takes b away; the comparisons need it, XOR, OR, AND and the shifts need it 0.
    arithmetic : In(1)
        SRA instead of SRL.
    left : In(1)
        The function is SLL: told apart from it, since the shifter is the longest path.
    a, b : In(32)
    o : Out(32)
        The operation's result.
    sum : Out(32)
        a + b or a - b, whatever the function: the address of loads, stores and JALR.
    equal, less, less_unsigned : Out(1)
        a == b, a < b as two's complement, a < b unsigned.
    """

    def __init__(self) -> None:
        super().__init__({
            "function": In(3),
            "subtract": In(1),
            "arithmetic": In(1),
            "left": In(1),
            "a": In(32),
            "b": In(32),
            "o": Out(32),
            "sum": Out(32),
            "equal": Out(1),
            "less": Out(1),
            "less_unsigned": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        a, b = self.a, Signal(32)
        carry = Signal()
        m.d.comb += [
            b.eq(self.b ^ self.subtract.replicate(32)),
            Cat(self.sum, carry).eq(a + b + self.subtract),
            self.equal.eq((a ^ b).all()),
            self.less_unsigned.eq(~carry),
            self.less.eq(~carry ^ a[31] ^ self.b[31]),
        ]

        operand, shifted = Signal(33), Signal(32)
        m.d.comb += [
            operand.eq(Cat(Mux(self.left, a[::-1], a), self.arithmetic & ~self.left & a[31])),
            shifted.eq(operand.as_signed() >> b[:5]),
        ]

        with m.Switch(self.function):
            with m.Case(Arithmetic.ADD):
                m.d.comb += self.o.eq(self.sum)
            with m.Case(Arithmetic.SLL):
                m.d.comb += self.o.eq(shifted[::-1])
            with m.Case(Arithmetic.SR):
                m.d.comb += self.o.eq(shifted)
            with m.Case(Arithmetic.SLT):
                m.d.comb += self.o.eq(self.less)
            with m.Case(Arithmetic.SLTU):
                m.d.comb += self.o.eq(self.less_unsigned)
            with m.Case(Arithmetic.XOR):
                m.d.comb += self.o.eq(a ^ b)
            with m.Case(Arithmetic.OR):
                m.d.comb += self.o.eq(a | b)
            with m.Case(Arithmetic.AND):
                m.d.comb += self.o.eq(a & b)
        return m
