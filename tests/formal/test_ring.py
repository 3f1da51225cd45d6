"""Proofs of the ring, for every behaviour of sources and sinks, by induction: from any state that the rules allow.

Places are conserved, so no flit meets a full buffer and no credit is lost; each network's loop always keeps a free
place; a loop that holds flits moves, where they are taken as they leave; no network waits for others' use of a link;
and there is one turn. Each proof also runs on designs with a fault put in, where it must fail.
"""

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Module, Mux, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ringloom.hw.config import load
from ringloom.hw.ring import lane, turn
from ringloom.hw.ring.flit import NETWORKS, buffer_flits, stops
from ringloom.hw.ring.link import LinkStages
from tests.support.proof import check, mutated

STILL = 2  # cycles without a move


class Loop(wiring.Component):
    """One direction of a ring of three stops, whose flits have a destination and nothing else.

    alone: network 0 has the links to itself. taken: its sinks take what they are shown, and something must move.
    """

    def __init__(self, module, *, stages=0, depth=2, alone=False, taken=False):
        self.module, self.alone, self.taken = module, alone, taken
        self.config = load("tiny", {"tiles": 2, "ring.link_stages": stages, "ring.buffer_flits": depth})
        self.count = stops(self.config)
        super().__init__({**{f"offer{s}": In(NETWORKS) for s in range(self.count)},
                          **{f"take{s}": In(NETWORKS) for s in range(self.count)},
                          **{f"to{s}_{n}": In(2) for s in range(self.count) for n in range(NETWORKS)}})

    def elaborate(self, platform):
        m = Module()
        lanes = [self.module.Lane(config=self.config) for _ in range(self.count)]
        links = [LinkStages(config=self.config) for _ in range(self.count)]
        m.d.comb += Assume(~ResetSignal())
        for s, (each, link) in enumerate(zip(lanes, links, strict=True)):
            m.submodules[f"lane{s}"], m.submodules[f"link{s}"] = each, link
            wiring.connect(m, each.link_out, link.i)
            wiring.connect(m, link.o, lanes[(s + 1) % self.count].link_in)
            m.d.comb += each.stop.eq(s)
            for n in range(NETWORKS):
                destination = getattr(self, f"to{s}_{n}")
                m.d.comb += [
                    Assume(destination < self.count),
                    each.inject[n].valid.eq(getattr(self, f"offer{s}")[n]),
                    each.inject[n].payload.destination.eq(destination),
                    each.eject[n].ready.eq(getattr(self, f"take{s}")[n]),
                ]
        for n in range(NETWORKS):
            self._places(m, n, lanes, links)
        if self.alone:
            for s, (each, link) in enumerate(zip(lanes, links, strict=True)):
                m.d.comb += [Assume(getattr(self, f"offer{s}")[1:] == 0), Assert(~link.i.valid | (link.i.network == 0))]
                m.d.comb += [Assert(each.levels[n] == 0) for n in range(1, NETWORKS)]
        if self.taken:
            self._moves(m, lanes, links)
        return m

    def _wires(self, link, n):
        """The registers of a link that hold a flit of network n, and those that hold a credit."""
        ends = (link.i, link.o) if self.config.ring.link_stages else (link.i,)
        return [end.valid & (end.network == n) for end in ends], [end.credits[n] for end in ends]

    def _places(self, m, n, lanes, links):
        depth, free = buffer_flits(self.config), 0
        for s, (each, link) in enumerate(zip(lanes, links, strict=True)):
            flits, credits = self._wires(link, n)
            behind = lanes[(s + 1) % self.count]
            m.d.comb += [
                Assert(each.credits[n] + sum(flits) + behind.levels[n] + sum(credits) == depth),
                Assert(each.credits[n] <= depth),
                Assert(~(behind.link_in.valid & (behind.link_in.network == n)) | (behind.levels[n] != depth)),
            ]
            free += each.credits[n] + sum(credits)
        m.d.comb += Assert(free != 0)
        if n == 0:
            m.d.comb += Cover(free == 1)

    def _moves(self, m, lanes, links):
        """A flit or credit on the wires, or a flit that goes in or out, is a move."""
        m.d.comb += [Assume(getattr(self, f"take{s}")[0]) for s in range(self.count)]
        busy = Cat(each.levels[0] != 0 for each in lanes).any()
        wires = [wire for link in links for part in self._wires(link, 0) for wire in part]
        moved = Cat(*wires, *(each.inject[0].valid & each.inject[0].ready for each in lanes),
                    *(each.eject[0].valid for each in lanes)).any()
        still = Signal(range(STILL + 1))
        m.d.sync += still.eq(Mux(moved | ~busy, 0, still + (still != STILL)))
        m.d.comb += Assert(still != STILL)


class Rotation(wiring.Component):
    """One lane between any neighbours; a flit of network 0 that may go on goes within four cycles."""

    def __init__(self, module):
        self.module = module
        super().__init__({"offer": In(NETWORKS), "valid": In(1), "network": In(2), "to": In(2),
                          "credits": In(NETWORKS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.lane = each = self.module.Lane(config=load("tiny", {"tiles": 2, "ring.buffer_flits": 2}))
        m.d.comb += [
            Assume(~ResetSignal()), each.link_in.valid.eq(self.valid), each.link_in.network.eq(self.network),
            each.link_in.flit.destination.eq(self.to), each.link_out.credits.eq(self.credits),
        ]
        for n in range(NETWORKS):
            m.d.comb += [
                each.inject[n].valid.eq(self.offer[n]),
                Assume(~(self.valid & (self.network == n)) | (each.levels[n] != 2)),
                Assume(~self.credits[n] | (each.credits[n] != 2)),
                Assert(each.levels[n] <= 2), Assert(each.credits[n] <= 2),
            ]
        may = (each.levels[0] != 0) & ~each.eject[0].valid & (each.credits[0] != 0)
        waits = Signal(3)
        m.d.sync += waits.eq(Mux(may, waits + (waits != 7), 0))
        went = each.link_out.valid & (each.link_out.network == 0)
        with m.If(went):
            m.d.sync += waits.eq(may)
        m.d.comb += Assert(waits <= NETWORKS)
        return m


class Turns(wiring.Component):
    """The turns of three stops, joined."""

    def __init__(self, module):
        self.module = module
        super().__init__({**{f"{name}{s}": In(NETWORKS) for s in range(3) for name in ("waits", "passed", "injected")}})

    def elaborate(self, platform):
        m = Module()
        config = load("tiny", {"tiles": 2})
        turns = [self.module.Turn(config=config) for _ in range(3)]
        started = Signal()
        m.d.sync += started.eq(1)
        m.d.comb += Assume(~ResetSignal())
        for s, each in enumerate(turns):
            m.submodules[f"turn{s}"] = each
            m.d.comb += [each.stop.eq(s), turns[(s + 1) % 3].arrive.eq(each.leave)]
            for name in ("waits", "passed", "injected"):
                m.d.comb += getattr(each, name).eq(getattr(self, f"{name}{s}"))
            m.d.comb += Assume((each.injected & ~each.may) == 0)
        for n in range(NETWORKS):
            m.d.comb += Assert(sum(each.here[n] + each.leave[n] for each in turns) == started)
        return m


BOTH = ("", "-i")  # the base of an induction, then its step


@pytest.mark.parametrize("stages, depth", [(0, 2), (0, 3), (1, 2)])
def test_places_are_conserved_and_one_stays_free(stages, depth, tmp_path):
    assert check(Loop(lane, stages=stages, depth=depth), tmp_path, depth=2, modes=BOTH)


def test_a_loop_moves(tmp_path):
    assert check(Loop(lane, alone=True, taken=True), tmp_path, depth=STILL + 2, modes=BOTH)


def test_no_network_waits_for_the_others(tmp_path):
    assert check(Rotation(lane), tmp_path, depth=NETWORKS + 3, modes=BOTH)


def test_the_proof_reaches_the_last_free_place(tmp_path):
    assert check(Loop(lane, alone=True), tmp_path, depth=10, modes=("-c",))


def test_there_is_one_turn(tmp_path):
    assert check(Turns(turn), tmp_path, depth=2, modes=BOTH)


@pytest.mark.parametrize("old, new", [
    ("(credits > 1)", "(credits != 0)"),
    ("waiting[n] & (credits != 0)", "waiting[n]"),
    ("ejected | (chosen & through)", "ejected"),
    ("with m.If(chosen[n] != self.link_out.credits[n]):", "with m.If(self.link_out.credits[n] & ~chosen[n]):"),
], ids=["takes the bubble", "sends without a place", "keeps a credit", "spends none"])
def test_faults_of_credits_are_found(old, new, tmp_path):
    assert not check(Loop(mutated(lane, (old, new)), alone=True), tmp_path, depth=10)


def test_a_loop_that_stops_is_found(tmp_path):
    fault = mutated(lane, ("able[n].eq(through[n] | (", "able[n].eq((through[n] & (credits > 1)) | ("))
    assert not check(Loop(fault, alone=True, taken=True), tmp_path, depth=12)


def test_a_network_that_waits_is_found(tmp_path):
    assert not check(Rotation(mutated(lane, ("m.d.sync += [last.eq(n), ", "m.d.sync += ["))), tmp_path, depth=8)


@pytest.mark.parametrize("old, new", [("self.here & ~go", "self.here"), ("go) | self.arrive", "go)"),
                                      ("~started & (self.stop == 0)", "~started")])
def test_faults_of_turns_are_found(old, new, tmp_path):
    assert not check(Turns(mutated(turn, (old, new))), tmp_path, depth=6)
