"""What the compiler compiles: one (batched) matrix product between buffers in device memory."""

import enum
from dataclasses import dataclass

from ringloom.hw.isa import Rounding

__all__ = ["Buffer", "Layout", "Batch", "Gemm"]


class Buffer(enum.IntEnum):
    """What a command's address counts from; the stream is bound to real addresses just before it runs."""

    A = 0
    B = 1
    C = 2
    PARAMETERS = 3   # one isa.COLUMN record a column, padded to whole blocks of columns
    ZERO_POINTS = 4  # one byte a column of B
    SUMS = 5         # int32 sums over a part of K
    TOTALS = 6       # the same, added up over the tiles
    SOURCE_A = 7     # what a tile gives to a broadcast of A
    SOURCE_B = 8     # and of B
    BETWEEN = 9      # results of one layer that the same tile takes for the next


class Layout(enum.Enum):
    """How an operand lies in memory.

    ROWS: A as M x K, B as K x N, ``stride`` bytes a row. COLUMNS: A as K x M, B as N x K.
    PACKED (B alone): blocks of ``array.columns`` columns one behind the other, each K rounded up to whole
    weight tiles; what ``prepare`` makes.
    """

    ROWS = "rows"
    COLUMNS = "columns"
    PACKED = "packed"


@dataclass(frozen=True)
class Batch:
    """One matrix of a batch: byte offsets into the buffers, and its row zero points.

    a_zero_points: runs of equal zero points down the rows of A: (rows, zero point), which add up to M.
    version: tells apart matrices that lie at one place at different times.
    """

    a: int
    b: int
    c: int
    zero_points: int
    a_zero_points: tuple[tuple[int, int], ...]
    version: int = 0


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """C[m, n] = f(bias[n] + sum over k of (A[m, k] - az[m]) * (B[k, n] - bz[n])) for every batch.

    m, k, n: elements; m and n at least 1. a_stride, b_stride: bytes from row to row as stored; where B is packed,
    from one block of columns to the next (0: they lie close together). c_stride: bytes from row to row of C (0: so).
    b_zero_point: None takes the table. rounding RAW gives int32, anything else one byte a column within
    clamp_low..clamp_high. bias: the parameter records' bias is added.
    """

    m: int
    k: int
    n: int
    a_layout: Layout = Layout.ROWS
    a_stride: int = 0
    a_signed: bool = True
    b_layout: Layout = Layout.ROWS
    b_stride: int = 0
    b_signed: bool = True
    b_zero_point: int | None = 0
    rounding: Rounding = Rounding.RAW
    bias: bool = False
    clamp_low: int = 0
    clamp_high: int = 0
    c_stride: int = 0
    batches: tuple[Batch, ...]

    @property
    def out_bytes(self) -> int:
        """Bytes of one element of C."""
        return 4 if self.rounding == Rounding.RAW else 1

    @property
    def c_row_bytes(self) -> int:
        """Bytes from one row of C to the next."""
        return self.c_stride or self.n * self.out_bytes

    @property
    def parameters(self) -> bool:
        """Whether STORE needs column records."""
        return self.bias or self.rounding != Rounding.RAW

    @property
    def macs(self) -> int:
        """Useful multiply-accumulates."""
        return self.m * self.k * self.n * len(self.batches)
