"""The requantizer against exact fractions, the integer reference, and the engines it promises to equal."""

import math
import random
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from amaranth.sim import Simulator
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ringloom.hw.isa import Rounding
from ringloom.hw.tensor.requantizer import LATENCY, Requantizer
from ringloom.numerics.reference import requantize
from tests.support.lane import Lane

MODES = [r for r in Rounding if r != Rounding.RAW]
MILLION = 1_000_000


def bits_of(scale):
    return int(np.float32(scale).view(np.uint32))


def by_definition(acc, scale, zero_point, low, high, mode):
    """One output in exact fractions; F32 with numpy's float32."""
    if mode == Rounding.F32:
        with np.errstate(over="ignore"):
            product = np.float32(acc) * np.float32(scale)
        value = round(Fraction(float(product))) if np.isfinite(product) else math.copysign(1 << 40, product)
        return min(max(int(value) + zero_point, low), high)
    exact = Fraction(acc) * Fraction(float(scale))
    value = {
        Rounding.EXACT_RNE: lambda: round(exact) + zero_point,
        Rounding.EXACT_RNE_ZP: lambda: round(exact + zero_point),
        Rounding.HALF_UP: lambda: math.floor(exact + Fraction(1, 2)) + zero_point,
        Rounding.HALF_AWAY: lambda: int(math.copysign(math.floor(abs(exact) + Fraction(1, 2)), exact)) + zero_point,
    }[mode]()
    return min(max(value, low), high)


def simulate(vectors, *, lanes=8, gaps=0.0, seed=0):
    """Low 8 bits for each (acc, scale bits, zero point, low, high, mode), from Amaranth's simulator."""
    groups = {}
    for index, vector in enumerate(vectors):
        groups.setdefault(vector[3:], []).append(index)
    batches = [(key, group[i:i + lanes]) for key, group in groups.items() for i in range(0, len(group), lanes)]
    dut = Requantizer(lanes=lanes)
    generator = random.Random(seed)
    outputs, starts, ends = {}, [], []

    async def drive(ctx):
        cycle = 0
        for (low, high, mode), group in batches:
            padded = (group * lanes)[:lanes]
            ctx.set(dut.i_valid, 1)
            ctx.set(dut.i, {
                "accumulators": [vectors[i][0] for i in padded], "scales": [vectors[i][1] for i in padded],
                "zero_points": [vectors[i][2] for i in padded], "rounding": mode, "clamp_low": low,
                "clamp_high": high})
            starts.append(cycle)
            await ctx.tick()
            cycle += 1
            ctx.set(dut.i_valid, 0)
            while generator.random() < gaps:
                await ctx.tick()
                cycle += 1
        await ctx.tick().repeat(LATENCY + 1)

    async def watch(ctx):
        cycle = 0
        async for _, _, valid, output in ctx.tick().sample(dut.o_valid, dut.o):
            if valid:
                for lane, index in enumerate(batches[len(ends)][1]):
                    outputs[index] = int(output[lane])
                ends.append(cycle)
            cycle += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(drive)
    simulator.add_testbench(watch, background=True)
    simulator.run()
    assert [end - start for start, end in zip(starts, ends, strict=True)] == [LATENCY] * len(batches)
    return [outputs[i] for i in range(len(vectors))]


def check(vectors, **options):
    outputs = simulate(vectors, **options)
    for (acc, bits, zero_point, low, high, mode), output in zip(vectors, outputs, strict=True):
        scale = np.uint32(bits).view(np.float32)
        wanted = by_definition(acc, scale, zero_point, low, high, mode) & 0xFF
        assert output == wanted, f"{acc} * {scale!r} + {zero_point} in {low}..{high}, {mode!r}: {output}, not {wanted}"


# -- small and exhaustive, in Amaranth's simulator ------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_every_small_accumulator(mode):
    """-24..24 on scales that make every quarter, both parities of the zero point."""
    check([(acc, bits_of(scale), zero_point, -128, 127, mode)
           for acc in range(-24, 25) for scale in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 1 / 3) for zero_point in (0, 1, -7)])


def test_negative_ties():
    """cases.md 4: -1.5, -0.5, 0.5, 1.5, 2.5 on every rule, worked by hand."""
    accumulators = (-3, -1, 1, 3, 5)
    wanted = {
        Rounding.F32: (-2, 0, 0, 2, 2),
        Rounding.EXACT_RNE: (-2, 0, 0, 2, 2),
        Rounding.EXACT_RNE_ZP: (-2, 0, 0, 2, 2),
        Rounding.HALF_UP: (-1, 0, 1, 2, 3),
        Rounding.HALF_AWAY: (-2, -1, 1, 2, 3),
    }
    vectors = [(acc, bits_of(0.5), 0, -128, 127, mode) for mode in MODES for acc in accumulators]
    outputs = np.array(simulate(vectors), np.uint8).view(np.int8).reshape(len(MODES), -1)
    assert {mode: tuple(map(int, row)) for mode, row in zip(MODES, outputs, strict=True)} == wanted


# What each engine itself answered: acc, M, zero point, then output by mode.
ENGINES = [
    (1, 0.5, 1, {Rounding.F32: 1, Rounding.EXACT_RNE_ZP: 2}),
    (5, 0.5, 0, {Rounding.F32: 2, Rounding.HALF_UP: 3, Rounding.HALF_AWAY: 3}),
    (-5, 0.5, 0, {Rounding.F32: -2, Rounding.HALF_UP: -2, Rounding.HALF_AWAY: -3}),
    (-3, 0.5, 0, {Rounding.F32: -2, Rounding.HALF_UP: -1, Rounding.HALF_AWAY: -2}),
    (-8450, 0.004556213039904833, 100, {Rounding.F32: 62, Rounding.EXACT_RNE_ZP: 61}),
    (24623847, 4.365686436358374e-06, 0, {Rounding.F32: 108, Rounding.EXACT_RNE_ZP: 107}),
    (-8471, 0.0014755382914220876, 0, {Rounding.EXACT_RNE: -12, Rounding.HALF_AWAY: -12}),
]


def test_the_engines_own_answers():
    vectors = [(acc, bits_of(m), zp, -128, 127, mode) for acc, m, zp, answers in ENGINES for mode in answers]
    wanted = [answer & 0xFF for _, _, _, answers in ENGINES for answer in answers.values()]
    assert simulate(vectors) == wanted
    for acc, m, zp, answers in ENGINES:
        for mode, answer in answers.items():
            assert requantize(acc, np.float32(m), zp, -128, 127, mode) == answer


@pytest.mark.parametrize("mode", MODES)
def test_saturation_never_flips_the_sign(mode):
    """cases.md 3 and 5: exactly 127.5 and -128.5; ends of int32, of float32 and of the zero point."""
    ends = (-1 << 31, (1 << 31) - 1, -(1 << 31) + 1, 1, -1, 0, 1 << 24, (1 << 24) + 1, -(1 << 30) - 64)
    near_one = [0.99999994, 1.0, 1.0000001, 0.5, 2.0, 2.0**-24, 2.0**-31, 2.0**-32, 2.0**15, 2.0**16, 2.0**17, 2.0**40,
                2.0**126, 3.4028235e38, 1.1754944e-38]
    vectors = [(acc, bits_of(scale), zero_point, low, high, mode)
               for acc in ends for scale in near_one
               for zero_point, low, high in ((0, -128, 127), (255, 0, 255), (-32768, -32768, 32767),
                                             (32767, -32768, 32767))]
    vectors += [(acc, bits_of(0.5), zero_point, -128, 127, mode) for acc in (255, -257, 254, -256, 253)
                for zero_point in (0, 1, -1, -128, 127)]
    # relu6-like clamps: the zero point comes before the clamp.
    vectors += [(acc, bits_of(0.125), 10, 10, 20, mode) for acc in range(-20, 120, 7)]
    check(vectors)


def test_random_with_gaps():
    seed = 11
    print("seed", seed)
    generator = random.Random(seed)
    vectors = []
    for _ in range(1200):
        acc = generator.choice((generator.randint(-1 << 31, (1 << 31) - 1), generator.randint(-3000, 3000)))
        bits = generator.choice((generator.randrange(1 << 23, 255 << 23), generator.randrange(95 << 23, 130 << 23)))
        vectors.append((acc, bits, generator.randint(-300, 300), *generator.choice(((-128, 127), (0, 255), (-9, 9))),
                        generator.choice(MODES)))
    check(vectors, lanes=3, gaps=0.4, seed=seed)


# -- a million vectors each, in the lane compiled by Verilator -------------------------------------------


@pytest.fixture(scope="module")
def lane(tmp_path_factory):
    return Lane(tmp_path_factory.mktemp("lane"))


def near_ties(generator, count, largest):
    """Accumulators up to ``largest`` and scales within 3 float32 steps of making a number and a half."""
    magnitude = np.exp(generator.uniform(np.log(1), np.log(largest), count)).astype(np.int64)
    target = generator.integers(0, 140, count) + 0.5
    bits = (target / magnitude).astype(np.float32).view(np.uint32) + generator.integers(-3, 4, count)
    sign = generator.choice((-1, 1), count)
    return sign * magnitude, bits.astype(np.uint32).view(np.float32)


def test_a_million_of_each_rule(lane):
    """Against the integer reference: the whole of int32, all exponents, near-ties and exact ties."""
    seed = 1
    print("seed", seed)
    generator = np.random.default_rng(seed)
    for mode in MODES:
        quarter = MILLION // 4
        acc, scale = near_ties(generator, 2 * quarter, (1 << 31) - 1)
        wide = generator.integers(1 << 23, 255 << 23, quarter).astype(np.uint32).view(np.float32)
        ties = (generator.integers(103, 150, quarter) << 23 | generator.integers(0, 16, quarter) << 19)
        acc = np.concatenate([acc, generator.integers(-1 << 31, 1 << 31, quarter),
                              generator.integers(-1 << 12, 1 << 12, quarter)])
        scale = np.concatenate([scale, wide, ties.astype(np.uint32).view(np.float32)])
        zero_point = generator.integers(-128, 256, acc.size)
        low = generator.integers(-128, 1, acc.size)
        high = low + generator.integers(0, 256, acc.size)
        wanted = requantize(acc, scale, zero_point, low, high, mode)
        wrong = np.flatnonzero(lane(acc, scale, zero_point, low, high, mode) != wanted.astype(np.uint8))
        assert not wrong.size, f"{mode!r}: {wrong.size} wrong, first {acc[wrong[0]]} * {scale[wrong[0]]!r}"


def test_scales_the_host_refuses_have_defined_results(lane):
    """Sign ignored; exponent 0 rounds to zero; exponent 255 saturates, but for an accumulator of 0."""
    acc = np.array([0, 1, -1, (1 << 31) - 1, -1 << 31])
    for mode in MODES:
        negative = lane(acc, np.float32(-0.25), 3, -128, 127, mode)
        assert (negative == lane(acc, np.float32(0.25), 3, -128, 127, mode)).all()
        for bits in (0, 1, 0x7FFFFF, 0x80000000):
            assert (lane(acc, np.uint32(bits), 3, -128, 127, mode) == 3).all()
        for bits in (0x7F800000, 0x7FC00000, 0xFF800000, 0x7FFFFFFF):
            assert lane(acc, np.uint32(bits), 3, -128, 127, mode).view(np.int8).tolist() == [3, 127, -128, 127, -128]
    for reserved in (0, 6, 15):
        assert (lane(acc, np.float32(0.5), 3, -128, 127, reserved)
                == lane(acc, np.float32(0.5), 3, -128, 127, Rounding.EXACT_RNE)).all()


def model(operator, inputs, output, attributes=None):
    """A model of one node; inputs: name to array, all but the first constant, so that nothing is copied twice."""
    kinds = {np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8}
    name, first = next(iter(inputs.items()))
    node = helper.make_node(operator, list(inputs), ["y"], **(attributes or {}))
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info(name, kinds[first.dtype], first.shape)],
        [helper.make_tensor_value_info("y", kinds[np.dtype(output)], None)],
        [onnx.numpy_helper.from_array(a, k) for k, a in list(inputs.items())[1:]])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run_onnxruntime(proto, feed):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def matmul_for(acc):
    """uint8 A (1, K) and B (K, N), zero points 0 and 128, with ``A @ B == acc`` and no pair of products beyond int16.

    onnxruntime saturates pairs of products on processors without VNNI, so no value is above 127.
    """
    slots = 64
    quotient = np.rint(acc / 127).astype(np.int64)
    share, extra = np.divmod(np.abs(quotient), slots)
    assert share.max() < 127
    part = (share + (np.arange(slots)[:, None] < extra)) * np.sign(quotient)
    b = np.concatenate([part, (acc - 127 * quotient)[None]]) + 128
    a = np.array([[127] * slots + [1]], np.uint8)
    assert ((a.astype(np.int64) @ (b - 128))[0] == acc).all()
    return a, b.astype(np.uint8)


def qlinear_matmul(acc, scale, zero_point):
    a, b = matmul_for(acc)
    one = np.array(1, np.float32)
    inputs = {"a": a, "a_scale": one, "a_zp": np.uint8(0).reshape(()), "b": b, "b_scale": scale,
              "b_zp": np.full(len(acc), 128, np.uint8), "y_scale": one, "y_zp": np.array(zero_point)}
    return model("QLinearMatMul", inputs, zero_point.dtype), {"a": a}


def range_of(zero_point):
    limits = np.iinfo(zero_point.dtype)
    return int(limits.min), int(limits.max)


def test_f32_equals_onnxruntime_qlinearmatmul(lane):
    """A million outputs, near-ties all, per-column scales; accumulators up to a million."""
    seed = 2
    print("seed", seed)
    generator = np.random.default_rng(seed)
    differ = 0
    for zero_point in (np.uint8(0), np.uint8(131), np.uint8(7), np.uint8(90)) * 2:
        acc, scale = near_ties(generator, MILLION // 8, 1_000_000)
        y = run_onnxruntime(*qlinear_matmul(acc, scale, zero_point))[0]
        output = lane(acc, scale, int(zero_point), *range_of(zero_point), Rounding.F32)
        assert (output == y.view(np.uint8)).all(), f"zero point {zero_point!r}"
        differ += int((output != lane(acc, scale, int(zero_point), *range_of(zero_point), Rounding.EXACT_RNE)).sum())
    assert differ > 1000  # the vectors do tell the rounding of the product from an exact one


def test_f32_equals_onnxruntime_qlinearconv(lane):
    """A million outputs over the whole of int32: the accumulator is the bias, of a kernel of zeros."""
    seed = 3
    print("seed", seed)
    generator = np.random.default_rng(seed)
    one, x = np.array(1, np.float32), np.zeros((1, 1, 1, 1), np.uint8)
    differ = 0
    for zero_point in (np.uint8(0), np.uint8(131), np.uint8(254), np.uint8(7)):
        count = MILLION // 4
        acc, scale = near_ties(generator, count, (1 << 31) - 1)
        inputs = {"x": x, "x_scale": one, "x_zp": np.array(0, np.uint8), "w": np.zeros((count, 1, 1, 1), np.int8),
                  "w_scale": scale, "w_zp": np.zeros(count, np.int8), "y_scale": one, "y_zp": np.array(zero_point),
                  "bias": acc.astype(np.int32)}
        y = run_onnxruntime(model("QLinearConv", inputs, zero_point.dtype), {"x": x}).reshape(-1)
        output = lane(acc, scale, int(zero_point), *range_of(zero_point), Rounding.F32)
        assert (output == y.view(np.uint8)).all(), f"zero point {zero_point!r}"
        differ += int((output != lane(acc, scale, int(zero_point), *range_of(zero_point), Rounding.EXACT_RNE)).sum())
    assert differ > 1000


def test_exact_rne_zp_equals_the_onnx_reference(lane):
    """A million outputs of QLinearMatMul, near-ties and exact ties, even and odd zero points."""
    seed = 4
    print("seed", seed)
    generator = np.random.default_rng(seed)
    differ = 0
    for zero_point in (np.uint8(0), np.int8(-127), np.uint8(129), np.int8(7)) * 2:
        count = MILLION // 16
        acc, scale = near_ties(generator, count, 1_000_000)
        ties = (generator.integers(110, 127, count) << 23 | generator.integers(0, 4, count) << 21)
        acc = np.concatenate([acc, generator.integers(-1000, 1000, count)])
        scale = np.concatenate([scale, ties.astype(np.uint32).view(np.float32)])
        proto, feed = qlinear_matmul(acc, scale, zero_point)
        y = ReferenceEvaluator(proto).run(None, feed)[0][0]
        output = lane(acc, scale, int(zero_point), *range_of(zero_point), Rounding.EXACT_RNE_ZP)
        assert (output == y.view(np.uint8)).all(), f"zero point {zero_point!r}"
        differ += int((output != lane(acc, scale, int(zero_point), *range_of(zero_point), Rounding.EXACT_RNE)).sum())
    assert differ > 1000
