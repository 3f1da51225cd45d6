"""Cases 8 and 11: a memory that is late, jittery and out of order changes cycles, never a byte."""

import numpy as np
import pytest

import ringloom as rl
from ringloom.numerics.reference import matmul_reference, qlinear_matmul

BASE = {"tiles": 1, "tile.array.rows": 4, "tile.array.columns": 3, "memory.bytes": 1 << 20, "control.kind": "direct"}
MEMORIES = {
    "near": {"ideal.latency": 4},
    "far": {"ideal.latency": 300},
    "narrow": {"ideal.bytes_per_cycle": 4},
    "wide": {"ideal.bytes_per_cycle": 128, "memory.interleave_bytes": 128},
    "jitter": {"ideal.jitter": 60, "ideal.reorder": True, "ideal.write_delay": 200, "ideal.seed": 7},
    "jitter on four ports": {"ideal.jitter": 25, "ideal.reorder": True, "ideal.write_delay": 40, "ideal.seed": 11,
                             "ideal.bytes_per_cycle": 128, "memory.interleave_bytes": 128},
}


@pytest.mark.parametrize("memory", MEMORIES)
def test_same_bytes(memory):
    rng = np.random.default_rng(3)
    with rl.open("tiny", sim="python", overrides=BASE | MEMORIES[memory]) as device:
        cycles = []
        for m, k, n, quantized in ((7, 9, 5, False), (9, 6, 8, True)):
            a = rng.integers(0, 256, (m, k)).astype(np.uint8)
            b = rng.integers(-128, 128, (k, n)).astype(np.int8)
            call = {"a_scale": 0.1, "a_zero_point": 90, "b_scale": 0.02, "b_zero_point": 3, "y_scale": 2.5,
                    "y_zero_point": np.int8(5)}
            if quantized:
                job, want = device.submit("qmatmul", a, b, **call), qlinear_matmul(a, b, **call)
            else:
                job = device.submit("matmul", a, b, a_zero_point=90, b_zero_point=3)
                want = matmul_reference(a, b, 90, 3)
            # the bytes as they are the moment the interrupt rises: nothing is still on its way
            np.testing.assert_array_equal(job.result(), want)
            cycles.append(job.cycles)
        assert all(c > 0 for c in cycles)
