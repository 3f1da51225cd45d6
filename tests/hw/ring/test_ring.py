"""A small ring, flit by flit: cycles a hop, whole bodies, order."""

import random

import pytest
from amaranth.sim import Simulator

from ringloom.hw.config import load
from ringloom.hw.ring.flit import NETWORKS, buffer_flits, flit_layout, turn_flits
from ringloom.hw.ring.ring import Ring

LIMIT = 20_000


def ring(stops, **keys):
    config = load("tiny", {"tiles": stops - 1, **{f"ring.{key}": value for key, value in keys.items()}})
    return config, Ring(config=config)


def run(dut, *benches):
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("stages", [0, 1, 3])
def test_cycles_a_hop(stages):
    """From one handshake to the other: two cycles a hop, and the link's own registers."""
    _, dut = ring(4, link_stages=stages)

    async def bench(ctx):
        for way in 0, 1:
            for hops in range(1, 5):  # four are all the way around
                start, network = random.randrange(4), random.randrange(NETWORKS)
                end = (start + (-hops if way else hops)) % 4
                i, o = dut.inject[start][network][way], dut.eject[end][network][way]
                ctx.set(i.p.destination, end)
                ctx.set(i.valid, 1)
                ctx.set(o.ready, 1)
                await ctx.tick().until(i.ready)
                ctx.set(i.valid, 0)
                cycles = 1
                while not ctx.get(o.valid):
                    await ctx.tick()
                    cycles += 1
                    assert cycles < 100
                assert cycles == hops * (2 + stages)
                await ctx.tick()

    run(dut, bench)


@pytest.mark.parametrize("stops, keys", [(3, {"link_stages": 0, "buffer_flits": 2}), (4, {"data_bits": 512})])
def test_every_bit_arrives_in_order(stops, keys):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    config, dut = ring(stops, **keys)
    bits = flit_layout(config)["body"].width
    expected = {}
    left = 0

    def source(stop, network, way, flits):
        async def bench(ctx):
            port = dut.inject[stop][network][way]
            for destination, body, last in flits:
                await ctx.tick().repeat(rng.choice((0, 0, 1, 3)) + 1)
                ctx.set(port.payload, {"destination": destination, "source": stop, "last": last, "body": body})
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)
        return bench

    def sink(stop, network, way):
        async def bench(ctx):
            nonlocal left
            port = dut.eject[stop][network][way]
            while left:
                await ctx.tick().repeat(rng.choice((0, 0, 1, 5)) + 1)
                ctx.set(port.ready, 1)
                *_, valid, payload = await ctx.tick().sample(port.valid, port.payload)
                ctx.set(port.ready, 0)
                if valid:
                    queue = expected[int(payload.source), stop, network, way]
                    assert (int(payload.body), int(payload.last)) == queue.pop(0)
                    left -= 1
        return bench

    benches = []
    for stop in range(stops):
        for network in range(NETWORKS):
            for way in 0, 1:
                flits = []
                for _ in range(6):
                    flit = rng.choice([s for s in range(stops) if s != stop]), rng.getrandbits(bits), rng.getrandbits(1)
                    flits.append(flit)
                    expected.setdefault((stop, flit[0], network, way), []).append(flit[1:])
                left += len(flits)
                benches += [source(stop, network, way, flits), sink(stop, network, way)]

    async def watchdog(ctx):
        for _ in range(LIMIT):
            await ctx.tick()
            if not left:
                return
        raise AssertionError(f"{left} flits have not arrived: {expected}")

    run(dut, watchdog, *benches)
    assert not any(expected.values())


@pytest.mark.parametrize("stages", range(9))
def test_buffers_and_turns_cover_the_round_trip(stages):
    config = load("tiny", {"tiles": 8, "ring.link_stages": stages})
    assert 5 + 2 * stages <= buffer_flits(config) < 2 * (5 + 2 * stages)
    assert 9 * (2 + stages) <= turn_flits(config)
