"""Jobs: what was handed to the device, in order; simulated time moves only while somebody waits for one."""

import asyncio
import copy
from collections import Counter, deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.compiler.stream import semaphore_name
from ringloom.hw.isa import COMPLETION, RECORD_BYTES, RING, Code, Collective, Opcode, Status
from ringloom.hw.regmap import ENGINE_STATES

from .buffers import DeviceArray, PreparedWeights
from .errors import DeviceFault, Error, TimeoutError, UnsupportedError

if TYPE_CHECKING:
    from .device import Device
    from .queues import Queue

__all__ = ["Job", "JobQueue"]

_DRAIN_CYCLES = 100_000    # an abort waits for memory alone
_PATIENCE = 100            # default time-out: so many times the cycles of an ideal tile, and
_PATIENCE_CYCLES = 200_000
_ENGINES = ("load", "matmul", "store")


class Job:
    """One job of a device.

    number: as in its completion record. status: ``queued``, ``running``, ``done`` or ``failed``.
    start, end: device cycles of the accepted doorbell and of the last acknowledged byte; None until done.
    cycles: end - start. macs: useful multiply-accumulates.
    """

    def __init__(self, device: "Device", number: int, name: str, macs: int, output: DeviceArray | None, *,
                 as_numpy: bool, shape: tuple[int, ...]) -> None:
        self.device = device
        self.number = number
        self.name = name
        self.macs = macs
        self.status = "queued"
        self.start: int | None = None
        self.end: int | None = None
        self.holds: list[Any] = []  # operands stay in memory until the job has ended
        self.program: DeviceArray | None = None  # descriptor, commands, completion record
        self.tile = 0  # that runs it, with direct control
        self.queue: Queue | None = None  # with firmware
        self._error: Error | None = None
        self._outputs = [] if output is None else [output]
        self._as_numpy = as_numpy
        self._shape = shape
        self._copy: np.ndarray | None = None

    @property
    def programs(self) -> dict[int, DeviceArray]:
        """What each tile runs."""
        return {} if self.program is None else {self.tile: self.program}

    @property
    def memory(self) -> list[DeviceArray]:
        """What the job holds until it has run: operands, commands and results."""
        operands = (h.array if isinstance(h, PreparedWeights) else h for h in self.holds)
        return [*operands, *self.programs.values(), *self._outputs]

    @property
    def cycles(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def done(self) -> bool:
        """Whether the job has ended, in either way."""
        return self.status in ("done", "failed")

    def wait(self, timeout_cycles: int | None = None) -> "Job":
        """Run the device until this job and those before it have ended, each within ``timeout_cycles`` cycles.

        Raises the error that ended the job: :class:`DeviceFault`, or :class:`TimeoutError` after aborting it.
        """
        if timeout_cycles is not None and (not isinstance(timeout_cycles, int | np.integer) or timeout_cycles < 1):
            raise UnsupportedError(f"timeout_cycles = {timeout_cycles!r}: must be a positive number of cycles, or None")
        if not self.done:
            self.device._jobs.run_until(self, None if timeout_cycles is None else int(timeout_cycles))
        if self._error is not None:
            raise self._error
        return self

    def result(self, timeout_cycles: int | None = None) -> Any:
        """The product, once it is there: numpy for a numpy ``a``, else a :class:`DeviceArray`; None of a raw job."""
        self.wait(timeout_cycles)
        if self._as_numpy:
            assert self._copy is not None
            return self._copy
        return self._value()

    def _value(self) -> Any:
        """The result that stays on the device."""
        return self._outputs[0] if self._outputs else None

    def _collect(self) -> Any:
        """The result as numpy, from the outputs' bytes."""
        return self._outputs[0]._view.reshape(self._shape).copy()

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self.result()

    def _finish(self, error: Error | None) -> None:
        self.status = "done" if error is None else "failed"
        self._error = error
        self.holds.clear()
        self.program = None
        for output in self._outputs:
            if output._writer is self:  # another job may be queued that writes it again
                output._writer = None
            output._failure = None if error is None else self._as_seen_by_others(error)
        if self._as_numpy and self._outputs:
            if error is None:
                self._copy = self._collect()
            self._outputs = []  # their memory is free again

    def _as_seen_by_others(self, error: Error) -> Error:
        """The same error, without its traceback, for those that wanted the output."""
        seen = copy.copy(error)
        seen.args = (f"job {self.number} ({self.name}), which was to write this array, failed: {error}",)
        return seen

    def check_operands(self) -> None:
        """Raise where an operand is the output of a job that failed: its bytes are nobody's result."""
        for operand in self.holds:
            (operand.array if isinstance(operand, PreparedWeights) else operand).check()

    def __repr__(self) -> str:
        took = f", {self.cycles} cycles" if self.cycles is not None else ""
        return f"Job({self.number}, {self.name!r}, {self.status}{took})"


class JobQueue:
    """The jobs of a device with direct control: one runs at a time, in the order of submission."""

    def __init__(self, device: "Device") -> None:
        self._device = device
        self._jobs: deque[Job] = deque()
        self.faults: Counter[int] = Counter()
        """Of each tile, jobs since the last reset that did not end well there."""

    def start(self) -> None:
        """Configure the hardware, after it was reset."""
        self.faults.clear()
        self._device.regs.control.irq_enable = (1 << self._device.config.tiles) - 1

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    @property
    def held_bytes(self) -> int:
        """Bytes of device memory that jobs hold until they have run: operands, commands and results."""
        return sum({array.address: array.nbytes for job in self._jobs for array in job.memory}.values())

    def run_first(self) -> bool:
        """Run the job that is next; false where there is none. What goes wrong with it is kept in it."""
        if self._jobs:
            self.run_until(self._jobs[0], None)
            return True
        return False

    def drop(self, error: Error) -> None:
        """End every job with ``error``."""
        while self._jobs:
            self._jobs.popleft()._finish(error)

    def run_until(self, job: Job, timeout_cycles: int | None) -> None:
        """Run the jobs up to ``job``; what went wrong with one is kept in it and stops no other."""
        self._device._check_open()
        while not job.done:
            first = self._jobs.popleft()
            try:
                self._run(first, timeout_cycles)
            except Error as error:  # without its frames, which hold the job's memory
                first._finish(error.with_traceback(None))
            except BaseException:  # an interrupt from the keyboard: the hardware is in the middle of the job
                first._finish(DeviceFault("the job was interrupted", code=Code.ABORT.name))
                self._device._reset_hardware()
                raise

    def _run(self, job: Job, timeout_cycles: int | None) -> None:
        device, programs = self._device, job.programs
        assert programs
        job.check_operands()
        control = device.regs.control
        job.status = "running"
        for tile, program in programs.items():
            registers = getattr(device.regs, f"tile{tile}")
            registers.job_low, registers.job_high = program.address & 0xFFFFFFFF, program.address >> 32
        group = sum(1 << tile for tile in programs)
        control.irq_status = group
        control.doorbell = group
        if timeout_cycles is None:
            timeout_cycles = self._patience(job)
        end = device.cycle + timeout_cycles
        left = self._wait_for_tiles(group, timeout_cycles)
        while left and not self._failed(job, group & ~left):
            before, cycles = left, end - device.cycle
            if cycles > 0:
                left = self._wait_for_tiles(left, cycles)
            if left == before:
                self._time_out(job, timeout_cycles, left)
        if left:  # they may wait for the one that failed
            control.abort = left
            self._drain(left)
        self._count_faults(job)
        self._accept(job, {tile: COMPLETION.decode(program._view[-RECORD_BYTES:].tobytes())
                           for tile, program in programs.items()})

    def _wait_for_tiles(self, group: int, cycles: int) -> int:
        """Run until a tile of ``group`` has ended, for up to ``cycles``; the tiles that have not."""
        control = self._device.regs.control
        with self._device._bus():
            if not self._device.simulator.run(cycles):
                return group
        ended = group if not group & group - 1 else control.irq_status
        control.irq_status = ended
        return group & ~ended

    def _drain(self, left: int) -> bool:
        """Wait for tiles that were aborted; where that hangs, reset the hardware: false then."""
        end = self._device.cycle + _DRAIN_CYCLES
        while left and (cycles := end - self._device.cycle) > 0:
            left = self._wait_for_tiles(left, cycles)
        if left:
            self._device._reset_hardware()
        return not left

    def _count_faults(self, job: Job) -> None:
        """Count the tiles on which ``job``, now ended, did not end well; one without a record did not."""
        self.faults.update(tile for tile, program in job.programs.items()
                           if program._view[-RECORD_BYTES:][4] != Status.DONE)

    def _failed(self, job: Job, ended: int) -> bool:
        """Whether one of the tiles that have ended did not end well: the others may wait for it."""
        return any(ended >> tile & 1 and program._view[-RECORD_BYTES:][4] != Status.DONE
                   for tile, program in job.programs.items())

    def _patience(self, job: Job) -> int:
        """Cycles that a job is given by default."""
        return _PATIENCE_CYCLES + _PATIENCE * (job.macs // self._device.config.tile.array.macs_per_cycle
                                               + sum(array.nbytes for array in job.memory))

    def _accept(self, job: Job, records: dict[int, dict[str, int]]) -> None:
        """Finish ``job`` by the completion records of its tiles, or raise the error they tell of."""
        good = {tile: record for tile, record in records.items()
                if record["job"] == job.number and record["status"] != Status.PENDING}
        if good:
            job.start = min(record["start"] for record in good.values())
            job.end = max(record["end"] for record in good.values())
            if self._device._profiles:
                base = self._device._reset_cycle  # the hardware counts from there
                self._device._spans.append((base + job.start, base + job.end))
        # of a group, the tile at fault; what was aborted on its account says nothing
        for status in (Status.FAULT, Status.ABORTED):
            if status == Status.ABORTED and len(good) < len(records):
                raise self._unrecorded(job, next(tile for tile in records if tile not in good))
            for tile, record in good.items():
                if record["status"] == status:
                    raise self._fault(job, record, tile)
        self._device.jobs += 1
        self._device.macs += job.macs
        job._finish(None)

    def _time_out(self, job: Job, cycles: int, left: int) -> None:
        """Abort ``job`` on the tiles ``left`` and raise; if even that hangs, reset the hardware."""
        device = self._device
        waiting = self._waiting(job)
        device.regs.control.abort = left
        drained = self._drain(left)
        if drained:  # after a reset they count from zero
            self._count_faults(job)
        how = "aborted" if drained else "ended by a reset, since its engines did not drain"
        raise TimeoutError(
            f"job {job.number} ({job.name}) did not end within {cycles} cycles and was {how}; {'; '.join(waiting)}. "
            "The device is usable; give timeout_cycles= more cycles if the job is only long", waiting=waiting)

    def _fault(self, job: Job, record: dict[str, int], tile: int) -> Error:
        code = Code(record["code"]) if record["code"] in list(Code) else Code.NONE
        text = f"job {job.number} ({job.name}): {Status(record['status']).name.lower()}, {code.name} at command "
        text += f"{record['command']}{self._kind(job, tile, record['command'])}, "
        text += f"{self._place(tile)}address {record['address']:#x}"
        if code == Code.WATCHDOG:
            return TimeoutError(f"{text}; {'; '.join(self._waiting(job))}. The device is usable",
                                waiting=self._waiting(job))
        return DeviceFault(f"{text}. The device is usable", code=code.name, command=record["command"],
                           address=record["address"])

    def _unrecorded(self, job: Job, tile: int) -> Error:
        """No record could be written, or not where it was looked for: the registers tell what happened."""
        value = getattr(self._device.regs, f"tile{tile}").status
        status, code = ((kind(number).name if number in list(kind) else f"unknown ({number})")
                        for kind, number in ((Status, value >> 8 & 0xFF), (Code, value >> 16 & 0xFF)))
        return DeviceFault(f"job {job.number} ({job.name}): {self._place(tile)}the device ended it without a "
                           f"completion record; its status register says {status.lower()}, {code}. The device is "
                           "usable", code=code)

    def _place(self, tile: int) -> str:
        return f"tile {tile}: " if self._device.config.tiles > 1 else ""

    def _kind(self, job: Job, tile: int, command: int) -> str:
        """The opcode of a command, in brackets."""
        record = self._record(job, tile, command)
        return f" ({Opcode(record[1]).name})" if record and record[1] in list(Opcode) else ""

    @staticmethod
    def _record(job: Job, tile: int, command: int) -> bytes:
        """The bytes of a command of what ``tile`` runs; none where there is no such command."""
        program = job.programs.get(tile)
        first = RECORD_BYTES * (command + 1)
        return b"" if program is None else program._view[first:first + RECORD_BYTES].tobytes()

    def _waiting(self, job: Job) -> tuple[str, ...]:
        """What each engine of the job's tiles does, in words, from the state registers."""
        many = self._device.config.tiles > 1
        lines = []
        # the firmware chooses the tile of a queue's job
        for number in job.programs if job.queue is None else range(self._device.config.tiles):
            tile = getattr(self._device.regs, f"tile{number}")
            for engine in (*_ENGINES, "ring") if many else _ENGINES:
                value = getattr(tile, f"{engine}_state")
                state, semaphore, command = ENGINE_STATES[value & 3], value >> 8 & 31, value >> 16
                text = f"{self._place(number)}{engine.upper()} is {state}"
                if state == "waiting":
                    text = (f"{self._place(number)}{engine.upper()} waits at command {command} for "
                            f"{semaphore_name(semaphore)}, which holds {getattr(tile, f'semaphore{semaphore}')}")
                elif state != "idle":
                    text += f" at command {command}" + self._group_of(self._record(job, number, command))
                lines.append(text)
        return tuple(lines)

    @staticmethod
    def _group_of(record: bytes) -> str:
        """Which tiles a RING command waits for."""
        if len(record) < RECORD_BYTES or record[1] != Opcode.RING:
            return ""
        c = RING.decode(record)
        kind = Collective(c["operation"]).name if c["operation"] in list(Collective) else "unknown"
        return f", {kind} {c['number']} of tiles {c['first']}..{c['first'] + c['size'] - 1}"
