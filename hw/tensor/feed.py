"""The operand feed: bytes from the scratchpads become the array's 9-bit differences from the zero points."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .sequencers import activation_read_layout, weight_read_layout

__all__ = ["OperandFeed"]


def _extended(byte, is_signed):
    """A byte of either type as a 9-bit signed value."""
    return Cat(byte, byte[-1] & is_signed).as_signed()


class OperandFeed(wiring.Component):
    """Subtracts the zero points: ``activation - zero_point`` and ``weight - zero_point[column]``.

    Both operands may be int8 or uint8, and a zero point has its operand's type, so that a difference lies in
    -255..255. Each read's layout says how; the scratchpads' blocks follow one cycle after it.

    Latency: 2 cycles from a read to the array. Throughput: one row of activations and one group of weights a cycle.

    Members
    -------
    activation_read, weight_read : In
        What the scratchpads read in this cycle.
    activation_block, weight_blocks, zero_point_block : In
        What they read in the last one.
    plane, activations, load, load_plane, weights : Out
        As :class:`SystolicArray` takes them.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        array = config.tile.array
        super().__init__({
            "activation_read": In(activation_read_layout(config)),
            "weight_read": In(weight_read_layout(config)),
            "activation_block": In(8 * array.rows),
            "weight_blocks": In(8 * array.columns * array.load_rows),
            "zero_point_block": In(8 * array.columns),
            "plane": Out(1),
            "activations": Out(signed(9)).array(array.rows),
            "load": Out(array.load_cycles),
            "load_plane": Out(1),
            "weights": Out(signed(9)).array(array.columns, array.load_rows),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        array = self.config.tile.array
        activation = Signal.like(self.activation_read)
        weight = Signal.like(self.weight_read)
        m.d.sync += [activation.eq(self.activation_read), weight.eq(self.weight_read)]

        m.d.sync += self.load.eq(weight.load)
        with m.If(activation.valid):
            m.d.sync += self.plane.eq(activation.plane)
            m.d.sync += [
                self.activations[r].eq(
                    _extended(self.activation_block.word_select(r, 8), activation.signed) - activation.zero_point)
                for r in range(array.rows)]
        with m.If(weight.load.any()):
            m.d.sync += self.load_plane.eq(weight.plane)
            for c in range(array.columns):
                zero_point = Mux(weight.table, _extended(self.zero_point_block.word_select(c, 8), weight.signed),
                                 weight.zero_point)
                m.d.sync += [
                    self.weights[c][lane].eq(_extended(
                        self.weight_blocks.word_select(lane * array.columns + c, 8), weight.signed) - zero_point)
                    for lane in range(array.load_rows)]
        return m
