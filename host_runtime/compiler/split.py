"""A product cut for several tiles: what part of it each tile computes, as a product of its own."""

import dataclasses
import math
from dataclasses import dataclass

from ringloom.hw.config import DeviceConfig

from .gemm import Batch, Gemm, Layout

__all__ = ["Cut", "bounds", "cuts", "matrices", "restrict"]


@dataclass(frozen=True)
class Cut:
    """Ranges of batches, rows of A, K and columns of B: each (first, behind the last)."""

    batches: tuple[int, int]
    m: tuple[int, int]
    k: tuple[int, int]
    n: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.m[1] - self.m[0]

    @property
    def depth(self) -> int:
        return self.k[1] - self.k[0]

    @property
    def columns(self) -> int:
        return self.n[1] - self.n[0]


def bounds(total: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """``total`` in up to ``parts`` ranges, none empty, as equal as whole ``unit``s allow."""
    units = math.ceil(total / unit)
    parts = max(1, min(parts, units))
    ends = [min(total, units * i // parts * unit) for i in range(parts + 1)]
    return list(zip(ends, ends[1:], strict=False))


def cuts(gemm: Gemm, mode: str, tiles: int, config: DeviceConfig) -> list[Cut]:
    """The parts of ``gemm`` on up to ``tiles`` tiles: ``data`` (batches, or rows of A), ``tensor-n``, ``tensor-k``."""
    whole = Cut((0, len(gemm.batches)), (0, gemm.m), (0, gemm.k), (0, gemm.n))
    array = config.tile.array
    if mode == "data" and (len(gemm.batches) >= tiles or len(gemm.batches) > gemm.m):
        return [dataclasses.replace(whole, batches=b) for b in bounds(len(gemm.batches), tiles)]
    if mode == "data":
        return [dataclasses.replace(whole, m=m) for m in bounds(gemm.m, tiles)]
    if mode == "tensor-n":
        return [dataclasses.replace(whole, n=n) for n in bounds(gemm.n, tiles, array.columns)]
    return [dataclasses.replace(whole, k=k) for k in bounds(gemm.k, tiles, array.rows)]


def _rows_of(runs: tuple[tuple[int, int], ...], m: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """The runs of zero points within rows ``m``."""
    kept, first = [], 0
    for count, value in runs:
        low, high = max(first, m[0]), min(first + count, m[1])
        if low < high:
            kept.append((high - low, value))
        first += count
    return tuple(kept)


def matrices(gemm: Gemm, operand: str, batches: tuple[int, int]) -> list[int]:
    """Numbers of the matrices of ``operand`` (a or b) that ``batches`` use, in the order of their offsets."""
    size = gemm.m * gemm.k if operand == "a" else gemm.k * gemm.n
    return sorted({getattr(batch, operand) // max(1, size) for batch in gemm.batches[slice(*batches)]})


def restrict(gemm: Gemm, cut: Cut, config: DeviceConfig, *, own_a: bool, own_b: bool, own_c: bool,
             c_stride: int = 0) -> Gemm:
    """The product of one part.

    own_a, own_b: the buffer holds what the part needs alone, in the order of :func:`matrices`; otherwise it is the
    whole operand. own_c: the same of the result, whose rows then lie ``c_stride`` bytes apart (0: one behind the
    other). Tables of columns are whole; that of the parameters is bound ``n[0]`` records behind its start.
    """
    (m0, _), (k0, _), (n0, _) = cut.m, cut.k, cut.n
    size, tile = gemm.out_bytes, config.tile.array
    rows, depth, columns = cut.rows, cut.depth, cut.columns
    by_rows, b_rows = gemm.a_layout == Layout.ROWS, gemm.b_layout == Layout.ROWS
    a_stride = (depth if by_rows else rows) if own_a else gemm.a_stride
    b_stride, panel = gemm.b_stride, max(1, math.ceil(gemm.k / tile.rows)) * tile.rows * tile.columns
    if gemm.b_layout == Layout.PACKED:
        b_stride = b_stride or panel
        b_first = n0 // tile.columns * b_stride + k0 * tile.columns
    else:
        b_first = k0 * b_stride + n0 if b_rows else n0 * b_stride + k0
    if own_b:
        b_stride = columns if b_rows else depth
    a_used, b_used = matrices(gemm, "a", cut.batches), matrices(gemm, "b", cut.batches)
    if own_c:
        c_stride = c_stride or columns * size
    c_row = c_stride if own_c else gemm.c_row_bytes
    batches = []
    for i, batch in enumerate(gemm.batches[slice(*cut.batches)]):
        a = batch.a + (m0 * a_stride + k0 if by_rows else k0 * a_stride + m0)
        if own_a:
            a = a_used.index(batch.a // max(1, gemm.m * gemm.k)) * rows * depth
        b = batch.b + b_first
        if own_b:
            b = b_used.index(batch.b // max(1, gemm.k * gemm.n)) * depth * columns
        c = i * rows * c_row if own_c else batch.c + m0 * c_row + n0 * size
        zero_points = batch.zero_points + n0 if gemm.b_zero_point is None else 0
        batches.append(Batch(a, b, c, zero_points, _rows_of(batch.a_zero_points, cut.m)))
    return dataclasses.replace(gemm, m=rows, k=depth, n=columns, a_stride=a_stride, b_stride=b_stride,
                               c_stride=0 if c_row == columns * size else c_row, batches=tuple(batches))
