"""The cocotb benches on exported Verilog, in Icarus and in Verilator: the same bodies, the same cycles."""

import pytest

from ringloom.hw.export import TOP, export_verilog, to_verilog
from ringloom.hw.memory.load import LoadEngine
from ringloom.hw.tensor.array import SystolicArray
from ringloom.hw.tensor.requantizer import Requantizer
from ringloom.sim import open_simulator
from tests.support.bare import bare
from tests.support.cocotb_runner import SIMULATORS, run_bench
from tests.support.job_stream import run_works, works
from tests.support.simulators import quiet

pytestmark = pytest.mark.xdist_group("cocotb")
TINY = bare("tiny")


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_requantizer(simulator, tmp_path, monkeypatch):
    notes = run_bench(monkeypatch, tmp_path, simulator, "tests.cocotb.requantizer_bench",
                      to_verilog(Requantizer(lanes=4), "requantizer"), "requantizer", cycles=1000, seed=1)
    assert notes["checked"] > 1000


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_array(simulator, tmp_path, monkeypatch):
    overrides = {"tile.array.rows": 5, "tile.array.columns": 3}
    array = bare("tiny", overrides).tile.array
    notes = run_bench(monkeypatch, tmp_path, simulator, "tests.cocotb.array_bench",
                      to_verilog(SystolicArray(config=array), "array"), "array", config="tiny", overrides=overrides,
                      tiles=40, seed=2)
    assert notes["checked"] >= 40 * 3


def test_load(tmp_path, monkeypatch):
    overrides = {"ideal.bytes_per_cycle": 64}  # two memory ports
    verilog = to_verilog(LoadEngine(config=bare("tiny", overrides)), "load")
    notes = [run_bench(monkeypatch, tmp_path, simulator, "tests.cocotb.load_bench", verilog, "load", config="tiny",
                       overrides=overrides, commands=24, seed=3) for simulator in SIMULATORS]
    assert notes[0] == notes[1] and notes[0]["blocks"] > 100


def test_device_is_the_same_in_every_simulator(tmp_path, monkeypatch):
    """Icarus, Verilator through cocotb, Amaranth's simulator and the verilated one: cycles and bytes of each job."""
    seed, jobs = 4, 4
    cycles = {}
    for engine in ("verilated", "python"):
        simulator = open_simulator(TINY, engine, quiet)
        cycles[engine] = [end - start for start, end, *_ in run_works(simulator, seed, jobs)]
        simulator.close()
    verilog = export_verilog(TINY)
    for simulator in SIMULATORS:
        notes = run_bench(monkeypatch, tmp_path, simulator, "tests.cocotb.device_bench", verilog, TOP, config="tiny",
                          seed=seed, jobs=jobs)
        assert notes["results"] == [work.result.hex() for work in works(TINY, seed, jobs)]
        cycles[simulator] = notes["cycles"]
    print(cycles)
    assert len({tuple(counts) for counts in cycles.values()}) == 1, cycles
