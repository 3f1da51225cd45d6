"""The way of a command from dispatch to its engine: a queue, the semaphores, and what runs."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..isa import HEADER, RECORD_BYTES, SEMAPHORES
from .semaphores import signal_layout, wait_layout

__all__ = ["RecordQueue", "IssueStage", "QUEUE_DEPTH", "FLIGHT_DEPTH", "INDEX_BITS", "command_layout",
           "far_layout"]

QUEUE_DEPTH = 16
"""Commands of one engine that dispatch takes ahead of the engine; one more waits for its semaphores."""
FLIGHT_DEPTH = 8
"""Commands that one engine may hold."""
INDEX_BITS = 32


def command_layout() -> data.StructLayout:
    """record: the command's 64 bytes; index: its place in the job."""
    return data.StructLayout({"record": 8 * RECORD_BYTES, "index": INDEX_BITS})


class RecordQueue(wiring.Component):
    """A queue of ``depth`` entries and a register at its head; an entry shows one cycle after it came, one a cycle.

    Parameters
    ----------
    shape : ShapeLike
        Shape of an entry.
    depth : int
        Entries behind the head.

    Members
    -------
    i, o : In, Out(stream of ``shape``)
    """

    def __init__(self, *, shape, depth: int) -> None:
        self.depth = depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.i.payload.shape(), depth=self.depth, init=[])
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        level = Signal(range(self.depth + 1))
        first, last = Signal(range(self.depth)), Signal(range(self.depth))
        push, free, behind, pull = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(level != self.depth),
            push.eq(self.i.valid & self.i.ready),
            free.eq(~self.o.valid | self.o.ready),
            behind.eq(push & ~(free & (level == 0))),  # an entry that cannot go to the head at once
            pull.eq(free & (level != 0)),
            write.en.eq(behind),
            write.addr.eq(last),
            write.data.eq(self.i.payload),
            read.addr.eq(first),
        ]
        with m.If(free):
            m.d.sync += self.o.valid.eq(push | pull)
            with m.If(pull):
                m.d.sync += self.o.payload.eq(read.data)
            with m.Elif(push):
                m.d.sync += self.o.payload.eq(self.i.payload)
        with m.If(behind):
            m.d.sync += last.eq(_next(last, self.depth))
        with m.If(pull):
            m.d.sync += first.eq(_next(first, self.depth))
        m.d.sync += level.eq(level + behind - pull)
        return m


def _next(index: Signal, depth: int):
    return (index + 1)[:len(index)] if depth & (depth - 1) == 0 else (index + 1) * (index != depth - 1)


def far_layout() -> data.StructLayout:
    """enable: the signal is for another tile's job; semaphore, tile: which one grows by one."""
    return data.StructLayout({"enable": 1, "semaphore": range(SEMAPHORES), "tile": 8})


class IssueStage(wiring.Component):
    """Queues one engine's commands, takes their semaphores in order, and signals when they have ended.

    A command without waits shows at the engine one cycle after it came to an empty stage; one with waits a cycle
    after both can be taken, so two cycles after the ``done`` that allowed it. One command a cycle without waits,
    one every two with them. At most ``flight`` commands are in the engine.
    A command ends at the earliest in the cycle after the engine accepted it.

    Parameters
    ----------
    depth, flight : int
        Commands queued, and commands in the engine.
    remote : bool
        There are other tiles to signal.

    Members
    -------
    i : In(stream of command_layout())
    commands : Out(stream of 512 bits), done : In(1)
        The engine.
    stop : In(1)
        Takes and signals nothing more; the stage is cleared afterwards.
    waits, request, grant, signals, signal
        As ``Semaphores`` has them.
    tile : In
        Number of this tile.
    room : In(1)
        What the next command signals elsewhere will have a place; while it is not offered this may fall, later not.
    far : Out(two far_layout)
        Beside ``signals``, of the command that ends.
    empty : Out(1)
        No command is queued, waits or runs.
    queued, waiting, running : Out(1)
        There is a command at the head; it waits for a semaphore; at least one is in the engine.
    oldest : Out(32)
        Index of the oldest command that has not ended (while not ``empty``).
    """

    def __init__(self, *, depth: int = QUEUE_DEPTH, flight: int = FLIGHT_DEPTH, remote: bool = False) -> None:
        self.depth, self.flight, self._remote = depth, flight, remote
        super().__init__({
            "i": In(stream.Signature(command_layout())),
            "commands": Out(stream.Signature(8 * RECORD_BYTES)),
            "done": In(1),
            "stop": In(1),
            "waits": Out(data.ArrayLayout(wait_layout(), 2)),
            "request": Out(1),
            "grant": In(1),
            "signals": Out(data.ArrayLayout(signal_layout(), 2)),
            "signal": Out(1),
            "tile": In(8), "room": In(1, init=1), "far": Out(data.ArrayLayout(far_layout(), 2)),
            "empty": Out(1),
            "queued": Out(1),
            "waiting": Out(1),
            "running": Out(1),
            "oldest": Out(INDEX_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = RecordQueue(shape=command_layout(), depth=self.depth)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        head = queue.o
        header = data.View(HEADER.layout, head.payload.record)
        m.d.comb += self.commands.payload.eq(head.payload.record)

        # -- semaphores of the head --------------------------------------------------------------------
        needs, granted = Signal(), Signal()
        for k, wait in enumerate(self.waits):
            m.d.comb += [
                wait.enable.eq(header[f"wait{k}_enable"]),
                wait.semaphore.eq(header[f"wait{k}_semaphore"]),
                wait.count.eq(header[f"wait{k}_count"]),
            ]
        m.d.comb += [
            needs.eq((self.waits[0].enable | self.waits[1].enable) & ~granted),
            self.request.eq(head.valid & needs & ~self.stop),
            self.queued.eq(head.valid),
            self.waiting.eq(head.valid & needs),
        ]

        # -- what is in the engine ----------------------------------------------------------------------
        flight_layout = data.StructLayout({
            "signals": data.ArrayLayout(signal_layout(), 2), "index": INDEX_BITS,
            **({"tiles": data.ArrayLayout(8, 2), "remote": data.ArrayLayout(1, 2)} if self._remote else {})})
        m.submodules.flight = flight = Memory(shape=flight_layout, depth=self.flight, init=[])
        write, read = flight.write_port(), flight.read_port(domain="comb")
        level = Signal(range(self.flight + 1))
        first, last = Signal(range(self.flight)), Signal(range(self.flight))
        accept, end = Signal(), Signal()
        m.d.comb += [
            # Once up it stays: grants are kept, and the engine's commands only end.
            self.commands.valid.eq(head.valid & ~needs & (level != self.flight) & self.room),
            accept.eq(self.commands.valid & self.commands.ready),
            head.ready.eq(accept),
            end.eq(self.done & self.running),
            write.en.eq(accept),
            write.addr.eq(last),
            write.data.index.eq(head.payload.index),
            read.addr.eq(first),
            self.signals.eq(read.data.signals),
            self.signal.eq(end & ~self.stop),
            self.running.eq(level != 0),
            self.empty.eq(~head.valid & (level == 0)),
        ]
        for k, signal in enumerate(write.data.signals):
            m.d.comb += [
                signal.enable.eq(header[f"signal{k}_enable"]),
                signal.semaphore.eq(header[f"signal{k}_semaphore"]),
            ]
            if self._remote:
                kept, far = read.data.signals[k], self.far[k]
                elsewhere = Signal(name=f"elsewhere{k}")
                m.d.comb += [
                    write.data.tiles[k].eq(header[f"signal{k}_tile"]),
                    write.data.remote[k].eq(header[f"signal{k}_remote"]),
                    elsewhere.eq(read.data.remote[k] & (read.data.tiles[k] != self.tile)),
                    self.signals[k].enable.eq(kept.enable & ~elsewhere),
                    far.enable.eq(kept.enable & elsewhere),
                    far.semaphore.eq(kept.semaphore), far.tile.eq(read.data.tiles[k]),
                ]
        with m.If(self.running):
            m.d.comb += self.oldest.eq(read.data.index)
        with m.Else():
            m.d.comb += self.oldest.eq(head.payload.index)
        with m.If(accept):
            m.d.sync += [granted.eq(0), last.eq(_next(last, self.flight))]
        with m.Elif(self.grant):
            m.d.sync += granted.eq(1)
        with m.If(end):
            m.d.sync += first.eq(_next(first, self.flight))
        m.d.sync += level.eq(level + accept - end)
        return m
