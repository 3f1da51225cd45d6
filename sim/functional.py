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
from ringloom.hw.counters import COUNTERS
from ringloom.hw.isa import (
    COLUMN,
    COMPLETION,
    DESCRIPTOR,
    RECORD_BYTES,
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

__all__ = ["FunctionalSimulator"]

_ENGINES = {Opcode.LOAD: "load", Opcode.MATMUL: "matmul", Opcode.STORE: "store"}
_BUS_CYCLES = 4


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
            self._complete(Status.ABORTED, Code.ABORT, 0, 0)
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
            self._complete(Status.FAULT, Code.WATCHDOG, 0, 0)
        status, enable = (self._registers[control_register(n)] for n in ("irq_status", "irq_enable"))
        self._cycle += 1 if status & enable else limit
        return bool(status & enable)

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
        self._window = self._get64("window_base"), self._get64("window_limit")
        self._semaphores = [0] * SEMAPHORES
        self._begin = self._cycle
        self._job = {"job": 0, "context": 0, "epoch": 0, "completion_address": 0}
        self._watchdog = self.config.control.watchdog_cycles
        index = 0
        try:
            address = self._get64("job")
            job = DESCRIPTOR.decode(self._memory[address:address + RECORD_BYTES].tobytes())
            if job["version"] != VERSION:
                raise _Fault(Code.BAD_VERSION, address)
            if job["opcode"] != Opcode.JOB or address % RECORD_BYTES or job["completion_address"] % RECORD_BYTES:
                raise _Fault(Code.BAD_DESCRIPTOR, address)
            self._job = job
            self._watchdog = job["watchdog_cycles"] or self._watchdog
            queues: dict[str, deque] = {name: deque() for name in _ENGINES.values()}
            for index in range(job["commands"]):
                at = address + RECORD_BYTES * (1 + index)
                raw = self._memory[at:at + RECORD_BYTES].tobytes()
                if raw[0] != VERSION:
                    raise _Fault(Code.BAD_VERSION, at)
                if raw[1] not in list(_ENGINES):
                    raise _Fault(Code.BAD_OPCODE, at)
                queues[_ENGINES[Opcode(raw[1])]].append((index, record_of(raw[1]).decode(raw)))
            while any(queues.values()):
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

    def _ready(self, command: dict[str, int]) -> bool:
        return all(self._semaphores[command[f"wait{i}_semaphore"]] >= command[f"wait{i}_count"]
                   for i in range(2) if command[f"wait{i}_enable"])

    def _hang(self, queues: dict[str, deque]) -> None:
        self._stuck = True
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
        job = self._job or {}
        self._stuck = False
        where = job.get("completion_address", 0)
        if where % RECORD_BYTES == 0 and where + RECORD_BYTES <= self._memory.size:
            raw = COMPLETION.encode(
                job=job["job"], status=status, code=code, context=job["context"], command=command,
                epoch=job["epoch"], address=address, start=self._begin, end=self._cycle)
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
                self._semaphores[command[f"signal{i}_semaphore"]] += 1

    # -- the engines ----------------------------------------------------------------------------------

    def _bytes(self, first: np.ndarray, count: int) -> np.ndarray:
        """Indices of ``count`` bytes behind each of ``first``, checked against the window."""
        low, high = self._window
        outside = (first < low) | (first + count > high)
        if outside.any():
            raise _Fault(Code.MEMORY_WINDOW, int(first[outside][0]) & (1 << 64) - 1)
        return first[..., None] + np.arange(count)

    def _blocks(self, target: Target, index: np.ndarray) -> np.ndarray:
        limit = self.shapes[target].blocks
        if index.size and (index.max() >= limit or index.min() < 0):
            raise _Fault(Code.SCRATCHPAD_RANGE, int(index.max()))
        return index

    def _load(self, c: dict[str, int]) -> None:
        try:
            target = Target(c["target"])
        except ValueError:
            raise _Fault(Code.BAD_FIELD) from None
        shape = self.shapes[target]
        lanes, blocks, planes, rows = shape.bytes, c["row_blocks"], c["planes"], c["rows"]
        data_rows = rows - c["pad_top"] - c["pad_bottom"]
        room = blocks if c["transpose"] else blocks * lanes
        if (not (blocks and planes and rows) or data_rows < 0 or c["pad_left"] + c["row_bytes"] > room
                or (c["transpose"] and c["pad_left"])
                or (shape.per_write > 1 and blocks > 1 and c["block_pitch"] % 2 == 0)):
            raise _Fault(Code.BAD_FIELD)
        values = np.full((planes, rows, room), c["pad_value"], np.uint8)
        if c["row_bytes"] and data_rows:
            first = (c["address"] + c["plane_stride"] * np.arange(planes)[:, None]
                     + c["row_stride"] * np.arange(data_rows))
            values[:, c["pad_top"]:c["pad_top"] + data_rows, c["pad_left"]:c["pad_left"] + c["row_bytes"]] = \
                self._memory[self._bytes(first, c["row_bytes"])]
            self._counters["load.bytes"] += planes * data_rows * c["row_bytes"]
        if c["transpose"]:
            groups = -(-rows // lanes)
            full = np.full((planes, groups * lanes, blocks), c["pad_value"], np.uint8)
            full[:, :rows] = values
            values = full.reshape(planes, groups, lanes, blocks).swapaxes(2, 3).reshape(planes, groups, -1)
            rows = groups
        index = (c["destination"] + c["plane_pitch"] * np.arange(planes)[:, None, None]
                 + c["row_pitch"] * np.arange(rows)[:, None] + c["block_pitch"] * np.arange(blocks))
        self._pads[target][self._blocks(target, index).ravel()] = values.reshape(-1, lanes)

    def _matmul(self, c: dict[str, int]) -> None:
        array = self.config.tile.array
        rows, ks, ns = c["rows"], c["k_steps"], c["n_steps"]
        if not (rows and ks and ns):
            raise _Fault(Code.BAD_FIELD)
        m, k, n = np.arange(rows)[:, None], np.arange(ks), np.arange(ns)
        a_index = c["activation"] + c["activation_row_pitch"] * m + c["activation_k_pitch"] * k
        b_index = (c["weight"] + c["weight_k_pitch"] * k[:, None, None]
                   + c["weight_row_pitch"] * np.arange(array.rows)[:, None] + c["weight_n_pitch"] * n)
        a = self._pads[Target.ACTIVATION][self._blocks(Target.ACTIVATION, a_index)].reshape(rows, -1)
        b = self._pads[Target.WEIGHT][self._blocks(Target.WEIGHT, b_index)].reshape(ks * array.rows, -1)
        zero_b = np.array(c["b_zero_point"])
        if c["b_zero_point_table"]:
            where = self._blocks(Target.ZERO_POINT, c["zero_point_base"] + n)
            zero_b = self._pads[Target.ZERO_POINT][where].reshape(-1)
            zero_b = zero_b.view(np.int8) if c["b_signed"] else zero_b
        a = a.view(np.int8) if c["a_signed"] else a
        b = b.view(np.int8) if c["b_signed"] else b
        # float64 is exact here: each sum stays below 2**53
        sums = (a.astype(np.float64) - c["a_zero_point"]) @ (b.astype(np.float64) - zero_b)
        sums = sums.astype(np.int64).astype(np.uint32).view(np.int32).reshape(rows, ns, array.columns)
        accumulators = self._pads[Target.ACCUMULATOR].view(np.int32)
        bank = self.config.tile.accumulator_words // 2
        for i in range(ns):
            first = c["accumulator"] + i * c["accumulator_n_pitch"]
            self._blocks(Target.ACCUMULATOR, np.array([first, first + rows - 1]))
            if first // bank != (first + rows - 1) // bank:
                raise _Fault(Code.SCRATCHPAD_RANGE, first)
            word = accumulators[first:first + rows]
            word[...] = word + sums[:, i] if c["accumulate"] else sums[:, i]
        self._counters["array.active"] += rows * ks * ns

    def _store(self, c: dict[str, int]) -> None:
        tile = self.config.tile
        columns = tile.array.columns
        rows, width = c["rows"], c["columns"]
        if not (rows and width) or c["rounding"] > max(Rounding):
            raise _Fault(Code.BAD_FIELD)
        steps = -(-width // columns)
        index = c["accumulator"] + np.arange(rows)[:, None] + c["accumulator_n_pitch"] * np.arange(steps)
        acc = self._pads[Target.ACCUMULATOR].view(np.int32)[self._blocks(Target.ACCUMULATOR, index)]
        acc = acc.reshape(rows, -1)[:, :width]
        if c["bias"] or c["rounding"] != Rounding.RAW:
            j = np.arange(width)
            where = c["parameter"] + j // columns * tile.column_records + j % columns
            raw = self._pads[Target.PARAMETER][self._blocks(Target.PARAMETER, where)]
            records = [COLUMN.decode(r.tobytes()) for r in raw]
            if c["bias"]:
                acc = acc + np.array([r["bias"] for r in records], np.int32)
        first = c["address"] + c["row_stride"] * np.arange(rows)
        if c["rounding"] == Rounding.RAW:
            out = np.ascontiguousarray(acc).view(np.uint8)
        else:
            from ringloom.numerics.reference import requantize
            scale = np.array([r["scale"] for r in records], np.uint32).view(np.float32)
            zero_point = np.array([r["zero_point"] for r in records])
            out = requantize(acc, scale, zero_point, c["clamp_low"], c["clamp_high"], Rounding(c["rounding"]))
            out = np.asarray(out).astype(np.int64).astype(np.uint8)
        where = self._bytes(first, out.shape[1])
        self._memory[where] = out
        self._counters["store.bytes"] += out.size
