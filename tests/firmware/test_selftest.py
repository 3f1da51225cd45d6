"""The C of the self-test against memory and tiles written here: several tiles, long addresses, time that runs out."""

import ctypes
import itertools
import os
import re
import subprocess

import numpy as np
import pytest

from ringloom.firmware import build
from ringloom.hw import regmap
from ringloom.hw.control.core import mailbox, sweep
from ringloom.hw.control.core.bus import REGION_SHIFT
from ringloom.hw.control.core.management import REGIONS
from ringloom.hw.control.core.queues import PORT
from ringloom.hw.control.core.sweep import SweepCommand, SweepStatus
from ringloom.hw.isa import DESCRIPTOR, LOAD, STORE, Opcode, Status, record_of
from ringloom.hw.regmap import Request, SelfTest
from ringloom.sim.verilated.cache import cache_folder
from ringloom.sim.verilated.toolchain import find_compiler
from tests.firmware.test_dispatch import GET, GLUE, PUT
from tests.support.bare import bare

TILES = 3
BASE = {name: number << REGION_SHIFT for name, number in REGIONS.items()}
FIRMWARE = {"control.kind": "firmware", "ideal.bytes_per_cycle": 64}


@pytest.fixture(scope="module", params=[1 << 16, 1 << 31], ids=["short", "long"])
def source(request, tmp_path_factory):
    """Memory of so many bytes a tile: addresses of fewer than 32 bits, and of more."""
    config = bare("tiny", FIRMWARE | {"memory.bytes": request.param})
    folder = tmp_path_factory.mktemp("selftest")
    text = build.header(config)
    bits = (TILES * config.memory.bytes - 1).bit_length()
    for name, value in (("TILES", TILES), ("SELFTEST_ADDRESS_BITS", bits)):
        text, count = re.subn(rf"(#define RL_{name}) \d+", rf"\1 {value}", text)
        assert count == 1
    (folder / "ringloom.h").write_text(text)
    names = {path.name: path for path in build.sources()}
    (folder / "unit.c").write_text("".join(f'#include "{names[name]}"\n' for name in (
        "dispatch.c", "selftest.c", "mailbox.c")) + GLUE)
    return config, folder


@pytest.fixture
def hardware(source, request):
    config, folder = source
    compiler = find_compiler(cache_folder() / "zig")
    target = folder / f"unit{abs(hash(request.node.name))}.so"
    done = subprocess.run([*compiler.command, "-x", "c", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas",
                           "-shared", "-fPIC", "-DRL_HOSTED", f"-I{folder}", "-o", str(target),
                           str(folder / "unit.c")],
                          capture_output=True, text=True, env={**os.environ, **compiler.environment})
    assert done.returncode == 0, done.stderr
    return Hardware(config, ctypes.CDLL(str(target)))


class Hardware:
    """``pace`` cycles go by at each access; a sweep or job takes ``latency`` of them."""

    def __init__(self, config, library):
        self.config, self.library = config, library
        self.memory, self.words, self.sweep = {}, [0] * 8, dict.fromkeys(sweep.PORT, 0)
        self.stuck = lambda address, value: value  # what a read of a beat gives
        self.mailbox = dict.fromkeys((r.name for r in regmap.MAILBOX), 0)
        self.queue = dict.fromkeys((r.name for r in regmap.QUEUE), 0)
        self.cycle, self.pace, self.latency, self.free = 0, 6, 40, 0
        self.answers, self.job_cycles = False, 500  # whether one sees that a sweep goes on
        self.broken = None  # tile, row, column of an element
        self.bad, self.ran, self.hung, self.ended, self.aborted, self.errors = None, [], (), {}, [], []
        self._get, self._put = GET(self.guard(self.get)), PUT(self.guard(self.put))
        library.connect_bus(self._get, self._put)

    def guard(self, function):
        def guarded(*arguments):
            try:
                self.cycle += self.pace
                return (function(*arguments) or 0) & 0xFFFFFFFF
            except BaseException as error:
                self.errors.append(error)
                return 0
        return guarded

    def call(self, name, *arguments):
        getattr(self.library, name)(*arguments)
        assert not self.errors, self.errors[0]

    def get(self, address):
        region, offset = address >> REGION_SHIFT, address & (1 << REGION_SHIFT) - 1
        if region == REGIONS["mailbox"]:
            return next(value for name, value in self.mailbox.items() if mailbox.PORT[name] == offset)
        if region == REGIONS["sweep"]:
            if offset >= sweep.PORT["word"]:
                return self.words[offset - sweep.PORT["word"] >> 2]
            return {sweep.PORT["status"]: (SweepStatus.BUSY if self.cycle < self.free else 0)
                    | (SweepStatus.BAD if self.bad is not None else 0)
                    | (self.cycle >> 10 & 0xFF if self.answers else 0) << 8,
                    sweep.PORT["bad_low"]: self.bad or 0, sweep.PORT["bad_high"]: (self.bad or 0) >> 32}[offset]
        if region == REGIONS["queues"]:
            assert offset == PORT["ready"]
            return self.queue["tail"] != 0
        if offset == regmap.control_register("cycle_low"):
            return self.cycle
        if offset == regmap.control_register("cycle_high"):
            return 7
        for tile in range(TILES):
            if offset == regmap.tile_register(tile, "slots"):
                return self.cycle >= self.ended.get(tile, 1 << 40)
            if offset == regmap.tile_register(tile, "status"):
                return Status.DONE << 8
            if offset == regmap.tile_register(tile, "counter_cycles_low"):
                return 100 * self.ran.count(tile)
            if offset == regmap.tile_register(tile, "counter_cycles_high"):
                return 0
        raise AssertionError(f"read of {address:#x}")

    def put(self, address, value):
        region, offset = address >> REGION_SHIFT, address & (1 << REGION_SHIFT) - 1
        if region == REGIONS["mailbox"]:
            self.mailbox[next(name for name, at in mailbox.PORT.items() if at == offset)] = value
        elif region == REGIONS["sweep"] and sweep.PORT["word"] <= offset < sweep.PORT["fill"]:
            self.words[offset - sweep.PORT["word"] >> 2] = value
        elif region == REGIONS["sweep"]:
            self.sweep[next(name for name, at in sweep.PORT.items() if at == offset)] = value
            if offset == sweep.PORT["fill"]:
                self.words = [value] * 8
            if offset == sweep.PORT["command"]:
                self.go(SweepCommand(value))
        elif region == REGIONS["queues"]:
            assert offset == PORT["start"]
            self.run(value >> 8)
        elif offset == regmap.control_register("abort"):
            self.aborted.append(value)
        elif offset != regmap.control_register("snapshot"):
            for name in self.queue:
                if offset == regmap.queue_register(0, name):
                    self.queue[name] = value
                    if name == "command":
                        self.queue["tail"] = 0
                    return
            assert offset in [regmap.tile_register(tile, "slot_command") for tile in range(TILES)], hex(address)

    def read(self, address):
        return self.stuck(address, self.memory.get(address, [0] * 8))

    def go(self, command):
        address = self.sweep["address_low"] | self.sweep["address_high"] << 32
        step = self.sweep["step"] - (self.sweep["step"] >> 31 << 32)
        ports, tiles = (range(number if flag in command else 1) for flag, number in (
            (SweepCommand.PORTS, self.config.ports), (SweepCommand.TILES, TILES)))
        self.bad, self.free = None, self.cycle + self.latency + self.sweep["count"] * len(ports) * len(tiles)
        for number, port, tile in itertools.product(range(self.sweep["count"]), ports, tiles):
            at = address + (step * number if SweepCommand.WALK not in command else step << number - 1 if number else 0)
            at ^= port * self.config.memory.interleave_bytes ^ tile * self.config.memory.bytes
            assert at % 32 == 0 and 0 <= at < TILES * self.config.memory.bytes
            pattern = [w ^ (at >> 5 & 0xFFFFFFFF if SweepCommand.ADDRESSED in command else 0) for w in self.words]
            found = self.read(at)
            if SweepCommand.CAPTURE in command:
                self.words = list(found)
            if SweepCommand.WRITE in command:
                flip = 0xFFFFFFFF if SweepCommand.COMPLEMENT in command else 0
                self.memory[at] = [0 if SweepCommand.ZERO in command else word ^ flip for word in pattern]
            if SweepCommand.CHECK in command and found != pattern:
                self.bad, self.words = at, list(found)
                return

    def run(self, tile):
        """The job at the queue's ring, with numpy: one-hot rows times weights of 1 and -2, at the STOREs' addresses."""
        assert self.queue["policy"] >> 16 == 1 << tile and self.queue["window_limit_high"]
        base = self.queue["ring_low"] | self.queue["ring_high"] << 32
        self.ran.append(tile)
        if tile in self.hung:
            return
        self.ended[tile] = self.cycle + self.job_cycles
        raw = b"".join(np.array(self.memory[base + 32 * i], "<u4").tobytes() for i in range(14))
        assert DESCRIPTOR.decode(raw)["completion_address"] >= base
        rows, columns = self.config.tile.array.rows, self.config.tile.array.columns
        value = iter((-1, 2))
        for at in range(64, len(raw), 64):
            kind = record_of(raw[at + 1])
            fields = kind.decode(raw[at:at + 64])
            if kind is LOAD and fields["row_bytes"]:
                one_hot = np.array(self.memory[fields["address"] & ~31], "<u4").view(np.uint8)
                assert one_hot[:2 * rows].tolist() == [0] * rows + [255] + [0] * (rows - 1)
            if kind is STORE:
                assert raw[at + 1] == Opcode.STORE and fields["columns"] == 2 * columns
                result = np.zeros((rows + 1, 2 * columns), "<i4")
                result[1:] = next(value)
                if self.broken and self.broken[0] == tile:
                    result[rows - self.broken[1], self.broken[2]::columns] ^= 4
                for row in range(rows + 1):
                    self.memory[fields["address"] + row * fields["row_stride"]] = result[row].view("<u4").tolist()


def test_every_tile_is_tested_and_nothing_is_left(hardware):
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.PASSED and hardware.ran == list(range(TILES))
    assert hardware.mailbox["selftest_end"] <= build.SELFTEST_CYCLES
    assert not any(any(beat) for beat in hardware.memory.values())
    reached = {address // hardware.config.memory.bytes for address in hardware.memory}
    assert reached == set(range(TILES)) and max(hardware.memory) >= (TILES - 1) * hardware.config.memory.bytes
    assert hardware.queue["ring_size"] == hardware.queue["window_limit_high"] == 0


def test_a_skip_is_heeded_before_and_between(hardware):
    hardware.mailbox |= {"request": Request.SKIP, "pending": 1}
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.SKIPPED and not hardware.memory
    hardware.call("mailbox_turn")
    assert hardware.mailbox["pending"] == 0


def test_a_skip_ends_a_test_that_is_on_its_way(hardware):
    read = hardware.read

    def ask(address):
        if len(hardware.memory) > 20:
            hardware.mailbox |= {"request": Request.SKIP, "pending": 1}
        return read(address)

    hardware.read = ask
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.SKIPPED and hardware.memory and not hardware.ran


def test_memory_that_never_answers_is_told(hardware):
    hardware.latency = 1 << 30
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.FAILED | regmap.Test.MEMORY << 8 | 0xFF << 16
    assert hardware.mailbox["selftest_end"] <= build.SELFTEST_CYCLES


def test_slow_memory_that_goes_on_is_waited_for(hardware):
    """A march that the host asks for: longer than the patience, but with an answer now and then."""
    hardware.latency, patience = 50_000, 1000 + 4 * hardware.config.ideal.patience_cycles
    assert hardware.latency > 3 * patience
    hardware.answers = True
    hardware.mailbox |= {"request": Request.MARCH, "argument0": 0, "argument1": 2, "pending": 1}
    hardware.call("mailbox_turn")
    assert hardware.mailbox["selftest"] == SelfTest.PASSED
    hardware.answers = False
    hardware.mailbox |= {"request": Request.MARCH, "argument0": 0, "argument1": 2, "pending": 1}
    hardware.call("mailbox_turn")
    assert hardware.mailbox["selftest"] == SelfTest.FAILED | regmap.Test.MEMORY << 8 | 0xFF << 16


def test_the_tiles_jobs_run_side_by_side(hardware):
    hardware.job_cycles = 2000
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.PASSED and hardware.ran == list(range(TILES))
    assert max(hardware.ended.values()) - min(hardware.ended.values()) < 1000


@pytest.mark.parametrize("latency", [1500, 2500, 4000])
def test_time_runs_out(hardware, latency):
    hardware.latency, hardware.answers = latency, True
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.INCOMPLETE
    assert hardware.mailbox["selftest_end"] <= build.SELFTEST_CYCLES


@pytest.mark.parametrize("tile", range(TILES))
def test_wrong_memory_is_told_with_its_address(hardware, tile):
    size = hardware.config.memory.bytes
    bad = tile * size + size // 2
    hardware.stuck = lambda address, beat: [w | (address == bad) << 5 for w in beat[:3]] + beat[3:]
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.FAILED | regmap.Test.ADDRESS << 8 | tile << 16
    told = hardware.mailbox["selftest_address_low"] | hardware.mailbox["selftest_address_high"] << 32
    assert told in (bad, bad + 4, bad + 8)
    assert hardware.mailbox["selftest_expected"] ^ hardware.mailbox["selftest_found"] == 1 << 5
    hardware.stuck = lambda address, beat: beat
    hardware.mailbox |= {"request": Request.MARCH | tile << 8, "argument0": 3, "argument1": 50, "pending": 1}
    hardware.call("mailbox_turn")
    assert hardware.mailbox["selftest"] == SelfTest.PASSED and not hardware.mailbox["pending"]


def test_a_job_that_hangs_is_aborted_and_told(hardware):
    hardware.hung = (1,)
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.FAILED | regmap.Test.ARRAY << 8 | 1 << 16
    assert hardware.mailbox["selftest_element"] == 0xFFFFFFFF and hardware.aborted == [2]
    assert hardware.mailbox["selftest_end"] <= build.SELFTEST_CYCLES


@pytest.mark.parametrize("tile, row, column", [(0, 0, 0), (1, 3, 1), (2, 0, 3)])
def test_an_element_of_any_tile_is_located(hardware, tile, row, column):
    hardware.broken = tile, row, column
    hardware.call("selftest_power_on")
    assert hardware.mailbox["selftest"] == SelfTest.FAILED | regmap.Test.ARRAY << 8 | tile << 16
    assert hardware.mailbox["selftest_element"] == row | column << 16
    assert (hardware.mailbox["selftest_address_low"] | hardware.mailbox["selftest_address_high"] << 32
            ) // hardware.config.memory.bytes == tile
    assert hardware.mailbox["selftest_expected"] ^ hardware.mailbox["selftest_found"] == 4
    assert hardware.mailbox["selftest_end"] <= build.SELFTEST_CYCLES


def test_telemetry(hardware):
    hardware.call("selftest_power_on")
    hardware.ran += [2, 2, 2]
    hardware.mailbox |= {"request": Request.TELEMETRY | 2 << 8, "pending": 1}
    hardware.call("mailbox_turn")
    answers = [hardware.mailbox[f"answer{i}"] for i in range(6)]
    assert hardware.cycle - 200 < answers[0] <= hardware.cycle and answers[1:] == [7, 0, 0, 300, 0]
