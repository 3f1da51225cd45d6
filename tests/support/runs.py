"""The runs that the engine's sequencers make of commands, taken from the RTL; and the tiles as a network of queues."""

import random
from collections import defaultdict

from amaranth.hdl import Module
from amaranth.sim import Simulator

from ringloom.hw.config import DeviceConfig
from ringloom.hw.isa import RING
from ringloom.hw.ring.collective.command import CommandCheck
from ringloom.hw.ring.collective.sequencer import ResultSequencer, SumSequencer
from tests.support.memory import bench

LANES = {"sum": ("reads", "receives", "sends", "ends"), "result": ("sends", "owns", "receives")}


def sequenced(config: DeviceConfig, tile: int, commands: list[dict], limit: int = 4000) -> dict[str, list[dict]]:
    """``"sum.sends"`` and so on to their runs as dicts, without those that only tell the end of a command."""
    m = Module()
    m.submodules.check = check = CommandCheck(config=config)
    m.submodules.sums = sums = SumSequencer(config=config)
    m.submodules.results = results = ResultSequencer(config=config)
    plans, take = check.plans, sums.plans.ready & results.plans.ready
    m.d.comb += [
        check.tile.eq(tile), check.window_base.eq(0), check.window_limit.eq(config.tiles * config.memory.bytes),
        plans.ready.eq(take),
        *(s.plans.payload.eq(plans.payload) for s in (sums, results)),
        *(s.plans.valid.eq(plans.valid & take) for s in (sums, results)),
    ]
    found: dict[str, list[dict]] = defaultdict(list)
    ended = []
    simulator = Simulator(m)
    simulator.add_clock(1e-9)
    for name, sequencer in (("sum", sums), ("result", results)):
        for lane in LANES[name]:
            async def collect(ctx, port, key):
                ctx.set(port.ready, 1)
                async for _, _, valid, run in ctx.tick().sample(port.valid, port.payload):
                    values = {field: int(run[field]) for field in run.shape().members} if valid else {}
                    if values.pop("end", 0):
                        ended.append(key)
                    elif valid:
                        found[key].append(values)
            bench(simulator, collect, getattr(sequencer, lane), f"{name}.{lane}", background=True)

    async def drive(ctx):
        for command in commands:
            ctx.set(check.commands.payload.as_value(), int.from_bytes(RING.encode(**command), "little"))
            ctx.set(check.commands.valid, 1)
            await ctx.tick().until(check.commands.ready)
            ctx.set(check.commands.valid, 0)
        for _ in range(limit):
            await ctx.tick()
            assert not ctx.get(check.fault_valid)
            if len(ended) == 4 * len(commands):  # one lane of sums and three of results tell it
                return
        raise AssertionError(f"the sequencers do not end: {ended}")

    simulator.add_testbench(drive)
    simulator.run()
    return dict(found)


class Network:
    """The tiles of a ring as queues that flits go through; every action of a lane moves one flit.

    runs: of each tile. scale: a block of 16 flits becomes so many. ring: flits that a neighbour keeps, of each
    direction. own, ahead: results, and flits of each kind read ahead, that a tile keeps.

    A state is how many actions each lane of each tile has done; what the queues hold follows from it.
    """

    ACTIONS = ("read", "send", "end", "own", "receive")

    def __init__(self, runs: list[dict[str, list[dict]]], *, scale: int, ring: int, own: int, ahead: int) -> None:
        self.ring, self.own, self.ahead, self.count = ring, own, ahead, len(runs)

        def flits(tile, lane, key):
            return [key(run) for run in runs[tile].get(lane, ())
                    for _ in range(max(1, run["flits"] * scale // 16))]

        tiles = range(self.count)
        for tile in tiles:
            for run in runs[tile].get("sum.reads", ()):
                run["flits"] = -(-run["bytes"] // 32)
        self.reads = [flits(t, "sum.reads", lambda run: run["ends"]) for t in tiles]
        self.sums = [[flits(t, f"sum.{lane}", lambda run: (run["receive"], run["read"])) for lane in ("sends", "ends")]
                     for t in tiles]
        self.order = [flits(t, "sum.receives", lambda run: run["ends"]) for t in tiles]
        self.results = [flits(t, "result.sends", lambda run: run["receive"]) for t in tiles]
        self.sources = [[flits(t, f"result.{lane}", lambda run: run["send"]) for lane in ("owns", "receives")]
                        for t in tiles]
        # How many of the first n actions of a lane do something else, too.
        self._read = [[_counts(self.reads[t], lambda e, lane=lane: e == lane) for lane in (0, 1)] for t in tiles]
        self._taken = [[_counts(lane, lambda op: op[1]) for lane in self.sums[t]] for t in tiles]
        self._received = [[_counts(lane, lambda op: op[0]) for lane in self.sums[t]] for t in tiles]
        self._sent = [[_counts(lane, lambda send: send) for lane in self.sources[t]] for t in tiles]
        self.final = tuple((len(self.reads[t]), *map(len, self.sums[t]), *map(len, self.sources[t])) for t in tiles)
        self.start = tuple((0,) * 5 for _ in tiles)

    def able(self, state) -> list[tuple[int, int]]:
        """(tile, action) of everything that can move."""
        return [(t, a) for t in range(self.count) for a in range(5) if state[t][a] < self.final[t][a]
                and self._able(state, t, a)]

    def after(self, state, tile: int, action: int):
        mine = list(state[tile])
        mine[action] += 1
        return (*state[:tile], tuple(mine), *state[tile + 1:])

    def _able(self, state, t: int, action: int) -> bool:
        done = state[t]
        if action == 0:
            lane = self.reads[t][done[0]]
            return self._read[t][lane][done[0]] - self._taken[t][lane][done[1 + lane]] < self.ahead
        if action in (1, 2):
            lane = action - 1
            receive, read = self.sums[t][lane][done[action]]
            if read and self._read[t][lane][done[0]] == self._taken[t][lane][done[action]]:
                return False
            received = self._all_received(state, t)
            if receive and (state[t - 1][1] == received or self.order[t][received] != lane):
                return False
            if lane == 0:
                behind = (t + 1) % self.count
                return done[1] - self._all_received(state, behind) < self.ring
            return done[2] - done[3] < self.own
        lane = action - 3
        before = (t + 1) % self.count
        if (done[2] if lane == 0 else self._all_sent(state, before)) == done[action]:
            return False
        if not self.sources[t][lane][done[action]]:
            return True
        sent = self._all_sent(state, t)
        return self.results[t][sent] == lane and sent - state[t - 1][4] < self.ring

    def _all_received(self, state, t: int) -> int:
        return self._received[t][0][state[t][1]] + self._received[t][1][state[t][2]]

    def _all_sent(self, state, t: int) -> int:
        return self._sent[t][0][state[t][3]] + self._sent[t][1][state[t][4]]

    def explore(self, most: int) -> int:
        """Visit every state; returns how many there are. Raises where one is stuck, or there are more than ``most``."""
        seen, todo = {self.start}, [self.start]
        while todo:
            state = todo.pop()
            able = self.able(state)
            assert able or state == self.final, f"stuck at {state} of {self.final}"
            for step in able:
                later = self.after(state, *step)
                if later not in seen:
                    seen.add(later)
                    todo.append(later)
            assert len(seen) <= most, f"more than {most} states"
        return len(seen)

    def walk(self, rng: random.Random) -> None:
        """One way through, at random, with lanes that rest for long. Raises where it gets stuck."""
        state = self.start
        while state != self.final:
            able = self.able(state)
            assert able, f"stuck at {state} of {self.final}"
            step = rng.choice(able)
            for _ in range(rng.choice((1, 1, 40))):
                state = self.after(state, *step)
                if step not in self.able(state):
                    break


def _counts(items: list, wanted) -> list[int]:
    found = [0]
    for item in items:
        found.append(found[-1] + bool(wanted(item)))
    return found
