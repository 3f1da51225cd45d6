"""The whole DRAM of a tile on random traffic: every byte, every order, every command."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.hbm.address import address_map
from ringloom.hw.memory.hbm.command import ColumnOp, RowOp
from ringloom.hw.memory.hbm.memory import HbmMemory
from ringloom.sim.checkers.dram import Command, DramChecker
from tests.support.bare import bare
from tests.support.memory import storage_process


class Traffic:
    """Random requests on every port of a memory, with an in-order model of its bytes.

    places: byte addresses to use. ready, data: chance that a response is taken, that write data are given, in a cycle.
    """

    def __init__(self, config, *, count: int, places: list[int], seed: int, writes: float = 0.5, ready: float = 0.8,
                 data: float = 0.8, idle: float = 0.2) -> None:
        self.config, self.rng = config, random.Random(seed)
        self.memory = HbmMemory(config=config)
        self.contents = bytearray(config.memory.bytes)
        self.model = bytearray(config.memory.bytes)
        self.ready, self.data, self.idle = ready, data, idle
        self.commands: list[list[Command]] = [[] for _ in range(config.ports)]
        self.ended = 0
        self.cycles = [0] * config.ports
        self.latencies: list[int] = []
        share = config.memory.interleave_bytes
        self.requests = [deque() for _ in range(config.ports)]
        for _ in range(count):
            place = self.rng.choice(places)
            self.requests[place // share % config.ports].append((place, self.rng.random() < writes))
        self.count = count

    async def port(self, ctx, index: int) -> None:
        port, rng = self.memory.ports[index], self.rng
        requests, beats, open_tags = self.requests[index], deque(), {}
        offered = given = None
        tag = 0
        for _ in range(40 * self.count + 10_000):
            if offered is None and requests and rng.random() >= self.idle and tag not in open_tags:
                offered = requests[0]
                ctx.set(port.requests.payload, {"address": offered[0], "write": offered[1], "tag": tag,
                                                "context": tag % 200, "epoch": tag % 5})
            if given is None and beats and rng.random() < self.data:
                given = beats[0]
                ctx.set(port.write_data.payload, {"data": given[0], "strobe": given[1]})
            ctx.set(port.requests.valid, offered is not None)
            ctx.set(port.write_data.valid, given is not None)
            ctx.set(port.responses.ready, rng.random() < self.ready)
            accepted = offered is not None and ctx.get(port.requests.ready)
            taken = given is not None and ctx.get(port.write_data.ready)
            answered = ctx.get(port.responses.valid) and ctx.get(port.responses.ready)
            answer = ctx.get(port.responses.payload)
            now = self.cycles[index]
            self.record(ctx, index, now)
            if answered:
                place, write, expected, since = open_tags.pop(answer.tag)
                assert answer.write == write and not answer.error
                assert (answer.context, answer.epoch) == (answer.tag % 200, answer.tag % 5)
                if not write:
                    assert answer.data == expected, f"read of {place:#x} in cycle {now}"
                else:  # acknowledged: whoever looks at storage sees it, unless a later write came
                    assert expected is None
                self.latencies.append(now - since)
                self.ended += 1
            await ctx.tick()
            self.cycles[index] += 1
            if taken:
                beats.popleft()
                given = None
            if accepted:
                place, write = requests.popleft()
                if write:
                    word, strobe = rng.getrandbits(256), rng.choice([0xFFFFFFFF, rng.getrandbits(32)])
                    beats.append((word, strobe))
                    for lane in range(32):
                        if strobe >> lane & 1:
                            self.model[place + lane] = word >> 8 * lane & 0xFF
                expected = None if write else int.from_bytes(self.model[place:place + 32], "little")
                open_tags[tag] = place, write, expected, now
                tag = (tag + 1) % 2048
                offered = None
            if not requests and not open_tags:
                return
        raise AssertionError(f"port {index}: {len(requests)} requests left, waiting for {list(open_tags.values())[:4]}")

    def record(self, ctx, index: int, now: int) -> None:
        bus = self.memory.commands[index]
        row, column = ctx.get(bus.row_op), ctx.get(bus.column_op)
        if row != RowOp.NONE:
            self.commands[index].append(Command(now, RowOp(row).name, ctx.get(bus.row_bank), ctx.get(bus.row)))
        if column != ColumnOp.NONE:
            self.commands[index].append(Command(now, ColumnOp(column).name, ctx.get(bus.column_bank), 0,
                                                ctx.get(bus.column)))

    def run(self) -> None:
        simulator = Simulator(self.memory)
        simulator.add_clock(1e-6)
        for index in range(self.config.ports):
            async def port(ctx, index=index):
                await self.port(ctx, index)

            async def storage(ctx, index=index):
                await storage_process(ctx, self.memory.storage[index], self.contents)

            simulator.add_testbench(port)
            simulator.add_process(storage)
        simulator.run()
        assert self.ended == self.count
        assert self.contents == self.model, "storage holds other bytes than were written and acknowledged"
        rows = address_map(self.config).rows
        for commands in self.commands:
            checker = DramChecker(self.config.timing, refresh=self.config.memory.refresh, rows=rows)
            assert not checker.check(commands), checker.violations[:3]


def tiny(**memory):
    return bare("tiny", {"memory.kind": "hbm", "memory.timing": "tiny", "memory.pseudo_channels": 1,
                         "memory.bytes": 65536, **{f"memory.{key}": value for key, value in memory.items()}})


EVERYWHERE = list(range(0, 65536, 32))
FEW = [64 * k for k in range(4)] + [8192 + 64 * k for k in range(4)]   # one address again and again, two rows


@pytest.mark.parametrize(("seed", "memory"), [
    (1, {}),
    (2, {"refresh": "all-bank"}),
    (3, {"refresh": "off", "page_policy": "closed"}),
    (4, {"page_policy": "adaptive", "bank_xor": True}),
    (5, {"read_queue": 4, "write_queue": 4, "address_map": "row-column-bank-group"}),
    (6, {"pseudo_channels": 2, "read_queue": 8, "write_queue": 16}),
])
def test_random_traffic(seed, memory):
    traffic = Traffic(tiny(**memory), count=300, places=EVERYWHERE, seed=seed)
    traffic.run()


@pytest.mark.parametrize("seed", range(4))
def test_requests_to_one_address_keep_their_order(seed):
    Traffic(tiny(read_queue=8, write_queue=8), count=300, places=FEW, seed=seed, idle=0.0).run()


@pytest.mark.parametrize("options", [{"ready": 0.05}, {"data": 0.05}, {"writes": 1.0}, {"writes": 0.0}])
def test_slow_requesters(options):
    Traffic(tiny(), count=250, places=EVERYWHERE, seed=9, idle=0.0, **options).run()


def test_a_lone_read_takes_three_cycles_beyond_the_dram():
    config = tiny(refresh="off")
    traffic = Traffic(config, count=2, places=[0], seed=1, writes=0.0, ready=1.0, idle=0.0)
    traffic.requests[0] = deque([(0, False)])
    traffic.count = 1
    traffic.run()
    t = config.timing
    assert traffic.latencies == [t.rcd_read + t.cl + t.burst_clocks + 3]  # an ACT came first
