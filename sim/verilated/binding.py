"""The verilated device behind the simulator protocol: a shared library through ctypes."""

import ctypes
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.export import TOP
from ringloom.sim import axi_driver
from ringloom.sim.checkers.bus import CommandSink
from ringloom.sim.progress import Progress, reporting
from ringloom.sim.simulator import RESET_CYCLES
from ringloom.sim.waves import block_error

from .build import Builder, cores, scopes
from .toolchain import BuildError

__all__ = ["VerilatedSimulator"]

_THREADS = "RINGLOOM_THREADS"  # environment: threads of a simulation of several tiles; all cores by default
_CHUNK = 50_000  # cycles in one call of the library: Ctrl-C is seen between two
_CHANNELS = {4: "AW", 5: "W", 6: "B", 7: "AR", 8: "R"}  # as Status in harness.cpp
_FOREVER = (1 << 64) - 1


class _Member(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("offset", ctypes.c_uint64), ("size", ctypes.c_uint64)]


_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "rl_create": (ctypes.c_void_p, [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_uint64,
                                    ctypes.c_uint32]),
    "rl_destroy": (None, [ctypes.c_void_p]),
    "rl_cycle": (ctypes.c_uint64, [ctypes.c_void_p]),
    "rl_reset": (None, [ctypes.c_void_p, ctypes.c_uint32]),
    "rl_run": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64]),
    "rl_lite_write": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32]),
    "rl_lite_read": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint32)]),
    "rl_burst_write": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p,
                                      ctypes.POINTER(ctypes.c_uint32)]),
    "rl_burst_read": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p]),
    "rl_state": (ctypes.POINTER(_Member), [ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(ctypes.c_void_p),
                                           ctypes.POINTER(ctypes.c_uint32)]),
    "rl_record": (None, [ctypes.c_void_p, ctypes.c_int]),
    "rl_commands": (ctypes.POINTER(ctypes.c_uint64), [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]),
    "rl_commands_taken": (None, [ctypes.c_void_p]),
    "rl_adopted": (None, [ctypes.c_void_p, ctypes.c_uint64]),
    "rl_waves_start": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p),
                                      ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64]),
    "rl_waves_stop": (None, [ctypes.c_void_p]),
}


def _load(path: Path, waves: bool) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _PROTOTYPES.items():
        if waves or "waves" not in name:
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    return library


def _state(library: ctypes.CDLL, device: int | None) -> dict[tuple[int, str], tuple[int, int]]:
    """Model and name to address and bytes of everything that the models of a device store."""
    base, count = ctypes.c_void_p(), ctypes.c_uint32()
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for model in itertools.count():
        table = library.rl_state(device, model, ctypes.byref(base), ctypes.byref(count))
        if not table:
            return found
        assert base.value is not None
        found |= {(model, table[i].name.decode()): (base.value + table[i].offset, table[i].size)
                  for i in range(count.value)}
    raise AssertionError


def _threads(tiles: int) -> int:
    """Threads that share the tiles of a device."""
    text = os.environ.get(_THREADS, "")
    if text and not (text.isdecimal() and int(text)):
        raise ValueError(f"{_THREADS} = {text!r}: must be a number of threads, at least 1")
    return min(tiles, int(text) if text else cores())


def _check_writable(path: Path) -> None:
    """Raise ``OSError`` where no file can be written to ``path``."""
    there = path.exists()
    with open(path, "ab"):
        pass
    if not there:
        path.unlink()


class VerilatedSimulator:
    """A device compiled by Verilator; see :class:`ringloom.sim.simulator.Simulator`.

    A model that can record is slower. So it is built and used from the first :meth:`waves_start` on only; it takes
    over the state of the model before it, name by name, and the cycles are the same.

    Parameters
    ----------
    config : DeviceConfig
        The device.
    progress : callable
        Told what goes on while a library is built; None: a line on stderr.
    verilog : str
        The device's Verilog, where it is not that of ``config`` (tests).
    """

    name = "verilated"

    def __init__(self, config: DeviceConfig, progress: Progress | None, *, verilog: str | None = None) -> None:
        self.config = config
        self._progress = progress
        if verilog is None:
            with reporting(progress) as report:
                verilog = Builder(report).verilog(config)
        self._verilog = verilog
        self._scopes = scopes(verilog)
        self._memory = [np.zeros(config.memory.bytes, np.uint8) for _ in range(config.tiles)]
        self._waves_library = False
        self._sink: CommandSink | None = None
        self._helpers = _threads(config.tiles) - 1
        self._library, self._device = self._make(waves=False)

    def _make(self, waves: bool) -> tuple[ctypes.CDLL, int | None]:
        """A library that fits, and a device in it on our memory, out of reset."""
        with reporting(self._progress) as report:
            builder = Builder(report)
            path = builder.library(self._verilog, waves)
            try:
                library = _load(path, waves)
            except OSError:  # whole, and still not loadable: from another system, say
                builder.cache.drop(path.name)
                try:
                    library = _load(builder.library(self._verilog, waves), waves)
                except OSError as error:
                    raise BuildError(f"the library that was just built does not load: {error}") from error
        tiles = self.config.tiles
        pointers = (ctypes.c_void_p * tiles)(*(memory.ctypes.data for memory in self._memory))
        device = library.rl_create(pointers, self.config.memory.bytes, axi_driver.BUS_LIMIT, self._helpers)
        library.rl_reset(device, RESET_CYCLES)
        return library, device

    def _use_waves_library(self) -> None:
        """Go on in a model that can record, from the very state of this one."""
        if self._waves_library:
            return
        library, device = self._make(waves=True)
        old = _state(self._library, self._open())
        for key, (data, size) in _state(library, device).items():
            if old.get(key, (0, 0))[1] == size:
                ctypes.memmove(data, old[key][0], size)
        library.rl_adopted(device, self.cycle)
        library.rl_record(device, self._sink is not None)
        self._library.rl_destroy(self._device)
        self._library, self._device, self._waves_library = library, device, True

    def _open(self) -> int:
        if self._device is None:
            raise RuntimeError("the simulator is closed")
        return self._device

    @property
    def cycle(self) -> int:
        return int(self._library.rl_cycle(self._open()))

    def memory(self, tile: int = 0) -> np.ndarray:
        return self._memory[tile]

    def reset(self) -> None:
        self._library.rl_reset(self._open(), RESET_CYCLES)
        self._give_commands()
        if self._sink is not None:
            self._sink.reset(self.cycle)

    def record_commands(self, sink: CommandSink | None) -> None:
        self._sink = sink
        self._library.rl_record(self._open(), sink is not None)

    def _give_commands(self) -> None:
        """Behind every call that moves time, so that the library never keeps more than one call's."""
        if self._sink is None:
            return
        count = ctypes.c_uint64()
        pointer = self._library.rl_commands(self._device, ctypes.byref(count))
        if count.value:
            self._sink.take(np.ctypeslib.as_array(pointer, (count.value, 3)).copy())
            self._library.rl_commands_taken(self._device)

    def _check(self, status: int, bus: str, address: int, channel: str) -> None:
        self._give_commands()
        if status:
            timeout = _CHANNELS.get(status)
            axi_driver.fail(bus, address, timeout or channel, None if timeout else status)

    def read(self, address: int) -> int:
        value = ctypes.c_uint32()
        status = self._library.rl_lite_read(self._open(), address, ctypes.byref(value))
        self._check(status, "register read", address, "R")
        return value.value

    def write(self, address: int, value: int) -> None:
        status = self._library.rl_lite_write(self._open(), address, value)
        self._check(status, "register write", address, "B")

    def axi_read(self, address: int, size: int) -> bytes:
        parts = []
        for start, beats, wanted in axi_driver.read_memory_plan(address, size):
            buffer = ctypes.create_string_buffer(beats * axi_driver.BEAT)
            status = self._library.rl_burst_read(self._open(), start, beats, buffer)
            self._check(status, "memory read", start, "R")
            parts.append(buffer.raw[wanted])
        return b"".join(parts)

    def axi_write(self, address: int, data: bytes) -> None:
        for start, padded, strobes in axi_driver.write_memory_plan(address, bytes(data)):
            masks = (ctypes.c_uint32 * len(strobes))(*strobes)
            status = self._library.rl_burst_write(self._open(), start, len(strobes), padded, masks)
            self._check(status, "memory write", start, "B")

    def run(self, limit: int) -> bool:
        device = self._open()
        while limit > _CHUNK:
            ended = bool(self._library.rl_run(device, _CHUNK))
            self._give_commands()
            if ended:
                return True
            limit -= _CHUNK
        ended = bool(self._library.rl_run(device, limit))
        self._give_commands()
        return ended

    def waves_start(self, path: Path, *, blocks: Sequence[str] = (), start: int = 0, stop: int | None = None) -> None:
        self._open()
        for block in blocks:
            if block not in self._scopes:
                raise block_error(block, self._scopes)
        _check_writable(path)  # before minutes of building
        self._use_waves_library()
        self.waves_stop()
        names = (ctypes.c_char_p * max(1, len(blocks)))(*(f"{TOP}.{block}".encode() for block in blocks))
        if not self._library.rl_waves_start(self._device, str(path).encode(), names, len(blocks), start,
                                            _FOREVER if stop is None else stop):
            raise OSError(f"waves cannot be written to {path}")

    def waves_stop(self) -> None:
        device = self._open()
        if self._waves_library:
            self._library.rl_waves_stop(device)

    def close(self) -> None:
        if self._device is not None:
            self._library.rl_destroy(self._device)
            self._device = None
