"""All stops of a ring, joined: the network alone."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .flit import LANE_EVENTS, NETWORKS, Direction, flit_layout, stops
from .link import LinkStages
from .stop import RingStop

__all__ = ["Ring"]


class Ring(wiring.Component):
    """Stops 0..N-1 and the links between them, for tests and benches. A device's stops lie in its tiles.

    Latency: (2 + link_stages) cycles a hop. Throughput: see :class:`Lane`.

    Parameters
    ----------
    config : DeviceConfig
        N is ``tiles`` + 1.

    Members
    -------
    inject : In(stream of flits).array(N, networks, directions)
    eject : Out(stream of flits).array(N, networks, directions)
    events : Out(LANE_EVENTS).array(N, directions)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        flits, shape = stream.Signature(flit_layout(config)), (stops(config), NETWORKS, len(Direction))
        super().__init__({"inject": In(flits).array(*shape), "eject": Out(flits).array(*shape),
                          "events": Out(LANE_EVENTS).array(shape[0], shape[2])})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = stops(self._config)
        all_stops = [RingStop(config=self._config) for _ in range(count)]
        for number, stop in enumerate(all_stops):
            m.submodules[f"stop{number}"] = stop
            m.d.comb += stop.stop.eq(number)
            for direction in Direction:
                m.d.comb += self.events[number][direction].eq(stop.events[direction])
                for n in range(NETWORKS):
                    wiring.connect(m, wiring.flipped(self.inject[number][n][direction]), stop.inject[n][direction])
                    wiring.connect(m, stop.eject[n][direction], wiring.flipped(self.eject[number][n][direction]))
                behind = (number + (1 if direction is Direction.CLOCKWISE else -1)) % count
                m.submodules[f"link{number}_{behind}_{direction.name.lower()}"] = link = LinkStages(config=self._config)
                wiring.connect(m, stop.link_out[direction], link.i)
                wiring.connect(m, link.o, all_stops[behind].link_in[direction])
        return m
