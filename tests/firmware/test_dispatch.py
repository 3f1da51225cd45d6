"""The firmware's dispatcher, compiled for this machine, against registers and tiles written here."""

import ctypes
import os
import random
import re
import subprocess
from collections import deque

import pytest

from ringloom.firmware import build
from ringloom.hw import regmap
from ringloom.hw.control.core.bus import REGION_SHIFT
from ringloom.hw.control.core.management import REGIONS
from ringloom.hw.control.core.queues import PORT
from ringloom.hw.isa import Code, Status
from ringloom.sim.verilated.cache import cache_folder
from ringloom.sim.verilated.toolchain import find_compiler
from tests.support.bare import bare

TILES, QUEUES = 4, 6
CONFIG = bare("tiny", {"control.kind": "firmware", "control.queues": QUEUES})
GET = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)
PUT = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32)
GLUE = """
#include <stdint.h>
static uint32_t (*reader)(uint32_t);
static void (*writer)(uint32_t, uint32_t);
uint32_t get(uint32_t address) { return reader(address); }
void put(uint32_t address, uint32_t value) { writer(address, value); }
void connect_bus(uint32_t (*r)(uint32_t), void (*w)(uint32_t, uint32_t)) { reader = r; writer = w; }
"""
REGISTERS, QUEUE_PORT = REGIONS["registers"] << REGION_SHIFT, REGIONS["queues"] << REGION_SHIFT


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the sources lie with a header for more tiles than a device has yet."""
    path = tmp_path_factory.mktemp("dispatch")
    text = build.header(CONFIG)
    (path / "ringloom.h").write_text(re.sub(r"(#define RL_TILES) \d+", rf"\1 {TILES}", text))
    source = next(path for path in build.sources() if path.name == "dispatch.c")
    (path / "unit.c").write_text(f'#include "{source}"\n{GLUE}')  # one unit: a C++ compiler takes one file as C
    return path


@pytest.fixture
def library(folder, request):
    """A fresh library for each test: the dispatcher's variables start at zero."""
    compiler = find_compiler(cache_folder() / "zig")
    target = folder / f"dispatch{abs(hash(request.node.name))}.so"
    done = subprocess.run([*compiler.command, "-x", "c", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                           "-DRL_HOSTED", f"-I{folder}", "-o", str(target), str(folder / "unit.c")],
                          capture_output=True, text=True, env={**os.environ, **compiler.environment})
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(target))


class Tile:
    """Two job slots as hw/control/core/slots.py describes them."""

    def __init__(self):
        self.running = self.second = None
        self.ended, self.failed, self.held, self.status = 0, False, False, 0

    def start(self, job):
        if self.running is None and not self.held:
            self.running = job
        else:
            assert self.second is None, "a doorbell of a full tile"
            self.second = job

    def end(self, status=Status.DONE, code=Code.NONE):
        job, self.running = self.running, None
        self.status = status << 8 | code << 16
        self.ended += 1
        assert self.ended <= 3
        if status != Status.DONE:
            self.failed = self.held = True
        self._next()
        return job

    def _next(self):
        if self.running is None and self.second is not None and not self.held:
            self.running, self.second = self.second, None

    def slots(self):
        return self.ended | self.failed << 8 | (self.second is not None) << 9 | self.held << 10

    def command(self, value):
        self.ended -= value & 3
        assert self.ended >= 0
        cancelled = None
        if value >> 9 & 1:
            cancelled, self.second = self.second, None
        if value >> 8 & 1:
            self.held = self.failed = False
        if value >> 10 & 1:
            self.held = True
        self._next()
        return cancelled


class Hardware:
    """Queues, tiles and registers; ``log`` keeps what started, ended, was cancelled and reported."""

    def __init__(self, library, seed=0):
        self.chance = random.Random(seed)
        self.tiles = [Tile() for _ in range(TILES)]
        self.queues = [deque() for _ in range(QUEUES)]
        self.policy = [1 << 16 | 0 for _ in range(QUEUES)]
        self.results = [dict.fromkeys(("status", "fault_command", "fault_address_low", "fault_address_high", "jobs",
                                       "faults"), 0) for _ in range(QUEUES)]
        self.aborts, self.notified, self.log = 0, set(), []
        self.random_ends = 0.0
        self._get, self._put = GET(self.get), PUT(self.put)
        self.errors = []
        library.connect_bus(self._get, self._put)
        self.turn_function = library.dispatch_turn

    def turn(self, count=1):
        for _ in range(count):
            self.turn_function()
            assert not self.errors, self.errors

    def ready(self):
        full = sum((tile.second is not None) << t for t, tile in enumerate(self.tiles))
        return sum(1 << q for q, jobs in enumerate(self.queues)
                   if jobs and not self.results[q]["status"] & 1 and self.policy[q] >> 16 & ~full & (1 << TILES) - 1)

    def get(self, address):
        try:
            if self.random_ends and self.chance.random() < self.random_ends:
                busy = [tile for tile in self.tiles if tile.running is not None and tile.ended < 2]
                if busy:
                    self.log.append(("ended", self.chance.choice(busy).end()))
            return self._read(address) & 0xFFFFFFFF
        except BaseException as error:
            self.errors.append(error)
            return 0

    def _read(self, address):
        offset = address - QUEUE_PORT
        if offset == PORT["ready"]:
            return self.ready()
        if offset == PORT["tiles"]:
            return sum((tile.ended > 0) << t | (tile.second is not None) << 16 + t for t, tile in enumerate(self.tiles))
        if offset == PORT["aborts"]:
            return self.aborts
        register = address - REGISTERS
        if register == regmap.control_register("busy"):
            return sum((tile.running is not None) << t for t, tile in enumerate(self.tiles))
        for q in range(QUEUES):
            if register == regmap.queue_register(q, "policy"):
                return self.policy[q]
        for t, tile in enumerate(self.tiles):
            values = {"slots": tile.slots(), "status": tile.status, "fault_command": 40 + t,
                      "fault_address_low": 50 + t, "fault_address_high": 60 + t}
            for name, value in values.items():
                if register == regmap.tile_register(t, name):
                    return value
        raise AssertionError(f"read of {address:#x}")

    def put(self, address, value):
        try:
            self._write(address, value)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, address, value):
        offset, register = address - QUEUE_PORT, address - REGISTERS
        if offset == PORT["start"]:
            queue, tile = value & 0xFF, value >> 8
            job = self.queues[queue].popleft()
            assert self.policy[queue] >> 16 + tile & 1, "a tile that the queue may not use"
            self.tiles[tile].start(job)
            self.log.append(("start", job, tile))
            return
        if offset == PORT["notify"]:
            self.notified |= {q for q in range(QUEUES) if value >> q & 1}
            return
        if offset == PORT["aborts"]:
            self.aborts &= ~value
            return
        for q in range(QUEUES):
            for name in self.results[q]:
                if offset == PORT[name] + 32 * q:
                    self.results[q][name] = value
                    return
        if register == regmap.control_register("abort"):
            for t, tile in enumerate(self.tiles):
                if value >> t & 1 and tile.running is not None:
                    self.log.append(("aborted", tile.end(Status.ABORTED, Code.ABORT)))
            return
        for t, tile in enumerate(self.tiles):
            if register == regmap.tile_register(t, "slot_command"):
                cancelled = tile.command(value)
                if cancelled is not None:
                    self.log.append(("cancelled", cancelled))
                return
        raise AssertionError(f"write of {address:#x}")


def starts(hardware):
    return [item[1:] for item in hardware.log if item[0] == "start"]


def test_jobs_fill_two_slots_and_follow_one_another(library):
    hardware = Hardware(library)
    hardware.queues[2].extend(f"j{i}" for i in range(5))
    hardware.turn(5)
    assert starts(hardware) == [("j0", 0), ("j1", 0)]
    for i in range(5):
        assert hardware.tiles[0].end() == f"j{i}"
        hardware.turn(2)
        assert hardware.results[2]["jobs"] == i + 1 and hardware.notified == {2}
    assert [job for job, _ in starts(hardware)] == [f"j{i}" for i in range(5)]
    assert hardware.tiles[0].ended == 0 and hardware.results[2]["status"] == 0


def test_the_greater_priority_goes_first_and_placement_holds(library):
    hardware = Hardware(library)
    hardware.policy = [1 << 16 | 1, 1 << 16 | 9, 0b1110 << 16 | 5, 1 << 16 | 9, 0, 0]
    for q in range(4):
        hardware.queues[q].extend((q, i) for i in range(3))
    hardware.turn(12)
    order = starts(hardware)
    assert order[:2] == [((1, 0), 0), ((1, 1), 0)]  # of two alike the lower number
    assert [item for item in order if item[0][0] == 2] == [((2, 0), 1), ((2, 1), 2), ((2, 2), 3)]  # idle tiles first
    assert len(order) == 5
    for _ in range(20):
        for tile in hardware.tiles:
            if tile.running is not None:
                tile.end()
        hardware.turn(3)
    assert [job[0] for job, tile in starts(hardware) if tile == 0] == [1, 1, 1, 3, 3, 3, 0, 0, 0]


def test_a_fault_stops_its_own_queue_alone(library):
    hardware = Hardware(library)
    hardware.queues[0].extend(["bad", "behind", "never"])
    hardware.queues[1].extend(["other"])
    hardware.turn(3)
    hardware.notified.clear()
    hardware.tiles[0].end(Status.FAULT, Code.MEMORY_WINDOW)
    hardware.turn(3)
    result = hardware.results[0]
    assert result["status"] == 3 | Status.FAULT << 8 | Code.MEMORY_WINDOW << 16  # stopped and quiet, tile 0
    assert (result["fault_command"], result["fault_address_low"], result["fault_address_high"]) == (40, 50, 60)
    assert (result["jobs"], result["faults"]) == (1, 1)
    assert ("cancelled", "behind") in hardware.log and list(hardware.queues[0]) == ["never"]
    assert hardware.notified == {0}
    assert starts(hardware)[-1] == ("other", 0) and hardware.tiles[0].running == "other"
    hardware.tiles[0].end()
    hardware.turn()
    assert hardware.results[1] == {**dict.fromkeys(result, 0), "jobs": 1}
    result["status"] = 0  # the host opens it again
    hardware.turn(2)
    hardware.tiles[0].end()
    hardware.turn()
    assert result["jobs"] == 2 and result["status"] == 0


def test_a_stopped_queue_is_quiet_when_its_other_tiles_are(library):
    hardware = Hardware(library)
    hardware.policy[0] = 0b11 << 16
    hardware.queues[0].extend("abcd")
    hardware.turn(4)
    hardware.tiles[0].end(Status.FAULT, Code.BAD_FIELD)
    hardware.turn()
    assert hardware.results[0]["status"] & 3 == 1
    hardware.tiles[1].end()
    hardware.turn()
    assert hardware.results[0]["status"] & 3 == 1  # its second job there still runs
    hardware.tiles[1].end()
    hardware.turn()
    assert hardware.results[0]["status"] & 3 == 3


@pytest.mark.parametrize("where", ["running", "second", "nowhere"])
def test_abort_hits_the_jobs_of_its_queue_alone(library, where):
    hardware = Hardware(library)
    if where == "running":
        hardware.queues[0].extend(["x", "y"])
    elif where == "second":
        hardware.queues[1].append("other")
        hardware.turn(2)
        hardware.queues[0].append("x")
    hardware.turn(2)
    hardware.notified.clear()
    hardware.aborts = 1
    hardware.turn(2)
    assert hardware.aborts == 0 and 0 in hardware.notified
    assert hardware.results[0]["status"] == 3 | Status.ABORTED << 8 | Code.ABORT << 16
    gone = {"running": {("aborted", "x"), ("cancelled", "y")}, "second": {("cancelled", "x")}, "nowhere": set()}[where]
    assert {item for item in hardware.log if item[0] != "start"} == gone
    assert not hardware.tiles[0].held
    assert hardware.tiles[0].running == ("other" if where == "second" else None)


@pytest.mark.parametrize("seed", range(12))
def test_random_ends_faults_and_aborts_lose_nothing(library, seed):
    """Jobs end, fail and are aborted at any read of the firmware's: each started job ends or is cancelled once, each
    queue's jobs start in order, and everything moves on."""
    print("seed", seed)
    hardware = Hardware(library, seed)
    chance = hardware.chance
    hardware.policy = [chance.randrange(1, 1 << TILES) << 16 | chance.randrange(4) for _ in range(QUEUES)]
    hardware.random_ends = 0.02
    number = [0] * QUEUES
    for _ in range(3000):
        q = chance.randrange(QUEUES)
        if len(hardware.queues[q]) < 2:
            hardware.queues[q].append((q, number[q]))
            number[q] += 1
        busy = [tile for tile in hardware.tiles if tile.running is not None and tile.ended < 2]
        if busy and chance.random() < .1:
            hardware.log.append(("ended", chance.choice(busy).end(Status.FAULT, Code.BAD_FIELD)))
        if chance.random() < .03:
            hardware.aborts |= 1 << q
        hardware.turn()
        for queue, result in enumerate(hardware.results):
            if result["status"] & 3 == 3:  # the host opens the queue again
                held = [job for tile in hardware.tiles for job in (tile.running, tile.second) if job]
                assert not [job for job in held if job[0] == queue], "quiet, but a job of the queue is in a tile"
                result["status"] = 0
    hardware.random_ends = 0.0
    for _ in range(100):
        for tile in hardware.tiles:
            if tile.running is not None and tile.ended < 2:
                hardware.log.append(("ended", tile.end()))
        hardware.turn(3)
        for result in hardware.results:
            if result["status"] & 3 == 3:
                result["status"] = 0
    started = [job for job, _ in starts(hardware)]
    gone = [item[1] for item in hardware.log if item[0] != "start"]
    assert sorted(started) == sorted(gone) and len(set(started)) == len(started) > 300
    for q in range(QUEUES):
        assert [job for job in started if job[0] == q] == [(q, i) for i in range(number[q])]
    assert not any(tile.held or tile.ended for tile in hardware.tiles)
