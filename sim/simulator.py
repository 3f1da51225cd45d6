"""The protocol that every simulator of the device answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ringloom.hw.config import DeviceConfig

from .checkers.bus import CommandSink

__all__ = ["Simulator", "SimulationTimeout", "BusError", "RESET_CYCLES"]

RESET_CYCLES = 4
"""Cycles for which every simulator holds reset: when it is made, and in :meth:`Simulator.reset`."""


class SimulationTimeout(Exception):
    """The device did not answer on a bus within the simulator's limit of cycles; the message says which channel."""


class BusError(Exception):
    """The device answered a bus access with an error response; the message names address, channel and response."""


class Simulator(Protocol):
    """One device under simulation. Simulated time moves only inside :meth:`read`, :meth:`write`, :meth:`axi_read`,
    :meth:`axi_write`, :meth:`run` and :meth:`reset`; the same calls take the same cycles on every simulator.
    """

    name: str
    config: DeviceConfig

    @property
    def cycle(self) -> int:
        """Clock edges since this simulator was made."""
        ...

    def memory(self, tile: int = 0) -> np.ndarray:
        """The storage of a tile: uint8, shape ``(config.memory.bytes,)``, shared with the simulation, not copied."""
        ...

    def reset(self) -> None:
        """Hold reset for :data:`RESET_CYCLES` cycles. Storage keeps its bytes."""
        ...

    def read(self, address: int) -> int:
        """Read a 32-bit register over AXI4-Lite."""
        ...

    def write(self, address: int, value: int) -> None:
        """Write a 32-bit register over AXI4-Lite."""
        ...

    def axi_read(self, address: int, size: int) -> bytes:
        """Read device memory through the AXI4 window, any alignment, split into legal bursts."""
        ...

    def axi_write(self, address: int, data: bytes) -> None:
        """Write device memory through the AXI4 window, any alignment."""
        ...

    def run(self, limit: int) -> bool:
        """Run until the interrupt line is high, or for ``limit`` cycles; true if the interrupt is high."""
        ...

    def record_commands(self, sink: CommandSink | None) -> None:
        """Give every command that the DRAMs' buses show from now on to ``sink``, a part at a time; None: no more.
        Nothing is kept. Costs nothing while it is off."""
        ...

    def waves_start(self, path: Path, *, blocks: Sequence[str] = (), start: int = 0, stop: int | None = None) -> None:
        """Record signals to a VCD file: all, or those of ``blocks`` (hierarchical prefixes such as
        ``tile0.tensor``), in cycles ``start`` to ``stop`` counted from this call."""
        ...

    def waves_stop(self) -> None:
        """End the recording and close the file."""
        ...

    def close(self) -> None:
        """Free everything; a second call does nothing."""
        ...
