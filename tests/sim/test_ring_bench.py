"""Random traffic on verilated rings: floors, every flit once and in order, bounds on waiting."""

import itertools
import os
import time

import numpy as np
import pytest

from ringloom.hw.config import load
from ringloom.hw.ring.flit import Network
from ringloom.sim.progress import ProgressLine
from ringloom.sim.ring_bench import Pattern, RingBench, Traffic, longest_wait

ONE = (Network.RESPONSE,)


def bench(stops: int, **keys: int) -> RingBench:
    with ProgressLine() as progress:
        return RingBench(load("tiny", {"tiles": stops - 1, **{f"ring.{key}": v for key, v in keys.items()}}), progress)


@pytest.fixture(scope="module")
def eight():
    return bench(8)


def check(tested: RingBench, traffic: Traffic):
    """Run and check; what came of it."""
    result = tested.run(traffic)
    print(traffic, result)
    assert not result.errors and not result.stuck
    assert result.wait <= longest_wait(tested.config, 4, traffic.patience if traffic.stall else 0)
    if traffic.limit > result.cycles:
        assert result.drawn == traffic.packets and result.injected == result.ejected
        assert result.count_injected == result.injected and result.count_ejected == result.ejected
        assert result.count_forwarded == result.hops - result.injected
    return result


def test_latency_of_one_flit(eight):
    """Inject handshake to eject handshake, uniform destinations, a nearly empty ring of link_stages 1."""
    result = check(eight, Traffic(packets=10_000, load=0.01))
    assert result.latency / result.ejected <= 9


@pytest.mark.parametrize("networks", [ONE, tuple(Network)], ids=["one network", "all networks"])
@pytest.mark.parametrize("pattern, bound", [(Pattern.ALL, 1.0), (Pattern.OTHERS, 7 / 8)])
def test_saturation(eight, networks, pattern, bound):
    """Flits a stop and cycle at an offered load of one; ``bound`` is what the links let through."""
    result = check(eight, Traffic(limit=30_000, warm=5_000, pattern=pattern, shortest_packet=8, longest_packet=8,
                                  networks=networks))
    throughput = result.delivered / 25_000 / 8
    assert throughput >= 0.8 * bound, throughput
    assert throughput <= 1.02 * bound, throughput  # no more than there is, but for the noise of the draw


@pytest.mark.parametrize("stops, stages", [(8, 1), (3, 8)])
def test_a_stream_to_the_neighbour_is_full(stops, stages):
    """Buffers cover the round trip: both links of every stop carry a flit in every cycle."""
    result = check(bench(stops, link_stages=stages), Traffic(limit=12_000, warm=2_000, load=2.1, networks=ONE,
                                                             pattern=Pattern.NEIGHBOUR))
    assert result.delivered / 10_000 / stops >= 1.99


STORMS = {
    "uniform": Traffic(packets=40_000, longest_packet=8, stall=True, gaps=0.2, any_way=True),
    "hot spot": Traffic(packets=20_000, longest_packet=4, stall=True, pattern=Pattern.HOT, hot=3, hot_share=0.5),
    "all to one": Traffic(packets=20_000, pattern=Pattern.HOT, hot=5, any_way=True),
    "all to one, one network": Traffic(packets=20_000, pattern=Pattern.HOT, networks=ONE, any_way=True),
    "requests and answers": Traffic(packets=20_000, networks=(Network.REQUEST,), stall=True, echo=True, any_way=True),
}


@pytest.mark.parametrize("storm", STORMS)
def test_storms_on_eight_stops(eight, storm):
    check(eight, STORMS[storm])


@pytest.mark.parametrize("storm", STORMS)
def test_storms_on_the_smallest_buffers(storm):
    """Four stops with two places each: the free place matters all the time."""
    traffic = STORMS[storm]
    check(bench(4, link_stages=0, buffer_flits=2), Traffic(**vars(traffic) | {"hot": traffic.hot % 4}))


def test_a_stop_in_the_stream_is_not_starved(eight):
    """Everything to stop 0 clockwise passes stop 7, which sends there too: none waits for more than its bound."""
    result = check(eight, Traffic(packets=30_000, pattern=Pattern.HOT, hot=0, networks=ONE, load=2))
    assert result.wait <= longest_wait(eight.config, 1) < 6_000


def test_the_hot_stop_must_exist(eight):
    with pytest.raises(ValueError, match=r"hot = 8: must be one of the 8 stops"):
        eight.run(Traffic(hot=8))


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_fuzz_a_million_packets(eight):
    for traffic in STORMS.values():
        check(eight, Traffic(**vars(traffic) | {"packets": 10 * traffic.packets, "seed": time.time_ns() % (1 << 32)}))


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_fuzz_rings():
    """Rings of all kinds, each in every storm, for a fifth of FUZZ_MINUTES."""
    end = time.monotonic() + 12 * float(os.environ.get("FUZZ_MINUTES", "30"))
    for seed in itertools.count(time.time_ns() % (1 << 32)):
        if time.monotonic() > end:
            return
        print("seed", seed)
        rng = np.random.default_rng(seed)
        stops = int(rng.integers(3, 18))
        tested = bench(stops, link_stages=int(rng.integers(0, 9)), buffer_flits=int(rng.choice([0, 0, 2, 3, 7])))
        for traffic in STORMS.values():
            check(tested, Traffic(**vars(traffic) | {"seed": seed, "hot": int(rng.integers(stops))}))
