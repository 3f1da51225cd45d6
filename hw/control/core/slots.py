"""A tile's second job slot: the next job waits beside the command processor."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...isa import Status
from ..command_processor import TileControl

__all__ = ["JobSlots"]

_COPIED_OUT = ("abort", "cycle", "semaphore_index")
_COPIED_IN = ("semaphore_value", "busy", "stopping", "ended", "status", "code", "states", "fetched", "active",
              "matmul_waiting", "matmul_queued", "fault_command", "fault_address")


class JobSlots(wiring.Component):
    """Keeps one job behind the running one and starts it when that has ended well.

    A doorbell while a job runs fills the second slot; one while that is full is dropped. After a job that ended
    otherwise than DONE, or after ``hold``, nothing starts until ``resume``, so that whoever manages the tile can look
    at the fault and ``cancel`` what must not run. Ended jobs are counted until acknowledged.

    Latency: a doorbell of an idle tile passes in its cycle; the second job starts two cycles after the first's end.

    Members
    -------
    registers : In(TileControl())
        From the tile's registers, which start nothing here.
    start : In(1), job, window_base, window_limit : In(64)
        A doorbell, the address of the job's descriptor, and what the job may touch.
    processor : Out(TileControl())
        To the command processor.
    acknowledge : In(2)
        So many ended jobs have been seen.
    cancel, hold, resume : In(1)
    full : Out(1)
        The second slot holds a job.
    failed : Out(1)
        The last ended job did not end well; until ``resume``.
    held : Out(1)
        Nothing starts.
    ended : Out(2)
        Ended jobs not yet acknowledged; the last of them is the one ``failed`` speaks of.
    """

    def __init__(self) -> None:
        super().__init__({
            "registers": In(TileControl()),
            "processor": Out(TileControl()),
            "start": In(1),
            "job": In(64),
            "window_base": In(64),
            "window_limit": In(64),
            "acknowledge": In(2),
            "cancel": In(1),
            "hold": In(1),
            "resume": In(1),
            "full": Out(1),
            "failed": Out(1),
            "held": Out(1),
            "ended": Out(2),
        })

    def elaborate(self, platform):
        m = Module()
        above, below = self.registers, self.processor
        fields = ("job", "window_base", "window_limit")
        kept = {name: Signal(64, name=f"kept_{name}") for name in fields}
        go, bad = Signal(), Signal()
        for name in _COPIED_OUT:
            m.d.comb += getattr(below, name).eq(getattr(above, name))
        for name in _COPIED_IN:
            m.d.comb += getattr(above, name).eq(getattr(below, name))
        m.d.comb += [getattr(below, name).eq(Mux(self.full, kept[name], getattr(self, name))) for name in fields]
        m.d.comb += [
            go.eq(~below.busy & ~self.held & ~self.hold),
            below.start.eq(go & (self.full | self.start) & ~self.cancel),
            bad.eq(below.ended & (below.status != Status.DONE)),
        ]
        with m.If(self.cancel | below.start):
            m.d.sync += self.full.eq(0)
        with m.If(self.start & ~self.full & ~below.start):
            m.d.sync += self.full.eq(1)
            m.d.sync += [kept[name].eq(getattr(self, name)) for name in fields]
        with m.If(self.resume):
            m.d.sync += [self.held.eq(0), self.failed.eq(0)]
        with m.If(self.hold):
            m.d.sync += self.held.eq(1)
        with m.If(bad):
            m.d.sync += [self.held.eq(1), self.failed.eq(1)]
        m.d.sync += self.ended.eq(self.ended + below.ended - self.acknowledge)
        return m
