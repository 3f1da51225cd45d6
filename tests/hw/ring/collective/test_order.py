"""The schedule cannot get stuck: every way through small rings, many through larger ones, from the RTL's own runs."""

import random

import pytest

from ringloom.hw.isa import Collective
from tests.support.bare import bare
from tests.support.runs import Network, sequenced

ALL_REDUCE, SCATTER, GATHER, BROADCAST, BARRIER = Collective


def network(tiles, commands, *, scale, ring, own=None, ahead=None):
    """commands: (first, size, fields), in the same order for all tiles."""
    config = bare("tiny", {"tiles": tiles})
    runs = []
    for tile in range(tiles):
        mine = [dict(first=first, size=size, number=number, source=tile * config.memory.bytes,
                     destination=tile * config.memory.bytes + (1 << 20), **fields)
                for number, (first, size, fields) in enumerate(commands) if first <= tile < first + size]
        runs.append(sequenced(config, tile, mine))
    return Network(runs, scale=scale, ring=ring, own=own or scale, ahead=ahead or 2 * scale)


def all_reduce(blocks):
    return {"operation": ALL_REDUCE, "bytes": 512 * blocks}


@pytest.mark.parametrize("tiles, size, commands, scale", [
    (2, 2, [all_reduce(4)], 2),
    (3, 3, [all_reduce(3)], 1),
    (3, 3, [all_reduce(5)], 1),
    (4, 3, [all_reduce(2)], 1),
    (3, 3, [{"operation": BARRIER}, {"operation": BARRIER}], 1),
])
def test_every_interleaving_ends(tiles, size, commands, scale):
    # One place more than a block: the least that the argument in docs/collectives.md asks for.
    ring = network(tiles, [(0, size, fields) for fields in commands], scale=scale, ring=scale + 1)
    assert ring.explore(2_000_000) > 10


def test_four_tiles_with_every_interleaving():
    assert network(4, [(0, 4, all_reduce(4))], scale=1, ring=2, ahead=1).explore(2_000_000) > 1000


def test_the_check_finds_a_deadlock():
    # Tiles that send a whole block before they take one need room for it.
    with pytest.raises(AssertionError, match="stuck"):
        network(3, [(0, 3, all_reduce(6))], scale=4, ring=3).explore(2_000_000)


@pytest.mark.parametrize("tiles", [2, 3, 4, 8])
def test_larger_rings_end(tiles):
    seed = 100 + tiles
    rng = random.Random(seed)
    commands = []
    for _ in range(6):
        first = rng.choice((0, 0, rng.randrange(tiles)))
        size = tiles - first if rng.random() < 0.7 else rng.randint(1, tiles - first)
        operation = rng.choice(list(Collective))
        commands.append((first, size, {"operation": operation, "bytes": 4 * rng.randint(1, 900), "pitch": 4096,
                                       "root": first + rng.randrange(size)}))
    ring = network(tiles, commands, scale=16, ring=17)
    for _ in range(2):
        ring.walk(rng)
