"""From int32 accumulators to 8-bit outputs, bit-exact with the rounding a command names (docs/numerics.md)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa import Rounding

__all__ = ["LATENCY", "Requantizer", "requantizer_layout"]

LATENCY = 5
"""Cycles from an accumulator to its output."""

_SIGNIFICAND = 24   # bits of a float32 significand, the hidden one included
_WHOLE = 16         # integer bits of a product that matter: with a 16-bit zero point, 2^16 lies beyond every clamp
_FRACTION = 25      # fraction bits kept; what lies below is one sticky bit
_FIXED = _WHOLE + _FRACTION
_UNIT = 150 - _FRACTION  # float32 exponent whose significand, as an integer, has its unit at the last fraction bit


def requantizer_layout(lanes: int) -> data.StructLayout:
    """accumulators: int32, bias included; scales: bits of a float32, sign ignored; the rest as in a STORE record."""
    return data.StructLayout({
        "accumulators": data.ArrayLayout(signed(32), lanes),
        "scales": data.ArrayLayout(32, lanes),
        "zero_points": data.ArrayLayout(signed(16), lanes),
        "rounding": Rounding,
        "clamp_low": signed(16),
        "clamp_high": signed(16),
    })


def _smear(value, width):
    """All ones from the highest one of ``value`` down."""
    step = 1
    while step < width:
        value = value | value >> step
        step *= 2
    return value


def _to_float32(m, name, magnitude):
    """``magnitude`` (32 bits) rounded half to even to 24 significant bits, as float32(int32) does."""
    excess = Signal(8, name=f"{name}_excess")        # ones over the bits that float32 drops
    keep_bit = Signal(9, name=f"{name}_keep_bit")    # the last bit that it keeps
    dropped = Signal(8, name=f"{name}_dropped")
    m.d.comb += [
        excess.eq(_smear(magnitude[_SIGNIFICAND:], 8)),
        keep_bit.eq(excess + 1),
        dropped.eq(magnitude & excess),
    ]
    half = (excess >> 1) + 1
    up = excess.any() & ((dropped > half) | ((dropped == half) & (magnitude[:9] & keep_bit).any()))
    return ((magnitude ^ dropped) + Mux(up, keep_bit, 0))[:32]


def _near_tie(m, name, whole, fraction, sticky):
    """Whether float32 rounds ``whole + fraction`` (and a sticky bit) to a number and a half.

    float32 has 24 - L fraction bits behind L integer bits, so it does within 2^(L-25) of the half, the ends
    included: there it rounds to even, and a number and a half is even. With ``_FRACTION`` = 25 that is 2^L units.
    """
    window = Signal(_FRACTION - 1, name=f"{name}_window")  # 2^L - 1
    beyond = Signal(_FRACTION - 1, name=f"{name}_beyond")
    above = fraction[-1]
    m.d.comb += [
        window.eq(_smear(whole, _WHOLE)),
        beyond.eq(Mux(above, fraction[:-1], ~fraction[:-1])),  # distance from the half; one less when below it
    ]
    return ~(beyond & ~window).any() | (above & ~sticky & (beyond == window + 1))


class Requantizer(wiring.Component):
    """Lanes that compute ``clamp(round(accumulator * scale) + zero_point, clamp_low, clamp_high)``.

    Each ``i`` gives one ``o`` exactly :data:`LATENCY` cycles later; one a cycle, never held back. ``o`` is the low
    8 bits of the clamped value. A scale that the host refuses still has a defined result: the sign bit is ignored,
    exponent 0 counts as a normal number of exponent 0 (the product rounds to 0) and exponent 255 as one of
    exponent 255 (it saturates unless the accumulator is 0). A rounding without a rule here acts as EXACT_RNE.

    A scale is an integer of 24 bits times a power of two. Below one half, the product is shifted right into 16
    integer and 25 fraction bits; from one half on the accumulator is shifted left first, and saturates where it
    no longer fits. F32 rounds twice before the last rounding: the accumulator to float32, and the product. The
    second changes the result only where it makes a tie, and :func:`_near_tie` finds that without normalising.

    Parameters
    ----------
    lanes : int
        Accumulators taken at once.

    Members
    -------
    i_valid, i : In(1), In(requantizer_layout(lanes))
    o_valid, o : Out(1), Out(ArrayLayout(8, lanes))
    """

    def __init__(self, *, lanes: int = 1) -> None:
        self.lanes = lanes
        super().__init__({
            "i_valid": In(1),
            "i": In(requantizer_layout(lanes)),
            "o_valid": Out(1),
            "o": Out(data.ArrayLayout(8, lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal(LATENCY)
        m.d.sync += valid.eq(Cat(self.i_valid, valid[:-1]))
        m.d.comb += self.o_valid.eq(valid[-1])
        enables = [self.i_valid, *valid[:-1]]  # registers of a stage keep still without data

        def carry(name, source, stages, shape):
            """``source`` of stage 0 as it is before each of the next ``stages`` stages."""
            line = [source]
            for stage in range(stages):
                register = Signal(shape, name=f"{name}_{stage + 1}")
                with m.If(enables[stage]):
                    m.d.sync += register.eq(line[-1])
                line.append(register)
            return line

        rounding = carry("rounding", self.i.rounding, 3, Rounding)
        clamp_low = carry("clamp_low", self.i.clamp_low, 4, signed(16))
        clamp_high = carry("clamp_high", self.i.clamp_high, 4, signed(16))

        for lane in range(self.lanes):
            name = f"lane{lane}"
            accumulator = self.i.accumulators[lane]
            scale = self.i.scales[lane]
            negative = carry(f"{name}_negative", accumulator[31], 4, 1)
            zero_point = carry(f"{name}_zero_point", self.i.zero_points[lane], 4, signed(16))

            # Stage 1: magnitude, and where the scale puts the point.
            exponent = scale[23:31]
            magnitude = Signal(32, name=f"{name}_magnitude")
            up = Signal(5, name=f"{name}_up")
            large = exponent > _UNIT
            raised = Signal(32 + _WHOLE + 2, name=f"{name}_raised")
            operand = Signal(32, name=f"{name}_operand")
            over = Signal(name=f"{name}_over")
            significand = Signal(_SIGNIFICAND, name=f"{name}_significand")
            down = Signal(6, name=f"{name}_down")
            rounded = _to_float32(m, name, magnitude)
            m.d.comb += [
                magnitude.eq(Mux(accumulator[31], -accumulator, accumulator)),
                up.eq(Mux(exponent > _UNIT + _WHOLE + 2, _WHOLE + 2, exponent - _UNIT)),
                raised.eq(magnitude << up),
            ]
            with m.If(enables[0]):
                m.d.sync += [
                    # A scale of 2^(up-2) or more: with anything above _WHOLE + 2 bits the product is 2^_WHOLE or more.
                    over.eq(large & raised[_WHOLE + 2:].any()),
                    operand.eq(Mux(large, raised[:_WHOLE + 2],
                                   Mux(self.i.rounding == Rounding.F32, rounded, magnitude))),
                    significand.eq(Cat(scale[:23], 1)),
                    # 63 places leave nothing of a product of 55 bits.
                    down.eq(Mux(large, 0, Mux(exponent < _UNIT - 63, 63, _UNIT - exponent))),
                ]

            # Stage 2: the product, at most 2^31 * (2^24 - 1).
            product = Signal(55, name=f"{name}_product")
            over_2 = Signal(name=f"{name}_over_2")
            down_2 = Signal(6, name=f"{name}_down_2")
            with m.If(enables[1]):
                m.d.sync += [product.eq(operand * significand), over_2.eq(over), down_2.eq(down)]

            # Stage 3: the fixed point.
            shifted = Signal(55, name=f"{name}_shifted")
            below = Signal(63, name=f"{name}_below")
            fixed = Signal(_FIXED, name=f"{name}_fixed")
            sticky = Signal(name=f"{name}_sticky")
            over_3 = Signal(name=f"{name}_over_3")
            m.d.comb += [shifted.eq(product >> down_2), below.eq(Const(2**63 - 1, 63) >> ~down_2)]
            with m.If(enables[2]):
                m.d.sync += [
                    fixed.eq(shifted[:_FIXED]),
                    sticky.eq((product & below).any()),
                    over_3.eq(over_2 | shifted[_FIXED:].any()),
                ]

            # Stage 4: which way to round.
            whole, fraction = fixed[_FRACTION:], fixed[:_FRACTION]
            half, rest = fraction[-1], fraction[:-1].any() | sticky
            upward = Signal(name=f"{name}_upward")
            with m.Switch(rounding[3]):
                with m.Case(Rounding.F32):
                    m.d.comb += upward.eq(Mux(_near_tie(m, name, whole, fraction, sticky), whole[0], half))
                with m.Case(Rounding.EXACT_RNE_ZP):
                    m.d.comb += upward.eq(half & (rest | (whole[0] ^ zero_point[3][0])))
                with m.Case(Rounding.HALF_UP):
                    m.d.comb += upward.eq(half & (rest | ~negative[3]))
                with m.Case(Rounding.HALF_AWAY):
                    m.d.comb += upward.eq(half)
                with m.Default():
                    m.d.comb += upward.eq(half & (rest | whole[0]))
            quotient = Signal(_WHOLE + 1, name=f"{name}_quotient")
            over_4 = Signal(name=f"{name}_over_4")
            with m.If(enables[3]):
                m.d.sync += [quotient.eq(whole + upward), over_4.eq(over_3)]

            # Stage 5: sign, zero point, clamp.
            value = Signal(signed(_WHOLE + 3), name=f"{name}_value")
            output = Signal(8, name=f"{name}_output")
            low, high = clamp_low[4], clamp_high[4]
            m.d.comb += [
                value.eq(Mux(negative[4], -quotient, quotient) + zero_point[4]),
                self.o[lane].eq(output),
            ]
            with m.If(enables[4]):
                with m.If(Mux(over_4, negative[4], value < low)):
                    m.d.sync += output.eq(low)
                with m.Elif(over_4 | (value > high)):
                    m.d.sync += output.eq(high)
                with m.Else():
                    m.d.sync += output.eq(value)
        return m
