"""What is shown on the terminal while a simulator is built."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.status import Status

__all__ = ["Progress", "ProgressLine", "reporting"]

Progress = Callable[[str], None]
"""Told in a few words what goes on, each time that changes."""


class ProgressLine:
    """A line on stderr that says what goes on and for how long; plain lines where stderr is no terminal.

    Used as a context manager; calling it changes the text. Nothing is shown before the first call.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        if not self._console.is_terminal:
            print(f"[{time.monotonic() - self._start:5.1f} s] {text}", file=sys.stderr, flush=True)
        elif self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()


@contextmanager
def reporting(progress: Progress | None) -> Iterator[Progress]:
    """``progress`` itself, or a :class:`ProgressLine` of its own where it is None."""
    if progress is not None:
        yield progress
    else:
        with ProgressLine() as line:
            yield line
