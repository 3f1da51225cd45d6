"""Configurations: presets load and derive their widths; every refusal names file, key, value, rule, nearest key."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ringloom.hw import config as configs
from ringloom.hw.config import ConfigError, DeviceConfig
from ringloom.hw.memory.hbm.patience import patience_cycles
from tests.support.bare import bare


def test_presets():
    assert configs.presets() == ["edge", "inference", "tiny", "training"]
    arrays = {name: configs.load(name).tile.array for name in configs.presets()}
    assert {name: (a.rows, a.columns) for name, a in arrays.items()} == {
        "tiny": (4, 4), "edge": (8, 8), "inference": (16, 16), "training": (16, 16)}
    for name in configs.presets():
        config = configs.load(name)
        assert config.name == name
        assert (config.tiles, config.ring.data_bits) == {
            "tiny": (2, 256), "edge": (1, 256), "inference": (4, 256), "training": (8, 512)}[name]
        assert (config.memory.kind, config.control.kind) == ("hbm", "firmware")
    memories = {name: configs.load(name).memory for name in configs.presets()}
    assert {name: (memory.timing, memory.pseudo_channels) for name, memory in memories.items()} == {
        "tiny": ("tiny", 1), "edge": ("lpddr4", 1), "inference": ("hbm2", 4), "training": ("hbm2", 4)}
    for name in configs.presets():   # one cycle is one tCK
        assert configs.load(name).clock_hz == pytest.approx(1e12 / configs.load(name).timing.clock_ps)


def test_derived_values():
    config = configs.load("inference")
    assert (config.ports, config.line_bytes, config.address_bits) == (4, 128, 28)
    assert config.peak_bytes_per_cycle == 64 and configs.load("edge").peak_bytes_per_cycle == 4
    assert (bare("inference").ports, bare("inference").peak_bytes_per_cycle) == (2, 64)
    assert config.tile.array.load_cycles == 4 and config.tile.array.macs_per_cycle == 256
    assert config.tile.activation_blocks == config.tile.weight_blocks == 4096
    assert config.tile.accumulator_words == 1024
    odd = configs.load("tiny", {"tile.array.rows": 3, "tile.array.columns": 5})
    assert (odd.tile.activation_blocks, odd.tile.weight_blocks) == (1024, 512)
    assert (odd.tile.array.load_rows, odd.tile.array.load_cycles) == (3, 1)
    assert odd.tile.accumulator_words == 128 and odd.tile.column_records == 8


def test_overrides_and_base(tmp_path):
    below = tmp_path / "below.yaml"
    below.write_text("base: edge\ntile:\n  array: {rows: 2}\n")
    above = tmp_path / "above.yaml"
    above.write_text("base: below.yaml\nideal: {latency: 50}\nclock_hz: 1e9\n")
    config = configs.load(above, {"tile.requantizer.lanes": "2", "ideal.reorder": "true"})
    assert (config.tile.array.rows, config.tile.array.columns) == (2, 8)
    assert (config.ideal.latency, config.ideal.bytes_per_cycle, config.ideal.reorder) == (50, 32, True)
    assert config.tile.requantizer.lanes == 2 and config.clock_hz == 1e9 and config.name == "above"
    assert configs.load(config) == config
    assert configs.load(config, {"ideal.latency": 60}).ideal.latency == 60


def test_hash_follows_the_hardware_alone():
    config = configs.load("tiny")
    assert dataclasses.replace(config, name="x", clock_hz=5.0).hardware_hash() == config.hardware_hash()
    assert configs.load("tiny", {"ideal.latency": 33}).hardware_hash() != config.hardware_hash()
    inference = {"tiles": 4, "ring.data_bits": 256}
    assert configs.load("inference").hardware_hash() == configs.load("training", inference).hardware_hash()


@pytest.mark.parametrize("overrides, words", [
    ({"tile.array.rowz": 4}, ["tile.array.rowz", "4", "'rows'"]),
    ({"tiel": 1}, ["tiel", "'tile'"]),
    ({"tile.array.rows": 0}, ["tile.array.rows = 0", "1..64"]),
    ({"tile.array.rows": 65}, ["tile.array.rows = 65", "1..64"]),
    ({"tile.array.rows": "many"}, ["tile.array.rows = 'many'", "must be int"]),
    ({"tile.array.rows": True}, ["tile.array.rows = True", "must be int"]),
    ({"tile.array": 3}, ["tile.array = 3", "group of keys"]),
    ({"tile.array.weight_rows_per_cycle": 3}, ["weight_rows_per_cycle = 3", "1, 2, 4 or 8"]),
    ({"tile.array.activations_per_row": 2}, ["activations_per_row = 2", "only 1"]),
    ({"tile.scratchpad.weight_bytes": 10}, ["tile.scratchpad.weight_bytes = 10", "1024"]),
    ({"tile.accumulator.bytes": 300, "tile.array.columns": 64}, ["tile.accumulator.bytes = 300", "1024 bytes"]),
    ({"tile.requantizer.lanes": 3}, ["tile.requantizer.lanes = 3"]),
    ({"memory.kind": "sram"}, ["memory.kind = 'sram'", "ideal or hbm"]),
    ({"memory.bytes": 1000000}, ["memory.bytes = 1000000", "power of two"]),
    ({"memory.interleave_bytes": 96}, ["memory.interleave_bytes = 96", "power of two"]),
    ({"ideal.latency": 3}, ["ideal.latency = 3", "4..1000"]),
    ({"ideal.bytes_per_cycle": 48}, ["ideal.bytes_per_cycle = 48"]),
    ({"ring.data_bits": 100}, ["ring.data_bits = 100"]),
    ({"control.kind": "mailbox"}, ["control.kind = 'mailbox'", "direct or firmware"]),
    ({"control.code_bytes": 3000}, ["control.code_bytes", "power of two"]),
    ({"control.watchdog_cycles": 1}, ["control.watchdog_cycles = 1"]),
    ({"tiles": 17}, ["tiles = 17", "1..16"]),
    ({"ring.buffer_flits": 1}, ["ring.buffer_flits", "2..64"]),
    ({"clock_hz": "fast"}, ["clock_hz = 'fast'", "float"]),
    ({"clock_hz": 0}, ["clock_hz", "positive"]),
    ({"ideal.seed": "{"}, ["ideal.seed", "not a YAML value"]),
    ({"clock_hz.x": 1}, ["clock_hz", "not a group"]),
    ({"clock_hz": "1e400"}, ["clock_hz = inf", "finite"]),
    ({"clock_hz": float("nan")}, ["clock_hz = nan", "finite"]),
    ({"clock_hz": 10**400}, ["clock_hz", "must be float"]),
    ({"clock_hz": "2001-99-99"}, ["clock_hz", "not a YAML value"]),
    ({"tile.array.rows": '!!int "x"'}, ["tile.array.rows", "not a YAML value"]),
    ({"tile.array.rows": '!!timestamp "x"'}, ["tile.array.rows", "not a YAML value"]),
    ({"tile.array.rows": "[" * 5000}, ["tile.array.rows", "not a YAML value"]),
    ({"tiles": 1, "memory.kind": "ideal", "control.watchdog_cycles": 4000, "ideal.latency": 1000},
     ["control.watchdog_cycles = 4000", "at least 4256"]),
    ({"tiles": 1, "memory.kind": "ideal", "control.watchdog_cycles": 8255, "ideal.jitter": 1000,
      "ideal.write_delay": 968}, ["control.watchdog_cycles = 8255", "at least 8256"]),
    ({"tiles": 1, "memory.kind": "ideal", "control.watchdog_cycles": 2000, "ideal.bytes_per_cycle": 4},
     ["at least 2176", "bytes_per_cycle"]),
    ({"tiles": 1, "control.watchdog_cycles": 5000, "memory.kind": "hbm", "memory.timing": "tiny",
      "memory.pseudo_channels": 1}, ["control.watchdog_cycles = 5000", "at least", "'tiny'", "memory.refresh"]),
    ({5: 1}, ["override 5", "dotted key"]),
    ([("tiles", 1)], ["overrides", "dict"]),
    ("tiles=1", ["overrides", "dict"]),
])
def test_refusals(overrides, words):
    with pytest.raises(ConfigError) as caught:
        configs.load("tiny", overrides)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "tiny" in message or "override" in message


@pytest.mark.parametrize("make, words", [
    (lambda: DeviceConfig(tiles="two"), ["tiles = 'two'", "must be int, not str"]),
    (lambda: DeviceConfig(tiles=None), ["tiles = None", "must be int"]),
    (lambda: DeviceConfig(tile=configs.ArrayConfig()), ["tile = ArrayConfig", "must be TileConfig"]),
    (lambda: DeviceConfig(clock_hz="fast"), ["clock_hz = 'fast'", "must be float"]),
    (lambda: configs.MemoryConfig(bytes=1e6), ["memory.bytes = 1000000.0", "must be int, not float"]),
    (lambda: configs.IdealConfig(reorder=1), ["ideal.reorder = 1", "must be bool"]),
    (lambda: dataclasses.replace(configs.load("tiny"), ring=3), ["ring = 3", "must be RingConfig"]),
])
def test_groups_made_in_python_are_checked_like_files(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_numbers_of_other_types_become_plain_ones():
    config = DeviceConfig(tiles=np.int64(2), clock_hz=np.float32(5))
    assert type(config.tiles) is int and type(config.clock_hz) is float and config == DeviceConfig(tiles=2, clock_hz=5)
    assert config.hardware_hash() == DeviceConfig(tiles=2).hardware_hash()


def test_every_parameter_has_a_meaning_and_every_number_a_rule():
    def parameters(group, key=""):
        for parameter in dataclasses.fields(group):
            value = getattr(group, parameter.name)
            if dataclasses.is_dataclass(value):
                yield from parameters(value, f"{key}{parameter.name}.")
            else:
                yield f"{key}{parameter.name}", value, parameter.metadata

    found = list(parameters(DeviceConfig()))
    assert len(found) == 37
    for key, value, metadata in found:
        assert metadata["meaning"], key
        if type(value) in (int, float):
            with pytest.raises(ConfigError) as caught:
                configs.load("tiny", {key: -1})
            assert f"{key} = -1" in str(caught.value) and metadata["rule"].text in str(caught.value)


def test_a_timing_file_is_read_once(tmp_path):
    """A planner asks for it thousands of times, and a file that goes away takes no device with it."""
    path = tmp_path / "mine.yaml"
    path.write_text((Path(configs.__file__).parent / "memory/timings/tiny.yaml").read_text())
    config = configs.load("tiny", {"memory.timing": str(path)})
    path.unlink()
    assert config.timing is config.timing and config.peak_bytes_per_cycle == 16


def test_watchdog_that_is_long_enough():
    bare("tiny", {"control.watchdog_cycles": 4256, "ideal.latency": 1000})
    # Two tiles at one memory, and 3 stops of 3 cycles there and back, four times over.
    patience = 2 * patience_cycles(configs.load("tiny").memory, configs.load("tiny").timing) + 72
    configs.load("tiny", {"control.watchdog_cycles": patience})
    with pytest.raises(ConfigError, match=f"at least {patience}"):
        configs.load("tiny", {"control.watchdog_cycles": patience - 1})


@pytest.mark.parametrize("source", [5, None, b"tiny", 2.5, ["tiny"], "a" * 5000, "a\0b", ""])
def test_sources_that_are_none(source):
    with pytest.raises(ConfigError, match="tiny") as caught:
        configs.load(source)
    assert len(str(caught.value)) < 400


def test_refusals_of_files(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'inference'"):
        configs.load("inferense")
    bad = tmp_path / "bad.yaml"
    bad.write_text("tile: {array: {rows: 4, colums: 4}}\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml.*tile\.array\.colums.*'columns'"):
        configs.load(bad)
    bad.write_text("tile: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml.*not a YAML file"):
        configs.load(bad)
    bad.write_text("- 1\n")
    with pytest.raises(ConfigError, match="keys and values, not list"):
        configs.load(bad)
    bad.write_text("base: bad.yaml\n")
    with pytest.raises(ConfigError, match="leads back to itself"):
        configs.load(bad)
    (tmp_path / "in").mkdir()
    bad.write_text("base: in/../bad.yaml\n")  # the same file by ever longer names
    with pytest.raises(ConfigError, match="leads back to itself"):
        configs.load(bad)
    for text in ("clock_hz: 2001-99-99\n", 'tiles: !!int "x"\n', "tile: " + "[" * 5000):
        bad.write_text(text)
        with pytest.raises(ConfigError, match=r"bad\.yaml.*not a YAML file"):
            configs.load(bad)
    bad.write_text(f"base: {'a' * 5000}\n")
    with pytest.raises(ConfigError, match="neither a preset"):
        configs.load(bad)
    bad.write_text("")
    assert configs.load(bad) == DeviceConfig(name="bad")


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        configs.load("tiny").tiles = 2
