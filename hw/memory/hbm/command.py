"""The command bus between a controller and its DRAM."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...shaped import ShapedIntEnum
from ..port import BEAT_BITS, STROBE_BITS
from .address import AddressMap

__all__ = ["RowOp", "ColumnOp", "CommandBus"]


class RowOp(ShapedIntEnum, shape=3):
    """Commands of the row bus."""

    NONE = 0
    ACT = 1
    PRE = 2
    PREA = 3    # every bank
    REFPB = 4   # refresh one bank
    REFAB = 5   # refresh all banks


class ColumnOp(ShapedIntEnum, shape=2):
    """Commands of the column bus."""

    NONE = 0
    RD = 1
    WR = 2


class CommandBus(wiring.Signature):
    """One pseudo-channel's wires, as the controller sees them; every output comes from a register or a memory.

    A command stands for one cycle, ``t``. A write's whole burst is on ``write_data`` in the last cycle of its burst,
    ``t + cwl + burst_clocks - 1``, a read's on ``read_data`` in ``t + cl + burst_clocks - 1``. ``column`` counts
    32-byte beats.
    """

    def __init__(self, address: AddressMap) -> None:
        self.address = address
        super().__init__({
            "row_op": Out(RowOp),
            "row_bank": Out(address.bank_bits),
            "row": Out(address.row_bits),
            "column_op": Out(ColumnOp),
            "column_bank": Out(address.bank_bits),
            "column": Out(address.column_bits),
            "write_data": Out(BEAT_BITS),
            "strobe": Out(STROBE_BITS),
            "read_data": In(BEAT_BITS),
        })
