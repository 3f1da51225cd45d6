"""Counts the events of a channel."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ...counters import CHANNEL_INDEX_BITS, COUNTER_BITS, LATENCY_BOUNDS
from .events import CHANNEL_EVENTS

__all__ = ["ChannelCounters"]


class ChannelCounters(wiring.Component):
    """Every entry of ``counters.CHANNEL_COUNTERS`` for one channel.

    Of each kind of event one comes a cycle, so each kind is a memory in which one counter grows. They count while
    ``active`` and keep their values through a reset.

    Members
    -------
    events : In(CHANNEL_EVENTS)
    active : In(1)
    index : In, value : Out(48)
        A counter and its value in the same cycle.
    """

    def __init__(self) -> None:
        super().__init__({"events": In(CHANNEL_EVENTS), "active": In(1), "index": In(CHANNEL_INDEX_BITS),
                          "value": Out(COUNTER_BITS)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        events = self.events

        def count(name: str, first: int, entries: int, which: Value, when: Value) -> Value:
            m.submodules[name] = store = memory.Memory(shape=COUNTER_BITS, depth=entries, init=[])
            put, get, show = store.write_port(), store.read_port(domain="comb"), store.read_port(domain="comb")
            m.d.comb += [get.addr.eq(which), put.addr.eq(which), put.data.eq(get.data + 1),
                         put.en.eq(when & self.active), show.addr.eq((self.index - first)[:len(show.addr)])]
            return show.data

        bucket = Signal(range(len(LATENCY_BOUNDS) + 1))
        m.d.comb += bucket.eq(sum(events.latency >= bound for bound in LATENCY_BOUNDS))
        access = events.read | events.write
        row_class = Mux(events.row_hit, 0, Mux(events.row_miss, 1, 2))
        kinds = count("kinds", 0, 2, events.write, access)
        classes = count("classes", 2, 3, row_class, access)
        causes = count("causes", 8, 8, events.cause, 1)
        latencies = count("latencies", 16, 8, bucket, events.latency_valid)
        refreshes, occupancy = Signal(COUNTER_BITS), Signal(COUNTER_BITS)
        with m.If(self.active):
            m.d.sync += occupancy.eq(occupancy + events.level)
            with m.If(events.refresh):
                m.d.sync += refreshes.eq(refreshes + 1)
        m.d.comb += self.value.eq(kinds)
        for first, shown in ((2, classes), (5, refreshes), (6, occupancy), (8, causes), (16, latencies)):
            with m.If(self.index >= first):
                m.d.comb += self.value.eq(shown)
        return m
