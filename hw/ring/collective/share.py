"""One memory port for an engine that reads and writes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...memory.port import LEAF_TAG_BITS, MemoryPort, request_layout, response_layout

__all__ = ["ReadWriteShare"]


class ReadWriteShare(wiring.Component):
    """Reads and writes take turns where both wait. Whose a response is tells its ``write``. Adds no cycle.

    Parameters
    ----------
    address_bits : int

    Members
    -------
    reads : In(stream of requests), read_responses : Out(stream)
    writes : In(MemoryPort), writes alone
    o : Out(MemoryPort)
    """

    def __init__(self, *, address_bits: int) -> None:
        port = MemoryPort(address_bits=address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "reads": In(stream.Signature(request_layout(address_bits, LEAF_TAG_BITS))),
            "read_responses": Out(stream.Signature(response_layout(LEAF_TAG_BITS))),
            "writes": In(port),
            "o": Out(port),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reads, writes, o = self.reads, self.writes.requests, self.o.requests
        held, last, write = Signal(), Signal(), Signal()
        m.d.comb += [
            # What is shown stays.
            write.eq(Mux(held, last, writes.valid & (~reads.valid | ~last))),
            o.valid.eq(Mux(write, writes.valid, reads.valid)),
            o.payload.eq(Mux(write, writes.payload, reads.payload)),
            writes.ready.eq(write & o.ready), reads.ready.eq(~write & o.ready),
            self.o.write_data.valid.eq(self.writes.write_data.valid),
            self.o.write_data.payload.eq(self.writes.write_data.payload),
            self.writes.write_data.ready.eq(self.o.write_data.ready),
        ]
        m.d.sync += held.eq(o.valid & ~o.ready)
        with m.If(o.valid):
            m.d.sync += last.eq(write)
        answer = self.o.responses
        m.d.comb += [
            self.read_responses.payload.eq(answer.payload), self.writes.responses.payload.eq(answer.payload),
            self.read_responses.valid.eq(answer.valid & ~answer.p.write),
            self.writes.responses.valid.eq(answer.valid & answer.p.write),
            answer.ready.eq(Mux(answer.p.write, self.writes.responses.ready, self.read_responses.ready)),
        ]
        return m
