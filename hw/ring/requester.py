"""Requests that leave a stop, and their answers."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..isa import SEMAPHORES
from ..memory.arbiter import rotate
from ..memory.pooled_port import tile_of
from ..memory.port import CONTEXT_BITS, EPOCH_BITS, TAG_BITS, request_layout, response_layout, write_layout
from .flit import STOP_BITS, Request, flit_layout, request_body, response_body, stops
from .route import route

__all__ = ["RemoteRequester", "notice_layout", "FlitRegister"]


def notice_layout() -> data.StructLayout:
    """A signal for the job of another tile: it counts where the job has this context and epoch."""
    return data.StructLayout({"tile": STOP_BITS, "semaphore": range(SEMAPHORES), "context": CONTEXT_BITS,
                              "epoch": EPOCH_BITS})


class FlitRegister(wiring.Component):
    """The flits of several sources, round robin, through one register: latency 1 cycle, throughput 1 a cycle.

    Parameters
    ----------
    config : DeviceConfig
    sources : int

    Members
    -------
    i : In(stream of flits).array(sources)
    o : Out(stream of flits)
    """

    def __init__(self, *, config: DeviceConfig, sources: int) -> None:
        flits = stream.Signature(flit_layout(config))
        self._sources = sources
        super().__init__({"i": In(flits).array(sources), "o": Out(flits)})

    def elaborate(self, platform) -> Module:
        m = Module()
        sources = [self.i[number] for number in range(self._sources)]
        room = Signal()
        choice, last = Signal(range(max(2, len(sources)))), Signal(range(max(2, len(sources))))
        m.d.comb += room.eq(~self.o.valid | self.o.ready)
        rotate(m, [source.valid for source in sources], last, choice)
        with m.If(room):
            m.d.sync += self.o.valid.eq(0)
        for number, source in enumerate(sources):
            m.d.comb += source.ready.eq(room & (choice == number))
            with m.If(source.valid & source.ready):
                m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(source.payload), last.eq(number)]
        return m


class RemoteRequester(wiring.Component):
    """Beats for other tiles' memories become REQUEST flits, RESPONSE flits become responses.

    Each port's requests leave in order, a write with its data. So requests of one port to one tile keep their order,
    since they go the same way around. Latency 1 cycle out, none in; a flit a cycle and direction.

    Parameters
    ----------
    config : DeviceConfig
    ports : int
        Memory ports that ask here.

    Members
    -------
    stop : In
        This stop's number.
    requests, write_data : In(stream).array(ports)
        A request is taken in the same cycle as its data.
    notices : In(stream of notice_layout)
    responses : Out(stream).array(ports, directions)
        Must be taken without waiting for anything to leave.
    inject, eject : stream of flits, one a direction
        The stop's, of REQUEST and of RESPONSE.
    """

    def __init__(self, *, config: DeviceConfig, ports: int) -> None:
        self._config, self._ports = config, ports
        flits = stream.Signature(flit_layout(config))
        super().__init__({
            "stop": In(STOP_BITS),
            "requests": In(stream.Signature(request_layout(config.address_bits, TAG_BITS))).array(ports),
            "write_data": In(stream.Signature(write_layout())).array(ports),
            "notices": In(stream.Signature(notice_layout())),
            "responses": Out(stream.Signature(response_layout(TAG_BITS))).array(ports, 2),
            "inject": Out(flits).array(2),
            "eject": In(flits).array(2),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        config, ports = self._config, self._ports
        registers = [FlitRegister(config=config, sources=ports + 1) for _ in range(2)]
        for direction, register in enumerate(registers):
            m.submodules[f"out{direction}"] = register
            wiring.connect(m, register.o, wiring.flipped(self.inject[direction]))

        body = request_body(config)
        for p in range(ports):
            request, beat = self.requests[p], self.write_data[p]
            whole, way, goes = Signal(name=f"whole{p}"), Signal(name=f"way{p}"), Signal(name=f"goes{p}")
            filled, flit = Signal(body, name=f"body{p}"), Signal(flit_layout(config), name=f"flit{p}")
            with m.If(request.valid):  # wide words that nobody needs cost a simulator time
                m.d.comb += [
                    *(filled[name].eq(request.payload[name]) for name in ("address", "tag", "context", "epoch")),
                    filled.kind.eq(Mux(request.p.write, Request.WRITE, Request.READ)),
                    filled.port.eq(p),
                    flit.destination.eq(tile_of(config, request.p.address)), flit.source.eq(self.stop), flit.last.eq(1),
                    flit.body.eq(filled),
                ]
                with m.If(request.p.write):
                    m.d.comb += [filled.data.eq(beat.p.data), filled.strobe.eq(beat.p.strobe)]
            m.d.comb += [
                whole.eq(request.valid & (beat.valid | ~request.p.write)),
                way.eq(route(stops(config), self.stop, flit.destination)),
                goes.eq(whole & Mux(way, registers[1].i[p].ready, registers[0].i[p].ready)),
                request.ready.eq(goes), beat.ready.eq(goes & request.p.write),
            ]
            for direction, register in enumerate(registers):
                m.d.comb += [register.i[p].valid.eq(whole & (way == direction)), register.i[p].payload.eq(flit)]

        # -- signals
        notice, way = self.notices, Signal(name="signal_way")
        filled, flit = Signal(body, name="signal_body"), Signal(flit_layout(config), name="signal")
        with m.If(notice.valid):
            m.d.comb += [flit.destination.eq(notice.p.tile), flit.source.eq(self.stop), flit.last.eq(1),
                         flit.body.eq(filled)]
        m.d.comb += [  # under a condition the bits that nobody sets would become a Verilog block without a trigger
            filled.kind.eq(Request.SIGNAL), filled.address.eq(notice.p.semaphore),
            filled.context.eq(notice.p.context), filled.epoch.eq(notice.p.epoch),
            way.eq(route(stops(config), self.stop, notice.p.tile)),
            notice.ready.eq(Mux(way, registers[1].i[ports].ready, registers[0].i[ports].ready)),
        ]
        for direction, register in enumerate(registers):
            m.d.comb += [register.i[ports].valid.eq(notice.valid & (way == direction)),
                         register.i[ports].payload.eq(flit)]

        # -- answers
        for direction, eject in enumerate(self.eject):
            answer = data.View(response_body(config), eject.p.body[:response_body(config).size])
            for p in range(ports):
                response = self.responses[p][direction]
                its = Signal(name=f"its{p}_{direction}")
                m.d.comb += [its.eq(answer.port == p), response.valid.eq(eject.valid & its)]
                with m.If(response.valid):
                    m.d.comb += [
                        eject.ready.eq(response.ready),
                        *(response.payload[name].eq(answer[name])
                          for name in ("data", "tag", "write", "error", "context", "epoch")),
                    ]
        return m
