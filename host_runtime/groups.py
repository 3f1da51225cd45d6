"""Jobs of several tiles: which tiles, what each of them runs, and what the results are put together from."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.compiler import Buffer, Stream
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import DESCRIPTOR, RECORD_BYTES, VERSION, Opcode

from .buffers import Allocator, DeviceArray
from .errors import OutOfMemoryError, UnsupportedError
from .queue import Job

if TYPE_CHECKING:
    from .device import Device

__all__ = ["GroupJob", "Part", "check_tile", "check_group", "check_tiles", "launch", "make_program"]


def check_tile(tile: Any, config: DeviceConfig) -> int:
    """``tile`` as an int. Raises :class:`UnsupportedError` where the device has no such tile."""
    try:
        number = -1 if isinstance(tile, bool) else operator.index(tile)
    except TypeError:
        number = -1
    if not 0 <= number < config.tiles:
        raise UnsupportedError(f"tile = {tile!r}: the device has {config.tiles}, 0..{config.tiles - 1}")
    return number


def check_tiles(tiles: Any, config: DeviceConfig) -> tuple[int, ...]:
    """The tiles that ``tiles`` names; None is all tiles of the device."""
    if tiles is None:
        return tuple(range(config.tiles))
    try:
        chosen = tuple(check_tile(tile, config) for tile in tiles)
    except TypeError:
        chosen = ()
    if not chosen or len(set(chosen)) < len(chosen):
        raise UnsupportedError(f"tiles = {tiles!r}: must list tiles, each once, such as [0, 1] or range(4)")
    return chosen


def check_group(tiles: Any, config: DeviceConfig) -> tuple[int, ...]:
    """The group that ``tiles`` names: neighbours in rising order; None is all tiles of the device."""
    group = check_tiles(tiles, config)
    if group != tuple(range(group[0], group[0] + len(group))):
        raise UnsupportedError(f"tiles = {list(group)}: a group is neighbours on the ring in rising order, such as "
                               f"[{', '.join(map(str, range(min(2, config.tiles))))}]")
    return group


@dataclass
class Part:
    """What one tile of a group runs: a stream, and the address of each buffer that it names."""

    stream: Stream
    addresses: dict[Buffer, int]
    holds: list[DeviceArray] = field(default_factory=list)


class GroupJob(Job):
    """A job that runs on several tiles at once; it starts with the first of them and ends with the last.

    gather: makes the result of the outputs, as numpy arrays or as what stays on the device.
    """

    def __init__(self, device: "Device", number: int, name: str, macs: int, outputs: list[DeviceArray], *,
                 as_numpy: bool, gather: Callable[[list[Any]], Any]) -> None:
        super().__init__(device, number, name, macs, None, as_numpy=as_numpy, shape=())
        self._outputs = outputs
        self._gather = gather
        self.parts: dict[int, DeviceArray] = {}

    @property
    def programs(self) -> dict[int, DeviceArray]:
        return self.parts

    def _value(self) -> Any:
        return self._gather(self._outputs)

    def _collect(self) -> Any:
        return self._gather([output._view for output in self._outputs])

    def _finish(self, error: Any) -> None:
        super()._finish(error)
        self.parts = {}


def make_program(device: "Device", number: int, stream: Stream, addresses: Mapping[Buffer, int],
                 allocator: Allocator, collective: int = 0) -> DeviceArray:
    """Descriptor, commands and an empty completion record, in device memory.

    collective: number of the first of the stream's collectives.
    """
    try:
        program = device._empty(RECORD_BYTES * (stream.commands + 2), np.uint8, allocator)
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"the commands of this job: {error}") from None
    # flits and remote signals of a job that has ended must not reach the next one
    epoch = number & 0xFF if device.config.tiles > 1 else 0
    raw = DESCRIPTOR.encode(version=VERSION, opcode=Opcode.JOB, job=number, commands=stream.commands, epoch=epoch,
                            completion_address=program.address + RECORD_BYTES * (stream.commands + 1))
    program._view[:] = np.frombuffer(raw + stream.bind(addresses, collective) + bytes(RECORD_BYTES), np.uint8)
    return program


def launch(device: "Device", job: GroupJob, parts: Mapping[int, Part]) -> Job:
    """Queue ``job``, tile to part. Its collectives get the next numbers of the device."""
    first = device._next_collectives(max(part.stream.collectives for part in parts.values()))
    for tile, part in parts.items():
        job.holds.extend(part.holds)
        job.parts[tile] = make_program(device, job.number, part.stream, part.addresses, device._allocators[tile],
                                       first)
    for output in job._outputs:
        output._writer = job
    device._jobs.add(job)
    return job
