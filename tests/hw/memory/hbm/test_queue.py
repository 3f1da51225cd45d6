"""The request queue against a list of entries."""

import random
from dataclasses import dataclass

import pytest
from amaranth.sim import Simulator

from ringloom.hw.memory.hbm.address import AddressMap
from ringloom.hw.memory.hbm.command import RowOp
from ringloom.hw.memory.hbm.queue import AGE_LIMIT, RequestQueue
from ringloom.hw.memory.hbm.timing import load_timing

ADDRESS = AddressMap(timing=load_timing("tiny"), beats=1 << 9)


@dataclass
class Entry:
    bank: int
    row: int
    column: int
    slot: int
    hit: bool
    blocked: bool
    missing: bool


@pytest.mark.parametrize(("entries", "seed"), [(4, 1), (8, 2), (32, 3)])
def test_queue(entries, seed):
    queue, rng = RequestQueue(entries=entries, address=ADDRESS, slot_bits=6), random.Random(seed)
    banks = ADDRESS.timing.banks

    async def body(ctx):
        model: list[Entry] = []
        age = 0

        def vector(name):
            return sum(getattr(e, name) << k for k, e in enumerate(model))

        for cycle in range(3000):
            view = queue.view
            assert ctx.get(view.valid) == (1 << len(model)) - 1, f"cycle {cycle}"
            assert ctx.get(view.level) == len(model)
            assert ctx.get(queue.full) == (len(model) == entries)
            assert ctx.get(view.old) == (age >= AGE_LIMIT)
            for name, field in (("hits", "hit"), ("blocks", "blocked"), ("lacks", "missing")):
                assert ctx.get(getattr(view, name)) == vector(field), f"{name} in cycle {cycle}"
            for name, field in (("rows", "row"), ("banks", "bank"), ("columns", "column"), ("slots", "slot")):
                planes = [ctx.get(plane) for plane in getattr(view, name)]
                for k, entry in enumerate(model):
                    assert sum((p >> k & 1) << i for i, p in enumerate(planes)) == getattr(entry, field)
            assert ctx.get(view.wanted) == sum(1 << b for b in {e.bank for e in model})
            assert ctx.get(view.wanted_open) == sum(1 << b for b in {e.bank for e in model if e.hit})

            # All entries of a bank that have its row open have the same row: the scheduler opens one at a time.
            op = rng.choice([RowOp.NONE, RowOp.NONE, RowOp.ACT, RowOp.PRE, RowOp.REFPB]
                            + [RowOp.PREA] * (cycle % 50 == 0))
            bank, row = rng.randrange(banks), rng.randrange(2)
            if op == RowOp.ACT and any(e.hit and e.bank == bank for e in model):
                op = RowOp.NONE
            release = rng.getrandbits(entries) & rng.getrandbits(entries)
            supplied = rng.random() < 0.5 and any(e.missing for e in model)
            take = rng.randrange(len(model)) if model and rng.random() < 0.4 and cycle % 900 > 350 else None
            new = Entry(rng.randrange(banks), rng.randrange(2), rng.randrange(8), rng.randrange(64),
                        False, rng.random() < 0.2, rng.random() < 0.4)
            insert = len(model) < entries and rng.random() < 0.5
            ctx.set(queue.row_op, op)
            ctx.set(queue.row_bank, bank)
            ctx.set(queue.row_row, row)
            ctx.set(queue.release, release)
            ctx.set(queue.supplied, supplied)
            ctx.set(queue.take, 1 << take if take is not None else 0)
            ctx.set(queue.take_bank, model[take].bank if take is not None else 0)
            ctx.set(queue.insert, insert)

            for k, entry in enumerate(model):
                if op == RowOp.ACT and entry.bank == bank and entry.row == row:
                    entry.hit = True
                if op == RowOp.PREA or (op == RowOp.PRE and entry.bank == bank):
                    entry.hit = False
                if release >> k & 1:
                    entry.blocked = False
            if supplied:
                next(e for e in model if e.missing).missing = False
            new.hit = any(e.hit and (e.bank, e.row) == (new.bank, new.row) for e in model)
            for name in ("bank", "row", "column", "slot", "hit", "blocked", "missing"):
                ctx.set(getattr(queue, name), getattr(new, name))
            age = 0 if take == 0 or not model else min(AGE_LIMIT, age + 1)
            if take is not None:
                del model[take]
            if insert:
                model.append(new)
            await ctx.tick()

    simulator = Simulator(queue)
    simulator.add_clock(1e-6)
    simulator.add_testbench(body)
    simulator.run()
