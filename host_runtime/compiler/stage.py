"""The stream of one tile of a pipeline: micro-batches come from the tile before and go to the next one."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Collective

from .gemm import Buffer, Gemm
from .group import ring_operation
from .plan import make_plan
from .schedule import Operation, schedule
from .stream import ARRIVED, TAKEN, Stream, emit

__all__ = ["SLOTS", "Stage", "StageLayer", "compile_stage"]

SLOTS = 2
"""Micro-batches that a tile has room for: one is computed with while the next one arrives."""


@dataclass(frozen=True)
class Stage:
    """Where a tile stands in its pipeline. before, behind: its neighbours; None at the ends."""

    group: tuple[int, ...]
    before: int | None
    behind: int | None


@dataclass(frozen=True)
class StageLayer:
    """A layer of a tile; ``gemm`` has one batch a micro-batch. places: where its buffers really are, where they are not
    those of the same name alone: buffer to (buffer, bytes from its start)."""

    gemm: Gemm
    places: Mapping[Buffer, tuple[Buffer, int]] = field(default_factory=dict)


def compile_stage(layers: Sequence[StageLayer], config: DeviceConfig, stage: Stage) -> Stream:
    """The command stream of a tile.

    The last STORE of a micro-batch tells the next tile that it has arrived. The last LOAD of its rows tells the tile
    before that their place is free; nobody waits for the last :data:`SLOTS` of these, so they are not told, and a
    tile ends with no signal to come. The columns' records stay, so that a STORE has a signal to spare. A barrier makes
    sure that the neighbours' jobs run before they are told anything; the first LOAD waits for it, and all else for
    that. Layers that share a tile take turns: one begins when the one before has stored its rows.
    """
    operations = [ring_operation(Collective.BARRIER, stage.group, 0, set())]
    plans = [make_plan(layer.gemm, config, parameters_stay=True) for layer in layers]
    count = len(layers[0].gemm.batches)
    inputs: list[list[Operation]] = [[] for _ in range(count)]   # LOADs of rows from the tile before
    outputs: list[list[Operation]] = [[] for _ in range(count)]  # STOREs to the next one
    turns: Sequence[int | None] = range(count) if len(layers) > 1 else [None]  # one layer: all batches at once
    for turn in turns:
        for i, (layer, plan) in enumerate(zip(layers, plans, strict=True)):
            gemm = layer.gemm
            if turn is not None:
                gemm = dataclasses.replace(gemm, batches=gemm.batches[turn:turn + 1])
            shift = len(operations)
            before = {j for j, operation in enumerate(operations) if operation.engine == "store"}
            for operation in schedule(gemm, plan, config, parameters_first=True):
                after = {j + shift for j in operation.after}
                if len(operations) == shift:
                    after |= {max(before)} if before else {0}
                batch = operation.batch if turn is None else turn
                if operation.engine == "load" and operation.buffer == Buffer.A and i == 0:
                    inputs[batch].append(operation)
                if operation.engine == "store" and i == len(layers) - 1:
                    outputs[batch].append(operation)
                operation.after = after
                if operation.buffer is not None and operation.buffer in layer.places:
                    operation.buffer, offset = layer.places[operation.buffer]
                    operation.fields["address"] += offset
                operations.append(operation)
    for batch, (loads, stores) in enumerate(zip(inputs, outputs, strict=True)):
        if stage.before is not None:
            loads[0].waits += (ARRIVED,)
            if batch + SLOTS < count:
                loads[-1].tells += ((stage.before, TAKEN),)
        if stage.behind is not None:
            if batch >= SLOTS:
                stores[0].waits += (TAKEN,)
            stores[-1].tells += ((stage.behind, ARRIVED),)
    return emit(operations)
