"""Where a lane meets the ring: what it has received, and what it sends."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from ..flit import NUMBER_BITS, STOP_BITS, collective_body, flit_layout
from .schedule import block_flits

__all__ = ["Received", "Receiver", "Sender"]


class Received(wiring.Signature):
    """Flits received, as a lane sees them.

    expect: flits of collective ``number`` are to be taken. known: those of earlier numbers never will be.
    valid, data: the next flit of ``number``. take: it is taken.
    """

    def __init__(self, config: DeviceConfig) -> None:
        super().__init__({"expect": Out(1), "known": Out(1), "number": Out(NUMBER_BITS), "take": Out(1),
                          "valid": In(1), "data": In(config.ring.data_bits)})


class Receiver(wiring.Component):
    """Keeps four blocks of flits and gives those of the collective that is asked for.

    Flits of earlier collectives (by the difference of the numbers, modulo 2^16) are dropped, one a cycle; those of
    later ones wait. Not cleared with the engine: flits of the next job may be here before it begins. Latency 1 cycle.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    eject : In(stream of flits)
    o : In(Received)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({"eject": In(stream.Signature(flit_layout(config))), "o": In(Received(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        body = collective_body(self._config)
        m.submodules.queue = queue = fifo.SyncFIFO(width=body.size, depth=4 * block_flits(self._config))
        head = data.View(body, queue.r_data)
        ahead, older = Signal(NUMBER_BITS), Signal()
        m.d.comb += [
            queue.w_en.eq(self.eject.valid), queue.w_data.eq(self.eject.p.body[:body.size]),
            self.eject.ready.eq(queue.w_rdy),
            ahead.eq(head.number - self.o.number),
            older.eq(self.o.known & ahead[-1]),
            self.o.valid.eq(queue.r_rdy & self.o.expect & (ahead == 0)),
            self.o.data.eq(head.data),
            queue.r_en.eq((self.o.valid & self.o.take) | older),
        ]
        return m


class Sender(wiring.Component):
    """A register in front of the ring, towards one neighbour. Latency 1 cycle, throughput a flit a cycle.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    i : In(stream of collective_body)
    source, destination : In, this tile and the neighbour
    inject : Out(stream of flits)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        super().__init__({
            "i": In(stream.Signature(collective_body(config))),
            "source": In(STOP_BITS), "destination": In(STOP_BITS),
            "inject": Out(stream.Signature(flit_layout(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        flit = Signal(collective_body(self._config))
        m.d.comb += [
            self.i.ready.eq(~self.inject.valid | self.inject.ready),
            self.inject.p.source.eq(self.source), self.inject.p.destination.eq(self.destination),
            self.inject.p.last.eq(1), self.inject.p.body.eq(flit),
        ]
        with m.If(self.i.ready):
            m.d.sync += self.inject.valid.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += flit.eq(self.i.payload)
        return m
