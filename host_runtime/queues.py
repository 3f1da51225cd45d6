"""Job queues of a device with ``control.kind: firmware``: rings of descriptors and completions in device memory."""

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.hw.isa import COMPLETION, DESCRIPTOR, RECORD_BYTES, VERSION, Code, Opcode, Status
from ringloom.hw.regmap import QUEUE, QUEUE_BASE, QUEUE_STRIDE, QueueCommand, QueueStatus

from .buffers import Allocator, DeviceArray, PreparedWeights
from .errors import ClosedError, DeviceFault, Error, TimeoutError, UnsupportedError
from .group_queue import run_group
from .groups import GroupJob
from .operands import refuse_unknown
from .queue import _DRAIN_CYCLES, Job, JobQueue
from .registers import RegisterBlock

if TYPE_CHECKING:
    from .device import Device

__all__ = ["FirmwareQueues", "Queue"]

_ENTRIES = 16          # descriptors in a ring


class Queue:
    """A job queue of a device; a context manager. Its jobs start in order, each on one of ``tiles``.

    Strict priorities: while a queue with a greater ``priority`` has a job that could start, a smaller one waits.
    With ``memory`` (bytes) the queue has a part of device memory to itself: its jobs, operands and results lie there,
    and the hardware ends a job that touches anything outside. A job that does not end well raises its error from
    ``wait`` or ``result``; the jobs behind it run on.
    """

    def __init__(self, queues: "FirmwareQueues", index: int, priority: int, tiles: tuple[int, ...],
                 memory: int | None) -> None:
        device = queues.device
        self.device = device
        self.index = index
        self.priority = priority
        self.tiles = tiles
        self.closed = False
        self._queues = queues
        self._allocator: Allocator = device._allocator
        self.window = (0, device.config.tiles * device.config.memory.bytes)
        if memory is not None:
            region = DeviceArray(device, (memory,), np.uint8)
            base = region.address
            self.window = (base, base + memory // RECORD_BYTES * RECORD_BYTES)
            self._allocator = Allocator(*self.window, owner=region, stripe=device.config.row_stripe_bytes)
        self._ring = DeviceArray(device, (_ENTRIES, RECORD_BYTES), np.uint8)  # the firmware's, outside the window
        self._completions = DeviceArray(device, (_ENTRIES, RECORD_BYTES), np.uint8, allocator=self._allocator)
        self._registers = RegisterBlock(device, f"queue{index}", QUEUE_BASE + index * QUEUE_STRIDE, QUEUE)
        self._waiting: deque[Job] = deque()   # not in the ring yet
        self._running: list[tuple[int, Job]] = []  # place in the ring, job; in order
        self._tail = 0
        self._jobs_before = 0  # the hardware's count of ended jobs at the last restart
        self._restarts = 0
        self._faulted = False  # a job since then has an error record
        self._raw: dict[int, bytes] = {}  # descriptors as they are, by the job's number

    def put(self, array: Any) -> DeviceArray:
        """Copy ``array`` into the queue's memory."""
        source = np.asarray(array)
        target = self.empty(source.shape, source.dtype)
        np.copyto(target._view, source)
        return target

    def empty(self, shape: "int | tuple[int, ...]", dtype: Any = np.int8) -> DeviceArray:
        """An array in the queue's memory, its contents undefined."""
        self._check_open()
        return self.device._empty(shape, dtype, self._allocator)

    def submit(self, kind: str, *operands: Any, **options: Any) -> Job:
        """As :meth:`Device.submit`, into this queue."""
        self._check_open()
        return self.device._submit(self, kind, operands, options)

    def submit_raw(self, commands: bytes, *, descriptor: bytes | None = None, **unknown: Any) -> Job:
        """Hand a command stream over as it is, for experiments: nothing is checked here, the hardware does that.

        commands: the bytes behind the job's descriptor. descriptor: 64 bytes in place of the one made here, in the
        ring as before the commands. The job's result is None.
        """
        refuse_unknown("submit_raw", unknown, ("descriptor",))
        self._check_open()
        if descriptor is not None and len(descriptor) != RECORD_BYTES:
            raise UnsupportedError(f"descriptor: {len(descriptor)} bytes; it has {RECORD_BYTES}")
        job = Job(self.device, self.device._next_number(), "raw", 0, None, as_numpy=False, shape=())
        raw = bytes(commands)
        program = DeviceArray(self.device, (RECORD_BYTES + len(raw),), np.uint8, allocator=self._allocator)
        head = descriptor or DESCRIPTOR.encode(version=VERSION, opcode=Opcode.JOB, job=job.number,
                                               commands=len(raw) // RECORD_BYTES)
        program._view[:] = np.frombuffer(head + raw, np.uint8)
        job.program = program
        if descriptor is not None:
            self._raw[job.number] = descriptor
        self._waiting.append(job)
        job.queue = self
        return job

    def abort(self) -> None:
        """End the queue's running jobs, and drop those that wait, each with an ABORT error."""
        self._check_open()
        self._queues.abort(self)

    def close(self) -> None:
        """Give the hardware's queue back. Jobs that have not ended are aborted. A second call does nothing."""
        if not self.closed:
            if not self.device.closed:
                self._queues.abort(self)
                self._registers.ring_size = 0
            self.closed = True
            self._queues.forget(self)

    def __enter__(self) -> "Queue":
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __repr__(self) -> str:
        return f"Queue({self.index}, priority={self.priority}, tiles={list(self.tiles)}, {len(self)} jobs)"

    # -- the hardware's side -----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("this queue is closed: open another with dev.queue(...)")
        self.device._check_open()

    def _configure(self) -> None:
        """Write the registers after a reset or at the start."""
        registers, (base, limit) = self._registers, self.window
        for name, value in (("ring", self._ring.address), ("window_base", base), ("window_limit", limit)):
            setattr(registers, f"{name}_low", value & 0xFFFFFFFF)
            setattr(registers, f"{name}_high", value >> 32)
        self._set_policy(self.tiles)
        registers.ring_size = _ENTRIES
        self._restart()

    def _set_policy(self, tiles: tuple[int, ...]) -> None:
        self._registers.policy = self.priority | sum(1 << tile for tile in tiles) << 16

    def _restart(self) -> None:
        """Empty the hardware's queue and open it; what was in the ring goes in again, from the front."""
        self._registers.command = QueueCommand.RESTART
        self._restarts += 1
        self._waiting.extendleft(job for _, job in reversed(self._running))
        self._running.clear()
        self._tail = 0
        self._faulted = False
        self._jobs_before = self._registers.jobs

    def _push(self) -> None:
        """Move waiting jobs into the ring and ring the doorbell."""
        if self._queues.held:
            return
        taken, before = {place for place, _ in self._running}, self._tail
        while self._waiting and (place := self._tail % _ENTRIES) not in taken and self._blocker() is None:
            job = self._waiting.popleft()
            try:
                job.check_operands()
            except Error as error:
                job._finish(error.with_traceback(None))
                continue
            assert job.program is not None
            self._completions._view[place] = 0
            raw = self._raw.get(job.number)
            if raw is None:
                fields = DESCRIPTOR.decode(job.program._view[:RECORD_BYTES].tobytes())
                raw = DESCRIPTOR.encode(**fields | {
                    "address": job.program.address,
                    "completion_address": self._completions.address + place * RECORD_BYTES})
                job.program._view[:RECORD_BYTES] = np.frombuffer(raw, np.uint8)
            self._ring._view[place] = np.frombuffer(raw, np.uint8)
            self._running.append((place, job))
            taken.add(place)
            job.status = "running"
            self._tail = self._tail + 1 & 0xFFFF
        if self._tail != before:
            self._registers.tail = self._tail

    def _blocker(self) -> Job | None:
        """The job that writes an operand of the next one, where the hardware does not run it before that; and for the
        queue that groups go through, the group that was submitted before."""
        if self is self._queues.default:
            for group in self._queues.groups:
                if group.number < self._waiting[0].number:
                    return group
        for operand in self._waiting[0].holds:
            writer = (operand.array if isinstance(operand, PreparedWeights) else operand)._writer
            ordered = writer is not None and writer.queue is self and len(self.tiles) == 1
            if writer is not None and writer.number < self._waiting[0].number and not ordered:
                return writer
        return None

    def _collect(self, error: Error | None = None, culprit: Job | None = None) -> bool:
        """Finish what has ended; true if something had.

        Where the hardware stopped the queue, find the job at fault and open it again: the jobs behind run anew. error:
        what the job gets that the host aborted. culprit: the one that it means; those that ran beside it run anew.
        """
        status = self._registers.status
        stopped = status & QueueStatus.STOPPED
        if status & QueueStatus.ABORTING or stopped and not status & QueueStatus.QUIET:
            return False  # another interrupt comes
        ended = self._registers.jobs - self._jobs_before & 0xFFFFFFFF
        before = len(self._running)
        for entry in list(self._running):
            place, job = entry
            record = COMPLETION.decode(self._completions._view[place].tobytes())
            if record["status"] == Status.ABORTED and culprit not in (None, entry[1]):
                continue
            if record["status"] != Status.PENDING:
                self._faulted |= record["status"] != Status.DONE
                self._remove(entry, record, error if record["status"] == Status.ABORTED else None)
        if stopped:
            if not self._faulted and self._running and status >> 8 & 0xFF == Status.FAULT:
                registers = self._registers  # nothing could be written: the registers alone tell
                self._remove(self._running[0], {
                    "job": self._running[0][1].number, "status": Status.FAULT, "code": status >> 16 & 0xFF,
                    "command": registers.fault_command, "start": 0, "end": 0,
                    "address": registers.fault_address_high << 32 | registers.fault_address_low})
            self._restart()
        elif self._running and ended == self._tail:
            for entry in list(self._running):  # a descriptor that named another place for its record
                self._remove(entry, {"job": entry[1].number, "status": Status.PENDING})
        return len(self._running) < before

    def _remove(self, entry: tuple[int, Job], record: dict[str, int], error: Error | None = None) -> None:
        self._running.remove(entry)
        job = entry[1]
        if self._raw.pop(job.number, None) is not None:
            record = record | {"job": job.number}
        try:
            if error is not None:
                raise error
            self._queues._accept(job, {record.get("tile", 0): record})
        except Error as raised:
            job._finish(raised.with_traceback(None))


class FirmwareQueues(JobQueue):
    """All queues of a device. Queue 0 takes what ``dev.submit`` and the synchronous calls hand over."""

    def __init__(self, device: "Device") -> None:
        super().__init__(device)
        self.device = device
        self._open: dict[int, Queue] = {}
        self.groups: deque[GroupJob] = deque()
        self.held = False
        """No queue hands jobs over: the tiles are those of a group that starts."""

    def start(self) -> None:
        """Configure the hardware, after it was reset."""
        control = self.device.regs.control
        control.irq_enable = (1 << self.device.config.control.queues) - 1
        if not self._open:
            self.open(0, None, None)
            return
        for queue in self._open.values():
            queue._configure()

    def open(self, priority: int, tiles: Any, memory: int | None) -> Queue:
        """A queue on the first of the hardware's that is free."""
        config = self.device.config
        if not isinstance(priority, int | np.integer) or not 0 <= priority <= 255:
            raise UnsupportedError(f"priority = {priority!r}: must be an integer in 0..255; the greater goes first")
        chosen = tuple(range(config.tiles)) if tiles is None else tuple(sorted({int(tile) for tile in tiles}))
        if not chosen or not all(0 <= tile < config.tiles for tile in chosen):
            raise UnsupportedError(f"tiles = {tiles!r}: must name some of the device's {config.tiles} tiles, from 0 on")
        if memory is not None and (not isinstance(memory, int | np.integer) or memory < 64 * RECORD_BYTES):
            raise UnsupportedError(f"memory = {memory!r}: must be at least {64 * RECORD_BYTES} bytes, or None")
        free = [i for i in range(config.control.queues) if i not in self._open]
        if not free:
            raise UnsupportedError(f"all {config.control.queues} queues are open: close one, or raise control.queues")
        queue = Queue(self, free[0], int(priority), chosen, None if memory is None else int(memory))
        self._open[queue.index] = queue
        queue._configure()
        return queue

    def forget(self, queue: Queue) -> None:
        self._open.pop(queue.index, None)

    @property
    def default(self) -> Queue:
        return self._open[0]

    def __len__(self) -> int:
        return len(self.groups) + sum(len(queue) for queue in self._open.values())

    def add(self, job: Job) -> None:
        if isinstance(job, GroupJob):
            self.groups.append(job)
            return
        queue = self.default if job.queue is None else job.queue
        job.queue = queue
        queue._waiting.append(job)

    @property
    def held_bytes(self) -> int:
        jobs = [*self.groups, *(job for queue in self._open.values()
                                for job in (*(job for _, job in queue._running), *queue._waiting))]
        return sum({array.address: array.nbytes for job in jobs for array in job.memory}.values())

    def run_first(self) -> bool:
        """Run the first job of a queue that has one; false where none has."""
        if self.groups:
            self.run_until(self.groups[0], None)
            return True
        for queue in self._open.values():
            if len(queue):
                first = queue._running[0][1] if queue._running else queue._waiting[0]
                self.run_until(first, None)
                return True
        return False

    def drop(self, error: Error) -> None:
        while self.groups:
            self.groups.popleft()._finish(error)
        for queue in self._open.values():
            jobs = [*(job for _, job in queue._running), *queue._waiting]
            queue._running.clear()
            queue._waiting.clear()
            queue._raw.clear()
            for job in jobs:
                job._finish(error)

    def run_until(self, job: Job, timeout_cycles: int | None) -> None:
        """Run all queues until ``job`` has ended; each of its queue's jobs is given ``timeout_cycles``."""
        self.device._check_open()
        if isinstance(job, GroupJob):
            while not job.done:
                self._run_group(self.groups.popleft(), timeout_cycles)
            return
        queue = job.queue
        assert queue is not None
        while not job.done:
            first: Job | None = None
            try:
                for other in self._open.values():
                    other._push()
                if queue._running:
                    first = queue._running[0][1]
                    limit = timeout_cycles or self._patience(first)
                    if not self._wait(queue, limit):
                        self._expire(queue, first, limit)
                elif queue._waiting and (blocker := queue._blocker()) is not None:
                    self.run_until(blocker, timeout_cycles)
            except Error as error:  # a bus did not answer: the hardware was reset, and the jobs wait again
                if first is None:
                    raise
                if not first.done:
                    queue._waiting.remove(first)
                    first._finish(error.with_traceback(None))
            except BaseException:  # an interrupt from the keyboard: the hardware is in the middle of jobs
                self.drop(DeviceFault("the job was interrupted", code=Code.ABORT.name))
                self.device._reset_hardware()
                raise

    def _run_group(self, job: GroupJob, timeout_cycles: int | None) -> None:
        """Run one group; what goes wrong with it is kept in it."""
        try:
            run_group(self, job, timeout_cycles)
        except Error as error:
            job._finish(error.with_traceback(None))
        except BaseException:  # an interrupt from the keyboard
            job._finish(DeviceFault("the job was interrupted", code=Code.ABORT.name))
            self.drop(DeviceFault("the job was interrupted", code=Code.ABORT.name))
            self.device._reset_hardware()
            raise

    def _wait(self, queue: Queue, limit: int) -> bool:
        """Run for up to ``limit`` cycles until a job of ``queue`` has ended; other queues' ends are noted."""
        end = self.device.cycle + limit
        while (left := end - self.device.cycle) > 0:
            if self._step(queue, left):
                return True
        return False

    def _step(self, queue: Queue, limit: int, error: Error | None = None, culprit: Job | None = None) -> bool:
        control = self.device.regs.control
        with self.device._bus():
            if not self.device.simulator.run(limit):
                return False
        status = control.irq_status
        control.irq_status = status
        progress = False
        for other in self._open.values():
            if status >> other.index & 1:
                moved = other._collect(error, culprit) if other is queue else other._collect()
                progress |= moved and other is queue
                if error is None or other is not queue:
                    other._push()
        return progress

    def _expire(self, queue: Queue, job: Job, cycles: int) -> None:
        """Abort the first job of ``queue``, which ends with a time-out; those behind it run anew."""
        waiting = self._waiting(job)
        text = (f"job {job.number} ({job.name}) did not end within {cycles} cycles and was aborted; "
                f"{'; '.join(waiting)}. The device is usable; give timeout_cycles= more cycles if the job is only long")
        error = TimeoutError(text, waiting=waiting)
        self._abort(queue, error, job)
        if not job.done:  # it had not started, or the reset ended it
            queue._waiting.remove(job)
            queue._raw.pop(job.number, None)
            job._finish(error)

    def abort(self, queue: Queue) -> None:
        """End all jobs of ``queue`` with an ABORT error."""
        error = DeviceFault("the queue was aborted", code=Code.ABORT.name)
        if queue._running:
            self._abort(queue, error)
        for job in queue._waiting:
            job._finish(error)
        queue._waiting.clear()
        queue._raw.clear()

    def _abort(self, queue: Queue, error: Error, culprit: Job | None = None) -> None:
        """Have the firmware abort ``queue``; its running jobs, or ``culprit`` alone, end with ``error``. If even that
        hangs, reset."""
        queue._registers.command = QueueCommand.ABORT
        restarts, end = queue._restarts, self.device.cycle + _DRAIN_CYCLES
        while queue._restarts == restarts:
            left = end - self.device.cycle
            if left <= 0:
                self.device._reset_hardware()
                return
            self._step(queue, left, error, culprit)
