"""Who does what with each block: the runs of the two lanes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from .runs import flits_shape, read_run, receive_run, result_run, send_run, sum_run
from .schedule import flit_bytes, plan_layout
from .walker import BlockWalker

__all__ = ["SumSequencer", "ResultSequencer"]


def _flits(config: DeviceConfig, walker: BlockWalker):
    size = flit_bytes(config)
    return (walker.bytes + size - 1) >> (size - 1).bit_length()


def _emit(m: Module, wanted: dict, go) -> Signal:
    """Offer each stream where it is ``wanted``, all in the same cycle; returns that they were taken."""
    able = Signal()
    term = go
    for port, want in wanted.items():
        term = term & (port.ready | ~want)
    m.d.comb += able.eq(term)
    for port, want in wanted.items():
        m.d.comb += port.valid.eq(able & want)
    return able


class SumSequencer(wiring.Component):
    """The runs of sums: what is read, what is received, what is sent on and what ends here. One block a cycle.

    Closed: the first piece of a round is only read, the last one ends here. Chain: sums begin in the group's first
    tile, copies in the tile that gives them; what comes to the last tile ends there.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    plans : In(stream of plan_layout)
    reads, receives, sends, ends : Out(streams of runs); the end of a command is in ``sends``
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "plans": In(stream.Signature(plan_layout(config))),
            "reads": Out(stream.Signature(read_run(config))),
            "receives": Out(stream.Signature(receive_run(config))),
            "sends": Out(stream.Signature(sum_run(config))),
            "ends": Out(stream.Signature(sum_run(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.walker = walker = BlockWalker(config=self._config, down=True)
        wiring.connect(m, wiring.flipped(self.plans), walker.plans)
        plan, flits = walker.plan, Signal(flits_shape(self._config))
        mine, receive, read, ends = Signal(), Signal(), Signal(), Signal()
        origin = Signal.like(plan.index)
        m.d.comb += [
            flits.eq(_flits(self._config, walker)),
            origin.eq(Mux(plan.gather, walker.piece, Mux(plan.copies, plan.root, 0))),
        ]
        with m.If(plan.closed):
            m.d.comb += [mine.eq(plan.sums | walker.last), receive.eq(plan.sums & ~walker.first), read.eq(1),
                         ends.eq(walker.last)]
        with m.Else():
            m.d.comb += [mine.eq(plan.index >= origin), receive.eq(plan.index > origin),
                         read.eq(plan.sums | (plan.copies & (plan.index == origin))),
                         ends.eq(plan.index + 1 == plan.size)]
        work = Signal()
        m.d.comb += [
            work.eq(mine & ~walker.end & (walker.bytes != 0)),
            self.reads.p.address.eq(plan.source + Mux(plan.gather, walker.offset, walker.along)),
            self.reads.p.bytes.eq(walker.bytes), self.reads.p.ends.eq(ends), self.reads.p.slot.eq(plan.slot),
            self.receives.p.flits.eq(flits), self.receives.p.ends.eq(ends), self.receives.p.slot.eq(plan.slot),
            self.sends.p.end.eq(walker.end),
        ]
        for port in (self.sends, self.ends):
            m.d.comb += [port.p.flits.eq(flits), port.p.receive.eq(receive), port.p.read.eq(read),
                         port.p.slot.eq(plan.slot)]
        m.d.comb += walker.step.eq(_emit(m, {
            self.reads: work & read, self.receives: work & receive, self.sends: (work & ~ends) | walker.end,
            self.ends: work & ends}, walker.active))
        return m


class ResultSequencer(wiring.Component):
    """The runs of results: this tile's own, those received, and the order in which they are sent on. One a cycle.

    Closed: the first piece of a round is this tile's own, the last one has been everywhere. Chain: the last tile
    sends what ended there; a piece goes down to its own tile where results are scattered, else to the first.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    plans : In(stream of plan_layout)
    sends, owns, receives : Out(streams of runs); each has the end of a command
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "plans": In(stream.Signature(plan_layout(config))),
            "sends": Out(stream.Signature(send_run(config))),
            "owns": Out(stream.Signature(result_run(config))),
            "receives": Out(stream.Signature(result_run(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.walker = walker = BlockWalker(config=self._config, down=False)
        wiring.connect(m, wiring.flipped(self.plans), walker.plans)
        plan, flits = walker.plan, Signal(flits_shape(self._config))
        mine, own, send, write = Signal(), Signal(), Signal(), Signal()
        target = Signal.like(plan.index)
        m.d.comb += [flits.eq(_flits(self._config, walker)), target.eq(Mux(plan.scatter, walker.piece, 0))]
        with m.If(plan.closed):
            m.d.comb += [mine.eq(walker.first | ~plan.scatter), own.eq(walker.first),
                         send.eq(~walker.last & ~plan.scatter), write.eq(1)]
        with m.Else():
            m.d.comb += [mine.eq(plan.index >= target), own.eq(plan.index + 1 == plan.size),
                         send.eq(plan.index > target),
                         write.eq(plan.writes & (~plan.scatter | (plan.index == target)))]
        work = Signal()
        m.d.comb += [
            work.eq(mine & ~walker.end & (walker.bytes != 0)),
            self.sends.p.flits.eq(flits), self.sends.p.receive.eq(~own), self.sends.p.end.eq(walker.end),
            self.sends.p.slot.eq(plan.slot),
        ]
        for port in (self.owns, self.receives):
            m.d.comb += [
                port.p.flits.eq(flits), port.p.send.eq(send), port.p.write.eq(write), port.p.end.eq(walker.end),
                port.p.slot.eq(plan.slot), port.p.bytes.eq(walker.bytes),
                port.p.address.eq(plan.destination + Mux(plan.scatter, walker.offset, walker.along)),
            ]
        m.d.comb += walker.step.eq(_emit(m, {
            self.sends: (work & send) | walker.end, self.owns: (work & own) | walker.end,
            self.receives: (work & ~own) | walker.end}, walker.active))
        return m
