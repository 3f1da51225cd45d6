"""The checker accepts what the compiler makes and refuses every mutation of it."""

import numpy as np
import pytest

from ringloom.compiler import compile_gemm
from ringloom.compiler.checker import Region, StreamError, check_stream
from ringloom.hw.isa import HEADER, LOAD, MATMUL, RECORD_BYTES, STORE, Opcode, record_of
from tests.support.compiled import int32_problem, place, small_config


@pytest.fixture(scope="module")
def compiled():
    config = small_config(4, 4, scratchpad_weight_bytes=1024, scratchpad_activation_bytes=1024, accumulator_bytes=1024)
    problem = int32_problem(np.random.default_rng(0), 60, 50, 40, column_zero_points=True)
    addresses, regions, _ = place(problem)
    return compile_gemm(problem.gemm, config).bind(addresses), regions, config


def mutate(raw: bytes, index: int, **fields: int) -> bytes:
    record = raw[index * RECORD_BYTES:(index + 1) * RECORD_BYTES]
    layout = record_of(record[1])
    changed = layout.encode(**(layout.decode(record) | fields))
    return raw[:index * RECORD_BYTES] + changed + raw[(index + 1) * RECORD_BYTES:]


def commands(raw: bytes, opcode: Opcode | None = None):
    for index in range(len(raw) // RECORD_BYTES):
        record = raw[index * RECORD_BYTES:(index + 1) * RECORD_BYTES]
        if opcode is None or record[1] == opcode:
            yield index, record_of(record[1]).decode(record)


def test_accepts(compiled):
    raw, regions, config = compiled
    for depth in (1, 2, 16):
        check_stream(raw, regions, config, queue_depth=depth)


@pytest.mark.parametrize("port", ["wait0", "wait1", "signal0", "signal1"])
def test_every_dropped_semaphore_is_found(compiled, port):
    raw, regions, config = compiled
    assert f"{port}_enable" in [f.name for f in HEADER.fields]
    users = [index for index, c in commands(raw) if c[f"{port}_enable"]]
    assert users
    for index in users[:: max(1, len(users) // 25)]:
        with pytest.raises(StreamError):
            check_stream(mutate(raw, index, **{f"{port}_enable": 0}), regions, config)


def test_dropped_pair_is_a_hazard(compiled):
    """Wait and signal dropped together leave the counts in balance: what is left is the hazard itself."""
    raw, regions, config = compiled
    found = 0
    for index, command in list(commands(raw))[:80]:
        if not command["wait0_enable"]:
            continue
        semaphore = command["wait0_semaphore"]
        rank = sum(1 for i, c in commands(raw) if i <= index for w in (0, 1)
                   if c[f"wait{w}_enable"] and c[f"wait{w}_semaphore"] == semaphore)
        signals = [(i, s) for i, c in commands(raw) for s in (0, 1)
                   if c[f"signal{s}_enable"] and c[f"signal{s}_semaphore"] == semaphore]
        at, which = signals[rank - 1]
        changed = mutate(mutate(raw, index, wait0_enable=0), at, **{f"signal{which}_enable": 0})
        with pytest.raises(StreamError, match="nothing orders them|nothing has written"):
            check_stream(changed, regions, config)
        found += 1
    assert found > 10


@pytest.mark.parametrize("opcode,field,delta", [
    (Opcode.LOAD, "address", 1 << 20), (Opcode.STORE, "address", 4),
    (Opcode.STORE, "address", -4), (Opcode.STORE, "row_stride", 4), (Opcode.STORE, "rows", -1),
    (Opcode.LOAD, "destination", 1 << 20), (Opcode.MATMUL, "weight", 1 << 16), (Opcode.MATMUL, "activation", 1 << 16),
    (Opcode.MATMUL, "accumulator", 1 << 12), (Opcode.STORE, "accumulator", 1 << 12),
])
def test_moved_addresses(compiled, opcode, field, delta):
    raw, regions, config = compiled
    for index, command in list(commands(raw, opcode))[:: 7]:
        if field == "rows" and command[field] == 1:
            continue
        with pytest.raises(StreamError):
            check_stream(mutate(raw, index, **{field: command[field] + delta}), regions, config)


def test_wrong_accumulator_bank(compiled):
    raw, regions, config = compiled
    bank = config.tile.accumulator_words // 2
    index, command = list(commands(raw, Opcode.MATMUL))[-1]
    with pytest.raises(StreamError):
        check_stream(mutate(raw, index, accumulator=command["accumulator"] ^ bank), regions, config)


def _command(record, opcode, **fields):
    return record.encode(version=1, opcode=opcode, **fields)


def test_deadlock_names_who_waits(compiled):
    _, _, config = compiled
    fill = {"target": 0, "planes": 1, "rows": 1, "row_blocks": 1, "block_pitch": 1}
    load = _command(LOAD, Opcode.LOAD, **fill, wait0_enable=1, wait0_semaphore=9, wait0_count=1)
    with pytest.raises(StreamError, match="LOAD.*waits for semaphore 9"):
        check_stream(load, [], config)


def test_short_queue_deadlock(compiled):
    """Two LOADs that wait for a MATMUL fetched behind them: only a queue of two reaches it."""
    _, _, config = compiled
    fill = {"planes": 1, "row_blocks": 1, "block_pitch": 1}
    weights = _command(LOAD, Opcode.LOAD, target=1, rows=4, row_pitch=1, **fill)
    first = _command(LOAD, Opcode.LOAD, target=0, rows=1, **fill, signal0_enable=1, signal0_semaphore=1)
    waits = _command(LOAD, Opcode.LOAD, target=0, rows=1, **fill, wait0_enable=1, wait0_semaphore=2, wait0_count=1)
    more = _command(LOAD, Opcode.LOAD, target=0, rows=1, **fill)
    matmul = _command(MATMUL, Opcode.MATMUL, rows=1, k_steps=1, n_steps=1, weight_row_pitch=1, a_signed=1, b_signed=1,
                      wait0_enable=1, wait0_semaphore=1, wait0_count=1, signal0_enable=1, signal0_semaphore=2)
    raw = weights + first + waits + more + matmul
    check_stream(raw, [], config, queue_depth=2)
    with pytest.raises(StreamError, match="deadlock"):
        check_stream(raw, [], config, queue_depth=1)


def test_two_signallers_are_refused(compiled):
    _, _, config = compiled
    fill = {"target": 0, "planes": 1, "rows": 1, "row_blocks": 1, "block_pitch": 1}
    load = _command(LOAD, Opcode.LOAD, **fill, signal0_enable=1, signal0_semaphore=3)
    matmul = _command(MATMUL, Opcode.MATMUL, rows=1, k_steps=1, n_steps=1, weight_row_pitch=1, a_signed=1, b_signed=1,
                      signal0_enable=1, signal0_semaphore=3)
    with pytest.raises(StreamError, match="several engines"):
        check_stream(load + matmul, [], config)


@pytest.mark.parametrize("raw", [b"\0" * 64, b"\x01\x05" + bytes(62), b"\x01\x02" + bytes(62), b"\1\2\3"])
def test_no_commands(compiled, raw):
    _, regions, config = compiled
    with pytest.raises(StreamError):
        check_stream(raw, regions, config)


def test_written_twice(compiled):
    _, _, config = compiled
    fill = {"target": 2, "planes": 1, "rows": 1, "row_blocks": 1, "block_pitch": 1, "signal0_enable": 1}
    load = _command(LOAD, Opcode.LOAD, **fill)
    wait = {"wait0_enable": 1, "wait0_semaphore": 0, "wait0_count": 1}
    store = {"rows": 1, "columns": 4, "address": 64}
    raw = load + _command(STORE, Opcode.STORE, **store, **wait)
    region = [Region(64, 16, writable=True, whole=True)]
    check_stream(raw, region, config)
    with pytest.raises(StreamError, match="2 times"):
        check_stream(raw + _command(STORE, Opcode.STORE, **store), region, config)
