"""The loops of a MATMUL: weight tiles, and the rows of A that go through each."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..isa import MATMUL
from .accumulators import update_layout

__all__ = ["WeightSequencer", "ActivationSequencer", "weight_read_layout", "activation_read_layout"]


def _bits(count: int) -> int:
    return (count - 1).bit_length()


def weight_read_layout(config: DeviceConfig) -> data.StructLayout:
    """One group of weight rows. load: one-hot, the group, 0 for none. table: take ``zero_point_address``'s block."""
    tile = config.tile
    return data.StructLayout({
        "load": tile.array.load_cycles, "plane": 1,
        "address": _bits(tile.weight_blocks), "pitch": _bits(tile.weight_blocks),
        "signed": 1, "zero_point": signed(9), "table": 1, "zero_point_address": _bits(tile.zero_point_blocks)})


def activation_read_layout(config: DeviceConfig) -> data.StructLayout:
    """One row of A for the array."""
    return data.StructLayout({
        "valid": 1, "plane": 1, "address": _bits(config.tile.activation_blocks),
        "signed": 1, "zero_point": signed(9)})


class WeightSequencer(wiring.Component):
    """Reads the weight tiles of commands in their order, n outside, k inside, a group of rows a cycle.

    A tile's first group waits until every tile before it is in use (``take``, in the same cycle is soon enough), for
    there are two planes; ``ready`` says that a whole tile waits for its first row of A.

    Latency: the first group in the cycle after ``start``. Throughput: a tile every ``load_cycles`` cycles.

    Members
    -------
    start, command : In
        A new command; only in a cycle with ``idle``.
    idle : Out
        No group is left after this cycle.
    take : In
        The waiting tile is used from this cycle on; only with ``ready``.
    ready : Out
    read : Out
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(MATMUL.layout),
            "idle": Out(1, init=1),
            "take": In(1),
            "ready": Out(1),
            "read": Out(weight_read_layout(config)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        tile = self.config.tile
        groups = tile.array.load_cycles
        address_bits, zero_point_bits = _bits(tile.weight_blocks), _bits(tile.zero_point_blocks)

        running = Signal()
        group = Signal(groups, init=1)
        address, tile_start, column_start = (Signal(address_bits, name=name, reset_less=True)
                                             for name in ("address", "tile_start", "column_start"))
        row_pitch, group_pitch, k_pitch, n_pitch = (Signal(address_bits, name=name, reset_less=True)
                                                    for name in ("row_pitch", "group_pitch", "k_pitch", "n_pitch"))
        k_steps, k_left, n_left = (Signal(16, name=name, reset_less=True) for name in ("k_steps", "k_left", "n_left"))
        plane = Signal()
        zero_point_address = Signal(zero_point_bits, reset_less=True)
        is_signed, table = Signal(reset_less=True), Signal(reset_less=True)
        zero_point = Signal(signed(9), reset_less=True)

        issue, tile_end, command_end = Signal(), Signal(), Signal()
        m.d.comb += [
            issue.eq(running & (~group[0] | ~self.ready | self.take)),
            tile_end.eq(issue & group[-1]),
            command_end.eq(tile_end & (k_left == 1) & (n_left == 1)),
            self.idle.eq(~running | command_end),
        ]
        with m.If(issue):
            m.d.comb += self.read.load.eq(group)
            m.d.sync += [group.eq(group.rotate_left(1)), address.eq(address + group_pitch)]
        m.d.comb += [
            self.read.plane.eq(plane), self.read.address.eq(address), self.read.pitch.eq(row_pitch),
            self.read.signed.eq(is_signed), self.read.zero_point.eq(zero_point), self.read.table.eq(table),
            self.read.zero_point_address.eq(zero_point_address),
        ]
        with m.If(tile_end):
            m.d.sync += [plane.eq(~plane), self.ready.eq(1)]
            with m.If(k_left == 1):
                m.d.sync += [
                    k_left.eq(k_steps), n_left.eq(n_left - 1), zero_point_address.eq(zero_point_address + 1),
                    address.eq(column_start + n_pitch), tile_start.eq(column_start + n_pitch),
                    column_start.eq(column_start + n_pitch),
                ]
            with m.Else():
                m.d.sync += [
                    k_left.eq(k_left - 1), address.eq(tile_start + k_pitch), tile_start.eq(tile_start + k_pitch),
                ]
        with m.Elif(self.take):
            m.d.sync += self.ready.eq(0)
        with m.If(command_end):
            m.d.sync += running.eq(0)
        with m.If(self.start):
            m.d.sync += [
                running.eq(1), k_steps.eq(self.command.k_steps), k_left.eq(self.command.k_steps),
                n_left.eq(self.command.n_steps), address.eq(self.command.weight), tile_start.eq(self.command.weight),
                column_start.eq(self.command.weight), row_pitch.eq(self.command.weight_row_pitch),
                group_pitch.eq(self.command.weight_row_pitch * tile.array.load_rows),
                k_pitch.eq(self.command.weight_k_pitch), n_pitch.eq(self.command.weight_n_pitch),
                is_signed.eq(self.command.b_signed), table.eq(self.command.b_zero_point_table),
                zero_point.eq(self.command.b_zero_point), zero_point_address.eq(self.command.zero_point_base),
            ]
        return m


class ActivationSequencer(wiring.Component):
    """Sends the rows of A of commands through their weight tiles, in the weight sequencer's order, a row a cycle.

    Latency: the first row in the cycle after ``start``, once ``ready`` and not ``hold``. Throughput: one row a cycle.

    Members
    -------
    start, command : In
        A new command; only in a cycle with ``idle``.
    idle : Out
        No row is left after this cycle.
    hold : In
        The command must not begin yet.
    ready : In
        A weight tile waits.
    take : Out
        It is used from this cycle on.
    waiting : Out
        A row waits for its weight tile.
    read : Out
    update : Out
        Where the sums of ``read``'s row go.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "start": In(1),
            "command": In(MATMUL.layout),
            "idle": Out(1, init=1),
            "hold": In(1),
            "ready": In(1),
            "take": Out(1),
            "waiting": Out(1),
            "read": Out(activation_read_layout(config)),
            "update": Out(update_layout(config.tile)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        tile = self.config.tile
        address_bits, word_bits = _bits(tile.activation_blocks), _bits(tile.accumulator_words)

        running, plane = Signal(), Signal()
        begin, first_k, accumulate = Signal(), Signal(), Signal()
        base, address, tile_start, row_pitch, k_pitch = (
            Signal(address_bits, name=name, reset_less=True)
            for name in ("base", "address", "tile_start", "row_pitch", "k_pitch"))
        word, column_word, n_pitch = (Signal(word_bits, name=name, reset_less=True)
                                      for name in ("word", "column_word", "n_pitch"))
        rows, rows_left, k_steps, k_left, n_left = (
            Signal(16, name=name, reset_less=True) for name in ("rows", "rows_left", "k_steps", "k_left", "n_left"))
        is_signed, zero_point = Signal(reset_less=True), Signal(signed(9), reset_less=True)

        issue, tile_end, command_end = Signal(), Signal(), Signal()
        m.d.comb += [
            issue.eq(running & (~begin | self.ready & ~self.hold)),
            self.take.eq(issue & begin),
            self.waiting.eq(running & begin & ~self.ready & ~self.hold),
            tile_end.eq(issue & (rows_left == 1)),
            command_end.eq(tile_end & (k_left == 1) & (n_left == 1)),
            self.idle.eq(~running | command_end),
            self.read.valid.eq(issue), self.read.plane.eq(plane), self.read.address.eq(address),
            self.read.signed.eq(is_signed), self.read.zero_point.eq(zero_point),
            self.update.valid.eq(issue), self.update.address.eq(word), self.update.last.eq(command_end),
            self.update.overwrite.eq(first_k & ~accumulate),
        ]
        with m.If(issue):
            m.d.sync += [rows_left.eq(rows_left - 1), address.eq(address + row_pitch), word.eq(word + 1), begin.eq(0)]
        with m.If(tile_end):
            m.d.sync += [plane.eq(~plane), rows_left.eq(rows), begin.eq(1)]
            with m.If(k_left == 1):
                m.d.sync += [
                    k_left.eq(k_steps), n_left.eq(n_left - 1), first_k.eq(1), address.eq(base), tile_start.eq(base),
                    word.eq(column_word + n_pitch), column_word.eq(column_word + n_pitch),
                ]
            with m.Else():
                m.d.sync += [
                    k_left.eq(k_left - 1), first_k.eq(0), word.eq(column_word),
                    address.eq(tile_start + k_pitch), tile_start.eq(tile_start + k_pitch),
                ]
        with m.If(command_end):
            m.d.sync += running.eq(0)
        with m.If(self.start):
            m.d.sync += [
                running.eq(1), begin.eq(1), first_k.eq(1), accumulate.eq(self.command.accumulate),
                rows.eq(self.command.rows), rows_left.eq(self.command.rows), k_steps.eq(self.command.k_steps),
                k_left.eq(self.command.k_steps), n_left.eq(self.command.n_steps), base.eq(self.command.activation),
                address.eq(self.command.activation), tile_start.eq(self.command.activation),
                row_pitch.eq(self.command.activation_row_pitch), k_pitch.eq(self.command.activation_k_pitch),
                word.eq(self.command.accumulator), column_word.eq(self.command.accumulator),
                n_pitch.eq(self.command.accumulator_n_pitch), is_signed.eq(self.command.a_signed),
                zero_point.eq(self.command.a_zero_point),
            ]
        return m
