"""Collectives of many tiles through the RTL, verilated: every byte of every tile's memory against numpy."""

import random
from functools import cache

import numpy as np
import pytest

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import Code, Collective
from ringloom.sim.collective_bench import CollectiveBench, Command
from tests.support.bare import bare
from tests.support.collective import SIZES, Program

ALL_REDUCE, SCATTER, GATHER, BROADCAST, BARRIER = Collective
SHAPES = {
    "four tiles, two ports, late and reordered": {
        "tiles": 4, "ideal.bytes_per_cycle": 64, "ideal.jitter": 40, "ideal.reorder": True, "ideal.write_delay": 60,
        "memory.interleave_bytes": 128},
    "three tiles, wide flits, one port": {"tiles": 3, "ring.data_bits": 512, "ring.link_stages": 0},
    "two tiles on DRAM, two channels": {"tiles": 2, "memory.kind": "hbm", "memory.pseudo_channels": 2},
}
MEMORY = 1 << 18


@cache
def built(shape: str) -> CollectiveBench:
    config = bare("tiny", {"memory.bytes": MEMORY, **SHAPES[shape]})
    return CollectiveBench(config, lambda message: None)


_numbers: dict[str, int] = {}  # of the next collective on each bench: they must grow


def program(shape: str) -> Program:
    return Program.empty(built(shape).config, _numbers.get(shape, 1))


def check(shape: str, program: Program, **options):
    bench = built(shape)
    _numbers[shape] = program.number
    for memory, before in zip(bench.memory, program.before, strict=True):
        memory[:] = before
    outcome = bench.run(program.tiles, **options)
    assert outcome.finished, outcome
    assert all(result.status == "done" for tile in outcome.tiles for result in tile), outcome
    for tile, (memory, after) in enumerate(zip(bench.memory, program.after, strict=True)):
        wrong = np.flatnonzero(memory != after)
        assert not len(wrong), f"tile {tile}: {len(wrong)} bytes, from {wrong[0]:#x}; {program.tiles}"
    return outcome


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("saturate", [False, True])
def test_every_size(shape, saturate):
    rng = np.random.default_rng(1)
    for in_place in (False, True):
        for count in (*SIZES, *((1, 2, 33, 65, 513) if saturate else ())):
            sums = program(shape)
            sums.add(ALL_REDUCE, rng, bytes=count, saturate=saturate, in_place=in_place, extreme=count % 3 == 0)
            check(shape, sums)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_operation_in_every_group(shape):
    rng = np.random.default_rng(2)
    tiles = SHAPES[shape]["tiles"]
    for first in range(tiles):
        for size in range(1, tiles - first + 1):
            for count in (4, 132, 2052):
                each = program(shape)
                for operation in Collective:
                    for root in range(size) if operation == BROADCAST else (0,):
                        each.add(operation, rng, first=first, size=size, bytes=count, root=root,
                                 saturate=operation == SCATTER, pitch=2176)
                check(shape, each)


def random_programs(shape: str, seed: int, count: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    for trial in range(count):
        some = program(shape)
        if trial % 3 == 0:
            some.number = rng.randrange(1 << 16)  # far away, or behind: nothing of the last run is on the ring
        for _ in range(rng.randint(1, 6)):
            some.random(rng, numbers)
        hold = rng.choice((0, 0.02, 0.3, 0.6))
        try:
            check(shape, some, hold=hold, longest=rng.choice((1, 8, 60)), seed=seed + trial)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, trial {trial}, hold {hold}: {error}") from None


@pytest.mark.parametrize("shape", SHAPES)
def test_random_programs(shape):
    random_programs(shape, 11, 60)


@pytest.mark.fuzz
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(20))
def test_more_random_programs(shape, seed):
    random_programs(shape, 1000 + 1000 * seed, 100)


def test_two_groups_at_once_do_not_wait_for_each_other():
    shape = "four tiles, two ports, late and reordered"
    rng = np.random.default_rng(5)
    groups = program(shape)
    groups.add(ALL_REDUCE, rng, first=0, size=2, bytes=8192, earliest=[0, 5000])
    groups.add(ALL_REDUCE, rng, first=2, size=2, bytes=8192)
    outcome = check(shape, groups)
    late, early = (max(outcome.tiles[t][0].ended for t in pair) for pair in ((0, 1), (2, 3)))
    assert early < late - 3000


def test_barriers_in_consecutive_cycles_do_not_mix():
    shape = "four tiles, two ports, late and reordered"
    rng = np.random.default_rng(6)
    for trial in range(20):
        barriers = program(shape)
        for _ in range(8):
            barriers.add(BARRIER, rng, size=4, earliest=[0, 0, 0, 300] if trial else [0, 100, 700, 3])
        outcome = check(shape, barriers, hold=0.3 if trial > 1 else 0, seed=trial + 1)
        for index in range(8):  # none ends before each has begun
            assert min(t[index].ended for t in outcome.tiles) > max(t[index].accepted for t in outcome.tiles)


def test_all_tiles_start_thousands_of_cycles_apart():
    shape = "three tiles, wide flits, one port"
    rng = np.random.default_rng(7)
    late = program(shape)
    for number in range(4):
        late.add(ALL_REDUCE, rng, bytes=5000, earliest=[9000 * number, 4000, 17000])
    check(shape, late)


def test_an_aborted_collective_leaves_nothing_for_the_next_job():
    shape = "four tiles, two ports, late and reordered"
    for seed in range(30):
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        jobs = program(shape)
        jobs.add(ALL_REDUCE, numbers, bytes=6000, earliest=[rng.randint(0, 400) for _ in range(4)])
        lost, jobs.tiles = jobs.tiles, [[] for _ in range(4)]
        before, after = jobs.before, jobs.after
        jobs.add(ALL_REDUCE, numbers, bytes=6000, new_job=True, abort=True,
                 earliest=[rng.randint(100, 900) for _ in range(4)])
        jobs.add(rng.choice(list(Collective)), numbers, size=3, bytes=100)
        bench = built(shape)
        _numbers[shape] = jobs.number
        for memory, image in zip(bench.memory, before, strict=True):
            memory[:] = image
        outcome = bench.run([[*first, *rest] for first, rest in zip(lost, jobs.tiles, strict=True)], seed=seed + 1,
                            hold=rng.choice((0, 0.2)))
        assert outcome.finished, outcome
        assert all(result.status == "done" for tile in outcome.tiles for result in tile[1:]), outcome
        for first, memory, image in zip(lost, bench.memory, after, strict=True):
            at, size = first[0].fields["destination"] % MEMORY, first[0].fields["bytes"]
            memory[at:at + size] = image[at:at + size]  # of the aborted one, any part
            assert (memory == image).all(), f"seed {seed}"


def test_a_fault_in_one_tile_leaves_the_next_job_whole():
    shape = "three tiles, wide flits, one port"
    rng = np.random.default_rng(9)
    jobs = program(shape)
    jobs.add(BARRIER, rng)
    jobs.add(ALL_REDUCE, rng, bytes=3000)
    bad = jobs.tiles[1][1]
    lost = [tile[:] for tile in jobs.tiles]
    lost[1][1] = Command(bad.fields | {"destination": 0})
    jobs.tiles = [[] for _ in range(3)]
    jobs.add(ALL_REDUCE, rng, bytes=3000, new_job=True, abort=True, earliest=5000)
    bench = built(shape)
    _numbers[shape] = jobs.number
    for memory, image in zip(bench.memory, jobs.before, strict=True):
        memory[:] = image
    outcome = bench.run([[*first, *rest] for first, rest in zip(lost, jobs.tiles, strict=True)])
    assert outcome.finished
    assert [t[1].status for t in outcome.tiles] == ["aborted", "fault", "aborted"]
    assert (outcome.tiles[1][1].code, outcome.tiles[1][1].address) == (Code.MEMORY_WINDOW, 0)
    for tile in range(3):
        assert outcome.tiles[tile][2].status == "done"
        at = jobs.tiles[tile][0].fields["destination"] % MEMORY
        assert (bench.memory[tile][at:at + 3000] == jobs.after[tile][at:at + 3000]).all()


def test_the_order_of_saturating_sums_is_the_documented_one():
    """127, 127 and -128 give -1 one way and -128 + 127 + 127 = 126 the other: each piece has an order of its own."""
    shape = "three tiles, wide flits, one port"
    config: DeviceConfig = built(shape).config
    sums = program(shape)
    sums.add(ALL_REDUCE, np.random.default_rng(0), bytes=3 * 1024, saturate=True, shifts=False)
    for tile, value in enumerate((127, 127, 128)):
        at = sums.tiles[tile][0].fields["source"] % config.memory.bytes
        sums.before[tile][at:at + 3072] = sums.after[tile][at:at + 3072] = value
    # Piece 0: tiles 1, 2, 0. Piece 1: tiles 2, 0, 1. Piece 2: tiles 0, 1, 2.
    want = np.repeat(np.array([126, 126, -1], np.int8), 1024).view(np.uint8)
    for tile in range(3):
        at = sums.tiles[tile][0].fields["destination"] % config.memory.bytes
        sums.after[tile][at:at + 3072] = want
    check(shape, sums)
