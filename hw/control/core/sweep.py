"""How the management core reads, writes and tests device memory: one beat, or many beats in a row."""

import enum

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from ...memory.port import BEAT_BITS, BEAT_SHIFT, LEAF_TAG_BITS, STROBE_BITS, MemoryPort
from .bus import BusPort

__all__ = ["PORT", "SLOT_BITS", "SweepCommand", "SweepStatus", "MemorySweep"]

SLOT_BITS = 6
"""Bits of a tag: reads on their way."""
_WRITES = 4
_WORDS = BEAT_BITS // 32

PORT = {
    "address_low": 0x00,   # w: of the first beat
    "address_high": 0x04,
    "step": 0x08,          # w: bytes from one beat to the next, signed
    "count": 0x0C,         # w: beats
    "command": 0x10,       # w: SweepCommand bits; starts
    "status": 0x14,        # r: SweepStatus bits; bits 15:8 count answers, so that one who waits sees that it goes on
    "bad_low": 0x18,       # r: address of the first beat that was not as expected
    "bad_high": 0x1C,
    "word": 0x20,          # rw: eight words, the pattern; then a captured beat, or the first one not as expected
    "fill": 0x40,          # w: all eight words at once
}
"""Addresses of the unit, from the start of its region; the firmware's header is made from this table."""


class SweepCommand(enum.IntFlag):
    """What is done with each beat: first the read, then the write."""

    CHECK = 1        # read, and compare with the pattern
    WRITE = 2        # write the pattern
    WALK = 4         # the first beat, then those step, 2 step, 4 step ... behind it
    ADDRESSED = 8    # each word of the pattern is changed by the beat's number: its address / 32
    COMPLEMENT = 16  # what is written is the complement
    ZERO = 32        # what is written is zero
    CAPTURE = 64     # what is read becomes the words
    PORTS = 128      # each beat at every port: 0, 1, 2 ... is added without carry to the address's bits that choose one
    TILES = 256      # and in every tile's memory, likewise


class SweepStatus(enum.IntFlag):
    BUSY = 1
    BAD = 2          # a beat was not as expected, or could not be read or written
    OPEN = 4         # the words are still in use, or beats are still asked for


class MemorySweep(wiring.Component):
    """Goes over ``count`` beats of memory, and reads, compares and writes each.

    A march element, such as "read zeros, write ones, downwards", is one command. Throughput: an access a cycle, 64
    reads and then their latency. Where something was not as expected, the first such beat is kept and nothing more is
    compared.

    Parameters
    ----------
    config : DeviceConfig
        The device: memory.

    Members
    -------
    port : In(BusPort())
        As ``PORT`` has it. Latency 1; every address answers.
    memory : Out(MemoryPort(...))
        Tags of ``SLOT_BITS`` bits.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "port": In(BusPort()),
            "memory": Out(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        config, bits = self.config, self.config.address_bits
        request, response = self.port.requests, self.port.responses
        requests, writes, answers = self.memory.requests, self.memory.write_data, self.memory.responses
        place = request.payload.address[:7]
        put = Signal()
        m.d.comb += [request.ready.eq(1), put.eq(request.valid & request.payload.write), answers.ready.eq(1)]

        base, step, words = Signal(64), Signal(32), Signal(BEAT_BITS)
        count, left, command = Signal(32), Signal(32), Signal(len(SweepCommand))
        check, write, walk, addressed, complement, zero, capture, ports, tiles = command
        first, stride, address = Signal(bits), Signal(bits), Signal(bits)  # of all ports and tiles; of one
        port, tile = Signal(range(max(2, config.ports))), Signal(range(max(2, config.tiles)))
        m.d.comb += address.eq(first ^ Cat(Const(0, config.memory.interleave_bytes.bit_length() - 1), port)
                               ^ Cat(Const(0, config.memory.bytes.bit_length() - 1), tile))

        # -- accesses: the reads of 64 tags, each one's address kept, then a wait for all of them ------------------
        slot, reading, writing, second = Signal(SLOT_BITS), Signal(SLOT_BITS + 1), Signal(16), Signal()
        m.submodules.places = places = Memory(shape=bits, depth=1 << SLOT_BITS, init=[])
        m.submodules.data = owed = fifo.SyncFIFO(width=bits, depth=_WRITES)
        kept, asked = places.write_port(), places.read_port()
        reads = check | capture
        is_write, taken, ended = Signal(), Signal(), Signal()
        m.d.comb += [
            is_write.eq(write & (second | ~reads)),
            requests.valid.eq((left != 0) & Mux(is_write, owed.w_rdy, (slot != 0) | (reading == 0))),
            requests.payload.address.eq(address),
            requests.payload.write.eq(is_write),
            requests.payload.tag.eq(Mux(is_write, 0, slot)),
            taken.eq(requests.valid & requests.ready),
            ended.eq(taken & (is_write | ~write)),
            kept.addr.eq(slot), kept.data.eq(address), kept.en.eq(taken & ~is_write),
            owed.w_data.eq(address), owed.w_en.eq(taken & is_write),
            owed.r_en.eq(writes.valid & writes.ready),
            writes.valid.eq(owed.r_rdy),
            writes.payload.strobe.eq((1 << STROBE_BITS) - 1),
            writes.payload.data.eq(Mux(zero, 0, self._pattern(words, owed.r_data, addressed)
                                       ^ complement.replicate(BEAT_BITS))),
        ]
        m.d.sync += [
            reading.eq(reading + (taken & ~is_write) - (answers.valid & ~answers.payload.write)),
            writing.eq(writing + (taken & is_write) - (answers.valid & answers.payload.write)),
        ]
        with m.If(taken):
            m.d.sync += second.eq(~ended)
        with m.If(taken & ~is_write):
            m.d.sync += slot.eq(slot + 1)
        with m.If(ended):
            with m.If(tiles & (tile != config.tiles - 1)):
                m.d.sync += tile.eq(tile + 1)
            with m.Elif(ports & (port != config.ports - 1)):
                m.d.sync += [tile.eq(0), port.eq(port + 1)]
            with m.Else():
                m.d.sync += [tile.eq(0), port.eq(0), left.eq(left - 1),
                             first.eq(Mux(walk, base[:bits], first) + stride)]
                with m.If(walk):
                    m.d.sync += stride.eq(stride << 1)

        # -- answers: a cycle to find the beat's address, then they are compared -----------------------------------
        arrived, beat, broken, answered = Signal(), Signal(BEAT_BITS), Signal(), Signal(8)
        bad, bad_place = Signal(), Signal(bits)
        expected = Signal(BEAT_BITS)
        m.d.comb += [
            asked.addr.eq(answers.payload.tag), asked.en.eq(answers.valid),
            expected.eq(self._pattern(words, asked.data, addressed)),
        ]
        m.d.sync += [
            arrived.eq(answers.valid & ~answers.payload.write), beat.eq(answers.payload.data),
            broken.eq(answers.valid & answers.payload.error), answered.eq(answered + answers.valid),
        ]
        with m.If((arrived & check & (beat != expected) | broken) & ~bad):
            m.d.sync += [bad.eq(1), bad_place.eq(asked.data), words.eq(beat)]
        with m.If(arrived & capture):
            m.d.sync += words.eq(beat)

        # -- the core's side ---------------------------------------------------------------------------------------
        data = request.payload.data
        with m.Switch(place):
            targets = {PORT["address_low"]: base[:32], PORT["address_high"]: base[32:], PORT["step"]: step,
                       PORT["count"]: count, PORT["fill"]: words,
                       **{PORT["word"] + 4 * i: words.word_select(i, 32) for i in range(_WORDS)}}
            for offset, target in targets.items():
                with m.Case(offset):
                    with m.If(put):
                        m.d.sync += target.eq(data.replicate(len(target) // 32))
            with m.Case(PORT["command"]):
                with m.If(put):
                    m.d.sync += [command.eq(data), first.eq(base), stride.eq(step.as_signed()), left.eq(count),
                                 port.eq(0), tile.eq(0), slot.eq(0), bad.eq(0)]
        in_use, busy = Signal(), Signal()
        m.d.comb += [in_use.eq((left != 0) | owed.r_rdy | (reading != 0) | arrived), busy.eq(in_use | (writing != 0))]
        m.d.sync += [response.valid.eq(request.valid),
                     response.payload.data.eq(words.word_select(place[2:5], 32))]
        with m.Switch(place):
            with m.Case(PORT["status"]):
                m.d.sync += response.payload.data.eq(Cat(busy, bad, in_use, Const(0, 5), answered))
            with m.Case(PORT["bad_low"]):
                m.d.sync += response.payload.data.eq(bad_place)
            with m.Case(PORT["bad_high"]):
                m.d.sync += response.payload.data.eq(bad_place >> 32)
        return m

    @staticmethod
    def _pattern(words, address, addressed):
        number = (address >> BEAT_SHIFT)[:32]
        number = Cat(number, *(0,) * (32 - len(number)))
        return words ^ Mux(addressed, number, 0).replicate(_WORDS)
