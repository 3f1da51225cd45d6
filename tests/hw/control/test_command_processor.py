"""The command processor with scripted engines: order, semaphores, latencies, faults, abort, watchdog."""

import itertools
import random

import pytest

from ringloom.hw import isa
from ringloom.hw.control.dispatch import QUEUE_DEPTH
from tests.support.bare import bare
from tests.support.control import COMPLETION, JOB, ControlBench, PortMemory, ScriptedEngine, command, job

CONFIG = bare("tiny", {"memory.bytes": 65536})
DONE, FAULT, ABORTED = isa.Status.DONE, isa.Status.FAULT, isa.Status.ABORTED


def events(bench, name, kind):
    return [(cycle, raw) for cycle, what, raw in bench.engines[name].log if what == kind]


def run_one(raw, *, memory=None, engines=None, **start):
    """Run one job; returns bench, completion record, status, code."""
    bench = ControlBench(CONFIG, memory=memory, **engines or {})
    out = []

    async def body(ctx):
        await bench.start(ctx, raw, **start)
        out.extend(await bench.finish(ctx))
    bench.run(body)
    return bench, *out


def pipeline(steps, load=0, matmul=1, store=2):
    """LOAD -> MATMUL -> STORE ``steps`` times, double-buffered: each signals the next, and frees a buffer behind it."""
    commands = []
    for i in range(steps):
        free = [(3, 1)] if i >= 2 else []
        commands += [command("load", waits=free, signals=[load], address=i),
                     command("matmul", waits=[(load, 1)], signals=[matmul, 3], activation=i),
                     command("store", waits=[(matmul, 1)], signals=[store], address=i)]
    return commands


def test_empty_job():
    bench, record, status, code = run_one(job([], job=77, completion_address=COMPLETION, context=9, epoch=4))
    assert (status, code) == (DONE, 0)
    assert record | {"start": 0, "end": 0} == {
        "job": 77, "status": DONE, "code": 0, "context": 9, "tile": 3, "command": 0, "epoch": 4, "address": 0,
        "start": 0, "end": 0}
    assert record["start"] == 0 and 0 < record["end"] < 40
    assert all(address + 32 <= 1 << 16 for _, _, address in bench.memory.log)


@pytest.mark.parametrize("seed", range(3))
def test_order_and_semaphores(seed):
    """Commands reach their engines once, in order, and never before what they wait for."""
    print("seed", seed)
    chance = random.Random(seed)
    commands = pipeline(20)
    memory = PortMemory(bytearray(1 << 16), latency=chance.randrange(4, 30), jitter=20, reorder=True, stall=0.3,
                        seed=seed)
    engines = {name: ScriptedEngine(duration=lambda n: chance.randrange(1, 30), stall=0.3,
                                    capacity=chance.randrange(1, 4), seed=seed + k)
               for k, name in enumerate(("load", "matmul", "store"))}
    bench, record, status, _ = run_one(job(commands, completion_address=COMPLETION), memory=memory, engines=engines)
    assert status == record["status"] == DONE
    for k, name in enumerate(engines):
        assert [raw for _, raw in events(bench, name, "accept")] == commands[k::3]
        assert [raw for _, raw in events(bench, name, "done")] == commands[k::3]
    for before, after, distance in (("load", "matmul", 0), ("matmul", "store", 0), ("matmul", "load", 2)):
        done = [cycle for cycle, _ in events(bench, before, "done")]
        accepted = [cycle for cycle, _ in events(bench, after, "accept")][distance:]
        assert all(a > d for a, d in zip(accepted, done, strict=False))


@pytest.mark.parametrize("latency", [4, 10, 32])
def test_latencies(latency):
    """Doorbell to first command: memory latency + 6; ``done`` to the dependent command: 2."""
    commands = [command("load", signals=[0]), command("matmul", waits=[(0, 1)], signals=[1]),
                command("store", waits=[(1, 1)])]
    bench, record, _, _ = run_one(job(commands, completion_address=COMPLETION),
                                  memory=PortMemory(bytearray(1 << 16), latency=latency))
    first = events(bench, "load", "accept")[0][0]
    print(f"latency {latency}: doorbell to first command {first - record['start']}")
    assert first - record["start"] == latency + 6
    for before, after in (("load", "matmul"), ("matmul", "store")):
        assert events(bench, after, "accept")[0][0] - events(bench, before, "done")[0][0] == 2
    assert record["end"] - events(bench, "store", "done")[0][0] == 1


def test_throughput():
    """Prefetch keeps three idle engines fed: a command every four cycles or better with memory 40 cycles away."""
    commands = [command(name) for _ in range(40) for name in ("load", "matmul", "store")]
    engines = {name: ScriptedEngine(duration=1, capacity=4) for name in ("load", "matmul", "store")}
    bench, record, status, _ = run_one(job(commands, completion_address=COMPLETION), engines=engines,
                                       memory=PortMemory(bytearray(1 << 16), latency=40))
    cycles = [cycle for name in engines for cycle, _ in events(bench, name, "accept")]
    rate = (max(cycles) - min(cycles)) / (len(cycles) - 1)
    print(f"cycles a command {rate:.2f}")
    assert status == DONE and rate <= 4


def test_queues_let_engines_run_apart():
    """A blocked engine holds up no other while its queue has room."""
    commands = [command("store", waits=[(0, 1)]) for _ in range(QUEUE_DEPTH)]
    commands += [command("load", signals=[0]) for _ in range(QUEUE_DEPTH)]
    *_, status, code = run_one(job(commands, completion_address=COMPLETION))
    assert (status, code) == (DONE, 0)


def test_same_cycles_and_clean_semaphores():
    """A job leaves nothing behind: semaphores it left set do not let the next one run, and its cycles are the same."""
    leaves = job([command("load", signals=[5, 6])], completion_address=COMPLETION)
    waits = job([command("matmul", waits=[(5, 1)])], completion_address=COMPLETION, watchdog_cycles=50)
    bench = ControlBench(CONFIG)

    async def body(ctx):
        cycles = []
        for _ in range(3):
            await bench.start(ctx, leaves)
            record, status, _ = await bench.finish(ctx)
            cycles.append(record["end"] - record["start"])
            assert status == DONE
        assert len(set(cycles)) == 1, cycles
        await bench.start(ctx, waits)
        record, status, code = await bench.finish(ctx)
        assert (status, code, record["command"]) == (FAULT, isa.Code.WATCHDOG, 0)
        assert ctx.get(bench.dut.control.states[1]) == 1 | 5 << 8
        assert ctx.get(bench.dut.control.states[0]) == 0
    bench.run(body)


def test_doorbell_while_busy_changes_nothing():
    bench = ControlBench(CONFIG)

    async def body(ctx):
        await bench.start(ctx, job([command("load")], job=1, completion_address=COMPLETION))
        await ctx.tick().repeat(8)
        await bench.start(ctx, address=0x4000)
        record, status, _ = await bench.finish(ctx)
        assert (record["job"], status) == (1, DONE)
        await ctx.tick().repeat(50)
        assert not ctx.get(bench.dut.control.busy)
    bench.run(body)


GOOD = command("load")
BAD_RECORDS = {
    "version": (isa.LOAD.encode(version=2, opcode=2), isa.Code.BAD_VERSION),
    "opcode zero": (isa.LOAD.encode(version=1, opcode=0), isa.Code.BAD_OPCODE),
    "opcode ring": (isa.LOAD.encode(version=1, opcode=5), isa.Code.BAD_OPCODE),
    "opcode job": (isa.LOAD.encode(version=1, opcode=1), isa.Code.BAD_OPCODE),
    "flags": (command("load", header_flags=1), isa.Code.BAD_FIELD),
    "context": (command("store", context=1), isa.Code.BAD_FIELD),
    "remote": (command("load", signal1_remote=1), isa.Code.BAD_FIELD),
    "remote tile": (command("load", signal0_tile=1), isa.Code.BAD_FIELD),
    "reserved bit": (bytes([*GOOD[:4], 0x20, *GOOD[5:]]), isa.Code.BAD_FIELD),
}


def test_bad_records():
    """A bad record ends the job with its code, index and address, and the next job is exact."""
    bench = ControlBench(CONFIG, load=ScriptedEngine(drain=9))

    async def body(ctx):
        for name, (raw, expected) in BAD_RECORDS.items():
            await bench.start(ctx, job([GOOD, GOOD, raw, GOOD], job=5, completion_address=COMPLETION))
            record, status, code = await bench.finish(ctx)
            assert (status, code) == (record["status"], record["code"]) == (FAULT, expected), name
            assert (record["job"], record["command"], record["address"]) == (5, 2, JOB + 64 * 3), name
            bench.engines["load"].log.clear()
            await bench.start(ctx, job([GOOD, GOOD], completion_address=COMPLETION))
            record, status, code = await bench.finish(ctx)
            assert (status, code, record["status"]) == (DONE, 0, DONE), name
            assert len(events(bench, "load", "done")) == 2, name
    bench.run(body)


def descriptor(**fields):
    return job([], **{"completion_address": COMPLETION, **fields})


BAD_DESCRIPTORS = {
    # name: bytes, start arguments, code, completion is written, address
    "version": (descriptor(version=0), {}, isa.Code.BAD_VERSION, False, JOB),
    "opcode": (descriptor(opcode=2), {}, isa.Code.BAD_DESCRIPTOR, False, JOB),
    "flags": (descriptor(header_flags=2), {}, isa.Code.BAD_FIELD, True, JOB),
    "reserved": (descriptor()[:40] + bytes([1]) + descriptor()[41:], {}, isa.Code.BAD_FIELD, True, JOB),
    "misaligned": (descriptor(), {"address": JOB + 32}, isa.Code.BAD_DESCRIPTOR, False, JOB + 32),
    "outside memory": (None, {"address": 1 << 16}, isa.Code.MEMORY_WINDOW, False, 1 << 16),
    "far outside": (None, {"address": JOB + (1 << 32)}, isa.Code.MEMORY_WINDOW, False, JOB + (1 << 32)),
    "below window": (descriptor(), {"base": JOB + 64}, isa.Code.MEMORY_WINDOW, False, JOB),
    "over window": (descriptor(), {"limit": JOB + 63}, isa.Code.MEMORY_WINDOW, False, JOB),
    "completion misaligned": (descriptor(completion_address=COMPLETION + 8), {}, isa.Code.BAD_DESCRIPTOR, False,
                              COMPLETION + 8),
    "completion outside": (descriptor(), {"limit": COMPLETION + 32}, isa.Code.MEMORY_WINDOW, False, COMPLETION),
    "completion far": (descriptor(completion_address=(1 << 64) - 64), {}, isa.Code.MEMORY_WINDOW, False, None),
    "too long": (descriptor(commands=(1 << 32) - 1), {}, isa.Code.MEMORY_WINDOW, True, 1 << 16),
    "one too long": (descriptor(commands=2), {"base": COMPLETION, "address": (1 << 16) - 128}, isa.Code.MEMORY_WINDOW,
                     True, 1 << 16),
}


def test_bad_descriptors():
    """Nothing outside the window is read or written, and a completion only where its address is good."""
    bench = ControlBench(CONFIG)

    async def body(ctx):
        for name, (raw, start, expected, written, address) in BAD_DESCRIPTORS.items():
            bench.memory.log.clear()
            bench.memory.bytes[:] = bytes(1 << 16)
            await bench.start(ctx, raw, **start)
            record, status, code = await bench.finish(ctx)
            assert (status, code) == (FAULT, expected), name
            if written:
                assert (record["status"], record["code"], record["command"]) == (FAULT, expected, 0), name
                assert record["address"] == address, name
            assert sum(write for _, write, _ in bench.memory.log) == 2 * written, name
            low, high = start.get("base", 0), start.get("limit", 1 << 16)
            assert all(low <= a and a + 32 <= high for _, _, a in bench.memory.log), name
    bench.run(body)


@pytest.mark.parametrize("beat, index", [(JOB, None), (JOB + 32, None), (JOB + 64, 0), (JOB + 64 * 3 + 32, 2)])
def test_memory_error_on_fetch(beat, index):
    memory = PortMemory(bytearray(1 << 16), bad={beat})
    bench, record, status, code = run_one(job([GOOD] * 5, completion_address=COMPLETION), memory=memory)
    assert (status, code) == (FAULT, isa.Code.MEMORY_ERROR)
    if index is None:
        assert record["status"] == 0
    else:
        assert (record["command"], record["address"]) == (index, JOB + 64 * (index + 1))


def test_memory_error_behind_the_job_and_at_the_completion():
    assert run_one(job([GOOD], completion_address=COMPLETION),
                   memory=PortMemory(bytearray(1 << 16), bad={JOB + 128}))[2] == DONE
    *_, status, code = run_one(job([GOOD], completion_address=COMPLETION),
                               memory=PortMemory(bytearray(1 << 16), bad={COMPLETION + 32}))
    assert (status, code) == (FAULT, isa.Code.MEMORY_ERROR)


@pytest.mark.parametrize("name", ["load", "matmul", "store"])
def test_engine_fault(name):
    """The fault's command is named by its index in the job; the others stop and drain; the next job is exact."""
    commands = pipeline(6)
    engines = {n: ScriptedEngine(duration=7, fault_at=3 if n == name else None, drain=20) for n in RUNNERS}
    bench = ControlBench(CONFIG, **engines)

    async def body(ctx):
        await bench.start(ctx, job(commands, completion_address=COMPLETION))
        record, status, code = await bench.finish(ctx)
        index = 3 * 3 + RUNNERS.index(name)
        assert (status, code) == (record["status"], record["code"]) == (FAULT, isa.Code.SCRATCHPAD_RANGE)
        assert (record["command"], record["address"]) == (index, 0x123)
        assert ctx.get(bench.dut.control.states[RUNNERS.index(name)]) == 3 | index << 16
        for engine in engines.values():
            engine.fault_at, engine.log[:] = None, []
        await bench.start(ctx, job(commands, completion_address=COMPLETION))
        assert (await bench.finish(ctx))[1] == DONE
        for k, n in enumerate(RUNNERS):
            assert [raw for _, raw in events(bench, n, "done")] == commands[k::3]
    bench.run(body)


RUNNERS = ("load", "matmul", "store")


def test_abort():
    """An abort in any phase ends the job; the next one is exact."""
    commands = pipeline(4)
    bench = ControlBench(CONFIG, load=ScriptedEngine(drain=11, duration=20))

    async def body(ctx):
        for after in (1, 12, 20, 45, 80):
            await bench.start(ctx, job(commands, completion_address=COMPLETION))
            await ctx.tick().repeat(after)
            ctx.set(bench.dut.control.abort, 1)
            await ctx.tick()
            ctx.set(bench.dut.control.abort, 0)
            record, status, code = await bench.finish(ctx)
            assert (status, code) == (ABORTED, isa.Code.ABORT), after
            for engine in bench.engines.values():
                engine.log.clear()
            await bench.start(ctx, job(commands, completion_address=COMPLETION))
            assert (await bench.finish(ctx))[1] == DONE
            for k, n in enumerate(RUNNERS):
                assert [raw for _, raw in events(bench, n, "accept")] == commands[k::3]
    bench.run(body)


def test_watchdog_names_the_oldest_and_every_wait():
    """A deadlock: LOAD 2 waits for semaphore 9, MATMUL 1 for its second wait, semaphore 8; STORE has nothing."""
    commands = [command("load", signals=[0]), command("matmul", waits=[(0, 1), (8, 2)]),
                command("load", waits=[(9, 1)], signals=[8])]
    bench = ControlBench(CONFIG)

    async def body(ctx):
        await bench.start(ctx, job(commands, completion_address=COMPLETION, watchdog_cycles=100))
        record, status, code = await bench.finish(ctx)
        control = bench.dut.control
        assert (status, code, record["command"]) == (FAULT, isa.Code.WATCHDOG, 1)
        assert [ctx.get(control.states[e]) for e in range(3)] == [1 | 9 << 8 | 2 << 16, 1 | 8 << 8 | 1 << 16, 0]
        assert ctx.get(control.fetched) == 3
        done = events(bench, "load", "done")[0][0]
        # The last progress is the last answered beat of those fetched ahead, at most a latency behind.
        assert record["end"] - done in range(100, 104 + bench.memory.latency)
    bench.run(body)


def test_slow_command_with_progress_lives():
    """Answers of memory hold the watchdog off; without them it ends the job though the engine runs."""
    for progress, expected in ((True, DONE), (False, FAULT)):
        bench = ControlBench(CONFIG, load=ScriptedEngine(duration=400))

        async def body(ctx, bench=bench, progress=progress, expected=expected):
            await bench.start(ctx, job([GOOD], completion_address=COMPLETION, watchdog_cycles=60))
            for k in itertools.count():
                ctx.set(bench.dut.progress, progress and k % 50 == 0)
                *_, ended = await ctx.tick().sample(bench.dut.control.ended)
                if ended:
                    break
            assert ctx.get(bench.dut.control.status) == expected
        bench.run(body)


def test_fetched_beats_are_progress():
    """The descriptor's second half comes later than the watchdog's patience allows, but its first half in between."""
    class Slow(PortMemory):
        def _choose(self, queue, cycle, chance):
            late = [item for item in queue if cycle >= item["due"] + (900 if item["address"] == JOB + 32 else 0)]
            return super()._choose(late, cycle, chance)

    config = bare("tiny", {"memory.bytes": 65536, "control.watchdog_cycles": 1000})
    bench = ControlBench(config, memory=Slow(bytearray(1 << 16), latency=800))

    async def body(ctx):
        await bench.start(ctx, job([GOOD], completion_address=COMPLETION))
        record, status, code = await bench.finish(ctx)
        assert (status, code) == (DONE, 0) and record["end"] - record["start"] > 1700
    bench.run(body)
