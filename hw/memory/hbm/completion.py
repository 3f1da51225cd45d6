"""From the column command to the response: data on the bus at its time, then a queue of responses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..port import BEAT_BITS, CONTEXT_BITS, EPOCH_BITS, TAG_BITS, response_layout, write_layout
from .timing import TimingSet

__all__ = ["Completion", "origin_layout", "RESPONSES", "LATENCY_BITS"]

RESPONSES = 32
"""Responses that can wait for their requester; no column command is issued without a place for its response."""

LATENCY_BITS = 16

_ACKNOWLEDGE = 1   # cycles from a write's burst to its response: storage has the bytes when the requester hears of it


def origin_layout(tag_bits: int = TAG_BITS) -> data.StructLayout:
    """What a response needs of its request; ``arrival`` is the cycle it came, for the latency."""
    return data.StructLayout({"tag": tag_bits, "context": CONTEXT_BITS, "epoch": EPOCH_BITS, "arrival": LATENCY_BITS})


class Completion(wiring.Component):
    """Keeps the rest of each request under its slot number until its response leaves.

    A slot is handed out at ``slot``, filled by ``accept``, and free again when its response enters the queue. A
    column command issued in cycle t shows on the bus in t+1; reads and writes end at times that never meet, so one
    line of delays serves both.

    Parameters
    ----------
    timing : TimingSet
        Latencies and burst.
    slots : int
        Requests between acceptance and response.
    tag_bits : int
        Bits of a tag.

    Members
    -------
    slot, slot_free : Out
        The next slot, and whether there is one.
    accept, origin : In
        The request that takes it.
    write_data_slot, write_data, write_enable : In
        A beat of write data for a slot.
    issue, issue_write, issue_slot : In
        A column command is decided in this cycle.
    room : Out(1)
        There is a place for one more response.
    burst : Out
        Write data and strobe on the command bus.
    read_data : In(256)
        The command bus.
    responses : Out(stream)
    empty : Out(1)
        No command waits for its response, no response for its requester.
    latency, latency_valid : Out
        Cycles from a read's acceptance to its response, in the cycle it enters the queue.
    """

    def __init__(self, *, timing: TimingSet, slots: int, tag_bits: int = TAG_BITS) -> None:
        self._timing = timing
        self._slots = slots
        self._tag_bits = tag_bits
        slot = range(slots)
        super().__init__({
            "slot": Out(slot), "slot_free": Out(1),
            "accept": In(1), "origin": In(origin_layout(tag_bits)),
            "write_data_slot": In(slot), "write_data": In(write_layout()), "write_enable": In(1),
            "issue": In(1), "issue_write": In(1), "issue_slot": In(slot),
            "room": Out(1),
            "burst": Out(write_layout()), "read_data": In(BEAT_BITS),
            "responses": Out(stream.Signature(response_layout(tag_bits))), "empty": Out(1),
            "now": In(LATENCY_BITS), "latency": Out(LATENCY_BITS), "latency_valid": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t, slots = self._timing, self._slots
        bits = (slots - 1).bit_length()

        # Slots: fresh ones first, then those that came back.
        m.submodules.returned = returned = memory.Memory(shape=bits, depth=slots, init=[])
        fresh = Signal(range(slots + 1))
        head, tail, level = Signal(range(slots)), Signal(range(slots)), Signal(range(slots + 1))
        take_back, give_back = returned.read_port(domain="comb"), returned.write_port()
        starting = Signal()
        m.d.comb += [
            starting.eq(fresh != slots),
            take_back.addr.eq(head),
            self.slot.eq(Mux(starting, fresh[:bits], take_back.data)),
            self.slot_free.eq(starting | (level != 0)),
        ]
        end = Signal()
        with m.If(self.accept & starting):
            m.d.sync += fresh.eq(fresh + 1)
        reuse = Signal()
        m.d.comb += reuse.eq(self.accept & ~starting)
        with m.If(reuse):
            m.d.sync += head.eq(head + 1)
        with m.If(end):
            m.d.sync += tail.eq(tail + 1)
        m.d.sync += level.eq(level + end - reuse)

        # A vector whose place k ends in k cycles; the command is on the bus one cycle after its decision. Data
        # bursts follow each other in the order of their commands, so queues hold the slots.
        read_end = t.cl + t.burst_clocks - 1
        write_end = t.cwl + t.burst_clocks - 1 + _ACKNOWLEDGE
        supply = _ACKNOWLEDGE + 1   # the memory of write data answers a cycle later: in the last of the burst
        ends, supplies = Signal(max(read_end, write_end) + 1), Signal(write_end - supply + 1)
        issued_write = self.issue & self.issue_write
        m.d.sync += [
            ends.eq((ends >> 1) | Mux(self.issue, Mux(self.issue_write, 1 << write_end, 1 << read_end), 0)),
            supplies.eq((supplies >> 1) | Mux(issued_write, 1 << (write_end - supply), 0)),
        ]
        m.submodules.ending = ending = _SlotQueue(bits=bits + 1)
        m.submodules.supplying = supplying = _SlotQueue(bits=bits)
        m.d.comb += [
            ending.push.eq(self.issue), ending.value.eq(Cat(self.issue_slot, self.issue_write)), ending.pop.eq(ends[1]),
            supplying.push.eq(issued_write), supplying.value.eq(self.issue_slot), supplying.pop.eq(supplies[0]),
        ]
        last_slot, last_write = Signal(bits), Signal()   # of what ends now
        with m.If(ends[1]):
            m.d.sync += Cat(last_slot, last_write).eq(ending.first)

        m.submodules.origins = origins = memory.Memory(shape=origin_layout(self._tag_bits), depth=slots, init=[])
        put_origin, get_origin = origins.write_port(), origins.read_port(domain="comb")
        m.submodules.data = written = memory.Memory(shape=write_layout(), depth=slots, init=[])
        put_data, get_data = written.write_port(), written.read_port()
        m.d.comb += [
            put_origin.addr.eq(self.slot), put_origin.data.eq(self.origin), put_origin.en.eq(self.accept),
            put_data.addr.eq(self.write_data_slot), put_data.data.eq(self.write_data),
            put_data.en.eq(self.write_enable),
            get_data.en.eq(supplies[0]), get_data.addr.eq(supplying.first),
            self.burst.eq(get_data.data),
            get_origin.addr.eq(last_slot),
            end.eq(ends[0]),
            give_back.addr.eq(tail), give_back.en.eq(end), give_back.data.eq(last_slot),
        ]

        # Responses.
        response = response_layout(self._tag_bits)
        m.submodules.queue = queue = memory.Memory(shape=response, depth=RESPONSES, init=[])
        put, get = queue.write_port(), queue.read_port(domain="comb")
        first, free = Signal(range(RESPONSES)), Signal(range(RESPONSES))
        waiting = Signal(range(RESPONSES + 1))
        places = Signal(range(RESPONSES + 1), init=RESPONSES)
        leave = Signal()
        m.d.comb += [
            leave.eq(self.responses.valid & self.responses.ready),
            put.addr.eq(free), put.en.eq(end),
            put.data.data.eq(self.read_data),
            put.data.write.eq(last_write),
            put.data.tag.eq(get_origin.data.tag),
            put.data.context.eq(get_origin.data.context),
            put.data.epoch.eq(get_origin.data.epoch),
            get.addr.eq(first),
            self.responses.payload.eq(get.data),
            self.responses.valid.eq(waiting != 0),
            self.room.eq(places != 0), self.empty.eq(places == RESPONSES),
            self.latency.eq(self.now - get_origin.data.arrival),
            self.latency_valid.eq(end & ~last_write),
        ]
        with m.If(end):
            m.d.sync += free.eq(free + 1)
        with m.If(leave):
            m.d.sync += first.eq(first + 1)
        m.d.sync += [waiting.eq(waiting + end - leave), places.eq(places + leave - self.issue)]
        return m


class _SlotQueue(wiring.Component):
    """Slots between a command and a moment of its burst: never full, and ``pop`` comes when there is one."""

    _DEPTH = 32

    def __init__(self, *, bits: int) -> None:
        super().__init__({"push": In(1), "value": In(bits), "pop": In(1), "first": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = store = memory.Memory(shape=len(self.value), depth=self._DEPTH, init=[])
        put, get = store.write_port(), store.read_port(domain="comb")
        head, tail = Signal(range(self._DEPTH)), Signal(range(self._DEPTH))
        m.d.comb += [put.addr.eq(tail), put.data.eq(self.value), put.en.eq(self.push),
                     get.addr.eq(head), self.first.eq(get.data)]
        with m.If(self.push):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.pop):
            m.d.sync += head.eq(head + 1)
        return m
