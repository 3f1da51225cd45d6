"""Several clients of one memory port."""

from collections.abc import Sequence

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from .port import LEAF_TAG_BITS, MemoryPort

__all__ = ["PortMerge"]

_WRITES_AHEAD = 16  # writes whose data is still to come


class PortMerge(wiring.Component):
    """Clients share ``o``; the first one in the list that asks goes first. Adds no cycle to requests and responses.

    Write data goes in the order of the requests, from the cycle after its request on. The upper bits of the tag tell
    whose a response is, so no client may use them.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address.
    clients : sequence of str
        Their names, in the order of precedence.

    Members
    -------
    <client> : In(MemoryPort(...))
    o : Out(MemoryPort(...))
    """

    def __init__(self, *, address_bits: int, clients: Sequence[str] = ("reader", "main")) -> None:
        self.clients = tuple(clients)
        self.tag_bits = LEAF_TAG_BITS - (len(self.clients) - 1).bit_length()
        port = MemoryPort(address_bits=address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({**{name: In(port) for name in self.clients}, "o": Out(port)})

    def elaborate(self, platform):
        m = Module()
        ports, o = [getattr(self, name) for name in self.clients], self.o
        kept, chosen, waiting = Signal(range(len(ports))), Signal(range(len(ports))), Signal()
        m.submodules.order = order = fifo.SyncFIFO(width=len(chosen), depth=_WRITES_AHEAD)
        m.d.comb += chosen.eq(kept)
        with m.If(~waiting):  # a request that was shown must stay
            for number in reversed(range(len(ports))):
                with m.If(ports[number].requests.valid):
                    m.d.comb += chosen.eq(number)
        asked = Array(port.requests.payload for port in ports)[chosen]
        able = Signal()
        m.d.comb += [
            able.eq(order.w_rdy | ~asked.write),
            o.requests.valid.eq(Array(port.requests.valid for port in ports)[chosen] & able),
            *(o.requests.payload[name].eq(asked[name]) for name in ("address", "write", "context", "epoch")),
            o.requests.p.tag.eq(asked.tag | chosen << self.tag_bits),
            order.w_en.eq(o.requests.valid & o.requests.ready & asked.write), order.w_data.eq(chosen),
            order.r_en.eq(o.write_data.valid & o.write_data.ready),
            o.write_data.valid.eq(order.r_rdy & Array(port.write_data.valid for port in ports)[order.r_data]),
            o.write_data.payload.eq(Array(port.write_data.payload for port in ports)[order.r_data]),
        ]
        m.d.sync += [waiting.eq(o.requests.valid & ~o.requests.ready), kept.eq(chosen)]
        answer = o.responses
        owner = answer.p.tag[self.tag_bits:]
        m.d.comb += answer.ready.eq(Array(port.responses.ready for port in ports)[owner])
        for number, port in enumerate(ports):
            m.d.comb += [
                port.requests.ready.eq(o.requests.ready & able & (chosen == number)),
                port.write_data.ready.eq(o.write_data.ready & order.r_rdy & (order.r_data == number)),
                port.responses.valid.eq(answer.valid & (owner == number)),
                *(port.responses.payload[name].eq(answer.payload[name])
                  for name in ("data", "write", "error", "context", "epoch")),
                port.responses.p.tag.eq(answer.p.tag[:self.tag_bits]),
            ]
        return m
