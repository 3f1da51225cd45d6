// A device that is one model: see harness.cpp. ports.h: RL_STORAGE(X) calls X(index, tile, prefix) for every storage port.

#pragma once

#include "Vringloom.h"
#include "Vringloom___024root.h"
#include "model.h"
#include "state.h"

// Evaluates all combinational logic, as Verilator does once at the start.
void Vringloom___024root___eval_settle(Vringloom___024root* root);

namespace {

struct Device : DeviceBase {
    std::unique_ptr<Vringloom> top;

    Device() {
        top = std::make_unique<Vringloom>(&context, "");
        top->clk = 0;
        reset(true);
    }

    void finish() { top->final(); }

    void help(uint32_t) {}  // one model is for one thread

    void reset(bool on) { set_reset(*top, on); }

    void settle() {
        if (dirty) {
            top->eval();
            dirty = false;
        }
    }

    void settle_all() { settle(); }

    void edge() {
        settle();
#define X(index, tile, prefix)                                                                     \
    Access access##index;                                                                          \
    access##index.sample(top->prefix##enable, top->prefix##write, top->prefix##address & beat_mask, \
                         top->prefix##strobe, top->prefix##write_data, memory[tile]);
        RL_STORAGE(X)
#undef X
#if RL_COMMANDS
#define X(index, tile, prefix) take(index, top->prefix##commands);
        if (recording) { RL_STORAGE(X) }
#undef X
#endif
        record(kCycleTime / 2);
        top->clk = 1;
        top->eval();
        ++cycle;
        record(0);
#define X(index, tile, prefix) access##index.answer(top->prefix##read_data);
        RL_STORAGE(X)
#undef X
        top->clk = 0;
        top->eval();
    }

    const Member* state(uint32_t model, void** base, uint32_t* count) {
        // A table of constants, because thousands of statements take long to compile.
#define X(member) {#member, offsetof(Vringloom___024root, member), sizeof(Vringloom___024root::member)},
        static constexpr Member table[] = {RL_MEMBERS(X)};
#undef X
        if (model > 0) return nullptr;
        *base = top->rootp;
        *count = sizeof(table) / sizeof(table[0]);
        return table;
    }

    void adopted() {
        Vringloom___024root___eval_settle(top->rootp);
        dirty = true;
    }

#if RL_WAVES
    void trace(VerilatedVcdC& file) { top->trace(&file, 99); }

    std::unique_ptr<VerilatedVcdFile> new_file() { return std::make_unique<VerilatedVcdFile>(); }

    // Verilator's name of a scope of the device.
    std::string scope(const std::string& name) { return name; }
#endif
};

}  // namespace
