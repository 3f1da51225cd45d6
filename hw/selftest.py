"""The job that tests every element of a tile's array; the firmware runs it at power-on, the host in full.

Weights are all 1, then all -2, the complement, in both weight planes. A is a row of zeros, and then one-hot rows: row
i holds -1 for row ``rows - i`` of the array, zeros beside it. So every result of row 0 is 0, the others are -1 and 2.

Why this finds and locates one stuck bit: an element multiplies zeros with 0 and its own one-hot row with all ones, and
the sum above an element is all zeros or all ones. Stuck at 0, a bit of a product or an activation shows in the
element's own one-hot row, a bit of a sum in the rows of this element and those above it. Stuck at 1, a product or an
activation shows in every row but the element's own, a sum in those of the elements below it and in row 0. A weight's
bit shows in its own row, with weights of 1 or with those of -2. In each case, going from row 1 on, the first row that
is wrong where row 0 is right, or right where row 0 is wrong, is the element's.
"""

import math
from dataclasses import dataclass

import numpy as np

from .config import BEAT_BYTES, ConfigError, DeviceConfig
from .isa import DESCRIPTOR, LOAD, MATMUL, RECORD_BYTES, STORE, VERSION, Opcode, Rounding, Target

__all__ = ["EXPECTED", "ArrayTest", "array_test", "locate"]

EXPECTED = (-1, 2)
"""What the results of the one-hot rows are, with weights of 1 and of -2."""
_ZERO_POINTS = (-1, 2)  # of weights that are all 0
_LOADED, _PLACED, _FREE = 0, 1, 2  # semaphores
_RESULT = (3, 4)


@dataclass(frozen=True)
class ArrayTest:
    """The test of a configuration's array: what lies where, in bytes from its start, a multiple of 64.

    image: descriptor, commands, one-hot row. addresses: 32-bit words of ``image`` at which a 64-bit address stands
    that the place of the image is added to. results: where the results lie, for each of ``EXPECTED`` ``rows`` rows of
    ``row_bytes`` bytes of int32. size: all of it; the last 64 bytes are the completion record.
    """

    image: bytes
    addresses: tuple[int, ...]
    results: int
    rows: int
    row_bytes: int
    size: int

    def bound(self, base: int) -> bytes:
        """``image`` as it lies at ``base``."""
        words = bytearray(self.image)
        for at in self.addresses:
            address = int.from_bytes(words[4 * at:4 * at + 8], "little") + base
            words[4 * at:4 * at + 8] = address.to_bytes(8, "little")
        return bytes(words)


def array_test(config: DeviceConfig) -> ArrayTest:
    """The test of ``config``. Raises :class:`ConfigError` where its results do not fit the memory."""
    tile = config.tile
    rows, columns = tile.array.rows, tile.array.columns
    blocks = max(2, BEAT_BYTES // math.gcd(4 * columns, BEAT_BYTES))  # both planes, and rows of whole beats
    row_bytes = 4 * blocks * columns
    bank = tile.accumulator_words // 2
    steps = max(2, min(blocks, bank) & ~1) if bank > 1 else 1
    chunk = max(1, min(rows + 1, bank // steps, tile.activation_blocks))
    records = 2 + math.ceil((rows + 1) / chunk) * (1 + 4 * math.ceil(blocks / steps))
    operand = RECORD_BYTES * records
    image_bytes = operand + math.ceil(2 * rows / BEAT_BYTES) * BEAT_BYTES
    results = math.ceil(image_bytes / RECORD_BYTES) * RECORD_BYTES
    completion = results + math.ceil(len(EXPECTED) * (rows + 1) * row_bytes / RECORD_BYTES) * RECORD_BYTES
    size = completion + RECORD_BYTES
    if size > config.memory.bytes:
        raise ConfigError(f"memory.bytes = {config.memory.bytes}: the test of the array needs {size}")

    commands = [_command(LOAD, Opcode.LOAD, signals=(_LOADED,), target=Target.WEIGHT, rows=rows, planes=1,
                         pad_bottom=rows, row_blocks=1, block_pitch=1, row_pitch=1)]
    for first in range(0, rows + 1, chunk):
        count = min(chunk, rows + 1 - first)
        commands.append(_command(
            LOAD, Opcode.LOAD, waits=(_FREE,) if first else (), signals=(_PLACED,), target=Target.ACTIVATION,
            address=operand + first, rows=count, planes=1, row_bytes=rows, row_stride=1, row_blocks=1, block_pitch=1,
            row_pitch=1))
        for block in range(0, blocks, steps):
            n = min(steps, blocks - block)
            start = first == 0 and block == 0
            for pattern, zero in enumerate(_ZERO_POINTS):
                waits: tuple[int, ...] = (_LOADED,) if start and not pattern else ()
                waits += (_PLACED,) if not block and not pattern else ()
                waits += () if pattern or not block else (_FREE,)
                commands.append(_command(
                    MATMUL, Opcode.MATMUL, waits=waits, signals=(_RESULT[pattern],), a_signed=1, b_signed=1,
                    activation_row_pitch=1, weight_row_pitch=1, rows=count, k_steps=1, n_steps=n,
                    accumulator=pattern * bank, accumulator_n_pitch=count, b_zero_point=zero))
            for pattern in range(len(_ZERO_POINTS)):
                last = first + count > rows and block + n >= blocks
                commands.append(_command(
                    STORE, Opcode.STORE, waits=(_RESULT[pattern],), signals=(_FREE,) if pattern and not last else (),
                    rounding=Rounding.RAW, row_stride=row_bytes, rows=count, columns=n * columns,
                    address=results + (pattern * (rows + 1) + first) * row_bytes + 4 * block * columns,
                    accumulator=pattern * bank, accumulator_n_pitch=count))
    assert len(commands) == records - 1
    head = DESCRIPTOR.encode(version=VERSION, opcode=Opcode.JOB, commands=len(commands),
                             completion_address=completion)
    one_hot = bytes(rows) + b"\xff" + bytes(image_bytes - operand - rows - 1)
    addresses = [_word(0, DESCRIPTOR, "completion_address"), _word(0, DESCRIPTOR, "address")]
    addresses += [_word(1 + i, LOAD, "address") for i, command in enumerate(commands)
                  if command[1] in (Opcode.LOAD, Opcode.STORE) and i > 0]
    return ArrayTest(head + b"".join(commands) + one_hot, tuple(addresses), results, rows + 1, row_bytes, size)


def _word(record, kind, field) -> int:
    return (record * 8 * RECORD_BYTES + next(f.offset for f in kind.fields if f.name == field)) // 32


def _command(kind, opcode, *, waits=(), signals=(), **fields) -> bytes:
    for i, semaphore in enumerate(waits):
        fields |= {f"wait{i}_semaphore": semaphore, f"wait{i}_enable": 1, f"wait{i}_count": 1}
    for i, semaphore in enumerate(signals):
        fields |= {f"signal{i}_semaphore": semaphore, f"signal{i}_enable": 1}
    return kind.encode(version=VERSION, opcode=opcode, **fields)


def locate(config: DeviceConfig, results: np.ndarray) -> list[tuple[int | None, int]]:
    """Elements of the array that do not compute right, as (row, column).

    results: int32, (patterns, rows, columns of all blocks), as the job stored them. A row is None where the bits of
    more than one element, or of what lies beside the array, must be at fault.
    """
    rows, columns = config.tile.array.rows, config.tile.array.columns
    expected = np.zeros_like(results)
    expected[:, 1:] = np.array(EXPECTED).reshape(-1, 1, 1)
    wrong = (results != expected).reshape(len(EXPECTED), rows + 1, -1, columns)
    found: list[tuple[int | None, int]] = []
    for column in range(columns):
        for pattern, block in np.ndindex(wrong.shape[0], wrong.shape[2]):
            bad = wrong[pattern, :, block, column]
            if bad.any():
                other = np.flatnonzero(bad[1:] != bad[0])
                found.append((rows - 1 - int(other[0]) if other.size else None, column))
                break
    return found
