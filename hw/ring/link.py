"""The wires between two stops, with registers on the way."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .flit import RingLink

__all__ = ["LinkStages"]


class LinkStages(wiring.Component):
    """``ring.link_stages`` registers each way: flits and turns from ``i`` to ``o``, credits from ``o`` to ``i``.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    i : In(RingLink)
        From the stop that sends.
    o : Out(RingLink)
        To the stop that receives.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._stages = config.ring.link_stages
        super().__init__({"i": In(RingLink(config)), "o": Out(RingLink(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valid, turn, credits = self.i.valid, self.i.turn, self.o.credits
        network, flit = self.i.network, self.i.flit
        for stage in range(self._stages):
            before = valid, turn, network, flit, credits
            valid, turn, network, flit, credits = (
                Signal.like(value, name=f"{name}{stage}")
                for name, value in zip(("valid", "turn", "network", "flit", "credits"), before, strict=True))
            m.d.sync += [valid.eq(before[0]), turn.eq(before[1]), credits.eq(before[4])]
            with m.If(before[0]):  # wires that stay cost nothing
                m.d.sync += [network.eq(before[2]), flit.eq(before[3])]
        m.d.comb += [self.o.valid.eq(valid), self.o.turn.eq(turn), self.o.network.eq(network), self.o.flit.eq(flit),
                     self.i.credits.eq(credits)]
        return m
