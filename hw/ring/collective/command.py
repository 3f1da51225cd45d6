"""The front of the collective engine: a record, checked, becomes a plan."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from ...control.engine import fault_layout
from ...isa import RING, Code, Collective
from ..flit import STOP_BITS
from .schedule import block_bytes, flit_bytes, plan_layout

__all__ = ["CommandCheck"]

_ALIGNMENT = 64  # bytes, of vectors and pieces


class CommandCheck(wiring.Component):
    """Judges a record by its fields, then by its windows. Latency 2 cycles; a command every 2 cycles.

    The memory a vector may lie in is the job's window, and within it this tile's own. After a fault it stays as it is.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    commands : In(stream of RING records)
    tile : In
    window_base, window_limit : In
    plans : Out(stream of plan_layout), without ``slot``
    record : Out, of the plan that is shown
    busy : Out, a record is here
    fault_valid, fault : Out, stay
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "commands": In(stream.Signature(RING.layout)),
            "tile": In(STOP_BITS),
            "window_base": In(config.address_bits + 1), "window_limit": In(config.address_bits + 1),
            "plans": Out(stream.Signature(plan_layout(config))),
            "record": Out(RING.layout),
            "busy": Out(1),
            "fault_valid": Out(1), "fault": Out(fault_layout()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, record, plan = self._config, self.record, self.plans.p
        held, known = self.busy, Signal()
        operation = {member: Signal(name=member.name.lower()) for member in Collective}
        for member, is_it in operation.items():
            m.d.comb += is_it.eq(record.operation == member)
        all_reduce, scatter, gather, broadcast, barrier = operation.values()
        sums, apart, whole = Signal(), Signal(), Signal()
        m.d.comb += [
            sums.eq(all_reduce | scatter), apart.eq(scatter | gather),
            whole.eq((record.size == config.tiles) if config.tiles > 1 else 0),
            self.commands.ready.eq(~held | (self.plans.valid & self.plans.ready)),
            self.plans.valid.eq(known & ~self.fault_valid),
        ]
        with m.If(self.commands.ready):
            m.d.sync += [held.eq(self.commands.valid), known.eq(0)]
            with m.If(self.commands.valid):
                m.d.sync += record.eq(self.commands.payload)
        with m.Elif(held & ~known):
            m.d.sync += known.eq(1)

        # -- the plan
        closed, cut = Signal(), Signal()
        pitch, top, mine = Signal(32), Signal(37), Signal(37)
        index = Signal(8)
        m.d.comb += [
            closed.eq(whole & (sums | gather)), cut.eq(closed & all_reduce),
            pitch.eq(Mux(cut, block_bytes(config), record.pitch)),
            index.eq(self.tile - record.first),
            top.eq((record.size - 1)[:plan.size.shape().width] * pitch), mine.eq(index[:4] * pitch),
        ]
        with m.If(held & ~known):
            m.d.sync += [
                plan.closed.eq(closed), plan.sums.eq(sums), plan.copies.eq(gather | broadcast),
                plan.scatter.eq(scatter), plan.gather.eq(gather), plan.writes.eq(~barrier), plan.cut.eq(cut),
                plan.index.eq(index), plan.root.eq(record.root - record.first), plan.size.eq(record.size),
                plan.pieces.eq(Mux(closed | apart, record.size, 1)),
                plan.bytes.eq(Mux(barrier, flit_bytes(config), record.bytes)),
                plan.stride.eq(Mux(cut, block_bytes(config) * config.tiles, block_bytes(config))),
                plan.pitch.eq(pitch), plan.mine.eq(mine), plan.top.eq(top),
                plan.source.eq(record.source), plan.destination.eq(record.destination),
            ]

        # -- fields
        bad = Signal()
        m.d.comb += bad.eq(
            ~(sums | gather | broadcast | barrier)
            | (record.size == 0) | (record.first + record.size > config.tiles)
            | (self.tile < record.first) | (self.tile >= record.first + record.size)
            | (broadcast & ((record.root < record.first) | (record.root >= record.first + record.size)))
            | (~barrier & ((record.bytes == 0) | (record.source % _ALIGNMENT != 0)
                           | (record.destination % _ALIGNMENT != 0)))
            | (sums & ~record.saturate & (record.bytes % 4 != 0))
            | (apart & ((record.pitch % _ALIGNMENT != 0) | (record.pitch < record.bytes))))

        # -- windows
        span = config.address_bits + 1
        low, high, start, end = Signal(span), Signal(span), Signal(span), Signal(span)
        shift = (config.memory.bytes - 1).bit_length()
        m.d.comb += [
            start.eq(self.tile << shift), end.eq((self.tile + 1) << shift),
            low.eq(Mux(self.window_base > start, self.window_base, start)),
            high.eq(Mux(self.window_limit < end, self.window_limit, end)),
        ]
        with m.If(held & ~known):
            # The source goes first.
            for address, spread, used in (
                    (record.destination, gather, ~barrier),
                    (record.source, scatter, sums | gather | (broadcast & (record.root == self.tile)))):
                behind = address + (Mux(spread, top, 0) + record.bytes)
                outside = (address < low) | (address >= high)
                with m.If(used & (outside | (behind > high))):
                    m.d.sync += [self.fault_valid.eq(1), self.fault.code.eq(Code.MEMORY_WINDOW),
                                 self.fault.address.eq(Mux(outside, address, high))]
            with m.If(bad):
                m.d.sync += [self.fault_valid.eq(1), self.fault.code.eq(Code.BAD_FIELD), self.fault.address.eq(0)]
        return m
