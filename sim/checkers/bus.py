"""Checks what the command buses of a running device show."""

from typing import Protocol

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.memory.hbm.address import address_map
from ringloom.hw.memory.hbm.command import COMMAND_WORD, ColumnOp, RowOp

from .dram import Command, DramChecker, Violation

__all__ = ["CommandSink", "BusChecker"]


class CommandSink(Protocol):
    """Who takes the commands that a simulator records."""

    def take(self, commands: np.ndarray) -> None:
        """uint64, a row a command word: cycle, storage port (tile x ports + channel), COMMAND_WORD; in order."""
        ...

    def reset(self, cycle: int) -> None:
        """The hardware was reset; ``cycle`` is the first one behind it."""
        ...


class BusChecker:
    """One independent checker for every channel of every tile; keeps no commands.

    Parameters
    ----------
    config : DeviceConfig
        The device; ``memory.kind`` is hbm.
    cycle : int
        The first cycle that is recorded.
    """

    def __init__(self, config: DeviceConfig, cycle: int) -> None:
        self._config = config
        self._ended = 0         # commands of checkers that a reset ended
        self.violations: list[tuple[int, int, Violation]] = []
        self._start(cycle, unknown=True)

    def _start(self, cycle: int, *, unknown: bool) -> None:
        config = self._config
        self._checkers = [DramChecker(config.timing, refresh=config.memory.refresh, rows=address_map(config).rows,
                                      since=cycle, unknown=unknown) for _ in range(config.tiles * config.ports)]

    @property
    def commands(self) -> int:
        """Commands checked."""
        return self._ended + sum(checker.commands for checker in self._checkers)

    def take(self, commands: np.ndarray) -> None:
        """Check commands; see :class:`CommandSink`."""
        cycles, ports = commands[:, 0].tolist(), commands[:, 1].tolist()
        shown = {name: (commands[:, 2] >> np.uint64(field.offset) & np.uint64((1 << field.width) - 1)).tolist()
                 for name, field in COMMAND_WORD}
        for k, (cycle, port) in enumerate(zip(cycles, ports, strict=True)):
            found = []
            if row_op := shown["row_op"][k]:
                found.append(Command(cycle, RowOp(row_op).name, shown["row_bank"][k], shown["row"][k]))
            if column_op := shown["column_op"][k]:
                found.append(Command(cycle, ColumnOp(column_op).name, shown["column_bank"][k], 0, shown["column"][k]))
            self._checkers[port].check(found)

    def _collect(self) -> None:
        for port, checker in enumerate(self._checkers):
            tile, channel = divmod(port, self._config.ports)
            self.violations += [(tile, channel, violation) for violation in checker.violations]

    def reset(self, cycle: int) -> None:
        """Start anew: a reset closes every bank."""
        self._collect()
        self._ended = self.commands
        self._start(cycle, unknown=False)

    def finish(self, cycle: int) -> None:
        """The recording ended in ``cycle``; ``violations`` holds (tile, channel, violation) now."""
        for checker in self._checkers:
            checker.finish(cycle)
        self._collect()
        self._ended, self._checkers = self.commands, []
