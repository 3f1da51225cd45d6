"""Several clients of one port, all of them reading and writing, under random back-pressure."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.merge import PortMerge

CLIENTS = ("first", "second", "third")
LIMIT = 4000


@pytest.mark.parametrize("seed", range(4))
def test_each_client_gets_its_own_answers_and_each_write_its_own_data(seed):
    print("seed", seed)
    chance = random.Random(seed)
    dut = PortMerge(address_bits=16, clients=CLIENTS)
    plans = {name: [{"address": 32 * i, "write": chance.randrange(2), "tag": chance.randrange(64), "context": number,
                     "epoch": 0} for i in range(60)] for number, name in enumerate(CLIENTS)}
    asked, served, data = dict.fromkeys(CLIENTS, 0), {name: [] for name in CLIENTS}, deque()
    received, granted = [], {name: deque() for name in CLIENTS}
    rate = {name: chance.choice((.2, .6, 1)) for name in (*CLIENTS, "memory", "data")}

    def client(name):
        async def requests(ctx):
            port = getattr(dut, name).requests
            for request in plans[name]:
                while chance.random() > rate[name]:
                    await ctx.tick()
                ctx.set(port.payload, request)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)
                asked[name] += 1

        async def writes(ctx):
            port = getattr(dut, name).write_data
            for request in plans[name]:
                if not request["write"]:
                    continue
                while chance.random() > rate[name]:
                    await ctx.tick()
                ctx.set(port.payload, {"data": request["address"] << 8 | CLIENTS.index(name), "strobe": 1})
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)

        async def responses(ctx):
            port = getattr(dut, name).responses
            while True:
                ready = chance.random() < rate[name]
                ctx.set(port.ready, ready)
                _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
                if ready and valid:
                    served[name].append((payload.tag, payload.write, payload.data))

        return requests, writes, responses

    async def memory(ctx):
        requests, responses = dut.o.requests, dut.o.responses
        shown, waiting, held = None, deque(), None
        while True:
            ready = chance.random() < rate["memory"]
            ctx.set(requests.ready, ready)
            if shown is None and waiting and chance.random() < rate["memory"]:
                shown = waiting.popleft()
                ctx.set(responses.payload, shown)
            ctx.set(responses.valid, shown is not None)
            _, _, valid, payload, taken = await ctx.tick().sample(requests.valid, requests.payload, responses.ready)
            if held is not None:
                assert valid and payload == held, "a request that was shown has changed"
            held = payload if valid and not ready else None
            if shown is not None and taken:
                shown = None
            if valid and ready:
                granted[CLIENTS[payload.context]].append(payload.address)
                if payload.write:
                    data.append(payload.address << 8 | payload.context)
                waiting.append({"data": payload.address, "tag": payload.tag, "write": payload.write, "error": 0,
                                "context": payload.context, "epoch": 0})

    async def written(ctx):
        port = dut.o.write_data
        while True:
            ready = chance.random() < rate["data"]
            ctx.set(port.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
            if ready and valid:
                received.append(payload.data)

    async def watch(ctx):
        for _ in range(LIMIT):
            await ctx.tick()
            if all(len(served[name]) == len(plans[name]) for name in CLIENTS) and len(received) == len(data):
                return
        raise AssertionError(f"{ {name: len(items) for name, items in served.items()} } answers in {LIMIT} cycles")

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for name in CLIENTS:
        for bench in client(name):
            simulator.add_testbench(bench, background=True)
    simulator.add_testbench(memory, background=True)
    simulator.add_testbench(written, background=True)
    simulator.add_testbench(watch)
    simulator.run()
    for name in CLIENTS:
        assert list(granted[name]) == [request["address"] for request in plans[name]]
        assert served[name] == [(r["tag"], r["write"], r["address"]) for r in plans[name]]
    assert received == list(data)
