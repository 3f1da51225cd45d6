"""The LOAD engine: memory into the tile's scratchpads, as blocks, padded and transposed on the way."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import LOAD_EVENTS, EnginePort, JobState
from ..isa import LOAD, Code, Target
from .address import AddressGenerator
from .blocks import BlockWrite, block_shapes
from .packer import Packer, most_parts
from .port import LEAF_TAG_BITS, MemoryPort
from .requester import Requester
from .rob import ReorderBuffer
from .transposer import Transposer
from .walker import BLOCK_BITS

__all__ = ["LoadEngine"]

_COMMANDS_AHEAD = 4  # commands whose lines are asked for before the packer has come to them


class LoadEngine(wiring.Component):
    """Address generator -> requesters -> reorder buffer -> packer -> (transposer ->) write bus.

    Latency: 2 cycles from an accepted command to its first request, 3 cycles from a response to its block's write
    (transposed: 3 from the last row's). Throughput ``line_bytes`` a cycle; unaligned rows cost one cycle more each
    (transposed: each piece of a row). The next command's requests follow the last one's without a bubble.
    A command is done in the cycle that writes its last block.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    port : In(EnginePort(LOAD))
    job : In(JobState)
    memory : Out(MemoryPort).array(P)
    write : Out(BlockWrite)
    events : Out(LOAD_EVENTS)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        memory = MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)
        super().__init__({
            "port": In(EnginePort(LOAD)),
            "job": In(JobState(address_bits=config.address_bits)),
            "memory": Out(memory).array(config.ports),
            "write": Out(BlockWrite(config)),
            "events": Out(LOAD_EVENTS),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        m.submodules.generator = generator = AddressGenerator(config=config)
        m.submodules.requester = requester = Requester(config=config)
        m.submodules.buffer = buffer = ReorderBuffer(config=config)
        m.submodules.packer = packer = Packer(config=config)
        m.submodules.ahead = ahead = fifo.SyncFIFO(width=LOAD.layout.size, depth=_COMMANDS_AHEAD)

        range_fault, stopped = Signal(), Signal()
        m.d.comb += stopped.eq(self.job.stop | range_fault | packer.fault_valid)

        # -- commands, lines, requests
        wiring.connect(m, wiring.flipped(self.port.commands), generator.commands)
        m.d.comb += [
            generator.halt.eq(stopped),
            generator.window_base.eq(self.job.window_base), generator.window_limit.eq(self.job.window_limit),
            ahead.w_en.eq(generator.started.valid), ahead.w_data.eq(generator.started.payload),
            generator.started.ready.eq(ahead.w_rdy),
            packer.commands.valid.eq(ahead.r_rdy), packer.commands.payload.eq(ahead.r_data),
            ahead.r_en.eq(packer.commands.ready),
            # A line goes to its queue and takes its slot in the same cycle.
            requester.lines.payload.eq(generator.lines.payload), buffer.claims.payload.eq(generator.lines.payload),
            requester.lines.valid.eq(generator.lines.valid & buffer.claims.ready),
            buffer.claims.valid.eq(generator.lines.valid & requester.lines.ready),
            generator.lines.ready.eq(buffer.claims.ready & requester.lines.ready),
            requester.slot.eq(buffer.slot), buffer.port.eq(requester.port),
            requester.context.eq(self.job.context), requester.epoch.eq(self.job.epoch),
            requester.stop.eq(stopped),
        ]
        for index, port in enumerate(self.memory):
            wiring.connect(m, requester.requests[index], wiring.flipped(port.requests))
            wiring.connect(m, wiring.flipped(port.responses), buffer.responses[index])
        wiring.connect(m, buffer.lines, packer.lines)

        # -- blocks
        done, transposing, fault_address = self._write(m, packer, range_fault)

        # -- what the command processor and the counters see
        pending = Signal(range(_COMMANDS_AHEAD + 4))
        unanswered = Signal(range(257))
        asked = Cat(port.requests.valid & port.requests.ready for port in self.memory)
        answered = Cat(port.responses.valid for port in self.memory)
        waits = Cat(port.requests.valid & ~port.requests.ready for port in self.memory)
        started = generator.started.valid & generator.started.ready
        m.d.sync += [
            pending.eq(pending + started - done),
            unanswered.eq(unanswered + sum(asked) - sum(answered)),
        ]
        m.d.comb += [
            self.port.done.eq(done),
            self.port.busy.eq(generator.active | (pending != 0)),
            self.port.quiet.eq((unanswered == 0) & ~Cat(port.requests.valid for port in self.memory).any()),
            self.events.bytes.eq(packer.bytes),
            self.events.wait.eq(waits.any()),
            self.events.reading.eq(unanswered != 0),
        ]
        # A fault shows when every earlier command is done: at once on the write bus, behind the transposer in the
        # packer, and with nothing but the faulty command left in the address generator.
        with m.If(range_fault):
            m.d.comb += [self.port.fault_valid.eq(1), self.port.fault.code.eq(Code.SCRATCHPAD_RANGE),
                         self.port.fault.address.eq(fault_address)]
        with m.Elif(packer.fault_valid):
            m.d.comb += [self.port.fault_valid.eq(~packer.chunks.valid & ~transposing),
                         self.port.fault.eq(packer.fault)]
        with m.Elif(generator.fault_valid):
            m.d.comb += [self.port.fault_valid.eq(pending == generator.fault_started),
                         self.port.fault.eq(generator.fault)]
        return m

    def _write(self, m: Module, packer: Packer, range_fault: Signal):
        """The way from chunks to the write bus; returns (command done, transposer busy, address at fault)."""
        config, write, chunk = self._config, self.write, packer.chunks.p
        shapes = block_shapes(config)
        line_bits = 8 * config.line_bytes

        # One transposer for each block size.
        targets: dict[int, list[Target]] = {}
        for target in (Target.ACTIVATION, Target.WEIGHT):
            targets.setdefault(shapes[target].bytes, []).append(target)
        transposers = []
        for lanes, members in targets.items():
            transposer = Transposer(config=config, lanes=lanes, per_write=shapes[members[0]].per_write)
            m.submodules[f"transposer{lanes}"] = transposer
            transposers.append((transposer, members))
        busy = Cat(transposer.busy for transposer, _ in transposers).any()

        done, straight = Signal(), Signal()
        address, last_address = Signal(BLOCK_BITS), Signal(BLOCK_BITS)
        blocks = Signal(BLOCK_BITS)
        pitch = Signal(16)  # the record's: the bus has fewer bits, enough for blocks that are in range
        valid, bad, complete = Signal(), Signal(), Signal()
        fault_address = Signal(BLOCK_BITS)
        # Straight chunks wait until the blocks before them have left the transposer, and pass it by.
        m.d.comb += [
            straight.eq(packer.chunks.valid & ~chunk.transpose & ~busy),
            valid.eq(straight & chunk.whole),
            complete.eq(straight & chunk.done),
            address.eq(chunk.address), pitch.eq(chunk.pitch), write.count.eq(chunk.count),
            write.target.eq(chunk.target),
        ]
        with m.If(~chunk.transpose):
            m.d.comb += packer.chunks.ready.eq(~busy)
        for transposer, members in transposers:
            others = Cat(other.busy for other, _ in transposers if other is not transposer)
            mine = Signal(name=f"mine{members[0].value}")
            m.d.comb += [
                mine.eq(chunk.transpose & Cat(chunk.target == target for target in members).any() & ~others.any()),
                transposer.i.valid.eq(packer.chunks.valid & mine),
                transposer.i.payload.eq(chunk),
            ]
            with m.If(mine):
                m.d.comb += packer.chunks.ready.eq(transposer.i.ready)

        parts = [chunk.data] * most_parts(config)
        for number in range(len(parts) - 1):
            early = Signal(line_bits, name=f"part{number}")
            with m.If(straight & (chunk.part == number)):
                m.d.sync += early.eq(chunk.data)
            parts[number] = Mux(chunk.part == number, chunk.data, early)
        m.d.comb += write.data.eq(Cat(parts))
        for transposer, _ in transposers:
            with m.If(transposer.o_valid):
                m.d.comb += [
                    valid.eq(1), complete.eq(transposer.o.done), address.eq(transposer.o.address),
                    pitch.eq(transposer.o.pitch),
                    *(getattr(write, name).eq(transposer.o[name]) for name in ("count", "target", "data")),
                ]

        with m.Switch(write.target):
            for target, shape in shapes.items():
                with m.Case(target):
                    m.d.comb += blocks.eq(shape.blocks)
        m.d.comb += [
            last_address.eq(address + (write.count - 1)[:len(write.count)] * pitch),
            bad.eq(valid & (last_address >= blocks)),
            write.valid.eq(valid & ~bad & ~range_fault),
            write.address.eq(address),
            write.pitch.eq(pitch),
            done.eq(complete & ~bad & ~range_fault),
            packer.halt.eq(range_fault),
        ]
        with m.If(bad & ~range_fault):
            m.d.sync += [range_fault.eq(1), fault_address.eq(Mux(address >= blocks, address, last_address))]
        return done, busy, fault_address
