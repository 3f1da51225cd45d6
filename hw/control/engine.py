"""What an engine (LOAD, MATMUL, STORE, RING) shows to the command processor."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..isa import RECORD_BYTES, Code, Record
from ..memory.port import CONTEXT_BITS, EPOCH_BITS

__all__ = ["EnginePort", "JobState", "fault_layout", "LOAD_EVENTS", "MATMUL_EVENTS", "STORE_EVENTS",
           "RING_EVENTS"]

# What an engine tells the counters every cycle. ``bytes`` counts, the others are conditions of this cycle;
# counters.py says what each means.
LOAD_EVENTS = data.StructLayout({"bytes": 8, "wait": 1, "reading": 1})  # reading: a read is unanswered
MATMUL_EVENTS = data.StructLayout({"active": 1, "idle_weight": 1, "filling": 1})  # filling: sums are on their way
STORE_EVENTS = data.StructLayout({"bytes": 8, "wait": 1, "wait_accumulator": 1, "writing": 1})  # writing: unanswered
# bytes: put on the links; active: a command is in the engine; progress: something moved, for the watchdog.
RING_EVENTS = data.StructLayout({"bytes": 8, "wait": 1, "active": 1, "progress": 1})


def fault_layout() -> data.StructLayout:
    """code: an ``isa.Code``; address: the memory or block address at fault."""
    return data.StructLayout({"code": Code, "address": 64})


class JobState(wiring.Signature):
    """What holds for the whole of a job, as the command processor drives it; stable while an engine is busy.

    window_base, window_limit: bytes of memory the job's commands may touch, base <= address < limit.
    stop: issue no new memory request; take the responses of those in flight. The engine is cleared afterwards.
    """

    def __init__(self, *, address_bits: int) -> None:
        super().__init__({
            "context": Out(CONTEXT_BITS),
            "epoch": Out(EPOCH_BITS),
            "window_base": Out(address_bits + 1),
            "window_limit": Out(address_bits + 1),
            "stop": Out(1),
        })


class EnginePort(wiring.Signature):
    """One engine's command side, as the command processor sees it.

    commands: records whose semaphores have been taken. An engine accepts a command while earlier ones still run
    wherever that hides latency; its commands end in order.
    done: high for one cycle for each command that has ended.
    fault_valid: rises once every earlier command is done, and stays, with ``fault``, until the engine is cleared.
    busy: a command is in the engine.
    quiet: no memory request of the engine is unanswered (always 1 where it makes none).
    Engines know nothing of semaphores. They are cleared by a synchronous reset of all their state.
    """

    def __init__(self, record: Record) -> None:
        assert record.bytes == RECORD_BYTES
        super().__init__({
            "commands": Out(stream.Signature(record.layout)),
            "done": In(1),
            "fault_valid": In(1),
            "fault": In(fault_layout()),
            "busy": In(1),
            "quiet": In(1),
        })
