"""One tile of the functional simulator: its job, its queues of commands, its semaphores."""

import random
from collections import deque
from collections.abc import Callable

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
    Status,
    record_of,
)
from ringloom.hw.regmap import ENGINE_STATES, TILE

from .functional_engines import Engines, Fault
from .functional_ring import check_ring

__all__ = ["FunctionalTile"]

_ENGINES = {Opcode.LOAD: "load", Opcode.MATMUL: "matmul", Opcode.STORE: "store", Opcode.RING: "ring"}
_HEADER_BYTES = 12
_QUEUED = QUEUE_DEPTH + 1  # commands of one engine that are dispatched and not yet in it


class FunctionalTile:
    """Runs a job until it ends or waits for another tile; :meth:`turn` is one command of it.

    Parameters
    ----------
    config : DeviceConfig
    number : int
        Which tile this is.
    memory : np.ndarray
        The pooled memory of all tiles.
    signal : callable
        Told of every remote signal: tile, semaphore.
    order : random.Random or None
        None: commands in stream order. Otherwise the engines take turns at random within the semaphores.
    """

    def __init__(self, config: DeviceConfig, number: int, memory: np.ndarray,
                 signal: Callable[["FunctionalTile", int, int], None], order: random.Random | None) -> None:
        self.config = config
        self.number = number
        self._memory = memory
        self._signal = signal
        self._order = order
        # with one tile there is no ring
        self._opcodes = {o: name for o, name in _ENGINES.items() if o != Opcode.RING or config.tiles > 1}
        self.counters = dict.fromkeys((c.name for c in COUNTERS), 0)
        self.registers = {r.name: 0 for r in TILE}
        size = config.tiles * config.memory.bytes
        self.registers |= {"window_limit_low": size & 0xFFFFFFFF, "window_limit_high": size >> 32}
        self.engines = Engines(config, memory, self.counters)
        self.running = False
        self.ended = False
        """Set where a job ends; whoever reads it clears it."""
        self.collective: dict[str, int] | None = None
        """The RING command in the engine."""
        self.job: dict[str, int] | None = None
        self.semaphores = [0] * SEMAPHORES
        self.watchdog = config.control.watchdog_cycles

    def start(self, cycle: int) -> None:
        """Accept the doorbell, in ``cycle``."""
        low, high = (min(self._get64(f"window_{end}"), self._memory.size) for end in ("base", "limit"))
        self.engines.window = low, high
        self.semaphores = [0] * SEMAPHORES
        self._begin = cycle
        self.job = None
        self.collective = None
        self.watchdog = self.config.control.watchdog_cycles
        self._queues: dict[str, deque] = {name: deque() for name in self._opcodes.values()}
        self._dispatched = 0
        self._index = 0
        self.running = True
        self._address = self._get64("job")
        try:
            self._commands = self._descriptor(self._address)["commands"]
        except Fault as fault:
            self.complete(cycle, Status.FAULT, fault.code, 0, fault.address)

    def turn(self, cycle: int) -> bool:
        """Run one command, or end the job; false where it waits."""
        try:
            while self._dispatched < self._commands:
                self._index = self._dispatched
                command = self._command(self._address + RECORD_BYTES * (1 + self._index))
                queue = self._queues[self._opcodes[Opcode(command["opcode"])]]
                if len(queue) == _QUEUED:
                    break
                queue.append((self._index, command))
                self._dispatched += 1
            ready = [q for name, q in self._queues.items() if q and self._ready(q[0][1])
                     and not (name == "ring" and self.collective)]
            if ready:
                queue = self._order.choice(ready) if self._order else min(ready, key=lambda q: q[0][0])
                self._index, command = queue.popleft()
                self._execute(command)
                return True
        except Fault as fault:
            self.complete(cycle, Status.FAULT, fault.code, self._index, fault.address)
            return True
        if self._dispatched < self._commands or any(self._queues.values()) or self.collective:
            return False
        self.complete(cycle, Status.DONE, Code.NONE, 0, 0)
        return True

    def end_collective(self, cycle: int) -> None:
        """The RING command in the engine has done its work."""
        command, self.collective = self.collective, None
        assert command is not None
        try:
            self._ended(command)
        except Fault as fault:
            self.complete(cycle, Status.FAULT, fault.code, self._index, fault.address)

    def add(self, semaphore: int) -> None:
        """Add one to ``semaphore``."""
        self.semaphores[semaphore] += 1
        if self.semaphores[semaphore] >> SEMAPHORE_BITS:
            raise Fault(Code.SEMAPHORE_OVERFLOW, semaphore)

    @property
    def oldest(self) -> int:
        """Index of the oldest command that has not ended."""
        return min([queue[0][0] for queue in self._queues.values() if queue]
                   + ([self._ring_index] if self.collective else []), default=0)

    def show(self) -> None:
        """Bring the registers that tell who waits for whom up to date."""
        for name in ("load", "matmul", "store", "ring"):
            queue = self._queues.get(name)
            state = 0
            if name == "ring" and self.collective:
                state = ENGINE_STATES.index("running") | (self._ring_index & 0xFFFF) << 16
            elif self.running and queue:
                index, command = queue[0]
                waits = [command[f"wait{i}_semaphore"] for i in range(2) if command[f"wait{i}_enable"]
                         and self.semaphores[command[f"wait{i}_semaphore"]] < command[f"wait{i}_count"]]
                if waits:
                    state = ENGINE_STATES.index("waiting") | waits[0] << 8 | (index & 0xFFFF) << 16
            self.registers[f"{name}_state"] = state
        for i, value in enumerate(self.semaphores):
            self.registers[f"semaphore{i}"] = value
        if self.running:
            self.registers["status"] = 1

    def complete(self, cycle: int, status: Status, code: Code, command: int, address: int) -> None:
        """End the job, with its completion record where its address is known."""
        self.running = False
        self.ended = True
        self.collective = None
        if self.job:
            raw = COMPLETION.encode(
                job=self.job["job"], status=status, code=code, context=self.job["context"], tile=self.number,
                command=command, epoch=self.job["epoch"], address=address & (1 << 64) - 1, start=self._begin,
                end=cycle)
            where = self.job["completion_address"]
            self._memory[where:where + RECORD_BYTES] = np.frombuffer(raw, np.uint8)
        self.counters["jobs"] += 1
        for name in _ENGINES.values():
            self.registers[f"{name}_state"] = 0
        self.registers["status"] = status << 8 | code << 16

    def _get64(self, name: str) -> int:
        return self.registers[f"{name}_high"] << 32 | self.registers[f"{name}_low"]

    def _descriptor(self, address: int) -> dict[str, int]:
        """The job's descriptor. From the first good completion address on, ``job`` is set and an end is written."""
        if address % RECORD_BYTES:
            raise Fault(Code.BAD_DESCRIPTOR, address)
        self.engines.inside(address, RECORD_BYTES)
        raw = self._memory[address:address + RECORD_BYTES].tobytes()
        job = DESCRIPTOR.decode(raw)
        if job["version"] != VERSION:
            raise Fault(Code.BAD_VERSION, address)
        if job["opcode"] != Opcode.JOB:
            raise Fault(Code.BAD_DESCRIPTOR, address)
        if job["completion_address"] % RECORD_BYTES:
            raise Fault(Code.BAD_DESCRIPTOR, job["completion_address"])
        self.engines.inside(job["completion_address"], RECORD_BYTES)
        self.job = job
        self.watchdog = job["watchdog_cycles"] or self.watchdog
        if job["header_flags"] or DESCRIPTOR.encode(**job) != raw:
            raise Fault(Code.BAD_FIELD, address)
        if address + RECORD_BYTES * (1 + job["commands"]) > self.engines.window[1]:
            raise Fault(Code.MEMORY_WINDOW, self.engines.window[1])
        return job

    def _command(self, address: int) -> dict[str, int]:
        """The command record at ``address``, as dispatch checks it: its header alone."""
        raw = self._memory[address:address + RECORD_BYTES].tobytes()
        if raw[0] != VERSION:
            raise Fault(Code.BAD_VERSION, address)
        if raw[1] not in list(self._opcodes):
            raise Fault(Code.BAD_OPCODE, address)
        header = HEADER.decode(raw)
        bad = header["context"] or header["header_flags"]
        for i in range(2):
            remote, tile = header[f"signal{i}_remote"], header[f"signal{i}_tile"]
            bad = bad or (remote and self.config.tiles == 1) or tile >= (self.config.tiles if remote else 1)
        if bad or HEADER.encode(**header)[:_HEADER_BYTES] != raw[:_HEADER_BYTES]:
            raise Fault(Code.BAD_FIELD, address)
        return record_of(raw[1]).decode(raw)

    def _ready(self, command: dict[str, int]) -> bool:
        needed = [0] * SEMAPHORES
        for i in range(2):
            if command[f"wait{i}_enable"]:
                needed[command[f"wait{i}_semaphore"]] += command[f"wait{i}_count"]
        return all(value >= count for value, count in zip(self.semaphores, needed, strict=True))

    def _execute(self, command: dict[str, int]) -> None:
        for i in range(2):
            if command[f"wait{i}_enable"]:
                self.semaphores[command[f"wait{i}_semaphore"]] -= command[f"wait{i}_count"]
        name = self._opcodes[Opcode(command["opcode"])]
        if name == "ring":
            check_ring(command, self.number, self.config, self.engines.inside)
            self.collective, self._ring_index = command, self._index
            return
        getattr(self.engines, name)(command)
        self.counters[f"commands.{name}"] += 1
        self._ended(command)

    def _ended(self, command: dict[str, int]) -> None:
        """Give the signals of a command that has ended."""
        for i in range(2):
            if command[f"signal{i}_enable"]:
                semaphore = command[f"signal{i}_semaphore"]
                if command[f"signal{i}_remote"]:
                    self._signal(self, command[f"signal{i}_tile"], semaphore)
                else:
                    self.add(semaphore)
