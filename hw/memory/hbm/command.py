"""The command bus between a controller and its DRAM."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...shaped import ShapedIntEnum
from ..port import BEAT_BITS, COMMAND_BITS, STROBE_BITS
from .address import AddressMap

__all__ = ["RowOp", "ColumnOp", "CommandBus", "COMMAND_WORD"]


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


COMMAND_WORD = data.FlexibleLayout(COMMAND_BITS, {
    "row_op": data.Field(3, 0), "column_op": data.Field(2, 3), "row_bank": data.Field(8, 8),
    "column_bank": data.Field(8, 16), "row": data.Field(24, 24), "column": data.Field(16, 48),
})
"""The command bus of a cycle in one word: 0 in its low five bits where it shows no command."""


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
