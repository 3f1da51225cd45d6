// What the models of whole.h and split.h have in common.

#pragma once

#include "ports.h"
#include "verilated.h"
#if RL_WAVES
#include "verilated_vcd_c.h"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

// Nothing here is seen by another library of the same process: a device with waves takes over from one without.
namespace {

constexpr uint32_t kBeat = 32;
constexpr uint64_t kCycleTime = 1000;  // picoseconds of a cycle in waves

// A command word of a DRAM, as COMMAND_WORD in hw/memory/hbm/command.py; port counts over all tiles.
struct Command {
    uint64_t cycle, port, word;
};

constexpr uint64_t kAnyCommand = 0x1F;  // the bits of a command word that are 0 where there is none

struct Member {
    const char* name;
    uint64_t offset, size;
};

// One access of a storage port: sampled before the clock rises, answered behind it.
struct Access {
    alignas(32) uint8_t bytes[kBeat];
    bool asked;

    // Every request is a register, so that what is sampled is that of the cycle.
    template <class Words>
    void sample(bool enable, bool write, uint64_t address, uint32_t strobe, const Words& data, uint8_t* memory) {
        asked = enable;
        if (!enable) return;
        uint8_t* const beat = memory + address * kBeat;
        std::memcpy(bytes, beat, kBeat);
        if (!write) return;
        const uint8_t* const fresh = reinterpret_cast<const uint8_t*>(data.data());
        if (strobe == 0xFFFFFFFFu) std::memcpy(beat, fresh, kBeat);
        else for (uint32_t i = 0; i < kBeat; ++i) if (strobe >> i & 1) beat[i] = fresh[i];
    }

    template <class Words>
    void answer(Words& wires) const {
        if (asked) std::memcpy(wires.data(), bytes, kBeat);
    }
};

// What does not depend on how many models there are. Cycles count clock edges; `memory` outlives the device.
struct DeviceBase {
    VerilatedContext context;
    uint64_t cycle = 0;
    uint64_t limit = 0;
    bool dirty = true;  // an input changed since the last eval
    uint8_t* memory[RL_TILES] = {};
    uint64_t beat_mask = 0;
    bool recording = false;
    std::vector<Command> commands;  // until Python takes them, after each call
#if RL_WAVES
    std::unique_ptr<VerilatedVcdFile> file;
    std::unique_ptr<VerilatedVcdC> waves;
    uint64_t waves_from = 0, waves_to = 0;
#endif

    DeviceBase() { context.traceEverOn(RL_WAVES); }

    void take(uint64_t port, uint64_t word) {
        if (word & kAnyCommand) commands.push_back({cycle, port, word});
    }

    void record(uint64_t half) {
#if RL_WAVES
        if (waves && cycle >= waves_from && cycle < waves_to) waves->dump(cycle * kCycleTime + half);
#endif
    }
};

// The reset of a model takes effect at once: its register has a clock of its own.
template <class Top>
void set_reset(Top& top, bool on) {
    top.rst_in = on;
    top.rst_set = 0;
    top.eval();
    top.rst_set = 1;
    top.eval();
}

}  // namespace
