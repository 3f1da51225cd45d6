"""This tile's vector, read ahead in the order in which the sums need it."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import BEAT_BYTES, DeviceConfig
from ...memory.port import BEAT_SHIFT, CONTEXT_BITS, EPOCH_BITS, LEAF_TAG_BITS, request_layout, response_layout
from ...memory.requester import Requester
from ...memory.rob import ReorderBuffer
from .runs import read_run
from .schedule import SLOT_BITS, block_bytes
from .unpacker import Unpacker, piece_layout

__all__ = ["VectorReader"]


class VectorReader(wiring.Component):
    """Runs of bytes -> requester -> reorder buffer -> two queues of flits.

    A line of memory goes to the queue of what is sent or of what ends here. Each queue has room for two blocks, so
    that a whole block which ends here lies ready while the next one is sent. Latency 2 cycles from a run to its first
    request, 4 from a response to its flit. Throughput a line a cycle, and a flit a cycle and queue.

    A line that comes with an error stays where it is, and so does everything behind it.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    runs : In(stream of read_run)
    context, epoch, stop : In
    requests : Out(stream).array(P), responses : In(stream).array(P)
    sends, ends : Out(stream of flits' data)
    error : Out, with error_slot, error_address (in lines) of the line
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        flit = stream.Signature(config.ring.data_bits)
        super().__init__({
            "runs": In(stream.Signature(read_run(config))),
            "context": In(CONTEXT_BITS), "epoch": In(EPOCH_BITS), "stop": In(1),
            "requests": Out(stream.Signature(request_layout(config.address_bits, LEAF_TAG_BITS))).array(config.ports),
            "responses": In(stream.Signature(response_layout(LEAF_TAG_BITS))).array(config.ports),
            "sends": Out(flit),
            "ends": Out(flit),
            "error": Out(1), "error_slot": Out(SLOT_BITS), "error_address": Out(config.address_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        ports = config.ports
        port_bits = (ports - 1).bit_length()
        m.submodules.requester = requester = Requester(config=config)
        m.submodules.buffer = buffer = ReorderBuffer(config=config)
        m.submodules.runs = runs = fifo.SyncFIFO(width=read_run(config).size, depth=4)
        entry = data.StructLayout({**piece_layout(config).members, "ends": 1, "slot": SLOT_BITS})
        m.submodules.asked = asked = fifo.SyncFIFO(width=entry.size, depth=256 // ports)

        # -- a run into lines
        m.d.comb += [runs.w_en.eq(self.runs.valid), runs.w_data.eq(self.runs.payload),
                     self.runs.ready.eq(runs.w_rdy)]
        run = data.View(read_run(config), runs.r_data)
        moved = Signal(range(block_bytes(config) // BEAT_BYTES + 1))  # beats of the run that are asked for
        beats, left = Signal.like(moved), Signal.like(moved)
        beat = Signal(config.address_bits - BEAT_SHIFT)
        first = beat[:port_bits]
        count = Signal(range(ports + 1))
        ready, go, last = Signal(), Signal(), Signal()
        written = Signal(entry)
        m.d.comb += [
            beats.eq((run.bytes + BEAT_BYTES - 1) >> BEAT_SHIFT),
            left.eq(beats - moved),
            beat.eq((run.address >> BEAT_SHIFT) + moved),
            count.eq(Mux(left < ports - first, left, ports - first)),
            last.eq(left == count),
            ready.eq(requester.lines.ready & buffer.claims.ready & asked.w_rdy),
            go.eq(runs.r_rdy & ready & ~self.stop & ~self.error),
            runs.r_en.eq(go & last),
            requester.lines.valid.eq(go), buffer.claims.valid.eq(go), asked.w_en.eq(go),
            requester.lines.p.address.eq(beat >> port_bits),
            requester.lines.p.beats.eq(((Const(1, 1) << count) - 1) << first),
            buffer.claims.payload.eq(requester.lines.payload),
            buffer.port.eq(requester.port), requester.slot.eq(buffer.slot),
            requester.context.eq(self.context), requester.epoch.eq(self.epoch),
            requester.stop.eq(self.stop | self.error),
            written.first.eq(first), written.beats.eq(count),
            written.upper.eq(moved[0]), written.whole.eq(moved[0] | last),
            written.ends.eq(run.ends), written.slot.eq(run.slot),
            asked.w_data.eq(written),
        ]
        with m.If(go):
            m.d.sync += moved.eq(Mux(last, 0, moved + count))
        for index in range(ports):
            wiring.connect(m, requester.requests[index], wiring.flipped(self.requests[index]))
            wiring.connect(m, wiring.flipped(self.responses[index]), buffer.responses[index])

        # -- lines to their queues
        line = data.View(entry, asked.r_data)
        fine = buffer.lines.valid & ~buffer.lines.p.error
        queues = []
        for name, port, mine in (("sends", self.sends, ~line.ends), ("ends", self.ends, line.ends)):
            m.submodules[name] = queue = Unpacker(config=config)
            wiring.connect(m, queue.flits, wiring.flipped(port))
            m.d.comb += [
                queue.i.valid.eq(fine & mine),
                queue.i.p.data.eq(buffer.lines.p.data),
                *(queue.i.p.piece[field].eq(line[field]) for field in piece_layout(config).members),
            ]
            queues.append(queue)
        m.d.comb += [
            buffer.lines.ready.eq(~buffer.lines.p.error & Mux(line.ends, queues[1].i.ready, queues[0].i.ready)),
            asked.r_en.eq(buffer.lines.valid & buffer.lines.ready),
            self.error.eq(buffer.lines.valid & buffer.lines.p.error),
            self.error_slot.eq(line.slot),
            self.error_address.eq(Cat(Const(0, BEAT_SHIFT + port_bits), buffer.lines.p.address)),
        ]
        return m
