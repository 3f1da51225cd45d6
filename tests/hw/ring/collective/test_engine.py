"""One engine alone, on a scripted memory: faults, the window, the stop, what survives a clear; and its small parts."""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from amaranth.sim import Simulator

from ringloom.hw.isa import RING, Code, Collective
from ringloom.hw.ring.collective.adder import FlitAdder
from ringloom.hw.ring.collective.ends import Receiver
from ringloom.hw.ring.collective.engine import RingEngine
from ringloom.hw.ring.flit import Direction, collective_body
from tests.support.bare import bare
from tests.support.memory import ScriptedMemory, bench

MEMORY = 1 << 16
CONFIG = bare("tiny", {"tiles": 4, "memory.bytes": MEMORY})
TILE = 1
OWN = TILE * MEMORY
GOOD = {"operation": Collective.ALL_REDUCE, "first": TILE, "size": 1, "source": OWN, "destination": OWN + 4096,
        "bytes": 100, "number": 1}


@dataclass
class Case:
    """What the engine of tile 1 of four is given, without neighbours, and what it did."""

    commands: list[dict]
    errors: tuple[int, ...] = ()
    window: tuple[int, int] = (0, 4 * MEMORY)
    stop_at: int | None = None
    done: int = 0
    fault: tuple[Code, int, int] | None = None  # code, address, commands done before
    before: bytes = b""
    after: bytes = b""
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)


def run(cases: list[Case], *, seed: int = 1, cycles: int = 3000, **memory) -> list[Case]:
    """Each case in turn, with a clear between; the engine must end quiet."""
    engine = RingEngine(config=CONFIG)
    contents = bytearray(4 * MEMORY)
    scripted = ScriptedMemory(CONFIG, contents, seed=seed, **memory)
    simulator = Simulator(engine)
    simulator.add_clock(1e-9)
    scripted.add_to(simulator, engine.memory)

    async def one(ctx, case: Case) -> None:
        job, port, waiting = engine.job, engine.port, list(case.commands)
        for cycle in range(cycles):
            ctx.set(port.commands.valid, bool(waiting))
            if waiting:
                ctx.set(port.commands.payload.as_value(), int.from_bytes(RING.encode(**waiting[0]), "little"))
            stopped = case.fault is not None or (case.stop_at is not None and cycle >= case.stop_at)
            ctx.set(job.stop, stopped)
            _, _, ready, done, fault, what, quiet, busy = await ctx.tick().sample(
                port.commands.ready, port.done, port.fault_valid, port.fault, port.quiet, port.busy)
            assert not quiet or not scripted.outstanding
            if waiting and ready:
                waiting.pop(0)
            case.done += done
            if fault and case.fault is None:
                case.fault = Code(int(what.code)), what.address, case.done
            elif quiet and (stopped or (case.done == len(case.commands) and not busy)):
                return
        raise AssertionError(f"no end: {case.done} done, {len(waiting)} waiting")

    async def drive(ctx) -> None:
        ctx.set(engine.tile, TILE)
        for case in cases:
            contents[:] = random.Random(seed).randbytes(4 * MEMORY)
            case.before = bytes(contents)
            scripted.errors = set(case.errors)
            del scripted.reads[:], scripted.writes[:]
            for name, value in zip(("window_base", "window_limit"), case.window, strict=True):
                ctx.set(getattr(engine.job, name), value)
            await one(ctx, case)
            case.after = bytes(contents)
            case.reads, case.writes = [a for *_, a in scripted.reads], [a for *_, a in scripted.writes]
            ctx.set(engine.port.commands.valid, 0)
            ctx.set(engine.clear, 1)
            await ctx.tick()
            ctx.set(engine.clear, 0)
            ctx.set(engine.job.stop, 0)

    simulator.add_testbench(drive)
    simulator.run()
    return cases


def test_a_group_of_one_copies_and_touches_only_needed_beats():
    commands = [GOOD, GOOD | {"bytes": 36}, GOOD | {"bytes": 1000}, GOOD | {"bytes": 4}]
    for memory in ({}, {"latency": (3, 60), "ready": 0.5, "reorder": True}):
        for case in run([Case([command]) for command in commands], **memory):
            count = case.commands[0]["bytes"]
            want = bytearray(case.before)
            want[OWN + 4096:OWN + 4096 + count] = want[OWN:OWN + count]
            assert case.after == want
            assert (case.done, case.fault) == (1, None)
            assert case.reads == list(range(OWN, OWN + count, 32))
            assert case.writes == list(range(OWN + 4096, OWN + 4096 + count, 32))


BAD = [
    {"operation": 0}, {"operation": 6}, {"operation": 15}, {"bytes": 0}, {"bytes": 6}, {"size": 0},
    {"size": 4}, {"size": 255}, {"first": 2}, {"first": 0}, {"first": 255}, {"first": TILE, "size": 254},
    {"source": OWN + 32}, {"destination": OWN + 4096 + 1},
    {"operation": Collective.BROADCAST, "root": 2}, {"operation": Collective.BROADCAST, "root": 0},
    {"operation": Collective.BROADCAST, "root": TILE, "destination": OWN + 32},
    {"operation": Collective.REDUCE_SCATTER, "pitch": 64}, {"operation": Collective.ALL_GATHER, "pitch": 96},
    {"operation": Collective.ALL_GATHER, "pitch": 100},
    {"operation": Collective.REDUCE_SCATTER, "pitch": 128, "bytes": 90},
    {"operation": Collective.ALL_GATHER, "pitch": (1 << 32) - 32}, {"operation": Collective.BARRIER, "first": 2},
    {"operation": Collective.BARRIER, "size": 0},
]


def test_bad_fields_are_refused():
    for case in run([Case([GOOD, GOOD | {"number": 2} | change, GOOD | {"number": 3}]) for change in BAD]):
        assert (case.fault, len(case.writes)) == ((Code.BAD_FIELD, 0, 1), 4), case.commands[1]


OUTSIDE = [
    ({"source": OWN - 64}, OWN - 64),
    ({"source": OWN + MEMORY - 64}, OWN + MEMORY),
    ({"destination": OWN + MEMORY}, OWN + MEMORY),
    ({"destination": 2 * MEMORY}, 2 * MEMORY),
    ({"source": 1 << 63}, 1 << 63),
    ({"source": (1 << 64) - 64}, (1 << 64) - 64),
    ({"destination": OWN + (1 << 40)}, OWN + (1 << 40)),
    ({"bytes": (1 << 32) - 4}, OWN + MEMORY),
    ({"operation": Collective.BROADCAST, "root": TILE, "source": 0}, 0),
]
WINDOWS = [
    ((OWN + 1, 4 * MEMORY), OWN), ((OWN, OWN + 4096 + 99), OWN + 4096 + 99), ((0, OWN + 99), OWN + 99),
    ((OWN + MEMORY, 4 * MEMORY), OWN), ((0, 0), OWN),
]


def test_vectors_lie_in_the_tiles_own_memory_and_the_jobs_window():
    cases = [Case([GOOD | change]) for change, _ in OUTSIDE]
    cases += [Case([GOOD], window=window) for window, _ in WINDOWS]
    for case, (_, address) in zip(run(cases), OUTSIDE + WINDOWS, strict=True):
        assert case.fault == (Code.MEMORY_WINDOW, address, 0), case
        assert not case.writes and not case.reads
    assert run([Case([GOOD], window=(OWN, OWN + 4096 + 100))])[0].fault is None


def test_a_memory_error_ends_its_command_behind_those_before():
    bad = OWN + 8192 + 320
    first, later = GOOD | {"bytes": 1000}, GOOD | {"number": 3}
    read, write = run([
        Case([first, GOOD | {"bytes": 1000, "source": OWN + 8192, "number": 2}, later], errors=(bad,)),
        Case([first, GOOD | {"bytes": 1000, "destination": OWN + 8192, "number": 2}, later], errors=(bad,)),
    ], latency=(5, 50))
    assert read.fault == (Code.MEMORY_ERROR, bad, 1)
    assert write.fault == (Code.MEMORY_ERROR, OWN + 8192, 1)


def test_a_stop_drains():
    cases = [Case([GOOD | {"bytes": 2000, "number": n} for n in range(4)], stop_at=at)
             for at in (1, 4, 9, 12, 15, 20, 33, 60, 90, 120)]
    for case in run(cases, latency=(3, 40), ready=0.6):
        assert case.fault is None and case.done < 4


@pytest.mark.parametrize("bits", [256, 512])
def test_sums_of_flits(bits):
    config = bare("tiny", {"ring.data_bits": bits})
    adder = FlitAdder(config=config)
    rng = np.random.default_rng(bits)
    simulator = Simulator(adder)

    async def check(ctx):
        edges = np.array([0x80, 0x7F, 0, 1, 0xFF, 0x81], np.uint8)
        for trial in range(300):
            pick = (lambda: rng.choice(edges, bits // 8)) if trial % 2 else (lambda: rng.integers(0, 256, bits // 8,
                                                                                                np.uint8))
            a, b = pick(), pick()
            saturate = trial % 4 < 2
            ctx.set(adder.a, int.from_bytes(a.tobytes(), "little"))
            ctx.set(adder.b, int.from_bytes(b.tobytes(), "little"))
            ctx.set(adder.saturate, saturate)
            await ctx.delay(1e-9)
            if saturate:
                want = np.clip(a.view(np.int8).astype(int) + b.view(np.int8), -128, 127).astype(np.int8)
            else:
                want = a.view(np.uint32) + b.view(np.uint32)
            assert ctx.get(adder.sum) == int.from_bytes(want.tobytes(), "little")

    simulator.add_testbench(check)
    simulator.run()


def test_a_receiver_drops_old_flits_and_keeps_new_ones():
    receiver = Receiver(config=CONFIG)
    body = collective_body(CONFIG)
    numbers = [65530, 65535, 3, 3, 4, 40000]
    simulator = Simulator(receiver)
    simulator.add_clock(1e-9)
    taken = []

    async def give(ctx):
        for count, number in enumerate(numbers):
            ctx.set(receiver.eject.p.body, body.const({"number": number, "data": count}).as_value())
            ctx.set(receiver.eject.valid, 1)
            await ctx.tick().until(receiver.eject.ready)
        ctx.set(receiver.eject.valid, 0)

    async def take(ctx):
        ctx.set(receiver.o.take, 1)
        for number, known, expect in ((3, 0, 0), (65530, 1, 0), (65530, 1, 1), (3, 1, 1), (3, 1, 0), (4, 1, 1)):
            ctx.set(receiver.o.number, number)
            ctx.set(receiver.o.known, known)
            ctx.set(receiver.o.expect, expect)
            for _ in range(20):
                _, _, valid, data = await ctx.tick().sample(receiver.o.valid, receiver.o.data)
                if valid:
                    taken.append((number, data))

    simulator.add_testbench(give)
    simulator.add_testbench(take)
    simulator.run()
    # 65535 is older than 3; 40000 counts as older than 4.
    assert taken == [(65530, 0), (3, 2), (3, 3), (4, 4)]


def test_flits_for_the_next_job_survive_a_clear():
    """The neighbour before is one job ahead: its sum comes while this engine still ends the last job."""
    engine = RingEngine(config=CONFIG)
    memory = ScriptedMemory(CONFIG, bytearray(4 * MEMORY))
    simulator = Simulator(engine)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, engine.memory)
    eject, inject = engine.reduce_eject[Direction.CLOCKWISE], engine.reduce_inject[Direction.CLOCKWISE]

    async def drive(ctx):
        ctx.set(engine.tile, TILE)
        ctx.set(engine.job.window_limit, 4 * MEMORY)
        ctx.set(inject.ready, 1)
        ctx.set(eject.p.body, collective_body(CONFIG).const({"number": 9, "data": 0}).as_value())
        ctx.set(eject.valid, 1)
        await ctx.tick().until(eject.ready)
        ctx.set(eject.valid, 0)
        await ctx.tick().repeat(5)
        ctx.set(engine.clear, 1)
        await ctx.tick()
        ctx.set(engine.clear, 0)
        command = RING.encode(operation=Collective.BARRIER, first=0, size=4, number=9)
        ctx.set(engine.port.commands.payload.as_value(), int.from_bytes(command, "little"))
        ctx.set(engine.port.commands.valid, 1)
        await ctx.tick().until(engine.port.commands.ready)
        ctx.set(engine.port.commands.valid, 0)
        for _ in range(20):
            _, _, valid, flit = await ctx.tick().sample(inject.valid, inject.payload)
            if valid:
                assert (flit.destination, flit.source, flit.body & 0xFFFF) == (2, 1, 9)
                return
        raise AssertionError("the flit is lost")

    bench(simulator, drive)
    simulator.run()
