"""The errors that users of Ringloom meet: each says the values, the limit, and what to do."""

import builtins
from collections.abc import Mapping
from typing import Any

__all__ = ["Error", "ConfigError", "ShapeError", "UnsupportedError", "OutOfMemoryError", "ClosedError", "DeviceFault",
           "TimeoutError"]


class Error(Exception):
    """The root of everything Ringloom raises on purpose."""


class ConfigError(Error, ValueError):
    """A configuration key, value or combination that the hardware cannot be built with."""


class ShapeError(Error, ValueError):
    """Operands whose shapes do not fit each other."""


class UnsupportedError(Error, ValueError):
    """A dtype, value or option that the device does not take; nothing was changed or lost."""


class OutOfMemoryError(Error, MemoryError):
    """A buffer for which device memory has no room."""


class ClosedError(Error, RuntimeError):
    """A call on a device that has been closed."""


class DeviceFault(Error, RuntimeError):
    """A job that the device ended with an error record; the device is usable again.

    code: name of the ``isa.Code``, or SELF_TEST. command: index of the command at fault. address: memory or block
    address. where: of a self-test, what it found: test, tile, row, column, address.
    """

    def __init__(self, message: str, *, code: str = "", command: int = 0, address: int = 0,
                 where: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.where = dict(where or {})
        self.code = code
        self.command = command
        self.address = address


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001 - the name is the contract
    """A job that did not end within its cycles; it was aborted and the device is usable again.

    waiting: who waits for whom, one sentence an engine.
    """

    def __init__(self, message: str, *, waiting: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.waiting = waiting
