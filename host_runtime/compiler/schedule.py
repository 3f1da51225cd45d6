"""A plan turned into typed operations in the order in which they are fetched, each with what must have ended before it.

Every operation depends on earlier ones alone, so that the stream cannot deadlock however short the engines' queues.
The first tile is cut finely so that the array starts soon, the last one so that little is left to store when it stops.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import COLUMN, Target

from .gemm import Batch, Buffer, Gemm, Layout
from .plan import HEAD_ROWS, Plan

__all__ = ["Operation", "schedule"]

_TAIL_ROWS = 8


@dataclass
class Operation:
    """One command: its engine, its fields, the buffer its address counts from, and operations that must have ended.

    destination: the buffer of the second address of a RING command. waits: semaphores that other tiles signal.
    tells: (tile, semaphore) of other tiles, signalled at its end. batch: index of the batch it works for.
    """

    engine: str
    fields: dict[str, int]
    after: set[int]
    buffer: Buffer | None = None
    destination: Buffer | None = None
    waits: tuple[int, ...] = ()
    tells: tuple[tuple[int, int], ...] = ()
    batch: int = 0


@dataclass
class _Slot:
    """A part of a scratchpad: what it holds (piece to the LOAD that brought it) and who read it last."""

    index: int
    free_after: set[int]
    pieces: dict[tuple[int, int], int] = field(default_factory=dict)
    last_use: set[int] = field(default_factory=set)


class _Slots:
    """A scratchpad in equal slots; the one whose use is longest ago makes room."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: OrderedDict[tuple, _Slot] = OrderedDict()

    def get(self, key: tuple) -> _Slot:
        slot = self._held.pop(key, None)
        if slot is None:
            if len(self._held) < self._count:
                slot = _Slot(len(self._held), set())
            else:
                _, old = self._held.popitem(last=False)
                slot = _Slot(old.index, old.last_use)
        self._held[key] = slot
        return slot


class _Accumulators:
    """Two banks, taken in turn, so that STORE drains one while MATMUL fills the other; each is a ring of regions."""

    def __init__(self, words: int) -> None:
        self._bank_words = words // 2
        self._bank = 1
        self._next = [0, 0]
        self._stored: list[list[tuple[int, int, int]]] = [[], []]

    def take(self, words: int) -> tuple[int, set[int]]:
        """Address of ``words`` words in the other bank, and the STOREs that must have read what lay there."""
        self._bank ^= 1
        first = self._next[self._bank]
        if first + words > self._bank_words:
            first = 0
        self._next[self._bank] = first + words
        users = self._stored[self._bank]
        after = {op for low, high, op in users if low < first + words and first < high}
        self._stored[self._bank] = [user for user in users if user[2] not in after]
        self._region = first, first + words
        return self._bank * self._bank_words + first, after

    def stored(self, operation: int) -> None:
        """``operation`` is the STORE of the region taken last."""
        self._stored[self._bank].append((*self._region, operation))


def _halves(rows: tuple[int, int], columns: tuple[int, int]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """A tile as ever smaller pieces: half of its blocks of columns, half of the rest, then so with its rows."""
    (m0, m1), (n0, n1) = rows, columns
    while n1 - n0 > 1:
        middle = n0 + (n1 - n0) // 2
        yield (m0, m1), (n0, middle)
        n0 = middle
    while m1 - m0 >= 2 * _TAIL_ROWS:
        middle = m0 + (m1 - m0 + 1) // 2
        yield (m0, middle), (n0, n1)
        m0 = middle
    yield (m0, m1), (n0, n1)


def _doubling(first: int, last: int) -> list[tuple[int, int]]:
    """first..last in pieces of 1, 1, 2, 4, ..."""
    pieces, size = [], 1
    while first < last:
        end = min(last, first + size)
        pieces.append((first, end))
        size = end - first if len(pieces) == 1 else 2 * (end - first)
        first = end
    return pieces


class _Scheduler:
    def __init__(self, gemm: Gemm, plan: Plan, config: DeviceConfig, parameters_first: bool) -> None:
        self.gemm, self.plan, self.config = gemm, plan, config
        self.parameters_first = parameters_first
        self.batch = 0
        tile = config.tile
        self.r, self.c = tile.array.rows, tile.array.columns
        self.k_total = max(1, math.ceil(gemm.k / self.r))
        self.n_total = math.ceil(gemm.n / self.c)
        self.operations: list[Operation] = []
        self.activations, self.weights = _Slots(plan.a_slots), _Slots(plan.b_slots)
        self.parameters, self.zero_points = _Slots(plan.parameter_slots), _Slots(plan.zero_point_slots)
        self.accumulators = _Accumulators(tile.accumulator_words)
        self.b_cuts: dict[tuple, list[tuple[int, int]]] = {}
        self.a_cuts: dict[tuple, list[tuple[int, int]]] = {}

    def run(self) -> list[Operation]:
        tiles = list(self._tiles())
        for i, (number, batch, rows, columns) in enumerate(tiles):
            self.batch = number
            pieces = [(rows, columns)]
            if i == 0:
                pieces = self._head(batch, rows, columns)
            if i == len(tiles) - 1 and self._resident():
                pieces = [*pieces[:-1], *_halves(*pieces[-1])]
            for part, (m, n) in enumerate(pieces):
                self._tile(batch, rows, columns, m, n, fine=i == 0 and part == 0)
        return self.operations

    def _tiles(self) -> Iterator[tuple[int, Batch, tuple[int, int], tuple[int, int]]]:
        m_tiles = [(m, min(m + self.plan.rows, self.gemm.m)) for m in range(0, self.gemm.m, self.plan.rows)]
        n_tiles = [(n, min(n + self.plan.n_steps, self.n_total)) for n in range(0, self.n_total, self.plan.n_steps)]
        for i, batch in enumerate(self.gemm.batches):
            if self.plan.by_rows:
                yield from ((i, batch, m, n) for m in m_tiles for n in n_tiles)
            else:
                yield from ((i, batch, m, n) for n in n_tiles for m in m_tiles)

    def _resident(self) -> bool:
        return math.ceil(self.k_total / self.plan.k_steps) <= min(self.plan.a_slots, self.plan.b_slots)

    def _head(self, batch: Batch, rows: tuple[int, int], columns: tuple[int, int]) -> list:
        """Cut the first tile: a slab of few rows, and the first chunk of B in pieces that double along K."""
        slab = max(HEAD_ROWS, self.r * self.c // self.config.line_bytes)
        chunk = (0, min(self.plan.k_steps, self.k_total))
        self.b_cuts[(batch.b, columns, chunk)] = _doubling(*chunk)
        if rows[1] <= 2 * slab:
            return [(rows, columns)]
        for k0 in range(0, self.k_total, self.plan.k_steps):
            self.a_cuts[(batch.a, batch.version, rows, k0)] = [(0, slab), (slab, rows[1])]
        return [((0, slab), columns), ((slab, rows[1]), columns)]

    # -- one output tile -------------------------------------------------------------------------------

    def _tile(self, batch: Batch, m_tile: tuple[int, int], n_tile: tuple[int, int], m: tuple[int, int],
              n: tuple[int, int], fine: bool) -> None:
        """Multiply and store rows ``m`` and blocks of columns ``n`` of the tile ``m_tile`` x ``n_tile``."""
        words = (m[1] - m[0]) * (n[1] - n[0])
        accumulator, after = self.accumulators.take(words)
        parameter = None
        if self.parameters_first and self.gemm.parameters:
            parameter = self._parameters(n_tile)
            after |= set(parameter.pieces.values())
        for k0 in range(0, self.k_total, self.plan.k_steps):
            chunk = (k0, min(k0 + self.plan.k_steps, self.k_total))
            cuts = self.b_cuts.get((batch.b, n_tile, chunk), [chunk]) if fine else [chunk]
            for k in cuts:
                last = self._step(batch, m_tile, n_tile, chunk, m, n, k, accumulator, after)
                after = set()
                if parameter is None and self.gemm.parameters:
                    parameter = self._parameters(n_tile)
        self._store(batch, m, n, n_tile, accumulator, last, parameter)

    def _step(self, batch: Batch, m_tile: tuple[int, int], n_tile: tuple[int, int], chunk: tuple[int, int],
              m: tuple[int, int], n: tuple[int, int], k: tuple[int, int], accumulator: int, after: set[int]) -> int:
        gemm, plan = self.gemm, self.plan
        a_slot = self._activations(batch, m_tile, chunk, m)
        b_slot = self._weights(batch, n_tile, chunk, k)
        needs = after | {op for (low, high), op in a_slot.pieces.items() if low < m[1] and m[0] < high}
        needs |= {op for (low, high), op in b_slot.pieces.items() if low < k[1] and k[0] < high}
        zero = {}
        if gemm.b_zero_point is None:
            z_slot = self._zero_points(batch, n_tile)
            needs |= set(z_slot.pieces.values())
            zero = {"b_zero_point_table": 1, "zero_point_base": z_slot.index * plan.n_steps + n[0] - n_tile[0]}
        else:
            zero = {"b_zero_point": gemm.b_zero_point}
        row_pitch, k_pitch = self._activation_pitches()
        for first, last, a_zero in _runs(batch.a_zero_points, m):
            index = self._add("matmul", needs, None, **zero,
                accumulate=int(k[0] > 0), a_signed=int(gemm.a_signed), b_signed=int(gemm.b_signed), a_zero_point=a_zero,
                activation=a_slot.index * plan.rows * plan.k_steps + (first - m_tile[0]) * row_pitch
                + (k[0] - chunk[0]) * k_pitch,
                activation_row_pitch=row_pitch, activation_k_pitch=k_pitch,
                weight=b_slot.index * plan.n_steps * plan.n_pitch + (n[0] - n_tile[0]) * plan.n_pitch
                + (k[0] - chunk[0]) * self.r,
                weight_row_pitch=1, weight_k_pitch=self.r, weight_n_pitch=plan.n_pitch,
                rows=last - first, k_steps=k[1] - k[0], n_steps=n[1] - n[0],
                accumulator=accumulator + first - m[0], accumulator_n_pitch=m[1] - m[0])
            needs = set()
        for slot in (a_slot, b_slot):
            slot.last_use = {index}
        if gemm.b_zero_point is None:
            z_slot.last_use = {index}
        return index

    def _store(self, batch: Batch, m: tuple[int, int], n: tuple[int, int], n_tile: tuple[int, int], accumulator: int,
               last: int, parameter: _Slot | None) -> None:
        gemm, plan = self.gemm, self.plan
        size = gemm.out_bytes
        after, fields = {last}, {}
        if parameter is not None:
            if not self.parameters_first:
                after |= set(parameter.pieces.values())
            records = self.config.tile.column_records
            fields["parameter"] = (parameter.index * plan.n_steps + n[0] - n_tile[0]) * records
        index = self._add("store", after, Buffer.C, **fields,
            rounding=gemm.rounding, bias=int(gemm.bias), clamp_low=gemm.clamp_low, clamp_high=gemm.clamp_high,
            address=batch.c + m[0] * gemm.c_row_bytes + n[0] * self.c * size, row_stride=gemm.c_row_bytes,
            rows=m[1] - m[0], columns=min(n[1] * self.c, gemm.n) - n[0] * self.c,
            accumulator=accumulator, accumulator_n_pitch=m[1] - m[0])
        self.accumulators.stored(index)
        if parameter is not None:
            parameter.last_use = {index}

    # -- operands ---------------------------------------------------------------------------------------

    def _activation_pitches(self) -> tuple[int, int]:
        return (self.plan.k_steps, 1) if self.gemm.a_layout == Layout.ROWS else (1, self.plan.rows)

    def _activations(self, batch: Batch, m_tile: tuple[int, int], chunk: tuple[int, int], m: tuple[int, int]) -> _Slot:
        gemm, plan = self.gemm, self.plan
        slot = self.activations.get((batch.a, batch.version, m_tile, chunk))
        row_pitch, k_pitch = self._activation_pitches()
        k0 = chunk[0] * self.r
        k_bytes = max(0, min(chunk[1] * self.r, gemm.k) - k0)
        steps = chunk[1] - chunk[0]
        for piece in self.a_cuts.get((batch.a, batch.version, m_tile, chunk[0]), [m_tile]):
            if not (piece[0] < m[1] and m[0] < piece[1]) or piece in slot.pieces:
                continue
            for first, last, a_zero in self._pads(batch, piece):
                base = slot.index * plan.rows * plan.k_steps + (first - m_tile[0]) * row_pitch
                if gemm.a_layout == Layout.ROWS:
                    index = self._load(slot, Target.ACTIVATION, Buffer.A, pad_value=a_zero & 0xFF,
                        address=batch.a + first * gemm.a_stride + k0, row_stride=gemm.a_stride, rows=last - first,
                        row_bytes=k_bytes, row_blocks=steps, block_pitch=1, row_pitch=row_pitch, destination=base)
                else:
                    index = self._load(slot, Target.ACTIVATION, Buffer.A, pad_value=a_zero & 0xFF, transpose=1,
                        address=batch.a + first + k0 * gemm.a_stride, row_stride=gemm.a_stride, rows=steps * self.r,
                        pad_bottom=steps * self.r - k_bytes, row_bytes=last - first, row_blocks=last - first,
                        block_pitch=1, row_pitch=k_pitch, destination=base)
            slot.pieces[piece] = index
        return slot

    def _pads(self, batch: Batch, piece: tuple[int, int]) -> list[tuple[int, int, int]]:
        """Rows to load with one pad value each. Behind K, either A or B must hold its zero point, so that the
        product is 0; B does where it has one for all columns, or none is needed."""
        padded = self.gemm.k < self.k_total * self.r
        if padded and self.gemm.b_zero_point is None and self.gemm.b_layout != Layout.PACKED:
            return list(_runs(batch.a_zero_points, piece))
        return [(*piece, batch.a_zero_points[0][1])]

    def _weights(self, batch: Batch, n_tile: tuple[int, int], chunk: tuple[int, int], k: tuple[int, int]) -> _Slot:
        gemm, plan = self.gemm, self.plan
        slot = self.weights.get((batch.b, n_tile, chunk))
        for piece in self.b_cuts.get((batch.b, n_tile, chunk), [chunk]):
            if not (piece[0] < k[1] and k[0] < piece[1]) or piece in slot.pieces:
                continue
            k0, rows = piece[0] * self.r, (piece[1] - piece[0]) * self.r
            k_bytes = max(0, min(piece[1] * self.r, gemm.k) - k0)
            columns = min(n_tile[1] * self.c, gemm.n) - n_tile[0] * self.c
            steps = n_tile[1] - n_tile[0]
            base = slot.index * plan.n_steps * plan.n_pitch + (piece[0] - chunk[0]) * self.r
            common = {"pad_value": (gemm.b_zero_point or 0) & 0xFF, "destination": base}
            if gemm.b_layout == Layout.ROWS:
                index = self._load(slot, Target.WEIGHT, Buffer.B, **common,
                    address=batch.b + k0 * gemm.b_stride + n_tile[0] * self.c, row_stride=gemm.b_stride, rows=rows,
                    pad_bottom=rows - k_bytes, row_bytes=columns, row_blocks=steps, block_pitch=plan.n_pitch,
                    row_pitch=1)
            elif gemm.b_layout == Layout.COLUMNS:
                index = self._load(slot, Target.WEIGHT, Buffer.B, **common, transpose=1,
                    address=batch.b + n_tile[0] * self.c * gemm.b_stride + k0, row_stride=gemm.b_stride,
                    rows=steps * self.c, pad_bottom=steps * self.c - columns, row_bytes=k_bytes, row_blocks=rows,
                    block_pitch=1, row_pitch=plan.n_pitch)
            else:
                panel = gemm.b_stride or self.k_total * self.r * self.c
                whole = rows * self.c == panel and rows == self.k_total * self.r == plan.n_pitch
                index = self._load(slot, Target.WEIGHT, Buffer.B, **common,
                    address=batch.b + n_tile[0] * panel + k0 * self.c, row_stride=panel, rows=1 if whole else steps,
                    row_bytes=rows * self.c * (steps if whole else 1), row_blocks=rows * (steps if whole else 1),
                    block_pitch=1, row_pitch=plan.n_pitch)
            slot.pieces[piece] = index
        return slot

    def _parameters(self, n_tile: tuple[int, int]) -> _Slot:
        slot = self.parameters.get(n_tile)
        if not slot.pieces:
            records, steps = self.config.tile.column_records, n_tile[1] - n_tile[0]
            rows, row = (1, steps * self.c) if records == self.c else (steps, self.c)
            slot.pieces[n_tile] = self._load(slot, Target.PARAMETER, Buffer.PARAMETERS,
                address=n_tile[0] * self.c * COLUMN.bytes, row_stride=self.c * COLUMN.bytes, rows=rows,
                row_bytes=row * COLUMN.bytes, row_blocks=row, block_pitch=1, row_pitch=records,
                destination=slot.index * self.plan.n_steps * records)
        return slot

    def _zero_points(self, batch: Batch, n_tile: tuple[int, int]) -> _Slot:
        slot = self.zero_points.get((batch.zero_points, n_tile))
        if not slot.pieces:
            first, last = n_tile[0] * self.c, min(n_tile[1] * self.c, self.gemm.n)
            slot.pieces[n_tile] = self._load(slot, Target.ZERO_POINT, Buffer.ZERO_POINTS,
                address=batch.zero_points + first, rows=1, row_bytes=last - first, row_blocks=n_tile[1] - n_tile[0],
                block_pitch=1, destination=slot.index * self.plan.n_steps)
        return slot

    def _load(self, slot: _Slot, target: Target, buffer: Buffer, **fields: int) -> int:
        if not fields["row_bytes"] or fields["rows"] == fields.get("pad_bottom", 0):
            # nothing but padding: a command of its own form, which reads no memory
            fields |= {"row_bytes": 0, "pad_bottom": 0}
        return self._add("load", slot.free_after, buffer, target=target, planes=1, **fields)

    def _add(self, engine: str, after: set[int], buffer: Buffer | None, **fields: int) -> int:
        self.operations.append(Operation(engine, fields, set(after), buffer, batch=self.batch))
        return len(self.operations) - 1


def _runs(runs: tuple[tuple[int, int], ...], rows: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """(first, last, zero point) of each run within ``rows``."""
    first = 0
    for count, value in runs:
        low, high = max(first, rows[0]), min(first + count, rows[1])
        if low < high:
            yield low, high, value
        first += count


def schedule(gemm: Gemm, plan: Plan, config: DeviceConfig, *, parameters_first: bool = False) -> list[Operation]:
    """The operations of ``gemm`` in fetch order.

    parameters_first: MATMULs, rather than STOREs, wait for the column records. That leaves a STORE one of its two
    waits, for the use of others; the array starts a little later.
    """
    return _Scheduler(gemm, plan, config, parameters_first).run()
