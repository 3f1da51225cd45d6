"""The order in which LOAD goes through a command's rows; LOAD's front and its back walk the same way."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..isa import LOAD, Target
from .blocks import block_shapes

__all__ = ["RowWalker", "BLOCK_BITS"]

BLOCK_BITS = 33
"""Bits of a block address before it is checked: no step from a checked address can wrap them."""


class RowWalker(wiring.Component):
    """Steps through planes and rows of a LOAD, or, transposed, through pieces of its rows.

    Straight: plane, row; a step is a whole row. Transposed: plane, group of T rows (T = bytes of a block), piece of
    ``line_bytes`` positions, row of the group; a step is one piece of one row. One step a cycle, the next command
    follows the last step without a bubble.

    Parameters
    ----------
    config : DeviceConfig
    address_bits : int
        Low bits of the byte address to follow.

    Members
    -------
    commands : In(stream of LOAD records)
    step : In, the shown piece is done with
    active : Out, a piece is shown
    first : Out, high in a command's first cycle alone
    command : Out, the record
    address, bytes : Out, the piece's place in memory; no bytes where all of it is padding
    last : Out, the command's last piece
    block : Out, where the piece's first block goes
    lane, lane_end, positions : Out, transposed: row in the group, last of it, byte positions of this piece
    """

    def __init__(self, *, config: DeviceConfig, address_bits: int) -> None:
        self._config, self._address_bits = config, address_bits
        super().__init__({
            "commands": In(stream.Signature(LOAD.layout)),
            "step": In(1),
            "active": Out(1),
            "first": Out(1),
            "command": Out(LOAD.layout),
            "address": Out(address_bits),
            "bytes": Out(32),
            "last": Out(1),
            "block": Out(BLOCK_BITS),
            "lane": Out(6),
            "lane_end": Out(1),
            "positions": Out(range(config.line_bytes + 1)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        shapes, width = block_shapes(self._config), self._config.line_bytes
        command, new = self.command, self.commands.p
        row, group_row, plane = Signal(16), Signal(16), Signal(16)
        plane_address, piece_address = Signal(self._address_bits), Signal(self._address_bits)
        next_group = Signal(self._address_bits)
        plane_block, group_block = Signal(BLOCK_BITS), Signal(BLOCK_BITS)
        positions_left, bytes_left = Signal(16), Signal(16)
        first_piece = Signal()

        row_last, plane_last, piece_last, in_memory = Signal(), Signal(), Signal(), Signal()
        lanes = Mux(command.target == Target.ACTIVATION, shapes[Target.ACTIVATION].bytes, shapes[Target.WEIGHT].bytes)
        after, group_after = Signal(self._address_bits), Signal(self._address_bits)
        piece_after, plane_after = Signal(self._address_bits), Signal(self._address_bits)
        group_block_after, plane_block_after = Signal(BLOCK_BITS), Signal(BLOCK_BITS)
        kept = Signal(16)  # transposed: byte positions of a row that lie in memory and are asked for
        taken = Signal()
        m.d.comb += [
            row_last.eq(row == command.rows - 1),
            plane_last.eq(plane == command.planes - 1),
            piece_last.eq(~command.transpose | (positions_left <= width)),
            self.lane_end.eq(~command.transpose | row_last | (self.lane == lanes - 1)),
            self.last.eq(row_last & piece_last & plane_last),
            in_memory.eq((row >= command.pad_top) & (row + command.pad_bottom < command.rows)),
            self.positions.eq(Mux(positions_left < width, positions_left, width)),
            kept.eq(Mux(command.row_bytes < command.row_blocks, command.row_bytes, command.row_blocks)),
            after.eq(self.address + Mux(in_memory, command.row_stride, 0)),
            group_after.eq(Mux(first_piece, after, next_group)),
            piece_after.eq(piece_address + width),
            plane_after.eq(plane_address + command.plane_stride),
            group_block_after.eq(group_block + command.row_pitch),
            plane_block_after.eq(plane_block + command.plane_pitch),
            self.commands.ready.eq(~self.active | (self.step & self.last)),
            taken.eq(self.commands.valid & self.commands.ready),
        ]
        with m.If(in_memory):
            with m.If(~command.transpose):
                m.d.comb += self.bytes.eq(command.row_bytes)
            with m.Else():
                m.d.comb += self.bytes.eq(Mux(bytes_left < width, bytes_left, width))

        m.d.sync += self.first.eq(taken)
        with m.If(taken):
            m.d.sync += [
                self.active.eq(1), command.eq(new), row.eq(0), group_row.eq(0), plane.eq(0),
                self.address.eq(new.address), plane_address.eq(new.address), piece_address.eq(new.address),
                self.block.eq(new.destination), group_block.eq(new.destination), plane_block.eq(new.destination),
                self.lane.eq(0), first_piece.eq(1), positions_left.eq(new.row_blocks),
                bytes_left.eq(Mux(new.row_bytes < new.row_blocks, new.row_bytes, new.row_blocks)),
            ]
        with m.Elif(self.step & self.last):
            m.d.sync += self.active.eq(0)
        with m.Elif(self.step & ~self.lane_end):
            m.d.sync += [row.eq(row + 1), self.lane.eq(self.lane + 1), self.address.eq(after)]
        with m.Elif(self.step & ~piece_last):
            # The same rows again, further along: only the first pass knows where the next group starts.
            m.d.sync += [
                row.eq(group_row), self.lane.eq(0), first_piece.eq(0), next_group.eq(group_after),
                self.address.eq(piece_after), piece_address.eq(piece_after),
                self.block.eq(self.block + command.block_pitch * width),
                positions_left.eq(positions_left - width),
                bytes_left.eq(Mux(bytes_left > width, bytes_left - width, 0)),
            ]
        with m.Elif(self.step):
            m.d.sync += [self.lane.eq(0), first_piece.eq(1), positions_left.eq(command.row_blocks),
                         bytes_left.eq(kept)]
            with m.If(~row_last):
                m.d.sync += [
                    row.eq(row + 1), group_row.eq(row + 1),
                    self.address.eq(group_after), piece_address.eq(group_after),
                    self.block.eq(group_block_after), group_block.eq(group_block_after),
                ]
            with m.Else():
                m.d.sync += [
                    row.eq(0), group_row.eq(0), plane.eq(plane + 1),
                    self.address.eq(plane_after), piece_address.eq(plane_after), plane_address.eq(plane_after),
                    self.block.eq(plane_block_after), group_block.eq(plane_block_after),
                    plane_block.eq(plane_block_after),
                ]
        return m
