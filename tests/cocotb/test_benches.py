"""The cocotb benches of the blocks, on exported Verilog, in Icarus and in Verilator."""

import pytest

from ringloom.hw.export import to_verilog
from ringloom.hw.tensor.requantizer import Requantizer
from tests.support.cocotb_runner import SIMULATORS, run_bench


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_requantizer(simulator, tmp_path, monkeypatch):
    notes = run_bench(monkeypatch, tmp_path, simulator, "tests.cocotb.requantizer_bench",
                      to_verilog(Requantizer(lanes=4), "requantizer"), "requantizer", cycles=1000, seed=1)
    assert notes["checked"] > 1000
