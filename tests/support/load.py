"""A bench around LoadEngine, and what a LOAD should put where, sliced with numpy."""

import random
from dataclasses import dataclass, field

import numpy as np
from amaranth.sim import Simulator

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import LOAD, Opcode, Target
from ringloom.hw.memory.blocks import block_shapes
from ringloom.hw.memory.load import LoadEngine
from tests.support.memory import ScriptedMemory, bench

DEFAULTS = {"version": 1, "opcode": Opcode.LOAD, "rows": 1, "planes": 1, "row_blocks": 1, "block_pitch": 1}


def expected_blocks(config: DeviceConfig, contents: bytes, command: dict) -> dict[int, bytes]:
    """Block address -> bytes of one LOAD, from the meaning of its fields (docs/command_set.md)."""
    c = {name.name: 0 for name in LOAD.fields} | DEFAULTS | command
    size = block_shapes(config)[Target(c["target"])].bytes
    memory = np.frombuffer(bytes(contents), np.uint8)
    blocks = {}
    for plane in range(c["planes"]):
        table = np.full((c["rows"], max(c["row_bytes"], 1)), c["pad_value"], np.uint8)[:, :c["row_bytes"]]
        for row in range(c["pad_top"], c["rows"] - c["pad_bottom"]):
            start = c["address"] + plane * c["plane_stride"] + (row - c["pad_top"]) * c["row_stride"]
            if c["row_bytes"]:
                table[row] = memory[start:start + c["row_bytes"]]
        base = c["destination"] + plane * c["plane_pitch"]
        if not c["transpose"]:
            wide = np.full((c["rows"], c["row_blocks"] * size), c["pad_value"], np.uint8)
            wide[:, c["pad_left"]:c["pad_left"] + c["row_bytes"]] = table
            for row in range(c["rows"]):
                for block in range(c["row_blocks"]):
                    at = base + row * c["row_pitch"] + block * c["block_pitch"]
                    blocks[at] = wide[row, block * size:(block + 1) * size].tobytes()
        else:
            groups = -(-c["rows"] // size)
            wide = np.full((groups * size, c["row_blocks"]), c["pad_value"], np.uint8)
            kept = min(c["row_bytes"], c["row_blocks"])
            wide[:c["rows"], :kept] = table[:, :kept]
            for group in range(groups):
                for position in range(c["row_blocks"]):
                    at = base + group * c["row_pitch"] + position * c["block_pitch"]
                    blocks[at] = wide[group * size:(group + 1) * size, position].tobytes()
    return blocks


@dataclass
class LoadRun:
    """What happened: per target the blocks and their writes' cycles; cycles of accepts, dones; the fault, if any."""

    blocks: dict[int, dict[int, bytes]] = field(default_factory=lambda: {t: {} for t in range(5)})
    writes: list[tuple[int, int, int, int]] = field(default_factory=list)  # cycle, target, address, count
    accepted: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    requested: list[int] = field(default_factory=list)  # cycles in which the first port shows a request
    answered: list[int] = field(default_factory=list)   # cycles in which any port's response is taken
    bytes: int = 0
    fault: tuple[int, int] | None = None
    fault_cycle: int | None = None
    memory: ScriptedMemory | None = None


def run_loads(config: DeviceConfig, commands: list[dict], *, contents: bytes | bytearray, limit: int = 6000,
              window: tuple[int, int] | None = None, idle: float = 0.0, stop_at: int | None = None, seed: int = 0,
              settle: int = 40, **memory_options) -> LoadRun:
    """Run ``commands`` through a LoadEngine on a ScriptedMemory; ends when all are done, or some cycles after a fault.

    With ``stop_at`` the job is stopped in that cycle, and the run ends when the engine is quiet."""
    dut = LoadEngine(config=config)
    run = LoadRun()
    run.memory = memory = ScriptedMemory(config, bytearray(contents), seed=seed, **memory_options)
    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    memory.add_to(simulator, dut.memory)
    shapes = block_shapes(config)
    rng = random.Random(seed)

    async def issue(ctx):
        for command in commands:
            while rng.random() < idle:
                await ctx.tick()
            raw = int.from_bytes(LOAD.encode(**(DEFAULTS | command)), "little")
            ctx.set(dut.port.commands.payload, LOAD.layout.from_bits(raw))
            ctx.set(dut.port.commands.valid, 1)
            ready = False
            while not ready:
                _, _, ready = await ctx.tick().sample(dut.port.commands.ready)
            ctx.set(dut.port.commands.valid, 0)

    async def watch(ctx):
        low, high = window or (0, config.memory.bytes)
        ctx.set(dut.job.window_base, low)
        ctx.set(dut.job.window_limit, high)
        ctx.set(dut.job.context, 5)
        ctx.set(dut.job.epoch, 77)
        cycle, end = 0, None
        write, port, first = dut.write, dut.port, dut.memory[0]
        while end is None or cycle < end:
            if cycle == stop_at:
                ctx.set(dut.job.stop, 1)
            (_, _, valid, target, address, pitch, count, data, accepted, ready, done, fault_valid, fault, busy, quiet,
             request, context, epoch, fetched, *responses) = await ctx.tick().sample(
                write.valid, write.target, write.address, write.pitch, write.count, write.data, port.commands.valid,
                port.commands.ready, port.done, port.fault_valid, port.fault, port.busy, port.quiet,
                first.requests.valid, first.requests.p.context, first.requests.p.epoch, dut.events.bytes,
                *(p.responses.valid for p in dut.memory))
            if valid:
                size, per_write = shapes[Target(target)].bytes, shapes[Target(target)].per_write
                assert 1 <= count <= per_write and (count == 1 or pitch % 2 == 1)
                run.writes.append((cycle, int(target), address, count))
                for block in range(count):
                    raw = (data >> 8 * size * block) & ((1 << 8 * size) - 1)
                    at = address + block * pitch
                    assert at < shapes[Target(target)].blocks
                    run.blocks[int(target)][at] = raw.to_bytes(size, "little")
            if accepted and ready:
                run.accepted.append(cycle)
            if request:
                run.requested.append(cycle)
                assert (context, epoch) == (5, 77)
            if any(responses):
                run.answered.append(cycle)
            if done:
                assert run.fault is None
                run.done.append(cycle)
            run.bytes += fetched
            if fault_valid and run.fault is None:
                run.fault, run.fault_cycle = (int(fault.code), fault.address), cycle
                end = cycle + settle
            if run.fault is not None:
                assert fault_valid
            if quiet:
                assert memory.outstanding == 0, "quiet with an unanswered request"
            if len(run.done) == len(commands) and end is None:
                end = cycle + 3
            if stop_at is not None and cycle > stop_at + 2 and quiet and end is None:
                end = cycle + settle
            cycle += 1
            assert cycle < limit, f"{len(run.done)} of {len(commands)} done, {memory.outstanding} unanswered"
        if run.fault is None and stop_at is None:
            assert not busy and quiet and len(run.done) == len(commands)

    bench(simulator, issue, background=True)
    bench(simulator, watch)
    simulator.run()
    return run
