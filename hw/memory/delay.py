"""A queue whose entries come out when their time has come."""

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DelayQueue"]


class DelayQueue(wiring.Component):
    """First in, first out; an entry shows at ``o`` no earlier than ``delay`` cycles after it was taken.

    Entries stay where they were written and carry the time they are due, so that the cost does not grow with the
    delay. A pointer follows the due times even while ``o`` is held back: waiting never adds to a later delay.
    Latency ``delay`` (at least 1) cycles, throughput 1 a cycle.

    Parameters
    ----------
    shape : ShapeLike
        What an entry is.
    depth : int
        Entries, a power of two.
    longest : int
        Largest ``delay`` that will be asked for, in cycles.

    Members
    -------
    i, o : streams of ``shape``.
    delay : In, cycles; sampled with ``i``.
    """

    def __init__(self, *, shape, depth: int, longest: int) -> None:
        assert depth >= 2 and depth & (depth - 1) == 0
        self._shape, self._depth = shape, depth
        # An entry is looked at no later than depth cycles after it is due: half the range is never reached.
        self._time_bits = (2 * (longest + depth)).bit_length() + 1
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "delay": In(range(longest + 1)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = self._depth
        m.submodules.entries = entries = memory.Memory(shape=Shape.cast(self._shape), depth=depth, init=[])
        m.submodules.times = times = memory.Memory(shape=self._time_bits, depth=depth, init=[])
        write, write_time = entries.write_port(), times.write_port()
        read, read_time = entries.read_port(domain="comb"), times.read_port(domain="comb")

        now = Signal(self._time_bits)
        late = Signal(self._time_bits)
        tail, ripe, head = Signal(range(depth)), Signal(range(depth)), Signal(range(depth))
        waiting, due = Signal(range(depth + 1)), Signal(range(depth + 1))
        taken, passed, given = Signal(), Signal(), Signal()
        m.d.sync += now.eq(now + 1)
        m.d.comb += [
            self.i.ready.eq(waiting + due < depth),
            taken.eq(self.i.valid & self.i.ready),
            write.addr.eq(tail), write.en.eq(taken), write.data.eq(self.i.payload),
            write_time.addr.eq(tail), write_time.en.eq(taken), write_time.data.eq(now + self.delay),
            read_time.addr.eq(ripe),
            late.eq(now - read_time.data),
            passed.eq((waiting != 0) & ~late[-1]),
            read.addr.eq(head),
            self.o.valid.eq((due != 0) | passed),
            self.o.payload.eq(read.data),
            given.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += [
            tail.eq(tail + taken),
            ripe.eq(ripe + passed),
            head.eq(head + given),
            waiting.eq(waiting + taken - passed),
            due.eq(due + passed - given),
        ]
        return m
