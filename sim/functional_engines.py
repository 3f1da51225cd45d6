"""What each engine of a tile does to memory and scratchpads, as ``hw/isa.py`` defines it, in numpy."""

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Code, Rounding, Target
from ringloom.hw.memory.blocks import block_shapes

__all__ = ["Fault", "Engines"]


class Fault(Exception):
    """What ends a job with an error record."""

    def __init__(self, code: Code, address: int = 0) -> None:
        super().__init__(code.name)
        self.code = code
        self.address = address


class Engines:
    """LOAD, MATMUL and STORE of one tile.

    Parameters
    ----------
    config : DeviceConfig
    memory : np.ndarray
        The pooled memory of all tiles, one byte an element.
    counters : dict of str to int
        The tile's counters, by name.
    """

    def __init__(self, config: DeviceConfig, memory: np.ndarray, counters: dict[str, int]) -> None:
        self.config = config
        self.shapes = block_shapes(config)
        self.window = 0, memory.size
        self._memory = memory
        self._counters = counters
        self._pads = {t: np.zeros((s.blocks, s.bytes), np.uint8) for t, s in self.shapes.items()}

    def inside(self, first: int, count: int) -> None:
        """Fault unless ``count`` bytes from ``first`` on lie in the window. Exact for any integer, unlike numpy's."""
        low, high = self.window
        if not low <= first < high:
            raise Fault(Code.MEMORY_WINDOW, first)
        if first + count > high:
            raise Fault(Code.MEMORY_WINDOW, high)

    def _rows(self, address: int, count: int, *axes: tuple[int, int]) -> np.ndarray:
        """Indices of ``count`` bytes at each sum of ``address`` and a multiple of each (count, stride) axis."""
        spans = [stride * (n - 1) for n, stride in axes]
        for first in (address + sum(min(0, span) for span in spans), address + sum(max(0, span) for span in spans)):
            self.inside(first, count)
        starts = np.array(address)
        for n, stride in axes:
            starts = starts[..., None] + stride * np.arange(n)
        return starts[..., None] + np.arange(count)

    def _check_blocks(self, target: Target, first: int, *axes: tuple[int, int]) -> None:
        """Fault unless every sum of ``first`` and a multiple of each (count, pitch) axis is a block of ``target``."""
        last = first + sum((n - 1) * pitch for n, pitch in axes)
        if last >= self.shapes[target].blocks:
            raise Fault(Code.SCRATCHPAD_RANGE, last)

    def load(self, c: dict[str, int]) -> None:
        try:
            target = Target(c["target"])
        except ValueError:
            raise Fault(Code.BAD_FIELD) from None
        shape = self.shapes[target]
        lanes, blocks, planes, rows = shape.bytes, c["row_blocks"], c["planes"], c["rows"]
        data_rows = rows - c["pad_top"] - c["pad_bottom"]
        if c["transpose"]:
            bad = target not in (Target.ACTIVATION, Target.WEIGHT) or c["pad_left"]
            groups, row_bytes, room = -(-rows // lanes), min(c["row_bytes"], blocks), blocks
        else:
            bad = c["pad_left"] + c["row_bytes"] > blocks * lanes
            groups, row_bytes, room = rows, c["row_bytes"], blocks * lanes
        if (bad or not (blocks and planes and rows) or data_rows < 0
                or (shape.per_write > 1 and blocks > 1 and c["block_pitch"] % 2 == 0)):
            raise Fault(Code.BAD_FIELD)
        filled = row_bytes and data_rows
        if filled:
            source = self._rows(c["address"], row_bytes, (planes, c["plane_stride"]), (data_rows, c["row_stride"]))
        self._check_blocks(target, c["destination"], (planes, c["plane_pitch"]), (groups, c["row_pitch"]),
                           (blocks, c["block_pitch"]))
        values: np.ndarray = np.full((planes, rows, room), c["pad_value"], np.uint8)
        if filled:
            left = c["pad_left"]
            values[:, c["pad_top"]:c["pad_top"] + data_rows, left:left + row_bytes] = self._memory[source]
            self._counters["load.bytes"] += planes * data_rows * row_bytes
        if c["transpose"]:
            full = np.full((planes, groups * lanes, blocks), c["pad_value"], np.uint8)
            full[:, :rows] = values
            values = full.reshape(planes, groups, lanes, blocks).swapaxes(2, 3)
        index = (c["destination"] + c["plane_pitch"] * np.arange(planes)[:, None, None]
                 + c["row_pitch"] * np.arange(groups)[:, None] + c["block_pitch"] * np.arange(blocks))
        self._pads[target][index.ravel()] = values.reshape(-1, lanes)

    def matmul(self, c: dict[str, int]) -> None:
        array = self.config.tile.array
        rows, ks, ns = c["rows"], c["k_steps"], c["n_steps"]

        def outside(name: str) -> bool:
            low, high = (-128, 127) if c[f"{name}_signed"] else (0, 255)
            return not low <= c[f"{name}_zero_point"] <= high

        if (not (rows and ks and ns) or (array.load_rows > 1 and c["weight_row_pitch"] % 2 == 0)
                or outside("a") or (outside("b") and not c["b_zero_point_table"])):
            raise Fault(Code.BAD_FIELD)
        self._check_blocks(Target.ACTIVATION, c["activation"], (rows, c["activation_row_pitch"]),
                           (ks, c["activation_k_pitch"]))
        self._check_blocks(Target.WEIGHT, c["weight"], (ks, c["weight_k_pitch"]), (ns, c["weight_n_pitch"]),
                           (array.rows, c["weight_row_pitch"]))
        self._check_blocks(Target.ACCUMULATOR, c["accumulator"], (ns, c["accumulator_n_pitch"]), (rows, 1))
        if c["b_zero_point_table"]:
            self._check_blocks(Target.ZERO_POINT, c["zero_point_base"], (ns, 1))
        m, k, n = np.arange(rows)[:, None], np.arange(ks), np.arange(ns)
        a = self._pads[Target.ACTIVATION][
            c["activation"] + c["activation_row_pitch"] * m + c["activation_k_pitch"] * k].reshape(rows, -1)
        b = self._pads[Target.WEIGHT][
            c["weight"] + c["weight_k_pitch"] * k[:, None, None] + c["weight_n_pitch"] * n
            + c["weight_row_pitch"] * np.arange(array.rows)[:, None]].reshape(ks * array.rows, -1)
        zero_b = np.array(c["b_zero_point"])
        if c["b_zero_point_table"]:
            zero_b = self._pads[Target.ZERO_POINT][c["zero_point_base"] + n].reshape(-1)
            zero_b = zero_b.view(np.int8) if c["b_signed"] else zero_b
        a = a.view(np.int8) if c["a_signed"] else a
        b = b.view(np.int8) if c["b_signed"] else b
        # float64 is exact here: each sum stays below 2**53
        sums = (a.astype(np.float64) - c["a_zero_point"]) @ (b.astype(np.float64) - zero_b)
        sums = sums.astype(np.int64).astype(np.uint32).view(np.int32).reshape(rows, ns, array.columns)
        accumulators = self._pads[Target.ACCUMULATOR].view(np.int32)
        for i in range(ns):
            first = c["accumulator"] + i * c["accumulator_n_pitch"]
            word = accumulators[first:first + rows]
            word[...] = word + sums[:, i] if c["accumulate"] else sums[:, i]
        self._counters["array.active"] += rows * ks * ns

    def store(self, c: dict[str, int]) -> None:
        tile = self.config.tile
        columns = tile.array.columns
        rows, width = c["rows"], c["columns"]
        raw = c["rounding"] == Rounding.RAW
        if (not (rows and width) or c["rounding"] > max(Rounding) or c["per_row_scale"] or c["residual"]
                or (not raw and c["clamp_low"] > c["clamp_high"])):
            raise Fault(Code.BAD_FIELD)
        for row in range(rows):
            self._check_store(c, row)
        steps = -(-width // columns)
        index = c["accumulator"] + np.arange(rows)[:, None] + c["accumulator_n_pitch"] * np.arange(steps)
        acc = self._pads[Target.ACCUMULATOR].view(np.int32)[index].reshape(rows, -1)[:, :width]
        if c["bias"] or not raw:
            j = np.arange(width)
            records = self._pads[Target.PARAMETER][c["parameter"] + j // columns * tile.column_records + j % columns]
            scale, bias, zero_point = (
                np.ascontiguousarray(records[:, first:first + size]).view(kind)[:, 0]
                for first, size, kind in ((0, 4, np.uint32), (4, 4, np.int32), (8, 2, np.int16)))
            if c["bias"]:
                acc = acc + bias
        if raw:
            out = np.ascontiguousarray(acc).view(np.uint8)
        else:
            out = self._requantize(c, acc, scale, zero_point.astype(np.int64)).astype(np.uint8)
        where = c["address"] + c["row_stride"] * np.arange(rows)[:, None] + np.arange(out.shape[1])
        self._memory[where] = out
        self._counters["store.bytes"] += out.size

    def _check_store(self, c: dict[str, int], row: int) -> None:
        """Raise the first fault of one row of a STORE: groups of columns in their order, each in the engine's order."""
        tile = self.config.tile
        columns, width = tile.array.columns, c["columns"]
        size = 4 if c["rounding"] == Rounding.RAW else 1
        word, pitch = c["accumulator"] + row, c["accumulator_n_pitch"]
        first = c["address"] + row * c["row_stride"]
        low, high = self.window

        def column(record: int) -> int:
            """The first column whose record is ``record`` or a later one."""
            block, lane = divmod(record, tile.column_records)
            return block * columns + min(lane, columns)

        # (column that meets it first, code, address) of whatever does not fit
        ends = []
        if word >= tile.accumulator_words:
            ends.append((0, Code.SCRATCHPAD_RANGE, word))
        elif pitch:
            block = -(-(tile.accumulator_words - word) // pitch)
            ends.append((block * columns, Code.SCRATCHPAD_RANGE, word + block * pitch))
        if c["bias"] or c["rounding"] != Rounding.RAW:
            ends.append((column(max(0, tile.parameter_records - c["parameter"])), Code.SCRATCHPAD_RANGE,
                         max(c["parameter"], tile.parameter_records)))
        if low <= first < high:
            ends.append(((high - first) // size, Code.MEMORY_WINDOW, high))
        else:
            ends.append((0, Code.MEMORY_WINDOW, first))

        def group(end: tuple[int, Code, int]) -> int:
            block, lane = divmod(end[0], columns)
            return block * tile.column_records + lane // tile.lanes

        found = [end for end in ends if end[0] < width]
        if found:
            _, code, address = min(found, key=group)  # the first of equals is the one that is checked first
            raise Fault(code, address)

    @staticmethod
    def _requantize(c: dict[str, int], acc: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
        """As the lanes do, also for scales that the host refuses (docs/numerics.md): the sign is ignored."""
        from ringloom.numerics.reference import requantize
        low, high = c["clamp_low"], c["clamp_high"]
        exponent = scale >> 23 & 0xFF
        tiny, huge = exponent == 0, exponent == 0xFF
        normal = np.where(tiny | huge, 0x3F800000, scale & 0x7FFFFFFF).astype(np.uint32).view(np.float32)
        out = requantize(acc, normal, zero_point, low, high, Rounding(c["rounding"]))
        out = np.where(tiny | (huge & (acc == 0)), np.clip(zero_point, low, high), out)
        return np.where(huge & (acc != 0), np.where(acc < 0, low, high), out).astype(np.int64)
