"""Performance counters of a tile: the one list from which RTL, registers, reports and docs are made.

A job's cycle has exactly one cause (``CAUSES``): the array is active, else the first that holds of waiting for
memory, for the ring, for the array's own fill and drain, for commands. The causes add up to ``cycles``.
"""

from dataclasses import dataclass

__all__ = ["Counter", "COUNTERS", "CAUSES", "COUNTER_BITS"]

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
    Counter("idle.ring", "cycles", "array idle; a transfer on the ring is outstanding"),
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
)

CAUSES = ("array.active", "idle.memory", "idle.ring", "idle.fill", "idle.command")
