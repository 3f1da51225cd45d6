"""The order in which a tile goes through the blocks of a collective."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from .schedule import SIZE_BITS, block_bytes, plan_layout

__all__ = ["BlockWalker"]


class BlockWalker(wiring.Component):
    """Rounds of a block of each piece; at the end of the command one step more.

    On the closed ring sums begin with the piece before this tile's own and go down, so that its own comes last;
    results begin with its own and go up. In a chain both go from piece 0 up. One step a cycle; a plan's first step
    shows a cycle after it was taken.

    Parameters
    ----------
    config : DeviceConfig
    down : bool
        The order of sums.

    Members
    -------
    plans : In(stream of plan_layout)
    active : Out, a step is shown
    step : In, it is done with
    plan : Out
    end : Out, the step is the one behind the last block
    first, last : Out, first and last piece of a round
    piece : Out, its number
    offset, along : Out, of the block from the vector's start: without, and with what lies between pieces
    bytes : Out, of the block; none where the vector has ended
    """

    def __init__(self, *, config: DeviceConfig, down: bool) -> None:
        self._config, self._down = config, down
        span = plan_layout(config)["bytes"].shape
        super().__init__({
            "plans": In(stream.Signature(plan_layout(config))),
            "active": Out(1),
            "step": In(1),
            "plan": Out(plan_layout(config)),
            "end": Out(1),
            "first": Out(1),
            "last": Out(1),
            "piece": Out(SIZE_BITS),
            "offset": Out(span),
            "along": Out(span),
            "bytes": Out(range(block_bytes(config) + 1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        block = block_bytes(self._config)
        plan, new = self.plan, self.plans.p
        span = len(self.offset)
        count, between = Signal(SIZE_BITS), Signal(span)
        left, rest = Signal(signed(span + 1)), Signal(signed(span + 2))
        begin, begin_between = Signal(SIZE_BITS), Signal(span)
        taken, turn = Signal(), Signal()
        source = Signal.like(plan)
        m.d.comb += [
            self.first.eq(count == 0),
            self.last.eq(count + 1 == plan.pieces),
            self.along.eq(self.offset + between),
            rest.eq(left - Mux(plan.cut, between, 0)),
            self.bytes.eq(Mux(rest < 0, 0, Mux(rest > block, block, rest))),
            self.plans.ready.eq(~self.active | (self.step & self.end)),
            taken.eq(self.plans.valid & self.plans.ready),
            turn.eq(self.step & ~self.end & self.last),
            source.eq(Mux(taken, new, plan)),
        ]
        with m.If(source.closed):
            if self._down:
                m.d.comb += [begin.eq(Mux(source.index == 0, source.size, source.index) - 1),
                             begin_between.eq(Mux(source.index == 0, source.top, source.mine - source.pitch))]
            else:
                m.d.comb += [begin.eq(source.index), begin_between.eq(source.mine)]

        with m.If(taken):
            m.d.sync += [self.active.eq(1), self.end.eq(0), plan.eq(new), self.offset.eq(0), left.eq(new.bytes)]
        with m.Elif(self.step & self.end):
            m.d.sync += self.active.eq(0)
        with m.Elif(turn):
            m.d.sync += [self.offset.eq(self.offset + plan.stride), left.eq(left - plan.stride),
                         self.end.eq(left <= plan.stride)]
        with m.If(taken | turn):
            m.d.sync += [count.eq(0), self.piece.eq(begin), between.eq(begin_between)]
        with m.Elif(self.step):
            m.d.sync += count.eq(count + 1)
            down = plan.closed if self._down else 0
            with m.If(down):
                m.d.sync += [self.piece.eq(Mux(self.piece == 0, plan.size, self.piece) - 1),
                             between.eq(Mux(self.piece == 0, plan.top, between - plan.pitch))]
            with m.Elif(self.piece + 1 == plan.size):
                m.d.sync += [self.piece.eq(0), between.eq(0)]
            with m.Else():
                m.d.sync += [self.piece.eq(self.piece + 1), between.eq(between + plan.pitch)]
        return m
