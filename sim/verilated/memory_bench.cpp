// Drives a tile's DRAM alone with a trace, checks every byte it returns, and records its command buses.
//
// One requester: each cycle it hands the next requests of the trace, in order, to the channels' queues, as many as
// there are channels and until one is full; a channel's queue gives its head to the channel's port.
// ports.h is made for each design: RL_STORAGE(X) calls X(index, tile, prefix) for every storage port: one a channel.

#include "Vringloom.h"
#include "ports.h"
#include "verilated.h"

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace {

constexpr uint32_t kBeat = 32;
constexpr uint32_t kTags = 2048;
constexpr uint32_t kCauses = 8;
constexpr size_t kDepth = 16;  // requests a channel's queue holds before its port

#define X(index, tile, prefix) +1
constexpr uint32_t kChannels = 0 RL_STORAGE(X);
#undef X

struct Beat { uint8_t bytes[kBeat]; };

struct Pending { bool busy = false, write = false; uint32_t index = 0; uint64_t start = 0; Beat expected; };

struct Channel {
    std::deque<uint32_t> queue;        // trace indices
    std::deque<uint32_t> data;         // writes accepted or offered whose data are to come
    bool offered = false, giving = false;
    uint32_t tag = 0, outstanding = 0;
    std::vector<Pending> pending = std::vector<Pending>(kTags);
};

struct Record { uint64_t cycle; uint32_t channel, op, bank, row, column; };

struct Bench {
    VerilatedContext context;
    std::unique_ptr<Vringloom> top;
    uint64_t cycle = 0;
    std::vector<Record> records;
    bool recording = false;
    uint64_t causes[kCauses] = {};
    uint64_t reads = 0, writes = 0, hits = 0, misses = 0, conflicts = 0, refreshes = 0, level = 0;
    uint64_t errors = 0;
    uint32_t first_error = 0;
    std::unordered_map<uint64_t, Beat> storage, reference;
    uint64_t random = 88172645463325252ull;

    uint32_t next() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<uint32_t>(random >> 32);
    }
};

// Data of the write at `index` of the trace; a third of the writes have holes.
void fill(uint32_t index, uint64_t seed, uint8_t* bytes, uint32_t& strobe) {
    uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ull ^ seed;
    for (uint32_t i = 0; i < kBeat; i += 8) {
        x ^= x >> 29;
        x *= 0xBF58476D1CE4E5B9ull;
        x ^= x >> 32;
        std::memcpy(bytes + i, &x, 8);
    }
    strobe = index % 3 ? 0xFFFFFFFFu : static_cast<uint32_t>(x >> 7);
}

}  // namespace

extern "C" {

Bench* rl_bench_create() {
    auto* bench = new Bench;
    bench->top = std::make_unique<Vringloom>(&bench->context, "");
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

void rl_bench_destroy(Bench* bench) {
    bench->top->final();
    delete bench;
}

// times, writes, addresses: the trace. saturate: without regard to times. stall: of 256 cycles so many, at random, in
// which responses are not taken and write data not given. latencies: cycles from acceptance to response,
// per request. window: requests behind the oldest one without a response. Returns requests completed before `limit` cycles passed.
uint64_t rl_bench_run(Bench* bench, uint64_t count, const uint64_t* times, const uint8_t* writes,
                      const uint64_t* addresses, uint32_t* latencies, int saturate, int record, uint32_t stall,
                      uint64_t interleave, uint64_t window, uint64_t limit) {
    Vringloom& t = *bench->top;
    std::vector<Channel> channels(kChannels);
    bench->recording = record;
    uint64_t next = 0, done = 0, oldest = 0;
    std::vector<bool> ended(count);
    const uint64_t start = bench->cycle;
    while (done < count && bench->cycle - start < limit) {
        for (uint32_t moved = 0; moved < kChannels && next < count; ++moved) {
            if (next - oldest >= window || (!saturate && times[next] > bench->cycle - start)) break;
            Channel& channel = channels[addresses[next] / interleave % kChannels];
            if (channel.queue.size() >= kDepth) break;
            channel.queue.push_back(static_cast<uint32_t>(next++));
        }
#define X(p, tile, prefix)                                                                                       \
        {                                                                                          \
            Channel& c = channels[p];                                                              \
            c.offered = !c.queue.empty() && !c.pending[c.tag].busy;                                \
            t.c##p##_valid = c.offered;                                                            \
            if (c.offered) {                                                                       \
                const uint32_t i = c.queue.front();                                                \
                t.c##p##_write = writes[i];                                                        \
                t.c##p##_address = addresses[i] & ~uint64_t{31};                                   \
                t.c##p##_tag = c.tag;                                                              \
            }                                                                                      \
            if (!c.data.empty() && (c.giving || (bench->next() & 255) >= stall)) {      \
                uint32_t strobe;                                                                   \
                fill(c.data.front(), 0, reinterpret_cast<uint8_t*>(t.c##p##_data.data()), strobe); \
                t.c##p##_strobe = strobe;                                                          \
                c.giving = true;                                                                   \
            } else c.giving = false;                                                               \
            t.c##p##_data_valid = c.giving;                                                        \
            t.c##p##_take = (bench->next() & 255) >= stall;                                        \
        }
        RL_STORAGE(X)
#undef X
        t.eval();
#define X(p, tile, prefix)                                                                                       \
        {                                                                                          \
            Channel& c = channels[p];                                                              \
            bench->causes[t.c##p##_event_cause]++;                                                 \
            bench->reads += t.c##p##_event_read;                                                   \
            bench->writes += t.c##p##_event_write;                                                 \
            bench->hits += t.c##p##_event_row_hit;                                                 \
            bench->misses += t.c##p##_event_row_miss;                                              \
            bench->conflicts += t.c##p##_event_row_conflict;                                       \
            bench->refreshes += t.c##p##_event_refresh;                                            \
            bench->level += t.c##p##_event_level;                                                  \
            if (record && t.c##p##_row_op)                                                         \
                bench->records.push_back({bench->cycle, p, t.c##p##_row_op, t.c##p##_row_bank, t.c##p##_row, 0}); \
            if (record && t.c##p##_column_op)                                                      \
                bench->records.push_back({bench->cycle, p, 8u + t.c##p##_column_op, t.c##p##_column_bank, 0,      \
                                          t.c##p##_column});                                       \
            if (c.offered && t.c##p##_ready) {                                                     \
                const uint32_t i = c.queue.front();                                                \
                c.queue.pop_front();                                                               \
                Pending& request = c.pending[c.tag];                                               \
                request.busy = true;                                                               \
                request.write = writes[i];                                                         \
                request.index = i;                                                                 \
                request.start = bench->cycle;                                                      \
                Beat& beat = bench->reference[addresses[i] / kBeat];                               \
                if (writes[i]) {                                                                   \
                    uint8_t bytes[kBeat];                                                          \
                    uint32_t strobe;                                                               \
                    fill(i, 0, bytes, strobe);                                                     \
                    for (uint32_t b = 0; b < kBeat; ++b) if (strobe >> b & 1) beat.bytes[b] = bytes[b]; \
                    c.data.push_back(i);                                                           \
                }                                                                                  \
                request.expected = beat;                                                           \
                c.tag = (c.tag + 1) % kTags;                                                       \
            }                                                                                      \
            if (c.giving && t.c##p##_data_ready) { c.data.pop_front(); c.giving = false; }          \
            if (t.c##p##_response && t.c##p##_take) {                                              \
                Pending& request = c.pending[t.c##p##_response_tag];                               \
                if (!request.busy || request.write != t.c##p##_response_write                      \
                    || (!request.write && std::memcmp(request.expected.bytes, t.c##p##_response_data.data(), kBeat))) { \
                    if (!bench->errors++) bench->first_error = request.index;                      \
                }                                                                                  \
                latencies[request.index] = static_cast<uint32_t>(bench->cycle - request.start);    \
                request.busy = false;                                                              \
                ended[request.index] = true;                                                       \
                ++done;                                                                            \
            }                                                                                      \
        }
        RL_STORAGE(X)
#undef X
        while (oldest < count && ended[oldest]) ++oldest;
        // Storage is asked by registers and answers behind the edge.
#define X(p, tile, prefix)                                                                                       \
        Beat answer##p;                                                                            \
        const bool asked##p = t.storage0_##p##_enable;                                             \
        if (asked##p) {                                                                            \
            Beat& beat = bench->storage[t.storage0_##p##_address];                                 \
            answer##p = beat;                                                                      \
            if (t.storage0_##p##_write)                                                            \
                for (uint32_t b = 0; b < kBeat; ++b)                                               \
                    if (t.storage0_##p##_strobe >> b & 1)                                          \
                        beat.bytes[b] = reinterpret_cast<const uint8_t*>(t.storage0_##p##_write_data.data())[b]; \
        }
        RL_STORAGE(X)
        t.clk = 1;
        t.eval();
        ++bench->cycle;
#undef X
#define X(p, tile, prefix) if (asked##p) std::memcpy(t.storage0_##p##_read_data.data(), answer##p.bytes, kBeat);
        RL_STORAGE(X)
#undef X
        t.clk = 0;
    }
    return done;
}

// cycles, reads, writes, hits, misses, conflicts, refreshes, level, errors, first error, records, then the causes.
void rl_bench_results(const Bench* bench, uint64_t* out) {
    const uint64_t values[] = {bench->cycle, bench->reads, bench->writes, bench->hits, bench->misses, bench->conflicts,
                               bench->refreshes, bench->level, bench->errors, bench->first_error, bench->records.size()};
    std::memcpy(out, values, sizeof values);
    std::memcpy(out + sizeof values / 8, bench->causes, sizeof bench->causes);
}

void rl_bench_records(const Bench* bench, uint64_t* out) {
    for (const Record& r : bench->records)
        for (const uint64_t value : {r.cycle, uint64_t{r.channel}, uint64_t{r.op}, uint64_t{r.bank}, uint64_t{r.row},
                                     uint64_t{r.column}}) *out++ = value;
}

}  // extern "C"
