"""The core against Unicorn, instruction by instruction: every register, every write, every trap."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
import unicorn

from tests.hw.control.core import programs
from tests.hw.control.core.bench_core import BenchCore
from tests.support.verilate import verilate

WHEEL = Path(unicorn.__file__).parent


@pytest.fixture(scope="module")
def library():
    lib = verilate(BenchCore(), Path(__file__).parent / "core_driver.cpp", include=(WHEEL / "include",),
                   libraries=(WHEEL / "lib" / "libunicorn.so.2",))
    lib.run_core.restype = ctypes.c_int64
    lib.format_name.restype = ctypes.c_char_p
    return lib


class Outcome:
    """Runs programs and adds up what happened."""

    def __init__(self, library):
        self.library = library
        self.cycles, self.waits = ctypes.c_uint64(), ctypes.c_uint64()
        self.traps = np.zeros(32, np.uint64)
        self.seen = np.zeros(library.format_count(), np.uint64)

    def run(self, words, instructions, *, seed=1, wait=0, interrupts=0, break_event=-1):
        code = np.array(words, np.uint32)
        data = np.random.default_rng(seed).integers(0, 256, programs.DATA_BYTES, np.uint8)
        message = ctypes.create_string_buffer(512)
        done = self.library.run_core(
            code.ctypes, len(code) * 4, data.ctypes, len(data), ctypes.c_uint64(instructions), seed, wait, interrupts,
            ctypes.byref(self.cycles), ctypes.byref(self.waits), self.traps.ctypes, self.seen.ctypes, break_event,
            message)
        assert done == instructions, f"program seed {seed}: {message.value.decode()}"


CASES = [(seed, wait, interrupts) for seed, (wait, interrupts) in enumerate(
    [(0, 0), (0, 37), (3, 0), (2, 100), (5, 400), (0, 1000), (7, 60), (4, 5000)], start=1)]


def test_a_million_random_instructions(library):
    outcome = Outcome(library)
    for seed, wait, interrupts in CASES:
        outcome.run(programs.program(seed), 131_072, seed=seed, wait=wait, interrupts=interrupts)
    names = [library.format_name(i).decode() for i in range(len(outcome.seen))]
    seen = dict(zip(names, outcome.seen.tolist(), strict=True))
    print(f"\n{sum(seen.values())} instructions in {outcome.cycles.value} cycles, {outcome.waits.value} of them waits")
    print("retired:", seen)
    print("exceptions:", outcome.traps[:16].tolist(), "interrupts:", outcome.traps[16:].tolist())
    assert sum(seen.values()) >= 1_000_000
    # ECALL and EBREAK never retire, and WFI has a test of its own; everything else must have come often.
    assert [name for name, count in seen.items() if count < 100 and name not in ("ecall", "ebreak", "wfi")] == []
    assert [cause for cause in (0, 1, 2, 3, 4, 5, 6, 7, 11) if outcome.traps[cause] < 20] == []
    assert min(outcome.traps[16 + 7], outcome.traps[16 + 11]) >= 20


def test_a_wrong_value_is_found(library):
    with pytest.raises(AssertionError, match="Unicorn has"):
        Outcome(library).run(programs.program(1), 5000, break_event=2000)
