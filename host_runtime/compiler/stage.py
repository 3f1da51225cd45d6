"""The stream of one tile of a pipeline: micro-batches come from the tile before and go to the next one."""

import dataclasses
from dataclasses import dataclass

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Collective

from .gemm import Buffer, Gemm
from .group import ring_operation
from .plan import make_plan
from .schedule import Operation, schedule
from .stream import ARRIVED, TAKEN, Stream, emit

__all__ = ["SLOTS", "Stage", "compile_stage"]

SLOTS = 2
"""Micro-batches that a tile has room for: one is computed with while the next one arrives."""


@dataclass(frozen=True)
class Stage:
    """Where a tile stands in its pipeline. before, behind: its neighbours; None at the ends."""

    group: tuple[int, ...]
    before: int | None
    behind: int | None


def compile_stage(gemm: Gemm, config: DeviceConfig, stage: Stage) -> Stream:
    """The command stream of a stage; ``gemm`` has one batch a micro-batch.

    The last STORE of a micro-batch tells the next tile that it has arrived. The last LOAD of its rows tells the tile
    before that their place is free; nobody waits for the last :data:`SLOTS` of these, so they are not told, and a
    tile ends with no signal to come. The columns' records stay, so that a STORE has a signal to spare. A barrier makes
    sure that the neighbours' jobs run before they are told anything; the first LOAD waits for it, and all else for
    that.
    """
    plan = make_plan(gemm, config, parameters_stay=True)
    operations = [ring_operation(Collective.BARRIER, stage.group, 0, set())]
    for operation in schedule(gemm, plan, config, parameters_first=True):
        operations.append(dataclasses.replace(operation, after={i + 1 for i in operation.after}))
    operations[1].after.add(0)
    count = len(gemm.batches)
    for batch in range(count):
        own = [o for o in operations[1:] if o.batch == batch]
        loads: list[Operation] = [o for o in own if o.engine == "load" and o.buffer == Buffer.A]
        stores: list[Operation] = [o for o in own if o.engine == "store"]
        if stage.before is not None:
            loads[0].waits += (ARRIVED,)
            if batch + SLOTS < count:
                loads[-1].tells += ((stage.before, TAKEN),)
        if stage.behind is not None:
            if batch >= SLOTS:
                stores[0].waits += (TAKEN,)
            stores[-1].tells += ((stage.behind, ARRIVED),)
    return emit(operations)
