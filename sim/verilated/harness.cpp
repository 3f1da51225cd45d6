// What Python calls of a verilated device: the clock loop, AXI masters, waves. One instance is one device.
//
// A cycle: with the clock low and every input set the design is settled; what storage is asked for and what the AXI
// masters see is sampled; the clock rises; storage's answer is put on the wires; the clock falls. The AXI masters
// follow the rule at the top of axi_driver.py, edge for edge.
//
// ports.h is made for each design: RL_TILES counts the tiles, RL_SPLIT is 1 where they are models of their own, RL_WAVES
// is 1 where the models can record, RL_COMMANDS where a storage port shows a DRAM's commands. state.h names what a model
// stores: RL_MEMBERS(X), and RL_TILE_MEMBERS(X) of a tile.

#include "ports.h"
#if RL_SPLIT
#include "split.h"
#else
#include "whole.h"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace {

// Results of a bus access beside the four AXI responses.
enum Status : int { kOkay = 0, kTimeoutAw = 4, kTimeoutW, kTimeoutB, kTimeoutAr, kTimeoutR };

// The two AXI ports differ in width and in bursts alone; a port names the signals of one of them.
#define RL_PORT(NAME, prefix)                                                                      \
    struct NAME {                                                                                  \
        Vringloom& t;                                                                              \
        bool awready() { return t.prefix##awready; }                                               \
        bool wready() { return t.prefix##wready; }                                                 \
        bool bvalid() { return t.prefix##bvalid; }                                                 \
        int bresp() { return t.prefix##bresp; }                                                    \
        bool arready() { return t.prefix##arready; }                                               \
        bool rvalid() { return t.prefix##rvalid; }                                                 \
        int rresp() { return t.prefix##rresp; }                                                    \
        void aw(bool valid, uint64_t address) { t.prefix##awvalid = valid; t.prefix##awaddr = address; } \
        void ar(bool valid, uint64_t address) { t.prefix##arvalid = valid; t.prefix##araddr = address; } \
        void wvalid(bool valid) { t.prefix##wvalid = valid; }                                      \
        void bready(bool ready) { t.prefix##bready = ready; }                                      \
        void rready(bool ready) { t.prefix##rready = ready; }                                      \
        void aw_burst(uint32_t beats);                                                             \
        void ar_burst(uint32_t beats);                                                             \
        void w(const uint8_t* data, uint32_t strobe, bool last);                                   \
        void r(uint8_t* data);                                                                     \
    }

RL_PORT(Lite, s_axil_);
RL_PORT(Full, s_axi_);

void Lite::aw_burst(uint32_t) {}
void Lite::ar_burst(uint32_t) {}
void Lite::w(const uint8_t* data, uint32_t strobe, bool) {
    if (data) std::memcpy(&t.s_axil_wdata, data, 4);
    else t.s_axil_wdata = 0;
    t.s_axil_wstrb = strobe;
}
void Lite::r(uint8_t* data) { std::memcpy(data, &t.s_axil_rdata, 4); }

void Full::aw_burst(uint32_t beats) {
    t.s_axi_awlen = beats ? beats - 1 : 0;
    t.s_axi_awsize = beats ? 5 : 0;
    t.s_axi_awburst = beats ? 1 : 0;
}
void Full::ar_burst(uint32_t beats) {
    t.s_axi_arlen = beats ? beats - 1 : 0;
    t.s_axi_arsize = beats ? 5 : 0;
    t.s_axi_arburst = beats ? 1 : 0;
}
void Full::w(const uint8_t* data, uint32_t strobe, bool last) {
    if (data) std::memcpy(t.s_axi_wdata.data(), data, kBeat);
    else std::memset(t.s_axi_wdata.data(), 0, kBeat);
    t.s_axi_wstrb = strobe;
    t.s_axi_wlast = last;
}
void Full::r(uint8_t* data) { std::memcpy(data, t.s_axi_rdata.data(), kBeat); }

template <class Port>
int write(Device& device, Port port, uint32_t width, uint64_t address, uint32_t beats, const uint8_t* data,
          const uint32_t* strobes) {
    bool address_open = true;
    uint32_t sent = 0;
    uint64_t idle = 0;
    int result = -1;
    while (result < 0) {
        port.aw(address_open, address_open ? address : 0);
        port.aw_burst(address_open ? beats : 0);
        const bool data_open = sent < beats;
        port.wvalid(data_open);
        port.w(data_open ? data + sent * width : nullptr, data_open ? strobes[sent] : 0, sent + 1 == beats);
        port.bready(true);
        device.dirty = true;
        device.settle();
        const bool aw = port.awready(), w = port.wready(), b = port.bvalid();
        const int response = port.bresp();
        device.edge();
        ++idle;
        if (address_open && aw) address_open = false, idle = 0;
        if (data_open && w) ++sent, idle = 0;
        if (b) result = response;
        else if (idle >= device.limit) result = address_open ? kTimeoutAw : sent < beats ? kTimeoutW : kTimeoutB;
    }
    port.aw(false, 0);
    port.aw_burst(0);
    port.wvalid(false);
    port.w(nullptr, 0, false);
    port.bready(false);
    device.dirty = true;
    return result;
}

template <class Port>
int read(Device& device, Port port, uint32_t width, uint64_t address, uint32_t beats, uint8_t* data) {
    bool address_open = true;
    uint32_t taken = 0;
    uint64_t idle = 0;
    int result = -1, error = 0;
    alignas(32) uint8_t beat[kBeat];
    while (result < 0) {
        port.ar(address_open, address_open ? address : 0);
        port.ar_burst(address_open ? beats : 0);
        port.rready(true);
        device.dirty = true;
        device.settle();
        const bool ar = port.arready(), r = port.rvalid();
        const int response = port.rresp();
        port.r(beat);
        device.edge();
        ++idle;
        if (address_open && ar) address_open = false, idle = 0;
        if (r) {
            idle = 0;
            std::memcpy(data + taken * width, beat, width);
            if (!error) error = response;
            if (++taken == beats) result = error;
        }
        if (result < 0 && idle >= device.limit) result = address_open ? kTimeoutAr : kTimeoutR;
    }
    port.ar(false, 0);
    port.ar_burst(0);
    port.rready(false);
    device.dirty = true;
    return result;
}

}  // namespace

extern "C" {

// memory: one pointer a tile, each to `bytes` bytes that outlive the device. helpers: threads beside the caller's.
Device* rl_create(uint8_t** memory, uint64_t bytes, uint64_t limit, uint32_t helpers) {
    auto* device = new Device;
    for (int tile = 0; tile < RL_TILES; ++tile) device->memory[tile] = memory[tile];
    device->beat_mask = bytes / kBeat - 1;
    device->limit = limit;
    device->help(helpers);
    return device;
}

void rl_destroy(Device* device) {
#if RL_WAVES
    if (device->waves) device->waves->close();
#endif
    device->finish();
    delete device;
}

uint64_t rl_cycle(const Device* device) { return device->cycle; }

void rl_reset(Device* device, uint32_t cycles) {
    device->settle();
    device->reset(true);
    while (cycles--) device->edge();
    device->reset(false);
}

// Until the interrupt is high, or for `limit` cycles. 1: the interrupt is high.
int rl_run(Device* device, uint64_t limit) {
    device->settle();
    while (!device->top->irq && limit--) device->edge();
    return device->top->irq;
}

int rl_lite_write(Device* device, uint64_t address, uint32_t value) {
    const uint32_t strobe = 0xF;
    return write(*device, Lite{*device->top}, 4, address, 1, reinterpret_cast<const uint8_t*>(&value), &strobe);
}

int rl_lite_read(Device* device, uint64_t address, uint32_t* value) {
    return read(*device, Lite{*device->top}, 4, address, 1, reinterpret_cast<uint8_t*>(value));
}

int rl_burst_write(Device* device, uint64_t address, uint32_t beats, const uint8_t* data, const uint32_t* strobes) {
    return write(*device, Full{*device->top}, kBeat, address, beats, data, strobes);
}

int rl_burst_read(Device* device, uint64_t address, uint32_t beats, uint8_t* data) {
    return read(*device, Full{*device->top}, kBeat, address, beats, data);
}

// Record the command buses of the DRAMs from now on, or no more. What was recorded and not taken is gone.
void rl_record(Device* device, int on) {
    device->recording = on;
    device->commands.clear();
}

// The commands since the last call; they stay where they are until the next call of any function.
const Command* rl_commands(Device* device, uint64_t* count) {
    *count = device->commands.size();
    return device->commands.data();
}

void rl_commands_taken(Device* device) { device->commands.clear(); }

// Everything a model stores, so that one built from the same Verilog can go on where this one stands: names and places
// from `base` on. Models are numbered from 0; behind the last one there is no table.
const Member* rl_state(Device* device, uint32_t model, void** base, uint32_t* count) {
    device->settle_all();
    return device->state(model, base, count);
}

// What rl_state shows has been written from outside.
void rl_adopted(Device* device, uint64_t cycle) {
    device->cycle = cycle;
    device->adopted();
}

#if RL_WAVES
// scopes: hierarchical names; none: everything. Cycles count from now. 0: the file cannot be written.
int rl_waves_start(Device* device, const char* path, const char* const* scopes, uint32_t count, uint64_t from,
                   uint64_t to) {
    device->settle_all();
    device->waves.reset();
    device->file = device->new_file();
    auto waves = std::make_unique<VerilatedVcdC>(device->file.get());
    waves->set_time_unit("1ps");
    waves->set_time_resolution("1ps");
    if (count) waves->dumpvars(1, device->scope("ringloom"));  // clock, reset, interrupt and buses are always there
    for (uint32_t i = 0; i < count; ++i) waves->dumpvars(99, device->scope(scopes[i]));
    device->trace(*waves);
    waves->open(path);
    if (!waves->isOpen()) return 0;
    device->waves = std::move(waves);
    device->waves_from = device->cycle + from;
    device->waves_to = to > UINT64_MAX - device->cycle ? UINT64_MAX : device->cycle + to;
    return 1;
}

void rl_waves_stop(Device* device) {
    if (device->waves) device->waves->close();
    device->waves.reset();
}
#endif

}  // extern "C"
