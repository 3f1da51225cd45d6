"""Simulators of a device: one protocol, several engines."""

from collections.abc import Callable

from ringloom.hw.config import DeviceConfig

from .progress import Progress, ProgressLine
from .simulator import RESET_CYCLES, BusError, SimulationTimeout, Simulator

__all__ = ["Simulator", "SimulationTimeout", "BusError", "Progress", "ProgressLine", "RESET_CYCLES", "ENGINES",
           "open_simulator"]


def _verilated(config: DeviceConfig, progress: Progress | None) -> Simulator:
    from .verilated.binding import VerilatedSimulator
    return VerilatedSimulator(config, progress)


def _python(config: DeviceConfig, progress: Progress | None) -> Simulator:
    from .amaranth_sim import PythonSimulator
    return PythonSimulator(config, progress)


ENGINES: dict[str, Callable[[DeviceConfig, Progress | None], Simulator]] = {"verilated": _verilated, "python": _python}
"""Name of an engine to what opens it."""


def open_simulator(config: DeviceConfig, engine: str = "verilated", progress: Progress | None = None) -> Simulator:
    """A simulator of the device of ``config``, out of reset, its storage all zero.

    engine: a key of :data:`ENGINES`. progress: told what goes on while it is built; by default a line on stderr.
    Raises ``ValueError`` for an unknown engine and ``ringloom.sim.verilated.BuildError`` where a tool is missing.
    """
    if engine not in ENGINES:
        raise ValueError(f"sim = {engine!r}: no such simulator; the choices are {', '.join(ENGINES)}")
    return ENGINES[engine](config, progress)
