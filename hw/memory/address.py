"""LOAD's front: checks a command and turns it into lines of memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import fault_layout
from ..isa import LOAD, Code, Target
from .blocks import block_shapes
from .port import BEAT_SHIFT
from .walker import RowWalker

__all__ = ["AddressGenerator", "line_layout"]

_BYTE_ADDRESS = signed(64)  # the record's field; an address beyond the device is negative or large, never wrapped


def line_layout(config: DeviceConfig) -> data.StructLayout:
    """address: in lines of ``line_bytes``; beats: those of the line that hold needed bytes."""
    shift = (config.line_bytes - 1).bit_length()
    return data.StructLayout({"address": config.address_bits - shift, "beats": config.ports})


class AddressGenerator(wiring.Component):
    """One line a cycle, in the order in which the packer uses them; only beats that hold needed bytes.

    A command is announced at ``started`` before or with its first line. Latency from an accepted command to its
    first line: 1 cycle. After a fault it stays as it is.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    commands : In(stream of LOAD records)
    started : Out(stream of LOAD records), checked
    lines : Out(stream of line_layout); withdrawn when ``halt`` rises
    window_base, window_limit, halt : In
    active : Out
    fault_valid, fault : Out, stay
    fault_started : Out, the command at fault has been announced
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "commands": In(stream.Signature(LOAD.layout)),
            "started": Out(stream.Signature(LOAD.layout)),
            "lines": Out(stream.Signature(line_layout(config))),
            "window_base": In(config.address_bits + 1),
            "window_limit": In(config.address_bits + 1),
            "halt": In(1),
            "active": Out(1),
            "fault_valid": Out(1),
            "fault": Out(fault_layout()),
            "fault_started": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        shift = (config.line_bytes - 1).bit_length()
        m.submodules.walker = walker = RowWalker(config=config, address_bits=_BYTE_ADDRESS.width)
        wiring.connect(m, wiring.flipped(self.commands), walker.commands)

        announced, bad, go = Signal(), Signal(), Signal()
        m.d.comb += [
            self.active.eq(walker.active),
            bad.eq(self._bad_field(m, walker.command)),
            self.started.valid.eq(walker.active & ~announced & ~bad & ~self.fault_valid),
            self.started.payload.eq(walker.command),
            go.eq(walker.active & (announced | (self.started.valid & self.started.ready))
                  & ~self.halt & ~self.fault_valid),
        ]
        with m.If(walker.commands.valid & walker.commands.ready):
            m.d.sync += announced.eq(0)
        with m.Elif(self.started.valid & self.started.ready):
            m.d.sync += announced.eq(1)

        # -- the lines of a piece
        index = Signal(32 - shift + 1)
        start, end = Signal(_BYTE_ADDRESS), Signal(_BYTE_ADDRESS)
        line = Signal(signed(_BYTE_ADDRESS.width - shift))
        first_byte, last_byte = Signal(shift), Signal(shift)
        line_last, inside, moved = Signal(), Signal(), Signal()
        m.d.comb += [
            start.eq(walker.address),
            end.eq(start + walker.bytes - 1),
            line.eq((start >> shift) + index),
            line_last.eq(line == end >> shift),
            first_byte.eq(Mux(index == 0, start[:shift], 0)),
            last_byte.eq(Mux(line_last, end[:shift], config.line_bytes - 1)),
            inside.eq((Cat(first_byte, line).as_signed() >= self.window_base)
                      & (Cat(last_byte, line).as_signed() < self.window_limit)),
            self.lines.valid.eq(go & inside & (walker.bytes != 0)),
            self.lines.p.address.eq(line),
            moved.eq(self.lines.valid & self.lines.ready),
            walker.step.eq(go & ((walker.bytes == 0) | (moved & line_last))),
        ]
        for beat in range(config.ports):
            m.d.comb += self.lines.p.beats[beat].eq(
                (first_byte >> BEAT_SHIFT <= beat) & (last_byte >> BEAT_SHIFT >= beat if beat else 1))
        with m.If(moved):
            m.d.sync += index.eq(Mux(line_last, 0, index + 1))

        with m.If(walker.active & ~announced & bad & ~self.fault_valid):
            m.d.sync += [self.fault_valid.eq(1), self.fault_started.eq(0), self.fault.code.eq(Code.BAD_FIELD),
                         self.fault.address.eq(0)]
        with m.Elif(go & (walker.bytes != 0) & ~inside):
            first = Cat(first_byte, line).as_signed()
            within = (first >= self.window_base) & (first < self.window_limit)  # then the end is what leaves it
            m.d.sync += [self.fault_valid.eq(1), self.fault_started.eq(1), self.fault.code.eq(Code.MEMORY_WINDOW),
                         self.fault.address.eq(Mux(within, self.window_limit, first))]
        return m

    def _bad_field(self, m: Module, command):
        shapes = block_shapes(self._config)
        capacity, several, known = Signal(32), Signal(), Signal()
        with m.Switch(command.target):
            for target, shape in shapes.items():
                with m.Case(target):
                    m.d.comb += [known.eq(1), several.eq(shape.per_write > 1),
                                 capacity.eq(command.row_blocks * shape.bytes)]
        transposable = (command.target == Target.ACTIVATION) | (command.target == Target.WEIGHT)
        return (~known | (command.rows == 0) | (command.planes == 0) | (command.row_blocks == 0)
                | (command.pad_top + command.pad_bottom > command.rows)
                | (several & (command.row_blocks > 1) & ~command.block_pitch[0])
                | Mux(command.transpose, ~transposable | (command.pad_left != 0),
                      command.pad_left + command.row_bytes > capacity))
