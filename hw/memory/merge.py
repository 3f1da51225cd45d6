"""Two clients of one memory port, one of which only reads."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .port import LEAF_TAG_BITS, MemoryPort

__all__ = ["PortMerge"]


class PortMerge(wiring.Component):
    """``reader`` and ``main`` share ``o``; the reader goes first. Adds no cycle.

    The top bit of the tag tells whose a response is, so neither may use it.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address.

    Members
    -------
    main : In(MemoryPort(...))
    reader : In(MemoryPort(...))
        Makes no writes.
    o : Out(MemoryPort(...))
    """

    def __init__(self, *, address_bits: int) -> None:
        port = MemoryPort(address_bits=address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({"main": In(port), "reader": In(port), "o": Out(port)})

    def elaborate(self, platform):
        m = Module()
        main, reader, o = self.main, self.reader, self.o
        waiting, chosen = Signal(), Signal()  # ``main`` has shown a request, which must stay
        m.d.comb += [
            chosen.eq(reader.requests.valid & ~waiting),
            o.requests.valid.eq(main.requests.valid | reader.requests.valid),
            o.requests.payload.eq(Mux(chosen, reader.requests.payload, main.requests.payload)),
            o.requests.payload.tag[LEAF_TAG_BITS - 1].eq(chosen),
            reader.requests.ready.eq(o.requests.ready & chosen),
            main.requests.ready.eq(o.requests.ready & ~chosen),
        ]
        m.d.sync += waiting.eq(main.requests.valid & ~chosen & ~o.requests.ready)
        mine = o.responses.payload.tag[LEAF_TAG_BITS - 1]
        m.d.comb += [
            o.write_data.valid.eq(main.write_data.valid),
            o.write_data.payload.eq(main.write_data.payload),
            main.write_data.ready.eq(o.write_data.ready),
            main.responses.valid.eq(o.responses.valid & ~mine),
            reader.responses.valid.eq(o.responses.valid & mine),
            o.responses.ready.eq(Mux(mine, reader.responses.ready, main.responses.ready)),
        ]
        for client in (main, reader):
            m.d.comb += [
                client.responses.payload.eq(o.responses.payload),
                client.responses.payload.tag[LEAF_TAG_BITS - 1].eq(0),
            ]
        return m
