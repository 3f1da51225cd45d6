"""Waves of the toy device: the same names, times and values from every simulator, readable by vcdvcd."""

import pytest
from vcdvcd import VCDVCD

from ringloom.sim.waves import CYCLE_PS
from tests.support.simulators import TOYS, copy_beats, toy_config

pytestmark = pytest.mark.xdist_group("toy")


def _record(engine, path, **options):
    simulator = TOYS[engine](toy_config())
    try:
        simulator.run(20)
        simulator.waves_start(path, **options)
        first = simulator.cycle
        copy_beats(simulator, 0, 50, 6)
        simulator.run(1000)
        simulator.waves_stop()
        last = simulator.cycle
        simulator.run(10)
    finally:
        simulator.close()
    return VCDVCD(str(path)), first, last


def _signal(vcd, name):
    found = [s for s in vcd.signals if s.split("[")[0] == name]
    assert found, f"{name} is not among {vcd.signals}"
    return vcd[found[0]]


def _each_cycle(vcd, name, first, last):
    # Just before the edge that ends the cycle: what a register of the design sees.
    signal = _signal(vcd, name)
    return [int(signal[cycle * CYCLE_PS + CYCLE_PS - 1], 2) for cycle in range(first, last)]


@pytest.mark.parametrize("engine", TOYS)
def test_whole_recording(engine, tmp_path):
    vcd, first, last = _record(engine, tmp_path / "a.vcd")
    edges = [time for time, bit in _signal(vcd, "ringloom.clk").tv if bit == "1"]
    assert edges[-10:] == [cycle * CYCLE_PS for cycle in range(last - 9, last + 1)]
    assert min(edges) >= first * CYCLE_PS
    counts = _each_cycle(vcd, "ringloom.block.count", first + 1, last)
    assert sorted(set(counts)) == list(range(7))
    assert sum(_each_cycle(vcd, "ringloom.block.enable", first + 1, last)) == 6


def test_simulators_record_the_same_values(tmp_path):
    names = ("ringloom.irq", "ringloom.block.count", "ringloom.s_axil_awvalid", "ringloom.s_axil_wdata")
    runs = {}
    for engine in TOYS:
        vcd, first, last = _record(engine, tmp_path / f"{engine}.vcd")
        runs[engine] = {name: _each_cycle(vcd, name, first + 1, last) for name in names}
    assert runs["python"] == runs["verilated"]


@pytest.mark.parametrize("engine", TOYS)
def test_blocks_and_window(engine, tmp_path):
    vcd, first, _ = _record(engine, tmp_path / "a.vcd", blocks=["block"], start=10, stop=25)
    assert _signal(vcd, "ringloom.clk") and _signal(vcd, "ringloom.block.count")
    edges = [time for time, bit in _signal(vcd, "ringloom.clk").tv if bit == "1"]
    assert edges[-1] == (first + 24) * CYCLE_PS and edges[0] >= (first + 10) * CYCLE_PS and len(edges) >= 14


@pytest.mark.parametrize("engine", TOYS)
def test_unknown_block_and_folder_are_refused(engine, tmp_path):
    simulator = TOYS[engine](toy_config())
    with pytest.raises(ValueError, match="no block 'blok' to record; did you mean block?"):
        simulator.waves_start(tmp_path / "a.vcd", blocks=["blok"])
    with pytest.raises(OSError):
        simulator.waves_start(tmp_path / "none" / "a.vcd")
    simulator.run(5)
    simulator.waves_start(tmp_path / "a.vcd")
    simulator.run(5)
    simulator.close()  # ends the recording too
    assert VCDVCD(str(tmp_path / "a.vcd")).signals
