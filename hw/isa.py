"""The command set: 64-byte records, the one source of their layout.

A job is a descriptor record followed at once by its command records, contiguous in device memory and aligned
to 64 bytes; it ends with a completion record. Everything is little-endian. From the tables below come the
Python encoder, the Amaranth layouts, the C header of the firmware and the table in the docs.

Semaphores: a command starts when each semaphore it waits for holds at least ``count``, and takes ``count``
away as it starts. When it has ended (its bytes lie in the scratchpad, the accumulators, or in memory as seen
by every port) it adds one to each semaphore it signals. Commands of one engine start and end in order.

Blocks: a scratchpad is a linear array of blocks, interleaved over its banks by the low address bits. A block of
the activation scratchpad is ``array.rows`` bytes (one row m of A, ``rows`` consecutive k), of the weight
scratchpad ``array.columns`` bytes (one row k of B, ``columns`` consecutive n), of the accumulators
``array.columns`` int32, of the parameters one 16-byte column record, of the zero points ``array.columns`` bytes.
The upper half of the accumulators is a bank of its own: a STORE waits for a bank only while a MATMUL adds to that
one. A command may use both; the compiler keeps each n step inside one, so that the two overlap.

A remote signal reaches the job that the other tile runs, and is dropped where that has another context or epoch: the
streams of a group of tiles begin with a BARRIER, and end with one where a tile still expects signals.

Faults: a command is judged by its own record, and nothing outside the tile or the queue's windows is touched. Every
field counts at its full width. Reserved bits must be zero in a descriptor and in a command's header. Of a command
that is wrong in several places the engine names the one it comes to first; what it did before that place stays done.

Progress, for the watchdog: a record fetched or dispatched, a command ended, a request of LOAD or STORE answered by
memory, a block written by LOAD (padding too), a row of activations in the array, a group of columns read by STORE.
Waiting for a semaphore is none. A job's ``watchdog_cycles`` must exceed the latency of memory, and a MATMUL's fill
and drain, ``2 * (rows + columns)`` cycles of the array.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from amaranth.lib import data

from .shaped import ShapedIntEnum

__all__ = [
    "VERSION", "RECORD_BYTES", "SEMAPHORES", "SEMAPHORE_BITS", "Opcode", "Target", "Rounding", "Collective", "Status",
    "Code", "Field", "Record", "HEADER", "DESCRIPTOR", "LOAD", "MATMUL", "STORE", "RING", "COMPLETION", "COLUMN",
    "RECORDS", "record_of",
]

VERSION = 1
RECORD_BYTES = 64
SEMAPHORES = 32
SEMAPHORE_BITS = 16


class Opcode(ShapedIntEnum, shape=8):
    """What a record asks for, and so which engine runs it."""

    JOB = 1
    LOAD = 2
    MATMUL = 3
    STORE = 4
    RING = 5


class Target(ShapedIntEnum, shape=3):
    """Where a LOAD puts its blocks."""

    ACTIVATION = 0
    WEIGHT = 1
    ACCUMULATOR = 2
    PARAMETER = 3
    ZERO_POINT = 4


class Rounding(ShapedIntEnum, shape=4):
    """What STORE does with an accumulator. RAW writes int32; the others an 8-bit value (see docs/numerics.md)."""

    RAW = 0
    F32 = 1
    EXACT_RNE = 2
    EXACT_RNE_ZP = 3
    HALF_UP = 4
    HALF_AWAY = 5


class Collective(ShapedIntEnum, shape=4):
    """What a RING command does with the tiles of its group."""

    ALL_REDUCE = 1      # every tile gets the sum of all vectors
    REDUCE_SCATTER = 2  # tile i of the group gets piece i of the sum
    ALL_GATHER = 3      # every tile gets all pieces, piece i from tile i
    BROADCAST = 4       # every tile gets the root's vector
    BARRIER = 5         # no tile ends before every tile has begun; no memory is touched


class Status(enum.IntEnum):
    """How a job ended."""

    PENDING = 0  # what the host writes before the doorbell
    DONE = 1
    FAULT = 2
    ABORTED = 3


class Code(ShapedIntEnum, shape=8):
    """Why a job ended without success."""

    NONE = 0
    BAD_VERSION = 1       # a record's version is not VERSION
    BAD_OPCODE = 2        # no engine answers to the opcode
    BAD_DESCRIPTOR = 3    # the descriptor is not a JOB, is misaligned, or its completion address is
    BAD_FIELD = 4         # a field holds a value the engine cannot do (a zero count, an even pitch, a reserved value)
    MEMORY_WINDOW = 5     # a memory address outside the windows of the queue
    SCRATCHPAD_RANGE = 6  # a block, accumulator or parameter address outside the tile
    SEMAPHORE_OVERFLOW = 7
    MEMORY_ERROR = 8      # the memory answered with an error
    WATCHDOG = 9          # no engine made progress for the job's watchdog cycles
    ABORT = 10            # the host asked for it


@dataclass(frozen=True)
class Field:
    """``bits`` bits at bit ``offset`` of a record."""

    name: str
    offset: int
    bits: int
    doc: str
    signed: bool = False


class Record:
    """A record format: the Python encoder and decoder and the Amaranth layout of one set of fields."""

    def __init__(self, name: str, fields: Iterable[Field], *, bytes: int = RECORD_BYTES) -> None:
        self.name = name
        self.bytes = bytes
        self.fields = tuple(fields)
        self._by_name = {f.name: f for f in self.fields}
        end = 0
        for f in sorted(self.fields, key=lambda f: f.offset):
            assert f.offset >= end, f"{name}.{f.name} overlaps the field before it"
            end = f.offset + f.bits
        assert end <= 8 * bytes, f"{name} is longer than {bytes} bytes"
        assert len(self._by_name) == len(self.fields)

    @property
    def layout(self) -> data.FlexibleLayout:
        """The record as an Amaranth layout of ``8 * bytes`` bits."""
        from amaranth.hdl import signed, unsigned
        return data.FlexibleLayout(8 * self.bytes, {
            f.name: data.Field(signed(f.bits) if f.signed else unsigned(f.bits), f.offset) for f in self.fields})

    def encode(self, **values: int) -> bytes:
        """The record's bytes; a field not named is zero. Raises ``ValueError`` for a value its field cannot hold."""
        word = 0
        for name, value in values.items():
            f = self._by_name.get(name)
            if f is None:
                raise ValueError(f"{self.name} has no field {name!r}; it has {', '.join(self._by_name)}")
            low, high = (-(1 << f.bits - 1), (1 << f.bits - 1) - 1) if f.signed else (0, (1 << f.bits) - 1)
            if not low <= int(value) <= high:
                raise ValueError(f"{self.name}.{name} = {value}: must lie in {low}..{high}")
            word |= (int(value) & ((1 << f.bits) - 1)) << f.offset
        return word.to_bytes(self.bytes, "little")

    def decode(self, raw: bytes) -> dict[str, int]:
        """Field name to value of ``bytes`` bytes."""
        word = int.from_bytes(raw[:self.bytes], "little")
        values = {}
        for f in self.fields:
            value = word >> f.offset & ((1 << f.bits) - 1)
            if f.signed and value >> f.bits - 1:
                value -= 1 << f.bits
            values[f.name] = value
        return values


def _at(byte: float, name: str, bits: int, doc: str, signed: bool = False) -> Field:
    return Field(name, int(byte * 8), bits, doc, signed)


def _wait(index: int, byte: int) -> list[Field]:
    return [
        Field(f"wait{index}_semaphore", 8 * byte, 5, "semaphore to wait for"),
        Field(f"wait{index}_enable", 8 * byte + 7, 1, "1: wait"),
        Field(f"wait{index}_count", 8 * byte + 8, 8, "value it must reach, and that is taken away"),
    ]


def _signal(index: int, byte: int) -> list[Field]:
    return [
        Field(f"signal{index}_semaphore", 8 * byte, 5, "semaphore to add one to when the command has ended"),
        Field(f"signal{index}_remote", 8 * byte + 6, 1, "1: a semaphore of tile signal_tile"),
        Field(f"signal{index}_enable", 8 * byte + 7, 1, "1: signal"),
        Field(f"signal{index}_tile", 8 * byte + 8, 8, "tile of a remote signal"),
    ]


_PREFIX = [
    _at(0, "version", 8, "VERSION"),
    _at(1, "opcode", 8, "Opcode"),
    _at(2, "context", 8, "the job's context in a descriptor; reserved, zero, in a command"),
    _at(3, "header_flags", 8, "reserved, zero"),
]
_HEADER = [*_PREFIX, *_wait(0, 4), *_wait(1, 6), *_signal(0, 8), *_signal(1, 10)]

HEADER = Record("HEADER", _HEADER)

DESCRIPTOR = Record("DESCRIPTOR", [
    *_PREFIX,
    _at(4, "job", 32, "number the host gave the job, echoed in the completion"),
    _at(8, "commands", 32, "command records that follow the descriptor"),
    _at(12, "epoch", 8, "epoch of the context; responses and writes of an ended epoch change nothing"),
    _at(16, "completion_address", 64, "where the completion record goes, aligned to 64 bytes"),
    _at(24, "watchdog_cycles", 32, "cycles without progress after which the job is ended; 0: the device's default"),
    _at(32, "address", 64, "in the ring of a queue: where the job lies, its descriptor and its commands behind it; "
                           "of no meaning in the descriptor there"),
])

COMPLETION = Record("COMPLETION", [
    _at(0, "job", 32, "number of the job"),
    _at(4, "status", 8, "Status"),
    _at(5, "code", 8, "Code"),
    _at(6, "context", 8, "context of the job"),
    _at(7, "tile", 8, "tile that ran it"),
    _at(8, "command", 32, "index of the command at fault"),
    _at(12, "epoch", 8, "epoch of the job"),
    _at(16, "address", 64, "memory or block address at fault"),
    _at(24, "start", 64, "device cycle in which the doorbell was accepted"),
    _at(32, "end", 64, "device cycle in which the last byte of the job was acknowledged by memory"),
])

LOAD = Record("LOAD", [
    *_HEADER,
    _at(12, "target", 3, "Target"),
    _at(12 + 4 / 8, "transpose", 1, "1: memory rows become block lanes (B stored N x K; A stored K x M)"),
    _at(13, "pad_value", 8, "byte that fills what lies outside the rows"),
    _at(14, "pad_left", 16, "bytes filled before each row's bytes (0 when transposed)"),
    _at(16, "address", 64, "byte address of the first row's first byte, any alignment"),
    _at(24, "row_stride", 32, "bytes from one row to the next", True),
    _at(28, "plane_stride", 32, "bytes from one plane to the next", True),
    _at(32, "rows", 16, "rows of a plane, pad_top and pad_bottom included"),
    _at(34, "planes", 16, "planes"),
    _at(36, "row_bytes", 32, "bytes of a row in memory; 0 fills only"),
    _at(40, "row_blocks", 16, "blocks a row fills; bytes behind the row's own are pad_value. Transposed: byte "
                              "positions along the row that are kept (= blocks a group of rows fills)"),
    _at(42, "block_pitch", 16, "blocks from one block of a row to the next"),
    _at(44, "row_pitch", 16, "blocks from one row to the next; transposed: from one group of lanes to the next"),
    _at(46, "plane_pitch", 16, "blocks from one plane to the next"),
    _at(48, "destination", 32, "first block of the target"),
    _at(52, "pad_top", 16, "rows filled with pad_value before the first row in memory"),
    _at(54, "pad_bottom", 16, "rows filled with pad_value behind the last row in memory"),
])

MATMUL = Record("MATMUL", [
    *_HEADER,
    _at(12, "accumulate", 1, "1: add to what the accumulators hold; 0: the first k step overwrites"),
    _at(12 + 1 / 8, "a_signed", 1, "1: activations are int8; 0: uint8"),
    _at(12 + 2 / 8, "b_signed", 1, "1: weights are int8; 0: uint8"),
    _at(12 + 3 / 8, "b_zero_point_table", 1, "1: a zero point a column, from the zero-point scratchpad"),
    _at(14, "zero_point_base", 16, "zero-point block of n step 0; the next n steps follow"),
    _at(16, "activation", 32, "activation block of row 0, k step 0"),
    _at(20, "activation_row_pitch", 16, "blocks from one row of A to the next"),
    _at(22, "activation_k_pitch", 16, "blocks from one k step to the next"),
    _at(24, "weight", 32, "weight block of weight row 0, k step 0, n step 0"),
    _at(28, "weight_row_pitch", 16, "blocks from one weight row to the next within a weight tile"),
    _at(30, "weight_k_pitch", 16, "blocks from one k step to the next"),
    _at(32, "weight_n_pitch", 16, "blocks from one n step to the next"),
    _at(34, "rows", 16, "rows of A"),
    _at(36, "k_steps", 16, "weight tiles along K"),
    _at(38, "n_steps", 16, "weight tiles along N"),
    _at(40, "accumulator", 32, "accumulator word of row 0, n step 0; rows follow one another"),
    _at(44, "accumulator_n_pitch", 16, "accumulator words from one n step to the next"),
    _at(46, "a_zero_point", 16, "taken from every activation, in the range of its type", True),
    _at(48, "b_zero_point", 16, "taken from every weight, in the range of its type", True),
])

STORE = Record("STORE", [
    *_HEADER,
    _at(12, "rounding", 4, "Rounding"),
    _at(12 + 4 / 8, "bias", 1, "1: add the record's bias to the accumulator first (also when RAW)"),
    _at(12 + 5 / 8, "per_row_scale", 1, "reserved"),
    _at(12 + 6 / 8, "residual", 1, "reserved"),
    _at(14, "clamp_low", 16, "lower bound of the output, the zero point included; it carries type and ReLU", True),
    _at(16, "address", 64, "byte address of row 0, column 0 of the output, any alignment"),
    _at(24, "row_stride", 32, "bytes from one output row to the next", True),
    _at(28, "clamp_high", 16, "upper bound of the output, the zero point included", True),
    _at(30, "rows", 16, "rows of the output"),
    _at(32, "columns", 32, "columns of the output (elements)"),
    _at(36, "accumulator", 32, "accumulator word of row 0, column 0; rows follow one another"),
    _at(40, "accumulator_n_pitch", 16, "accumulator words from one block of columns to the next"),
    _at(42, "parameter", 16, "column record of column 0; a block of columns takes TileConfig.column_records"),
])

RING = Record("RING", [
    *_HEADER,
    _at(12, "operation", 4, "Collective"),
    _at(12 + 4 / 8, "saturate", 1, "1: elements are int8, and each addition saturates; 0: int32, sums wrap"),
    _at(13, "first", 8, "first tile of the group; the others follow it"),
    _at(14, "size", 8, "tiles of the group; they end at the last tile at most"),
    _at(15, "root", 8, "tile whose vector BROADCAST sends"),
    _at(16, "source", 64, "byte address of what this tile gives, aligned to 64 bytes, in its own memory"),
    _at(24, "destination", 64, "byte address of what this tile gets, aligned to 64 bytes, in its own memory; "
                               "may be the source"),
    _at(32, "bytes", 32, "bytes of the vector; of one piece for REDUCE_SCATTER and ALL_GATHER"),
    _at(36, "pitch", 32, "bytes from one piece to the next, a multiple of 64, for REDUCE_SCATTER (in the source) and "
                         "ALL_GATHER (in the destination)"),
    _at(40, "number", 16, "number of the collective, the same in all tiles of the group and greater than that of any "
                          "before it, modulo 65536; flits of earlier ones are dropped"),
])

COLUMN = Record("COLUMN", [
    _at(0, "scale", 32, "multiplier M as the bits of a float32"),
    _at(4, "bias", 32, "int32 added to the accumulator (wraps)", True),
    _at(8, "zero_point", 16, "output zero point, added before the clamp", True),
], bytes=16)

RECORDS = (HEADER, DESCRIPTOR, COMPLETION, LOAD, MATMUL, STORE, RING, COLUMN)

_BY_OPCODE = {Opcode.JOB: DESCRIPTOR, Opcode.LOAD: LOAD, Opcode.MATMUL: MATMUL, Opcode.STORE: STORE,
              Opcode.RING: RING}


def record_of(opcode: int) -> Record:
    """The format of a record by its opcode. Raises ``ValueError`` for an opcode without one."""
    try:
        return _BY_OPCODE[Opcode(opcode)]
    except (KeyError, ValueError):
        raise ValueError(f"opcode {opcode}: no record format") from None
