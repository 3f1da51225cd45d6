"""Block geometry of the LOAD targets, and the bus on which LOAD writes them."""

from dataclasses import dataclass

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from ..config import DeviceConfig
from ..isa import COLUMN, Target

__all__ = ["BlockShape", "block_shapes", "write_bus_bytes", "BlockWrite"]


@dataclass(frozen=True)
class BlockShape:
    """One target: ``bytes`` a block, ``blocks`` of them, at most ``per_write`` in one cycle, in ``banks`` banks.

    ``per_write`` is a power of two. Blocks of one write lie ``pitch`` apart, and that pitch is odd wherever more
    than one is written, so that they fall into different banks.
    """

    bytes: int
    blocks: int
    per_write: int
    banks: int


def _power(value: int) -> int:
    return 1 << (value - 1).bit_length()


def block_shapes(config: DeviceConfig) -> dict[Target, BlockShape]:
    """The shape of every LOAD target. A block whose size is not a power of two is written one a cycle."""
    tile, line = config.tile, config.line_bytes

    def shape(bytes: int, blocks: int, reads: int, single: bool = False) -> BlockShape:
        per_write = max(1, line // bytes) if bytes & (bytes - 1) == 0 and not single else 1
        per_write = min(per_write, blocks)
        return BlockShape(bytes, blocks, per_write, min(blocks, max(per_write, _power(reads))))

    return {
        Target.ACTIVATION: shape(tile.array.rows, tile.activation_blocks, 1),
        Target.WEIGHT: shape(tile.array.columns, tile.weight_blocks, tile.array.load_rows),
        Target.ACCUMULATOR: shape(4 * tile.array.columns, tile.accumulator_words, 1, single=True),
        Target.PARAMETER: shape(COLUMN.bytes, tile.parameter_records, tile.lanes),
        Target.ZERO_POINT: shape(tile.array.columns, tile.zero_point_blocks, 1, single=True),
    }


def write_bus_bytes(config: DeviceConfig) -> int:
    """Bytes of the widest write to any target."""
    return max(s.bytes * s.per_write for s in block_shapes(config).values())


class BlockWrite(wiring.Signature):
    """LOAD's write bus, as LOAD sees it; every target always takes it, in the cycle ``valid`` is high.

    Block i of ``count`` lies at bytes ``i * shape.bytes`` of ``data`` and goes to block address
    ``address + i * pitch``. For the accumulators the banks that MATMUL updates are refused by the compiler's
    rules, not here.
    """

    def __init__(self, config: DeviceConfig) -> None:
        shapes = block_shapes(config).values()
        bits = max(s.blocks for s in shapes).bit_length()
        super().__init__({
            "valid": Out(1),
            "target": Out(Target),
            "address": Out(bits),
            "pitch": Out(bits),
            "count": Out(max(s.per_write for s in shapes).bit_length()),
            "data": Out(8 * write_bus_bytes(config)),
        })
