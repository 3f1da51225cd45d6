"""Timing sets and address maps: what is accepted, what is refused, and the way there and back."""

import dataclasses

import pytest
import yaml
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from ringloom.errors import ConfigError
from ringloom.hw.config import load
from ringloom.hw.memory.hbm.address import AddressMap
from ringloom.hw.memory.hbm.timing import TimingSet, load_timing, timing_sets


def tree(name: str = "hbm2") -> dict:
    values = dataclasses.asdict(load_timing(name))
    del values["name"]
    return values


def written(tmp_path, values: dict):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def test_the_named_sets_are_there_and_say_where_they_come_from():
    assert {"hbm2", "hbm2_dramsim3", "hbm2_gem5", "hbm3", "lpddr4", "tiny"} <= set(timing_sets())
    for name in timing_sets():
        assert len(load_timing(name).source) > 20


def test_a_user_adds_a_set_with_a_file(tmp_path):
    path = written(tmp_path, tree() | {"cl": 20, "read_to_write": 19})
    assert load_timing(path).cl == 20
    config = load("inference", {"memory.kind": "hbm", "memory.timing": path})
    assert config.timing.cl == 20
    before = config.hardware_hash()
    written(tmp_path, tree() | {"cl": 21, "read_to_write": 20})
    assert load("inference", {"memory.kind": "hbm", "memory.timing": path}).hardware_hash() != before


@pytest.mark.parametrize(("change", "words"), [
    ({"tCL": 3}, ["tCL", "unknown key"]),
    ({"cl": "14"}, ["cl", "must be int"]),
    ({"cl": True}, ["cl", "must be int"]),
    ({"cl": 3}, ["cl = 3", "4 or more"]),
    ({"row_bytes": 1000}, ["row_bytes = 1000", "power of two"]),
    ({"ccd_s": 5}, ["ccd_s = 5", "ccd_l"]),
    ({"rc": 40}, ["rc = 40", "ras + rp"]),
    ({"read_to_write": 5}, ["read_to_write = 5", "apart"]),
    ({"rfc": 5000}, ["refi = 3900", "exceed rfc"]),
    ({"faw": 0}, ["faw = 0", "1..1048576"]),
])
def test_a_wrong_set_is_refused(tmp_path, change, words):
    with pytest.raises(ConfigError) as error:
        load_timing(written(tmp_path, tree() | change))
    for word in [*words, "mine.yaml"]:
        assert word in str(error.value)


def test_what_is_missing_is_named(tmp_path):
    values = tree()
    del values["faw"], values["wr"]
    with pytest.raises(ConfigError, match="missing faw, wr"):
        load_timing(written(tmp_path, values))


@pytest.mark.parametrize(("overrides", "words"), [
    ({"memory.timing": "hbm22"}, ["hbm22", "did you mean 'hbm2'"]),
    ({"memory.pseudo_channels": 3}, ["pseudo_channels", "1, 2, 4 or 8"]),
    ({"memory.address_map": "row-bank-column"}, ["address_map", "each once"]),
    ({"memory.bytes": 65536}, ["memory.bytes", "hold"]),
    ({"memory.kind": "ddr"}, ["memory.kind", "ideal or hbm"]),
])
def test_a_wrong_memory_is_refused(overrides, words):
    with pytest.raises(ConfigError) as error:
        load("inference", {"memory.kind": "hbm", **overrides})
    for word in words:
        assert word in str(error.value)


ORDERS = ["row-bank-column-group", "row-column-bank-group", "bank-row-group-column"]


@given(st.sampled_from(timing_sets()), st.sampled_from([1, 2, 4]), st.sampled_from(ORDERS), st.booleans(),
       st.integers(0, 1 << 40))
@settings(max_examples=200, deadline=None)
def test_every_beat_has_a_place_of_its_own(name, channels, order, xor, seed):
    timing: TimingSet = load_timing(name)
    amap = AddressMap(timing=timing, beats=timing.banks * timing.row_bytes * 4 * channels // 32, channels=channels,
                      order=order, xor=xor)
    beats = {(seed * 7919 + k * k) % amap.beats for k in range(64)}
    places = {(amap.channel(b), *amap.locate(b)) for b in beats}
    assert len(places) == len(beats)
    for _, row, bank, column in places:
        assert row < amap.rows and bank < timing.banks and column < timing.row_bytes // 32


@pytest.mark.parametrize("xor", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_hardware_agrees_and_finds_back(order, xor):
    timing = load_timing("hbm2_dramsim3")
    amap = AddressMap(timing=timing, beats=1 << 17, channels=4, order=order, xor=xor)
    m = Module()
    beat, back = Signal(amap.beat_bits), Signal(amap.beat_bits)
    row, bank, column = Signal(amap.row_bits), Signal(amap.bank_bits), Signal(amap.column_bits)
    m.d.comb += [s.eq(v) for s, v in zip((row, bank, column), amap.decode(beat), strict=True)]
    m.d.comb += back.eq(amap.encode(row, bank, column, 2))

    async def body(ctx):
        for value in [0, 1, 8, 16, 31, (1 << 17) - 1, *range(5, 1 << 17, 7919)]:
            ctx.set(beat, value)
            assert (ctx.get(row), ctx.get(bank), ctx.get(column)) == amap.locate(value)
            if amap.channel(value) == 2:
                assert ctx.get(back) == value

    simulator = Simulator(m)
    simulator.add_testbench(body)
    simulator.run()


def test_a_linear_stream_alternates_between_bank_groups():
    timing = load_timing("hbm2")
    amap = AddressMap(timing=timing, beats=1 << 20)
    groups = [amap.locate(beat)[1] % timing.bank_groups for beat in range(64)]
    assert all(a != b for a, b in zip(groups, groups[1:], strict=False))
