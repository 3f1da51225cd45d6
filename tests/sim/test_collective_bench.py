"""The floors of all-reduce on ideal memory, as ``ringloom bench`` measures them; eight tiles and DRAM it does alone."""

import pytest

from ringloom.bench_collectives import all_reduce_bound, all_reduce_cycles
from ringloom.hw.config import load
from ringloom.sim.collective_bench import CollectiveBench

START_AND_END = 150  # cycles of a job around its commands


@pytest.fixture(scope="module")
def bench():
    config = load("inference", {"tiles": 4, "memory.kind": "ideal", "ideal.latency": 32, "ideal.bytes_per_cycle": 128,
                                "memory.bytes": 1 << 20, "ring.data_bits": 256, "ring.link_stages": 1})
    return CollectiveBench(config, lambda message: None)


@pytest.mark.parametrize("kilobytes, floor, number, offset", [(64, 0.8, 1, 0), (64, 0.8, 2, 1 << 19), (256, 0.9, 3, 0),
                                                              (256, 0.9, 4, 1 << 19)])
def test_all_reduce_comes_near_its_bound(bench, kilobytes, floor, number, offset):
    size = kilobytes << 10
    cycles = all_reduce_cycles(bench, size, number, offset=offset)
    bound = all_reduce_bound(bench.config, size)
    assert bound == 0.75 * size / 32
    assert bound / (cycles + START_AND_END) >= floor, f"{cycles} cycles, bound {bound}"
