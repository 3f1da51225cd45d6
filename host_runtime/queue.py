"""Jobs: what was handed to the device, in order; simulated time moves only while somebody waits for one."""

import asyncio
import copy
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.compiler.stream import semaphore_name
from ringloom.hw.isa import COMPLETION, RECORD_BYTES, Code, Opcode, Status
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
        self.queue: Queue | None = None  # with firmware
        self._error: Error | None = None
        self._output = output
        self._as_numpy = as_numpy
        self._shape = shape
        self._copy: np.ndarray | None = None

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
        if not self._as_numpy:
            return self._output
        assert self._copy is not None
        return self._copy

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        return self.result()

    def _finish(self, error: Error | None) -> None:
        self.status = "done" if error is None else "failed"
        self._error = error
        self.holds.clear()
        self.program = None
        output = self._output
        if output is None:
            return
        if output._writer is self:  # another job may be queued that writes it again
            output._writer = None
        output._failure = None if error is None else self._as_seen_by_others(error)
        if self._as_numpy:
            if error is None:
                self._copy = output._view.reshape(self._shape).copy()
            self._output = None  # its memory is free again

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
        self.faults = 0
        """Jobs since the last reset that did not end well, by their completion records."""

    def start(self) -> None:
        """Configure the hardware, after it was reset."""
        self.faults = 0
        self._device.regs.control.irq_enable = 1

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    @property
    def held_bytes(self) -> int:
        """Bytes of device memory that jobs hold until they have run: operands, commands and results."""
        held = {array.address: array.nbytes for job in self._jobs for array in (*job.holds, job.program, job._output)
                if array is not None}
        return sum(held.values())

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
        device, program = self._device, job.program
        assert program is not None
        job.check_operands()
        control, tile = device.regs.control, device.regs.tile0
        job.status = "running"
        tile.job_low, tile.job_high = program.address & 0xFFFFFFFF, program.address >> 32
        control.irq_status = 1
        control.doorbell = 1
        if timeout_cycles is None:
            timeout_cycles = self._patience(job)
        with device._bus():
            ended = device.simulator.run(timeout_cycles)
        if not ended:
            self._time_out(job, timeout_cycles)
        control.irq_status = 1
        record = COMPLETION.decode(program._view[-RECORD_BYTES:].tobytes())
        self._accept(job, record)

    def _patience(self, job: Job) -> int:
        """Cycles that a job is given by default."""
        assert job.program is not None
        return _PATIENCE_CYCLES + _PATIENCE * (job.macs // self._device.config.tile.array.macs_per_cycle
                                               + job.program.nbytes + sum(h.nbytes for h in job.holds))

    def _accept(self, job: Job, record: dict[str, int]) -> None:
        """Finish ``job`` by its completion record, or raise the error it tells of."""
        if record["job"] != job.number or record["status"] == Status.PENDING:
            raise self._unrecorded(job)
        job.start, job.end = record["start"], record["end"]
        if record["status"] != Status.DONE:
            self.faults += 1
            raise self._fault(job, record)
        self._device.jobs += 1
        self._device.macs += job.macs
        job._finish(None)

    def _time_out(self, job: Job, cycles: int) -> None:
        """Abort ``job`` and raise; if even that hangs, reset the hardware."""
        device = self._device
        waiting = self._waiting(job)
        device.regs.control.abort = 1
        with device._bus():
            drained = device.simulator.run(_DRAIN_CYCLES)
        if not drained:
            device._reset_hardware()
        device.regs.control.irq_status = 1
        how = "aborted" if drained else "ended by a reset, since its engines did not drain"
        raise TimeoutError(
            f"job {job.number} ({job.name}) did not end within {cycles} cycles and was {how}; {'; '.join(waiting)}. "
            "The device is usable; give timeout_cycles= more cycles if the job is only long", waiting=waiting)

    def _fault(self, job: Job, record: dict[str, int]) -> Error:
        code = Code(record["code"]) if record["code"] in list(Code) else Code.NONE
        text = f"job {job.number} ({job.name}): {Status(record['status']).name.lower()}, {code.name} at command "
        text += f"{record['command']}{self._kind(job, record['command'])}, address {record['address']:#x}"
        if code == Code.WATCHDOG:
            return TimeoutError(f"{text}; {'; '.join(self._waiting(job))}. The device is usable",
                                waiting=self._waiting(job))
        return DeviceFault(f"{text}. The device is usable", code=code.name, command=record["command"],
                           address=record["address"])

    def _unrecorded(self, job: Job) -> Error:
        """No record could be written, or not where it was looked for: the registers tell what happened."""
        value = self._device.regs.tile0.status
        status, code = ((kind(number).name if number in list(kind) else f"unknown ({number})")
                        for kind, number in ((Status, value >> 8 & 0xFF), (Code, value >> 16 & 0xFF)))
        return DeviceFault(f"job {job.number} ({job.name}): the device ended it without a completion record; its "
                           f"status register says {status.lower()}, {code}. The device is usable", code=code)

    def _kind(self, job: Job, command: int) -> str:
        """The opcode of a command, in brackets."""
        at = RECORD_BYTES * (command + 1) + 1
        if job.program is None or at >= job.program.nbytes or job.program._view[at] not in list(Opcode):
            return ""
        return f" ({Opcode(int(job.program._view[at])).name})"

    def _waiting(self, job: Job) -> tuple[str, ...]:
        """What each engine does, in words, from the state registers."""
        tile = self._device.regs.tile0
        lines = []
        for engine in _ENGINES:
            value = getattr(tile, f"{engine}_state")
            state, semaphore, command = ENGINE_STATES[value & 3], value >> 8 & 31, value >> 16
            text = f"{engine.upper()} is {state}"
            if state == "waiting":
                text = (f"{engine.upper()} waits at command {command} for {semaphore_name(semaphore)}, which holds "
                        f"{getattr(tile, f'semaphore{semaphore}')}")
            elif state != "idle":
                text += f" at command {command}"
            lines.append(text)
        return tuple(lines)
