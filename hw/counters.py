"""Performance counters of a tile: the one list from which RTL, registers, reports and docs are made.

A job's cycle has exactly one cause (``CAUSES``): the array is active, else the first that holds of waiting for
memory, for the ring, for the array's own fill and drain, for commands. The causes add up to ``cycles``.
"""

from dataclasses import dataclass

__all__ = ["Counter", "COUNTERS", "CAUSES", "COUNTER_BITS", "CHANNEL_COUNTERS", "CHANNEL_INDEX_BITS", "LATENCY_BOUNDS",
           "LOST"]

COUNTER_BITS = 48
"""Width of a counter: at 1 GHz it wraps after 78 hours."""


@dataclass(frozen=True)
class Counter:
    """``name`` as users see it behind ``tileN.``; it grows by up to ``step`` a cycle."""

    name: str
    unit: str
    doc: str
    step: int = 1


COUNTERS = (
    Counter("cycles", "cycles", "cycles in which a job runs, from the accepted doorbell to its end"),
    Counter("array.active", "cycles", "a row of activations enters the array"),
    Counter("idle.memory", "cycles", "array idle; a read is outstanding, or a write waits for memory"),
    Counter("idle.ring", "cycles", "array idle; a beat of another tile's memory or a collective is outstanding"),
    Counter("idle.fill", "cycles", "array idle; the array fills or drains, or results are requantized"),
    Counter("idle.command", "cycles", "array idle; nothing runs: commands are fetched, decoded or ordered"),
    Counter("array.idle_weight", "cycles", "a MATMUL runs and waits for its next weight tile"),
    Counter("array.idle_semaphore", "cycles", "the next MATMUL waits for a semaphore"),
    Counter("array.idle_command", "cycles", "there is no MATMUL to run"),
    Counter("load.busy", "cycles", "a LOAD is in the engine"),
    Counter("load.bytes", "bytes", "bytes that LOAD fetched, padding and unused parts of beats left out", 128),
    Counter("load.wait", "cycles", "LOAD has a request that memory does not accept"),
    Counter("store.busy", "cycles", "a STORE is in the engine"),
    Counter("store.bytes", "bytes", "bytes that STORE wrote", 128),
    Counter("store.wait", "cycles", "STORE has a write that memory does not accept"),
    Counter("store.wait_accumulator", "cycles", "STORE waits for an accumulator bank that MATMUL uses"),
    Counter("memory.reads", "beats", "read beats that the memory ports accepted", 8),
    Counter("memory.writes", "beats", "write beats that the memory ports accepted", 8),
    Counter("commands.load", "commands", "LOAD commands ended"),
    Counter("commands.matmul", "commands", "MATMUL commands ended"),
    Counter("commands.store", "commands", "STORE commands ended"),
    Counter("jobs", "jobs", "jobs ended, whatever their status"),
    Counter("ring.busy", "cycles", "a RING command is in the engine"),
    Counter("ring.bytes", "bytes", "bytes that RING commands put on the links", 128),
    *(Counter(f"ring.flits_{way}", "flits", f"flits that the tile's stop put on its {way} link", 1)
      for way in ("clockwise", "counterclockwise")),
    *(Counter(f"ring.forwarded_{way}", "flits", "of these, flits that came from other stops")
      for way in ("clockwise", "counterclockwise")),
    *(Counter(f"ring.stalls_{way}", "cycles", f"the tile's stop has a flit for its {way} link, and none may go")
      for way in ("clockwise", "counterclockwise")),
)

CAUSES = ("array.active", "idle.memory", "idle.ring", "idle.fill", "idle.command")

LATENCY_BOUNDS = (32, 64, 128, 256, 512, 1024, 2048)
"""Cycles at which the buckets of the latency histogram begin; the first begins at 0."""

LOST = ("idle", "response", "turnaround", "group", "refresh", "row")
"""Why a cycle of a channel's data bus carried nothing: the first that holds."""

CHANNEL_COUNTERS = {
    **{index: Counter(name, unit, doc) for index, (name, unit, doc) in enumerate((
        ("reads", "bursts", "RD commands"),
        ("writes", "bursts", "WR commands"),
        ("row_hits", "bursts", "accesses that found their row open"),
        ("row_misses", "bursts", "accesses that found their bank closed"),
        ("row_conflicts", "bursts", "accesses for which another row had to be closed"),
        ("refreshes", "commands", "refreshes, of one bank or of all"),
    ))},
    6: Counter("occupancy", "requests x cycles", "requests in the queues, summed over the cycles", 511),
    8: Counter("bus.data", "cycles", "the data bus is in use"),
    **{9 + index: Counter(f"bus.{cause}", "cycles", doc) for index, (cause, doc) in enumerate(zip(LOST, (
        "data bus unused; no request waits",
        "data bus unused; the requester does not take its responses",
        "data bus unused; it changes between reads and writes",
        "data bus unused; a bank group waits for tCCD_L",
        "data bus unused; a request waits for a bank under refresh",
        "data bus unused; rows are closed and opened",
    ), strict=True))},
    **{16 + index: Counter(f"latency.{low}", "reads", f"reads answered {low} cycles after their acceptance or later"
                           + (f", and before {high}" if high else ""))
       for index, (low, high) in enumerate(zip((0, *LATENCY_BOUNDS), (*LATENCY_BOUNDS, 0), strict=True))},
}
"""What each DRAM channel counts while a job runs, by the number that selects it. In a profile channel c of tile t is
``tile{t}.hbm{c}.``; the ``bus`` counters of a channel add up to ``cycles``."""

CHANNEL_INDEX_BITS = 5
