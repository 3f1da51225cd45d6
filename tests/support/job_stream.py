"""Jobs for the ``tiny`` device that every simulator must run in the same cycles, and numpy's answers."""

import random
from dataclasses import dataclass

import numpy as np

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import COMPLETION as COMPLETION_RECORD
from ringloom.hw.isa import RECORD_BYTES, Status
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim.simulator import Simulator
from tests.support.device import COMPLETION, JOB, A, B, C, gemm

LIMIT = 20_000
"""Cycles after which a job is taken to hang."""


@dataclass
class Work:
    """One job: bytes to put at addresses, and the bytes it must leave at ``C``, guards included."""

    writes: dict[int, bytes]
    result: bytes

    @property
    def end(self) -> int:
        return C - 64 + len(self.result)


def works(config: DeviceConfig, seed: int, count: int) -> list[Work]:
    """Random products, ragged in every dimension, at any byte alignment of C."""
    rng, pick = np.random.default_rng(seed), random.Random(seed)
    made = []
    for index in range(count):
        m, k, n = (pick.choice((1, 3, 4, 5, 9)) for _ in range(3))
        a_type, b_type = (pick.choice((np.int8, np.uint8)) for _ in range(2))
        a, b = (rng.integers(np.iinfo(t).min, np.iinfo(t).max, shape, t, endpoint=True)
                for t, shape in ((a_type, (m, k)), (b_type, (k, n))))
        az, bz = (int(rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1)) for t in (a_type, b_type))
        offset = pick.randrange(64)
        raw, a_bytes, b_bytes = gemm(config, a, b, a_zero_point=az, b_zero_point=bz, c_address=C + offset,
                                     job=index + 1)
        answer = ((a.astype(np.int64) - az) @ (b.astype(np.int64) - bz)).astype("<i4").tobytes()
        guard = b"\xA5" * (64 + offset), b"\xA5" * 64
        made.append(Work({JOB: raw, A: a_bytes, B: b_bytes, COMPLETION: bytes(RECORD_BYTES),
                          C - 64: guard[0] + bytes([0xA5]) * len(answer) + guard[1]}, guard[0] + answer + guard[1]))
    return made


def check(work: Work, record: bytes, result: bytes, index: int) -> dict[str, int]:
    """The completion's fields, once all that the job should have done is found done."""
    fields = COMPLETION_RECORD.decode(record)
    assert fields["status"] == Status.DONE and fields["job"] == index + 1, fields
    assert result == work.result, f"job {index}: wrong bytes at C"
    return fields


def run_works(simulator: Simulator, seed: int, count: int, between=lambda index: None) -> list[tuple[int, ...]]:
    """Run the jobs through the protocol; for each (start, end, cycle behind the doorbell's write, at the interrupt)."""
    memory = simulator.memory()
    simulator.write(control_register("irq_enable"), 1)
    trace = []
    for index, work in enumerate(works(simulator.config, seed, count)):
        for address, data in work.writes.items():
            memory[address:address + len(data)] = np.frombuffer(data, np.uint8)
        simulator.write(tile_register(0, "job_low"), JOB)
        simulator.write(control_register("doorbell"), 1)
        rung = simulator.cycle
        between(index)
        assert simulator.run(LIMIT), f"job {index}: no interrupt in {LIMIT} cycles"
        fields = check(work, bytes(memory[COMPLETION:COMPLETION + RECORD_BYTES]),
                       bytes(memory[C - 64:work.end]), index)
        trace.append((fields["start"], fields["end"], rung, simulator.cycle))
        simulator.write(control_register("irq_status"), 1)
    return trace
