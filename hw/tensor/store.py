"""The STORE engine: accumulators -> requantizer lanes -> lines -> memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import DeviceConfig
from ..control.engine import STORE_EVENTS, EnginePort, JobState
from ..isa import STORE, Code, Rounding
from ..memory.line_writer import SLOT_BITS, SLOTS, LineWriter
from ..memory.port import LEAF_TAG_BITS, MemoryPort
from .ports import AccumulatorRead, ParameterRead
from .requantizer import LATENCY, Requantizer, requantizer_layout
from .store_sequencer import StoreSequencer

__all__ = ["StoreEngine"]


class StoreEngine(wiring.Component):
    """Writes ``rows`` x ``columns`` accumulators to memory as int32 (RAW) or as requantized bytes.

    ``lanes`` columns a cycle, without a gap between rows, blocks of columns and commands, as long as the
    accumulators and memory allow. Everything that can wait or fail is settled before an accumulator is read: its
    addresses are checked, and room for the line is reserved; behind that, data is never held back.

    Cycles from an accepted command to the first accumulator read: 2; from a read to the beat it completes, at
    ``requests``: 4 when RAW, 9 otherwise. A RAW command waits for requantized groups before it to pass the lanes.
    Up to four commands are in the engine; ``done`` comes in order, the cycle after the last acknowledgement.

    A fault ends the engine's work: groups before it are written, nothing from it on. Addresses given with it:
    SCRATCHPAD_RANGE the word or record, MEMORY_WINDOW the first byte outside, MEMORY_ERROR row 0 of the command.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    port : In(EnginePort(STORE))
    job : In(JobState)
    memory : Out(MemoryPort).array(P), writes alone; the tag is the number of the command modulo four
    accumulator : Out(AccumulatorRead(config))
    parameters : Out(ParameterRead(config)), read only for a bias or a scale
    events : Out(STORE_EVENTS)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        memory = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "port": In(EnginePort(STORE)),
            "job": In(JobState(address_bits=config.address_bits)),
            "memory": Out(memory).array(config.ports),
            "accumulator": Out(AccumulatorRead(config)),
            "parameters": Out(ParameterRead(config)),
            "events": Out(STORE_EVENTS),
        })

    def elaborate(self, platform):
        m = Module()
        tile = self.config.tile
        lanes, columns = tile.lanes, tile.array.columns
        filled = columns - (tile.column_records - lanes)  # columns in the last group of a word
        m.submodules.sequencer = sequencer = StoreSequencer(config=self.config)
        m.submodules.writer = writer = LineWriter(config=self.config)
        m.submodules.requantizer = requantizer = Requantizer(lanes=lanes)
        connect(m, sequencer.commands, flipped(self.port.commands))
        connect(m, sequencer.job, flipped(self.job))
        connect(m, writer.job, flipped(self.job))
        for index in range(self.config.ports):
            connect(m, writer.memory[index], flipped(self.memory[index]))

        # A step goes when its line has room, its path through the lanes keeps the order, and its word can be read.
        step = sequencer.steps.payload
        raw = step.rounding == Rounding.RAW
        emits = step.op.emit_held | step.op.emit_merged
        in_lanes = Signal(LATENCY)  # steps of the last cycles that a RAW step would overtake
        open_, fire = Signal(), Signal()
        halt = self.job.stop | self.port.fault_valid | writer.errors.any()
        m.d.comb += [
            open_.eq(sequencer.steps.valid & ~halt & ~(raw & in_lanes.any())
                     & (~emits | writer.space.bit_select(writer.port_of(step.op.line), 1))),
            self.accumulator.valid.eq(open_ & step.read),
            self.accumulator.address.eq(step.accumulator),
            fire.eq(open_ & (~step.read | self.accumulator.ready)),
            sequencer.steps.ready.eq(fire),
            self.parameters.enable.eq(fire & ~step.flush & (step.bias | ~raw)),
            self.parameters.address.eq(step.parameter),
            writer.op_valid.eq(fire),
            writer.op.eq(step.op),
        ]
        m.d.sync += in_lanes.eq(Cat(fire & ~raw, in_lanes[:-1]))

        # The word has been read: pick the group, add the bias.
        picked, first, add_bias = Signal(), Signal(), Signal()
        picked_raw, picked_short = Signal(), Signal()
        settings = Signal(data.StructLayout({"rounding": Rounding, "clamp_low": signed(16), "clamp_high": signed(16)}))
        rest = Signal(data.ArrayLayout(signed(32), max(1, columns - lanes)))
        group_raw, group_short, group_valid = Signal(), Signal(), Signal()
        group = Signal(requantizer_layout(lanes))
        m.d.sync += [picked.eq(fire), group_valid.eq(picked)]
        with m.If(fire):
            m.d.sync += [
                first.eq(step.read),
                add_bias.eq(step.bias),
                picked_raw.eq(raw),
                picked_short.eq(step.short),
                settings.rounding.eq(step.rounding),
                settings.clamp_low.eq(step.clamp_low),
                settings.clamp_high.eq(step.clamp_high),
            ]
        with m.If(picked):
            word = self.accumulator.data
            m.d.sync += [
                group_raw.eq(picked_raw),
                group_short.eq(picked_short),
                group.rounding.eq(settings.rounding),
                group.clamp_low.eq(settings.clamp_low),
                group.clamp_high.eq(settings.clamp_high),
            ]
            for column in range(columns - lanes):
                after = column + lanes
                m.d.sync += rest[column].eq(
                    Mux(first, word[after], rest[after] if after < columns - lanes else rest[column]))
            for lane in range(min(lanes, columns)):
                record = self.parameters.data[lane]
                value = Mux(first, word[lane], rest[lane]) if lane < columns - lanes else word[lane]
                biased = (value + Mux(add_bias, record.bias, 0))[:32]
                if lane >= filled:
                    biased = Mux(picked_short, 0, biased)
                m.d.sync += [
                    group.accumulators[lane].eq(biased),
                    group.scales[lane].eq(record.scale),
                    group.zero_points[lane].eq(record.zero_point),
                ]

        # Through the lanes or past them, into lines. Lanes without a column give zeros, as the next group follows.
        straight = group_valid & group_raw
        outputs = Signal(8 * lanes)
        short_in_lanes = Signal(LATENCY)
        m.d.comb += outputs.eq(requantizer.o)
        if filled < lanes:
            m.d.sync += short_in_lanes.eq(Cat(group_short, short_in_lanes[:-1]))
            with m.If(short_in_lanes[-1]):
                m.d.comb += outputs.eq(requantizer.o.as_value()[:8 * filled])
        m.d.comb += [
            requantizer.i.eq(group),
            requantizer.i_valid.eq(group_valid & ~group_raw),
            writer.group_valid.eq(straight | requantizer.o_valid),
            writer.group.eq(Mux(straight, group.accumulators, outputs)),
        ]

        # Commands end in order, when memory has acknowledged the last of their lines.
        head, used = Signal(SLOT_BITS), Signal(range(SLOTS + 1))
        complete = Signal(SLOTS)
        bases = Signal(data.ArrayLayout(64, SLOTS))
        accepted = self.port.commands.valid & self.port.commands.ready
        failed = writer.errors.bit_select(head, 1) & used.any()
        m.d.comb += [
            sequencer.room.eq(used != SLOTS),
            self.port.done.eq(complete.bit_select(head, 1) & ~writer.pending.bit_select(head, 1)
                              & ~writer.errors.bit_select(head, 1) & ~self.port.fault_valid),
            self.port.busy.eq(used.any()),
            self.port.quiet.eq(writer.quiet),
        ]
        m.d.sync += used.eq(used + accepted - self.port.done)
        with m.If(self.port.done):
            m.d.sync += [head.eq(head + 1), complete.bit_select(head, 1).eq(0)]
        with m.If(fire & step.last):
            m.d.sync += complete.bit_select(step.op.slot, 1).eq(1)
        with m.If(accepted):
            m.d.sync += bases[(sequencer.slot + 1)[:SLOT_BITS]].eq(self.port.commands.payload.address)
        with m.If(~self.port.fault_valid):
            with m.If(failed):
                m.d.sync += [
                    self.port.fault_valid.eq(1),
                    self.port.fault.code.eq(Code.MEMORY_ERROR),
                    self.port.fault.address.eq(bases[head]),
                ]
            with m.Elif(sequencer.fault_valid & (used == 1)):
                m.d.sync += [self.port.fault_valid.eq(1), self.port.fault.eq(sequencer.fault)]

        m.d.comb += [
            self.events.bytes.eq(Mux(fire, step.bytes, 0)),
            self.events.wait.eq(writer.wait),
            self.events.wait_accumulator.eq(self.accumulator.valid & ~self.accumulator.ready),
            self.events.writing.eq(~writer.quiet),
        ]
        return m
