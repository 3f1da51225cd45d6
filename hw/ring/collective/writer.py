"""Results into memory: two streams of flits, the write side of each memory port."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import BEAT_BYTES, DeviceConfig
from ...control.engine import JobState
from ...memory.arbiter import port_of
from ...memory.port import BEAT_SHIFT, LEAF_TAG_BITS, STROBE_BITS, MemoryPort
from .schedule import SLOT_BITS, SLOTS, flit_bytes

__all__ = ["FlitWriter", "write_run_layout"]

_FLITS = 32       # flits that wait for a port: four turns of a 256-byte interleave
_IN_FLIGHT = 255  # writes of a port that are not acknowledged, at most


def write_run_layout(config: DeviceConfig) -> data.StructLayout:
    """The first ``bytes`` bytes of a flit go to ``address``, aligned to a beat."""
    return data.StructLayout({"address": config.address_bits, "data": config.ring.data_bits,
                              "bytes": range(flit_bytes(config) + 1), "slot": SLOT_BITS})


class FlitWriter(wiring.Component):
    """Queues flits at their port, and writes each as one beat or two. ``received`` goes before ``own``.

    A beat reaches its port's ``requests`` two cycles after its flit came. Throughput a flit a cycle from each stream
    while they go to different ports, and a beat a cycle and port.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    own, received : In(stream of write_run_layout)
    job : In(JobState)
    memory : Out(MemoryPort).array(P), writes alone; the tag is the command's slot
    pending : Out(SLOTS), the slot has writes that are not acknowledged
    errors : Out(SLOTS), memory answered one of them with an error
    quiet : Out, no write is unanswered
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        flit = stream.Signature(write_run_layout(config))
        memory = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "own": In(flit), "received": In(flit),
            "job": In(JobState(address_bits=config.address_bits)),
            "memory": Out(memory).array(config.ports),
            "pending": Out(SLOTS), "errors": Out(SLOTS), "quiet": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        layout = write_run_layout(config)
        entering, leaving, unanswered = [], [], []
        readies: dict[str, list] = {"own": [], "received": []}
        for index in range(config.ports):
            m.submodules[f"flits{index}"] = queue = fifo.SyncFIFO(width=layout.size, depth=_FLITS)
            mine = {name: Signal(name=f"{name}{index}") for name in readies}
            taken = Signal(name=f"taken{index}")
            chosen = Signal(layout, name=f"chosen{index}")
            for name, hit in mine.items():
                flit = getattr(self, name)
                m.d.comb += hit.eq(flit.valid & (port_of(config, flit.p.address) == index if config.ports > 1 else 1))
            m.d.comb += [chosen.eq(self.own.payload), taken.eq((mine["own"] | mine["received"]) & queue.w_rdy),
                         queue.w_en.eq(taken), queue.w_data.eq(chosen)]
            with m.If(mine["received"]):
                m.d.comb += chosen.eq(self.received.payload)
            readies["received"].append(mine["received"] & queue.w_rdy)
            readies["own"].append(mine["own"] & ~mine["received"] & queue.w_rdy)
            entering.append((taken, chosen))
            answer, count = self._port(m, index, queue)
            leaving.append(answer)
            unanswered.append(count)
        for name, terms in readies.items():
            m.d.comb += getattr(self, name).ready.eq(Cat(terms).any())
        m.d.comb += self.quiet.eq(~Cat(count.any() for count in unanswered).any())

        beats = flit_bytes(config) // BEAT_BYTES
        for slot in range(SLOTS):
            pending = Signal(range(config.ports * (_IN_FLIGHT + beats * _FLITS) + 1), name=f"pending{slot}")
            gain = sum(((chosen.bytes + BEAT_BYTES - 1) >> BEAT_SHIFT) * (taken & (chosen.slot == slot))
                       for taken, chosen in entering)
            loss = sum(answer & (tag == slot) for answer, tag, _ in leaving)
            with m.If(Cat(taken for taken, _ in entering).any() | Cat(answer for answer, _, _ in leaving).any()):
                m.d.sync += pending.eq(pending + gain - loss)
            m.d.comb += self.pending[slot].eq(pending.any())
            with m.If(Cat(answer & error & (tag == slot) for answer, tag, error in leaving).any()):
                m.d.sync += self.errors[slot].eq(1)
        return m

    def _port(self, m: Module, index: int, queue: fifo.SyncFIFO):
        """The way from a queue to its port; returns (answered, its tag, its error), and the count of unanswered."""
        memory = self.memory[index]
        head = data.View(write_run_layout(self._config), queue.r_data)
        size = flit_bytes(self._config)
        beat, last, take = Signal(name=f"beat{index}"), Signal(name=f"last{index}"), Signal(name=f"take{index}")
        count = Signal(range(_IN_FLIGHT + 1), name=f"unanswered{index}")
        strobe = Signal(size, name=f"strobe{index}")
        ones = Const((1 << size) - 1, size)
        request, write = memory.requests, memory.write_data
        # What a port has begun to offer it goes on offering when the job stops.
        request_valid, data_valid = Signal(name=f"request_valid{index}"), Signal(name=f"data_valid{index}")
        address = Signal(self._config.address_bits, name=f"address{index}")
        slot = Signal(SLOT_BITS, name=f"slot{index}")
        word, mask = Signal(8 * BEAT_BYTES, name=f"word{index}"), Signal(STROBE_BITS, name=f"mask{index}")
        m.d.comb += [
            last.eq((beat if size > BEAT_BYTES else 1) | (head.bytes <= BEAT_BYTES)),
            take.eq(queue.r_rdy & ~self.job.stop & (count != _IN_FLIGHT)
                    & (~request_valid | request.ready) & (~data_valid | write.ready)),
            queue.r_en.eq(take & last),
            strobe.eq(ones >> (size - head.bytes)[:len(head.bytes)]),
            request.valid.eq(request_valid), request.p.address.eq(address), request.p.write.eq(1),
            request.p.tag.eq(slot),
            request.p.context.eq(self.job.context), request.p.epoch.eq(self.job.epoch),
            write.valid.eq(data_valid), write.p.data.eq(word), write.p.strobe.eq(mask),
            memory.responses.ready.eq(1),
        ]
        with m.If(request.ready):
            m.d.sync += request_valid.eq(0)
        with m.If(write.ready):
            m.d.sync += data_valid.eq(0)
        with m.If(take):
            m.d.sync += [
                request_valid.eq(1), data_valid.eq(1), beat.eq(~last), slot.eq(head.slot),
                address.eq(head.address + (beat << BEAT_SHIFT)),
                word.eq(head.data.word_select(beat, 8 * BEAT_BYTES) if size > BEAT_BYTES else head.data),
                mask.eq(strobe.word_select(beat, BEAT_BYTES) if size > BEAT_BYTES else strobe),
            ]
        answer = Signal(name=f"answer{index}")
        m.d.comb += answer.eq(memory.responses.valid)
        with m.If(take != answer):
            m.d.sync += count.eq(count + take - answer)
        return (answer, memory.responses.p.tag[:SLOT_BITS], memory.responses.p.error), count
