"""One direction of a ring stop: buffers, credits, and who may use the link."""

from amaranth.hdl import C, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .buffer import FlitBuffer
from .flit import LANE_EVENTS, NETWORKS, STOP_BITS, RingLink, buffer_flits, flit_layout
from .turn import Turn

__all__ = ["Lane"]


class Lane(wiring.Component):
    """Flits of one direction: in from the neighbour before, out here or on to the neighbour behind.

    Each network has a buffer, whose head leaves the ring where it is for this stop and goes on otherwise. In each
    cycle one network, in rotation among those that can, sends one flit: that of the buffer first, if the next stop
    has a place for it; else one from ``inject``, if there are two places and the stop's share of the turn is not
    used up (:class:`Turn`). So one place of each network's loop always stays free.

    Latency: 2 + link_stages cycles from stop to stop, from inject to eject at the next stop too.
    Throughput: a flit a cycle over the link, and one a cycle and network out.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    stop : In
        This stop's number.
    inject, eject : stream of flits, one a network
        ``inject.ready`` looks at the valids of all networks, and at nothing else that comes in.
    link_in, link_out : RingLink
    events : Out(LANE_EVENTS)
    credits, levels : Out, one a network
        Places of the next stop that may be given away; flits in the buffers here.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        flits, places = stream.Signature(flit_layout(config)), range(buffer_flits(config) + 1)
        super().__init__({
            "stop": In(STOP_BITS),
            "inject": In(flits).array(NETWORKS),
            "eject": Out(flits).array(NETWORKS),
            "link_in": In(RingLink(config)),
            "link_out": Out(RingLink(config)),
            "events": Out(LANE_EVENTS),
            "credits": Out(places, init=places[-1]).array(NETWORKS),
            "levels": Out(places).array(NETWORKS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        offered, through, able, chosen, ejected = (Signal(NETWORKS, name=name) for name in (
            "offered", "through", "able", "chosen", "ejected"))
        waiting = Signal(NETWORKS)  # heads that want to go on
        m.submodules.turn = turn = Turn(config=self._config)
        heads = []
        for n, (inject, eject) in enumerate(zip(self.inject, self.eject, strict=True)):
            m.submodules[f"buffer{n}"] = buffer = FlitBuffer(config=self._config)
            heads.append(buffer.o.payload)
            credits = self.credits[n]
            mine = Signal(name=f"mine{n}")
            m.d.comb += [
                buffer.write.eq(self.link_in.valid & (self.link_in.network == n)),
                buffer.flit.eq(self.link_in.flit),
                self.levels[n].eq(buffer.level),
                mine.eq(buffer.o.payload.destination == self.stop),
                eject.valid.eq(buffer.o.valid & mine),
                eject.payload.eq(buffer.o.payload),
                ejected[n].eq(eject.valid & eject.ready),
                waiting[n].eq(buffer.o.valid & ~mine),
                through[n].eq(waiting[n] & (credits != 0)),
                able[n].eq(through[n] | (offered[n] & (credits > 1) & turn.may[n])),
                buffer.o.ready.eq(Mux(mine, eject.ready, chosen[n])),
                offered[n].eq(inject.valid),
                inject.ready.eq(chosen[n] & ~through[n]),
            ]
            with m.If(chosen[n] != self.link_out.credits[n]):
                m.d.sync += credits.eq(Mux(chosen[n], credits - 1, credits + 1))
        m.d.sync += self.link_in.credits.eq(ejected | (chosen & through))
        m.d.comb += [
            turn.stop.eq(self.stop), turn.arrive.eq(self.link_in.turn), self.link_out.turn.eq(turn.leave),
            turn.waits.eq(offered), turn.passed.eq(chosen & through), turn.injected.eq(chosen & ~through),
        ]
        self._send(m, able, through, chosen, heads)
        go = chosen.any()
        m.d.comb += [
            self.events.forwarded.eq((chosen & through).any()),
            self.events.injected.eq((chosen & ~through).any()),
            self.events.ejected.eq(sum(ejected)),
            self.events.stalled.eq((waiting | offered).any() & ~go),
        ]
        return m

    def _send(self, m: Module, able: Signal, through: Signal, chosen: Signal, heads: list) -> None:
        """Choose among the networks that are ``able``, and put the flit of the chosen one onto the link."""
        last = Signal(range(NETWORKS))
        with m.Switch(last):
            for before in range(NETWORKS):
                with m.Case(before):
                    ahead: Value = C(0)
                    for step in range(1, NETWORKS + 1):
                        n = (before + step) % NETWORKS
                        m.d.comb += chosen[n].eq(able[n] & ~ahead)
                        ahead = ahead | able[n]
        m.d.sync += self.link_out.valid.eq(chosen.any())
        for n in range(NETWORKS):
            with m.If(chosen[n]):
                m.d.sync += [last.eq(n), self.link_out.network.eq(n)]
                with m.If(through[n]):
                    m.d.sync += self.link_out.flit.eq(heads[n])
                with m.Else():
                    m.d.sync += self.link_out.flit.eq(self.inject[n].payload)
