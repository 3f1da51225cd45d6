// Drives the collective engines of all tiles: joins the nodes of the ring by their links, offers each tile its
// commands, plays the command processor where a job ends, and holds streams back at random.
//
// Every output of a node's links is a register: after a clock edge they are copied to the neighbours' inputs.
// ports.h is made for each design: RL_STORAGE(X) calls X(index, tile, prefix) for every storage port of a node.

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
#define X(index, tile, prefix) +1
constexpr uint32_t kHolds = 4 RL_STORAGE(X);  // streams of a tile that can be held
#undef X

enum Status : uint32_t { kPending = 0, kDone = 1, kFault = 2, kAborted = 3 };
enum Flags : uint32_t { kNewJob = 1, kAbort = 2 };

// As numpy lays them out in collective_bench.py.
struct Command {
    uint8_t record[kRecord];
    uint64_t earliest, accepted, ended, address;
    uint32_t flags, status, code, unused;
};
static_assert(sizeof(Command) == 112);

struct Job { uint64_t window_base, window_limit; uint32_t context, epoch; };

struct Node {
    VerilatedContext context;
    Vringloom top{&context, ""};
    uint8_t* memory = nullptr;
    Command* commands = nullptr;
    uint32_t next = 0, oldest = 0, count = 0;
    bool draining = false, clear = false;
    uint64_t held_until[kHolds] = {};

    // Takes effect at once: the register of the reset has a clock of its own.
    void reset(bool on) {
        top.rst_in = on;
        top.rst_set = 0;
        top.eval();
        top.rst_set = 1;
        top.eval();
    }

    void edge() {
#define X(index, tile, prefix)                                                                           \
    alignas(32) uint8_t read##index[kBeat];                                                              \
    const bool asked##index = memory && top.prefix##enable;                                              \
    uint8_t* const beat##index = memory + static_cast<uint64_t>(top.prefix##address) * kBeat;            \
    if (asked##index) std::memcpy(read##index, beat##index, kBeat);
        RL_STORAGE(X)
#undef X
#define X(index, tile, prefix)                                                                           \
    if (asked##index && top.prefix##write) {                                                             \
        const uint8_t* const data = reinterpret_cast<const uint8_t*>(top.prefix##write_data.data());     \
        for (uint32_t i = 0; i < kBeat; ++i) if (top.prefix##strobe >> i & 1) beat##index[i] = data[i];  \
    }
        RL_STORAGE(X)
#undef X
        top.clk = 1;
        top.eval();
#define X(index, tile, prefix)                                                                           \
    if (asked##index) std::memcpy(top.prefix##read_data.data(), read##index, kBeat);
        RL_STORAGE(X)
#undef X
        top.clk = 0;
    }
};

struct Bench {
    std::vector<std::unique_ptr<Node>> nodes;  // the tiles, and the host's stop
    uint64_t cycle = 0, bytes = 0;
    uint64_t random = 88172645463325252ull;

    uint32_t next() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<uint32_t>(random >> 32);
    }

    void edge() {
        for (auto& node : nodes) node->edge();
        ++cycle;
        const size_t count = nodes.size();
        for (size_t i = 0; i < count; ++i) {
            Vringloom& from = nodes[i]->top;
#define LINK(direction, neighbour)                                                        \
    {                                                                                     \
        Vringloom& to = nodes[neighbour]->top;                                            \
        to.link_in_##direction##_valid = from.link_out_##direction##_valid;               \
        to.link_in_##direction##_turn = from.link_out_##direction##_turn;                 \
        if (from.link_out_##direction##_valid) {                                          \
            to.link_in_##direction##_network = from.link_out_##direction##_network;       \
            to.link_in_##direction##_flit = from.link_out_##direction##_flit;             \
        }                                                                                 \
        from.link_out_##direction##_credits = to.link_in_##direction##_credits;           \
    }
            LINK(0, (i + 1) % count)
            LINK(1, (i + count - 1) % count)
#undef LINK
        }
    }

    // What a tile is offered; a new job begins when the one before is quiet, behind a cycle of `clear`.
    // Returns whether it has anything to do.
    bool offer(Node& s, uint64_t now, uint32_t hold, uint32_t longest) {
        Command* const c = s.next < s.count ? s.commands + s.next : nullptr;
        if (c && (c->flags & kAbort) && now >= c->earliest && !s.clear && s.oldest < s.next) s.draining = true;
        const bool wait = c && (c->flags & kNewJob);
        s.top.clear = s.clear;
        s.top.halt = s.draining || s.clear;
        s.top.valid = c && !s.clear && !s.draining && now >= c->earliest && !wait;
        if (c && !wait) std::memcpy(s.top.command.data(), c->record, kRecord);
        uint32_t mask = 0;
        for (uint32_t i = 0; hold && i < kHolds; ++i) {
            if (s.held_until[i] <= now && (next() & 255) < hold) s.held_until[i] = now + 1 + next() % longest;
            mask |= static_cast<uint32_t>(s.held_until[i] > now) << i;
        }
        s.top.hold = mask;
        return c || s.oldest < s.next || s.clear || s.draining;
    }

    void look(Node& s) {
        bytes += s.top.bytes;
        if (s.clear) {
            s.clear = false;
            if (s.next < s.count) s.commands[s.next].flags = 0;
        } else if (s.draining) {
            if (!s.top.quiet) return;
            s.draining = false;
            s.clear = true;
            for (; s.oldest < s.next; ++s.oldest)
                if (s.commands[s.oldest].status == kPending) s.commands[s.oldest].status = kAborted;
            for (; s.next < s.count && !(s.commands[s.next].flags & kNewJob); ++s.next)
                s.commands[s.next].status = kAborted;
            s.oldest = s.next;
        } else {
            if (s.top.done) {
                Command& c = s.commands[s.oldest++];
                c.status = kDone;
                c.ended = cycle;
            }
            if (s.top.fault) {  // of the oldest, or of one that is refused before it is in the engine
                Command& c = s.commands[s.oldest];
                c.status = kFault;
                c.ended = cycle;
                c.code = s.top.fault_code;
                c.address = s.top.fault_address;
                s.draining = true;
            } else if (s.top.valid && s.top.ready) {
                s.commands[s.next++].accepted = cycle;
            } else if (s.next < s.count && (s.commands[s.next].flags & kNewJob) && s.oldest == s.next
                       && s.top.quiet) {
                s.clear = true;
            }
        }
    }
};

}  // namespace

extern "C" {

Bench* rl_collective_create(uint32_t tiles, uint8_t** memory) {
    auto* bench = new Bench;
    for (uint32_t i = 0; i <= tiles; ++i) {
        bench->nodes.push_back(std::make_unique<Node>());
        Node& node = *bench->nodes.back();
        node.memory = i < tiles ? memory[i] : nullptr;
        node.top.stop = i;
        node.top.clk = 0;
        node.reset(true);
    }
    for (int i = 0; i < 3; ++i) {
        for (auto& node : bench->nodes) node->top.eval();
        bench->edge();
    }
    for (auto& node : bench->nodes) node->reset(false);
    return bench;
}

void rl_collective_destroy(Bench* bench) {
    for (auto& node : bench->nodes) node->top.final();
    delete bench;
}

uint64_t rl_collective_bytes(Bench* bench) { return bench->bytes; }

// counts, commands: of each tile. hold: of 256 cycles so many in which a stream begins to be held, for up to `longest`
// cycles. Returns the cycles until every command has ended and every engine is quiet, or `limit`.
uint64_t rl_collective_run(Bench* bench, const uint32_t* counts, Command** commands, const Job* jobs, uint32_t hold,
                           uint32_t longest, uint64_t seed, uint64_t limit) {
    const size_t tiles = bench->nodes.size() - 1;
    bench->random = seed * 0x9E3779B97F4A7C15ull + 1;
    bench->bytes = 0;
    for (size_t i = 0; i < tiles; ++i) {
        Node& s = *bench->nodes[i];
        s.commands = commands[i];
        s.next = s.oldest = 0;
        s.count = counts[i];
        std::memset(s.held_until, 0, sizeof s.held_until);
        s.top.window_base = jobs[i].window_base;
        s.top.window_limit = jobs[i].window_limit;
        s.top.context = jobs[i].context;
        s.top.epoch = jobs[i].epoch;
    }
    const uint64_t start = bench->cycle;
    uint64_t now = 0;
    for (; now < limit; now = bench->cycle - start) {
        bool busy = false;
        for (size_t i = 0; i < tiles; ++i) busy |= bench->offer(*bench->nodes[i], now, hold, longest);
        for (auto& node : bench->nodes) node->top.eval();
        for (size_t i = 0; i < tiles; ++i) {
            Node& s = *bench->nodes[i];
            busy |= !s.top.quiet || s.top.busy;
            bench->look(s);
        }
        if (!busy) break;
        bench->edge();
    }
    return now;
}

}  // extern "C"
