"""The checker takes the streams of groups as the compiler makes them, and refuses every mutation of them."""

import numpy as np
import pytest

from ringloom.compiler.checker import Region, StreamError, check_group
from ringloom.hw.isa import RECORD_BYTES, Opcode, record_of
from tests.support.tiles import regions_of, streams_of, tiles

Q = {"a_scale": 0.02, "a_zero_point": 5, "b_scale": 0.02, "b_zero_point": 0, "y_scale": 1.0,
     "y_zero_point": np.uint8(5)}


@pytest.fixture(scope="module")
def jobs():
    """A pipeline of three layers, and a sum over K, not run."""
    device = tiles(3)
    rng = np.random.default_rng(0)
    layers = [(rng.integers(-128, 128, (12, 12)).astype(np.int8), Q) for _ in range(3)]
    pipe = device.pipeline(layers, micro_batch=4).submit(rng.integers(0, 255, (20, 12)).astype(np.uint8))
    sums = device.submit("qmatmul", np.ones((6, 40), np.int8), device.put(np.ones((40, 8), np.int8), tile=1),
                         parallel="tensor-k", **Q)
    return {name: (streams_of(job), regions_of(job), device.config) for name, job in (("pipe", pipe), ("sums", sums))}


def changed(streams, tile, index, **fields):
    raw = streams[tile]
    record = raw[index * RECORD_BYTES:(index + 1) * RECORD_BYTES]
    layout = record_of(record[1])
    new = layout.encode(**(layout.decode(record) | fields))
    return streams | {tile: raw[:index * RECORD_BYTES] + new + raw[(index + 1) * RECORD_BYTES:]}


def commands(streams):
    for tile, raw in streams.items():
        for index in range(len(raw) // RECORD_BYTES):
            record = raw[index * RECORD_BYTES:(index + 1) * RECORD_BYTES]
            yield tile, index, record_of(record[1]).decode(record)


@pytest.mark.parametrize("name", ["pipe", "sums"])
def test_accepts(jobs, name):
    streams, regions, config = jobs[name]
    for depth in (1, 2, 16):
        check_group(streams, regions, config, queue_depth=depth)


@pytest.mark.parametrize("name", ["pipe", "sums"])
@pytest.mark.parametrize("port", ["wait0", "wait1", "signal0", "signal1"])
def test_every_dropped_semaphore_is_found(jobs, name, port):
    streams, regions, config = jobs[name]
    users = [(tile, index) for tile, index, c in commands(streams) if c[f"{port}_enable"]]
    for tile, index in users[::max(1, len(users) // 12)]:
        with pytest.raises(StreamError):
            check_group(changed(streams, tile, index, **{f"{port}_enable": 0}), regions, config)


def test_what_tiles_tell_each_other(jobs):
    """A signal to the wrong tile, flow control that is left out on both sides, a job that may not run yet."""
    streams, regions, config = jobs["pipe"]
    remote = [(t, i, k) for t, i, c in commands(streams) for k in (0, 1) if c[f"signal{k}_remote"]]
    tile, index, k = remote[0]
    for fields, text in (({f"signal{k}_tile": 2}, "deadlock|several engines"),
                         ({f"signal{k}_tile": 7}, "not of the group")):
        with pytest.raises(StreamError, match=text):
            check_group(changed(streams, tile, index, **fields), regions, config)
    unchecked = streams
    for t, i, c in commands(streams):  # neither tells the tile before that room is free, nor waits for it
        for name in ("wait", "signal"):
            for k in (0, 1):
                if c[f"{name}{k}_enable"] and c[f"{name}{k}_semaphore"] == 13:
                    unchecked = changed(unchecked, t, i, **{f"{name}{k}_enable": 0})
    with pytest.raises(StreamError, match="nothing orders them"):
        check_group(unchecked, regions, config)
    early = streams
    for t, i, c in commands(streams):
        if c["opcode"] == Opcode.RING:
            early = changed(early, t, i, first=t, size=1)
    with pytest.raises(StreamError, match="BARRIER must come first"):
        check_group(early, regions, config)


def test_collectives_must_agree(jobs):
    streams, regions, config = jobs["sums"]
    tile, index, c = next((t, i, c) for t, i, c in commands(streams) if c["opcode"] == Opcode.RING)
    for fields, text in (({"bytes": c["bytes"] + 64, "pitch": c["pitch"] + 64}, "bytes|no buffer"),
                         ({"number": 9}, "number is"), ({"size": 2}, "size is|several"),
                         ({"size": 4}, "group of tiles"), ({"source": c["source"] + 32}, "aligned"),
                         ({"destination": c["destination"] + config.memory.bytes}, "another tile")):
        with pytest.raises(StreamError, match=text):
            check_group(changed(streams, tile, index, **fields), regions, config)
    with pytest.raises(StreamError, match="runs nothing|no buffer"):
        check_group({t: raw for t, raw in streams.items() if t != 2}, regions, config)


def test_memory_is_shared_in_order(jobs):
    """What is read and written by turns must be said to be so."""
    streams, regions, config = jobs["pipe"]
    alone = [Region(r.address, r.size, writable=True) for r in regions]
    with pytest.raises(StreamError, match="no buffer it may use"):
        check_group(streams, alone, config)
