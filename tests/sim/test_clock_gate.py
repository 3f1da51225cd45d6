"""Clock enables that become gated clocks: where, and where not. That nothing else changes, the tests of DRAM show:
both simulators agree cycle by cycle, and one of them knows no gates."""

import re

from amaranth.hdl import EnableInserter, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.export import to_verilog
from ringloom.hw.memory.hbm.memory import HbmMemory
from ringloom.sim.verilated.clock_gate import gated_clocks
from tests.support.bare import bare


class Counter(wiring.Component):
    value: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.value.eq(self.value + 1)
        return m


class Plain(wiring.Component):
    """A counter under an enable of another name, beside a register."""

    go: In(1)
    value: Out(8)
    ticks: Out(8)

    def elaborate(self, platform):
        m = Module()
        enable = Signal(name="enable")
        m.submodules.counter = counter = Counter()
        m.submodules.slow = slow = EnableInserter(enable)(Counter())
        m.d.comb += [enable.eq(self.go), self.value.eq(counter.value)]
        m.d.sync += self.ticks.eq(self.ticks + slow.value[0])
        return m


def test_a_design_without_clock_enables_stays_as_it_is():
    verilog = to_verilog(Plain(), "top")
    assert gated_clocks(verilog) == verilog


def test_controller_and_device_of_every_channel_are_gated():
    config = bare("tiny", {"memory.kind": "hbm", "memory.timing": "tiny", "memory.pseudo_channels": 2})
    verilog = to_verilog(HbmMemory(config=config), "top")
    gated = gated_clocks(verilog)
    assert gated.count(".clk(_s_gate_clk)") == gated.count(".clock_enable(1'b1)") == 4
    assert len(re.findall(r"_s_gate_open = clock_enable \| rst;", gated)) == 2
    instance = r"^  \\top\.channel_\d\.(\w+)  \w+ \((?:\n    \..*)+"
    clocks = {found[1]: ".clk(_s_gate_clk)" in found[0] for found in re.finditer(instance, gated, re.MULTILINE)}
    assert clocks == {"controller": True, "device": True, "refresh_clock": False}
