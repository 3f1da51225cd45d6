"""Devices of several tiles on the functional simulator, every job of a group checked before it runs."""

import ringloom as rl
from ringloom.compiler.checker import Region, check_group
from ringloom.groups import GroupJob
from ringloom.hw.isa import RECORD_BYTES
from ringloom.sim.functional import FunctionalSimulator
from tests.support.bare import bare


def regions_of(job: GroupJob) -> list[Region]:
    """What a job may touch: its operands and results up to whole flits; read and written in the order it keeps."""
    programs = {program.address for program in job.parts.values()}
    held = {array.address: array.nbytes for array in job.memory if array.address not in programs}
    return [Region(address, -(-size // 64) * 64, shared=True) for address, size in held.items() if size]


def streams_of(job: GroupJob) -> dict[int, bytes]:
    """The command records of each tile."""
    return {tile: program._view[RECORD_BYTES:-RECORD_BYTES].tobytes() for tile, program in job.parts.items()}


def tiles(count: int, *, seed: int | None = None, **overrides) -> rl.Device:
    """A tiny device of ``count`` tiles; seed: the order of tiles and engines is random within what they wait for."""
    config = bare("tiny", {"tiles": count} | overrides)
    device = rl.Device(config, FunctionalSimulator(config, seed=seed))
    add = device._jobs.add

    def checked(job) -> None:
        if isinstance(job, GroupJob):
            check_group(streams_of(job), regions_of(job), config)
        add(job)

    device._jobs.add = checked  # type: ignore[method-assign]
    return device
