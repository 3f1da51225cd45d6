// Drives a ring alone with random packets and checks that each comes out once, in order, unharmed and in time.
//
// Sources and sinks of every stop, network and direction are independent of each other. What must come out is kept
// in one queue for each source, destination, network and direction.

#include "Vringloom.h"
#include "verilated.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace {

constexpr uint32_t kNetworks = 4, kRequest = 0, kResponse = 2;
constexpr uint32_t kEchoes = 4;        // answers that wait at a stop before it takes no more requests
constexpr size_t kQueue = 1 << 14;     // flits that wait at a source before it draws no more packets
constexpr uint64_t kStuck = 100'000;   // cycles without a flit going in or coming out

// As _OPTIONS in ring_bench.py.
struct Options {
    uint64_t stops, seed, packets, limit, warm, pattern, hot, hot_share, load, shortest_packet, longest_packet, networks,
        stall, patience, gaps, any_way, echo;
};

enum Pattern : uint64_t { kOthers, kAll, kHot, kNeighbour };

// As _RESULTS in ring_bench.py.
struct Results {
    uint64_t cycles, drawn, injected, ejected, own, errors, stuck, wait, latency, latency_limit, hops, delivered,
        count_injected, count_forwarded, count_ejected, count_stalled;
};

struct Flit { uint64_t word, start; };

struct Source {
    std::deque<uint64_t> queue;
    bool offered = false;
    uint64_t since = 0;
};

struct Sink {
    uint32_t share = 256;  // of 256 cycles, those in which it is ready
    uint64_t waits = 0;
};

// A vector of the model, whatever its width made of it.
template <class T> uint32_t* words(T& vector) { return reinterpret_cast<uint32_t*>(&vector); }
bool bit(const uint32_t* vector, uint32_t index) { return vector[index / 32] >> index % 32 & 1; }
void put(uint32_t* vector, uint32_t index, bool value) {
    vector[index / 32] = (vector[index / 32] & ~(1u << index % 32)) | uint32_t{value} << index % 32;
}

class Bench {
public:
    Bench(const Options& options, Results& results)
        : o(options), r(results), top(std::make_unique<Vringloom>(&context, "")), count(o.stops * kNetworks * 2),
          sources(count), sinks(count), expected(o.stops * o.stops * kNetworks * 2), credit(o.stops), length(o.stops),
          own(o.stops), echoes(o.stops), random(o.seed * 0x9E3779B97F4A7C15ull | 1) {
        r = {};
        top->clk = 0;
        reset(true);
        for (int i = 0; i < 3; ++i) clock();
        reset(false);
        for (auto& flits : length) flits = draw_length();
    }

    ~Bench() { top->final(); }

    void run() {
        uint64_t moved = 0;
        while (r.cycles < o.limit && r.cycles - moved < kStuck) {
            for (uint32_t s = 0; s < o.stops; ++s) draw(s);
            if (r.drawn == o.packets && !pending) break;
            offer();
            top->eval();
            if (transfer() || !pending) moved = r.cycles;
            clock();
            ++r.cycles;
        }
        r.stuck = r.cycles - moved >= kStuck;
        top->eval();
        r.count_injected = top->injected;
        r.count_forwarded = top->forwarded;
        r.count_ejected = top->ejected;
        r.count_stalled = top->stalled;
    }

private:
    const Options& o;
    Results& r;
    VerilatedContext context;
    std::unique_ptr<Vringloom> top;
    uint32_t count;
    std::vector<Source> sources;
    std::vector<Sink> sinks;
    std::vector<std::deque<Flit>> expected;
    std::vector<uint64_t> credit, length, own;
    std::vector<uint32_t> echoes;
    uint64_t random, sequence = 0, pending = 0;  // flits that were drawn and have not arrived

    uint32_t next(uint32_t below) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return static_cast<uint32_t>((random >> 32) * below >> 32);
    }

    void reset(bool on) {  // its register has a clock of its own
        top->rst_in = on;
        top->rst_set = 0;
        top->eval();
        top->rst_set = 1;
        top->eval();
    }

    void clock() {
        top->clk = 1;
        top->eval();
        top->clk = 0;
    }

    uint64_t draw_length() { return o.shortest_packet + next(o.longest_packet - o.shortest_packet + 1); }

    uint32_t hops(uint32_t from, uint32_t to, bool counterclockwise) const {
        return (counterclockwise ? from + o.stops - to : to + o.stops - from) % o.stops;
    }

    // The shorter way; where both are equal, stops of an even number go clockwise.
    bool way(uint32_t from, uint32_t to) const {
        const uint32_t clockwise = hops(from, to, false), other = hops(from, to, true);
        return clockwise == other ? from % 2 : clockwise > other;
    }

    void queue(uint32_t from, uint32_t to, uint32_t network, bool counterclockwise, bool last) {
        const uint64_t word = to | from << 5 | uint64_t{last} << 10 | ++sequence * 0x9E3779B97F4A7C15ull << 11;
        sources[(from * kNetworks + network) * 2 + counterclockwise].queue.push_back(word);
        ++pending;
    }

    uint32_t destination(uint32_t from) {
        const bool hot = o.pattern == kHot && from != o.hot && next(256) < o.hot_share;
        if (hot) return o.hot;
        if (o.pattern == kAll) return next(o.stops);
        if (o.pattern == kNeighbour) return (from + (next(2) ? 1 : o.stops - 1)) % o.stops;
        return (from + 1 + next(o.stops - 1)) % o.stops;
    }

    void draw(uint32_t from) {
        credit[from] += o.load;
        while (credit[from] >= length[from] << 16 && r.drawn < o.packets) {
            const uint32_t to = destination(from);
            uint32_t network;
            do network = next(kNetworks); while (!(o.networks >> network & 1));
            const bool other = o.any_way ? next(2) : way(from, to);
            if (sources[(from * kNetworks + network) * 2 + other].queue.size() > kQueue) {
                credit[from] = 0;
                return;
            }
            ++r.drawn;
            if (to == from) own[from] += length[from], pending += length[from];
            else for (uint64_t k = 0; k < length[from]; ++k) queue(from, to, network, other, k + 1 == length[from]);
            credit[from] -= length[from] << 16;
            length[from] = draw_length();
        }
    }

    void offer() {
        uint32_t* valid = words(top->inject_valid);
        uint32_t* ready = words(top->eject_ready);
        uint64_t* flits = reinterpret_cast<uint64_t*>(words(top->inject_words));
        for (uint32_t p = 0; p < count; ++p) {
            Source& source = sources[p];
            if (!source.offered && !source.queue.empty() && !(o.gaps && next(256) < o.gaps)) {
                source.offered = true;
                source.since = r.cycles;
                flits[p] = source.queue.front();
            }
            put(valid, p, source.offered);
            Sink& sink = sinks[p];
            if (o.stall && r.cycles % 64 == p % 64) {
                const uint32_t shares[] = {0, 8, 64, 200, 256, 256};
                sink.share = shares[next(6)];
            }
            const bool full = o.echo && p / 2 % kNetworks == kRequest && echoes[p / 2 / kNetworks] >= kEchoes;
            put(ready, p, !full && (!o.stall || sink.waits >= o.patience || next(256) < sink.share));
        }
    }

    bool transfer() {
        const uint32_t *taken = words(top->inject_ready), *shown = words(top->eject_valid), *harm = words(top->damaged),
                       *ready = words(top->eject_ready);
        const uint64_t* flits = reinterpret_cast<uint64_t*>(words(top->eject_words));
        bool moved = false;
        for (uint32_t p = 0; p < count; ++p) {
            const uint32_t stop = p / 2 / kNetworks, port = p % (2 * kNetworks);
            Source& source = sources[p];
            if (source.offered && bit(taken, p)) {
                const uint64_t word = source.queue.front();
                source.queue.pop_front();
                source.offered = false;
                r.wait = std::max(r.wait, r.cycles - source.since);
                r.hops += hops(stop, word & 31, port & 1);
                expected[(stop * o.stops + (word & 31)) * 2 * kNetworks + port].push_back({word, r.cycles});
                ++r.injected;
                if (o.echo && port / 2 == kResponse) --echoes[stop];
                moved = true;
            }
            Sink& sink = sinks[p];
            if (!bit(shown, p)) continue;
            ++sink.waits;
            if (!bit(ready, p)) continue;
            sink.waits = 0;
            check(stop, port, flits[p], bit(harm, p));
            moved = true;
        }
        for (auto& flits : own) {
            if (!flits) continue;
            --flits;
            --pending;
            ++r.own;
            r.delivered += r.cycles >= o.warm;
            moved = true;
        }
        return moved;
    }

    void check(uint32_t stop, uint32_t port, uint64_t word, bool harm) {
        ++r.ejected;
        r.delivered += r.cycles >= o.warm;
        const uint32_t from = word >> 5 & 31;
        if (from >= o.stops || (word & 31) != stop) { ++r.errors; return; }
        auto& queue = expected[(from * o.stops + stop) * 2 * kNetworks + port];
        if (queue.empty() || queue.front().word != word || harm) { ++r.errors; return; }
        const uint64_t latency = r.cycles - queue.front().start;
        queue.pop_front();
        --pending;
        r.latency += latency;
        r.latency_limit = std::max(r.latency_limit, latency);
        if (o.echo && port / 2 == kRequest) {
            ++echoes[stop];
            this->queue(stop, from, kResponse, way(stop, from), true);
        }
    }
};

}  // namespace

extern "C" void rl_ring_run(const Options* options, Results* results) { Bench(*options, *results).run(); }
