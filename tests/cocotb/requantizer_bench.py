"""The requantizer's exported Verilog against the integer definition of each rounding, worked out here in fractions."""

import struct
from fractions import Fraction
from math import floor

import cocotb

from ringloom.hw.isa import Rounding
from ringloom.hw.tensor.requantizer import LATENCY, requantizer_layout
from tests.support.cocotb_bench import edge, note, seeded, settings, settled, start, value

LANES = 4
MODES = (Rounding.EXACT_RNE, Rounding.EXACT_RNE_ZP, Rounding.HALF_UP, Rounding.HALF_AWAY)


def expected(accumulator: int, scale: float, zero_point: int, low: int, high: int, rounding: Rounding) -> int:
    """clamp(round(accumulator * scale) + zero_point), by the definitions in docs/numerics.md."""
    exact = Fraction(accumulator) * Fraction(scale)
    if rounding == Rounding.HALF_UP:
        result = floor(exact + Fraction(1, 2)) + zero_point
    elif rounding == Rounding.HALF_AWAY:
        magnitude = floor(abs(exact) + Fraction(1, 2))
        result = (magnitude if exact >= 0 else -magnitude) + zero_point
    elif rounding == Rounding.EXACT_RNE_ZP:
        result = round(exact + zero_point)  # Python rounds halves to even
    else:
        result = round(exact) + zero_point
    return min(max(result, low), high)


def case(random) -> tuple:
    """One lane's accumulator, scale and zero point; every other one near a tie."""
    exponent = random.randint(-20, 0)
    scale = struct.unpack("f", struct.pack("f", random.uniform(1, 2) * 2.0 ** exponent))[0]
    kind = random.randrange(4)
    if kind == 0:
        accumulator = random.choice((-2**31, 2**31 - 1, 0, 1, -1))
    elif kind == 1:
        scale, accumulator = 2.0 ** random.randint(-12, -1), random.randint(-2**16, 2**16)  # exact ties
    else:
        accumulator = max(-2**31, min(2**31 - 1, round((random.randint(-140, 140) + 0.5) / scale)))
    return accumulator, scale, random.choice((-128, 0, 127, random.randint(-128, 127)))


@cocotb.test()
async def rounds_as_defined(dut):
    random = seeded()
    layout = requantizer_layout(LANES)
    await start(dut, i_valid=0, i=0)
    in_flight = []  # (cycle it must come out, expected outputs)
    checked = 0
    for cycle in range(settings()["cycles"] + LATENCY + 1):
        valid = cycle < settings()["cycles"] and random.random() < 0.8
        dut.i_valid.value = int(valid)
        if valid:
            lanes = [case(random) for _ in range(LANES)]
            rounding = random.choice(MODES)
            low, high = random.choice(((-128, 127), (0, 127), (0, 255), (-5, 90)))
            dut.i.value = layout.const({
                "accumulators": [a for a, _, _ in lanes], "zero_points": [z for _, _, z in lanes],
                "scales": [struct.unpack("I", struct.pack("f", s))[0] for _, s, _ in lanes],
                "rounding": rounding, "clamp_low": low, "clamp_high": high}).as_value().value
            in_flight.append((cycle + LATENCY, lanes, rounding, [
                expected(a, s, z, low, high, rounding) & 0xFF for a, s, z in lanes]))
        await settled(dut)
        due = bool(in_flight) and in_flight[0][0] == cycle
        assert value(dut.o_valid) == due, f"cycle {cycle}"
        if due:
            _, lanes, rounding, wanted = in_flight.pop(0)
            got = list(value(dut.o).to_bytes(LANES, "little"))
            assert got == wanted, f"{rounding.name} {lanes}"
            checked += LANES
        await edge(dut)
    assert checked > settings()["cycles"]
    note(checked=checked)
