"""MemoryArbiter and PortRouter: every client's bytes, the order of data, fairness, no bubbles."""

import random

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from ringloom.hw.memory.arbiter import MemoryArbiter, PortRouter
from tests.support.bare import bare
from tests.support.memory import ScriptedMemory, bench, port_index

LIMIT = 5000
CLIENTS = ("control", "load", "store", "host")


def arbiter_config(ports=2):
    return bare("inference", {"memory.bytes": 65536, "ideal.bytes_per_cycle": 32 * ports})


async def client(ctx, port, script, log, rng, *, idle=0.0, ready=1.0):
    """Play a script of (address, word or None, tag); read data and acknowledgements go to ``log``."""
    requests, data = list(script), [w for _, w, _ in script if w is not None]
    cycle = request_valid = data_valid = 0
    while len(log) < len(script):
        if not request_valid and requests and rng.random() >= idle:
            address, word, tag = requests[0]
            request_valid = 1
            ctx.set(port.requests.payload, {"address": address, "write": word is not None, "tag": tag,
                                            "context": 3, "epoch": 9})
        if not data_valid and data and rng.random() >= idle:
            data_valid = 1
            ctx.set(port.write_data.payload, {"data": data[0], "strobe": 0xFFFFFFFF})
        take = rng.random() < ready
        ctx.set(port.requests.valid, request_valid)
        ctx.set(port.write_data.valid, data_valid)
        ctx.set(port.responses.ready, take)
        _, _, granted, taken, valid, answer = await ctx.tick().sample(
            port.requests.ready, port.write_data.ready, port.responses.valid, port.responses.payload)
        if request_valid and granted:
            requests.pop(0)
            request_valid = 0
        if data_valid and taken:
            data.pop(0)
            data_valid = 0
        if valid and take:
            assert (answer.context, answer.epoch, answer.error) == (3, 9, 0)
            log.append((cycle, answer.tag, answer.write, answer.data))
        cycle += 1
        assert cycle < LIMIT, f"{len(log)} of {len(script)} answers"
    ctx.set(port.responses.ready, 0)


@pytest.mark.parametrize("ports", [1, 2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_clients_do_not_mix(ports, seed):
    print("seed", seed)
    config = arbiter_config(ports)
    dut = MemoryArbiter(config=config)
    rng = random.Random(seed)
    contents = bytearray(rng.randbytes(65536))
    model = bytearray(contents)
    memory = ScriptedMemory(config, contents, latency=(3, 30), ready=0.8, reorder=True, seed=seed)
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.memory)
    checks = []
    for number, name in enumerate(CLIENTS):
        for index in range(ports):
            script, expected = [], {}
            for tag in range(25):  # every client works in a region of its own
                line = rng.randrange(64)
                address = (number * 64 + line // 8 * 4 + line % 4) * 256 + line % 8 * 32
                address = (address & ~(256 * ports - 1) | index * 256 | address & 255) % 65536
                assert port_index(config, address) == index
                word = rng.getrandbits(256) if rng.random() < 0.5 else None
                script.append((address, word, tag))
                if word is None:
                    expected[tag] = int.from_bytes(model[address:address + 32], "little")
                else:
                    model[address:address + 32] = word.to_bytes(32, "little")
            log = []
            checks.append((log, expected))
            bench(simulator, client, getattr(dut, name)[index], script, log, random.Random(f"{seed}{name}{index}"),
                  idle=0.3, ready=0.7)
    simulator.run()
    assert contents == model
    for log, expected in checks:
        assert sorted(tag for _, tag, _, _ in log) == list(range(25))
        assert {tag: word for _, tag, write, word in log if not write} == expected


def test_one_request_a_cycle_and_one_register():
    config = arbiter_config(1)
    dut = MemoryArbiter(config=config)
    memory = ScriptedMemory(config, bytearray(65536), latency=(10, 10))
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.memory)
    log = []
    bench(simulator, client, dut.load[0], [(32 * i, None, i) for i in range(60)], log, random.Random(0))
    simulator.run()
    assert [cycle for cycle, _, _ in memory.reads] == list(range(1, 61))
    assert [cycle for cycle, *_ in log] == list(range(11, 71))


def test_nobody_starves():
    """Four clients that always ask get a quarter each, and share the port without a lost cycle."""
    config = arbiter_config(1)
    dut = MemoryArbiter(config=config)
    memory = ScriptedMemory(config, bytearray(65536), latency=(10, 10))
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.memory)
    logs = []
    for number, name in enumerate(CLIENTS):
        logs.append([])
        write = 1 if name in ("store", "host") else None
        script = [(8192 * number + 32 * i, write, i) for i in range(40)]
        bench(simulator, client, getattr(dut, name)[0], script, logs[-1], random.Random(0))
    simulator.run()
    accepted = sorted(memory.reads + memory.writes)
    assert [cycle for cycle, _, _ in accepted] == list(range(1, 161))
    owners = [address // 8192 for _, _, address in accepted]
    assert all(set(owners[i:i + 4]) == {0, 1, 2, 3} for i in range(0, 160, 4))


@pytest.mark.parametrize("ports", [1, 2, 4])
def test_router(ports):
    config = arbiter_config(ports)
    m = Module()
    m.domains.sync = ClockDomain()  # with one port there is nothing in the router that is clocked
    m.submodules.dut = dut = PortRouter(config=config)
    rng = random.Random(ports)
    contents = bytearray(rng.randbytes(65536))
    model, script, expected = bytearray(contents), [], {}
    for tag in range(80):
        address = rng.randrange(2048) * 32
        word = rng.getrandbits(256) if rng.random() < 0.5 else None
        script.append((address, word, tag))
        if word is None:
            expected[tag] = int.from_bytes(model[address:address + 32], "little")
        else:
            model[address:address + 32] = word.to_bytes(32, "little")
    memory = ScriptedMemory(config, contents, latency=(3, 20), ready=0.8, reorder=True, seed=ports)
    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.o)
    log = []
    bench(simulator, client, dut.i, script, log, random.Random(3), idle=0.3, ready=0.6)
    simulator.run()
    assert contents == model
    assert {tag: word for _, tag, write, word in log if not write} == expected
