"""Self-tests through the public API, on hardware with one stuck bit that firmware and host find and locate."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import ringloom as rl
from ringloom import cli, selftest
from ringloom.firmware.build import SELFTEST_CYCLES
from ringloom.hw.regmap import MAILBOX, Request
from ringloom.hw.ring.flit import Direction
from ringloom.sim.amaranth_sim import PythonSimulator
from tests.support.bare import bare
from tests.support.faults import KINDS, BrokenLink, PythonFaults, VerilatedFaults

FIRMWARE = {"control.kind": "firmware", "memory.kind": "ideal", "memory.bytes": 65536, "ideal.bytes_per_cycle": 64}
CONFIG = bare("tiny", FIRMWARE)
ROWS, COLUMNS = CONFIG.tile.array.rows, CONFIG.tile.array.columns
BYTES = 8192  # that the whole test marches over, where it need not be all


@pytest.fixture(scope="module")
def simulator():
    simulator = VerilatedFaults(CONFIG)
    yield simulator
    simulator.close()


@pytest.fixture(autouse=True)
def healthy(request):
    yield
    if "simulator" in request.fixturenames:
        request.getfixturevalue("simulator").break_bit()


def switch_on(simulator, **fault):
    """Power comes on, with this bit stuck."""
    simulator.break_bit(**({"kind": list(KINDS).index(fault.pop("kind"))} | fault if fault else {}))
    simulator.memory(0)[:] = 0x5A
    simulator.reset()
    return rl.Device(simulator.config, simulator, selftest=True)


def element_faults(chance, count):
    """Every element, and bits at random, of each kind."""
    bits = KINDS | {"sum": 17 + ROWS.bit_length()}
    places = [(row, column) for row in range(ROWS) for column in range(COLUMNS)]
    for number in range(count):
        row, column = places[number % len(places)]
        kind = chance.choice(("product", "activation", "weight0", "weight1", "sum"))
        last = 17 + (row + 1).bit_length() if kind == "sum" else bits[kind]  # sums grow on their way down
        yield {"kind": kind, "row": row, "column": column, "bit": chance.randrange(last), "value": chance.randrange(2)}


def test_a_healthy_device_passes_and_counts_nothing(simulator):
    device = switch_on(simulator)
    assert device.power_on.state == "passed" and 0 < device.power_on.cycles <= SELFTEST_CYCLES
    print(f"\n{device.power_on.cycles} cycles")
    tile = {"jobs": 0, "faults": 0, "busy_cycles": 0}
    telemetry = device.telemetry()
    assert telemetry["tiles"] == {0: tile} and telemetry["queues"][0] == {"jobs": 0, "faults": 0}
    a = np.arange(-40, 40, dtype=np.int8).reshape(8, 10)
    before = device.put(a)
    report = device.selftest()
    assert report.passed and [step.test for step in report.steps] == ["memory", "array", "ring"], report
    assert report.steps[2].what == "no ring: one tile" and report.steps[2].cycles == 0
    assert "65,536 bytes (100%)" in report.steps[0].what and "4 x 4" in report.steps[1].what
    assert (np.asarray(before) == a).all() and (device.matmul(a, a.T) == a.astype(int) @ a.T.astype(int)).all()


def test_stuck_bits_of_elements_are_found_and_located_by_the_firmware(simulator):
    chance = random.Random(11)
    for fault in element_faults(chance, 96):
        with pytest.raises(rl.DeviceFault) as raised:
            switch_on(simulator, **fault)
        where = raised.value.where
        assert (where["test"], where["tile"], where["row"], where["column"]) == (
            "array", 0, fault["row"], fault["column"]), (fault, str(raised.value))
        assert raised.value.code == "SELF_TEST"
        assert f"row {fault['row']}, column {fault['column']}" in str(raised.value)
        mailbox = {r.name: r.address + 0x400 for r in MAILBOX}
        assert simulator.read(mailbox["selftest_end"]) <= SELFTEST_CYCLES


def test_stuck_bits_of_elements_are_found_and_located_by_the_host(simulator):
    chance = random.Random(12)
    device = switch_on(simulator)
    for fault in element_faults(chance, 48):
        kind = list(KINDS).index(fault["kind"])
        simulator.break_bit(**fault | {"kind": kind})
        found = [(finding.row, finding.column) for finding in device.selftest(memory_bytes=BYTES).faults]
        assert found == [(fault["row"], fault["column"])], fault
    simulator.break_bit()
    assert device.selftest(memory_bytes=BYTES).passed


@pytest.mark.parametrize("kind, bits, test", [("data", range(256), "memory"), ("address", range(11), "address")])
def test_stuck_memory_lines_are_found_and_named(simulator, kind, bits, test):
    """65536 bytes have 11 address lines of beats."""
    chance = random.Random(13)
    for bit in chance.sample(bits, 11):
        for value in (0, 1):
            with pytest.raises(rl.DeviceFault, match="self-test failed: tile 0, ") as raised:
                switch_on(simulator, kind=kind, bit=bit, value=value)
            if kind == "address" and 32 << bit == CONFIG.memory.interleave_bytes:
                continue  # it makes two ports one: the march meets that first
            assert raised.value.where["test"] == test
            name = f"address bits [{bit + 5}]" if kind == "address" else f"0, bits [{bit}]"
            assert name in str(raised.value), (bit, value)
    simulator.reset()
    device = rl.Device(CONFIG, simulator, selftest=False)
    assert device.power_on.state == "skipped"
    finding, = [f for f in device.selftest(memory_bytes=BYTES).faults if f.test != "array"]
    assert finding.test in ("memory", "address")


def test_it_is_skipped_where_it_is_not_wanted_and_after_a_reset(simulator):
    device = switch_on(simulator)
    memory = device.simulator.memory(0)
    memory[:] = np.random.default_rng(1).integers(0, 256, memory.size, np.uint8)
    before, cycle = memory.copy(), device.cycle
    device.reset()
    assert (memory == before).all() and device.cycle - cycle < 1500
    simulator.break_bit(kind=list(KINDS).index("sum"), row=1, column=1, bit=3, value=1)
    simulator.reset()
    unaware = rl.Device(CONFIG, simulator, selftest=False)
    assert str(unaware.power_on) == "skipped: it was not asked for"
    assert (memory == before).all()


def test_telemetry_is_the_firmwares_answer(simulator):
    device = switch_on(simulator)
    a = np.ones((8, 8), np.int8)
    cycles = [device.submit("matmul", a, a).wait().cycles for _ in range(3)]
    queue = device.queue()
    with pytest.raises(rl.DeviceFault):
        queue.submit_raw(b"\xff" * 64).result()
    queue.close()
    told = device.telemetry()
    tile = told["tiles"][0]
    assert (tile["jobs"], tile["faults"]) == (4, 1)
    assert sum(cycles) <= tile["busy_cycles"] <= sum(cycles) + 400
    control = device.regs.control
    assert 0 < (control.cycle_low | control.cycle_high << 32) - told["uptime_cycles"] < 2000
    mailbox = device.regs.mailbox
    mailbox.request = 0x7F  # the firmware knows no such request, nor a tile 200
    device.simulator.run(200)
    mailbox.request = Request.TELEMETRY | 200 << 8
    device.simulator.run(200)
    assert mailbox.pending == 0
    device.reset()
    assert device.telemetry()["tiles"][0] == {"jobs": 0, "faults": 0, "busy_cycles": 0}


def test_refusals(simulator):
    device = switch_on(simulator)
    for bad in (0, 31, 65537, 1.5, "all"):
        with pytest.raises(rl.UnsupportedError, match="memory_bytes"):
            device.selftest(memory_bytes=bad)
    with pytest.raises(rl.UnsupportedError, match="memory_byte"):
        device.selftest(memory_byte=64)
    job = device.submit("matmul", np.ones((4, 4), np.int8), np.ones((4, 4), np.int8))
    with pytest.raises(rl.UnsupportedError, match="1 jobs are queued"):
        device.selftest()
    assert job.wait().done
    with pytest.raises(rl.UnsupportedError, match="selftest = 'no'"):
        rl.open("tiny", sim="functional", selftest="no")


def test_direct_control_runs_the_same_patterns_from_the_host():
    """In Amaranth's simulator: no firmware, and no compiler."""
    config = bare("tiny", {"memory.bytes": 65536})
    device = rl.Device(config, PythonFaults(config), selftest=True)
    assert str(device.power_on) == "absent: control.kind is direct"
    memory = device.simulator.memory(0)
    memory[:] = 0x77
    assert device.selftest(memory_bytes=512).passed
    assert (memory[:512] == 0x77).all()
    chance = random.Random(14)
    for fault in (*element_faults(chance, 3), {"kind": "data", "bit": 100, "value": 1},
                  {"kind": "address", "bit": 9, "value": 0}):
        device.simulator.break_bit(**fault | {"kind": list(KINDS).index(fault["kind"])})
        finding = device.selftest(memory_bytes=512).faults[0]
        if "row" in fault:
            assert (finding.test, finding.row, finding.column) == ("array", fault["row"], fault["column"]), fault
        else:
            assert finding.bits == [fault["bit"] + 5 * (fault["kind"] == "address")], finding
    device.simulator.break_bit()
    assert device.telemetry()["tiles"][0]["jobs"] > 0
    device.close()


def test_the_command_tells_by_its_status(simulator, monkeypatch):
    monkeypatch.setattr(simulator, "close", lambda: None)

    def opened(config, sim, selftest):
        simulator.reset()
        return rl.Device(CONFIG, simulator, selftest=selftest)

    monkeypatch.setattr(cli, "open", opened)
    run = CliRunner().invoke
    arguments = ["selftest", "--config", "tiny", "--memory", str(BYTES)]
    assert run(cli.main, arguments).exit_code == 0
    result = run(cli.main, [*arguments, "--json"])
    assert result.exit_code == 0 and '"passed": true' in result.stdout and "passed in" in result.stdout
    simulator.break_bit(kind=list(KINDS).index("product"), row=2, column=3, bit=4, value=1)
    result = run(cli.main, arguments)
    words = " ".join(result.stdout.replace("│", " ").split())
    assert result.exit_code == 1 and "failed" in words and "row 2, column 3" in words
    assert run(cli.main, ["selftest", "--memory", "some"]).exit_code == 2


def test_a_silent_firmware_is_told(simulator, monkeypatch):
    device = switch_on(simulator)
    monkeypatch.setattr(device.regs, "_blocks", dict(device.regs._blocks) | {"mailbox": SimpleNamespace(
        request=0, pending=1, selftest=0)})
    with pytest.raises(rl.DeviceFault, match="did not answer TELEMETRY within 500 cycles"):
        selftest.ask(device, Request.TELEMETRY, 0, cycles=500)
    with pytest.raises(rl.DeviceFault, match="the management core is at fault"):
        selftest.power_on(device, True)


@pytest.mark.parametrize("preset", ["tiny", "edge", "inference", pytest.param("training", marks=pytest.mark.fuzz)])
def test_healthy_presets_pass(preset):
    """As they are, on their own memory, with all their tiles."""
    with rl.open(preset, sim="verilated", selftest=True) as device:
        print(f"\n{preset}: {device.power_on}")
        assert device.power_on.state == "passed" and device.power_on.cycles <= SELFTEST_CYCLES
        assert not any(device.simulator.memory(tile).any() for tile in range(device.config.tiles))
        telemetry = device.telemetry()["tiles"]
        assert telemetry == {tile: {"jobs": 0, "faults": 0, "busy_cycles": 0} for tile in range(device.config.tiles)}
        report = device.selftest(memory_bytes=4096)
        assert report.passed, report.faults


def test_an_odd_array_passes_from_the_host():
    """Rows of results that are no whole beats, elements that are no power of two."""
    config = bare("tiny", {"tile.array.rows": 3, "tile.array.columns": 5, "memory.bytes": 65536})
    device = rl.Device(config, PythonFaults(config))
    assert device.selftest(memory_bytes=64).passed
    device.simulator.break_bit(kind=list(KINDS).index("sum"), row=1, column=4, bit=17, value=1)
    finding, = device.selftest(memory_bytes=64).faults
    assert (finding.row, finding.column) == (1, 4)
    device.close()


@pytest.fixture
def ring_alone(monkeypatch):
    for step in ("_memory", "_array"):  # they are tested above
        monkeypatch.setattr(selftest, step, lambda *_: ("", []))


@pytest.mark.parametrize("stop, direction, bit, value", [
    (0, Direction.CLOCKWISE, 0, 1), (1, Direction.CLOCKWISE, 255, 0), (2, Direction.COUNTERCLOCKWISE, 137, 1),
    (1, Direction.COUNTERCLOCKWISE, 7, 0)])
def test_a_stuck_wire_of_a_link_is_found_and_located(ring_alone, stop, direction, bit, value):
    config = bare("tiny", {"tiles": 3, "memory.bytes": 65536, "ring.data_bits": 256})
    device = rl.Device(config, BrokenLink(config, stop, direction, bit, value))
    report = device.selftest()
    finding, = report.faults
    receiver = stop + (1 if direction is Direction.CLOCKWISE else -1)
    assert (finding.test, finding.tile) == ("ring", receiver)
    words = f"tile {receiver}, what comes from tile {stop} over the ring: bits [{bit}] of a flit's data are wrong"
    assert str(finding) == words
    assert (finding.expected ^ finding.found) == 1 << bit % 32
    steps = {step.tile: step.passed for step in report.steps if step.test == "ring"}
    assert steps == {pair: pair != min(stop, receiver) for pair in (0, 1)}
    device.close()


def test_a_link_that_loses_flits_is_told(ring_alone):
    config = bare("tiny", {"tiles": 2, "memory.bytes": 65536, "control.watchdog_cycles": 3000})
    device = rl.Device(config, BrokenLink(config, 0, Direction.CLOCKWISE))
    finding, = device.selftest().faults
    assert str(finding).startswith("tile 0, the ring between it and tile 1: ") and "WATCHDOG" in str(finding)
    device.close()


@pytest.mark.parametrize("overrides", [{"tiles": 2}, {"tiles": 3, "ring.data_bits": 512, "ring.link_stages": 1}],
                         ids=str)
def test_every_link_of_a_healthy_ring_passes(ring_alone, overrides):
    config = bare("tiny", {"memory.bytes": 1 << 18} | overrides)
    device = rl.Device(config, PythonSimulator(config, lambda text: None))
    steps = [step for step in device.selftest().steps if step.test == "ring"]
    assert [step.tile for step in steps] == list(range(config.tiles - 1)) and all(step.passed for step in steps)
    assert all(step.cycles > 4 * config.ring.data_bits.bit_length() for step in steps) and device.jobs == 0
    device.close()
