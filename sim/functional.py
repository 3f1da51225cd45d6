"""The command set in numpy: what jobs do to memory, without clock and without cycles.

It answers the simulator protocol, so that compiler and host runtime run on it in milliseconds. A command is one
indivisible step, and a collective is one step of its whole group; tiles go on until all have ended or wait. With
``seed`` tiles and engines take turns at random wherever the semaphores allow it, so that a missing semaphore shows
as a wrong byte.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.counters import COUNTERS
from ringloom.hw.isa import Code, Status
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.regmap import (
    CONTROL,
    MAGIC,
    REGMAP_VERSION,
    TILE,
    TILE_BASE,
    TILE_STRIDE,
    control_register,
)

from .checkers.bus import CommandSink
from .functional_engines import Fault
from .functional_ring import run_ring
from .functional_tile import FunctionalTile

__all__ = ["FunctionalSimulator"]

_BUS_CYCLES = 4
_CONTROL = {r.address: r.name for r in CONTROL}
_TILE = {r.address: r.name for r in TILE}


class FunctionalSimulator:
    """A device that runs jobs at once, exactly as ``hw/isa.py`` defines them.

    Parameters
    ----------
    config : DeviceConfig
    seed : int or None
        None: commands in stream order. Otherwise the order of tiles and engines is random within the semaphores.
    """

    def __init__(self, config: DeviceConfig, *, seed: int | None = None) -> None:
        self.name = "functional"
        self.config = config
        self.shapes = block_shapes(config)
        self._random = None if seed is None else random.Random(seed)
        self._memory = np.zeros(config.tiles * config.memory.bytes, np.uint8)
        self._cycle = 0
        self.reset()

    # -- the protocol ---------------------------------------------------------------------------------

    @property
    def cycle(self) -> int:
        return self._cycle

    def memory(self, tile: int = 0) -> np.ndarray:
        size = self.config.memory.bytes
        return self._memory[tile * size:(tile + 1) * size]

    def reset(self) -> None:
        self._registers = {r.address: 0 for r in CONTROL}
        self._tiles = [FunctionalTile(self.config, t, self._memory, self._signal, self._random)
                       for t in range(self.config.tiles)]

    def read(self, address: int) -> int:
        self._cycle += _BUS_CYCLES
        if address >= TILE_BASE:
            tile, offset = divmod(address - TILE_BASE, TILE_STRIDE)
            return self._tiles[tile].registers.get(_TILE.get(offset, ""), 0) if tile < len(self._tiles) else 0
        fixed = {"id": MAGIC, "version": REGMAP_VERSION, "tiles": self.config.tiles,
                 "array": self.config.tile.array.rows << 16 | self.config.tile.array.columns,
                 "busy": sum(tile.running << t for t, tile in enumerate(self._tiles)),
                 "cycle_low": self._cycle & 0xFFFFFFFF, "cycle_high": self._cycle >> 32}
        return fixed.get(_CONTROL.get(address, ""), self._registers.get(address, 0))

    def write(self, address: int, value: int) -> None:
        self._cycle += _BUS_CYCLES
        if address >= TILE_BASE:
            number, offset = divmod(address - TILE_BASE, TILE_STRIDE)
            if number < len(self._tiles) and offset in _TILE:
                self._tiles[number].registers[_TILE[offset]] = value & 0xFFFFFFFF
            return
        name = _CONTROL.get(address)
        chosen = [tile for t, tile in enumerate(self._tiles) if value >> t & 1]
        if name == "doorbell":
            for tile in chosen:
                if not tile.running:
                    tile.start(self._cycle)
            self._advance()
        elif name == "abort":
            for tile in chosen:
                if tile.running:
                    tile.complete(self._cycle, Status.ABORTED, Code.ABORT, tile.oldest, 0)
            self._advance()
        elif name == "irq_status":
            self._registers[address] &= ~value
        elif name == "snapshot":
            for tile in chosen:
                for counter in COUNTERS:
                    count = tile.counters[counter.name]
                    for j, half in enumerate(("low", "high")):
                        register = f"counter_{counter.name.replace('.', '_')}_{half}"
                        tile.registers[register] = count >> 32 * j & 0xFFFFFFFF
        elif name is not None:
            self._registers[address] = value & 0xFFFFFFFF

    def axi_read(self, address: int, size: int) -> bytes:
        self._cycle += _BUS_CYCLES + size // 32
        return self._memory[address:address + size].tobytes()

    def axi_write(self, address: int, data: bytes) -> None:
        self._cycle += _BUS_CYCLES + len(data) // 32
        self._memory[address:address + len(data)] = np.frombuffer(data, np.uint8)

    def run(self, limit: int) -> bool:
        if not self._interrupt():
            stuck = [tile for tile in self._tiles if tile.running and limit >= tile.watchdog]
            if stuck:
                self._cycle += max(tile.watchdog for tile in stuck)
                for tile in stuck:
                    tile.complete(self._cycle, Status.FAULT, Code.WATCHDOG, tile.oldest, 0)
                self._advance()
        interrupt = self._interrupt()
        self._cycle += 1 if interrupt else limit
        return interrupt

    def record_commands(self, sink: CommandSink | None) -> None:
        raise NotImplementedError("the functional simulator has no DRAM: take sim='python' or 'verilated'")

    def waves_start(self, path: Path, *, blocks: Sequence[str] = (), start: int = 0, stop: int | None = None) -> None:
        raise NotImplementedError("the functional simulator has no signals: take sim='python' or 'verilated'")

    def waves_stop(self) -> None:
        raise NotImplementedError("the functional simulator has no signals: take sim='python' or 'verilated'")

    def close(self) -> None:
        for tile in self._tiles:
            tile.running = False

    # -- the tiles ------------------------------------------------------------------------------------

    def _interrupt(self) -> bool:
        status, enable = (self._registers[control_register(n)] for n in ("irq_status", "irq_enable"))
        return bool(status & enable)

    def _advance(self) -> None:
        """Run all tiles until each has ended or waits for another."""
        moving = True
        while moving:
            moving = False
            tiles = [tile for tile in self._tiles if tile.running]
            if self._random:
                self._random.shuffle(tiles)
            for tile in tiles:
                # one command of each in turn where the order is random, else as many as there are
                while tile.running and tile.turn(self._cycle):
                    moving = True
                    if self._random:
                        break
            moving |= self._collectives()
        for t, tile in enumerate(self._tiles):
            if tile.ended:
                tile.ended = False
                self._registers[control_register("irq_status")] |= 1 << t
            elif tile.running:
                tile.show()

    def _collectives(self) -> bool:
        """Run the collectives whose whole group has come; true if there was one."""
        done = False
        for tile in self._tiles:
            own = tile.collective
            if own is None or own["first"] != tile.number:
                continue
            group = self._tiles[own["first"]:own["first"] + own["size"]]
            commands = [other.collective for other in group]
            same = ("operation", "first", "size", "number")
            if all(c is not None and all(c[name] == own[name] for name in same) for c in commands):
                run_ring([c for c in commands if c is not None], self._memory, self.config)
                for other in group:
                    other.end_collective(self._cycle)
                done = True
        return done

    def _signal(self, sender: FunctionalTile, number: int, semaphore: int) -> None:
        """Bring a remote signal to the job that tile ``number`` runs, if it is of the sender's context and epoch."""
        tile = self._tiles[number]
        if not tile.running or not tile.job or not sender.job:
            return
        if all(tile.job[name] == sender.job[name] for name in ("context", "epoch")):
            try:
                tile.add(semaphore)
            except Fault as fault:
                tile.complete(self._cycle, Status.FAULT, fault.code, tile.oldest, fault.address)
