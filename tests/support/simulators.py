"""The toy device in every simulator, and a random stream of calls that must go the same way in all of them."""

import functools
import random
from collections.abc import Callable

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.export import TOP, to_verilog
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim.amaranth_sim import PythonSimulator
from ringloom.sim.simulator import Simulator
from ringloom.sim.verilated import VerilatedSimulator
from tests.support.bare import bare
from tests.support.toy_device import ToyDevice


def quiet(text: str) -> None:
    """No progress line."""


def toy_config() -> DeviceConfig:
    """Two storage ports, so that their glue is more than one line."""
    return bare("tiny", {"ideal.bytes_per_cycle": 64})


@functools.cache
def toy_verilog() -> str:
    """The toy of ``toy_config()`` in Verilog."""
    return to_verilog(ToyDevice(config=toy_config()), TOP)


def _python(config: DeviceConfig) -> Simulator:
    return PythonSimulator(config, quiet, device=ToyDevice(config=config))


def _verilated(config: DeviceConfig) -> Simulator:
    return VerilatedSimulator(config, quiet, verilog=toy_verilog())


TOYS: dict[str, Callable[[DeviceConfig], Simulator]] = {"python": _python, "verilated": _verilated}


def copy_beats(simulator: Simulator, source: int, target: int, count: int) -> None:
    """Start the toy's copy engine."""
    simulator.write(tile_register(0, "job_low"), source)
    simulator.write(tile_register(0, "job_high"), target)
    simulator.write(control_register("doorbell"), count)


def random_calls(simulator: Simulator, seed: int, calls: int = 40) -> list:
    """What a random stream of calls on the toy answers, and the cycle behind each."""
    generator = random.Random(seed)
    memory = simulator.memory()
    memory[:] = np.random.default_rng(seed).integers(0, 256, memory.size, np.uint8)
    trace: list = []
    for _ in range(calls):
        kind = generator.choice(("copy", "read", "axi_read", "axi_write", "run", "reset"))
        address, size = generator.randrange(100_000), generator.choice((0, 1, 31, 32, 33, generator.randrange(400)))
        data = generator.randbytes(size)
        answer: object = None
        if kind == "copy":
            copy_beats(simulator, generator.randrange(1000), generator.randrange(1000), generator.randrange(1, 20))
            answer = simulator.run(1000)
            simulator.write(control_register("irq_status"), 1)
        elif kind == "read":
            answer = simulator.read(control_register("cycle_low"))
        elif kind == "axi_read":
            answer = simulator.axi_read(address, size)
            assert answer == bytes(memory[address:address + size])
        elif kind == "axi_write":
            before = bytes(memory[max(0, address - 64):address]), bytes(memory[address + size:address + size + 64])
            simulator.axi_write(address, data)
            simulator.run(2)
            assert bytes(memory[address:address + size]) == data
            assert before == (bytes(memory[max(0, address - 64):address]),
                              bytes(memory[address + size:address + size + 64]))
        elif kind == "run":
            answer = simulator.run(generator.randrange(50))
        elif generator.random() < 0.3:
            simulator.reset()
        trace.append((kind, answer, simulator.cycle))
    trace.append(memory.tobytes())
    return trace
