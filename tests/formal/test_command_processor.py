"""Proofs: the way of a command loses, doubles or reorders none; semaphores never take what is not there.

Each proof also runs on designs with a fault put in, where it must fail.
"""

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from ringloom.hw.control import dispatch, semaphores
from ringloom.hw.isa import HEADER
from tests.support.proof import check, mutated


class Queue(wiring.Component):
    """A ``RecordQueue`` whose entries carry their number, modulo 8."""

    def __init__(self, module):
        self.module = module
        super().__init__({"offer": In(1), "take": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = self.module.RecordQueue(shape=3, depth=2)
        put, got = Signal(3), Signal(3)
        offered = Signal()
        m.d.comb += [queue.i.valid.eq(self.offer), queue.i.payload.eq(put), queue.o.ready.eq(self.take)]
        m.d.sync += [
            put.eq(put + (queue.i.valid & queue.i.ready)),
            got.eq(got + (queue.o.valid & queue.o.ready)),
            offered.eq(queue.o.valid & ~queue.o.ready),
        ]
        m.d.comb += [
            Assume(~ResetSignal()),
            Assert(queue.o.valid == (put != got)),               # what went in is there from the next cycle on
            Assert(~queue.o.valid | (queue.o.payload == got)),   # each once, in order
            Assert(~offered | queue.o.valid),                    # an offer stays
            Cover((got == 7) & ~queue.o.valid),
        ]
        return m


class WayOfACommand(wiring.Component):
    """An ``IssueStage`` with every behaviour of dispatch, semaphores and engine.

    Commands carry their number, modulo 8, in the body and in their first signal, and wait or do not; all else is zero.
    """

    def __init__(self, module):
        self.module = module
        super().__init__({"offer": In(1), "wait": In(1), "grant": In(1), "ready": In(1), "done": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.stage = stage = self.module.IssueStage(depth=2, flight=2)
        # ``taken`` counts commands that went in, ``given`` those the engine has accepted, ``ended`` those done.
        taken, given, ended = Signal(3), Signal(3), Signal(3)
        record = Signal(512)
        fields = data.View(HEADER.layout, record)
        m.d.comb += [
            record[96:99].eq(taken), fields.signal0_semaphore.eq(taken), fields.wait0_enable.eq(self.wait),
            stage.i.valid.eq(self.offer), stage.i.payload.record.eq(record), stage.i.payload.index.eq(taken),
            stage.grant.eq(self.grant), stage.commands.ready.eq(self.ready), stage.done.eq(self.done),
        ]
        accept = stage.commands.valid & stage.commands.ready
        m.d.sync += [
            taken.eq(taken + (stage.i.valid & stage.i.ready)),
            given.eq(given + accept),
            ended.eq(ended + self.done),
        ]
        # Semaphores grant what is requested; an engine ends a command after it has accepted it.
        m.d.comb += [Assume(~ResetSignal()), Assume(~self.grant | stage.request), Assume(~self.done | (ended != given))]

        number = stage.commands.payload[96:99]
        head = data.View(HEADER.layout, stage.commands.payload)
        granted = Signal()  # the semaphores of the command at the head have been taken
        m.d.sync += granted.eq(Mux(accept, 0, granted | self.grant))
        waits = head.wait0_enable | head.wait1_enable
        offered = Signal()
        m.d.sync += offered.eq(stage.commands.valid & ~stage.commands.ready)
        m.d.comb += [
            Assert(~stage.commands.valid | (number == given)),            # each once, in order
            Assert(~stage.commands.valid | (given != taken)),             # none out of nothing
            Assert(~stage.commands.valid | ~waits | granted),             # never without its semaphores
            Assert(~self.grant | ~granted),                               # which are taken once
            Assert(~offered | stage.commands.valid),                      # an offer stays
            Assert(stage.signal == self.done),
            Assert(~self.done | (stage.signals[0].semaphore == ended)),  # the signals of the one that ends
            Assert(stage.running == (given != ended)),
            Assert(~stage.running | (stage.oldest == ended)),
            Assert(stage.empty == (taken == ended)),
            Cover((ended == 3) & stage.empty),
        ]
        return m


class Ledger(wiring.Component):
    """``Semaphores`` beside one line of bookkeeping for one freely chosen semaphore."""

    def __init__(self, module):
        self.module = module
        pair = data.ArrayLayout
        super().__init__({"request": In(3), "signal": In(3), "clear": In(1), "chosen": In(5),
                          **{f"waits{e}": In(pair(module.wait_layout(), 2)) for e in range(3)},
                          **{f"signals{e}": In(pair(module.signal_layout(), 2)) for e in range(3)}})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.module.Semaphores(engines=3, count=2, bits=4)
        m.d.comb += [dut.request.eq(self.request), dut.signal.eq(self.signal), dut.clear.eq(self.clear),
                     dut.read_index.eq(self.chosen), Assume(self.chosen < 2)]
        takes, adds = 0, 0
        for e in range(3):
            waits, signals = getattr(self, f"waits{e}"), getattr(self, f"signals{e}")
            m.d.comb += [dut.waits[e].eq(waits), dut.signals[e].eq(signals)]
            for k in range(2):
                m.d.comb += [Assume(waits[k].semaphore < 2), Assume(signals[k].semaphore < 2)]
                takes += Mux(dut.grant[e] & waits[k].enable & (waits[k].semaphore == self.chosen), waits[k].count, 0)
                adds += self.signal[e] & signals[k].enable & (signals[k].semaphore == self.chosen)
        chosen, expected, valid = Signal(5), Signal(12), Signal()
        after = dut.read_value - takes + adds
        m.d.comb += [
            Assert(takes <= dut.read_value),                 # nothing is taken that is not there
            Assert((dut.grant & ~self.request) == 0),
            Assert(~valid | (chosen != self.chosen) | (dut.read_value == expected)),
            Assert((after < 16) | dut.overflow | self.clear),  # what does not fit is told
        ]
        m.d.sync += [valid.eq(1), chosen.eq(self.chosen),
                     expected.eq(Mux(self.clear, 0, Mux(after < 16, after, dut.read_value)))]
        # Engine 0, which no other goes before, gets what it asks of this semaphore alone if it is there.
        alone = Cat(~w.enable | (w.semaphore == self.chosen) for w in self.waits0).all()
        wanted = sum(Mux(w.enable, w.count, 0) for w in self.waits0)
        m.d.comb += Assert(~(self.request[0] & alone) | (dut.grant[0] == (wanted <= dut.read_value)))
        return m


def test_no_command_is_lost_or_doubled(tmp_path):
    """The queue in every sequence of 12 cycles, the whole way in every one of 8, with queues of two."""
    assert check(Queue(dispatch), tmp_path, depth=12)
    assert check(WayOfACommand(dispatch), tmp_path, depth=8)


def test_the_proofs_reach_something(tmp_path):
    """The assumptions let whole rounds of commands through."""
    assert check(Queue(dispatch), tmp_path, depth=20, modes=("-c",))
    assert check(WayOfACommand(dispatch), tmp_path, depth=14, modes=("-c",))


@pytest.mark.parametrize("bench, old, new", [
    (Queue, "behind.eq(push & ~(free & (level == 0)))", "behind.eq(push & ~free)"),
    (Queue, "pull.eq(free & (level != 0))", "pull.eq(free & (level != 0) & ~push)"),
    (WayOfACommand, "m.d.sync += [granted.eq(0), last", "m.d.sync += [last"),
    (WayOfACommand, "head.valid & ~needs & (level != self.flight)", "head.valid & ~needs"),
], ids=["drops", "overtakes", "keeps a grant", "overflows"])
def test_faults_are_found_on_the_way(bench, old, new, tmp_path):
    assert not check(bench(mutated(dispatch, (old, new))), tmp_path, depth=8)


def test_semaphores_are_exact(tmp_path):
    """By induction: from any state, whatever three engines ask and signal."""
    assert check(Ledger(semaphores), tmp_path, depth=2)
    assert check(Ledger(semaphores), tmp_path, depth=2, modes=("-i",))


@pytest.mark.parametrize("old, new", [
    ("claimed = claimed | taken[0] | taken[1]", "claimed = 0"),
    ("first.count + Mux(same, second.count, 0)", "first.count"),
    ("met[0] & met[1] &", "met[0] &"),
    ("(values[second.semaphore] >= second.count)", "(values[second.semaphore] > second.count)"),
])
def test_faults_are_found_in_semaphores(old, new, tmp_path):
    assert not check(Ledger(mutated(semaphores, (old, new))), tmp_path, depth=4)
