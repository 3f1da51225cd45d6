"""The stream of one tile of a group: what it gets over the ring first, its product, and the sum over the tiles."""

import dataclasses
from dataclasses import dataclass

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Collective

from .gemm import Buffer, Gemm
from .plan import make_plan
from .schedule import Operation, schedule
from .stream import Stream, emit
from .transfer import Conversion, Place, Transfers

__all__ = ["Broadcast", "Reduction", "compile_part", "ring_operation"]


@dataclass(frozen=True)
class Broadcast:
    """An operand of one tile that all tiles of the group get before their product: ``size`` bytes of ``root``."""

    buffer: Buffer
    root: int
    size: int


@dataclass(frozen=True)
class Reduction:
    """The product is a part of the sum over K: it goes to SUMS, and the sum over the group to TOTALS.

    pitch: bytes from one tile's piece of the sums to the next; 0: every tile gets the whole, ``size`` bytes. Then
    ``rows`` x ``columns`` of the totals, from ``source`` on, become the result; rows 0: they are left as they are.
    """

    size: int
    pitch: int
    rows: int = 0
    columns: int = 0
    source: Place = Place(Buffer.TOTALS)
    target: Place = Place(Buffer.C)
    conversion: Conversion = Conversion()
    first_column: int = 0


def ring_operation(operation: Collective, group: tuple[int, ...], number: int, after: set[int],
                   source: Buffer | None = None, destination: Buffer | None = None, **fields: int) -> Operation:
    """A RING command of ``group``; number: how many collectives of the stream are before it."""
    return Operation("ring", {"operation": operation, "first": group[0], "size": len(group), "number": number,
                              **fields}, after, source, destination)


def compile_part(gemm: Gemm, config: DeviceConfig, group: tuple[int, ...] = (), broadcasts: tuple[Broadcast, ...] = (),
                 reduction: Reduction | None = None) -> Stream:
    """The command stream of one tile."""
    operations: list[Operation] = []
    for broadcast in broadcasts:
        operations.append(ring_operation(
            Collective.BROADCAST, group, len(operations), set(), Buffer.SOURCE_A if broadcast.buffer == Buffer.A
            else Buffer.SOURCE_B, broadcast.buffer, root=broadcast.root, bytes=broadcast.size))
    shift = len(operations)
    arrives = {broadcast.buffer: i for i, broadcast in enumerate(broadcasts)}
    for operation in schedule(gemm, make_plan(gemm, config), config):
        after = {i + shift for i in operation.after}
        if operation.engine == "load" and operation.buffer in arrives:
            after.add(arrives[operation.buffer])
        buffer = Buffer.SUMS if reduction and operation.engine == "store" else operation.buffer
        operations.append(dataclasses.replace(operation, after=after, buffer=buffer))
    if reduction:
        _reduce(operations, config, group, shift, reduction)
    return emit(operations)


def _reduce(operations: list[Operation], config: DeviceConfig, group: tuple[int, ...], number: int,
            reduction: Reduction) -> None:
    last = max(i for i, operation in enumerate(operations) if operation.engine == "store")
    kind = Collective.REDUCE_SCATTER if reduction.pitch else Collective.ALL_REDUCE
    operations.append(ring_operation(kind, group, number, {last}, Buffer.SUMS, Buffer.TOTALS, bytes=reduction.size,
                                     pitch=reduction.pitch))
    if reduction.rows and reduction.columns:
        Transfers(operations, config).add(
            reduction.source, reduction.target, rows=reduction.rows, columns=reduction.columns,
            after={len(operations) - 1}, conversion=reduction.conversion, first_column=reduction.first_column)
