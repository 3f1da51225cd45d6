"""The command set in numpy: what a job does to memory, without clock and without cycles.

It answers the simulator protocol, so that compiler and host runtime run on it in milliseconds. A command is one
indivisible step; with ``seed`` the engines take turns at random wherever the semaphores allow it, so that a
missing semaphore shows as a wrong byte.
"""

import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.control.dispatch import QUEUE_DEPTH
from ringloom.hw.counters import COUNTERS
from ringloom.hw.isa import (
    COMPLETION,
    DESCRIPTOR,
    HEADER,
    RECORD_BYTES,
    SEMAPHORE_BITS,
    SEMAPHORES,
    VERSION,
    Code,
    Opcode,
    Rounding,
    Status,
    Target,
    record_of,
)
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.regmap import (
    CONTROL,
    ENGINE_STATES,
    MAGIC,
    REGMAP_VERSION,
    TILE,
    TILE_BASE,
    control_register,
    tile_register,
)

from .checkers.bus import CommandSink

__all__ = ["FunctionalSimulator"]

_ENGINES = {Opcode.LOAD: "load", Opcode.MATMUL: "matmul", Opcode.STORE: "store"}
_BUS_CYCLES = 4
_HEADER_BYTES = 12
_QUEUED = QUEUE_DEPTH + 1  # commands of one engine that are dispatched and not yet in it


class _Fault(Exception):
    def __init__(self, code: Code, address: int = 0) -> None:
        super().__init__(code.name)
        self.code = code
        self.address = address


class FunctionalSimulator:
    """One tile that runs jobs at once, exactly as ``hw/isa.py`` defines them.

    Parameters
    ----------
    config : DeviceConfig
    seed : int or None
        None: commands in stream order. Otherwise the order of the engines is random within the semaphores.
    """

    def __init__(self, config: DeviceConfig, *, seed: int | None = None) -> None:
        self.name = "functional"
        self.config = config
        self.shapes = block_shapes(config)
        self._random = None if seed is None else random.Random(seed)
        self._memory = np.zeros(config.memory.bytes, np.uint8)
        self._cycle = 0
        self._latched = dict.fromkeys((c.name for c in COUNTERS), 0)
        self.reset()

    # -- the protocol ---------------------------------------------------------------------------------

    @property
    def cycle(self) -> int:
        return self._cycle

    def memory(self, tile: int = 0) -> np.ndarray:
        return self._memory

    def reset(self) -> None:
        self._pads = {t: np.zeros((s.blocks, s.bytes), np.uint8) for t, s in self.shapes.items()}
        self._registers = {r.address: 0 for r in CONTROL} | {TILE_BASE + r.address: 0 for r in TILE}
        self._set("window_limit_low", self.config.memory.bytes & 0xFFFFFFFF)
        self._set("window_limit_high", self.config.memory.bytes >> 32)
        self._counters = dict.fromkeys((c.name for c in COUNTERS), 0)
        self._job: dict[str, int] | None = None
        self._stuck = False

    def read(self, address: int) -> int:
        self._cycle += _BUS_CYCLES
        fixed = {"id": MAGIC, "version": REGMAP_VERSION, "tiles": self.config.tiles,
                 "array": self.config.tile.array.rows << 16 | self.config.tile.array.columns,
                 "busy": int(self._stuck), "cycle_low": self._cycle & 0xFFFFFFFF, "cycle_high": self._cycle >> 32}
        for name, value in fixed.items():
            if address == control_register(name):
                return value
        return self._registers.get(address, 0)

    def write(self, address: int, value: int) -> None:
        self._cycle += _BUS_CYCLES
        name = {r.address: r.name for r in CONTROL}.get(address)
        if name == "doorbell" and value & 1 and not self._stuck:
            self._start()
        elif name == "abort" and value & 1 and self._stuck:
            self._complete(Status.ABORTED, Code.ABORT, self._oldest, 0)
        elif name == "irq_status":
            self._registers[address] &= ~value
        elif name == "snapshot":
            for i, counter in enumerate(COUNTERS):
                count = self._counters[counter.name]
                for j in range(2):
                    self._registers[TILE_BASE + 0x200 + 8 * i + 4 * j] = count >> 32 * j & 0xFFFFFFFF
        elif name not in ("doorbell", "abort") and address in self._registers:
            self._registers[address] = value & 0xFFFFFFFF

    def axi_read(self, address: int, size: int) -> bytes:
        self._cycle += _BUS_CYCLES + size // 32
        return self._memory[address:address + size].tobytes()

    def axi_write(self, address: int, data: bytes) -> None:
        self._cycle += _BUS_CYCLES + len(data) // 32
        self._memory[address:address + len(data)] = np.frombuffer(data, np.uint8)

    def run(self, limit: int) -> bool:
        if self._stuck and limit >= self._watchdog:
            self._cycle += self._watchdog
            self._complete(Status.FAULT, Code.WATCHDOG, self._oldest, 0)
        status, enable = (self._registers[control_register(n)] for n in ("irq_status", "irq_enable"))
        self._cycle += 1 if status & enable else limit
        return bool(status & enable)

    def record_commands(self, sink: CommandSink | None) -> None:
        raise NotImplementedError("the functional simulator has no DRAM: take sim='python' or 'verilated'")

    def waves_start(self, path: Path, *, blocks: Sequence[str] = (), start: int = 0, stop: int | None = None) -> None:
        raise NotImplementedError("the functional simulator has no signals: take sim='python' or 'verilated'")

    def waves_stop(self) -> None:
        raise NotImplementedError("the functional simulator has no signals: take sim='python' or 'verilated'")

    def close(self) -> None:
        self._stuck = False

    # -- a job ----------------------------------------------------------------------------------------

    def _set(self, name: str, value: int) -> None:
        self._registers[tile_register(0, name)] = value

    def _get64(self, name: str) -> int:
        low, high = (self._registers[tile_register(0, f"{name}_{half}")] for half in ("low", "high"))
        return high << 32 | low

    def _start(self) -> None:
        low, high = (min(self._get64(f"window_{end}"), self._memory.size) for end in ("base", "limit"))
        self._window = low, high
        self._semaphores = [0] * SEMAPHORES
        self._begin = self._cycle
        self._job = None
        self._watchdog = self.config.control.watchdog_cycles
        index = 0
        try:
            address = self._get64("job")
            job = self._descriptor(address)
            queues: dict[str, deque] = {name: deque() for name in _ENGINES.values()}
            dispatched = 0
            while dispatched < job["commands"] or any(queues.values()):
                while dispatched < job["commands"]:
                    index = dispatched
                    command = self._command(address + RECORD_BYTES * (1 + index))
                    queue = queues[_ENGINES[Opcode(command["opcode"])]]
                    if len(queue) == _QUEUED:
                        break
                    queue.append((index, command))
                    dispatched += 1
                ready = [q for q in queues.values() if q and self._ready(q[0][1])]
                if not ready:
                    self._hang(queues)
                    return
                queue = self._random.choice(ready) if self._random else min(ready, key=lambda q: q[0][0])
                index, command = queue.popleft()
                self._execute(command)
        except _Fault as fault:
            self._complete(Status.FAULT, fault.code, index, fault.address)
        else:
            self._complete(Status.DONE, Code.NONE, 0, 0)

    def _descriptor(self, address: int) -> dict[str, int]:
        """The job's descriptor. From the first good completion address on, ``_job`` is set and an end is written."""
        if address % RECORD_BYTES:
            raise _Fault(Code.BAD_DESCRIPTOR, address)
        self._inside(address, RECORD_BYTES)
        raw = self._memory[address:address + RECORD_BYTES].tobytes()
        job = DESCRIPTOR.decode(raw)
        if job["version"] != VERSION:
            raise _Fault(Code.BAD_VERSION, address)
        if job["opcode"] != Opcode.JOB:
            raise _Fault(Code.BAD_DESCRIPTOR, address)
        if job["completion_address"] % RECORD_BYTES:
            raise _Fault(Code.BAD_DESCRIPTOR, job["completion_address"])
        self._inside(job["completion_address"], RECORD_BYTES)
        self._job = job
        self._watchdog = job["watchdog_cycles"] or self._watchdog
        if job["header_flags"] or DESCRIPTOR.encode(**job) != raw:
            raise _Fault(Code.BAD_FIELD, address)
        if address + RECORD_BYTES * (1 + job["commands"]) > self._window[1]:
            raise _Fault(Code.MEMORY_WINDOW, self._window[1])
        return job

    def _command(self, address: int) -> dict[str, int]:
        """The command record at ``address``, as dispatch checks it: its header alone."""
        raw = self._memory[address:address + RECORD_BYTES].tobytes()
        if raw[0] != VERSION:
            raise _Fault(Code.BAD_VERSION, address)
        if raw[1] not in list(_ENGINES):
            raise _Fault(Code.BAD_OPCODE, address)
        header = HEADER.decode(raw)
        reserved = ("context", "header_flags", "signal0_remote", "signal0_tile", "signal1_remote", "signal1_tile")
        if any(header[name] for name in reserved) or HEADER.encode(**header)[:_HEADER_BYTES] != raw[:_HEADER_BYTES]:
            raise _Fault(Code.BAD_FIELD, address)
        return record_of(raw[1]).decode(raw)

    def _ready(self, command: dict[str, int]) -> bool:
        needed = [0] * SEMAPHORES
        for i in range(2):
            if command[f"wait{i}_enable"]:
                needed[command[f"wait{i}_semaphore"]] += command[f"wait{i}_count"]
        return all(value >= count for value, count in zip(self._semaphores, needed, strict=True))

    def _hang(self, queues: dict[str, deque]) -> None:
        self._stuck = True
        self._oldest = min(queue[0][0] for queue in queues.values() if queue)
        for name, queue in queues.items():
            state = 0
            if queue:
                index, command = queue[0]
                waits = [command[f"wait{i}_semaphore"] for i in range(2) if command[f"wait{i}_enable"]
                         and self._semaphores[command[f"wait{i}_semaphore"]] < command[f"wait{i}_count"]]
                state = ENGINE_STATES.index("waiting") | waits[0] << 8 | (index & 0xFFFF) << 16
            self._set(f"{name}_state", state)
        for i, value in enumerate(self._semaphores):
            self._set(f"semaphore{i}", value)
        self._set("status", 1)

    def _complete(self, status: Status, code: Code, command: int, address: int) -> None:
        self._stuck = False
        if self._job:
            raw = COMPLETION.encode(
                job=self._job["job"], status=status, code=code, context=self._job["context"], command=command,
                epoch=self._job["epoch"], address=address & (1 << 64) - 1, start=self._begin, end=self._cycle)
            where = self._job["completion_address"]
            self._memory[where:where + RECORD_BYTES] = np.frombuffer(raw, np.uint8)
        self._counters["jobs"] += 1
        for name in _ENGINES.values():
            self._set(f"{name}_state", 0)
        self._set("status", status << 8 | code << 16)
        self._registers[control_register("irq_status")] |= 1

    def _execute(self, command: dict[str, int]) -> None:
        for i in range(2):
            if command[f"wait{i}_enable"]:
                self._semaphores[command[f"wait{i}_semaphore"]] -= command[f"wait{i}_count"]
        name = _ENGINES[Opcode(command["opcode"])]
        getattr(self, f"_{name}")(command)
        self._counters[f"commands.{name}"] += 1
        for i in range(2):
            if command[f"signal{i}_enable"]:
                semaphore = command[f"signal{i}_semaphore"]
                self._semaphores[semaphore] += 1
                if self._semaphores[semaphore] >> SEMAPHORE_BITS:
                    raise _Fault(Code.SEMAPHORE_OVERFLOW, semaphore)

    # -- the engines ----------------------------------------------------------------------------------

    def _inside(self, first: int, count: int) -> None:
        """Fault unless ``count`` bytes from ``first`` on lie in the window. Exact for any integer, unlike numpy's."""
        low, high = self._window
        if not low <= first < high:
            raise _Fault(Code.MEMORY_WINDOW, first)
        if first + count > high:
            raise _Fault(Code.MEMORY_WINDOW, high)

    def _rows(self, address: int, count: int, *axes: tuple[int, int]) -> np.ndarray:
        """Indices of ``count`` bytes at each sum of ``address`` and a multiple of each (count, stride) axis."""
        spans = [stride * (n - 1) for n, stride in axes]
        for first in (address + sum(min(0, span) for span in spans), address + sum(max(0, span) for span in spans)):
            self._inside(first, count)
        starts = np.array(address)
        for n, stride in axes:
            starts = starts[..., None] + stride * np.arange(n)
        return starts[..., None] + np.arange(count)

    def _check_blocks(self, target: Target, first: int, *axes: tuple[int, int]) -> None:
        """Fault unless every sum of ``first`` and a multiple of each (count, pitch) axis is a block of ``target``."""
        last = first + sum((n - 1) * pitch for n, pitch in axes)
        if last >= self.shapes[target].blocks:
            raise _Fault(Code.SCRATCHPAD_RANGE, last)

    def _load(self, c: dict[str, int]) -> None:
        try:
            target = Target(c["target"])
        except ValueError:
            raise _Fault(Code.BAD_FIELD) from None
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
            raise _Fault(Code.BAD_FIELD)
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

    def _matmul(self, c: dict[str, int]) -> None:
        array = self.config.tile.array
        rows, ks, ns = c["rows"], c["k_steps"], c["n_steps"]

        def outside(name: str) -> bool:
            low, high = (-128, 127) if c[f"{name}_signed"] else (0, 255)
            return not low <= c[f"{name}_zero_point"] <= high

        if (not (rows and ks and ns) or (array.load_rows > 1 and c["weight_row_pitch"] % 2 == 0)
                or outside("a") or (outside("b") and not c["b_zero_point_table"])):
            raise _Fault(Code.BAD_FIELD)
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

    def _store(self, c: dict[str, int]) -> None:
        tile = self.config.tile
        columns = tile.array.columns
        rows, width = c["rows"], c["columns"]
        raw = c["rounding"] == Rounding.RAW
        if (not (rows and width) or c["rounding"] > max(Rounding) or c["per_row_scale"] or c["residual"]
                or (not raw and c["clamp_low"] > c["clamp_high"])):
            raise _Fault(Code.BAD_FIELD)
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
        low, high = self._window

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
            raise _Fault(code, address)

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
