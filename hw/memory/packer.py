"""LOAD's packer: lines of memory at any alignment into blocks, padding included."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import fault_layout
from ..isa import LOAD, Code, Target
from .blocks import block_shapes
from .rob import filled_layout
from .walker import BLOCK_BITS, RowWalker

__all__ = ["Packer", "chunk_layout", "most_parts"]


def most_parts(config: DeviceConfig) -> int:
    """Chunks of the widest block."""
    return max(-(-shape.bytes // config.line_bytes) for shape in block_shapes(config).values())


def chunk_layout(config: DeviceConfig) -> data.StructLayout:
    """Up to a line of bytes for the target, in the order of its blocks.

    data: ``count`` blocks, or part ``part`` of one block that is wider than a line (``whole``: its last part), or,
    transposed, a piece of row ``lane`` of a group (``lane_end``: the group's last row; ``positions`` count).
    done: the command's last chunk.
    """
    line = config.line_bytes
    return data.StructLayout({
        "data": 8 * line, "target": Target, "address": BLOCK_BITS, "pitch": 16,
        "count": range(line + 1), "part": range(most_parts(config) + 1), "whole": 1, "done": 1, "transpose": 1,
        "lane": 6, "lane_end": 1, "positions": range(line + 1), "pad": 8,
    })


class Packer(wiring.Component):
    """Walks the rows as the address generator did, takes their lines and shifts them into place.

    A chunk lies in at most two lines: the one kept from before and the next. Padding is put in where the row has no
    bytes. Latency from a line to its chunk 1 cycle; one chunk a cycle, and one cycle more for each row or piece
    whose first chunk lies in two lines.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    commands : In(stream of LOAD records), checked
    lines : In(stream of filled_layout)
    chunks : Out(stream of chunk_layout)
    bytes : Out, bytes from memory in this cycle's new chunk
    halt : In, make no more chunks
    fault_valid, fault : Out, MEMORY_ERROR of a line; stays; no chunk follows
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "commands": In(stream.Signature(LOAD.layout)),
            "lines": In(stream.Signature(filled_layout(config))),
            "chunks": Out(stream.Signature(chunk_layout(config))),
            "bytes": Out(range(config.line_bytes + 1)),
            "halt": In(1),
            "fault_valid": Out(1),
            "fault": Out(fault_layout()),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        width = self._config.line_bytes
        shift = (width - 1).bit_length()
        m.submodules.walker = walker = RowWalker(config=self._config, address_bits=shift)
        wiring.connect(m, wiring.flipped(self.commands), walker.commands)
        command = walker.command

        # -- where the chunk lies: in the row, in the line, in the target
        begun = Signal()
        size, part, parts, per_write = (Signal(range(width + 1)), Signal(range(most_parts(self._config) + 1)),
                                        Signal(range(most_parts(self._config) + 1)), Signal(range(width + 1)))
        self._geometry(m, command, part, size, parts, per_write)
        position, position_kept = Signal(shift), Signal(shift)
        ahead, ahead_kept = Signal(16), Signal(16)           # bytes of padding from here to the row's first byte
        left, left_kept = Signal(33), Signal(33)             # bytes from here to the row's end
        blocks, blocks_kept = Signal(16), Signal(16)         # blocks still to fill
        address, address_kept = Signal(BLOCK_BITS), Signal(BLOCK_BITS)
        m.d.comb += [
            position.eq(Mux(begun, position_kept, walker.address - command.pad_left)),
            ahead.eq(Mux(begun, ahead_kept, command.pad_left)),
            left.eq(Mux(begun, left_kept, Mux(walker.bytes != 0, command.pad_left + walker.bytes, 0))),
            blocks.eq(Mux(begun, blocks_kept, command.row_blocks)),
            address.eq(Mux(begun, address_kept, walker.block)),
        ]

        # -- which of the two lines it needs
        low, high = Signal(range(width + 1)), Signal(range(width + 1))
        room = Signal(range(width + 1))
        filled, needs_kept, needs_next = Signal(), Signal(), Signal()
        kept_valid, prime, pop, space, out, moves_on = Signal(), Signal(), Signal(), Signal(), Signal(), Signal()
        kept = Signal(8 * width)
        m.d.comb += [
            low.eq(Mux(ahead < size, ahead, size)),
            high.eq(Mux(left < size, left, size)),
            filled.eq(high > low),
            room.eq(width - position),
            needs_kept.eq(filled & (low < room)),
            needs_next.eq(filled & (high > room)),
            prime.eq(needs_kept & needs_next & ~kept_valid),
            pop.eq((needs_kept & ~kept_valid) | needs_next),
            space.eq(~self.chunks.valid | self.chunks.ready),
            self.lines.ready.eq(walker.active & ~self.halt & ~self.fault_valid & pop & (prime | space)),
            out.eq(walker.active & ~self.halt & ~self.fault_valid & space & ~prime
                   & (~pop | (self.lines.valid & ~self.lines.p.error))),
            moves_on.eq(position + size >= width),
        ]
        taken = self.lines.valid & self.lines.ready
        with m.If(taken):
            m.d.sync += [kept.eq(self.lines.p.data), kept_valid.eq(prime | needs_next | ~moves_on)]
            with m.If(self.lines.p.error):
                m.d.sync += [self.fault_valid.eq(1), self.fault.code.eq(Code.MEMORY_ERROR),
                             self.fault.address.eq(self.lines.p.address << shift)]
        with m.Elif(out & moves_on):
            m.d.sync += kept_valid.eq(0)

        # -- the bytes
        shifted, padded, inside = Signal(8 * width), Signal(8 * width), Signal(8 * width)
        pad = command.pad_value.replicate(width)
        m.d.comb += padded.eq(pad)
        with m.If(filled):
            m.d.comb += [
                shifted.eq(Cat(Mux(kept_valid, kept, self.lines.p.data), self.lines.p.data) >> (position << 3)),
                padded.eq(shifted),
            ]
            with m.If((low != 0) | (high != size)):
                ones = Const((1 << 8 * width) - 1, 8 * width)
                m.d.comb += [
                    inside.eq((ones << (low << 3)) & ~(ones << (high << 3))),
                    padded.eq((shifted & inside) | (pad & ~inside)),
                ]

        # -- the way on
        whole, row_end, chunk = Signal(), Signal(), self.chunks.p
        m.d.comb += [
            whole.eq(part + 1 == parts),
            row_end.eq(command.transpose | (whole & (blocks <= per_write))),
            walker.step.eq(out & row_end),
        ]
        m.d.sync += self.bytes.eq(0)
        with m.If(space):
            m.d.sync += self.chunks.valid.eq(out)
        with m.If(out):
            m.d.sync += [
                begun.eq(~row_end),
                position_kept.eq(position + size),
                ahead_kept.eq(Mux(ahead > size, ahead - size, 0)),
                left_kept.eq(Mux(left > size, left - size, 0)),
                part.eq(Mux(whole, 0, part + 1)),
                blocks_kept.eq(Mux(whole, blocks - per_write, blocks)),
                address_kept.eq(Mux(whole, address + per_write * command.block_pitch, address)),
                self.bytes.eq(Mux(filled, high - low, 0)),
                chunk.data.eq(padded), chunk.target.eq(command.target), chunk.address.eq(address),
                chunk.pitch.eq(command.block_pitch), chunk.count.eq(Mux(blocks < per_write, blocks, per_write)),
                chunk.part.eq(part), chunk.whole.eq(whole), chunk.done.eq(row_end & walker.last),
                chunk.transpose.eq(command.transpose), chunk.lane.eq(walker.lane),
                chunk.lane_end.eq(walker.lane_end), chunk.positions.eq(walker.positions),
                chunk.pad.eq(command.pad_value),
            ]
            with m.If(row_end):  # the next row's first line is not this one's last, even if it is the same in memory
                m.d.sync += kept_valid.eq(0)
        return m

    def _geometry(self, m: Module, command, part, size, parts, per_write) -> None:
        """Bytes of this chunk, chunks of a block, and blocks of a chunk, by target."""
        width = self._config.line_bytes
        m.d.comb += [size.eq(width), parts.eq(1), per_write.eq(1)]
        with m.If(~command.transpose):
            with m.Switch(command.target):
                for target, shape in block_shapes(self._config).items():
                    with m.Case(target):
                        total = shape.bytes * shape.per_write
                        count = -(-total // width)
                        rest = total - (count - 1) * width
                        m.d.comb += [parts.eq(count), per_write.eq(shape.per_write),
                                     size.eq(Mux(part == count - 1, rest, width))]
