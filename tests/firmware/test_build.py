"""The image: its size, what it is made of, and how fast the core runs it."""

import numpy as np
import pytest

import ringloom as rl
from ringloom.firmware import build
from ringloom.hw import isa, regmap
from ringloom.hw.config import load, presets
from ringloom.sim.verilated.cache import Cache
from tests.support.bare import bare
from tests.support.traced import TracedSimulator

CPI = 2.5
FIRMWARE = {"control.kind": "firmware"}


@pytest.mark.parametrize("preset", presets())
def test_the_image_fits_with_a_margin(preset):
    config = load(preset, FIRMWARE)
    words = build.image(config)
    size = 4 * len(words)
    print(f"\n{preset}: {size} of {config.control.code_bytes} bytes of code")
    assert size <= 0.75 * config.control.code_bytes
    assert all(0 <= word < 1 << 32 for word in words)


def test_an_image_that_does_not_fit_is_refused_by_name():
    with pytest.raises(build.FirmwareError, match="control.code_bytes = 1024: raise it"):
        build.image(bare("tiny", FIRMWARE | {"control.code_bytes": 1024}))


def test_the_image_is_built_once_and_again_when_a_source_changes(monkeypatch, tmp_path):
    monkeypatch.setenv("RINGLOOM_CACHE", str(tmp_path / "cache"))
    config, built = bare("tiny", FIRMWARE), []
    get = Cache.get

    def counted(self, name, make):
        return get(self, name, lambda scratch: built.append(name) or make(scratch))

    monkeypatch.setattr(Cache, "get", counted)
    first = build.image(config)
    assert build.image(config) == first and len(built) == 1
    changed = tmp_path / "extra.c"
    changed.write_text("int unused_by_all;\n")
    originals = build.sources()
    monkeypatch.setattr(build, "sources", lambda: [*originals, changed])
    assert build.image(config) == first and len(built) == 2
    changed.write_text("this is no C\n")
    with pytest.raises(build.FirmwareError, match="does not compile"):
        build.image(config)


def test_the_header_has_every_register_record_and_code():
    config = bare("tiny", FIRMWARE)
    text = build.header(config)
    values = dict(line.split()[1:3] for line in text.splitlines() if line.startswith("#define RL_"))
    for queue in range(config.control.queues):
        for register in regmap.QUEUE:
            name = f"RL_REG_QUEUE{queue}_{register.name.upper()}"
            assert int(values[name], 0) == regmap.queue_register(queue, register.name)
    for register in regmap.TILE:
        assert int(values[f"RL_REG_TILE0_{register.name.upper()}"], 0) == regmap.tile_register(0, register.name)
    for code in isa.Code:
        assert int(values[f"RL_CODE_{code.name}"]) == code


def test_cycles_per_instruction_on_the_firmwares_own_trace():
    config = bare("tiny", FIRMWARE)
    simulator = TracedSimulator(config)
    with rl.Device(config, simulator) as device:
        rng = np.random.default_rng(1)
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((8, 12), (12, 8)))
        queue = device.queue(priority=2)
        jobs = [device.submit("matmul", a, b) for _ in range(3)] + [queue.submit("matmul", a, b) for _ in range(3)]
        faulty = queue.submit_raw(b"\xff" * 64)
        for job in jobs:
            assert (job.result() == a.astype(int) @ b.astype(int)).all()
        with pytest.raises(rl.DeviceFault):
            faulty.result()
    cycles = simulator.trace[-1][0] - simulator.trace[0][0] + 1
    waits, count = simulator.waits, len(simulator.trace)
    print(f"\n{count} instructions in {cycles} cycles, {waits} of them waits: CPI {(cycles - waits) / count:.2f}")
    assert count > 500
    assert (cycles - waits) / count <= CPI
