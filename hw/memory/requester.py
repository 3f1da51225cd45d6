"""LOAD's request side: lines into beats, a queue for each memory port."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .address import line_layout
from .arbiter import port_of
from .port import BEAT_SHIFT, CONTEXT_BITS, EPOCH_BITS, LEAF_TAG_BITS, request_layout

__all__ = ["Requester"]


class Requester(wiring.Component):
    """Takes one line a cycle and asks each port for one beat a cycle.

    A line's beats all belong to one port, so the queues let the address generator run far enough ahead for the
    next share of memory to begin while this one is worked off. Latency 1 cycle.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    lines : In(stream of line_layout)
    slot : In, the reorder buffer's slot of the line; a beat's tag is ``slot * P + beat``
    port : Out, port of the line that is shown
    requests : Out(stream of request_layout).array(P)
    context, epoch : In, of the job
    stop : In, show no further request (one that is shown stays until it is taken)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "lines": In(stream.Signature(line_layout(config))),
            "slot": In(LEAF_TAG_BITS - (config.ports - 1).bit_length()),
            "port": Out(range(max(2, config.ports))),
            "requests": Out(stream.Signature(request_layout(config.address_bits, LEAF_TAG_BITS))).array(config.ports),
            "context": In(CONTEXT_BITS),
            "epoch": In(EPOCH_BITS),
            "stop": In(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        shift = (config.line_bytes - 1).bit_length()
        layout = data.StructLayout({**line_layout(config).members, "slot": self.slot.shape()})
        # Twice a port's share of the interleave: one half fills while the other empties.
        depth = min(256 // config.ports, max(8, 2 * config.memory.interleave_bytes // config.line_bytes))
        queues = [fifo.SyncFIFO(width=layout.size, depth=depth) for _ in range(config.ports)]
        if config.ports > 1:
            m.d.comb += self.port.eq(port_of(config, self.lines.p.address << shift))
        m.d.comb += self.lines.ready.eq(Array(queue.w_rdy for queue in queues)[self.port])
        for index, (queue, request) in enumerate(zip(queues, self.requests, strict=True)):
            m.submodules[f"queue{index}"] = queue
            entry = Signal(layout, name=f"entry{index}")
            line = Signal(layout, name=f"line{index}")
            sent = Signal(config.ports, name=f"sent{index}")
            left = Signal(config.ports, name=f"left{index}")
            beat = Signal(range(max(2, config.ports)), name=f"beat{index}")
            shown = Signal(name=f"shown{index}")
            m.d.comb += [
                entry.address.eq(self.lines.p.address), entry.beats.eq(self.lines.p.beats), entry.slot.eq(self.slot),
                queue.w_data.eq(entry),
                queue.w_en.eq(self.lines.valid & (self.port == index)),
                line.eq(queue.r_data),
                left.eq(line.beats & ~sent),
                request.valid.eq(queue.r_rdy & (~self.stop | shown)),
                request.p.address.eq((line.address << shift) | (beat << BEAT_SHIFT)),
                request.p.tag.eq(line.slot * config.ports + beat),
                request.p.context.eq(self.context), request.p.epoch.eq(self.epoch),
                queue.r_en.eq(request.valid & request.ready & (left & (left - 1) == 0)),
            ]
            for number in reversed(range(config.ports)):
                with m.If(left[number]):
                    m.d.comb += beat.eq(number)
            m.d.sync += shown.eq(request.valid & ~request.ready)
            with m.If(request.valid & request.ready):
                m.d.sync += sent.eq(sent | (1 << beat))
                with m.If(queue.r_en):
                    m.d.sync += sent.eq(0)
        return m
