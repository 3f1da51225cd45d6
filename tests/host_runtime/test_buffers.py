"""The allocator, arrays in device memory, prepared weights."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringloom as rl
from ringloom.buffers import ALIGNMENT, GUARD_BYTES, Allocator, pack


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=60), st.sampled_from([0, 1024]))
def test_allocator(steps, stripe):
    allocator = Allocator(4096, 4096 + 20000, stripe=stripe)
    live = {}
    for take, size in steps:
        if take:
            try:
                address = allocator.allocate(size)
            except rl.OutOfMemoryError:
                continue
            assert address % ALIGNMENT == 0 and address >= 4096 and address + size + GUARD_BYTES <= 24096
            for other, length in live.items():
                assert address + size + GUARD_BYTES <= other or other + length + GUARD_BYTES <= address
            live[address] = size
        elif live:
            address = sorted(live)[size % len(live)]
            del live[address]
            allocator.free(address)
    for address in live:
        allocator.free(address)
    assert allocator.used == 0
    assert allocator.allocate(20000 - 2 * GUARD_BYTES) == 4096


def test_large_blocks_start_at_a_stripe_where_there_is_room():
    allocator = Allocator(0, 10_000, stripe=1024)
    assert [allocator.allocate(size) for size in (1024, 64, 960, 1024, 4700)] == [0, 1088, 1216, 3072, 5120]
    allocator.free(3072)
    assert allocator.allocate(2500) == 2240  # from 3072 on there is no room


@pytest.mark.parametrize("overrides, stripe", [({"memory.kind": "ideal"}, 0), ({}, 4 * 16 * 1024)])
def test_row_stripe(overrides, stripe):
    """hbm2: 4 pseudo-channels of 16 banks with rows of 1 KiB."""
    with rl.open("inference", sim="functional", overrides=overrides) as device:
        small = device.put(np.zeros(100, np.int8))
        large = device.empty((100_000,), np.int8)
        assert large.address == (stripe or small.address + 192)
        assert device.put(large).address % (stripe or 64) == 0


@pytest.fixture
def device():
    with rl.open("tiny", sim="functional", overrides={"memory.bytes": 65536}) as dev:
        yield dev


def test_views_keep_their_memory(device):
    x = device.put(np.arange(100, dtype=np.int8))
    view = np.asarray(x)
    address = x.address
    del x
    gc.collect()
    fresh = device.put(np.zeros(100, np.int8))
    assert fresh.address != address
    np.testing.assert_array_equal(view, np.arange(100))
    view[3] = 77  # the same bytes that the device sees
    assert device.simulator.memory()[address + 3] == 77
    used = device._allocator.used
    del view
    gc.collect()
    assert device._allocator.used < used


def test_dlpack_shares(device):
    x = device.put(np.arange(12, dtype=np.int32).reshape(3, 4))
    shared = np.from_dlpack(x)
    np.testing.assert_array_equal(shared, np.arange(12).reshape(3, 4))
    np.asarray(x)[1, 1] = -5
    assert shared[1, 1] == -5


@pytest.mark.parametrize("via", [None, "axi"])
def test_put_either_way(device, via):
    data = np.arange(77, dtype=np.int16).reshape(7, 11)
    before = device.cycle
    x = device.put(data, via=via)
    np.testing.assert_array_equal(np.asarray(x), data)
    assert (device.cycle > before) == (via == "axi")
    assert (len(x), x.ndim, x.size, x.nbytes) == (7, 2, 77, 154)


def test_too_big_is_refused_and_nothing_lost(device):
    x = device.put(np.arange(10, dtype=np.int8))
    used = device._allocator.used
    with pytest.raises(rl.OutOfMemoryError, match="100000 bytes"):
        device.empty(100000, np.int8)
    with pytest.raises(rl.OutOfMemoryError):
        device.matmul(np.zeros((200, 200), np.int8), np.zeros((200, 200), np.int8))
    gc.collect()
    assert device._allocator.used == used
    np.testing.assert_array_equal(np.asarray(x), np.arange(10))
    assert (device.matmul(np.ones((3, 4), np.int8), np.ones((4, 5), np.int8)) == 4).all()


def test_results_do_not_fill_memory(device):
    a, b = np.ones((20, 30), np.int8), np.ones((30, 10), np.int8)
    for _ in range(100):
        assert (device.matmul(a, b) == 30).all()
        assert (np.asarray(device.put(a) @ b) == 30).all()
    gc.collect()
    assert device._allocator.used == 0


@pytest.mark.parametrize("k,n", [(1, 1), (3, 5), (4, 4), (9, 13)])
def test_pack(k, n):
    """Every element where the layout says, the rest the zero point of its column."""
    b = np.arange(k * n).reshape(k, n).astype(np.uint8)
    zero = np.arange(n) + 100
    packed = pack(b, zero, 4, 3)
    steps, depth, columns = packed.shape
    assert columns == 3 and depth % 4 == 0 and depth - k < 4 and steps * 3 - n < 3
    for i in range(depth):
        for j in range(steps * 3):
            want = (b[i, j] if i < k else zero[j]) if j < n else (0 if i >= 0 else 0)
            assert packed[j // 3, i, j % 3] == want
