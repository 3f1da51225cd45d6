"""Requests of other stops: to this tile's memory and semaphores, and the way back."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..memory.arbiter import port_of
from ..memory.port import BEAT_BITS, ORIGIN_BITS, TAG_BITS, request_layout, response_layout, write_layout
from .flit import PORT_BITS, STOP_BITS, Request, flit_layout, request_body, response_body, stops
from .requester import FlitRegister, notice_layout
from .route import route

__all__ = ["RemoteServer"]

_WRITES_AHEAD = 4  # of a direction, between a write's grant and its data's


class RemoteServer(wiring.Component):
    """REQUEST flits become requests of the client RING, its responses RESPONSE flits.

    Nothing is remembered: tag, memory port and stop of the requester are the tag at memory. The flits of a direction
    are taken in order, one a cycle; where one waits, so do those behind it, until memory takes it. Latency none in,
    1 cycle out.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    stop : In
        This stop's number.
    eject, inject : stream of flits, one a direction
        The stop's, of REQUEST and of RESPONSE.
    requests, write_data : Out(stream).array(P, directions)
    responses : In(stream).array(P)
    notice : Out(notice_layout), notice_valid : Out(1)
        A signal for this tile, if its job has this context and epoch.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        ports, flits = config.ports, stream.Signature(flit_layout(config))
        super().__init__({
            "stop": In(STOP_BITS),
            "eject": In(flits).array(2),
            "inject": Out(flits).array(2),
            "requests": Out(stream.Signature(request_layout(config.address_bits, ORIGIN_BITS))).array(ports, 2),
            "write_data": Out(stream.Signature(write_layout())).array(ports, 2),
            "responses": In(stream.Signature(response_layout(ORIGIN_BITS))).array(ports),
            "notice": Out(notice_layout()), "notice_valid": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.notice.tile.eq(self.stop)
        signalled = 0  # a signal of a direction before has this cycle
        for direction in range(2):
            signalled = self._take(m, direction, signalled)
        self._answer(m)
        return m

    def _take(self, m: Module, direction: int, signalled):
        """Flits of one direction. Returns whether this or an earlier direction has a signal in this cycle."""
        config, eject = self._config, self.eject[direction]
        body = data.View(request_body(config), eject.p.body[:request_body(config).size])
        beat = data.StructLayout({"data": BEAT_BITS, "strobe": BEAT_BITS // 8, "port": PORT_BITS})
        m.submodules[f"beats{direction}"] = beats = fifo.SyncFIFO(width=beat.size, depth=_WRITES_AHEAD)
        head = data.View(beat, beats.r_data)
        port, ready, able = (Signal(PORT_BITS, name=f"port{direction}"), Signal(name=f"ready{direction}"),
                             Signal(name=f"able{direction}"))
        signals = Signal(name=f"signals{direction}")
        m.d.comb += [
            signals.eq(eject.valid & (body.kind == Request.SIGNAL)),
            port.eq(port_of(config, body.address)),
            able.eq(eject.valid & ~signals & (beats.w_rdy | (body.kind == Request.READ))),
            eject.ready.eq(Mux(body.kind == Request.SIGNAL, ~signalled if direction else 1, able & ready)),
            beats.w_en.eq(able & ready & (body.kind == Request.WRITE)),
        ]
        with m.If(beats.w_en):  # wide words that nobody needs cost a simulator time
            m.d.comb += beats.w_data.eq(Cat(body.data, body.strobe, port))
        for p in range(config.ports):
            request, write = self.requests[p][direction], self.write_data[p][direction]
            m.d.comb += [
                request.valid.eq(able & (port == p)),
                *(request.payload[name].eq(body[name]) for name in ("address", "context", "epoch")),
                request.p.write.eq(body.kind == Request.WRITE),
                request.p.tag.eq(Cat(body.tag, body.port, eject.p.source)),
                write.valid.eq(beats.r_rdy & (head.port == p)),
            ]
            with m.If(write.valid):
                m.d.comb += [write.p.data.eq(head.data), write.p.strobe.eq(head.strobe)]
            with m.If(port == p):
                m.d.comb += ready.eq(request.ready)
            with m.If(head.port == p):
                m.d.comb += beats.r_en.eq(write.ready)
        with m.If(signals & ~signalled if direction else signals):
            m.d.comb += [
                self.notice_valid.eq(1),
                self.notice.semaphore.eq(body.address),
                self.notice.context.eq(body.context), self.notice.epoch.eq(body.epoch),
            ]
        return signalled | signals

    def _answer(self, m: Module) -> None:
        config = self._config
        registers = [FlitRegister(config=config, sources=config.ports) for _ in range(2)]
        for direction, register in enumerate(registers):
            m.submodules[f"out{direction}"] = register
            wiring.connect(m, register.o, wiring.flipped(self.inject[direction]))
        for p, response in enumerate(self.responses):
            tag, port, source = (response.p.tag[:TAG_BITS], response.p.tag[TAG_BITS:TAG_BITS + PORT_BITS],
                                 response.p.tag[TAG_BITS + PORT_BITS:])
            body, flit = Signal(response_body(config), name=f"body{p}"), Signal(flit_layout(config), name=f"flit{p}")
            way = Signal(name=f"way{p}")
            with m.If(response.valid):
                m.d.comb += [
                    *(body[name].eq(response.payload[name]) for name in ("data", "write", "error", "context", "epoch")),
                    body.tag.eq(tag), body.port.eq(port),
                    flit.destination.eq(source), flit.source.eq(self.stop), flit.last.eq(1), flit.body.eq(body),
                ]
            m.d.comb += [
                way.eq(route(stops(config), self.stop, source)),
                response.ready.eq(Mux(way, registers[1].i[p].ready, registers[0].i[p].ready)),
            ]
            for direction, register in enumerate(registers):
                m.d.comb += [register.i[p].valid.eq(response.valid & (way == direction)),
                             register.i[p].payload.eq(flit)]
