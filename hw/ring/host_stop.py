"""The host's place on the ring: its window on the memory of all tiles."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..memory.arbiter import rotate
from ..memory.port import LEAF_TAG_BITS, TAG_BITS, Client, MemoryPort, request_layout
from .flit import NETWORKS, Direction, Network, RingLink, host_stop
from .requester import RemoteRequester
from .stop import RingStop

__all__ = ["HostStop"]

_REQUESTS = 8


class HostStop(wiring.Component):
    """A stop whose only client is one memory port, which reaches all memory; outside it, it answers an error.

    Latency: 2 cycles from a request to its injection, none from a flit to its response. A beat a cycle.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    memory : In(MemoryPort(leaf tag))
    link_in, link_out : RingLink.array(directions)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "memory": In(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)),
            "link_in": In(RingLink(config)).array(len(Direction)),
            "link_out": Out(RingLink(config)).array(len(Direction)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        config, memory = self._config, self.memory
        m.submodules.ring_stop = stop = RingStop(config=config)
        m.submodules.requester = requester = RemoteRequester(config=config, ports=1)
        number = host_stop(config)
        m.d.comb += [stop.stop.eq(number), requester.stop.eq(number)]
        for direction in range(len(Direction)):
            wiring.connect(m, wiring.flipped(self.link_in[direction]), stop.link_in[direction])
            wiring.connect(m, stop.link_out[direction], wiring.flipped(self.link_out[direction]))
            wiring.connect(m, requester.inject[direction], stop.inject[Network.REQUEST][direction])
            wiring.connect(m, stop.eject[Network.RESPONSE][direction], requester.eject[direction])
            for network in range(NETWORKS):
                if network != Network.RESPONSE:  # nobody sends such flits here
                    m.d.comb += stop.eject[network][direction].ready.eq(1)

        # A write's data may come only once its request has been taken, and the requester takes both together.
        requests, data = requester.requests[0], requester.write_data[0]
        layout = request_layout(config.address_bits, TAG_BITS)
        m.submodules.waiting = waiting = fifo.SyncFIFO(width=layout.size, depth=_REQUESTS)
        outside, drop = Signal(), Signal()
        refused, refusal = Signal(), Signal(layout)  # of which tag and direction alone count
        asked, entry = memory.requests, Signal(layout)
        m.d.comb += [
            *(entry[name].eq(asked.payload[name]) for name in ("address", "write", "context", "epoch")),
            entry.tag.eq(Cat(asked.p.tag, Client.HOST)),
            waiting.w_en.eq(asked.valid), waiting.w_data.eq(entry), asked.ready.eq(waiting.w_rdy),
            requests.payload.eq(waiting.r_data),
            outside.eq(requests.p.address >= config.tiles * config.memory.bytes),
            requests.valid.eq(waiting.r_rdy & ~outside),
            drop.eq(waiting.r_rdy & outside & ~refused & (memory.write_data.valid | ~requests.p.write)),
            waiting.r_en.eq(drop | requests.ready),
            data.valid.eq(memory.write_data.valid & ~outside), data.payload.eq(memory.write_data.payload),
            memory.write_data.ready.eq(data.ready | (drop & requests.p.write)),
        ]
        with m.If(drop):
            m.d.sync += [refused.eq(1), refusal.eq(requests.payload)]

        sources = [requester.responses[0][0], requester.responses[0][1]]
        valids = [*(source.valid for source in sources), refused]
        last, choice, turn, held = Signal(range(3)), Signal(range(3)), Signal(range(3)), Signal()
        rotate(m, valids, last, choice)
        m.d.comb += turn.eq(Mux(held, last, choice))
        answer = memory.responses
        with m.Switch(turn):
            for number, source in enumerate(sources):
                with m.Case(number):
                    m.d.comb += [answer.valid.eq(source.valid), source.ready.eq(answer.ready),
                                 *(answer.payload[name].eq(source.payload[name])
                                   for name in ("data", "write", "error", "context", "epoch")),
                                 answer.p.tag.eq(source.p.tag[:TAG_BITS])]
            with m.Default():
                m.d.comb += [answer.valid.eq(refused), answer.p.error.eq(1), answer.p.write.eq(refusal.write),
                             answer.p.tag.eq(refusal.tag)]
        with m.If(answer.valid):
            m.d.sync += [last.eq(turn), held.eq(~answer.ready)]
        with m.If(refused & answer.ready & (turn == len(sources))):
            m.d.sync += refused.eq(0)
        return m
