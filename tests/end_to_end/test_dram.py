"""A tile on DRAM: results, the two simulators cycle by cycle, floors, and what the channels count."""

import numpy as np
import pytest

import ringloom as rl
from ringloom.hw.counters import LOST
from ringloom.numerics.reference import matmul_reference

ONE = {"tiles": 1, "control.kind": "direct"}
TINY = ONE | {"memory.kind": "hbm", "memory.timing": "tiny", "memory.pseudo_channels": 1, "memory.read_queue": 8,
              "memory.write_queue": 8}
HBM2 = ONE | {"memory.kind": "hbm", "memory.timing": "hbm2", "memory.pseudo_channels": 4}


def draw(rng, *shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def test_both_simulators_agree_on_dram():
    cycles = {}
    for sim in ("python", "verilated"):
        rng = np.random.default_rng(1)
        with rl.open("tiny", sim=sim, overrides=TINY) as device:
            for m, k, n in ((3, 7, 5), (9, 20, 6)):
                a, b = draw(rng, m, k), draw(rng, k, n)
                job = device.submit("matmul", a, b)
                assert np.array_equal(job.result(), matmul_reference(a, b))
                cycles.setdefault((m, k, n), set()).add(job.cycles)
    assert all(len(seen) == 1 for seen in cycles.values()), cycles


@pytest.fixture(scope="module")
def device():
    with rl.open("inference", overrides=HBM2) as opened:
        yield opened


def test_gemv_reaches_the_memory(device):
    rng = np.random.default_rng(2)
    a, b = draw(rng, 1, 4096), draw(rng, 4096, 1024)
    weights = device.prepare(b)
    with device.profile() as profile:
        job = device.submit("matmul", device.put(a), weights)
        assert np.array_equal(np.asarray(job.result()), matmul_reference(a, b))
    share = b.size / job.cycles / device.config.peak_bytes_per_cycle
    print(f"GEMV {share:.1%} of the peak, {profile.memory_loss}")
    assert share >= 0.90
    assert profile.bottleneck == "memory-bound"


def test_gemm_hides_the_memory(device):
    rng = np.random.default_rng(3)
    a, b = draw(rng, 512, 512), draw(rng, 512, 512)
    job = device.submit("matmul", device.put(a), device.put(b))
    assert np.array_equal(np.asarray(job.result()), matmul_reference(a, b))
    assert job.macs / job.cycles >= 0.97 * 256


def test_channels_count_every_cycle_and_every_access(device):
    rng = np.random.default_rng(4)
    a, b = draw(rng, 65, 100), draw(rng, 100, 33)
    with device.profile() as profile:
        device.matmul(a, b)
    counters = profile.counters
    for channel in range(4):
        name = f"tile0.hbm{channel}"
        assert sum(counters[f"{name}.bus.{cause}"] for cause in ("data", *LOST)) == counters["tile0.cycles"]
        accesses = counters[f"{name}.reads"] + counters[f"{name}.writes"]
        assert sum(counters[f"{name}.row_{kind}"] for kind in ("hits", "misses", "conflicts")) == accesses
        buckets = sum(value for key, value in counters.items() if key.startswith(f"{name}.latency."))
        assert abs(buckets - counters[f"{name}.reads"]) <= 32   # reads on their way when the job began or ended
    reads = sum(counters[f"tile0.hbm{c}.reads"] for c in range(4))
    assert reads == pytest.approx(counters["tile0.memory.reads"], abs=64)
    assert sum(profile.memory_loss.values()) == pytest.approx(1)
    assert "memory bus: refresh" in profile.summary()
