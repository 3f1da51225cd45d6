"""The integer reference against exact fractions, onnxruntime and the onnx reference, and what it refuses."""

import math
from fractions import Fraction

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ringloom.errors import Error, UnsupportedError
from ringloom.hw.isa import Rounding
from ringloom.numerics import reference as ref

INT32 = st.integers(-1 << 31, (1 << 31) - 1)
NORMAL = st.integers(1 << 23, (255 << 23) - 1)
USUAL = st.integers(95 << 23, 130 << 23)


def float_of(bits):
    return np.uint32(bits).view(np.float32)


@settings(max_examples=400, deadline=None)
@given(acc=st.one_of(INT32, st.integers(-300, 300)), bits=st.one_of(NORMAL, USUAL, USUAL.map(lambda b: b & ~0xFFFFF)),
       zero_point=st.integers(-32768, 32767), bounds=st.tuples(st.integers(-32768, 32767), st.integers(-32768, 32767)))
def test_exact_modes_by_fractions(acc, bits, zero_point, bounds):
    low, high = sorted(bounds)
    scale = float_of(bits)
    exact = Fraction(acc) * Fraction(float(scale))
    away = math.floor(abs(exact) + Fraction(1, 2))
    wanted = {
        "exact_rne": round(exact) + zero_point,
        "exact_rne_zp": round(exact + zero_point),
        "half_up": math.floor(exact + Fraction(1, 2)) + zero_point,
        "half_away": (away if acc > 0 else -away) + zero_point,
    }
    for mode, value in wanted.items():
        assert ref.requantize(acc, scale, zero_point, low, high, mode) == min(max(value, low), high), mode


@settings(max_examples=300, deadline=None)
@given(acc=INT32, bits=st.one_of(NORMAL, USUAL))
def test_f32_by_two_roundings(acc, bits):
    """The product of two float32 has 48 bits at most, so float64 holds it, and its rounding is the only one."""
    product = float(np.float32(acc)) * float(float_of(bits))
    with np.errstate(over="ignore"):
        rounded = float(np.float32(product))
    wanted = min(max(rounded, -1e6), 1e6)
    assert ref.requantize(acc, float_of(bits), 0, -128, 127) == min(max(round(wanted), -128), 127)


def test_negative_ties():
    acc = np.array([-3, -1, 1, 3, 5])
    wanted = {"f32": [-2, 0, 0, 2, 2], "exact_rne": [-2, 0, 0, 2, 2], "exact_rne_zp": [-2, 0, 0, 2, 2],
              "half_up": [-1, 0, 1, 2, 3], "half_away": [-2, -1, 1, 2, 3]}
    assert {mode: ref.requantize(acc, 0.5, rounding=mode).tolist() for mode in ref.ROUNDINGS} == wanted
    assert ref.requantize(1, 0.5, 1, rounding="f32") == 1
    assert ref.requantize(1, 0.5, 1, rounding="exact_rne_zp") == 2


@pytest.mark.parametrize("mode", ref.ROUNDINGS)
def test_saturates_without_a_flip(mode):
    acc = np.array([(1 << 31) - 1, -1 << 31])
    for scale in (0.9999999, 1.0, 1.9999999, 2.0**20, 3.4e38):
        assert ref.requantize(acc, scale, 5, -128, 127, mode).tolist() == [127, -128]
    assert ref.requantize([255, -257], 0.5, 0, -128, 127, mode).tolist() == [127, -128]
    assert ref.requantize(acc, 1.2e-38, 5, -128, 127, mode).tolist() == [5, 5]


def test_broadcasts_and_takes_empty_arrays():
    acc = np.arange(12).reshape(3, 4)
    scale = np.array([0.5, 1, 2, 4], np.float32)
    assert (ref.requantize(acc, scale, 1) == np.clip(np.rint(acc * scale) + 1, -128, 127)).all()
    assert ref.requantize(np.zeros((0, 4)), scale).shape == (0, 4)


@pytest.mark.parametrize("value, word", [
    (0.0, "zero"), (-0.0, "zero"), (-1.0, "negative"), (1e-39, "subnormal"), (np.float32(1e-45), "subnormal"),
    (np.inf, "infinite"), (1e39, "infinite"), (-np.inf, "infinite"), (np.nan, "NaN"), (1e-60, "zero")])
def test_refused_scales_are_named(value, word):
    with pytest.raises(UnsupportedError, match=f"a_scale = .*is {word} ") as caught:
        ref.check_scale(value, "a_scale")
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, Error)
    with pytest.raises(UnsupportedError, match=rf"b_scale\[1, 0\] = .*is {word} "):
        ref.check_scale(np.array([[1.0, 2.0], [value, 1.0]]), "b_scale")
    with pytest.raises(UnsupportedError):
        ref.requantize(1, value)


def test_refuses_what_is_no_scale_or_rounding():
    for bad in ("1.0", None, [1 + 2j], [True]):
        with pytest.raises(UnsupportedError, match="real numbers"):
            ref.check_scale(bad)
    for bad in ("nearest", "raw", Rounding.RAW, 9, None):
        with pytest.raises(UnsupportedError, match="f32, exact_rne, exact_rne_zp, half_up, half_away"):
            ref.rounding_of(bad)
    assert ref.rounding_of("F32") == ref.rounding_of(Rounding.F32) == Rounding.F32
    with pytest.raises(UnsupportedError, match="int32"):
        ref.requantize(1 << 31, 1.0)


def test_multiplier_is_float32_in_order():
    generator = np.random.default_rng(1)
    a, b, y = (generator.uniform(1e-3, 1, 10_000).astype(np.float32) for _ in range(3))
    result = ref.multiplier(a, b, y)
    assert result.dtype == np.float32 and (result == (a * b) / y).all()
    in_double = (a.astype(float) * b.astype(float) / y.astype(float)).astype(np.float32)
    assert (result != in_double).any()
    # A product that is subnormal, or a quotient beyond float32, is refused though each scale is fine.
    for scales in ((1e-30, 1e-30, 1.0), (1e-10, 1e-10, 1e20), (1e30, 1e30, 1.0), (1.0, 1.0, 3e38)):
        with pytest.raises(UnsupportedError, match="a_scale"):
            ref.multiplier(*scales)


def test_matmul_wraps_and_takes_zero_points():
    full = np.full((2, 4096), -128, np.int8)
    assert (ref.matmul_reference(full, full.T) == 4096 * 16384).all()
    # 255 and -255 survive: cases.md 5.
    assert ref.matmul_reference(np.int8([[127]]), np.int8([[-128]]), -128, 127).tolist() == [[255 * -255]]
    a, b = np.uint8([[255, 0]]), np.int8([[1, 2], [3, 4]])
    assert ref.matmul_reference(a, b, np.array([5]), np.array([1, -1]), np.array([7, 1 << 31])).tolist() == [
        [250 * 0 - 5 * 2 + 7, (250 * 3 - 5 * 5 + (1 << 31) + (1 << 31)) % (1 << 32) - (1 << 31)]]


def node(operator, inputs, output, opset=17):
    kinds = {np.dtype(np.int8): TensorProto.INT8, np.dtype(np.uint8): TensorProto.UINT8,
             np.dtype(np.float32): TensorProto.FLOAT}
    graph = helper.make_graph(
        [helper.make_node(operator, list(inputs), ["y"])], "one",
        [helper.make_tensor_value_info(k, kinds[np.asarray(v).dtype], np.shape(v)) for k, v in inputs.items()],
        [helper.make_tensor_value_info("y", kinds[np.dtype(output)], None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def onnxruntime_answer(operator, inputs, output):
    proto = node(operator, inputs, output)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantize_linear_equals_onnxruntime(dtype):
    generator = np.random.default_rng(2)
    x = np.concatenate([generator.normal(0, 40, 200_000), [0.5, -0.5, 1.5, np.inf, -np.inf, 1e30]]).astype(np.float32)
    for scale, zero_point in ((0.1, 3), (1.0, 0), (0.03137, 127), (3.0, 100)):
        inputs = {"x": x, "scale": np.array(scale, np.float32), "zero_point": np.array(zero_point, dtype)}
        wanted = onnxruntime_answer("QuantizeLinear", inputs, dtype)
        assert (ref.quantize_linear(x, scale, zero_point, dtype) == wanted).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_qlinear_matmul_equals_the_engines(dtype):
    generator = np.random.default_rng(3)
    a = generator.integers(0, 128, (20, 33)).astype(np.uint8)  # without pairs that saturate on x86 without VNNI
    b = generator.integers(-127, 128, (33, 25)).astype(np.int8)
    b_scale = generator.uniform(0.01, 0.1, 25).astype(np.float32)
    b_zero_point = np.zeros(25, np.int8)
    arguments = {"a_scale": np.float32(0.02), "a_zero_point": np.uint8(13), "b_scale": b_scale,
                 "b_zero_point": b_zero_point, "y_scale": np.float32(0.7), "y_zero_point": dtype(9)}
    inputs = {k: np.asarray(v) for k, v in
              (("a", a), *list(arguments.items())[:2], ("b", b), *list(arguments.items())[2:])}
    if dtype == a.dtype:  # onnxruntime has no kernel whose output's type is not A's
        assert (ref.qlinear_matmul(a, b, **arguments) == onnxruntime_answer("QLinearMatMul", inputs, dtype)).all()
    wanted = ReferenceEvaluator(node("QLinearMatMul", inputs, dtype)).run(None, inputs)[0]
    assert (ref.qlinear_matmul(a, b, **arguments, rounding="exact_rne_zp") == wanted).all()
    with pytest.raises(UnsupportedError, match="y_zero_point"):
        ref.qlinear_matmul(a, b, **{**arguments, "y_zero_point": np.int32(9)})


def test_activation_bounds():
    assert ref.activation_bounds(None, 0.1, 3, np.int8) == (-128, 127)
    assert ref.activation_bounds("relu", 0.1, 3, np.int8) == (3, 127)
    assert ref.activation_bounds("relu", 0.1, 0, np.uint8) == (0, 255)
    assert ref.activation_bounds((0, 6), 0.1, -20, np.int8) == (-20, 40)
    assert ref.activation_bounds((-np.inf, 1.25), 0.5, 0, np.int8) == (-128, 2)  # 2.5 rounds to even
    assert ref.activation_bounds((1e9, 2e9), 0.5, 0, np.int8) == (127, 127)
    for bad in ("relu6", (1,), (2, 1), (np.nan, 1), 3, ("a", 1)):
        with pytest.raises(UnsupportedError, match="activation"):
            ref.activation_bounds(bad, 0.5, 0, np.int8)


def test_activation_before_or_after_quantization_is_the_same():
    acc = np.arange(-2000, 2000)
    y_scale, zero_point = np.float32(0.25), 4
    low, high = ref.activation_bounds((0.0, 6.0), y_scale, zero_point, np.int8)
    real = np.clip(acc * np.float32(0.125) * y_scale, 0, 6)
    assert (ref.requantize(acc, 0.125, zero_point, low, high) == np.rint(real / y_scale) + zero_point).all()
