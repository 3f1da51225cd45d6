"""The device in Amaranth's own simulator: no compiler needed, slow, and cycle for cycle what ``verilated`` does."""

import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from amaranth import ClockDomain, Module
from amaranth.lib import wiring
from amaranth.sim import Simulator as AmaranthSimulator

from ringloom.hw.config import BEAT_BYTES, DeviceConfig
from ringloom.hw.device import Device
from ringloom.hw.export import TOP, flat_ports
from ringloom.sim import axi_driver
from ringloom.sim.checkers.bus import CommandSink
from ringloom.sim.progress import Progress, reporting
from ringloom.sim.simulator import RESET_CYCLES
from ringloom.sim.waves import CYCLE_PS, block_error, cut_vcd

__all__ = ["PythonSimulator"]

_PERIOD = CYCLE_PS * 1e-12
_ANY_COMMAND = 0x1F  # the bits of a command word that are 0 where there is none


@contextmanager
def _between_cycles() -> Iterator[list[int]]:
    """Hold Ctrl-C back until the block ends: in the middle of a cycle it would leave the simulation broken.

    Yields a list that is empty as long as nothing is held back.
    """
    held: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield held
        return
    signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
    if held:
        before(held[0], None)


class PythonSimulator:
    """A device in Amaranth's simulator; see :class:`ringloom.sim.simulator.Simulator`.

    Parameters
    ----------
    config : DeviceConfig
        The device.
    progress : callable
        Told what goes on while the design is prepared; None: a line on stderr.
    device : wiring.Component
        The top, where it is not that of ``config`` (tests).
    """

    name = "python"

    def __init__(self, config: DeviceConfig, progress: Progress | None, *,
                 device: wiring.Component | None = None) -> None:
        self.config = config
        with reporting(progress) as report:
            report(f"preparing the simulation of {config.name}")
            self._make(device or Device(config=config))
        self.reset()

    def _make(self, device: wiring.Component) -> None:
        config = self.config
        self._ports = {name: value for name, (value, _) in flat_ports(device).items()}
        self._memory = [np.zeros(config.memory.bytes, np.uint8) for _ in range(config.tiles)]
        self._cycle = 0
        self._waves: ExitStack | None = None
        self._sink: CommandSink | None = None
        self._closed = False

        top = Module()
        self._domain = ClockDomain("sync")
        top.domains += self._domain
        top.submodules[TOP] = device
        self._sim = AmaranthSimulator(top)
        self._sim.add_clock(_PERIOD, phase=_PERIOD)
        for tile, memory in enumerate(self._memory):
            for port in range(config.ports):
                self._sim.add_process(self._storage(memory, f"storage{tile}_{port}_"))
        self._sim.add_testbench(self._count, background=True)
        self._sim.advance()

    # -- what runs inside the simulation ------------------------------------------------------------------

    def _storage(self, memory: np.ndarray, prefix: str) -> Any:
        enable, write, address, data, strobe, answer = (
            self._ports[prefix + name] for name in ("enable", "write", "address", "write_data", "strobe", "read_data"))
        beats = memory.reshape(-1, BEAT_BYTES)

        async def process(ctx: Any) -> None:
            async for _, _, asked, is_write, beat, value, lanes in ctx.tick().sample(
                    enable, write, address, data, strobe):
                if not asked:
                    continue
                ctx.set(answer, int.from_bytes(beats[beat].tobytes(), "little"))
                if is_write:
                    new = np.frombuffer(value.to_bytes(BEAT_BYTES, "little"), np.uint8)
                    kept = np.unpackbits(np.frombuffer(lanes.to_bytes(BEAT_BYTES // 8, "little"), np.uint8),
                                         bitorder="little").astype(bool)
                    beats[beat][kept] = new[kept]

        return process

    async def _count(self, ctx: Any) -> None:
        self._ctx = ctx
        async for _ in ctx.tick():
            self._cycle += 1
            if self._sink is not None:
                self._record(self._sink)

    def _record(self, sink: CommandSink) -> None:
        for port in range(self.config.tiles * self.config.ports):
            tile, channel = divmod(port, self.config.ports)
            word = self._ctx.get(self._ports[f"storage{tile}_{channel}_commands"])
            if word & _ANY_COMMAND:
                sink.take(np.array([[self._cycle, port, word]], np.uint64))

    def _edge(self) -> None:
        if self._closed:
            raise RuntimeError("the simulator is closed")
        before = self._cycle
        while self._cycle == before:
            self._sim.advance()

    def _transfer(self, prefix: str, names: Sequence[str], transaction: axi_driver.Transaction) -> Any:
        """Run one transaction to its end by the rule of ``axi_driver``."""
        driven: dict[str, int] = {}
        wires = next(transaction)
        try:
            while True:
                for name in (*driven, *wires):
                    if driven.get(name, 0) != wires.get(name, 0):
                        self._ctx.set(self._ports[prefix + name], wires.get(name, 0))
                driven = wires
                seen = {name: self._ctx.get(self._ports[prefix + name]) for name in names}
                self._edge()
                wires = transaction.send(seen)
        except StopIteration as end:
            return end.value
        finally:
            for name in driven:
                self._ctx.set(self._ports[prefix + name], 0)

    # -- the protocol -------------------------------------------------------------------------------------

    @property
    def cycle(self) -> int:
        return self._cycle

    def memory(self, tile: int = 0) -> np.ndarray:
        return self._memory[tile]

    def reset(self) -> None:
        self._ctx.set(self._domain.rst, 1)
        for _ in range(RESET_CYCLES):
            self._edge()
        self._ctx.set(self._domain.rst, 0)
        if self._sink is not None:
            self._sink.reset(self._cycle)

    def record_commands(self, sink: CommandSink | None) -> None:
        self._sink = sink
        if sink is not None:
            self._record(sink)

    def read(self, address: int) -> int:
        return int(self._transfer("s_axil_", axi_driver.LITE, axi_driver.lite_read(address))[0])

    def write(self, address: int, value: int) -> None:
        self._transfer("s_axil_", axi_driver.LITE, axi_driver.lite_write(address, value))

    def axi_read(self, address: int, size: int) -> bytes:
        parts = []
        for start, beats, wanted in axi_driver.read_memory_plan(address, size):
            values = self._transfer("s_axi_", axi_driver.FULL, axi_driver.burst_read(start, beats))
            parts.append(b"".join(value.to_bytes(axi_driver.BEAT, "little") for value in values)[wanted])
        return b"".join(parts)

    def axi_write(self, address: int, data: bytes) -> None:
        for start, padded, strobes in axi_driver.write_memory_plan(address, bytes(data)):
            self._transfer("s_axi_", axi_driver.FULL, axi_driver.burst_write(start, padded, strobes))

    def run(self, limit: int) -> bool:
        irq = self._ports["irq"]
        with _between_cycles() as interrupted:
            for _ in range(limit):
                if self._ctx.get(irq) or interrupted:
                    break
                self._edge()
        return bool(self._ctx.get(irq))

    def waves_start(self, path: Path, *, blocks: Sequence[str] = (), start: int = 0, stop: int | None = None) -> None:
        self.waves_stop()
        # The engine records everything from now on, which its public call allows at time 0 alone; what was asked for
        # is cut out at the end.
        fragments = [info.name[2:] for info in self._sim._design.fragments.values()]
        known = sorted({".".join(name) for name in fragments if name})
        for block in blocks:
            if block not in known:
                raise block_error(block, known)
        first = self._cycle + start
        last = None if stop is None else self._cycle + stop
        with ExitStack() as stack:
            final = stack.enter_context(open(path, "w", encoding="utf-8"))
            raw = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            stack.callback(lambda: cut_vcd(raw, final, root=("bench", "top", TOP), blocks=blocks,
                                           start=first, stop=last))
            stack.enter_context(self._sim._engine.write_vcd(vcd_file=raw, gtkw_file=None, traces=(), fs_per_delta=0))
            self._waves = stack.pop_all()

    def waves_stop(self) -> None:
        if self._waves is not None:
            waves, self._waves = self._waves, None
            waves.close()

    def close(self) -> None:
        if not self._closed:
            self.waves_stop()
            self._closed = True
