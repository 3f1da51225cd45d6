"""LOAD's reorder buffer: beats in any order, lines in the order they were asked for."""

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .address import line_layout
from .port import BEAT_BITS, LEAF_TAG_BITS, response_layout

__all__ = ["ReorderBuffer", "filled_layout"]


def filled_layout(config: DeviceConfig) -> data.StructLayout:
    """data: the line (beats not asked for have no meaning); error: any of its beats; address: in lines."""
    return data.StructLayout({"data": 8 * config.line_bytes, "error": 1,
                              "address": line_layout(config)["address"].shape})


class ReorderBuffer(wiring.Component):
    """256 beats, kept by line. Each port writes memories of its own, so that all ports answer at once.

    A line takes a slot when it is asked for, and leaves in that order when its beats are there. Latency from the
    last response to the line: 2 cycles. Throughput one beat a port and one line a cycle; responses never wait.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    claims : In(stream of line_layout), slots are given in this order
    port : In, port of the claimed line
    slot : Out, slot of the claim that is shown
    responses : In(stream of response_layout).array(P), always ready
    lines : Out(stream of filled_layout)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "claims": In(stream.Signature(line_layout(config))),
            "port": In(range(max(2, config.ports))),
            "slot": Out(LEAF_TAG_BITS - (config.ports - 1).bit_length()),
            "responses": In(stream.Signature(response_layout(LEAF_TAG_BITS))).array(config.ports),
            "lines": Out(stream.Signature(filled_layout(config))),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        ports = self._config.ports
        slots = 256 // ports
        beat_bits = (ports - 1).bit_length()
        claim = data.StructLayout({**line_layout(self._config).members, "port": self.port.shape()})
        m.submodules.claimed = claimed = memory.Memory(shape=claim.size, depth=slots, init=[])
        claimed_write, claimed_read = claimed.write_port(), claimed.read_port(domain="comb")

        tail, head, level = Signal(range(slots)), Signal(range(slots)), Signal(range(slots + 1))
        taken, given, complete = Signal(), Signal(), Signal()
        written, first = Signal(claim), Signal(claim)
        m.d.comb += [
            self.slot.eq(tail),
            self.claims.ready.eq(level != slots),
            taken.eq(self.claims.valid & self.claims.ready),
            *(written[name].eq(self.claims.payload[name]) for name in ("address", "beats")),
            written.port.eq(self.port),
            claimed_write.addr.eq(tail), claimed_write.en.eq(taken), claimed_write.data.eq(written),
            claimed_read.addr.eq(head),
            first.eq(claimed_read.data),
        ]
        m.d.sync += [tail.eq(tail + taken), head.eq(head + given), level.eq(level + taken - given)]

        # -- which beats are there: one bit a slot, for each place in a line
        there = []
        for beat in range(ports):
            arrived = Signal(slots, name=f"arrived{beat}")
            arrives = Signal(slots, name=f"arrives{beat}")
            leaves = Signal(slots, name=f"leaves{beat}")
            marks = []
            for index, response in enumerate(self.responses):
                mark = Signal(slots, name=f"mark{beat}_{index}")
                with m.If(response.valid & (response.p.tag[:beat_bits] == beat if ports > 1 else 1)):
                    m.d.comb += mark.eq(Const(1, 1) << response.p.tag[beat_bits:])
                marks.append(mark)
            arrival = marks[0]
            for mark in marks[1:]:
                arrival = arrival | mark
            with m.If(given):
                m.d.comb += leaves.eq(Const(1, 1) << head)
            m.d.comb += arrives.eq(arrival)
            m.d.sync += arrived.eq((arrived | arrives) & ~leaves)
            there.append(arrived.bit_select(head, 1) | ~first.beats[beat])
        m.d.comb += [
            complete.eq((level != 0) & Cat(there).all()),
            given.eq(complete & (~self.lines.valid | self.lines.ready)),
        ]
        with m.If(~self.lines.valid | self.lines.ready):
            m.d.sync += self.lines.valid.eq(complete)

        # -- the bytes, and whether they came with an error
        shown = Signal(claim)
        with m.If(given):
            m.d.sync += shown.eq(first)
        words, errors = [], []
        for index, response in enumerate(self.responses):
            m.d.comb += response.ready.eq(1)
            beats = []
            for beat in range(ports):
                bank = memory.Memory(shape=BEAT_BITS + 1, depth=slots, init=[])
                m.submodules[f"bank{index}_{beat}"] = bank
                write, read = bank.write_port(), bank.read_port()
                m.d.comb += [
                    write.addr.eq(response.p.tag[beat_bits:]),
                    write.data.eq(Cat(response.p.data, response.p.error)),
                    write.en.eq(response.valid & (response.p.tag[:beat_bits] == beat if ports > 1 else 1)),
                    read.addr.eq(head),
                    read.en.eq(given & (first.port == index)),
                ]
                beats.append(read.data)
            words.append(Cat(word[:BEAT_BITS] for word in beats))
            errors.append(Cat(word[BEAT_BITS] for word in beats) & shown.beats)
        m.d.comb += [
            self.lines.p.data.eq(Array(words)[shown.port] if ports > 1 else words[0]),
            self.lines.p.error.eq((Array(errors)[shown.port] if ports > 1 else errors[0]) != 0),
            self.lines.p.address.eq(shown.address),
        ]
        return m
