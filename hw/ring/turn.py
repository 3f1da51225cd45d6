"""Fair shares of a loop: a turn that goes around, and what a stop may inject between two of its visits."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .flit import NETWORKS, STOP_BITS, turn_flits

__all__ = ["Turn"]


class Turn(wiring.Component):
    """One direction's turns, one a network, each of which goes around the ring with the flits.

    Between two visits of the turn a stop injects at most Q = :func:`turn_flits` flits into the network. The turn goes
    on in the next cycle, unless the stop is starved: a flit waits here, others have been let through before it, and
    it has injected less than a quarter of its share. Then the turn stays until that quarter is used or no flit waits.
    Meanwhile every other stop runs out of its share, so that the loop empties and the starved stop gets its quarter.

    Stop 0 has all turns in the first cycle after reset.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    stop : In
        This stop's number.
    arrive : In, one bit a network
        The turn comes.
    leave : Out, one bit a network
        The turn goes; a register.
    waits : In, one bit a network
        A flit waits to be injected.
    passed : In, one bit a network
        A flit of another stop goes onto the link.
    injected : In, one bit a network
        A flit of this stop does.
    may : Out, one bit a network
        Something is left of the share.
    here : Out, one bit a network
        The turn is here.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._share = turn_flits(config)
        super().__init__({
            "stop": In(STOP_BITS),
            **{name: In(NETWORKS) for name in ("arrive", "waits", "passed", "injected")},
            **{name: Out(NETWORKS) for name in ("leave", "may", "here")},
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        share = self._share
        started = Signal()
        m.d.sync += started.eq(1)
        starved, hungry, go = (Signal(NETWORKS, name=name) for name in ("starved", "hungry", "go"))
        m.d.comb += go.eq(self.here & ~(self.waits & starved & hungry))
        m.d.sync += [
            self.leave.eq(go),
            self.here.eq((self.here & ~go) | self.arrive),
            starved.eq((starved & ~go) | (self.waits & self.passed)),
        ]
        with m.If(~started & (self.stop == 0)):
            m.d.sync += self.here.eq(~0)
        for n in range(NETWORKS):
            used = Signal(range(share + 1), name=f"used{n}")
            m.d.comb += [self.may[n].eq(used != share), hungry[n].eq(used < share // 4)]
            with m.If(go[n]):
                m.d.sync += used.eq(self.injected[n])
            with m.Elif(self.injected[n]):
                m.d.sync += used.eq(used + 1)
        return m
