"""LOAD's transposing buffer: rows of bytes in, blocks of one byte of each row out."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..isa import Target
from .packer import chunk_layout
from .walker import BLOCK_BITS

__all__ = ["Transposer", "blocks_layout"]


def blocks_layout(*, lanes: int, per_write: int) -> data.StructLayout:
    """``count`` blocks of ``lanes`` bytes for ``address``, ``address + pitch``, ...; done: the command's last."""
    return data.StructLayout({"target": Target, "address": BLOCK_BITS, "pitch": 16, "count": range(per_write + 1),
                              "done": 1, "data": 8 * lanes * per_write})


class Transposer(wiring.Component):
    """Holds two pieces of ``line_bytes`` positions by T rows: one fills, a row a cycle, while the other empties.

    With U blocks written at a time, a row is cut into units of U bytes. Unit u of row r lies in bank
    (r + u) mod N, so that the units of one row, and unit u of all rows, lie in different banks: a row is written
    and U blocks are read in one cycle each. Latency from the last row of a piece to its first blocks: 2 cycles.

    Parameters
    ----------
    config : DeviceConfig
    lanes : int
        T, bytes of a block, 1..64.
    per_write : int
        U, blocks a cycle, a power of two.

    Members
    -------
    i : In(stream of chunk_layout), the transposed ones
    o_valid, o : Out(blocks_layout), always taken
    busy : Out, a whole piece is in the buffer or on its way out
    """

    def __init__(self, *, config: DeviceConfig, lanes: int, per_write: int) -> None:
        self._config, self._lanes, self._per_write = config, lanes, per_write
        super().__init__({
            "i": In(stream.Signature(chunk_layout(config))),
            "o_valid": Out(1),
            "o": Out(blocks_layout(lanes=lanes, per_write=per_write)),
            "busy": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes, units_bytes, width = self._lanes, self._per_write, self._config.line_bytes
        units = width // units_bytes
        count = max(2, units, 1 << (lanes - 1).bit_length())
        bits = (count - 1).bit_length()
        unit = 8 * units_bytes
        depth = max(2, 1 << (lanes - 1).bit_length())
        depth_bits = (depth - 1).bit_length()
        piece = data.StructLayout({"target": Target, "address": BLOCK_BITS, "pitch": 16, "done": 1, "pad": 8,
                                   "rows": range(lanes + 1), "positions": range(width + 1)})

        banks = []
        for number in range(count):
            bank = memory.Memory(shape=unit, depth=2 * depth, init=[])
            m.submodules[f"bank{number}"] = bank
            banks.append((bank.write_port(), bank.read_port()))

        # -- fill
        pieces = Array(Signal(piece, name=f"piece{half}") for half in range(2))
        full = Signal(2)
        filling, emptying = Signal(), Signal()
        taken, filled, emptied = Signal(), Signal(), Signal()
        chunk = self.i.p
        turned = Signal(count * unit)
        m.d.comb += [
            self.i.ready.eq(~full.bit_select(filling, 1)),
            taken.eq(self.i.valid & self.i.ready),
            filled.eq(taken & chunk.lane_end),
        ]
        padded = Cat(chunk.data, *([Const(0, (count - units) * unit)] if count > units else []))
        with m.If(taken):
            m.d.comb += turned.eq(Cat(padded, padded) >> ((-chunk.lane)[:bits] * unit))
        for number, (write, _) in enumerate(banks):
            m.d.comb += [
                write.addr.eq(Cat(chunk.lane[:depth_bits], filling)),
                write.en.eq(taken),
                write.data.eq(turned.word_select(number, unit)),
            ]
        with m.If(filled):
            m.d.sync += filling.eq(~filling)
            for half in range(2):
                with m.If(filling == half):
                    m.d.sync += [
                        *(pieces[half][name].eq(chunk[name])
                          for name in ("target", "address", "pitch", "done", "pad", "positions")),
                        pieces[half].rows.eq(chunk.lane + 1),
                    ]

        # -- empty
        current = Signal(piece)
        step, shown_step = Signal(bits), Signal(bits)
        done_positions, left = Signal(range(width + 1)), Signal(range(width + 1))
        offset = Signal(BLOCK_BITS)
        reading, last = Signal(), Signal()
        pad, rows = Signal(8), Signal(range(lanes + 1))
        m.d.comb += [
            current.eq(pieces[emptying]),
            reading.eq(full.bit_select(emptying, 1)),
            left.eq(current.positions - done_positions),
            last.eq(left <= units_bytes),
            emptied.eq(reading & last),
            self.busy.eq((full != 0) | self.o_valid),
        ]
        for number, (_, read) in enumerate(banks):
            m.d.comb += [
                read.addr.eq(Cat((number - step)[:depth_bits], emptying)),
                read.en.eq(reading),
            ]
        m.d.sync += self.o_valid.eq(reading)
        with m.If(reading):
            m.d.sync += [
                step.eq(Mux(last, 0, step + 1)),
                done_positions.eq(Mux(last, 0, done_positions + units_bytes)),
                offset.eq(Mux(last, 0, offset + units_bytes * current.pitch)),
                shown_step.eq(step), pad.eq(current.pad), rows.eq(current.rows),
                self.o.target.eq(current.target), self.o.address.eq(current.address + offset),
                self.o.pitch.eq(current.pitch), self.o.count.eq(Mux(last, left, units_bytes)),
                self.o.done.eq(current.done & last),
            ]
        with m.If(emptied):
            m.d.sync += emptying.eq(~emptying)
        m.d.sync += full.eq((full | (filled << filling)) & ~(emptied << emptying))

        read_out, back, whole = Signal(count * unit), Signal(count * unit), Signal(8 * lanes * units_bytes)
        m.d.comb += read_out.eq(Cat(read.data for _, read in banks))
        with m.If(self.o_valid):
            m.d.comb += back.eq(Cat(read_out, read_out) >> (shown_step * unit))
        words = []
        for lane in range(lanes):  # lanes behind the last row are padding
            word = Signal(unit, name=f"word{lane}")
            m.d.comb += word.eq(Mux(rows > lane, back.word_select(lane, unit), pad.replicate(units_bytes)))
            words.append(word)
        m.d.comb += [
            whole.eq(Cat(word[8 * block:8 * block + 8] for block in range(units_bytes) for word in words)),
            self.o.data.eq(whole),
        ]
        return m
