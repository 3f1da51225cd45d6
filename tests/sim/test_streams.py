"""The functional simulator and the device answer the same raw jobs alike, good and bad ones."""

import collections
import itertools
import os
import time

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw.isa import Code, Status
from ringloom.sim import open_simulator
from ringloom.sim.functional import FunctionalSimulator
from tests.support.bare import bare
from tests.support.simulators import quiet
from tests.support.streams import random_stream, run_stream

pytestmark = pytest.mark.xdist_group("device")
STREAMS = 400


def compare(seeds):
    """Run the streams of ``seeds`` on both; how often each code was seen."""
    config = bare("tiny")
    functional, device = FunctionalSimulator(config), open_simulator(config, "verilated", quiet)
    seen = collections.Counter()
    for seed in seeds:
        stream = random_stream(config, seed)
        (expected, expected_bytes), (found, found_bytes) = (run_stream(s, stream) for s in (functional, device))
        assert found == expected, (seed, stream.change)
        seen[Code(expected[0] >> 16)] += 1
        if expected[0] >> 8 & 0xFF == Status.DONE:
            assert found_bytes == expected_bytes, (seed, stream.change)
    device.close()
    print(dict(seen))
    return seen


def until_time_is_up(first):
    """Seeds from ``first`` on, for half of FUZZ_MINUTES."""
    end = time.monotonic() + 30 * float(os.environ.get("FUZZ_MINUTES", "30"))
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(first))


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_fuzz_streams():
    assert sum(compare(until_time_is_up(time.time_ns() % (1 << 32))).values())


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_fuzz_products():
    with rl.open(bare("tiny"), progress=quiet) as device:
        for seed in until_time_is_up(time.time_ns() % (1 << 32)):
            rng = np.random.default_rng(seed)
            m, k, n = (int(size) for size in rng.integers(1, 40, 3) * rng.choice([1, 1, 1, 8], 3))
            kinds = [np.dtype(kind) for kind in rng.choice(["int8", "uint8"], 2)]
            a, b = (rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
                    for kind, shape in zip(kinds, ((m, k), (k, n)), strict=True))
            zeros = [int(rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1)) for kind in kinds]
            want = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
            stored = bool(rng.integers(2))
            got = device.matmul(a, b.T.copy() if stored else b, a_zero_point=zeros[0], b_zero_point=zeros[1],
                                transpose_b=stored)
            assert np.array_equal(got, want), seed


def test_functional_and_device_agree():
    seen = compare(range(STREAMS))
    assert seen[Code.NONE] > STREAMS // 4
    for code in (Code.BAD_VERSION, Code.BAD_OPCODE, Code.BAD_DESCRIPTOR, Code.BAD_FIELD, Code.MEMORY_WINDOW,
                 Code.SCRATCHPAD_RANGE, Code.WATCHDOG):
        assert seen[code] > 2, code.name
