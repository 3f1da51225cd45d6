// Drives the collective engines of all tiles: offers each its commands, plays the command processor where a job ends,
// and holds streams back at random.
//
// ports.h is made for each design: RL_STORAGE(X) calls X(index, tile, prefix) for every storage port; RL_TILES.

#include "Vringloom.h"
#include "ports.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace {

constexpr uint32_t kBeat = 32;
constexpr uint32_t kRecord = 64;
constexpr uint32_t kHolds = 16;  // streams of a tile that can be held, at most

#define EACH1(X) X(0)
#define EACH2(X) EACH1(X) X(1)
#define EACH3(X) EACH2(X) X(2)
#define EACH4(X) EACH3(X) X(3)
#define EACH5(X) EACH4(X) X(4)
#define EACH6(X) EACH5(X) X(5)
#define EACH7(X) EACH6(X) X(6)
#define EACH8(X) EACH7(X) X(7)
#define EACH9(X) EACH8(X) X(8)
#define EACH10(X) EACH9(X) X(9)
#define EACH11(X) EACH10(X) X(10)
#define EACH12(X) EACH11(X) X(11)
#define EACH13(X) EACH12(X) X(12)
#define EACH14(X) EACH13(X) X(13)
#define EACH15(X) EACH14(X) X(14)
#define EACH16(X) EACH15(X) X(15)
#define JOIN(a, b) a##b
#define JOINED(a, b) JOIN(a, b)
#define RL_EACH_TILE(X) JOINED(EACH, RL_TILES)(X)

enum Status : uint32_t { kPending = 0, kDone = 1, kFault = 2, kAborted = 3 };
enum Flags : uint32_t { kNewJob = 1, kAbort = 2 };

// As numpy lays it out in collective_bench.py.
struct Command {
    uint8_t record[kRecord];
    uint64_t earliest, accepted, ended, address;
    uint32_t flags, status, code, unused;
};
static_assert(sizeof(Command) == 112);

struct Job { uint64_t window_base, window_limit; uint32_t context, epoch; };

struct Tile {
    uint32_t next = 0, oldest = 0, count = 0;
    bool draining = false, clear = false;
    uint32_t holds = 0;
    uint64_t held_until[kHolds] = {};
};

struct Bench {
    VerilatedContext context;
    std::unique_ptr<Vringloom> top;
    uint64_t cycle = 0, bytes = 0;
    uint8_t* memory[RL_TILES] = {};
    uint64_t random = 88172645463325252ull;

    uint32_t next() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<uint32_t>(random >> 32);
    }

    void edge() {
#define X(index, tile, prefix)                                                                            \
    alignas(32) uint8_t read##index[kBeat];                                                               \
    const bool asked##index = top->prefix##enable;                                                        \
    uint8_t* const beat##index = memory[tile] + static_cast<uint64_t>(top->prefix##address) * kBeat;      \
    if (asked##index) std::memcpy(read##index, beat##index, kBeat);
        RL_STORAGE(X)
#undef X
#define X(index, tile, prefix)                                                                            \
    if (asked##index && top->prefix##write) {                                                             \
        const uint8_t* const data = reinterpret_cast<const uint8_t*>(top->prefix##write_data.data());     \
        for (uint32_t i = 0; i < kBeat; ++i) if (top->prefix##strobe >> i & 1) beat##index[i] = data[i];  \
    }
        RL_STORAGE(X)
#undef X
        top->clk = 1;
        top->eval();
        ++cycle;
#define X(index, tile, prefix)                                                                            \
    if (asked##index) std::memcpy(top->prefix##read_data.data(), read##index, kBeat);
        RL_STORAGE(X)
#undef X
        top->clk = 0;
    }
};

}  // namespace

extern "C" {

Bench* rl_collective_create(uint8_t** memory) {
    auto* bench = new Bench;
    bench->top = std::make_unique<Vringloom>(&bench->context, "");
    std::memcpy(bench->memory, memory, sizeof bench->memory);
    const auto reset = [bench](bool on) {  // its register has a clock of its own
        bench->top->rst_in = on;
        bench->top->rst_set = 0;
        bench->top->eval();
        bench->top->rst_set = 1;
        bench->top->eval();
    };
    bench->top->clk = 0;
    reset(true);
    for (int i = 0; i < 3; ++i) {
        bench->top->clk = 1;
        bench->top->eval();
        bench->top->clk = 0;
        bench->top->eval();
    }
    reset(false);
    return bench;
}

void rl_collective_destroy(Bench* bench) {
    bench->top->final();
    delete bench;
}

uint64_t rl_collective_bytes(Bench* bench) { return bench->bytes; }

// counts, commands: of each tile. hold: of 256 cycles so many in which a stream begins to be held, for up to `longest`
// cycles. Returns the cycles until every command has ended and every engine is quiet, or `limit`.
uint64_t rl_collective_run(Bench* bench, const uint32_t* counts, Command** commands, const Job* jobs, uint32_t hold,
                           uint32_t longest, uint64_t seed, uint64_t limit) {
    Vringloom& t = *bench->top;
    std::vector<Tile> tiles(RL_TILES);
    bench->random = seed * 0x9E3779B97F4A7C15ull + 1;
    bench->bytes = 0;
    const uint64_t start = bench->cycle;
    for (uint32_t i = 0; i < RL_TILES; ++i) tiles[i].count = counts[i];
#define X(n)                                                                                              \
    t.t##n##_window_base = jobs[n].window_base;                                                           \
    t.t##n##_window_limit = jobs[n].window_limit;                                                         \
    t.t##n##_context = jobs[n].context;                                                                   \
    t.t##n##_epoch = jobs[n].epoch;
    RL_EACH_TILE(X)
#undef X
    for (uint64_t now = 0; now < limit; now = bench->cycle - start) {
        bool busy = false;
        // What a tile offers; a new job begins when the one before is quiet, behind a cycle of `clear`.
#define X(n)                                                                                              \
        {                                                                                                 \
            Tile& s = tiles[n];                                                                           \
            Command* c = s.next < s.count ? commands[n] + s.next : nullptr;                               \
            if (c && (c->flags & kAbort) && now >= c->earliest && !s.draining && s.oldest < s.next)       \
                s.draining = true;                                                                        \
            t.t##n##_clear = s.clear;                                                                     \
            t.t##n##_stop = s.draining;                                                                   \
            const bool wait = c && (c->flags & kNewJob);                                                  \
            t.t##n##_valid = c && !s.clear && !s.draining && now >= c->earliest && !wait;                 \
            if (c && !wait) std::memcpy(t.t##n##_command.data(), c->record, kRecord);                     \
            if (hold) {                                                                                   \
                uint32_t mask = 0;                                                                        \
                for (uint32_t i = 0; i < kHolds; ++i) {                                                   \
                    if (s.held_until[i] <= now && (bench->next() & 255) < hold)                           \
                        s.held_until[i] = now + 1 + bench->next() % longest;                              \
                    mask |= (s.held_until[i] > now) << i;                                                 \
                }                                                                                         \
                t.t##n##_hold = mask & s.holds;                                                           \
            } else t.t##n##_hold = 0;                                                                     \
            busy |= c != nullptr || s.oldest < s.next || s.clear || s.draining;                           \
        }
        for (Tile& s : tiles) s.holds = (1u << (4 + RL_PORTS)) - 1;
        RL_EACH_TILE(X)
#undef X
        t.eval();
#define X(n)                                                                                              \
        {                                                                                                 \
            Tile& s = tiles[n];                                                                           \
            bench->bytes += t.t##n##_bytes;                                                               \
            busy |= !t.t##n##_quiet || t.t##n##_busy;                                                     \
            if (s.clear) {                                                                                \
                s.clear = false;                                                                          \
                if (s.next < s.count) commands[n][s.next].flags &= ~(kNewJob | kAbort);                   \
            } else if (s.draining) {                                                                      \
                if (t.t##n##_quiet) {                                                                     \
                    s.draining = false;                                                                   \
                    s.clear = true;                                                                       \
                    for (; s.oldest < s.next; ++s.oldest)                                                 \
                        if (commands[n][s.oldest].status == kPending) commands[n][s.oldest].status = kAborted; \
                    while (s.next < s.count && !(commands[n][s.next].flags & kNewJob)) {                  \
                        commands[n][s.next++].status = kAborted;                                          \
                        ++s.oldest;                                                                       \
                    }                                                                                     \
                }                                                                                         \
            } else {                                                                                      \
                if (t.t##n##_done) {                                                                      \
                    Command& c = commands[n][s.oldest++];                                                 \
                    c.status = kDone;                                                                     \
                    c.ended = bench->cycle;                                                               \
                }                                                                                         \
                if (t.t##n##_fault && s.oldest < s.next) {                                                \
                    Command& c = commands[n][s.oldest];                                                   \
                    c.status = kFault;                                                                    \
                    c.ended = bench->cycle;                                                               \
                    c.code = t.t##n##_fault_code;                                                         \
                    c.address = t.t##n##_fault_address;                                                   \
                    s.draining = true;                                                                    \
                } else if (t.t##n##_valid && t.t##n##_ready) {                                            \
                    commands[n][s.next++].accepted = bench->cycle;                                        \
                } else if (s.next < s.count && (commands[n][s.next].flags & kNewJob)                      \
                           && s.oldest == s.next && t.t##n##_quiet) {                                     \
                    s.clear = true;                                                                       \
                }                                                                                         \
            }                                                                                             \
        }
        RL_EACH_TILE(X)
#undef X
        if (!busy) break;
        bench->edge();
    }
    return bench->cycle - start;
}

}  // extern "C"
