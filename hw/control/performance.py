"""The performance counters of a tile."""

from amaranth.hdl import Array, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..counters import CAUSES, COUNTER_BITS, COUNTERS
from ..ring.flit import LANE_EVENTS, Direction
from .engine import LOAD_EVENTS, MATMUL_EVENTS, RING_EVENTS, STORE_EVENTS

__all__ = ["PerformanceCounters"]


class PerformanceCounters(wiring.Component):
    """Counts what the engines did and why the array was idle: every entry of ``counters.COUNTERS``.

    In each cycle with ``active`` exactly one of the causes grows: the array is active, else the first that holds
    of memory, ring, fill, command. A counter shows a cycle's events one cycle later. ``snapshot`` copies all
    counters; ``value`` shows the copy of counter ``index`` in the same cycle.

    Parameters
    ----------
    config : DeviceConfig
        The device.

    Members
    -------
    load_events, matmul_events, store_events, ring_events : In
        What the engines tell.
    busy, done : In(3)
        Of LOAD, MATMUL, STORE.
    active, ended, matmul_queued, matmul_waiting : In(1)
        As ``TileControl`` has them.
    near, far : In(1)
        Where there are several tiles: LOAD or STORE wait for this tile's memory; for another's.
    lanes : In(LANE_EVENTS).array(directions)
        What the ring's stop does.
    reads, writes : In
        Read and write requests that the memory ports accepted in this cycle.
    snapshot : In(1), index : In, value : Out(48)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        super().__init__({
            "load_events": In(LOAD_EVENTS), "matmul_events": In(MATMUL_EVENTS), "store_events": In(STORE_EVENTS),
            "ring_events": In(RING_EVENTS),
            "busy": In(3), "done": In(3),
            "active": In(1), "ended": In(1), "matmul_queued": In(1), "matmul_waiting": In(1),
            "near": In(1), "far": In(1), "lanes": In(LANE_EVENTS).array(len(Direction)),
            "reads": In(range(config.ports + 1)), "writes": In(range(config.ports + 1)),
            "snapshot": In(1),
            "index": In(range(len(COUNTERS))),
            "value": Out(COUNTER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        waits = self.load_events.reading | self.store_events.writing
        holds = {
            "array.active": self.matmul_events.active,
            "idle.memory": self.near | (waits & ~self.far),
            "idle.ring": self.far | self.ring_events.active,
            # Results between the array and memory are STORE's, weights and rows before it MATMUL's.
            "idle.fill": self.matmul_events.filling | self.busy[1] | self.busy[2],
            "idle.command": Const(1),
        }
        cause = {}
        unexplained = self.active
        for name in CAUSES:
            cause[name] = Signal(name=f"cause_{name.replace('.', '_')}")
            m.d.comb += cause[name].eq(unexplained & holds[name])
            unexplained = unexplained & ~cause[name]

        idle = self.active & ~self.matmul_events.active
        amounts = {
            "cycles": self.active, **cause,
            "array.idle_weight": idle & self.matmul_events.idle_weight,
            "array.idle_semaphore": idle & ~self.busy[1] & self.matmul_waiting,
            "array.idle_command": idle & ~self.busy[1] & ~self.matmul_queued,
            "load.busy": self.busy[0], "load.bytes": self.load_events.bytes, "load.wait": self.load_events.wait,
            "store.busy": self.busy[2], "store.bytes": self.store_events.bytes, "store.wait": self.store_events.wait,
            "store.wait_accumulator": self.store_events.wait_accumulator,
            "memory.reads": self.reads, "memory.writes": self.writes,
            "commands.load": self.done[0], "commands.matmul": self.done[1], "commands.store": self.done[2],
            "jobs": self.ended,
            "ring.busy": self.ring_events.active, "ring.bytes": self.ring_events.bytes,
        }
        for direction in Direction:
            lane, name = self.lanes[direction], direction.name.lower()
            amounts |= {f"ring.flits_{name}": lane.injected | lane.forwarded, f"ring.forwarded_{name}": lane.forwarded,
                        f"ring.stalls_{name}": lane.stalled}
        assert set(amounts) == {c.name for c in COUNTERS}
        latched = Array([Signal(COUNTER_BITS, name=f"latched_{c.name.replace('.', '_')}") for c in COUNTERS])
        for counter, copy in zip(COUNTERS, latched, strict=True):
            value = Signal(COUNTER_BITS, name=counter.name.replace(".", "_"))
            m.d.sync += value.eq(value + amounts[counter.name])
            with m.If(self.snapshot):
                m.d.sync += copy.eq(value)
        m.d.comb += self.value.eq(latched[self.index])
        return m
