"""Distances between commands: what happened too short a while ago.

An event in cycle t makes its lane ``busy`` in the cycles t+1 .. t+cycles-1, so that one decided in the first free
cycle comes ``cycles`` after it. Everything here is a vector that shifts or a bit that is set and cleared, so that a
simulator pays for events, not for counters that count.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Timer", "LaneHistory", "DelayRing"]

_SHIFTED = 63   # distances up to here are a vector that shifts, longer ones a counter


class Timer(wiring.Component):
    """One lane; a new start replaces what is left.

    Parameters
    ----------
    cycles : int
        Distance.

    Members
    -------
    start : In(1), busy : Out(1)
    """

    def __init__(self, *, cycles: int) -> None:
        self._cycles = cycles
        super().__init__({"start": In(1), "busy": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = self._cycles - 1
        if left < 1:
            return m
        if left <= _SHIFTED:
            line = Signal(left)
            m.d.sync += line.eq((line >> 1) | Mux(self.start, (1 << left) - 1, 0))
            m.d.comb += self.busy.eq(line[0])
        else:
            count = Signal(range(self._cycles))
            m.d.comb += self.busy.eq(count != 0)
            with m.If(self.start):
                m.d.sync += count.eq(left)
            with m.Elif(self.busy):
                m.d.sync += count.eq(count - 1)
        return m


class LaneHistory(wiring.Component):
    """A few lanes and a short distance: the starts of the last cycles, side by side.

    Parameters
    ----------
    lanes : int
        Number of lanes.
    cycles : int
        Distance.

    Members
    -------
    start : In(lanes), busy : Out(lanes)
    """

    def __init__(self, *, lanes: int, cycles: int) -> None:
        self._lanes = lanes
        self._cycles = cycles
        super().__init__({"start": In(lanes), "busy": Out(lanes)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages, lanes = self._cycles - 1, self._lanes
        if stages < 1:
            return m
        line = Signal(stages * lanes)
        m.d.sync += line.eq((line << lanes) | self.start)
        m.d.comb += self.busy.eq(reduce(or_, (line[k * lanes:(k + 1) * lanes] for k in range(stages))))
        return m


class DelayRing(wiring.Component):
    """Many lanes, one start a cycle, several distances: starts wait in a ring and end in their order.

    A lane is busy from its last start on.

    Parameters
    ----------
    lanes : int
        Number of lanes.
    cycles : tuple of int
        Distances.
    spacing : int
        Cycles between two starts, at least.

    Members
    -------
    start : In(1), lane : In
        A start, and of which lane.
    busy : Out(lanes), an array
        For each distance.
    """

    def __init__(self, *, lanes: int, cycles: tuple[int, ...], spacing: int) -> None:
        self._lanes = lanes
        self._cycles = cycles
        self._depth = 1 << (max(cycles) // spacing + 1).bit_length()
        super().__init__({"start": In(1), "lane": In(range(lanes)), "busy": Out(lanes).array(len(cycles))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, depth = self._lanes, self._depth
        line = Signal(max(2, max(self._cycles) - 1))   # bit k: a start k + 1 cycles ago
        m.d.sync += line.eq((line << 1) | self.start)
        free = Signal(range(depth))
        m.submodules.ring = ring = memory.Memory(shape=max(1, len(self.lane)), depth=depth, init=[])
        m.submodules.newest = newest = memory.Memory(shape=len(free), depth=lanes, init=[])
        put, note = ring.write_port(), newest.write_port()
        m.d.comb += [put.addr.eq(free), put.data.eq(self.lane), put.en.eq(self.start),
                     note.addr.eq(self.lane), note.data.eq(free), note.en.eq(self.start)]
        with m.If(self.start):
            m.d.sync += free.eq(free + 1)
        started = Signal(lanes)
        m.d.comb += started.eq(Mux(self.start, 1 << self.lane, 0))
        for index, distance in enumerate(self._cycles):
            if distance < 2:
                continue
            first = Signal(range(depth), name=f"first_{index}")
            get, check = ring.read_port(domain="comb"), newest.read_port(domain="comb")
            m.d.comb += [get.addr.eq(first), check.addr.eq(get.data)]
            busy = self.busy[index]
            with m.If(line[distance - 2]):
                m.d.sync += first.eq(first + 1)
                last = Mux(check.data == first, 1 << get.data, Const(0, lanes))
                m.d.sync += busy.eq((busy & ~last) | started)
            with m.Else():
                m.d.sync += busy.eq(busy | started)
        return m
