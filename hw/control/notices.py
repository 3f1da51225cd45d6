"""Signals for semaphores of other tiles, on their way from ended commands to the ring."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..memory.arbiter import rotate
from ..ring.requester import notice_layout
from .dispatch import FLIGHT_DEPTH, far_layout

__all__ = ["NoticeUnit"]


class NoticeUnit(wiring.Component):
    """Takes every signal of an ended command in the cycle of its end, and hands them to the ring one by one.

    An engine gets a command only while the signals of what it holds, and of what has ended before, have a place here.
    Latency 2 cycles, throughput a signal a cycle over all engines.

    Parameters
    ----------
    config : DeviceConfig
    engines : int

    Members
    -------
    far : In, of each engine, the two signals of the command that ends
    accept, ended : In(engines)
        A command goes to an engine; one ends.
    room : Out(engines)
        An engine may get a command.
    context, epoch : In
        Of the job.
    clear : In(1)
        Forgets what has not been shown.
    quiet : Out(1)
        Every signal has gone.
    notices : Out(stream of notice_layout)
    """

    def __init__(self, *, config: DeviceConfig, engines: int) -> None:
        self._engines = engines
        notice = notice_layout()
        super().__init__({
            "far": In(data.ArrayLayout(far_layout(), 2)).array(engines),
            "accept": In(engines), "ended": In(engines), "room": Out(engines),
            "context": In(notice["context"].shape), "epoch": In(notice["epoch"].shape),
            "clear": In(1),
            "quiet": Out(1),
            "notices": Out(stream.Signature(notice)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        pair = data.ArrayLayout(far_layout(), 2)
        heads, valids, pops = [], [], []
        for e in range(self._engines):
            queue = fifo.SyncFIFO(width=pair.size, depth=FLIGHT_DEPTH)
            m.submodules[f"queue{e}"] = ResetInserter(self.clear)(queue)
            head = data.View(pair, queue.r_data)
            held = Signal(range(FLIGHT_DEPTH + 1), name=f"held{e}")  # commands in the engine, and signals that wait
            second, wanted, leaves = Signal(name=f"second{e}"), Signal(name=f"wanted{e}"), Signal(name=f"leaves{e}")
            taken = Signal(name=f"taken{e}")
            chosen = Signal(far_layout(), name=f"chosen{e}")
            m.d.comb += [
                wanted.eq(self.far[e][0].enable | self.far[e][1].enable),
                queue.w_en.eq(self.ended[e] & wanted),
                queue.w_data.eq(self.far[e]),
                self.room[e].eq(held != FLIGHT_DEPTH),
                chosen.eq(Mux(second | ~head[0].enable, head[1].as_value(), head[0].as_value())),
                leaves.eq(taken & (second | ~head[0].enable | ~head[1].enable)),
                queue.r_en.eq(leaves),
            ]
            m.d.sync += held.eq(held + self.accept[e] - (self.ended[e] & ~wanted) - leaves)
            with m.If(taken):
                m.d.sync += second.eq(~leaves)
            with m.If(self.clear):
                m.d.sync += [held.eq(0), second.eq(0)]
            heads.append(chosen)
            valids.append(queue.r_rdy)
            pops.append(taken)
        last, choice, room = Signal(range(self._engines)), Signal(range(self._engines)), Signal()
        rotate(m, valids, last, choice)
        m.d.comb += [
            room.eq((~self.notices.valid | self.notices.ready) & ~self.clear),
            self.quiet.eq(~Cat(valids).any() & ~self.notices.valid),
        ]
        with m.If(self.notices.ready):
            m.d.sync += self.notices.valid.eq(0)
        for e, (head, valid, taken) in enumerate(zip(heads, valids, pops, strict=True)):
            m.d.comb += taken.eq(room & valid & (choice == e))
            with m.If(taken):
                m.d.sync += [
                    last.eq(e), self.notices.valid.eq(1),
                    self.notices.p.tile.eq(head.tile), self.notices.p.semaphore.eq(head.semaphore),
                    self.notices.p.context.eq(self.context), self.notices.p.epoch.eq(self.epoch),
                ]
        return m
