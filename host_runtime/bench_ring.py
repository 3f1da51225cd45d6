"""The floors of the ring's network alone: latency, saturation, and that every flit comes out once and in order."""

from collections.abc import Callable, Iterator

from ringloom.hw.config import load
from ringloom.hw.ring.flit import Network
from ringloom.sim.progress import ProgressLine
from ringloom.sim.ring_bench import Pattern, RingBench, RingResult, Traffic, longest_wait

from .bench import Figure

__all__ = ["run"]

_STOPS = 8
_WARM, _CYCLES = 5_000, 50_000


def _bench(stages: int) -> RingBench:
    with ProgressLine() as progress:
        return RingBench(load("tiny", {"tiles": _STOPS - 1, "ring.link_stages": stages}), progress)


def _run(tested: RingBench, traffic: Traffic) -> RingResult:
    result = tested.run(traffic)
    assert not result.errors and not result.stuck, f"flits were lost, doubled, reordered or stuck: {result}"
    return result


def run(*, tell: Callable[[str], None] = lambda text: None) -> Iterator[Figure]:
    """Measure a ring of 8 stops, always ``verilated``; a flit that goes astray raises ``AssertionError``."""
    for stages in (0, 1):
        tell(f"ring of {_STOPS} stops, link_stages {stages}")
        tested = _bench(stages)
        light = _run(tested, Traffic(packets=20_000, load=0.002))
        yield Figure(f"ring, a hop, link_stages {stages}", light.latency / light.hops, "cycles",
                     None if stages else 2.01, True, "nearly empty")
        yield Figure(f"ring, inject to eject of one flit, link_stages {stages}", light.latency / light.ejected,
                     "cycles", 9.0, True, f"{_STOPS} stops, uniform destinations, nearly empty")
    one = (Network.RESPONSE,)
    for networks, name in ((one, "one network"), (tuple(Network), "all networks")):
        for pattern, share in ((Pattern.ALL, 1.0), (Pattern.OTHERS, 1 - 1 / _STOPS)):
            result = _run(tested, Traffic(limit=_WARM + _CYCLES, warm=_WARM, pattern=pattern, shortest_packet=8,
                                          longest_packet=8, networks=networks))
            own = "own stop included" if pattern is Pattern.ALL else "own stop excluded"
            yield Figure(f"ring, uniform traffic at saturation, {name}, {own}",
                         100 * result.delivered / _CYCLES / _STOPS, "% of 1 flit a stop and cycle", 80.0 * share,
                         detail=f"8-flit packets; the links' bound is {share:.1%}")
    tell("ring: storms")
    storm = Traffic(packets=100_000, longest_packet=8, stall=True, gaps=0.2, any_way=True)
    result = _run(tested, storm)
    assert result.injected == result.ejected
    yield Figure("ring, random packets with back-pressure", result.drawn, "packets", 100_000,
                 detail=f"{result.ejected:,} flits, each once and in order")
    crowd = Traffic(packets=50_000, pattern=Pattern.HOT, any_way=True)
    yield Figure("ring, longest wait to inject, all to one", _run(tested, crowd).wait, "cycles",
                 longest_wait(tested.config, len(Network)), True, "sinks always ready")
    idle = _run(tested, Traffic(limit=200_000, load=0.0))
    yield Figure("ring alone, simulated cycles a second", idle.cycles / idle.seconds, "cycles/s",
                 detail=f"{_STOPS} stops, idle; with its sources and sinks")
