"""IdealMemory: exact latency, full rate, order, late writes, nothing lost."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.ideal import IdealMemory
from tests.support.bare import bare
from tests.support.memory import bench, port_index, storage_process

LIMIT = 4000  # cycles a bench may take


def memory_config(preset="tiny", **ideal):
    return bare(preset, {"memory.bytes": 65536, **{f"ideal.{key}": value for key, value in ideal.items()}})


def run(config, scripts, *, pattern=lambda cycle: True, data_lag=lambda: 0, contents=None):
    """Play one script a port: a list of requests (address, word or None for a read, tag[, earliest cycle]).

    Returns (contents, per port: [(cycle accepted, request)], per port: [(cycle, tag, write, data)])."""
    dut = IdealMemory(config=config)
    contents = bytearray(random.Random(1).randbytes(65536)) if contents is None else contents
    accepted = [[] for _ in scripts]
    answers = [[] for _ in scripts]
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)

    async def requests(ctx, index):
        port, cycle = dut.ports[index], 0
        for address, word, tag, *when in scripts[index]:
            while when and cycle < when[0]:
                await ctx.tick()
                cycle += 1
            ctx.set(port.requests.valid, 1)
            ctx.set(port.requests.payload, {"address": address, "write": word is not None, "tag": tag,
                                            "context": tag & 3, "epoch": 7})
            while True:
                _, _, ready = await ctx.tick().sample(port.requests.ready)
                cycle += 1
                if ready:
                    break
            accepted[index].append((cycle - 1, (address, word, tag)))
            ctx.set(port.requests.valid, 0)

    async def data(ctx, index):
        port = dut.ports[index]
        for _, word, *_ in scripts[index]:
            if word is None:
                continue
            for _ in range(data_lag()):
                await ctx.tick()
            ctx.set(port.write_data.valid, 1)
            ctx.set(port.write_data.payload, {"data": word, "strobe": 0xFFFFFFFF})
            await ctx.tick().until(port.write_data.ready)
            ctx.set(port.write_data.valid, 0)

    async def responses(ctx, index):
        port, cycle, last = dut.ports[index], 0, None
        while len(answers[index]) < len(scripts[index]):
            ready = pattern(cycle)
            ctx.set(port.responses.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(port.responses.valid, port.responses.payload)
            shown = (payload.data, payload.tag, payload.write) if valid else None
            assert last is None or shown == last, "a response that was held back changed"
            last = shown if valid and not ready else None
            if valid and ready:
                assert (payload.error, payload.epoch, payload.context) == (0, 7, payload.tag & 3)
                answers[index].append((cycle, payload.tag, payload.write, payload.data))
            cycle += 1
            assert cycle < LIMIT, f"port {index}: {len(answers[index])} of {len(scripts[index])} answers"

    for index in range(config.ports):
        bench(simulator, storage_process, dut.storage[index], contents, background=True)
        bench(simulator, requests, index)
        bench(simulator, data, index)
        bench(simulator, responses, index)
    simulator.run()
    return contents, accepted, answers


def word_at(contents, address):
    return int.from_bytes(contents[address:address + 32], "little")


@pytest.mark.parametrize("latency", [4, 5, 32])
def test_latency_is_exact_at_full_rate(latency):
    config = memory_config("inference", latency=latency)
    scripts = [[(port * 256 + beat % 8 * 32 + beat // 8 * 512, None, beat % 2048) for beat in range(100)]
               for port in range(2)]
    contents, accepted, answers = run(config, scripts)
    for port in range(2):
        start = accepted[port][0][0]
        assert [cycle for cycle, _ in accepted[port]] == list(range(start, start + 100))
        assert [a[0] for a in answers[port]] == list(range(start + latency, start + latency + 100))
        assert [a[3] for a in answers[port]] == [word_at(contents, r[0]) for r in scripts[port]]


@pytest.mark.parametrize("peak, cycles", [(4, 8), (8, 4), (16, 2)])
def test_less_than_a_beat_a_cycle(peak, cycles):
    _, accepted, answers = run(memory_config(bytes_per_cycle=peak), [[(32 * i, None, i) for i in range(20)]])
    times = [cycle for cycle, _ in accepted[0]]
    assert {b - a for a, b in zip(times, times[1:], strict=False)} == {cycles}
    assert [a[0] for a in answers[0]] == [t + 32 for t in times]


@pytest.mark.parametrize("lag", [0, 3])
def test_writes_then_reads_at_full_rate(lag):
    script = [(32 * i, (i + 1) * 0x0101_0000_0001, i) for i in range(50)]
    script += [(32 * i, None, i) for i in range(50)]
    first = [lag]
    _, accepted, answers = run(memory_config(), [script], data_lag=lambda: first.pop() if first else 0)
    times = [cycle for cycle, _ in accepted[0]]
    assert times[-1] - times[0] == 99
    assert [a[3] for a in answers[0][50:]] == [(i + 1) * 0x0101_0000_0001 for i in range(50)]
    assert all(a[2] for a in answers[0][:50]) and not any(a[2] for a in answers[0][50:])
    assert [a[0] for a in answers[0]] == [t + 32 for t in times]


def test_strobes_leave_other_bytes():
    config = memory_config()
    dut, contents = IdealMemory(config=config), bytearray(range(64)) + bytearray(65472)
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    bench(simulator, storage_process, dut.storage[0], contents, background=True)

    async def drive(ctx):
        port = dut.ports[0]
        # The data comes first, the request four cycles later.
        ctx.set(port.write_data.valid, 1)
        ctx.set(port.write_data.payload, {"data": (1 << 256) - 1, "strobe": 0x8000_0011})
        await ctx.tick().until(port.write_data.ready)
        ctx.set(port.write_data.valid, 0)
        await ctx.tick().repeat(4)
        ctx.set(port.requests.valid, 1)
        ctx.set(port.requests.payload, {"address": 32, "write": 1, "tag": 5, "context": 0, "epoch": 0})
        await ctx.tick().until(port.requests.ready)
        ctx.set(port.requests.valid, 0)
        ctx.set(port.responses.ready, 1)
        await ctx.tick().until(port.responses.valid)

    simulator.add_testbench(drive)
    simulator.run()
    expected = bytearray(range(64))
    for lane in (0, 4, 31):
        expected[32 + lane] = 255
    assert contents[:64] == expected


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [
    {}, {"jitter": 20}, {"write_delay": 60}, {"jitter": 10, "reorder": True},
    {"jitter": 15, "write_delay": 200, "reorder": True, "latency": 4},
], ids=str)
def test_random_traffic(options, seed):
    """Reads see the last write to their address before them; order per tag; nothing lost under back-pressure."""
    print("seed", seed)
    rng = random.Random(f"{options}{seed}")
    config = memory_config("inference", seed=seed, **options)
    initial = bytearray(rng.randbytes(65536))
    scripts = [[], []]
    pool = [rng.randrange(2048) * 32 for _ in range(24)]
    for _ in range(140):
        address = rng.choice(pool)
        word = rng.getrandbits(256) if rng.random() < 0.5 else None
        scripts[port_index(config, address)].append((address, word, rng.randrange(12)))
    model, reads = bytearray(initial), [{}, {}]
    for port in range(2):
        for address, word, tag in scripts[port]:
            seen = reads[port].setdefault(tag, [])
            if word is None:
                seen.append((False, word_at(model, address)))
            else:
                seen.append((True, None))
                model[address:address + 32] = word.to_bytes(32, "little")
    stalls = random.Random(seed)
    contents, accepted, answers = run(config, scripts, contents=bytearray(initial),
                                      data_lag=lambda: stalls.choice([0, 0, 5]),
                                      pattern=lambda cycle: cycle // 50 % 3 != 1 and stalls.random() < 0.7)
    assert contents == model
    for port in range(2):
        got = {}
        for _, tag, write, data in answers[port]:
            got.setdefault(tag, []).append((bool(write), None if write else data))
        assert got == reads[port]
        for tag in got:  # never early
            sent = [cycle for cycle, request in accepted[port] if request[2] == tag]
            came = [a[0] for a in answers[port] if a[1] == tag]
            assert all(b - a >= config.ideal.latency for a, b in zip(sent, came, strict=True))


def test_tags_overtake_and_jitter_spreads():
    config = memory_config(jitter=30, reorder=True, seed=5)
    _, accepted, answers = run(config, [[(32 * i, None, i) for i in range(64)]])
    assert [a[1] for a in answers[0]] != list(range(64))
    sent = {request[2]: cycle for cycle, request in accepted[0]}
    delays = {a[0] - sent[a[1]] for a in answers[0]}
    assert len(delays) > 10 and min(delays) >= 32


def test_late_writes_are_late():
    """A write reaches storage only just before its acknowledgement, not when it is accepted."""
    config = memory_config(write_delay=200, seed=3)
    dut, contents, seen = IdealMemory(config=config), bytearray(65536), []
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    bench(simulator, storage_process, dut.storage[0], contents, background=True)

    async def drive(ctx):
        port = dut.ports[0]
        ctx.set(port.responses.ready, 1)
        for number in range(8):
            ctx.set(port.requests.valid, 1)
            ctx.set(port.requests.payload, {"address": 32 * number, "write": 1, "tag": 0, "context": 0, "epoch": 0})
            ctx.set(port.write_data.valid, 1)
            ctx.set(port.write_data.payload, {"data": 1, "strobe": 0xFFFFFFFF})
            await ctx.tick()
            ctx.set(port.requests.valid, 0)
            ctx.set(port.write_data.valid, 0)
            stored, cycle = None, 0
            while True:
                cycle += 1
                _, _, valid = await ctx.tick().sample(port.responses.valid)
                if stored is None and contents[32 * number]:
                    stored = cycle
                if valid:
                    break
            seen.append(cycle)
            assert stored is not None and cycle - stored <= 2

    simulator.add_testbench(drive)
    simulator.run()
    assert max(seen) > 100 and len(set(seen)) > 4
