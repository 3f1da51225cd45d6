"""What every cocotb bench needs: settings, notes, clock and reset, and a cycle without races.

Inputs change right behind the rising edge and everything is read at the falling edge, when the cycle has settled:
so Icarus and Verilator see the same, whichever runs its callbacks first.
"""

import json
import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from ringloom.hw.config import DeviceConfig
from tests.support.bare import bare


def settings() -> dict:
    """What the pytest runner passed."""
    return json.loads(os.environ["RINGLOOM_BENCH"])


def config() -> DeviceConfig:
    """The configuration under test, as ``bare`` makes it."""
    given = settings()
    return bare(given["config"], given.get("overrides"))


def note(**values) -> None:
    """Hand results to the pytest runner."""
    path = Path(settings()["notes"])
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **values}))


def seeded() -> random.Random:
    """A generator whose seed is in the log."""
    seed = settings().get("seed", 1)
    cocotb.log.info("seed %d", seed)
    return random.Random(seed)


async def start(dut, **inputs) -> None:
    """Start the clock low, drive ``inputs`` (and zero wherever a name maps to None), and leave reset."""
    for name, value in inputs.items():
        getattr(dut, name).value = value or 0
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start(start_high=False))
    for _ in range(4):
        await RisingEdge(dut.clk)
    dut.rst.value = 0


async def settled(dut) -> None:
    """To the middle of this cycle, where every signal may be read."""
    await FallingEdge(dut.clk)


async def edge(dut) -> None:
    """To the next rising edge, behind which inputs may be driven."""
    await RisingEdge(dut.clk)


def value(signal) -> int:
    """A signal as an unsigned number; X fails with the signal's name."""
    current = signal.value
    assert current.is_resolvable, f"{signal._name} = {current}"
    return int(current)
