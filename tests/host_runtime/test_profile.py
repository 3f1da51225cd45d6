"""Figures of a profile with several tiles, from counters made up here."""

import pytest

from ringloom.hw.counters import COUNTERS
from ringloom.profile import Profile
from tests.support.bare import bare
from tests.support.tiles import tiles


def profile(spans, **counts):
    """A profile of two tiles; counts: ``tile0.cycles`` and so on, with a double underscore for the dots."""
    counters = {f"tile{t}.{c.name}": 0 for t in range(2) for c in COUNTERS}
    made = Profile(bare("tiny", {"tiles": 2}), "made up")
    made.start(counters)
    made.fill(counters | counts, macs=3200, jobs=2, spans=spans)
    return made


def test_shares_are_those_of_the_tiles_that_ran():
    p = profile([(100, 200)], **{"tile1.cycles": 100, "tile1.array.active": 70, "tile1.idle.memory": 30})
    assert p.tiles == [1] and p.cycles == 100
    assert p.utilization == 3200 / (100 * 16) and p.causes["array.active"] == 0.7
    assert p.bottleneck == "compute-bound"


def test_communication_bound():
    p = profile([(0, 100), (50, 150)], **{
        "tile0.cycles": 150, "tile0.array.active": 50, "tile0.idle.ring": 100, "tile0.ring.busy": 120,
        "tile1.cycles": 50, "tile1.array.active": 20, "tile1.idle.ring": 30, "tile1.ring.busy": 40,
        "tile0.ring.bytes": 640, "tile0.ring.flits_clockwise": 75, "tile1.ring.stalls_counterclockwise": 15})
    assert p.cycles == 150 and p.tiles == [0, 1]  # jobs side by side count once
    assert p.bottleneck == "communication-bound" and p.bottleneck.shares["communication"] == pytest.approx(0.65)
    ring = p.communication
    assert ring["share"] == pytest.approx(0.65) and ring["busy"] == pytest.approx(0.8)
    assert ring["overlap"] == pytest.approx(1 - 130 / 160) and ring["bytes"] == 640
    assert ring["links"]["tile0.clockwise"] == {"flits": 0.5, "forwarded": 0.0, "stalls": 0.0}
    assert ring["links"]["tile1.counterclockwise"]["stalls"] == pytest.approx(0.1)
    assert "fullest link" in p.summary() and "communication" in p.to_dict()


def test_one_tile_has_no_ring():
    with tiles(1) as device:
        with device.profile() as p:
            pass
        assert p.communication == {} and "fullest link" not in p.summary()


def test_nested_profiles_keep_their_own_jobs():
    with tiles(2) as device:
        with device.profile() as outer:
            device.barrier()
            with device.profile() as inner:
                device.barrier()
        assert (outer.jobs, inner.jobs) == (2, 1) and not device._spans
