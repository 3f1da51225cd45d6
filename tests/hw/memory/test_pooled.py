"""PooledArbiter: every client's bytes in both memories, requests of other stops, and no wait of these for the ring."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.pooled import PooledArbiter
from ringloom.hw.memory.port import Client
from tests.hw.memory.test_arbiter import client
from tests.support.bare import bare
from tests.support.memory import ScriptedMemory, bench, port_index

CLIENTS = ("control", "load", "store", "collective")
OWN, SIZE, LIMIT = 1, 65536, 6000


def pooled_config(ports):
    return bare("inference", {"tiles": 2, "memory.bytes": SIZE, "ideal.bytes_per_cycle": 32 * ports})


def random_script(config, rng, model, region, tiles, index, count):
    """Requests of port ``index`` in a region of their own of the memories of ``tiles``; and what reads must give."""
    script, expected = [], {}
    for tag in range(count):
        line = rng.randrange(32)
        offset = (region * 32 + line // 8 * 8) * 256
        offset = (offset & ~(256 * config.ports - 1) | index * 256 | line % 8 * 32) % SIZE
        address = rng.choice(tiles) * SIZE + offset
        assert port_index(config, address) == index
        word = rng.getrandbits(256) if rng.random() < 0.5 else None
        script.append((address, word, tag))
        if word is None:
            expected[tag] = int.from_bytes(model[address:address + 32], "little")
        else:
            model[address:address + 32] = word.to_bytes(32, "little")
    return script, expected


async def other_memory(ctx, dut, index, contents, rng, ready):
    """The ring behind port ``index``: takes requests and data at random, answers later by a random direction."""
    requests, beats, answers, shown = deque(), deque(), deque(), [None, None]
    port, data = dut.remote_requests[index], dut.remote_data[index]
    while True:
        take, take_data = rng.random() < ready, rng.random() < ready
        ctx.set(port.ready, take)
        ctx.set(data.ready, take_data)
        for direction in range(2):
            stream = dut.remote_responses[index][direction]
            if shown[direction] is None and answers and rng.random() < 0.3:
                shown[direction] = answers.popleft()
                ctx.set(stream.payload, shown[direction])
            ctx.set(stream.valid, shown[direction] is not None)
        _, _, valid, asked, data_valid, beat, *taken = await ctx.tick().sample(
            port.valid, port.payload, data.valid, data.payload,
            *(dut.remote_responses[index][d].ready for d in range(2)))
        shown = [None if taken[d] else shown[d] for d in range(2)]
        if valid and take:
            assert asked.address // SIZE != OWN and asked.tag >> 8 in (0, 1, 2, 5)
            requests.append(asked)
        if data_valid and take_data:
            beats.append(beat)
        while requests and (beats or not requests[0].write):
            asked = requests.popleft()
            word = contents[asked.address:asked.address + 32]
            if asked.write:
                contents[asked.address:asked.address + 32] = beats.popleft().data.to_bytes(32, "little")
            answers.append({"data": 0 if asked.write else int.from_bytes(word, "little"), "tag": asked.tag,
                            "write": asked.write, "error": 0, "context": asked.context, "epoch": asked.epoch})


async def other_stops(ctx, dut, index, direction, script, rng, *, idle=0.3):
    """Requests of other stops on one direction; their answers are ``collect``'s."""
    requests, data = dut.ring_requests[index][direction], dut.ring_data[index][direction]
    left, words = deque(script), deque(word for _, word, _ in script if word is not None)
    shown = data_shown = False
    for _ in range(LIMIT):
        if not shown and left and rng.random() >= idle:
            address, word, tag = left[0]
            ctx.set(requests.payload, {"address": address, "write": word is not None, "tag": tag + (direction << 18),
                                       "context": 1, "epoch": 2})
            shown = True
        if not data_shown and words:
            ctx.set(data.payload, {"data": words[0], "strobe": 0xFFFFFFFF})
            data_shown = True
        ctx.set(requests.valid, shown)
        ctx.set(data.valid, data_shown)
        _, _, granted, taken = await ctx.tick().sample(requests.ready, data.ready)
        if shown and granted:
            left.popleft()
            shown = False
        if data_shown and taken:
            words.popleft()
            data_shown = False
        if not left and not words and not shown and not data_shown:
            ctx.set(requests.valid, 0)
            ctx.set(data.valid, 0)
            return
    raise AssertionError(f"{len(left)} requests and {len(words)} beats of other stops are left")


async def collect(ctx, dut, index, log, count, rng):
    stream = dut.ring_responses[index]
    for _ in range(LIMIT):
        take = rng.random() < 0.6
        ctx.set(stream.ready, take)
        _, _, valid, answer = await ctx.tick().sample(stream.valid, stream.payload)
        if valid and take:
            assert (answer.context, answer.epoch) == (1, 2)
            log.append((answer.tag >> 18, answer.tag & 0x3FFFF, answer.write, answer.data))
        if len(log) == count:
            return
    raise AssertionError(f"{len(log)} of {count} answers for other stops")


@pytest.mark.parametrize("ports, seed", [(1, 0), (2, 1), (2, 2), (4, 3)])
def test_clients_and_other_stops_do_not_mix(ports, seed):
    print("seed", seed)
    config = pooled_config(ports)
    dut = PooledArbiter(config=config)
    rng = random.Random(seed)
    contents = bytearray(rng.randbytes(2 * SIZE))
    model = bytearray(contents)
    memory = ScriptedMemory(config, contents, latency=(3, 30), ready=0.8, reorder=True, seed=seed)
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.memory)

    async def number(ctx):
        ctx.set(dut.tile, OWN)
    simulator.add_testbench(number)
    checks = []
    for index in range(ports):
        for region, name in enumerate(CLIENTS):
            script, expected = random_script(config, rng, model, region, (0, 1), index, 25)
            log = []
            checks.append((log, lambda entry: entry[1], expected))
            bench(simulator, client, getattr(dut, name)[index], script, log, random.Random(f"{seed}{name}{index}"),
                  idle=0.3, ready=0.7)
        bench(simulator, other_memory, dut, index, contents, random.Random(f"{seed}far{index}"), 0.5, background=True)
        answers, wanted = [], {}
        for direction in range(2):
            script, expected = random_script(config, rng, model, 4 + direction, (OWN,), index, 25)
            wanted |= {(direction, tag): word for tag, word in expected.items()}
            bench(simulator, other_stops, dut, index, direction, script, random.Random(f"{seed}{direction}{index}"))
        checks.append((answers, lambda entry: entry[:2], wanted))
        bench(simulator, collect, dut, index, answers, 50, random.Random(f"{seed}collect{index}"))
    simulator.run()
    assert contents == model
    for log, key, expected in checks:
        assert {key(entry): entry[3] for entry in log if not entry[2]} == expected
    assert all(address // SIZE == OWN for _, _, address in memory.reads + memory.writes)


def test_other_stops_pass_while_the_ring_takes_nothing():
    """Clients have filled the way to the ring with reads and writes; requests of other stops still reach memory."""
    config = pooled_config(1)
    dut = PooledArbiter(config=config)
    contents = bytearray(2 * SIZE)
    memory = ScriptedMemory(config, contents, latency=(5, 5))
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.memory)
    base = OWN * SIZE

    async def pusher(ctx, port, write):
        """Far requests for ever, data with them; none is answered."""
        ctx.set(dut.tile, OWN)
        ctx.set(port.requests.payload, {"address": 64, "write": write})
        ctx.set(port.write_data.payload, {"data": 1, "strobe": 0xFFFFFFFF})
        ctx.set(port.requests.valid, 1)
        ctx.set(port.write_data.valid, write)

    for name, write in (("load", 0), ("store", 1), ("control", 1)):
        bench(simulator, pusher, getattr(dut, name)[0], write, background=True)
    log = []
    script = [(base + 32 * i, i + 1 if i % 2 else None, i) for i in range(60)]

    async def late(ctx):
        await ctx.tick().repeat(100)
        assert not ctx.get(dut.load[0].requests.ready) and not ctx.get(dut.store[0].requests.ready)
        await other_stops(ctx, dut, 0, 0, script, random.Random(1), idle=0.0)
    simulator.add_testbench(late, background=True)
    bench(simulator, collect, dut, 0, log, 60, random.Random(2))
    simulator.run()
    assert sorted(tag for _, tag, _, _ in log) == list(range(60))
    assert all(contents[base + 32 * i] == (i + 1 if i % 2 else 0) for i in range(60))


def test_waits_are_told_apart():
    """``near`` and ``far`` follow what LOAD and STORE wait for, and nothing of others."""
    dut = PooledArbiter(config=pooled_config(1))
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)

    async def body(ctx):
        async def ask(name, address, write):
            port = getattr(dut, name)[0].requests
            ctx.set(port.payload, {"address": address, "write": write, "tag": 5})
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)
            return ctx.get(dut.near), ctx.get(dut.far)
        ctx.set(dut.tile, OWN)
        ctx.set(dut.memory[0].requests.ready, 1)
        for name in ("load", "store", "control"):
            ctx.set(getattr(dut, name)[0].responses.ready, 1)
        assert await ask("control", SIZE, 0) == await ask("control", 0, 0) == (0, 0)
        assert await ask("load", 0, 0) == (0, 1)
        assert await ask("store", SIZE, 1) == (1, 1)
        for stream, tag, after in ((dut.remote_responses[0][1], Client.LOAD << 8 | 5, (1, 0)),
                                   (dut.memory[0].responses, Client.STORE << 19 | 5, (0, 0))):
            ctx.set(stream.payload, {"tag": tag})
            ctx.set(stream.valid, 1)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)
            assert (ctx.get(dut.near), ctx.get(dut.far)) == after
    simulator.add_testbench(body)
    simulator.run()
