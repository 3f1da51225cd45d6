"""From a matrix product to the command stream of a tile: plan (tile sizes), schedule (operations), stream (bytes)."""

from ringloom.hw.config import DeviceConfig

from .gemm import Batch, Buffer, Gemm, Layout
from .group import Broadcast, Reduction, compile_part, ring_operation
from .plan import Cost, Plan, cost, make_plan
from .schedule import Operation, schedule
from .split import Cut, bounds, cuts, matrices, restrict
from .stage import SLOTS, Stage, StageLayer, compile_stage
from .stream import Stream, emit
from .transfer import Conversion, Place, Transfers

__all__ = [
    "SLOTS", "Batch", "Broadcast", "Buffer", "Conversion", "Cost", "Cut", "Gemm", "Layout", "Operation", "Place",
    "Plan", "Reduction", "Stage", "StageLayer", "Stream", "Transfers", "bounds", "compile_gemm", "compile_part",
    "compile_stage", "cost", "cuts", "emit", "make_plan", "matrices", "restrict", "ring_operation", "schedule",
]


def compile_gemm(gemm: Gemm, config: DeviceConfig) -> Stream:
    """The command stream of ``gemm`` on a tile of ``config``."""
    return emit(schedule(gemm, make_plan(gemm, config), config))
