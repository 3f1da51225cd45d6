"""A ring alone, with plain ports, for random traffic."""

from amaranth.hdl import Cat, Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.config import DeviceConfig
from ringloom.hw.ring.flit import LANE_EVENTS, NETWORKS, STOP_BITS, Direction, flit_layout, stops
from ringloom.hw.ring.ring import Ring

__all__ = ["RingTop", "WORD_BITS"]

WORD_BITS = 64
_BODY = 2 * STOP_BITS + 1  # where a word's part of the body begins


class RingTop(wiring.Component):
    """:class:`Ring` with one vector for all its ports; port (stop x 4 + network) x 2 + direction has its bit of each.

    A flit is a word: destination, source, last, and 53 bits that fill its body over and over. ``damaged`` tells
    of a body that does not come out so. Events are counted here, in 32 bits a kind, over all stops and directions.

    Parameters
    ----------
    config : DeviceConfig
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        ports = stops(config) * NETWORKS * len(Direction)
        super().__init__({
            "inject_valid": In(ports), "inject_ready": Out(ports), "inject_words": In(WORD_BITS * ports),
            "eject_valid": Out(ports), "eject_ready": In(ports), "eject_words": Out(WORD_BITS * ports),
            "damaged": Out(ports),
            **{name: Out(32) for name in LANE_EVENTS.members},
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.ring = ring = Ring(config=self._config)
        bits = flit_layout(self._config)["body"].width
        repeats = -(-bits // (WORD_BITS - _BODY))
        port = 0
        for stop in range(stops(self._config)):
            for n in range(NETWORKS):
                for direction in Direction:
                    i, o = ring.inject[stop][n][direction], ring.eject[stop][n][direction]
                    word = self.inject_words.word_select(Const(port), WORD_BITS)
                    m.d.comb += [
                        i.valid.eq(self.inject_valid[port]), self.inject_ready[port].eq(i.ready),
                        i.payload.eq(Cat(word[:_BODY], word[_BODY:].replicate(repeats)[:bits])),
                        self.eject_valid[port].eq(o.valid), o.ready.eq(self.eject_ready[port]),
                        self.eject_words[port * WORD_BITS:(port + 1) * WORD_BITS].eq(o.payload.as_value()),
                        self.damaged[port].eq(o.payload.body != o.p.body[:WORD_BITS - _BODY].replicate(repeats)[:bits]),
                    ]
                    port += 1
        for name in LANE_EVENTS.members:
            count = sum(events[name] for both in ring.events for events in both)
            m.d.sync += getattr(self, name).eq(getattr(self, name) + count)
        return m
