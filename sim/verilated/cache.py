"""A cache of built files, keyed by content: several processes may use and fill it at once, and any may be killed.

An entry is one file and a note of its size and hash beside it. It is made in a scratch folder under a lock of its own
and moved in place at the end, so that what is there is whole; what does not fit its note is made again.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

__all__ = ["Cache", "cache_folder", "digest"]


def cache_folder() -> Path:
    """The folder of the cache: ``RINGLOOM_CACHE``, or the user's cache folder of this system."""
    chosen = os.environ.get("RINGLOOM_CACHE")
    return Path(chosen).expanduser().resolve() if chosen else Path(platformdirs.user_cache_dir("ringloom"))


def digest(*parts: str | bytes) -> str:
    """A key over ``parts``, in order."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()[:32]


_SCRATCH = ".build"


class Cache:
    """Files by key in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str, make: Callable[[Path], Path]) -> Path:
        """The file called ``name``; where it is missing or broken, ``make(scratch)`` builds it and returns where.

        name: the file's name, its key in it. make: called with an empty folder; one process at a time for one name.
        """
        target = self.folder / name
        if self._whole(target):
            return target
        with self._lock(name):
            if self._whole(target):  # another process made it while this one waited
                return target
            self._sweep()
            scratch = self.folder / f"{name}{_SCRATCH}"
            shutil.rmtree(scratch, ignore_errors=True)  # what a killed build left
            scratch.mkdir(parents=True)
            try:
                made = make(scratch)
                note = self._note(made)
                made.replace(target)
                partial = scratch / "note"
                partial.write_text(note)
                partial.replace(self._note_path(target))
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return target

    def _sweep(self) -> None:
        """Remove what killed builds of other entries left: scratch folders that no process has the lock of."""
        for scratch in self.folder.glob(f"*{_SCRATCH}"):
            with contextlib.suppress(OSError):  # locked, or gone already
                with self._lock(scratch.name.removesuffix(_SCRATCH), wait=False):
                    shutil.rmtree(scratch, ignore_errors=True)

    def drop(self, name: str) -> None:
        """Forget a file that turned out not to work."""
        with self._lock(name):
            (self.folder / name).unlink(missing_ok=True)
            self._note_path(self.folder / name).unlink(missing_ok=True)

    @staticmethod
    def _note_path(target: Path) -> Path:
        return target.with_name(f"{target.name}.sha256")

    @staticmethod
    def _note(file: Path) -> str:
        raw = file.read_bytes()
        return f"{len(raw)} {hashlib.sha256(raw).hexdigest()}\n"

    def _whole(self, target: Path) -> bool:
        try:
            return self._note(target) == self._note_path(target).read_text()
        except OSError:
            return False

    @contextmanager
    def _lock(self, name: str, *, wait: bool = True) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{name}.lock", "w") as file:
            # The system lets go of it when the process ends, however it ends.
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
