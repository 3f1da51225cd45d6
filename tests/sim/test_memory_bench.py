"""The DRAM controller under Verilator: floors, the checker on long traces, bounds on waiting."""

import numpy as np
import pytest

from ringloom.hw.memory.hbm.patience import longest_access
from ringloom.hw.memory.hbm.timing import timing_sets
from ringloom.memory_bench import Trace, bounds, measure, memory_config, patterns
from ringloom.sim.checkers.dram import DramChecker
from ringloom.sim.memory_bench import MemoryBench
from ringloom.sim.progress import ProgressLine

COUNT = 40_000


def bench(*arguments, **memory) -> MemoryBench:
    with ProgressLine() as progress:
        return MemoryBench(memory_config(*arguments, **memory), progress)


def mixed(config, count: int, seed: int) -> Trace:
    """Bursts of neighbours, strides and single requests, reads and writes, some of them to a few hot addresses."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    beats = config.memory.bytes // 32
    addresses: list[np.ndarray] = []
    while sum(map(len, addresses)) < count:
        start, length = int(rng.integers(beats)), int(rng.integers(1, 40))
        stride = int(rng.choice([1, 1, 1, 0, config.timing.row_bytes // 32, beats // 64]))
        hot = rng.random() < 0.1
        run = (rng.integers(0, 8, length) if hot else start + stride * np.arange(length)) % beats
        addresses.append(run.astype(np.uint64))
    place = np.concatenate(addresses)[:count] * np.uint64(32)
    share = np.repeat(rng.random(count // 500 + 1), 500)[:count]
    cycles = np.cumsum(np.where(rng.random(count) < 0.02, rng.integers(0, 200, count), 0)).astype(np.uint64)
    return Trace(cycles, rng.random(count) < share, place)


def check(tested: MemoryBench, trace: Trace, *, stall: int = 0) -> int:
    """Run and check a trace; how many commands the DRAM saw."""
    result = tested.run(trace.writes, trace.addresses, trace.cycles, record=True, stall=stall)
    assert result.completed == len(trace.addresses) and result.errors == 0
    for channel in range(tested.config.ports):
        checker = DramChecker(tested.config.timing, refresh=tested.config.memory.refresh)
        checker.check(result.channel_commands(channel))
        assert not checker.finish(result.cycles), checker.violations[:3]
    return len(result.commands)


@pytest.mark.parametrize("name", timing_sets())
def test_a_hundred_thousand_random_commands_break_no_rule(name):
    tested, commands, seed = bench(name), 0, 0
    while commands < 100_000:
        commands += check(tested, mixed(tested.config, COUNT, seed), stall=(0, 60, 200)[seed % 3])
        seed += 1


@pytest.mark.parametrize("memory", [
    {"refresh": "all-bank"}, {"refresh": "off", "page_policy": "closed"}, {"page_policy": "adaptive", "bank_xor": True},
])
def test_other_policies(memory):
    tested = bench("hbm2", **memory)
    check(tested, mixed(tested.config, COUNT, 7), stall=40)


FLOORS = {
    "per-bank": {"sequential read": 0.95, "sequential write": 0.95, "alternating": 0.80, "copy": 0.74},
    "all-bank": {"sequential read": 0.895, "sequential write": 0.895},
}


@pytest.mark.parametrize("refresh", FLOORS)
def test_floors_on_hbm2(refresh):
    tested = bench("hbm2", refresh=refresh)
    bound = bounds(tested.config.timing, refresh)
    floors = FLOORS[refresh] | {"random read": 0.95 * bound["random"], "one bank": 0.97 * bound["one_bank"]}
    for name, trace in patterns(tested.config, 100_000):
        report, _ = measure(tested, trace, saturate=True)
        print(f"{refresh}, {name}: {report.bandwidth_fraction:.2%}, floor {floors.get(name, 0):.2%}")
        assert report.bandwidth_fraction >= floors.get(name, 0), name
        assert not report.violations
        assert abs(sum(report.loss.values()) - 1) < 1e-6


def test_four_channels_and_one_requester():
    tested = bench("hbm2", 4)
    for name, trace in patterns(tested.config, 100_000):
        if name.startswith("sequential"):
            report, _ = measure(tested, trace, saturate=True)
            assert report.bandwidth_fraction >= 0.94, name


def test_a_row_hit_alone_takes_no_more_than_eight_cycles_beyond_the_dram():
    tested = bench("hbm2")
    t = tested.config.timing
    times = np.array([0, 60, 120, 180], np.uint64)   # before the first refresh
    result = tested.run(np.zeros(4, bool), np.zeros(4, np.uint64), times)
    print("latencies", result.latencies)
    assert result.latencies[1:].max() - (t.cl + t.burst_clocks) <= 8


@pytest.mark.parametrize("victim_writes", [False, True])
def test_nobody_starves_behind_a_stream_of_row_hits(victim_writes):
    """One request for another row of the bank that everyone uses, among 20,000 row hits."""
    tested = bench("hbm2", address_map="row-bank-group-column")
    count = 20_000
    addresses = (np.arange(count, dtype=np.uint64) % np.uint64(32)) * np.uint64(32)
    addresses[1000] = 16 * 1024   # the next row of bank 0
    writes = np.zeros(count, bool)
    writes[1000] = victim_writes
    result = tested.run(writes, addresses)
    print("victim waited", result.latencies[1000])
    assert result.errors == 0 and result.latencies[1000] < 600


def test_reads_and_writes_do_not_starve_each_other():
    tested = bench("hbm2")
    count = 20_000
    for few in (False, True):   # one of the few in a hundred of the others
        writes = np.full(count, not few)
        writes[::100] = few
        addresses = np.arange(count, dtype=np.uint64) * np.uint64(32)
        result = tested.run(writes, addresses)
        assert result.errors == 0 and result.latencies.max() < 1200, few


@pytest.mark.parametrize(("name", "refresh"), [("hbm2", "per-bank"), ("hbm2", "all-bank"), ("tiny", "per-bank")])
def test_no_access_takes_longer_than_the_watchdog_is_told(name, refresh):
    """Full queues, a new row of one bank each time, the bus turning, refreshes in between."""
    tested = bench(name, refresh=refresh)
    count, t = 8_000, tested.config.timing
    row = t.banks * t.row_bytes
    chance = np.random.default_rng(3)
    for writes in (np.arange(count) % 2 == 1, chance.random(count) < 0.9, chance.random(count) < 0.1):
        result = tested.run(writes, np.arange(count, dtype=np.uint64) % np.uint64(t.rows) * np.uint64(row))
        print("longest", result.latencies.max(), "of", longest_access(tested.config.memory, t))
        assert result.errors == 0 and result.latencies.max() < longest_access(tested.config.memory, t)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", timing_sets())
def test_a_million_random_commands_break_no_rule(name):
    tested, commands = bench(name), 0
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    while commands < 1_000_000:
        commands += check(tested, mixed(tested.config, COUNT, seed), stall=int(seed % 230))
        seed += 1
