"""The functional simulator and the device answer the same raw jobs alike, good and bad ones."""

import collections

import pytest

from ringloom.hw.config import load
from ringloom.hw.isa import Code, Status
from ringloom.sim import open_simulator
from ringloom.sim.functional import FunctionalSimulator
from tests.support.simulators import quiet
from tests.support.streams import random_stream, run_stream

pytestmark = pytest.mark.xdist_group("device")
STREAMS = 400


def test_functional_and_device_agree():
    config = load("tiny")
    functional, device = FunctionalSimulator(config), open_simulator(config, "verilated", quiet)
    seen = collections.Counter()
    for seed in range(STREAMS):
        stream = random_stream(config, seed)
        (expected, expected_bytes), (found, found_bytes) = (run_stream(s, stream) for s in (functional, device))
        assert found == expected, stream.change
        seen[Code(expected[0] >> 16)] += 1
        if expected[0] >> 8 & 0xFF == Status.DONE:
            assert found_bytes == expected_bytes, stream.change
    device.close()
    print(dict(seen))
    assert seen[Code.NONE] > STREAMS // 4
    for code in (Code.BAD_VERSION, Code.BAD_OPCODE, Code.BAD_DESCRIPTOR, Code.BAD_FIELD, Code.MEMORY_WINDOW,
                 Code.SCRATCHPAD_RANGE, Code.WATCHDOG):
        assert seen[code] > 2, code.name
