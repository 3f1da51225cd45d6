"""A place on the ring: where a tile's, or the host's, flits come and go."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .flit import LANE_EVENTS, NETWORKS, STOP_BITS, Direction, RingLink, flit_layout
from .lane import Lane

__all__ = ["RingStop"]


class RingStop(wiring.Component):
    """A stop of both directions. Who injects chooses the direction, by :func:`~.route.route` where it has a choice.

    Indices are [network][direction]. Every place a flit can wait in belongs to one network and direction. A flit for
    the stop itself goes all the way around.

    Latency and throughput: see :class:`Lane`.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    stop : In
        This stop's number; it never changes.
    inject : In(stream of flits).array(networks, directions)
        ``source`` must be this stop.
    eject : Out(stream of flits).array(networks, directions)
        Flits for this stop. What takes them may wait only for networks behind in :class:`Network`, except that
        flits of REDUCE and BROADCAST may wait for room to inject where no flits of others pass through.
    link_in, link_out : RingLink.array(directions)
        From the neighbour before and to the neighbour behind, as the direction goes.
    events : Out(LANE_EVENTS).array(directions)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        flits, directions = stream.Signature(flit_layout(config)), len(Direction)
        super().__init__({
            "stop": In(STOP_BITS),
            "inject": In(flits).array(NETWORKS, directions),
            "eject": Out(flits).array(NETWORKS, directions),
            "link_in": In(RingLink(config)).array(directions),
            "link_out": Out(RingLink(config)).array(directions),
            "events": Out(LANE_EVENTS).array(directions),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for direction in Direction:
            m.submodules[direction.name.lower()] = lane = Lane(config=self._config)
            m.d.comb += [lane.stop.eq(self.stop), self.events[direction].eq(lane.events)]
            for n in range(NETWORKS):
                wiring.connect(m, wiring.flipped(self.inject[n][direction]), lane.inject[n])
                wiring.connect(m, lane.eject[n], wiring.flipped(self.eject[n][direction]))
            wiring.connect(m, wiring.flipped(self.link_in[direction]), lane.link_in)
            wiring.connect(m, lane.link_out, wiring.flipped(self.link_out[direction]))
        return m
