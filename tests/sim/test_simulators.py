"""The simulators alone, on a toy device: the protocol's words kept, and the same cycles from all of them."""

import os
import signal
import threading

import numpy as np
import pytest

from ringloom.hw.regmap import control_register
from ringloom.sim import RESET_CYCLES, BusError, SimulationTimeout, axi_driver
from ringloom.sim.verilated import VerilatedSimulator
from ringloom.sim.verilated.build import for_simulation, scopes, top_ports
from ringloom.sim.verilated.cache import Cache, cache_folder
from tests.support.simulators import TOYS, copy_beats, quiet, random_calls, toy_config, toy_verilog

pytestmark = pytest.mark.xdist_group("toy")  # one worker builds the toy, for all


@pytest.fixture(params=TOYS)
def toy(request):
    simulator = TOYS[request.param](toy_config())
    yield simulator
    simulator.close()


def test_new_simulator_is_out_of_reset_and_zero(toy):
    assert toy.cycle == RESET_CYCLES
    assert not toy.memory().any() and toy.memory().shape == (toy.config.memory.bytes,)
    assert toy.memory().dtype == np.uint8


def test_storage_is_shared_without_a_copy(toy):
    memory = toy.memory()
    assert memory.ctypes.data == toy.memory().ctypes.data
    memory[:320] = np.arange(320) % 251
    copy_beats(toy, 0, 500, 10)  # crosses no share: one port's beats, then the next one's
    assert toy.run(1000)
    assert np.array_equal(memory[16000:16320], np.arange(320) % 251)
    memory[0] = 99  # a change behind the simulator's back is seen by the next job
    toy.write(control_register("irq_status"), 1)
    copy_beats(toy, 0, 600, 1)
    assert toy.run(1000) and memory[19200] == 99


def test_run_counts_cycles_and_stops_at_the_interrupt(toy):
    before = toy.cycle
    assert toy.run(123) is False and toy.cycle == before + 123
    copy_beats(toy, 0, 8, 3)
    assert toy.run(10_000) is True
    at_irq = toy.cycle
    assert toy.run(10_000) is True and toy.cycle == at_irq
    assert toy.run(0) is True


@pytest.mark.parametrize("address", [0, 1, 31, 32, 4064, 4095, 4096, 8190])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 4096, 4097])
def test_axi_window_takes_any_alignment(toy_pair, address, size):
    data = np.random.default_rng(address + size).integers(0, 256, size, np.uint8).tobytes()
    for simulator in toy_pair:
        memory = simulator.memory()
        memory[:] = 0xA5
        simulator.axi_write(address, data)
        simulator.run(2)  # the toy acknowledges before its last write is in storage
        assert simulator.axi_read(address, size) == data
        assert bytes(memory[address:address + size]) == data
        assert (memory[:address] == 0xA5).all() and (memory[address + size:] == 0xA5).all()
    assert toy_pair[0].cycle == toy_pair[1].cycle


@pytest.fixture(scope="module")
def toy_pair():
    pair = [make(toy_config()) for make in TOYS.values()]
    yield pair
    for simulator in pair:
        simulator.close()


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_take_the_same_cycles(seed):
    print("seed", seed)
    traces = []
    for make in TOYS.values():
        simulator = make(toy_config())
        traces.append(random_calls(simulator, seed))
        simulator.close()
    for step, (python, verilated) in enumerate(zip(*traces, strict=True)):
        assert python == verilated, f"step {step}"


def test_bus_errors_name_address_and_channel(toy):
    with pytest.raises(BusError, match="register read at address 0x800: the device answered DECERR on channel R"):
        toy.read(0x800)
    assert toy.read(control_register("busy")) == 0


@pytest.mark.parametrize("engine", TOYS)
def test_bus_timeouts_name_the_channel(engine, monkeypatch):
    monkeypatch.setattr(axi_driver, "BUS_LIMIT", 2000)
    toy = TOYS[engine](toy_config())
    copy_beats(toy, 0, 0, 100_000)  # the toy takes no burst while it copies
    before = toy.cycle
    with pytest.raises(SimulationTimeout, match="memory read at address 0x40: no transfer on channel AR in 2000"):
        toy.axi_read(64, 1)
    assert toy.cycle == before + 2000
    with pytest.raises(SimulationTimeout, match="memory write at address 0x40: no transfer on channel AW"):
        toy.axi_write(64, b"x")
    toy.reset()
    toy.axi_write(64, b"x")
    assert toy.axi_read(64, 1) == b"x"


def test_closed_simulator_refuses(toy):
    toy.close()
    toy.close()
    with pytest.raises(RuntimeError, match="closed"):
        toy.read(0)


def test_library_that_does_not_load_is_built_again(tmp_path, monkeypatch):
    # A private cache, with the runtime's objects of the common one; the library in it is whole but no library.
    common, private = cache_folder(), Cache(tmp_path)
    verilog = toy_verilog()
    VerilatedSimulator(toy_config(), quiet, verilog=verilog).close()
    for path in [*common.glob("*.o"), *common.glob("*.o.sha256")]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("RINGLOOM_CACHE", str(tmp_path))

    def garbage(scratch):
        (scratch / "bad.so").write_bytes(b"no library")
        return scratch / "bad.so"

    from ringloom.sim.verilated.build import Builder
    said = []
    name = Builder(said.append).library_name(verilog)
    private.get(name, garbage)
    simulator = VerilatedSimulator(toy_config(), said.append, verilog=verilog)
    assert simulator.run(10) is False
    simulator.close()
    assert [text.split(" ")[0] for text in said][0] == "verilating" and said[-1] == "linking"
    assert any(text.startswith("compiling: 1 of ") for text in said)
    again = []
    VerilatedSimulator(toy_config(), again.append, verilog=verilog).close()
    assert not again, "a second open builds nothing and says nothing"


def test_names_read_back_from_verilog():
    verilog = toy_verilog()
    ports = top_ports(verilog)
    assert ports["clk"] == ports["irq"] == 1 and ports["storage0_1_write_data"] == 256 and ports["s_axil_awaddr"] == 17
    assert scopes(verilog) == ["block"]


def test_preparing_verilog_drops_zero_memory_rows_and_nothing_else():
    logic = "  always @* begin\n    x[3] = 1'h0;\n    \\$12  = 2'h0;\n  end\n"
    zero = "  initial begin\n    mem[0] = 8'h00;\n    mem[1] = 8'd0;\n  end\n"
    other = "  initial begin\n    rom[0] = 8'h00;\n    rom[1] = 8'h10;\n  end\n"
    assert for_simulation(logic + zero + other) == logic.replace("\\$12 ", "_s_12 ") + other


@pytest.mark.parametrize("engine", TOYS)
def test_a_long_run_can_be_interrupted(engine):
    simulator = TOYS[engine](toy_config())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            simulator.run(10**12)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert simulator.cycle > RESET_CYCLES
    copy_beats(simulator, 0, 8, 3)
    assert simulator.run(1000), "the simulator goes on behind the interruption"
    simulator.close()
