"""The real device on both simulators: the same jobs take the same cycles and leave the same bytes."""

import numpy as np
import pytest
from vcdvcd import VCDVCD

from ringloom.hw.regmap import MAGIC, control_register
from ringloom.sim import BusError, open_simulator
from tests.support.bare import bare
from tests.support.job_stream import run_works
from tests.support.simulators import quiet

pytestmark = pytest.mark.xdist_group("device")
HARD = {"ideal.jitter": 20, "ideal.reorder": True, "ideal.write_delay": 30}


def _run(engine, overrides, seed, jobs, between=None):
    simulator = open_simulator(bare("tiny", overrides), engine, quiet)
    try:
        trace = run_works(simulator, seed, jobs, *([] if between is None else [lambda i: between(simulator, i)]))
        return trace, simulator.memory().tobytes(), simulator.cycle
    finally:
        simulator.close()


@pytest.mark.parametrize("overrides", [{}, HARD], ids=["plain", "hard memory"])
def test_same_cycles_and_bytes(overrides):
    seed = 11
    print("seed", seed)
    python = _run("python", overrides, seed, 3)
    verilated = _run("verilated", overrides, seed, 3)
    assert python[0] == verilated[0]
    assert python[1] == verilated[1]
    assert python[2] == verilated[2]


def test_waves_in_the_middle_of_jobs_change_nothing(tmp_path):
    """The model that records takes over in the middle of a job, and of a register's life."""
    plain = _run("verilated", {}, 12, 6)

    def between(simulator, index):
        if index in (1, 4):
            simulator.run(37)
            simulator.waves_start(tmp_path / f"{index}.vcd", blocks=["tile0.tensor"])
        elif index in (2, 5):
            simulator.run(11)
            simulator.waves_stop()

    assert _run("verilated", {}, 12, 6, between) == plain
    names = VCDVCD(str(tmp_path / "1.vcd"), only_sigs=True).signals
    assert any(name.startswith("ringloom.tile0.tensor.") for name in names)
    assert not [name for name in names if name.startswith("ringloom.tile0.") and ".tensor." not in name]


def test_bus_is_exact_on_both():
    answers = []
    for engine in ("verilated", "python"):
        simulator = open_simulator(bare("tiny"), engine, quiet)
        trace = [simulator.read(control_register("id")), simulator.cycle]
        rng = np.random.default_rng(5)
        for address, size in ((4064, 65), (4095, 2), (1, 1), (300, 700), (8191, 0)):
            data = rng.integers(0, 256, size, np.uint8).tobytes()
            simulator.axi_write(address, data)
            assert simulator.axi_read(address, size) == data
            assert bytes(simulator.memory()[address:address + size]) == data
            trace.append(simulator.cycle)
        with pytest.raises(BusError, match="DECERR"):
            simulator.axi_read(simulator.config.memory.bytes, 32)
        with pytest.raises(BusError, match="SLVERR"):
            simulator.write(control_register("id"), 0)
        with pytest.raises(BusError, match="DECERR"):
            simulator.read(0xFFC)
        answers.append([*trace, simulator.cycle])
        simulator.close()
    assert answers[0] == answers[1] and answers[0][0] == MAGIC


class _Interrupted(Exception):
    """The test has reset the device."""


@pytest.mark.parametrize("engine", ["verilated", "python"])
def test_reset_in_the_middle_of_a_job_leaves_a_working_device(engine):
    simulator = open_simulator(bare("tiny"), engine, quiet)

    def between(index):
        if index == 1:
            simulator.run(150)
            simulator.reset()
            raise _Interrupted

    with pytest.raises(_Interrupted):
        run_works(simulator, 13, 2, between)
    assert simulator.read(control_register("busy")) == 0
    run_works(simulator, 13, 2)
    simulator.close()
