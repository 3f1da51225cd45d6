"""The rules a MATMUL must keep, checked while the one before it runs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import fault_layout
from ..isa import MATMUL, Code

__all__ = ["MatmulCheck"]


class MatmulCheck(wiring.Component):
    """Judges a command: its fields, then the last address of each operand, one operand a cycle.

    Counts and pitches are unsigned, so no address lies below an operand's first or above its last, which is
    ``base + (count0 - 1) * pitch0 + (count1 - 1) * pitch1``.

    Latency: 4 cycles from the one after ``start`` to ``open`` low. Throughput: one command at a time.

    Members
    -------
    start : In
        ``command`` is a new one from the next cycle on.
    command : In
        Stable while ``open``.
    open : Out
        The command is not found good; it stays high where it is bad.
    bad, fault : Out
        The command breaks a rule; both stay.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(MATMUL.layout),
            "open": Out(1),
            "bad": Out(1),
            "fault": Out(fault_layout()),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        tile, command = self.config.tile, self.command

        bad_field = Signal()
        even = ~command.weight_row_pitch[0] if tile.array.load_rows > 1 else 0
        m.d.comb += bad_field.eq(
            (command.rows == 0) | (command.k_steps == 0) | (command.n_steps == 0) | even
            | self._outside(command.a_zero_point, command.a_signed)
            | self._outside(command.b_zero_point, command.b_signed) & ~command.b_zero_point_table)

        operands = [
            (command.activation, command.rows, command.activation_row_pitch, command.k_steps,
             command.activation_k_pitch, 0, tile.activation_blocks),
            (command.weight, command.k_steps, command.weight_k_pitch, command.n_steps, command.weight_n_pitch,
             command.weight_row_pitch * (tile.array.rows - 1), tile.weight_blocks),
            (command.accumulator, command.n_steps, command.accumulator_n_pitch, command.rows, 1, 0,
             tile.accumulator_words),
            (command.zero_point_base, command.n_steps, 1, 1, 0, 0, tile.zero_point_blocks),
        ]
        operand = Signal(range(len(operands)))
        base, extra, limit = Signal(32), Signal(22), Signal(32)
        count0, pitch0, count1, pitch1 = (Signal(16, name=name) for name in ("count0", "pitch0", "count1", "pitch1"))
        with m.Switch(operand):
            for i, values in enumerate(operands):
                with m.Case(i):
                    m.d.comb += [signal.eq(value) for signal, value in zip(
                        (base, count0, pitch0, count1, pitch1, extra, limit), values, strict=True)]
        last = Signal(36)
        outside = Signal()
        m.d.comb += [
            last.eq(base + (count0 - 1)[:16] * pitch0 + (count1 - 1)[:16] * pitch1 + extra),
            outside.eq((last >= limit) & ((operand != 3) | command.b_zero_point_table)),
        ]
        with m.If(self.open & ~self.bad):
            m.d.sync += operand.eq(operand + 1)
            with m.If((operand == 0) & bad_field):
                m.d.sync += [self.bad.eq(1), self.fault.code.eq(Code.BAD_FIELD), self.fault.address.eq(0)]
            with m.Elif(outside):
                m.d.sync += [self.bad.eq(1), self.fault.code.eq(Code.SCRATCHPAD_RANGE), self.fault.address.eq(last)]
            with m.Elif(operand == 3):
                m.d.sync += self.open.eq(0)
        with m.If(self.start):
            m.d.sync += [self.open.eq(1), operand.eq(0)]
        return m

    @staticmethod
    def _outside(zero_point, is_signed):
        """Whether a zero point does not fit its operand's type: int8 or uint8."""
        high = zero_point[7:]
        return Mux(is_signed, (high != 0) & ~high.all(), zero_point[8:] != 0)
