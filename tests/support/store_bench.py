"""A bench around STORE: accumulators, column records and memory ports with random delays, all scripted in Python."""

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from amaranth.sim import Simulator

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import COLUMN, STORE
from ringloom.hw.tensor.store import StoreEngine

__all__ = ["Result", "StoreBench"]


@dataclass
class Result:
    """What a run did, in cycles since the first command was offered."""

    memory: np.ndarray
    done: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    parameter_reads: int = 0
    beats: list[tuple[int, int, int]] = field(default_factory=list)  # cycle, port, address
    offered: list[int] = field(default_factory=list)  # cycles in which a request was offered
    acknowledged: list[int] = field(default_factory=list)
    fault: tuple[int, int] | None = None
    fault_after_done: int = 0
    bytes: int = 0
    cycles: int = 0
    stalled_on_accumulator: int = 0


class StoreBench:
    """One StoreEngine with its surroundings.

    ready: probability that memory takes a request, or its data, in a cycle. accumulator_ready: the same of an
    accumulator read. delay: most cycles from a write to its acknowledgement, random for each. error_at: byte address
    whose write is answered with an error. stop_at: cycle in which the job stops.
    """

    def __init__(self, config: DeviceConfig, *, seed: int, memory_bytes: int = 8192, ready: float = 1.0,
                 accumulator_ready: float = 1.0, delay: int = 0, window=None, error_at: int | None = None,
                 stop_at: int | None = None) -> None:
        self.config, self.seed = config, seed
        self.random = random.Random(seed)
        self.ready, self.accumulator_ready, self.delay = ready, accumulator_ready, delay
        self.window = window or (0, memory_bytes)
        self.error_at, self.stop_at = error_at, stop_at
        generator = np.random.default_rng(seed)
        tile = config.tile
        self.words = generator.integers(-1 << 31, 1 << 31, (tile.accumulator_words, tile.array.columns))
        self.scales = np.full(tile.parameter_records, 0x3F800000, np.int64)
        self.biases = np.zeros(tile.parameter_records, np.int64)
        self.zero_points = np.zeros(tile.parameter_records, np.int64)
        self.memory = generator.integers(0, 256, memory_bytes).astype(np.uint8)

    def run(self, commands: list[dict], *, limit: int = 20000, gaps: bool = False) -> Result:
        """Run ``commands`` (fields of STORE) until all are done, or one faults, or the job stopped and is quiet."""
        dut = StoreEngine(config=self.config)
        result = Result(self.memory.copy())
        simulator = Simulator(dut)
        simulator.add_clock(1e-9)

        async def bench(ctx):
            await self._bench(ctx, dut, commands, result, limit, gaps)

        simulator.add_testbench(bench)
        simulator.run()
        return result

    async def _bench(self, ctx, dut, commands, result, limit, gaps):
        config, chance = self.config, self.random.random
        ports = range(config.ports)
        waiting = deque(int.from_bytes(STORE.encode(**c), "little") for c in commands)
        records = [int.from_bytes(COLUMN.encode(scale=int(s), bias=int(b), zero_point=int(z)), "little")
                   for s, b, z in zip(self.scales, self.biases, self.zero_points, strict=True)]
        word_ints = {}
        requests = [deque() for _ in ports]  # accepted, data still to come
        datas = [deque() for _ in ports]     # data that came before its request
        answers = [deque() for _ in ports]   # per port, in order: (cycle it may go, tag, address, data, strobe)
        garbage = self.random.getrandbits(32 * config.tile.array.columns)
        ctx.set(dut.job.window_base, self.window[0])
        ctx.set(dut.job.window_limit, self.window[1])
        ctx.set(dut.job.context, 5)
        ctx.set(dut.job.epoch, 9)
        outputs = [dut.port.commands.ready, dut.port.done, dut.port.fault_valid, dut.port.busy, dut.port.quiet,
                   dut.accumulator.valid, dut.accumulator.address, dut.parameters.enable, dut.parameters.address,
                   dut.events.bytes, dut.events.wait_accumulator]
        fixed = len(outputs)
        for p in ports:
            memory = dut.memory[p]
            outputs += [memory.requests.valid, memory.requests.payload.as_value(), memory.write_data.valid,
                        memory.write_data.payload.as_value()]
        fields = dut.memory[0].requests.payload.shape()
        sets, state = {}, {}

        def put(name, signal, value):
            if state.get(name) != value:
                state[name] = value
                sets[name] = (signal, value)

        command_valid = False
        request_ready, data_ready, response_now = [False] * len(ports), [False] * len(ports), [None] * len(ports)
        held = [None] * len(ports)  # what a port offered and nobody took: it must stay
        accumulator_ready = False
        for cycle in range(limit):
            # Inputs of this cycle.
            if not command_valid and waiting and (not gaps or chance() < 0.5):
                command_valid = True
                put("command", dut.port.commands.payload.as_value(), waiting[0])
            put("command_valid", dut.port.commands.valid, int(command_valid))
            accumulator_ready = chance() < self.accumulator_ready
            put("accumulator_ready", dut.accumulator.ready, int(accumulator_ready))
            stopped = self.stop_at is not None and cycle >= self.stop_at
            put("stop", dut.job.stop, int(stopped))
            for p in ports:
                request_ready[p], data_ready[p] = chance() < self.ready, chance() < self.ready
                put(f"request_ready{p}", dut.memory[p].requests.ready, int(request_ready[p]))
                put(f"data_ready{p}", dut.memory[p].write_data.ready, int(data_ready[p]))
                response_now[p] = None
                if answers[p] and answers[p][0][0] <= cycle:
                    _, tag, address, data, strobe = answers[p].popleft()
                    error = self.error_at is not None and address <= self.error_at < address + 32
                    if not error:
                        for i in range(32):
                            if strobe >> i & 1:
                                result.memory[address + i] = data >> 8 * i & 255
                    response_now[p] = (tag, int(error))
                    put(f"tag{p}", dut.memory[p].responses.payload.tag, tag)
                    put(f"error{p}", dut.memory[p].responses.payload.error, int(error))
                    put(f"write{p}", dut.memory[p].responses.payload.write, 1)
                put(f"response{p}", dut.memory[p].responses.valid, int(response_now[p] is not None))
            for signal, value in sets.values():
                ctx.set(signal, value)
            sets.clear()
            _, _, *values = await ctx.tick().sample(*outputs)
            (command_ready, done, fault, busy, quiet, read, address, enable, parameter, count, wait) = values[:fixed]

            # Outputs of this cycle.
            result.cycles = cycle
            result.bytes += count
            result.stalled_on_accumulator += wait
            if command_valid and command_ready:
                result.accepted.append(cycle)
                waiting.popleft()
                command_valid = False
            if read and accumulator_ready:
                result.reads.append(cycle)
                if address not in word_ints:
                    word_ints[address] = sum((int(v) & 0xFFFFFFFF) << 32 * i
                                             for i, v in enumerate(self.words[address]))
                put("word", dut.accumulator.data.as_value(), word_ints[address])
            else:
                put("word", dut.accumulator.data.as_value(), garbage)
            if enable:
                result.parameter_reads += 1
                value = sum(records[(parameter + i) % len(records)] << 128 * i for i in range(config.tile.lanes))
                put("parameters", dut.parameters.data.as_value(), value)
            else:
                put("parameters", dut.parameters.data.as_value(), 0)
            for p in ports:
                valid, request, data_valid, data = values[fixed + 4 * p:fixed + 4 * p + 4]
                offers = (request if valid else None, data if data_valid else None)
                if held[p]:
                    assert held[p][0] is None or held[p][0] == offers[0], "a request changed before it was taken"
                    assert held[p][1] is None or held[p][1] == offers[1], "write data changed before it was taken"
                held[p] = (None if request_ready[p] else offers[0], None if data_ready[p] else offers[1])
                if valid:
                    result.offered.append(cycle)
                if valid and request_ready[p]:
                    view = fields.from_bits(request)
                    assert view.write == 1 and view.address % 32 == 0
                    assert (view.context, view.epoch) == (5, 9)
                    assert view.address // config.memory.interleave_bytes % config.ports == p, "a port's share"
                    result.beats.append((cycle, p, view.address))
                    requests[p].append((view.address, view.tag))
                if data_valid and data_ready[p]:
                    datas[p].append((data & (1 << 256) - 1, data >> 256))
                while requests[p] and datas[p]:
                    (at, tag), (word, strobe) = requests[p].popleft(), datas[p].popleft()
                    assert strobe, "a beat without a byte"
                    answers[p].append((cycle + 1 + self.random.randint(0, self.delay), tag, at, word, strobe))
                if response_now[p] is not None:
                    result.acknowledged.append(cycle)
            outstanding = any(map(len, answers)) or any(map(len, requests)) or any(map(len, datas))
            assert not (quiet and outstanding), "quiet with a write unanswered"
            assert not (fault and done)
            if done:
                result.done.append(cycle)
            if fault:
                result.fault = (int(ctx.get(dut.port.fault.code)), ctx.get(dut.port.fault.address))
                result.fault_after_done = len(result.done)
                stopped = True
                put("stop", dut.job.stop, 1)
                self.stop_at = cycle
            if stopped and quiet and not outstanding:
                return
            if len(result.done) == len(commands):
                assert not outstanding, "done before the last acknowledgement"
                assert not busy or done
                return
        raise AssertionError(f"no end within {limit} cycles (seed {self.seed}): {len(result.done)} of "
                             f"{len(commands)} done, {len(result.beats)} beats written")
