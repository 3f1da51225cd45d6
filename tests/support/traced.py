"""A device whose management core shows what it retires, in Amaranth's simulator."""

from amaranth.hdl import Signal

from ringloom.firmware.build import image
from ringloom.hw.control.core.core import trace_layout
from ringloom.hw.device import Device, Part
from ringloom.hw.shell import Shell
from ringloom.sim.amaranth_sim import PythonSimulator


class TracedShell(Shell):
    """``Shell`` that shows the management core's trace on a signal from outside."""

    def __init__(self, *, config, firmware, trace):
        super().__init__(config=config, firmware=firmware)
        self._trace = trace

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.comb += self._trace.eq(m.submodules.management.trace)
        return m


class TracedDevice(Device):
    """``Device`` with the management core's trace at hand."""

    def __init__(self, *, config):
        super().__init__(config=config)
        self.trace = Signal(trace_layout)

    def part(self, part):
        if part is Part.TILE:
            return super().part(part)
        return TracedShell(config=self.config, firmware=image(self.config), trace=self.trace)


class TracedSimulator(PythonSimulator):
    """Keeps ``trace``: (cycle, pc) of every retired instruction, and ``waits``: cycles the core waited."""

    def __init__(self, config):
        self.trace, self.waits = [], 0
        super().__init__(config, lambda text: None, device=TracedDevice(config=config))

    def _make(self, device):
        self._traced = device.trace
        super()._make(device)

    async def _count(self, ctx):
        self._ctx = ctx
        trace = self._traced
        async for _, _, retired, waiting, pc in ctx.tick().sample(trace.retired, trace.waiting, trace.pc):
            self._cycle += 1
            self.waits += waiting
            if retired:
                self.trace.append((self._cycle, pc))
