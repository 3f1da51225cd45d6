"""How STORE reads accumulators and column parameters."""

from amaranth.hdl import signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..isa import COLUMN

__all__ = ["AccumulatorRead", "ParameterRead"]


class AccumulatorRead(wiring.Signature):
    """Reads of whole accumulator words, as STORE sees them.

    A read happens in a cycle with ``valid`` and ``ready``; ``data`` shows the word's columns for the whole next
    cycle, and only for that. ``ready`` is low while MATMUL uses the read port of the word's bank; it may look at
    ``valid`` and ``address``.
    """

    def __init__(self, config: DeviceConfig) -> None:
        super().__init__({
            "valid": Out(1),
            "address": Out((config.tile.accumulator_words - 1).bit_length()),
            "ready": In(1),
            "data": In(data.ArrayLayout(signed(32), config.tile.array.columns)),
        })


class ParameterRead(wiring.Signature):
    """Reads of ``lanes`` column records from ``address`` on, as STORE sees them; never held back.

    ``data`` shows the records for the whole cycle after one with ``enable``.
    """

    def __init__(self, config: DeviceConfig) -> None:
        super().__init__({
            "enable": Out(1),
            "address": Out((config.tile.parameter_records - 1).bit_length()),
            "data": In(data.ArrayLayout(COLUMN.layout, config.tile.lanes)),
        })
