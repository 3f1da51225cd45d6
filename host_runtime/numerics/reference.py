"""What the device computes, in exact integers: the definition that hardware and compiler are checked against.

A float32 multiplier is an integer of 24 bits over a power of two, so a product with an int32 is exact in a pair of
Python integers, and in int64 as long as the fraction is kept apart. Nothing here follows the hardware's algorithm:
F32 is computed in numpy's float32, the other modes by floor division.
"""

import numpy as np

from ringloom.errors import Error, UnsupportedError
from ringloom.hw.isa import Rounding

__all__ = ["ROUNDINGS", "activation_bounds", "as_array", "check_scale", "matmul_reference", "multiplier",
           "qlinear_matmul", "quantize_linear", "requantize", "rounding_of"]

ROUNDINGS = ("f32", "exact_rne", "exact_rne_zp", "half_up", "half_away")
"""Names of the roundings a user may ask for; :class:`~ringloom.hw.isa.Rounding` in capitals."""

_TINY = np.finfo(np.float32).tiny


def as_array(value, name: str) -> np.ndarray:
    """``value`` as a numpy array, without a copy where it is one. Raises :class:`UnsupportedError` by name."""
    try:
        return np.asarray(value)
    except Error:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UnsupportedError(f"{name}: is no array ({error}); rows must be equally long, and hold numbers") from None


def rounding_of(name: "str | Rounding") -> Rounding:
    """The rounding called ``name``, in either case. Raises :class:`UnsupportedError` with the names there are."""
    if isinstance(name, str):
        if name.lower() in ROUNDINGS:
            return Rounding.__members__[name.upper()]
    elif isinstance(name, int | np.integer) and name in list(Rounding) and name != Rounding.RAW:
        return Rounding(name)
    raise UnsupportedError(f"rounding = {name!r}: must be one of {', '.join(ROUNDINGS)}")


def check_scale(scale, name: str = "scale") -> np.ndarray:
    """``scale`` as float32, every element a positive normal number.

    Raises :class:`UnsupportedError` that names the first element which is zero, negative, subnormal, infinite or
    NaN in float32, and for anything that is not a real number.
    """
    given = as_array(scale, name)
    if given.dtype.kind not in "fiu":
        raise UnsupportedError(f"{name}: must hold real numbers, not {given.dtype}")
    with np.errstate(over="ignore", under="ignore"):
        value = given.astype(np.float32)
    kinds = (
        ("NaN", np.isnan(value)),
        ("infinite", np.isinf(value)),
        ("negative", value < 0),
        ("zero", value == 0),
        ("subnormal", np.abs(value) < _TINY),
    )
    for kind, where in kinds:
        if where.any():
            index = tuple(int(i) for i in np.argwhere(where)[0])
            place = f"{name}[{', '.join(map(str, index))}]" if index else name
            raise UnsupportedError(f"{place} = {given[index]!r} is {kind} as float32: a scale must lie in "
                                   f"{_TINY:.9g}..{np.finfo(np.float32).max:.9g}")
    return value


def multiplier(a_scale, b_scale, y_scale) -> np.ndarray:
    """The multiplier of a product of quantized matrices, float32: ``f32(f32(a_scale * b_scale) / y_scale)``.

    The order is ONNX Runtime's; float64 in between changes outputs. Raises :class:`UnsupportedError` for a scale,
    or a result, that is not a positive normal float32.
    """
    a, b, y = check_scale(a_scale, "a_scale"), check_scale(b_scale, "b_scale"), check_scale(y_scale, "y_scale")
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        result = np.divide(np.multiply(a, b, dtype=np.float32), y, dtype=np.float32)
    return check_scale(result, "a_scale * b_scale / y_scale")


def _exact_parts(accumulator: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``floor(2 * acc * scale)`` held within +-2^20, and whether anything was cut off below it: both exact."""
    fraction, exponent = np.frexp(scale)
    significand = np.ldexp(fraction, 24).astype(np.int64)
    shift = 24 - exponent.astype(np.int64) - 1  # acc * scale * 2 == acc * significand / 2^shift
    product = accumulator * significand         # below 2^55 in magnitude
    right = np.clip(shift, 0, 62)
    doubled = product >> right
    inexact = (doubled << right) != product
    # A left shift beyond 21 places takes every product but zero over the bound; the bound comes first, so that it fits.
    bounded = np.clip(doubled, -(1 << 20), 1 << 20)
    doubled = np.clip(bounded << np.clip(-shift, 0, 21), -(1 << 20), 1 << 20)
    return doubled, inexact


def requantize(acc, scale, zero_point=0, low=-128, high=127, rounding="f32") -> np.ndarray:
    """``clamp(round(acc * scale) + zero_point, low, high)`` as int64, broadcasting all but ``rounding``.

    acc: int32 values. scale: float32, positive and normal. zero_point, low, high: int16 values.
    ``round`` is: ``f32`` acc and product to float32, then half to even; ``exact_rne`` half to even;
    ``exact_rne_zp`` half to even after the zero point was added; ``half_up`` towards plus infinity; ``half_away``
    away from zero.
    """
    mode = rounding_of(rounding)
    acc = np.asarray(acc).astype(np.int64)
    if acc.size and (acc.min() < -(1 << 31) or acc.max() >= 1 << 31):
        raise UnsupportedError(f"acc: {acc.min()}..{acc.max()} does not fit int32")
    acc, scale, zero_point = np.broadcast_arrays(acc, check_scale(scale), np.asarray(zero_point, np.int64))
    if mode == Rounding.F32:
        with np.errstate(over="ignore"):
            product = acc.astype(np.float32) * scale
        rounded = np.rint(np.clip(product, np.float32(-1 << 20), np.float32(1 << 20))).astype(np.int64)
    else:
        doubled, inexact = _exact_parts(acc, scale)
        floor, tie = doubled >> 1, (doubled & 1 == 1) & ~inexact
        up = {
            Rounding.EXACT_RNE: floor & 1 == 1,
            Rounding.EXACT_RNE_ZP: (floor + zero_point) & 1 == 1,
            Rounding.HALF_UP: np.ones_like(tie),
            Rounding.HALF_AWAY: acc > 0,
        }[mode]
        rounded = floor + np.where(tie, up, doubled & 1 == 1)
    return np.clip(rounded + zero_point, low, high)


def quantize_linear(x, scale, zero_point=0, dtype=np.int8) -> np.ndarray:
    """ONNX QuantizeLinear to ``dtype`` (int8 or uint8): divide in float32, half to even, add, saturate."""
    limits = np.iinfo(dtype)
    with np.errstate(over="ignore", under="ignore"):  # infinite, and saturates
        quotient = np.asarray(x, np.float32) / check_scale(scale)
    rounded = np.rint(quotient.astype(np.float64)) + np.asarray(zero_point, np.float64)
    return np.clip(rounded, limits.min, limits.max).astype(dtype)


def matmul_reference(a, b, a_zero_point=0, b_zero_point=0, bias=None) -> np.ndarray:
    """``(a - a_zero_point) @ (b - b_zero_point) + bias`` in int64, wrapped to int32.

    a: (..., M, K), zero point a scalar or (M,). b: (..., K, N), zero point a scalar or (N,). bias: (N,) or None.
    """
    a, b = np.asarray(a).astype(np.int64), np.asarray(b).astype(np.int64)
    az, bz = np.asarray(a_zero_point, np.int64), np.asarray(b_zero_point, np.int64)
    total = (a - (az[:, None] if az.ndim == 1 else az)) @ (b - bz)
    if bias is not None:
        total = total + np.asarray(bias, np.int64)
    return total.astype(np.int32)


def activation_bounds(activation, y_scale, y_zero_point, dtype) -> tuple[int, int]:
    """The clamp of an output of ``dtype``, zero point included: the range of the type, cut by the activation.

    activation: None, ``"relu"``, or ``(lo, hi)`` in the real units of the output; either may be infinite. A bound
    is quantized as the output is, so that clamping before or after the quantization is the same.
    """
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if activation is None:
        return low, high
    if isinstance(activation, str):
        if activation != "relu":
            raise UnsupportedError(f"activation = {activation!r}: must be None, 'relu' or (lo, hi)")
        activation = (0.0, np.inf)
    try:
        bottom, top = (float(v) for v in activation)
    except (TypeError, ValueError, OverflowError):
        raise UnsupportedError(f"activation = {activation!r}: must be None, 'relu' or (lo, hi)") from None
    if not bottom <= top:
        raise UnsupportedError(f"activation = ({bottom}, {top}): lo must not be above hi")
    low, high = (int(quantize_linear(v, y_scale, y_zero_point, dtype)) for v in (bottom, top))
    return low, high


def qlinear_matmul(a, b, *, a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point, bias=None,
                   activation=None, rounding="f32") -> np.ndarray:
    """ONNX QLinearMatMul with a bias and an activation; the type of ``y_zero_point`` is that of the result.

    b_scale, b_zero_point: scalars or (N,). Others: scalars. bias: int32 of scale ``a_scale * b_scale``.
    """
    dtype = np.asarray(y_zero_point).dtype
    if dtype not in (np.int8, np.uint8):
        raise UnsupportedError(f"y_zero_point: its type decides the result's and must be int8 or uint8, not {dtype}")
    low, high = activation_bounds(activation, y_scale, y_zero_point, dtype)
    acc = matmul_reference(a, b, a_zero_point, b_zero_point, bias)
    scale = multiplier(a_scale, b_scale, y_scale)
    return requantize(acc, scale, np.int64(y_zero_point), low, high, rounding).astype(dtype)
