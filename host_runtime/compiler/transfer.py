"""int32 values from memory through the accumulators and the requantizer to memory: copies, and sums made results."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import COLUMN, Rounding, Target

from .gemm import Buffer
from .schedule import Operation

__all__ = ["Place", "Conversion", "Transfers"]

_FIELD = 65535  # what the 16-bit counts of a command hold


@dataclass(frozen=True)
class Place:
    """Rows in a buffer: byte offset of the first, bytes from one to the next."""

    buffer: Buffer
    offset: int = 0
    stride: int = 0


@dataclass(frozen=True)
class Conversion:
    """What STORE does to the sums, as :class:`Gemm` has it; by default nothing."""

    rounding: Rounding = Rounding.RAW
    bias: bool = False
    clamp_low: int = 0
    clamp_high: int = 0

    @property
    def parameters(self) -> bool:
        return self.bias or self.rounding != Rounding.RAW

    @property
    def out_bytes(self) -> int:
        return 4 if self.rounding == Rounding.RAW else 1


class Transfers:
    """Appends transfers to ``operations``, one after the other; one accumulator bank is read while the other fills."""

    def __init__(self, operations: list[Operation], config: DeviceConfig) -> None:
        self.operations = operations
        self._config = config
        self._stores: list[int] = []

    @property
    def last(self) -> set[int]:
        """The STORE that ends all transfers so far."""
        return set(self._stores[-1:])

    def add(self, source: Place, target: Place, *, rows: int, columns: int, after: Collection[int] = (),
            conversion: Conversion = Conversion(), first_column: int = 0) -> None:
        """Bring ``rows`` x ``columns`` int32 from ``source`` to ``target``.

        after: what must have ended before the first byte is read. first_column: of the parameter table, for column 0
        of ``source``.
        """
        tile = self._config.tile
        width, bank = tile.array.columns, tile.accumulator_words // 2
        most = min(bank, _FIELD // 4)
        if conversion.parameters:
            most = min(most, tile.parameter_records // tile.column_records)
        waiting = set(after)
        for first in range(0, columns, most * width):
            count = min(most * width, columns - first)
            steps = math.ceil(count / width)
            loads: set[int] = set()
            if conversion.parameters:
                loads.add(self._append(_parameters(self._config, first_column + first, steps, waiting | self.last)))
                waiting = set()
            height = min(bank // steps, rows, _FIELD)
            for row in range(0, rows, height):
                part = min(height, rows - row)
                base = len(self._stores) % 2 * bank
                free = set(self._stores[-2:-1])  # the STORE that read this bank last
                loads.add(self._append(Operation("load", {
                    "target": Target.ACCUMULATOR, "planes": 1, "rows": part, "row_bytes": 4 * count,
                    "row_blocks": steps, "address": source.offset + row * source.stride + 4 * first,
                    "row_stride": source.stride, "block_pitch": part, "row_pitch": 1, "destination": base},
                    waiting | free, source.buffer)))
                waiting = set()
                self._stores.append(self._append(Operation("store", {
                    "rounding": conversion.rounding, "bias": int(conversion.bias),
                    "clamp_low": conversion.clamp_low, "clamp_high": conversion.clamp_high, "rows": part,
                    "columns": count, "address": target.offset + row * target.stride + conversion.out_bytes * first,
                    "row_stride": target.stride, "accumulator": base, "accumulator_n_pitch": part},
                    loads, target.buffer)))
                loads = set()

    def _append(self, operation: Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1


def _parameters(config: DeviceConfig, first: int, steps: int, after: set[int]) -> Operation:
    """The LOAD of ``steps`` blocks of columns' records, from column ``first`` of the table on."""
    records, width = config.tile.column_records, config.tile.array.columns
    rows, row = (1, steps * width) if records == width else (steps, width)
    return Operation("load", {
        "target": Target.PARAMETER, "planes": 1, "address": first * COLUMN.bytes, "row_stride": width * COLUMN.bytes,
        "rows": rows, "row_bytes": row * COLUMN.bytes, "row_blocks": row, "block_pitch": 1, "row_pitch": records,
        "destination": 0}, after, Buffer.PARAMETERS)
