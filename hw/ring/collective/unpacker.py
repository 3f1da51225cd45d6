"""Lines of memory into flits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import BEAT_BYTES, DeviceConfig
from .schedule import block_bytes, flit_bytes

__all__ = ["Unpacker", "piece_layout"]


def piece_layout(config: DeviceConfig) -> data.StructLayout:
    """The part of a line that belongs to a run: its first beat, how many.

    Where a line is half a flit: it is the upper half, and nothing of the flit is to come.
    """
    return data.StructLayout({"first": range(max(2, config.ports)), "beats": range(config.ports + 1), "upper": 1,
                              "whole": 1})


class Unpacker(wiring.Component):
    """A queue of two blocks' lines, and one more for each that is not aligned, from which flits are taken.

    Bytes of a flit that no beat covers have no meaning. Latency 1 cycle, throughput a line and a flit a cycle.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    i : In(stream of a line and its piece_layout)
    flits : Out(stream of data_bits bits)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        line = data.StructLayout({"data": 8 * config.line_bytes, "piece": piece_layout(config)})
        super().__init__({"i": In(stream.Signature(line)), "flits": Out(stream.Signature(config.ring.data_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        size = flit_bytes(config)
        width = max(size, config.line_bytes)
        flits = width // size
        entry_layout = data.StructLayout({"data": 8 * width, "first": range(max(2, flits)),
                                          "count": range(flits + 1)})
        depth = 2 * (block_bytes(config) // width + 1)
        m.submodules.queue = queue = fifo.SyncFIFO(width=entry_layout.size, depth=depth)
        entry, piece = Signal(entry_layout), self.i.p.piece
        beats = size // BEAT_BYTES
        m.d.comb += [queue.w_data.eq(entry), self.i.ready.eq(queue.w_rdy)]
        if config.line_bytes < size:
            lower = Signal(8 * config.line_bytes)
            m.d.comb += [
                entry.data.eq(Cat(Mux(piece.upper, lower, self.i.p.data), self.i.p.data)),
                entry.count.eq(1),
                queue.w_en.eq(self.i.valid & piece.whole),
            ]
            with m.If(self.i.valid & ~piece.upper):
                m.d.sync += lower.eq(self.i.p.data)
        else:
            m.d.comb += [
                entry.data.eq(self.i.p.data),
                entry.first.eq(piece.first >> (beats - 1)), entry.count.eq((piece.beats + beats - 1) >> (beats - 1)),
                queue.w_en.eq(self.i.valid),
            ]

        head = data.View(entry_layout, queue.r_data)
        index = Signal(range(max(2, flits)))
        last = Signal()
        m.d.comb += [
            self.flits.valid.eq(queue.r_rdy),
            self.flits.payload.eq(head.data.word_select((head.first + index)[:len(index)], 8 * size)
                                  if flits > 1 else head.data),
            last.eq(index + 1 == head.count),
            queue.r_en.eq(self.flits.ready & last),
        ]
        if flits > 1:
            with m.If(self.flits.valid & self.flits.ready):
                m.d.sync += index.eq(Mux(last, 0, index + 1))
        return m
