"""From a matrix product to the command stream of a tile: plan (tile sizes), schedule (operations), stream (bytes)."""

from ringloom.hw.config import DeviceConfig

from .gemm import Batch, Buffer, Gemm, Layout
from .plan import Plan, make_plan
from .schedule import schedule
from .stream import Stream, emit

__all__ = ["Batch", "Buffer", "Gemm", "Layout", "Plan", "Stream", "compile_gemm", "make_plan"]


def compile_gemm(gemm: Gemm, config: DeviceConfig) -> Stream:
    """The command stream of ``gemm`` on a tile of ``config``."""
    return emit(schedule(gemm, make_plan(gemm, config), config))
