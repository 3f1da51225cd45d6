"""One requantizer lane compiled by Verilator, driven over whole arrays: millions of vectors in seconds."""

import ctypes
from pathlib import Path

import numpy as np

from ringloom.hw.export import to_verilog
from ringloom.hw.isa import Rounding
from ringloom.hw.tensor.requantizer import LATENCY, Requantizer
from ringloom.sim.verilated.toolchain import find_compiler, find_verilator, run

__all__ = ["Lane"]

_DRIVER = r"""
#include <cstdint>
#include <memory>
#include "Vlane.h"
#include "verilated.h"

static std::unique_ptr<VerilatedContext> context;
static std::unique_ptr<Vlane> lane;

static void tick() {
    lane->clk = 0; lane->eval();
    lane->clk = 1; lane->eval();
}

// Puts n vectors in, with an idle cycle now and then, and takes the outputs; the number of outputs seen.
extern "C" int64_t drive(int64_t n, const int32_t *accumulator, const uint32_t *scale, const int16_t *zero_point,
                         const int16_t *low, const int16_t *high, const uint8_t *rounding, uint8_t *output) {
    if (!lane) {
        context = std::make_unique<VerilatedContext>();
        lane = std::make_unique<Vlane>(context.get());
    }
    lane->i_valid = 0; lane->rst = 1; tick(); tick(); lane->rst = 0;
    int64_t sent = 0, seen = 0;
    uint32_t noise = 1;
    for (int64_t idle = 0; idle <= 2 * LATENCY; ) {
        lane->clk = 0; lane->eval();
        if (lane->o_valid) { if (seen < n) output[seen] = lane->o; seen++; }
        noise = noise * 1664525u + 1013904223u;
        bool valid = sent < n && (noise >> 28) != 0;
        lane->i_valid = valid;
        uint32_t bounds = valid ? (uint16_t)low[sent] | (uint32_t)(uint16_t)high[sent] << 16 : noise;
        lane->i[0] = valid ? (uint32_t)accumulator[sent] : noise;
        lane->i[1] = valid ? scale[sent] : ~noise;
        lane->i[2] = valid ? (uint16_t)zero_point[sent] | (uint32_t)rounding[sent] << 16 | bounds << 20 : noise;
        lane->i[3] = bounds >> 12;
        lane->eval();
        lane->clk = 1; lane->eval();
        sent += valid;
        idle = sent < n ? 0 : idle + 1;
    }
    return seen;
}
"""

_FLAGS = ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing", "-Wno-lint", "-Wno-style"]
_DEFINES = ["-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-DVM_TRACE=0", "-DVM_TRACE_VCD=0",
            "-DVM_TRACE_FST=0", "-DVM_TRACE_SAIF=0", f"-DLATENCY={LATENCY}"]


class Lane:
    """The lane, built into ``folder`` (some seconds)."""

    def __init__(self, folder: Path) -> None:
        verilator, compiler = find_verilator(folder / "tools"), find_compiler(folder / "zig")
        (folder / "lane.v").write_text(to_verilog(Requantizer(), "lane"))
        (folder / "driver.cpp").write_text(_DRIVER)
        run([str(verilator.binary), "--cc", "--top-module", "lane", "--prefix", "Vlane", "--Mdir", str(folder / "cpp"),
             *_FLAGS, str(folder / "lane.v")], what="verilator", environment={"VERILATOR_ROOT": str(verilator.root)})
        # One translation unit: reading Verilator's headers is most of the time.
        parts = [*sorted((folder / "cpp").glob("*.cpp")), verilator.include / "verilated.cpp",
                 verilator.include / "verilated_threads.cpp", folder / "driver.cpp"]
        (folder / "all.cpp").write_text("".join(f'#include "{part}"\n' for part in parts))
        run([*compiler.command, "-shared", "-fPIC", "-O1", "-std=gnu++20", "-w", *_DEFINES, f"-I{folder / 'cpp'}",
             f"-I{verilator.include}", f"-I{verilator.include / 'vltstd'}", str(folder / "all.cpp"), "-pthread",
             "-o", str(folder / "lane.so")], what="C++ compiler", environment=compiler.environment)
        self._drive = ctypes.CDLL(str(folder / "lane.so")).drive
        self._drive.restype = ctypes.c_int64

    def __call__(self, acc, scale, zero_point, low, high, rounding: Rounding) -> np.ndarray:
        """Low 8 bits of every output, as uint8. scale: float32, or uint32 bits. Arguments broadcast."""
        scale = np.asarray(scale)
        bits = scale.view(np.uint32) if scale.dtype == np.float32 else scale.astype(np.uint32)
        kinds = (np.int32, np.uint32, np.int16, np.int16, np.int16, np.uint8)
        arrays = np.broadcast_arrays(acc, bits, zero_point, low, high, int(rounding))
        arrays = [np.ascontiguousarray(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
        output = np.zeros(arrays[0].shape, np.uint8)
        seen = self._drive(ctypes.c_int64(output.size), *(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, output)))
        assert seen == output.size, f"{seen} outputs of {output.size} vectors"
        return output
