"""Jobs of a group with ``control.kind: firmware``: one descriptor a tile, through the queue of ``dev.submit``.

The firmware starts a queue's next job on any tile that the queue may use. So a group goes into an empty device, one
descriptor after the other, while the queue may use that tile alone; the barrier or collective in the streams makes up
for the cycles in between. Other queues' jobs start again once all tiles of the group have started.
"""

from typing import TYPE_CHECKING

import numpy as np

from ringloom.hw.isa import COMPLETION, DESCRIPTOR, RECORD_BYTES, Code, Status
from ringloom.hw.regmap import QueueCommand, QueueStatus

from .buffers import PreparedWeights
from .errors import DeviceFault, Error, TimeoutError
from .groups import GroupJob
from .queue import _DRAIN_CYCLES, Job

if TYPE_CHECKING:
    from .queues import FirmwareQueues, Queue

__all__ = ["run_group"]

_POLL_CYCLES = 50      # between two looks at whether a job has started
_START_CYCLES = 20_000  # an empty device starts a job within some hundreds


def run_group(queues: "FirmwareQueues", job: GroupJob, timeout_cycles: int | None) -> None:
    """Run ``job``, and what must run before it. Raises what ended it."""
    queue = queues.default
    before: list[Job] = [earlier for _, earlier in queue._running] + list(queue._waiting)
    writers = [(o.array if isinstance(o, PreparedWeights) else o)._writer for o in job.holds]
    for earlier in (*before, *(writer for writer in writers if writer is not None)):
        if earlier.number < job.number and not earlier.done:
            queues.run_until(earlier, timeout_cycles)
    job.check_operands()
    limit = timeout_cycles or queues._patience(job)
    queues.held = True
    try:
        _wait_until_quiet(queues)
        _start(queue, job)
        queues.held = False
        for other in queues._open.values():
            if other is not queue:
                other._push()
        _wait_for_parts(queues, job, limit)
    finally:
        queues.held = False
        if not queues.device.closed:
            queue._set_policy(queue.tiles)
    queues._accept(job, _records(job))


def _records(job: GroupJob) -> dict[int, dict[str, int]]:
    return {tile: COMPLETION.decode(program._view[-RECORD_BYTES:].tobytes()) for tile, program in job.parts.items()}


def _wait_until_quiet(queues: "FirmwareQueues") -> None:
    while running := [queue for queue in queues._open.values() if queue._running]:
        queues.run_until(running[0]._running[0][1], None)


def _start(queue: "Queue", job: GroupJob) -> None:
    """Hand the parts over, each to its tile. Where one ends badly meanwhile, the firmware starts no more."""
    device, registers = queue.device, queue._registers
    job.status = "running"
    for tile, program in job.parts.items():
        queue._set_policy((tile,))
        raw = program._view[:RECORD_BYTES].tobytes()
        queue._ring._view[queue._tail % len(queue._ring)] = np.frombuffer(
            DESCRIPTOR.encode(**DESCRIPTOR.decode(raw) | {"address": program.address}), np.uint8)
        queue._tail = queue._tail + 1 & 0xFFFF
        registers.tail = queue._tail
        end = device.cycle + _START_CYCLES
        while registers.head != queue._tail:
            if registers.status & QueueStatus.STOPPED:
                return
            if device.cycle > end:
                _abort(queue)
                raise DeviceFault(f"job {job.number} ({job.name}): tile {tile} did not start. The device is usable",
                                  code=Code.ABORT.name)
            with device._bus():
                device.simulator.run(_POLL_CYCLES)
            device.regs.control.irq_status = 1 << queue.index  # a part's end; the simulator stops for no old one


def _wait_for_parts(queues: "FirmwareQueues", job: GroupJob, limit: int) -> None:
    """Run until all parts have ended. Where one did not end well, or in time, the others are aborted."""
    device, queue = queues.device, queues.default
    end = device.cycle + limit
    while True:
        statuses = [record["status"] for record in _records(job).values()]
        if all(status == Status.DONE for status in statuses):
            return
        if any(status not in (Status.DONE, Status.PENDING) for status in statuses):
            _abort(queue)
            return
        left = end - device.cycle
        if left <= 0:
            waiting = queues._waiting(job)
            _abort(queue)
            raise TimeoutError(
                f"job {job.number} ({job.name}) did not end within {limit} cycles and was aborted; "
                f"{'; '.join(waiting)}. The device is usable; give timeout_cycles= more cycles if the job is only long",
                waiting=waiting)
        with device._bus():
            device.simulator.run(left)
        status = device.regs.control.irq_status
        device.regs.control.irq_status = status
        for other in queues._open.values():
            if other is not queue and status >> other.index & 1:
                other._collect()
                other._push()


def _abort(queue: "Queue") -> None:
    """End all parts that still run, and open the queue again. If even that hangs, reset the hardware."""
    device, registers = queue.device, queue._registers
    registers.command = QueueCommand.ABORT
    quiet = QueueStatus.STOPPED | QueueStatus.QUIET
    end = device.cycle + _DRAIN_CYCLES
    while registers.status & (quiet | QueueStatus.ABORTING) != quiet:
        if device.cycle > end:
            device._reset_hardware()
            return
        with device._bus():
            device.simulator.run(_POLL_CYCLES)
        device.regs.control.irq_status = 1 << queue.index
    try:
        queue._restart()
    except Error:
        device._reset_hardware()
