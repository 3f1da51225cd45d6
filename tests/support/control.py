"""A memory and engines for benches of the control side, and the bytes of jobs."""

import random
from collections import deque
from dataclasses import dataclass, field

from amaranth.sim import Simulator

from ringloom.hw import isa
from ringloom.hw.control.command_processor import ENGINES, CommandProcessor

RECORDS = {"load": (isa.LOAD, isa.Opcode.LOAD), "matmul": (isa.MATMUL, isa.Opcode.MATMUL),
           "store": (isa.STORE, isa.Opcode.STORE), "ring": (isa.RING, isa.Opcode.RING)}


def command(engine, *, waits=(), signals=(), **fields):
    """A command record: ``waits`` are (semaphore, count), ``signals`` semaphores."""
    record, opcode = RECORDS[engine]
    values = {"version": isa.VERSION, "opcode": opcode, **fields}
    for k, (semaphore, count) in enumerate(waits):
        values |= {f"wait{k}_semaphore": semaphore, f"wait{k}_count": count, f"wait{k}_enable": 1}
    for k, semaphore in enumerate(signals):
        values |= {f"signal{k}_semaphore": semaphore, f"signal{k}_enable": 1}
    return record.encode(**values)


def job(records, **fields):
    """A descriptor and its commands."""
    values = {"version": isa.VERSION, "opcode": isa.Opcode.JOB, "commands": len(records)}
    return isa.DESCRIPTOR.encode(**values | fields) + b"".join(records)


@dataclass
class PortMemory:
    """Answers one memory port; order is kept per tag, and per address."""

    bytes: bytearray
    latency: int = 10
    jitter: int = 0
    reorder: bool = False
    stall: float = 0.0
    seed: int = 0
    bad: set[int] = field(default_factory=set)  # beat addresses that answer with an error
    log: list = field(default_factory=list)     # cycle, write, address

    async def bench(self, ctx, port):
        chance = random.Random(self.seed)
        queue: list[dict] = []
        writes: deque = deque()
        data: deque = deque()
        ready = wready = False
        shown = None
        cycle = 0
        async for _, _, valid, request, wvalid, beat, rready in ctx.tick().sample(
                port.requests.valid, port.requests.payload, port.write_data.valid, port.write_data.payload,
                port.responses.ready):
            if valid and ready:
                item = {"tag": request.tag, "write": request.write, "address": request.address, "data": None,
                        "due": cycle + self.latency + (chance.randrange(self.jitter + 1) if self.jitter else 0),
                        "context": request.context, "epoch": request.epoch}
                assert request.address % 32 == 0 and request.address + 32 <= len(self.bytes), hex(request.address)
                self.log.append((cycle, request.write, request.address))
                queue.append(item)
                if request.write:
                    writes.append(item)
            if wvalid and wready:
                data.append((beat.data.to_bytes(32, "little"), beat.strobe))
            while writes and data:
                writes.popleft()["data"] = data.popleft()
            if shown is not None and rready:
                queue.remove(shown)
                shown = None
            cycle += 1
            if shown is None:
                shown = self._choose(queue, cycle, chance)
                ctx.set(port.responses.valid, shown is not None)
                if shown is not None:
                    self._answer(ctx, port, shown)
            ready, wready = (chance.random() >= self.stall for _ in range(2))
            ctx.set(port.requests.ready, ready)
            ctx.set(port.write_data.ready, wready)

    def _choose(self, queue, cycle, chance):
        free = [item for k, item in enumerate(queue)
                if item["due"] <= cycle and (not item["write"] or item["data"] is not None)
                and not any(other["tag"] == item["tag"] or other["address"] == item["address"] for other in queue[:k])]
        if not free or (not self.reorder and free[0] is not queue[0]):
            return None
        return chance.choice(free) if self.reorder else free[0]

    def _answer(self, ctx, port, item):
        address, value = item["address"], 0
        if item["write"]:
            data, strobe = item["data"]
            for k in range(32):
                if strobe >> k & 1:
                    self.bytes[address + k] = data[k]
        else:
            value = int.from_bytes(self.bytes[address:address + 32], "little")
        ctx.set(port.responses.payload, {"data": value, "tag": item["tag"], "write": item["write"],
                                         "error": address in self.bad, "context": item["context"],
                                         "epoch": item["epoch"]})


@dataclass
class ScriptedEngine:
    """Takes commands, runs each for a while, one after the other; logs accepts and ends by the record's bytes."""

    duration: object = 5         # cycles, or a function of the command's number in this engine
    capacity: int = 2
    stall: float = 0.0
    seed: int = 0
    fault_at: int | None = None  # its number-th command faults
    drain: int = 0               # cycles without quiet after a stop
    fault: tuple[int, int] = (isa.Code.SCRATCHPAD_RANGE, 0x123)
    log: list = field(default_factory=list)  # cycle, "accept" or "done", bytes

    async def bench(self, ctx, port, clear, stop):
        chance = random.Random(self.seed)
        held: deque = deque()
        number = cycle = 0
        ready = faulty = False
        drain = self.drain
        ctx.set(port.quiet, 1)
        async for _, _, valid, record, cleared, stopped in ctx.tick().sample(
                port.commands.valid, port.commands.payload.as_value(), clear, stop):
            ctx.set(port.done, 0)
            if valid and ready and not cleared:
                raw = record.to_bytes(64, "little")
                self.log.append((cycle, "accept", raw))
                duration = self.duration(number) if callable(self.duration) else self.duration
                held.append([duration, number, raw])
                number += 1
            if cleared:
                held.clear()
                faulty = False
                number, drain = 0, self.drain
                ctx.set(port.fault_valid, 0)
            elif held and not faulty:
                if held[0][1] == self.fault_at:
                    faulty = True
                    ctx.set(port.fault_valid, 1)
                    ctx.set(port.fault, {"code": self.fault[0], "address": self.fault[1]})
                elif held[0][0] <= 1:
                    self.log.append((cycle + 1, "done", held.popleft()[2]))
                    ctx.set(port.done, 1)
                else:
                    held[0][0] -= 1
            if self.drain:
                if stopped:
                    drain -= 1
                ctx.set(port.quiet, not held or drain <= 0)
            cycle += 1
            ready = len(held) < self.capacity and chance.random() >= self.stall
            ctx.set(port.commands.ready, ready)
            ctx.set(port.busy, bool(held))


JOB, COMPLETION = 0x1000, 0x8000


class ControlBench:
    """A command processor with scripted engines and a memory; runs jobs one after another."""

    def __init__(self, config, *, memory=None, **engines):
        self.config = config
        self.dut = CommandProcessor(config=config)
        self.memory = memory or PortMemory(bytearray(1 << 16))
        self.engines = {name: engines.get(name, ScriptedEngine()) for name in ENGINES}
        self.cycle = 0
        self.starts: list[int] = []
        self.simulator = Simulator(self.dut)
        self.simulator.add_clock(1e-6)
        for name, engine in self.engines.items():
            async def drive(ctx, engine=engine, name=name):
                await engine.bench(ctx, getattr(self.dut, name), self.dut.clear, self.dut.job.stop)
            self.simulator.add_testbench(drive, background=True)

        async def answer(ctx):
            await self.memory.bench(ctx, self.dut.memory)

        async def count(ctx):
            cycle = 0
            async for _ in ctx.tick():
                cycle += 1
                ctx.set(self.dut.control.cycle, cycle)
        self.simulator.add_testbench(answer, background=True)
        self.simulator.add_testbench(count, background=True)

    def run(self, body):
        self.simulator.add_testbench(body)
        self.simulator.run()

    async def start(self, ctx, raw=None, *, address=JOB, base=0, limit=1 << 40):
        if raw is not None:
            self.memory.bytes[address:address + len(raw)] = raw
        control = self.dut.control
        ctx.set(self.dut.tile, 3)
        ctx.set(control.job, address)
        ctx.set(control.window_base, base)
        ctx.set(control.window_limit, limit)
        ctx.set(control.start, 1)
        await ctx.tick()
        ctx.set(control.start, 0)

    async def finish(self, ctx, limit=5000):
        """Wait for the end; returns the completion record's fields and the status registers."""
        control = self.dut.control
        for _ in range(limit):
            *_, ended = await ctx.tick().sample(control.ended)
            if ended:
                break
        else:
            states = [hex(ctx.get(control.states[e])) for e in range(3)]
            raise AssertionError(f"no end in {limit} cycles; states {states}, fetched {ctx.get(control.fetched)}")
        assert not ctx.get(control.busy)
        record = isa.COMPLETION.decode(bytes(self.memory.bytes[COMPLETION:COMPLETION + 64]))
        return record, ctx.get(control.status), ctx.get(control.code)
