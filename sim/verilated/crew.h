// Threads that share the tiles of a cycle. Whoever is free takes one, so that a thread that the system has put aside
// holds up no tile it has not begun; the caller takes them from one end and its helpers from the other, so that a tile
// mostly stays with its core.

#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

class Crew {
public:
    using Work = void (*)(void* owner, uint32_t item);

    Crew(uint32_t helpers, Work work, void* owner) : m_work(work), m_owner(owner) {
        for (uint32_t number = 0; number < helpers; ++number) m_threads.emplace_back([this] { help(); });
    }

    ~Crew() {
        m_end.store(true);
        m_round.fetch_add(1);
        m_round.notify_all();
        for (auto& thread : m_threads) thread.join();
    }

    // Does items 0 to count - 1, and returns when all are done; the caller works too.
    void run(uint32_t count) {
        if (m_threads.empty()) {
            for (uint32_t item = 0; item < count; ++item) m_work(m_owner, item);
            return;
        }
        m_left.store(count, std::memory_order_relaxed);
        // The round is part of what is open, so that a helper who comes late takes nothing of the next one by mistake.
        const uint64_t round = m_round.load(std::memory_order_relaxed) + 1;
        m_open.store(round << kItems | ((uint64_t{1} << count) - 1), std::memory_order_release);
        m_round.store(round, std::memory_order_seq_cst);
        if (m_asleep.load(std::memory_order_seq_cst)) m_round.notify_all();
        while (take(round, false)) {}
        for (uint32_t spins = 0; m_left.load(std::memory_order_acquire); ++spins) {
            if (spins < kPatience) pause();
            else std::this_thread::yield();
        }
    }

private:
    static constexpr uint32_t kItems = 16;      // bits of m_open for items
    static constexpr uint32_t kPatience = 4000; // pauses before a thread gives its core away: some tens of microseconds

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    bool take(uint64_t round, bool from_above) {
        uint64_t open = m_open.load(std::memory_order_acquire);
        for (;;) {
            const uint64_t items = open & ((uint64_t{1} << kItems) - 1);
            if (open >> kItems != round || !items) return false;
            const uint32_t item = from_above ? 63 - std::countl_zero(items) : std::countr_zero(items);
            if (!m_open.compare_exchange_weak(open, open & ~(uint64_t{1} << item), std::memory_order_acq_rel)) continue;
            m_work(m_owner, item);
            m_left.fetch_sub(1, std::memory_order_release);
            return true;
        }
    }

    void help() {
        uint64_t seen = 0;
        while (!m_end.load(std::memory_order_relaxed)) {
            uint64_t round = m_round.load(std::memory_order_acquire);
            for (uint32_t spins = 0; round == seen && spins < kPatience; ++spins) {
                pause();
                round = m_round.load(std::memory_order_acquire);
            }
            if (round == seen) {
                m_asleep.fetch_add(1, std::memory_order_seq_cst);
                m_round.wait(seen, std::memory_order_seq_cst);
                m_asleep.fetch_sub(1, std::memory_order_seq_cst);
                continue;
            }
            seen = round;
            while (take(round, true)) {}
        }
    }

    const Work m_work;
    void* const m_owner;
    alignas(64) std::atomic<uint64_t> m_round{0};
    alignas(64) std::atomic<uint64_t> m_open{0};
    alignas(64) std::atomic<uint32_t> m_left{0};
    alignas(64) std::atomic<uint32_t> m_asleep{0};
    std::atomic<bool> m_end{false};
    std::vector<std::thread> m_threads;  // last: they use what is above
};

}  // namespace
