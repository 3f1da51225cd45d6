"""Reads a job's records from memory, ahead of what is known about it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import BEAT_BYTES
from ..isa import RECORD_BYTES
from ..memory.port import BEAT_BITS, LEAF_TAG_BITS, request_layout, response_layout

__all__ = ["Fetcher", "SLOT_BEATS", "record_layout"]

RECORD_SLOTS = 16
SLOT_BEATS = RECORD_SLOTS * RECORD_BYTES // BEAT_BYTES
"""Beats in flight or waiting; their tags are 0 to ``SLOT_BEATS - 1``."""


def record_layout() -> data.StructLayout:
    """data: the 64 bytes of a record; error: memory could not read them."""
    return data.StructLayout({"data": 8 * RECORD_BYTES, "error": 1})


class Fetcher(wiring.Component):
    """Streams 64-byte records from ``address`` on, in order, with up to ``SLOT_BEATS`` beats asked for ahead.

    The first request shows one cycle after ``start``; it reads on behind the descriptor until the slots are full,
    up to ``limit``, and once ``end_valid`` has told where the job ends, up to ``end``. A record shows in the
    cycle after its last beat's response. Throughput one beat a cycle, one record every two.
    Beats may come back in any order. ``stop`` ends requests; ``drained`` tells that none is unanswered.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address.

    Members
    -------
    start, address, limit : begin at ``address`` (aligned, its first record below ``limit``); forgets all before
    end_valid, end : the first byte behind the job's records
    stop : In(1)
    drained : Out(1)
    records : Out(stream of record_layout())
    requests, responses : the read half of a memory port; every response is taken at once
    """

    def __init__(self, *, address_bits: int) -> None:
        self.address_bits = address_bits
        super().__init__({
            "start": In(1),
            "address": In(address_bits),
            "limit": In(address_bits + 1),
            "end_valid": In(1),
            "end": In(address_bits + 1),
            "stop": In(1),
            "drained": Out(1),
            "records": Out(stream.Signature(record_layout())),
            "requests": Out(stream.Signature(request_layout(address_bits, LEAF_TAG_BITS))),
            "responses": In(stream.Signature(response_layout(LEAF_TAG_BITS))),
        })

    def elaborate(self, platform):
        m = Module()
        half_bits = BEAT_BITS
        following = Signal(self.address_bits + 1)
        end = Signal(self.address_bits + 1)
        issued = Signal(range(2 * SLOT_BEATS))    # beats asked for, modulo twice the slots
        head = Signal(range(2 * RECORD_SLOTS))    # records handed on, modulo twice the slots
        outstanding = Signal(range(SLOT_BEATS + 1))
        arrived = [Signal(RECORD_SLOTS, name=f"arrived{k}") for k in range(2)]
        failed = Signal(RECORD_SLOTS)
        request, response = self.requests, self.responses

        # -- requests: a register that holds one until it is taken --------------------------------------
        used = Signal(range(2 * SLOT_BEATS))
        load = Signal()
        m.d.comb += [
            used.eq(issued - (head << 1)),
            load.eq((~request.valid | request.ready) & ~self.stop & (following < end) & (used < SLOT_BEATS)),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(load):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.address.eq(following),
                request.payload.tag.eq(issued[:-1]),
                following.eq(following + BEAT_BYTES),
                issued.eq(issued + 1),
            ]
        with m.If(self.end_valid):
            m.d.sync += end.eq(self.end)

        # -- responses: a memory for each half of a record -----------------------------------------------
        taken = response.valid & response.ready
        slot = response.payload.tag[1:issued.shape().width - 1]
        m.d.comb += response.ready.eq(1)
        for k in range(2):
            memory = Memory(shape=half_bits, depth=RECORD_SLOTS, init=[])
            m.submodules[f"half{k}"] = memory
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(slot),
                write.data.eq(response.payload.data),
                write.en.eq(taken & (response.payload.tag[0] == k)),
                read.addr.eq(head[:-1]),
                self.records.payload.data[k * half_bits:(k + 1) * half_bits].eq(read.data),
            ]
            with m.If(write.en):
                m.d.sync += arrived[k].bit_select(slot, 1).eq(1)
        with m.If(taken & response.payload.error):
            m.d.sync += failed.bit_select(slot, 1).eq(1)
        m.d.sync += outstanding.eq(outstanding + load - taken)
        m.d.comb += self.drained.eq(outstanding == 0)

        # -- records -------------------------------------------------------------------------------------
        index = head[:-1]
        m.d.comb += [
            self.records.valid.eq(Cat(a.bit_select(index, 1) for a in arrived).all()),
            self.records.payload.error.eq(failed.bit_select(index, 1)),
        ]
        with m.If(self.records.valid & self.records.ready):
            m.d.sync += [a.bit_select(index, 1).eq(0) for a in arrived]
            m.d.sync += [failed.bit_select(index, 1).eq(0), head.eq(head + 1)]

        with m.If(self.start):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.address.eq(self.address),
                request.payload.tag.eq(0),
                following.eq(self.address + BEAT_BYTES),
                end.eq(self.limit & ~(RECORD_BYTES - 1)),
                issued.eq(1),
                head.eq(0),
                outstanding.eq(1),
                failed.eq(0),
            ]
            m.d.sync += [a.eq(0) for a in arrived]
        return m
