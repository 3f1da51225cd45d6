"""Random matrix products for the compiler's tests: problem, operands, and numpy's answer."""

from dataclasses import dataclass

import numpy as np

from ringloom.compiler import Batch, Buffer, Gemm, Layout, compile_gemm
from ringloom.compiler.checker import Region, check_stream
from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import COMPLETION, DESCRIPTOR, RECORD_BYTES, VERSION, Opcode, Status
from ringloom.hw.regmap import control_register, tile_register
from ringloom.sim.functional import FunctionalSimulator
from tests.support.bare import bare

GUARD = 0xA5
GUARD_BYTES = 64
ARRAYS = [(1, 1), (1, 4), (4, 1), (2, 3), (3, 5), (4, 4), (4, 8), (8, 4), (5, 7), (16, 16), (32, 32)]


def small_config(rows: int, columns: int, **overrides) -> DeviceConfig:
    """``tiny`` with another array; keys as ``accumulator_bytes=1024``."""
    tree = {"tile.array.rows": rows, "tile.array.columns": columns,
            "tile.accumulator.bytes": max(32 * columns, 4096)}
    for key, value in overrides.items():
        group, _, name = key.partition("_")
        tree[f"tile.{group}.{name}"] = value
    return bare("tiny", tree)


@dataclass
class Problem:
    gemm: Gemm
    buffers: dict[Buffer, np.ndarray]
    want: np.ndarray


def int32_problem(rng: np.random.Generator, m: int, k: int, n: int, *, a_signed=True, b_signed=True,
                  a_columns=False, b_columns=False, row_zero_points=False, column_zero_points=False,
                  extreme=None) -> Problem:
    """A product with random operands (or all ``extreme``) and zero points, stored as asked."""
    def operand(shape, signed):
        low, high = (-128, 128) if signed else (0, 256)
        return np.full(shape, extreme) if extreme is not None else rng.integers(low, high, shape)

    a, b = operand((m, k), a_signed), operand((k, n), b_signed)
    az = np.full(m, operand((), a_signed)) if extreme is None else np.zeros(m, int)
    bz = np.full(n, operand((), b_signed)) if extreme is None else np.zeros(n, int)
    if row_zero_points:
        az = np.repeat(operand(-(-m // 3), a_signed), 3)[:m]
    if column_zero_points:
        bz = operand(n, b_signed)
    runs: list[list[int]] = []
    for zero in az.tolist():
        if runs and runs[-1][1] == zero:
            runs[-1][0] += 1
        else:
            runs.append([1, zero])
    gemm = Gemm(
        m=m, k=k, n=n, a_signed=a_signed, b_signed=b_signed,
        a_layout=Layout.COLUMNS if a_columns else Layout.ROWS, a_stride=m if a_columns else k,
        b_layout=Layout.COLUMNS if b_columns else Layout.ROWS, b_stride=k if b_columns else n,
        b_zero_point=None if column_zero_points else int(bz[0]),
        batches=(Batch(0, 0, 0, 0, tuple((r, z) for r, z in runs)),))
    buffers = {
        Buffer.A: (a.T if a_columns else a).astype(np.uint8).ravel(),
        Buffer.B: (b.T if b_columns else b).astype(np.uint8).ravel(),
        Buffer.ZERO_POINTS: bz.astype(np.uint8),
    }
    return Problem(gemm, buffers, ((a - az[:, None]) @ (b - bz)).astype(np.int32))


def place(problem: Problem) -> tuple[dict[Buffer, int], list[Region], int]:
    """Addresses of the buffers, the checker's regions, and the first byte behind them. Odd on purpose."""
    gemm, addresses, regions, at = problem.gemm, {}, [], 4096
    for buffer, data in problem.buffers.items():
        addresses[buffer] = at
        regions.append(Region(at, data.size))
        at += data.size + 13
    at += GUARD_BYTES
    size = gemm.m * gemm.n * gemm.out_bytes * len(gemm.batches)
    addresses[Buffer.C] = at
    regions.append(Region(at, size, writable=True, whole=True))
    return addresses, regions, at + size + GUARD_BYTES


def run_functional(problem: Problem, config: DeviceConfig, *, seed: int | None = None) -> np.ndarray:
    """Compile, check, run in numpy; the bytes of C. Asserts that the guards around C are untouched."""
    stream = compile_gemm(problem.gemm, config)
    addresses, regions, end = place(problem)
    raw = stream.bind(addresses)
    check_stream(raw, regions, config)
    simulator = FunctionalSimulator(config, seed=seed)
    memory = simulator.memory()
    for buffer, data in problem.buffers.items():
        memory[addresses[buffer]:addresses[buffer] + data.size] = data
    first, size = regions[-1].address, regions[-1].size
    memory[first - GUARD_BYTES:end] = GUARD
    job = -(-end // RECORD_BYTES) * RECORD_BYTES
    raw = DESCRIPTOR.encode(version=VERSION, opcode=Opcode.JOB, job=7, commands=stream.commands,
                            completion_address=64) + raw
    memory[job:job + len(raw)] = np.frombuffer(raw, np.uint8)
    simulator.write(tile_register(0, "job_low"), job)
    simulator.write(control_register("irq_enable"), 1)
    simulator.write(control_register("doorbell"), 1)
    assert simulator.run(1000), "the job hangs"
    completion = COMPLETION.decode(memory[64:128].tobytes())
    assert (completion["job"], completion["status"]) == (7, Status.DONE), completion
    assert (memory[first - GUARD_BYTES:first] == GUARD).all() and (memory[first + size:end] == GUARD).all()
    return memory[first:first + size]
