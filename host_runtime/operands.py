"""What ``matmul`` and ``qmatmul`` take: every argument checked by name, and turned into the compiler's problem.

Nothing here touches the device. Operands keep the layout they have: a transposed view is described to the
hardware, not copied; only an array whose rows are not contiguous either way is written to the device row by row.
"""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringloom.compiler import Batch, Gemm, Layout
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Rounding
from ringloom.numerics.reference import activation_bounds, as_array, check_scale, multiplier, rounding_of

from .buffers import DeviceArray, PreparedWeights, real_dtype
from .errors import ShapeError, UnsupportedError

__all__ = ["Product", "make_product", "refuse_unknown", "check_zero_point", "check_bias", "column_records"]

_COLUMN = np.dtype([("scale", "<f4"), ("bias", "<i4"), ("zero_point", "<i2"), ("reserved", "V6")])  # isa.COLUMN


@dataclass
class Product:
    """A checked call. a, b: what lies on the device or goes there; None in ``records`` and ``table``: not needed."""

    gemm: Gemm | None  # None: the result is empty
    a: "np.ndarray | DeviceArray"
    b: "np.ndarray | DeviceArray | PreparedWeights"
    records: np.ndarray | None
    table: np.ndarray | None
    shape: tuple[int, ...]
    dtype: np.dtype


def refuse_unknown(call: str, unknown: Iterable[str], accepted: Iterable[str]) -> None:
    """Raise for keywords that ``call`` does not have, with the nearest ones it does have."""
    accepted = list(accepted)
    for name in unknown:
        near = difflib.get_close_matches(name, accepted, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(accepted)}"
        raise UnsupportedError(f"{call}: unknown keyword {name!r}; {hint}")


def check_zero_point(value: Any, name: str, dtype: np.dtype) -> np.ndarray:
    """``value`` as int64, every element within ``dtype``."""
    array = as_array(value, name)
    if array.dtype.kind not in "iu":
        raise UnsupportedError(f"{name}: must be an integer, not {array.dtype}")
    limits = np.iinfo(dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        worst = array.min() if array.min() < limits.min else array.max()
        raise UnsupportedError(f"{name} = {worst}: must lie in {limits.min}..{limits.max}, the range of {dtype}")
    return array.astype(np.int64)


def check_bias(value: Any, n: int) -> np.ndarray | None:
    """``value`` as int32 of shape (n,)."""
    if value is None:
        return None
    bias = as_array(value, "bias")
    if bias.dtype != np.int32:
        raise UnsupportedError(f"bias: dtype {bias.dtype}, but the device adds int32 (of scale a_scale * b_scale)")
    if bias.shape != (n,):
        raise ShapeError(f"bias: shape {bias.shape}, but one value a column is needed: ({n},)")
    return bias


def column_records(n: int, columns: int, scale: Any, bias: Any, zero_point: int) -> np.ndarray:
    """The parameter table of ``n`` columns, padded to whole blocks of columns, as bytes."""
    table = np.zeros(math.ceil(n / columns) * columns, _COLUMN)
    table["scale"] = 1.0
    table["scale"][:n] = scale
    table["bias"][:n] = 0 if bias is None else bias
    table["zero_point"] = zero_point
    return table.view(np.uint8)


def _operand(value: Any, name: str) -> "np.ndarray | DeviceArray":
    if isinstance(value, DeviceArray):
        real_dtype(np.empty(0, value.dtype), name)
        return value
    array = real_dtype(value, name)
    if array.ndim == 0:
        raise ShapeError(f"{name}: a scalar; matmul needs one axis or more")
    return array


def _layout(array: Any) -> tuple[Any, Layout]:
    """The array in the order of its bytes, and which layout that is."""
    if isinstance(array, np.ndarray) and array.ndim > 1 and not array.flags.c_contiguous:
        turned = array.swapaxes(-1, -2)
        if turned.flags.c_contiguous:
            return turned, Layout.COLUMNS
    return array, Layout.ROWS


def _row_zero_points(value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """One zero point for each row of A: shape of A without K."""
    zero = check_zero_point(value, "a_zero_point", dtype)
    rows = shape[:-1]
    if zero.size == 1:
        zero = zero.reshape(())
    elif zero.ndim > 1 and zero.shape[-1] == 1:
        zero = zero[..., 0]
    elif zero.shape != rows[-1:]:
        m = rows[-1]
        raise ShapeError(f"a_zero_point: shape {np.shape(value)}; it may be a scalar, ({m},) or (..., {m}, 1)")
    try:
        return np.broadcast_to(zero, rows)
    except ValueError:
        raise ShapeError(f"a_zero_point: shape {np.shape(value)} does not fit the rows {rows} of a") from None


def _column_zero_points(value: Any, dtype: np.dtype, lead: tuple[int, ...], n: int) -> np.ndarray:
    """A scalar, or one zero point for each column of B and batch."""
    zero = check_zero_point(value, "b_zero_point", dtype)
    if zero.size == 1:
        return zero.reshape(())
    if zero.ndim > 1 and zero.shape[-2] == 1:
        zero = zero[..., 0, :]
    elif zero.ndim != 1:
        raise ShapeError(f"b_zero_point: shape {np.shape(value)}; it may be a scalar, ({n},) or (..., 1, {n})")
    try:
        return np.broadcast_to(zero, (*lead, n))
    except ValueError:
        raise ShapeError(f"b_zero_point: shape {np.shape(value)} does not fit the columns {(*lead, n)} of b") from None


def _runs(rows: np.ndarray) -> tuple[tuple[int, int], ...]:
    edges = np.flatnonzero(np.diff(rows)) + 1
    starts = np.concatenate([[0], edges])
    ends = np.concatenate([edges, [len(rows)]])
    return tuple((int(e - s), int(rows[s])) for s, e in zip(starts, ends, strict=True))


def _same(kind: str, name: str, given: Any, own: np.ndarray) -> None:
    """Refuse a keyword that says something else than the prepared weights do."""
    if given is None:
        return
    array = as_array(given, name)
    if array.size == 1 == own.size:
        array = array.reshape(own.shape)
    kinds = "iuf" if own.dtype.kind == "f" else "iu"
    if array.dtype.kind not in kinds or not np.array_equal(array.astype(own.dtype), own):
        raise UnsupportedError(f"{kind}: {name}= is not what these weights were prepared with; leave it out")


@dataclass
class _Output:
    """How sums become results."""

    dtype: np.dtype
    rounding: Rounding = Rounding.RAW
    scale: Any = 1.0
    zero_point: int = 0
    low: int = 0
    high: int = 0


def _quantized(call: dict[str, Any], b: Any, n: int) -> _Output:
    for name in ("a_scale", "y_scale", "y_zero_point"):
        if call.get(name) is None:
            raise UnsupportedError(f"qmatmul: {name}= is needed")
    b_scale = call.get("b_scale")
    if isinstance(b, PreparedWeights) and b.scale is not None:
        _same("qmatmul", "b_scale", b_scale, b.scale)
        b_scale = b.scale
    if b_scale is None:
        raise UnsupportedError("qmatmul: b_scale= is needed (or weights prepared with scale=)")
    b_scale = check_scale(b_scale, "b_scale")
    for name in ("a_scale", "y_scale"):
        check_scale(call[name], name)
        if np.size(call[name]) != 1:
            raise UnsupportedError(f"{name}: shape {np.shape(call[name])}; only one scale for the whole is built")
    if np.size(b_scale) != 1 and np.shape(b_scale) != (n,):
        raise ShapeError(f"b_scale: shape {np.shape(b_scale)}; it may be a scalar or one a column: ({n},)")
    y_scale = np.reshape(check_scale(call["y_scale"], "y_scale"), ())
    zero = as_array(call["y_zero_point"], "y_zero_point")
    if zero.dtype not in (np.int8, np.uint8) or zero.size != 1:
        raise UnsupportedError(f"y_zero_point = {call['y_zero_point']!r}: its type decides that of the result, so it "
                               "must be one np.int8(...) or np.uint8(...)")
    zero_point = int(zero.reshape(()))
    scale = multiplier(np.reshape(call["a_scale"], ()), b_scale, y_scale)
    low, high = activation_bounds(call.get("activation"), y_scale, zero_point, zero.dtype)
    return _Output(zero.dtype, rounding_of(call.get("rounding", "f32")), scale, zero_point, low, high)


def make_product(kind: str, a: Any, b: Any, call: dict[str, Any], config: DeviceConfig) -> Product:
    """Check a ``matmul`` or ``qmatmul``. Raises :class:`ShapeError` and :class:`UnsupportedError` by name."""
    if isinstance(a, PreparedWeights):
        raise UnsupportedError("a: prepared weights can only be b")
    a = _operand(a, "a")
    prepared = isinstance(b, PreparedWeights)
    transpose_a, transpose_b = (call.get(f"transpose_{name}", False) for name in "ab")
    for name, value in (("a", transpose_a), ("b", transpose_b)):
        if not isinstance(value, bool | np.bool_):
            raise UnsupportedError(f"{kind}: transpose_{name} = {value!r}: must be True or False")
    if prepared:
        _same(kind, "b_zero_point", call.get("b_zero_point"), b.zero_point)
        if b.bias is not None:
            _same(kind, "bias", call.get("bias"), b.bias)
        if transpose_b:
            raise UnsupportedError(f"{kind}: transpose_b= says how b is stored; prepared weights are packed already")
    else:
        b = _operand(b, "b")
    a_shape, b_shape = a.shape, b.shape
    vector_a, vector_b = len(a_shape) == 1, len(b_shape) == 1
    if vector_a:
        a_shape = (1, *a_shape)
    if vector_b:
        b_shape = (1, *b_shape) if transpose_b else (*b_shape, 1)
    if transpose_a and vector_a:
        raise ShapeError(f"{kind}: transpose_a= says that a is stored (..., K, M), but it has one axis")
    a_stored, b_stored = a_shape, b_shape
    if transpose_a:
        a_shape = (*a_shape[:-2], a_shape[-1], a_shape[-2])
    if transpose_b:
        b_shape = (*b_shape[:-2], b_shape[-1], b_shape[-2])
    if a_shape[-1] != b_shape[-2]:
        raise ShapeError(f"a of shape {a.shape}{' (transposed)' if transpose_a else ''} and b of shape {b.shape}"
                         f"{' (transposed)' if transpose_b else ''}: "
                         f"K differs, {a_shape[-1]} and {b_shape[-2]}")
    (m, k), n = a_shape[-2:], b_shape[-1]
    try:
        lead = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    except ValueError:
        raise ShapeError(f"a of shape {a.shape} and b of shape {b.shape}: the leading axes do not broadcast") from None

    a_zero = call.get("a_zero_point")
    rows = _row_zero_points(0 if a_zero is None else a_zero, a.dtype, a_shape)
    b_zero = b.zero_point if prepared else call.get("b_zero_point")
    columns = _column_zero_points(0 if b_zero is None else b_zero, b.dtype, b_shape[:-2], n)
    bias = b.bias if prepared and b.bias is not None else check_bias(call.get("bias"), n)
    output = _Output(np.dtype(np.int32)) if kind == "matmul" else _quantized(call, b, n)
    shape = (*lead, *(() if vector_a else (m,)), *(() if vector_b else (n,)))
    if not math.prod(shape) or (not lead and not (m and n)):
        return Product(None, a, b, None, None, shape, output.dtype)

    a_bytes, turned = _layout(a)
    a_layout = Layout.COLUMNS if (turned == Layout.COLUMNS) != transpose_a else Layout.ROWS
    a_stride = a_stored[-2] if turned == Layout.COLUMNS else a_stored[-1]
    if prepared:
        b_bytes, b_layout, b_stride = b, Layout.PACKED, 0
    else:
        b_bytes, turned = _layout(b)
        b_layout = Layout.COLUMNS if (turned == Layout.COLUMNS) != transpose_b else Layout.ROWS
        b_stride = b_stored[-2] if turned == Layout.COLUMNS else b_stored[-1]
    b_size = b.array.nbytes // max(1, math.prod(b_shape[:-2])) if prepared else k * n
    size = 4 if output.rounding == Rounding.RAW else 1
    table = columns.ndim > 0
    if math.prod(b_shape[:-2]) == 1 and a_layout == Layout.ROWS and len(lead) > 0:
        # one B for all: the batch is just more rows
        m *= math.prod(a_shape[:-2])
        batches: tuple[Batch, ...] = (Batch(0, 0, 0, 0, _runs(rows.reshape(-1))),)
    else:
        def numbers(own: tuple[int, ...]) -> list[int]:
            return np.broadcast_to(np.arange(math.prod(own)).reshape(own), lead).ravel().tolist()

        runs = [_runs(r) for r in rows.reshape(-1, m)]
        batches = tuple(
            Batch(i * m * k, j * b_size, c * m * n * size, j * n if table else 0, runs[i])
            for c, (i, j) in enumerate(zip(numbers(a_shape[:-2]), numbers(b_shape[:-2]), strict=True)))
    gemm = Gemm(
        m=m, k=k, n=n, a_layout=a_layout, a_stride=a_stride, a_signed=a.dtype == np.int8,
        b_layout=b_layout, b_stride=b_stride, b_signed=b.dtype == np.int8,
        b_zero_point=None if table else int(columns), rounding=output.rounding, bias=bias is not None,
        clamp_low=output.low, clamp_high=output.high, batches=batches)
    records = None
    if gemm.parameters:
        records = column_records(n, config.tile.array.columns, output.scale, bias, output.zero_point)
    return Product(gemm, a_bytes, b_bytes, records, columns.astype(b.dtype).reshape(-1) if table else None,
                   shape, output.dtype)
