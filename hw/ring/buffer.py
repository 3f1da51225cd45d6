"""The places of one network in one direction of a stop."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .flit import buffer_flits, flit_layout

__all__ = ["FlitBuffer"]


class FlitBuffer(wiring.Component):
    """A queue that is never asked whether it is full: its sender counts the free places.

    Latency: 1 cycle. Throughput: a flit a cycle in and out.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    write : In
        ``flit`` goes in; there must be a place.
    flit : In
    o : Out(stream of flits)
    level : Out
        Flits that are here.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._depth = buffer_flits(config)
        super().__init__({
            "write": In(1),
            "flit": In(flit_layout(config)),
            "o": Out(stream.Signature(flit_layout(config))),
            "level": Out(range(self._depth + 1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._depth
        m.submodules.memory = memory = Memory(shape=self.flit.shape(), depth=depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        pop = Signal()
        m.d.comb += [
            write.en.eq(self.write), write.data.eq(self.flit),
            self.o.valid.eq(self.level != 0), self.o.payload.eq(read.data),
            pop.eq(self.o.valid & self.o.ready),
        ]
        with m.If(self.write):
            m.d.sync += write.addr.eq(Mux(write.addr == depth - 1, 0, write.addr + 1))
        with m.If(pop):
            m.d.sync += read.addr.eq(Mux(read.addr == depth - 1, 0, read.addr + 1))
        with m.If(self.write != pop):
            m.d.sync += self.level.eq(Mux(pop, self.level - 1, self.level + 1))
        return m
