"""The write side of STORE: bytes of rows, in order, into lines, and lines to the memory ports."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from ..config import BEAT_BYTES, DeviceConfig
from ..control.engine import JobState
from .port import BEAT_SHIFT, LEAF_TAG_BITS, MemoryPort, write_layout

__all__ = ["SLOTS", "SLOT_BITS", "LineShape", "LineWriter", "op_layout"]

SLOT_BITS = 2
SLOTS = 1 << SLOT_BITS
"""Commands whose writes may be in flight at once."""

_OPS = 16        # groups on their way through the lanes, at most
_LINES = 16      # lines waiting for a port: two turns of a 256-byte interleave
_IN_FLIGHT = 255  # writes of a port that are not acknowledged, at most


class LineShape:
    """A line of the writer: as many bytes as a group of raw columns has, and at least a beat."""

    def __init__(self, config: DeviceConfig) -> None:
        self.bytes = max(BEAT_BYTES, 4 * config.tile.lanes)
        self.beats = self.bytes // BEAT_BYTES
        self.offset_bits = (self.bytes - 1).bit_length()
        self.stop_bits = self.bytes.bit_length()   # 1 .. bytes
        self.count_bits = self.bytes.bit_length()
        self.line_bits = config.address_bits - self.offset_bits


def op_layout(config: DeviceConfig) -> data.StructLayout:
    """What to do with a group of bytes that begins at ``offset`` of a line.

    emit_held: write the line held, then hold the group. emit_merged: add the group to the line held, write it, and
    hold what goes beyond its end. Neither: add the group to the line held. hold: something is held afterwards. The
    line written has number ``line``, counts from byte ``start`` up to ``stop``, and is acknowledged to ``slot``.
    """
    shape = LineShape(config)
    return data.StructLayout({
        "slot": SLOT_BITS, "offset": shape.offset_bits, "hold": 1, "emit_held": 1, "emit_merged": 1,
        "line": shape.line_bits, "start": shape.offset_bits, "stop": shape.stop_bits,
    })


class LineWriter(wiring.Component):
    """Packs groups of bytes into lines and writes each line, with strobes, through the port whose share it is in.

    The plan of a group (``ops``) comes first and reserves room in the queue of its port; the group follows in the
    same order some cycles later and is never held back. One group a cycle; a group reaches its port's ``requests``
    two cycles after it came. Each port takes a beat a cycle from a queue of its own, so all of them work at once.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    op_valid, op : In(1), In(op_layout(config)), at most 16 before their groups
    space : Out(P), room for a line in the queue of a port; an op that emits needs it for its line's port
    group_valid, group : In(1), In(8 * LineShape(config).bytes)
    job : In(JobState)
    memory : Out(MemoryPort).array(P)
    pending : Out(SLOTS), the slot has lines that are not acknowledged
    errors : Out(SLOTS), memory answered one of the slot's writes with an error
    quiet : Out(1), no write is unanswered
    wait : Out(1), memory does not take what a port offers
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        self.shape = LineShape(config)
        port = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "op_valid": In(1),
            "op": In(op_layout(config)),
            "space": Out(config.ports),
            "group_valid": In(1),
            "group": In(8 * self.shape.bytes),
            "job": In(JobState(address_bits=config.address_bits)),
            "memory": Out(port).array(config.ports),
            "pending": Out(SLOTS),
            "errors": Out(SLOTS),
            "quiet": Out(1),
            "wait": Out(1),
        })

    def port_of(self, line):
        """The port whose share line number ``line`` lies in."""
        shift = (self.config.memory.interleave_bytes // self.shape.bytes).bit_length() - 1
        return line[shift:shift + (self.config.ports - 1).bit_length()]

    def elaborate(self, platform):
        m = Module()
        ports, shape = self.config.ports, self.shape
        entry_layout = data.StructLayout({"data": 8 * shape.bytes, "start": shape.offset_bits,
                                          "stop": shape.stop_bits, "line": shape.line_bits, "slot": SLOT_BITS})

        # The plan waits for its group.
        op_bits = op_layout(self.config)
        m.submodules.ops = ops = SyncFIFO(width=op_bits.size, depth=_OPS)
        op = data.View(op_bits, ops.r_data)
        m.d.comb += [ops.w_en.eq(self.op_valid), ops.w_data.eq(self.op), ops.r_en.eq(self.group_valid)]

        # Bytes outside the group are garbage: what they reach is not in the strobe, or not held.
        placed = Signal(16 * shape.bytes)
        held = Signal(8 * shape.bytes)
        entry = Signal(entry_layout)
        low, high = placed[:8 * shape.bytes], placed[8 * shape.bytes:]
        merged = Signal(8 * shape.bytes)
        m.d.comb += [
            placed.eq(self.group << Cat(Const(0, 3), op.offset)),
            merged.eq(held | low),
            entry.data.eq(Mux(op.emit_held, held, merged)),
            entry.start.eq(op.start),
            entry.stop.eq(op.stop),
            entry.line.eq(op.line),
            entry.slot.eq(op.slot),
        ]
        with m.If(self.group_valid):
            with m.If(~op.hold):
                m.d.sync += held.eq(0)
            with m.Elif(op.emit_held):
                m.d.sync += held.eq(low)
            with m.Elif(op.emit_merged):
                m.d.sync += held.eq(high)
            with m.Else():
                m.d.sync += held.eq(merged)

        more, acknowledged, unanswered, waits = [], [], [], []
        for index in range(ports):
            m.submodules[f"lines{index}"] = lines = SyncFIFO(width=entry_layout.size, depth=_LINES)
            m.d.comb += [
                lines.w_en.eq(self.group_valid & (op.emit_held | op.emit_merged) & (self.port_of(op.line) == index)),
                lines.w_data.eq(entry),
            ]
            head = data.View(entry_layout, lines.r_data)
            memory = self.memory[index]
            response = memory.responses
            count = Signal(range(_IN_FLIGHT + 1), name=f"unanswered{index}")
            request_valid = Signal(name=f"request_valid{index}")
            data_valid = Signal(name=f"data_valid{index}")
            request = Signal(memory.requests.payload.shape(), name=f"request{index}")
            write = Signal(write_layout(), name=f"write{index}")
            take = Signal(name=f"take{index}")
            last = Signal(name=f"last{index}")
            answer = Signal(name=f"answer{index}")
            m.d.comb += [
                memory.requests.valid.eq(request_valid),
                memory.requests.payload.eq(request),
                memory.write_data.valid.eq(data_valid),
                memory.write_data.payload.eq(write),
                response.ready.eq(1),
                answer.eq(response.valid & response.payload.write),
                # What a port has begun to offer it goes on offering when the job stops.
                take.eq(lines.r_rdy & ~self.job.stop & (count != _IN_FLIGHT)
                        & (~request_valid | memory.requests.ready) & (~data_valid | memory.write_data.ready)),
                lines.r_en.eq(take & last),
            ]
            # Strobes from the ends of the run of bytes; a beat without one is not written.
            strobe = Signal(shape.bytes, name=f"strobe{index}")
            ones = (1 << shape.bytes) - 1
            m.d.comb += strobe.eq((Const(ones, shape.bytes) >> (shape.bytes - head.stop)[:shape.stop_bits])
                                  & ~(Const(ones, shape.bytes) >> (shape.bytes - head.start)[:shape.stop_bits]))
            if shape.beats == 1:
                beat = Const(0, 0)
                m.d.comb += last.eq(1)
                with m.If(take):
                    m.d.sync += [write.data.eq(head.data), write.strobe.eq(strobe)]
            else:
                second = Signal(name=f"second{index}")
                beat = Signal(name=f"beat{index}")
                m.d.comb += [
                    beat.eq(second | (head.start >= BEAT_BYTES)),
                    last.eq(beat == (head.stop > BEAT_BYTES)),
                ]
                with m.If(take):
                    m.d.sync += [
                        second.eq(~last),
                        write.data.eq(head.data.word_select(beat, 8 * BEAT_BYTES)),
                        write.strobe.eq(strobe.word_select(beat, BEAT_BYTES)),
                    ]
            with m.If(memory.requests.ready):
                m.d.sync += request_valid.eq(0)
            with m.If(memory.write_data.ready):
                m.d.sync += data_valid.eq(0)
            with m.If(take):
                m.d.sync += [
                    request_valid.eq(1),
                    data_valid.eq(1),
                    request.address.eq(Cat(Const(0, BEAT_SHIFT), beat, head.line)),
                    request.write.eq(1),
                    request.tag.eq(head.slot),
                    request.context.eq(self.job.context),
                    request.epoch.eq(self.job.epoch),
                ]
            m.d.sync += count.eq(count + take - answer)
            free = Signal(range(_LINES + 1), init=_LINES, name=f"free{index}")
            reserve = self.op_valid & (self.op.emit_held | self.op.emit_merged) & (self.port_of(self.op.line) == index)
            m.d.sync += free.eq(free - reserve + lines.r_en)
            m.d.comb += self.space[index].eq(free.any())
            more.append((take & ~last, head.slot))
            acknowledged.append((answer, response.payload.tag[:SLOT_BITS], response.payload.error))
            unanswered.append(count.any())
            waits.append((request_valid & ~memory.requests.ready) | (data_valid & ~memory.write_data.ready))

        m.d.comb += [self.quiet.eq(~Cat(unanswered).any()), self.wait.eq(Cat(waits).any())]

        # Writes a slot still waits for: a line counts from its plan on, its second beat from when the first leaves.
        for slot in range(SLOTS):
            pending = Signal(range(ports * (_IN_FLIGHT + shape.beats * _LINES) + 1), name=f"pending{slot}")
            ours = self.op_valid & (self.op.emit_held | self.op.emit_merged) & (self.op.slot == slot)
            gain = ours + sum(begun & (of == slot) for begun, of in more)
            m.d.sync += pending.eq(pending + gain - sum(answer & (tag == slot) for answer, tag, _ in acknowledged))
            m.d.comb += self.pending[slot].eq(pending.any())
            with m.If(Cat(answer & error & (tag == slot) for answer, tag, error in acknowledged).any()):
                m.d.sync += self.errors[slot].eq(1)
        return m
