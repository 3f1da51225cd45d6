"""What of the RING engine a job's end clears: commands, sequencers, lanes, reads and writes."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import DeviceConfig
from ...control.engine import RING_EVENTS, EnginePort, JobState
from ...isa import RING, Code
from ...memory.port import LEAF_TAG_BITS, MemoryPort
from ..flit import NUMBER_BITS, STOP_BITS, collective_body
from .command import CommandCheck
from .ends import Received
from .reader import VectorReader
from .results import ResultLane
from .schedule import SLOT_BITS, SLOTS, flit_bytes, plan_layout
from .sequencer import ResultSequencer, SumSequencer
from .share import ReadWriteShare
from .sums import SumLane
from .writer import FlitWriter

__all__ = ["CollectiveCore"]


class CollectiveCore(wiring.Component):
    """Commands -> plans -> two sequencers -> reader, lane of sums, lane of results, writer.

    Everything on the way keeps the order of commands; a command is done when each of its ends has come to the end of
    its lane and its writes are acknowledged.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    port, job, tile, memory, events : as ``RingEngine`` has them
    sums_out, results_out : Out(stream of collective_body)
    sums_in, results_in : Out(Received)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        memory = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        body = stream.Signature(collective_body(config))
        super().__init__({
            "port": In(EnginePort(RING)),
            "job": In(JobState(address_bits=config.address_bits)),
            "tile": In(STOP_BITS),
            "memory": Out(memory).array(config.ports),
            "sums_out": Out(body), "results_out": Out(body),
            "sums_in": Out(Received(config)), "results_in": Out(Received(config)),
            "events": Out(RING_EVENTS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.check = check = CommandCheck(config=config)
        m.submodules.sum_sequencer = sum_sequencer = SumSequencer(config=config)
        m.submodules.result_sequencer = result_sequencer = ResultSequencer(config=config)
        m.submodules.reader = reader = VectorReader(config=config)
        m.submodules.sums = sums = SumLane(config=config)
        m.submodules.results = results = ResultLane(config=config)
        m.submodules.writer = writer = FlitWriter(config=config)
        connect(m, flipped(self.port.commands), check.commands)
        connect(m, writer.job, flipped(self.job))
        connect(m, sum_sequencer.reads, reader.runs)
        for lane, sequencer, names in ((sums, sum_sequencer, ("receives", "sends", "ends")),
                                       (results, result_sequencer, ("receives", "sends", "owns"))):
            for name in names:
                connect(m, getattr(sequencer, name), getattr(lane, f"runs_{name[:-1]}"))
        connect(m, reader.sends, sums.local_send)
        connect(m, reader.ends, sums.local_end)
        connect(m, sums.result, results.own)
        connect(m, sums.send, flipped(self.sums_out))
        connect(m, results.send, flipped(self.results_out))
        connect(m, sums.received, flipped(self.sums_in))
        connect(m, results.received, flipped(self.results_in))
        connect(m, results.write_own, writer.own)
        connect(m, results.write_received, writer.received)
        for index in range(config.ports):
            m.submodules[f"share{index}"] = share = ReadWriteShare(address_bits=config.address_bits)
            connect(m, reader.requests[index], share.reads)
            connect(m, share.read_responses, reader.responses[index])
            connect(m, writer.memory[index], share.writes)
            connect(m, share.o, flipped(self.memory[index]))
        m.d.comb += [
            check.tile.eq(self.tile),
            check.window_base.eq(self.job.window_base), check.window_limit.eq(self.job.window_limit),
            reader.context.eq(self.job.context), reader.epoch.eq(self.job.epoch), reader.stop.eq(self.job.stop),
        ]
        self._commands(m, check, (sum_sequencer, result_sequencer), sums, results, writer, reader)
        self._events(m, sums, results)
        return m

    def _commands(self, m: Module, check, sequencers, sums, results, writer, reader) -> None:
        """Slots: from a plan to ``done``."""
        layout = plan_layout(self._config)
        numbers = Signal(ArrayLayout(NUMBER_BITS, SLOTS))
        saturate = Signal(SLOTS)
        destinations = Array(Signal(self._config.address_bits, name=f"destination{slot}") for slot in range(SLOTS))
        level = Signal(range(SLOTS + 1))
        oldest, newest = Signal(SLOT_BITS), Signal(SLOT_BITS)
        issue, done = Signal(), Signal()
        plan = Signal(layout)
        queues = []
        for name, sequencer in zip(("sum", "result"), sequencers, strict=True):
            m.submodules[f"{name}_plans"] = queue = SyncFIFO(width=layout.size, depth=SLOTS)
            m.d.comb += [queue.w_en.eq(issue), queue.w_data.eq(plan),
                         sequencer.plans.valid.eq(queue.r_rdy), sequencer.plans.payload.eq(queue.r_data),
                         queue.r_en.eq(sequencer.plans.ready)]
            queues.append(queue)
        m.d.comb += [
            plan.eq(check.plans.payload), plan.slot.eq(newest),
            check.plans.ready.eq((level != SLOTS) & ~self.job.stop),
            issue.eq(check.plans.valid & check.plans.ready),
        ]
        with m.If(issue):
            m.d.sync += [numbers[newest].eq(check.record.number), newest.eq(newest + 1),
                         saturate.bit_select(newest, 1).eq(check.record.saturate),
                         destinations[newest].eq(check.record.destination)]
        with m.If(done):
            m.d.sync += oldest.eq(oldest + 1)
        with m.If(issue != done):
            m.d.sync += level.eq(Mux(done, level - 1, level + 1))
        for lane in (sums, results):
            m.d.comb += [lane.numbers.eq(numbers), lane.oldest.eq(numbers[oldest]), lane.running.eq(level != 0)]
        m.d.comb += sums.saturate.eq(saturate)

        # -- ends come in order in each lane, those of later commands before all of the oldest are there
        ends = []
        for index, ended in enumerate((sums.ended, *results.ended)):
            count = Signal(range(SLOTS + 1), name=f"ended{index}")
            with m.If(ended != done):
                m.d.sync += count.eq(Mux(done, count - 1, count + 1))
            ends.append(count.any())
        failed = writer.errors.bit_select(oldest, 1)
        m.d.comb += [
            done.eq((level != 0) & Cat(ends).all() & ~writer.pending.bit_select(oldest, 1) & ~failed
                    & ~self.job.stop),
            self.port.done.eq(done),
            self.port.busy.eq((level != 0) | check.busy),
        ]
        with m.If((level != 0) & failed):
            m.d.comb += [self.port.fault_valid.eq(1), self.port.fault.code.eq(Code.MEMORY_ERROR),
                         self.port.fault.address.eq(destinations[oldest])]
        with m.Elif((level != 0) & reader.error):
            m.d.comb += [self.port.fault_valid.eq(reader.error_slot == oldest),
                         self.port.fault.code.eq(Code.MEMORY_ERROR),
                         self.port.fault.address.eq(reader.error_address)]
        with m.Elif(check.fault_valid):
            m.d.comb += [self.port.fault_valid.eq(level == 0), self.port.fault.eq(check.fault)]

        reads = Signal(range(257))
        asked = Cat(port.valid & port.ready for port in reader.requests)
        answered = Cat(port.valid for port in reader.responses)
        with m.If(asked.any() | answered.any()):
            m.d.sync += reads.eq(reads + sum(asked) - sum(answered))
        m.d.comb += self.port.quiet.eq(
            (reads == 0) & writer.quiet
            & ~Cat((port.requests.valid, port.write_data.valid) for port in self.memory).any())

    def _events(self, m: Module, sums, results) -> None:
        size = flit_bytes(self._config)
        sent = [way.valid & way.ready for way in (self.sums_out, self.results_out)]
        moved = (*sent, sums.received.take, results.received.take, sums.result.valid & sums.result.ready,
                 *(port.responses.valid for port in self.memory))
        m.d.comb += [
            self.events.bytes.eq(sum(sent) << (size - 1).bit_length()),
            self.events.wait.eq(Cat(port.requests.valid & ~port.requests.ready for port in self.memory).any()),
            self.events.progress.eq(Cat(moved).any()),
            self.events.active.eq(self.port.busy),
        ]
