"""Tile sizes: how much of a product lies on chip at once.

The product is cut into output tiles of ``rows`` x ``n_steps`` blocks of columns, whose sums stay in one accumulator
bank, and along K into chunks of ``k_steps`` weight tiles. Each scratchpad is cut into slots of one chunk. Of all
cuts that fit, the one with the fewest estimated cycles wins; the estimate knows rates, not latencies.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ringloom.errors import UnsupportedError
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Target
from ringloom.hw.memory.blocks import block_shapes

from .gemm import Gemm, Layout

__all__ = ["Plan", "Cost", "make_plan", "cost", "HEAD_ROWS"]

HEAD_ROWS = 16
"""Rows of the first slab, small so that the array starts while the rest of A is on its way."""

_FIELD = 65535  # what the 16-bit counts and pitches of a command hold
_COMMAND_CYCLES = 4
_HANDOVER_CYCLES = 80  # a slot is filled, computed with, and free again: what the latencies in between add up to


@dataclass(frozen=True)
class Plan:
    """Sizes in rows of A, in blocks of columns and in weight tiles along K, and slots of each scratchpad.

    n_pitch: blocks of the weight scratchpad from one block of columns to the next.
    by_rows: the outer loop runs over rows of A, so that a panel of A is used for all of B before the next.
    """

    rows: int
    n_steps: int
    k_steps: int
    n_pitch: int
    a_slots: int
    b_slots: int
    parameter_slots: int
    zero_point_slots: int
    by_rows: bool


@dataclass(frozen=True)
class Cost:
    """What a product is expected to take on one tile: cycles, and bytes of A and of B that its LOADs read."""

    cycles: float
    a_bytes: int
    b_bytes: int


@functools.lru_cache(maxsize=256)
def cost(gemm: Gemm, config: DeviceConfig) -> Cost:
    """The cost of ``gemm`` by its plan, all operands in the tile's own memory."""
    plan = make_plan(gemm, config)
    a_loads, b_loads = _loads(plan, gemm, config)
    array, count = config.tile.array, len(gemm.batches)
    depth = min(plan.k_steps * array.rows, gemm.k)
    return Cost(_estimate(plan, gemm, config), a_loads * min(plan.rows, gemm.m) * depth * count,
                b_loads * depth * min(plan.n_steps * array.columns, gemm.n) * count)


def make_plan(gemm: Gemm, config: DeviceConfig, *, parameters_stay: bool = False) -> Plan:
    """The cheapest cut of ``gemm``. Raises :class:`UnsupportedError` where a scratchpad holds no weight tile.

    parameters_stay: only cuts in which the records of all columns lie on chip at once.
    """
    columns = config.tile.array.columns
    plans = (p for p in _candidates(gemm, config) if not parameters_stay or not gemm.parameters
             or p.parameter_slots * p.n_steps * columns >= gemm.n)
    best = min(plans, key=lambda p: _estimate(p, gemm, config), default=None)
    if best is None:
        tile = config.tile
        if parameters_stay and gemm.n > tile.parameter_records // tile.column_records * columns:
            raise UnsupportedError(
                f"{gemm.n} columns, but the tile holds the parameters of "
                f"{tile.parameter_records // tile.column_records * columns} at once, and here they must stay: raise "
                "tile.parameters.columns")
        raise UnsupportedError(
            f"the weight scratchpad holds {tile.weight_blocks} blocks of {tile.array.columns} bytes, but one weight "
            f"tile takes {tile.array.rows}: raise tile.scratchpad.weight_bytes")
    return best


def _parts(total: int, most: int) -> list[int]:
    """Sizes no larger than ``most`` that cut ``total`` evenly, the largest first: as few parts as fit, then more."""
    first = math.ceil(total / most)
    parts = [first, first + 1, first + 2, 3 * first, *(first << i for i in range(1, 17))]
    return sorted({math.ceil(total / p) for p in parts}, reverse=True)


def _candidates(gemm: Gemm, config: DeviceConfig) -> Iterator[Plan]:
    tile, array = config.tile, config.tile.array
    k_total = max(1, math.ceil(gemm.k / array.rows))
    n_total = math.ceil(gemm.n / array.columns)
    bank = tile.accumulator_words // 2
    n_most = min(bank, tile.weight_blocks // array.rows, _FIELD // array.columns)
    if gemm.parameters:
        n_most = min(n_most, tile.parameter_records // tile.column_records)
    if gemm.b_zero_point is None:
        n_most = min(n_most, tile.zero_point_blocks)
    if n_most < 1:
        return
    for n_steps in _parts(n_total, n_most):
        for rows in _parts(gemm.m, min(bank // n_steps, tile.activation_blocks, _FIELD))[:4]:
            k_most = min(tile.activation_blocks // rows, _FIELD // array.rows, k_total)
            for k_steps in _parts(k_total, k_most):
                n_pitch = k_steps * array.rows
                if gemm.b_layout != Layout.PACKED and n_steps > 1:
                    n_pitch |= 1  # blocks written together lie an odd pitch apart
                a_slots = tile.activation_blocks // (rows * k_steps)
                b_slots = tile.weight_blocks // (n_steps * n_pitch)
                if not b_slots or n_pitch > _FIELD or n_steps * n_pitch > _FIELD:
                    continue
                for by_rows in (True, False):
                    yield Plan(rows, n_steps, k_steps, n_pitch, a_slots, b_slots,
                               tile.parameter_records // (n_steps * tile.column_records),
                               tile.zero_point_blocks // n_steps, by_rows)


def _row_switch(size: int, config: DeviceConfig) -> float:
    """Cycles that opening DRAM rows for ``size`` bytes in one piece costs, half of it hidden behind other banks."""
    timing = config.timing
    share = max(32.0, size / config.ports)
    opened = min(share / 32, timing.bank_groups * max(1.0, share / (timing.bank_groups * timing.row_bytes)))
    return opened * max(timing.rrd_s, timing.faw / 4) / 2


def _loads(plan: Plan, gemm: Gemm, config: DeviceConfig) -> tuple[int, int]:
    """How often a panel of A and one of B are loaded for one batch."""
    array = config.tile.array
    k_total, n_total = max(1, math.ceil(gemm.k / array.rows)), math.ceil(gemm.n / array.columns)
    m_tiles, n_tiles = math.ceil(gemm.m / plan.rows), math.ceil(n_total / plan.n_steps)
    chunks = math.ceil(k_total / plan.k_steps)
    a_count, b_count = m_tiles * chunks, n_tiles * chunks
    if plan.by_rows:  # every panel of A stays while it fits; B comes again for each
        return (a_count if chunks <= plan.a_slots else a_count * n_tiles,
                b_count if b_count <= plan.b_slots or m_tiles == 1 else b_count * m_tiles)
    return (a_count if a_count <= plan.a_slots or n_tiles == 1 else a_count * n_tiles,
            b_count if chunks <= plan.b_slots else b_count * m_tiles)


def _estimate(plan: Plan, gemm: Gemm, config: DeviceConfig) -> float:
    tile, array, line = config.tile, config.tile.array, config.line_bytes
    shapes = block_shapes(config)
    k_total, n_total = max(1, math.ceil(gemm.k / array.rows)), math.ceil(gemm.n / array.columns)
    m_tiles, n_tiles = math.ceil(gemm.m / plan.rows), math.ceil(n_total / plan.n_steps)
    chunks = math.ceil(k_total / plan.k_steps)

    def load(rows: int, size: int, stride: int, target: Target) -> float:
        lines = rows * (size / line if size % line == 0 else size / line + 1)
        round_bytes = config.memory.interleave_bytes * config.ports
        if rows > 1 and stride % round_bytes == 0:  # every row asks the same ports
            lines *= config.ports / max(1, min(config.ports, math.ceil(size / config.memory.interleave_bytes)))
        if config.memory.kind == "hbm":
            lines = lines * line / config.peak_bytes_per_cycle + rows * _row_switch(size, config)
        blocks = rows * size / shapes[target].bytes / shapes[target].per_write
        return max(lines, blocks) + _COMMAND_CYCLES

    k_bytes = plan.k_steps * array.rows
    n_bytes = plan.n_steps * array.columns
    if gemm.a_layout == Layout.ROWS:
        a_load = load(plan.rows, min(k_bytes, gemm.k), gemm.a_stride, Target.ACTIVATION)
    else:
        a_load = load(k_bytes, plan.rows, gemm.a_stride, Target.ACTIVATION)
    b_load = {
        Layout.ROWS: lambda: load(k_bytes, min(n_bytes, gemm.n), gemm.b_stride, Target.WEIGHT),
        Layout.COLUMNS: lambda: load(n_bytes, min(k_bytes, gemm.k), gemm.b_stride, Target.WEIGHT),
        Layout.PACKED: lambda: load(plan.n_steps, k_bytes * array.columns,
                                    gemm.b_stride or k_total * array.rows * array.columns, Target.WEIGHT),
    }[gemm.b_layout]()

    a_loads, b_loads = _loads(plan, gemm, config)
    loads = a_loads * a_load + b_loads * b_load
    step = max(plan.rows, array.load_cycles) * plan.n_steps * plan.k_steps
    compute = max(gemm.m, m_tiles * array.load_cycles) * n_total * k_total
    stores = gemm.m * n_total * math.ceil(array.columns / tile.lanes)
    commands = _COMMAND_CYCLES * m_tiles * n_tiles * (chunks + 1)
    # a slot is loaded, used, and only then loaded again: with few slots that round is what takes the time
    rounds = b_loads * (b_load + step + _HANDOVER_CYCLES) / plan.b_slots if b_loads > plan.b_slots else 0
    serial = a_loads * a_load if plan.a_slots == 1 and a_loads > 1 else 0
    ends = min(step, b_load) + min(step, a_load) / 4
    if chunks > min(plan.a_slots, plan.b_slots):
        ends += plan.rows * plan.n_steps * math.ceil(array.columns / tile.lanes)
    return max(compute, loads, stores, rounds) * len(gemm.batches) + serial + commands + ends
