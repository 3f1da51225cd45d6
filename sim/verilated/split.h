// A device whose tiles are models of their own, all of one class: see harness.cpp.
//
// No output of a tile depends on its inputs within a cycle. So all models see the clock rise with the inputs of the
// cycle; then the tiles' outputs, which are final, are put on the shell's inputs, the shell settles, and its outputs
// are put on the tiles'. That is what one model of everything would do. Tiles know nothing of each other meanwhile, so
// that several threads may share them.
//
// ports.h: RL_STORAGE(X) calls X(port, prefix) for the RL_PORTS storage ports of a tile; RL_TO_SHELL(X) and
// RL_TO_TILES(X) call X(tile, member of the shell, member of the tile) for every wire between them.

#pragma once

#include "Vringloom.h"
#include "Vringloom___024root.h"
#include "Vtile.h"
#include "Vtile___024root.h"
#include "crew.h"
#include "model.h"
#if RL_WAVES
#include "joined.h"
#endif
#include "state.h"

#include <algorithm>


void Vringloom___024root___eval_settle(Vringloom___024root* root);
void Vtile___024root___eval_settle(Vtile___024root* root);

namespace {

struct Device : DeviceBase {
    std::unique_ptr<Vringloom> top;
    std::unique_ptr<Vtile> tiles[RL_TILES];
    uint64_t words[RL_TILES][RL_PORTS] = {};  // what the DRAMs' command buses show in this cycle
    std::unique_ptr<Crew> crew;

    Device() {
        top = std::make_unique<Vringloom>(&context, "shell");
        top->clk = 0;
        for (int tile = 0; tile < RL_TILES; ++tile) {
            tiles[tile] = std::make_unique<Vtile>(&context, ("tile" + std::to_string(tile)).c_str());
            tiles[tile]->clk = 0;
            tiles[tile]->number = tile;
        }
        reset(true);
        help(0);
    }

    void help(uint32_t helpers) {
        crew.reset();
        crew = std::make_unique<Crew>(
            std::min<uint32_t>(helpers, RL_TILES - 1),
            [](void* device, uint32_t tile) { static_cast<Device*>(device)->tile_edge(tile); }, this);
    }

    void finish() {
        crew.reset();
        top->final();
        for (auto& tile : tiles) tile->final();
    }

    void reset(bool on) {
        set_reset(*top, on);
        for (auto& tile : tiles) set_reset(*tile, on);
        to_shell();
        to_tiles();
    }

    void to_shell() {
#define X(tile, outside, inside) top->outside = tiles[tile]->inside;
        RL_TO_SHELL(X)
#undef X
        top->eval();
    }

    void to_tiles() {
#define X(tile, outside, inside) tiles[tile]->inside = top->outside;
        RL_TO_TILES(X)
#undef X
    }

    // Tiles settle when their clock is about to rise, or when somebody looks.
    void settle() {
        if (dirty) {
            top->eval();
            to_tiles();
            dirty = false;
        }
    }

    void settle_all() {
        settle();
        for (auto& tile : tiles) tile->eval();
    }

    void tile_edge(uint32_t number) {
        Vtile& tile = *tiles[number];
        Access accesses[RL_PORTS];
        tile.eval();
#define X(port, prefix)                                                                            \
    accesses[port].sample(tile.prefix##enable, tile.prefix##write, tile.prefix##address & beat_mask, \
                          tile.prefix##strobe, tile.prefix##write_data, memory[number]);
        RL_STORAGE(X)
#undef X
#if RL_COMMANDS
#define X(port, prefix) words[number][port] = tile.prefix##commands;
        if (recording) { RL_STORAGE(X) }
#undef X
#endif
        tile.clk = 1;
        tile.eval();
#define X(port, prefix) accesses[port].answer(tile.prefix##read_data);
        RL_STORAGE(X)
#undef X
        tile.clk = 0;
    }

    void edge() {
        settle();
#if RL_WAVES
        if (waves) {
            settle_all();
            record(kCycleTime / 2);
        }
#endif
        top->clk = 1;
        top->eval();
        crew->run(RL_TILES);
        if (recording) {
            for (uint64_t port = 0; port < RL_TILES * RL_PORTS; ++port) {
                take(port, words[port / RL_PORTS][port % RL_PORTS]);
            }
        }
        ++cycle;
#if RL_WAVES
        if (waves) {
            for (auto& tile : tiles) tile->clk = 1;
            record(0);
            for (auto& tile : tiles) tile->clk = 0;
        }
#endif
        top->clk = 0;
        to_shell();
        to_tiles();
    }

    // Model 0 is the shell, the others are the tiles.
    const Member* state(uint32_t model, void** base, uint32_t* count) {
#define X(member) {#member, offsetof(Vringloom___024root, member), sizeof(Vringloom___024root::member)},
        static constexpr Member shell[] = {RL_MEMBERS(X)};
#undef X
#define X(member) {#member, offsetof(Vtile___024root, member), sizeof(Vtile___024root::member)},
        static constexpr Member tile[] = {RL_TILE_MEMBERS(X)};
#undef X
        if (model > RL_TILES) return nullptr;
        *base = model ? static_cast<void*>(tiles[model - 1]->rootp) : top->rootp;
        *count = model ? sizeof(tile) / sizeof(tile[0]) : sizeof(shell) / sizeof(shell[0]);
        return model ? tile : shell;
    }

    void adopted() {
        Vringloom___024root___eval_settle(top->rootp);
        for (auto& tile : tiles) Vtile___024root___eval_settle(tile->rootp);
        dirty = true;
    }

#if RL_WAVES
    void trace(VerilatedVcdC& file) {
        top->trace(&file, 99);
        for (auto& tile : tiles) tile->trace(&file, 99);
    }

    std::unique_ptr<VerilatedVcdFile> new_file() { return std::make_unique<JoinedFile>(); }

    // Verilator's name of a scope of the device: ringloom.tile1.load is tile1.ringloom_tile.load.
    std::string scope(const std::string& name) {
        const size_t first = name.find('.');
        if (first == std::string::npos) return "shell.ringloom_shell";
        const size_t second = name.find('.', first + 1);
        const std::string part = name.substr(first + 1, second - first - 1);
        return part + (part == "shell" ? ".ringloom_shell" : ".ringloom_tile")
               + (second == std::string::npos ? "" : name.substr(second));
    }
#endif
};

}  // namespace
