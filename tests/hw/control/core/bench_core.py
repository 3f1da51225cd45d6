"""The core with ports that a C++ driver reads without knowing any layout."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.control.core.bus import request_layout, response_layout
from ringloom.hw.control.core.core import Core, trace_layout


class BenchCore(wiring.Component):
    """``Core`` with every field of its ports and of its trace as a port of its own."""

    def __init__(self) -> None:
        def flat(prefix, layout, flow):
            return {f"{prefix}_{name}": flow(field.width) for name, field in layout}

        super().__init__({
            "fetch_address": Out(32), "fetch_enable": Out(1), "fetch_data": In(32), "fetch_fault": In(1),
            "request_valid": Out(1), "request_ready": In(1), "response_valid": In(1), "timer": In(1), "external": In(1),
            **flat("request", request_layout, Out), **flat("response", response_layout, In),
            **flat("trace", trace_layout, Out)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = Core()
        request, response = core.bus.requests, core.bus.responses
        m.d.comb += [
            self.fetch_address.eq(core.fetch.address), self.fetch_enable.eq(core.fetch.enable),
            core.fetch.data.eq(self.fetch_data), core.fetch.fault.eq(self.fetch_fault),
            self.request_valid.eq(request.valid), request.ready.eq(self.request_ready),
            response.valid.eq(self.response_valid), core.timer.eq(self.timer), core.external.eq(self.external),
            *(getattr(self, f"request_{name}").eq(request.payload[name]) for name, _ in request_layout),
            *(response.payload[name].eq(getattr(self, f"response_{name}")) for name, _ in response_layout),
            *(getattr(self, f"trace_{name}").eq(core.trace[name]) for name, _ in trace_layout),
        ]
        return m
