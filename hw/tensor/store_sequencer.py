"""STORE's address generator: which accumulators to read next, and where in memory their bytes go."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import JobState, fault_layout
from ..isa import STORE, Code, Rounding
from ..memory.line_writer import SLOT_BITS, SLOTS, LineShape, op_layout

__all__ = ["StoreSequencer", "step_layout"]


def step_layout(config: DeviceConfig) -> data.StructLayout:
    """One group of columns, at most ``lanes``, or (``flush``) only the end of a row that is left in the writer.

    read: a new accumulator word is needed. short: the group is the last of its word, which may have fewer columns
    than there are lanes. bytes: those of the group. last: the command's last step.
    """
    tile = config.tile
    return data.StructLayout({
        "flush": 1,
        "read": 1,
        "short": 1,
        "accumulator": (tile.accumulator_words - 1).bit_length(),
        "parameter": (tile.parameter_records - 1).bit_length(),
        "rounding": Rounding,
        "bias": 1,
        "clamp_low": signed(16),
        "clamp_high": signed(16),
        "bytes": LineShape(config).count_bits,
        "last": 1,
        "op": op_layout(config),
    })


class StoreSequencer(wiring.Component):
    """Walks the rows of a command, in each all columns, and checks every group before its accumulators are read.

    Row m, block nb of columns: accumulator word ``accumulator + nb * accumulator_n_pitch + m``. A row's bytes leave
    in order. The first step is offered two cycles after a command was accepted; then one step a cycle, across
    rows, blocks and commands. A row that ends in a line which its last group did not begin leaves a tail in the
    writer: it goes out with the next group that completes no line itself, or by a step of its own.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    commands : In(stream.Signature(STORE.layout))
    room : In(1), a slot is free for one more command
    job : In(JobState)
    steps : Out(stream.Signature(step_layout(config)))
    active : Out(1), a command is being walked
    slot : Out(SLOT_BITS), of that command
    fault_valid, fault : Out, stays until reset; the command in ``slot`` is at fault and gives no more steps
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "commands": In(stream.Signature(STORE.layout)),
            "room": In(1),
            "job": In(JobState(address_bits=config.address_bits)),
            "steps": Out(stream.Signature(step_layout(config))),
            "active": Out(1),
            "slot": Out(SLOT_BITS, init=SLOTS - 1),
            "fault_valid": Out(1),
            "fault": Out(fault_layout()),
        })

    def elaborate(self, platform):
        m = Module()
        tile, shape = self.config.tile, LineShape(self.config)
        lanes, columns = tile.lanes, tile.array.columns
        groups = tile.column_records // lanes
        address_bits = self.config.address_bits
        position_bits = max(address_bits, 32) + 2  # one step beyond the address space, either way, still fits

        # The command.
        command = self.commands.payload
        rounding, bias = Signal(Rounding), Signal()
        clamp_low, clamp_high = Signal(signed(16)), Signal(signed(16))
        stride, n_pitch = Signal(signed(32)), Signal(16)
        row_columns, first_parameter = Signal(32), Signal(16)
        high_address = Signal(64 - address_bits)  # of the first row; nothing but zero lies in memory
        bad_field = Signal()
        # The place in it.
        rows_left, columns_left = Signal(16), Signal(32)
        group = Signal(range(groups))
        row_word, word = Signal(33), Signal(33)
        parameter = Signal(17)
        row_position, position = Signal(signed(position_bits)), Signal(signed(position_bits))
        first_line = Signal()
        # The end of the row before, still in the writer.
        tail, draining = Signal(), Signal()
        tail_line, tail_stop = Signal(shape.line_bits), Signal(shape.stop_bits)

        # The group at hand.
        raw = rounding == Rounding.RAW
        size = Const(columns, 7) if groups == 1 else Mux(group == groups - 1, columns - (groups - 1) * lanes, lanes)
        count = Signal(range(lanes + 1))
        count_bytes = Signal(shape.count_bits)
        offset = position[:shape.offset_bits]
        end = Signal(shape.offset_bits + 2)
        last_group, crosses, completes = Signal(), Signal(), Signal()
        line = position[shape.offset_bits:address_bits]
        m.d.comb += [
            last_group.eq(columns_left <= size),
            count.eq(Mux(last_group, columns_left[:7], size)),
            count_bytes.eq(Mux(raw, count << 2, count)),
            end.eq(offset + count_bytes),
            crosses.eq(end > shape.bytes),
            completes.eq(end >= shape.bytes),
        ]

        # What is wrong with it.
        uses_parameters = bias | ~raw
        after = Signal(signed(position_bits + 1))
        wrong, code, where = Signal(), Signal(Code), Signal(64)
        base, limit = self.job.window_base, self.job.window_limit
        parameter_end = Signal(18)
        m.d.comb += [after.eq(position + count_bytes), parameter_end.eq(parameter + count), wrong.eq(1)]
        with m.If(bad_field):
            m.d.comb += code.eq(Code.BAD_FIELD)
        with m.Elif(word >= tile.accumulator_words):
            m.d.comb += [code.eq(Code.SCRATCHPAD_RANGE), where.eq(word)]
        with m.Elif(uses_parameters & (parameter_end > tile.parameter_records)):
            m.d.comb += [code.eq(Code.SCRATCHPAD_RANGE), where.eq(parameter_end - 1)]
        with m.Elif(high_address.any()):
            m.d.comb += [code.eq(Code.MEMORY_WINDOW), where.eq(Cat(position[:address_bits], high_address))]
        with m.Elif((position < base) | (position >= limit)):
            m.d.comb += [code.eq(Code.MEMORY_WINDOW), where.eq(position)]
        with m.Elif(after > limit):
            m.d.comb += [code.eq(Code.MEMORY_WINDOW), where.eq(limit)]
        with m.Else():
            m.d.comb += wrong.eq(0)

        # The step.
        step, valid = Signal(step_layout(self.config)), Signal()
        advance = Signal()
        flush, finishing = Signal(), Signal()
        emits = completes | last_group
        m.d.comb += [
            self.steps.valid.eq(valid),
            self.steps.payload.eq(step),
            advance.eq(self.active & ~self.fault_valid & (~valid | self.steps.ready)),
            flush.eq(draining | (tail & emits)),
            finishing.eq(draining | (~flush & ~wrong & last_group & (rows_left == 1) & ~crosses)),
        ]
        with m.If(self.steps.ready):
            m.d.sync += valid.eq(0)
        with m.If(advance):
            with m.If(wrong & ~draining):
                m.d.sync += [self.fault_valid.eq(1), self.fault.code.eq(code), self.fault.address.eq(where)]
            with m.Else():
                m.d.sync += [
                    valid.eq(1),
                    step.flush.eq(flush),
                    step.read.eq(~flush & (group == 0)),
                    step.short.eq(group == groups - 1),
                    step.accumulator.eq(word),
                    step.parameter.eq(parameter),
                    step.rounding.eq(rounding),
                    step.bias.eq(bias),
                    step.clamp_low.eq(clamp_low),
                    step.clamp_high.eq(clamp_high),
                    step.bytes.eq(Mux(flush, 0, count_bytes)),
                    step.last.eq(finishing),
                    step.op.slot.eq(self.slot),
                    step.op.offset.eq(offset),
                    step.op.hold.eq(Mux(tail, ~flush, crosses | ~emits)),
                    step.op.emit_held.eq(tail),
                    step.op.emit_merged.eq(~tail & emits),
                    step.op.line.eq(Mux(tail, tail_line, line)),
                    step.op.start.eq(Mux(~tail & first_line, row_position[:shape.offset_bits], 0)),
                    step.op.stop.eq(Mux(tail, tail_stop, Mux(completes, shape.bytes, end))),
                    tail.eq(~flush & last_group & crosses),
                ]
                with m.If(~flush):
                    with m.If(last_group):
                        row_after = Signal.like(row_position)
                        m.d.comb += row_after.eq(row_position + stride)
                        m.d.sync += [
                            tail_line.eq(line + 1),
                            tail_stop.eq(end - shape.bytes),
                            rows_left.eq(rows_left - 1),
                            columns_left.eq(row_columns),
                            group.eq(0),
                            row_word.eq(row_word + 1),
                            word.eq(row_word + 1),
                            parameter.eq(first_parameter),
                            row_position.eq(row_after),
                            position.eq(row_after),
                            high_address.eq(0),
                            first_line.eq(1),
                            draining.eq((rows_left == 1) & crosses),
                        ]
                    with m.Else():
                        m.d.sync += [
                            columns_left.eq(columns_left - size),
                            parameter.eq(parameter + lanes),
                            position.eq(after),
                            group.eq(group + 1),
                        ]
                        with m.If(completes):
                            m.d.sync += first_line.eq(0)
                        with m.If(group == groups - 1):
                            m.d.sync += [group.eq(0), word.eq(word + n_pitch)]
                with m.If(finishing):
                    m.d.sync += [self.active.eq(0), draining.eq(0)]

        m.d.comb += self.commands.ready.eq(
            self.room & ~self.fault_valid & (~self.active | (advance & finishing)))
        with m.If(self.commands.valid & self.commands.ready):
            m.d.sync += [
                self.active.eq(1),
                self.slot.eq(self.slot + 1),
                rounding.eq(command.rounding),
                bias.eq(command.bias),
                clamp_low.eq(command.clamp_low),
                clamp_high.eq(command.clamp_high),
                stride.eq(command.row_stride),
                n_pitch.eq(command.accumulator_n_pitch),
                row_columns.eq(command.columns),
                columns_left.eq(command.columns),
                rows_left.eq(command.rows),
                group.eq(0),
                row_word.eq(command.accumulator),
                word.eq(command.accumulator),
                first_parameter.eq(command.parameter),
                parameter.eq(command.parameter),
                row_position.eq(command.address[:address_bits]),
                position.eq(command.address[:address_bits]),
                high_address.eq(command.address[address_bits:]),
                first_line.eq(1),
                bad_field.eq(
                    (command.rows == 0) | (command.columns == 0) | command.per_row_scale | command.residual
                    | (command.rounding > max(Rounding))
                    | ((command.rounding != Rounding.RAW) & (command.clamp_low > command.clamp_high))),
            ]
        return m
