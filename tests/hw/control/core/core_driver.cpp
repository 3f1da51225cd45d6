// Runs programs on the verilated core and checks what it did, instruction by instruction, against Unicorn.
//
// Unicorn executes; what it does not have (traps as a core enters them, alignment, the limits of RV32I: it always
// runs IMAC) is worked out here from the specification.

#include <unicorn/unicorn.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

namespace {

constexpr uint32_t DATA = 0x10000000;

struct Event {  // an instruction that retired, or a trap in the place of one
    uint32_t pc, value;
    uint8_t trap, interrupt, cause, rd;
};

struct Write {
    uint32_t address, data, strobe;
};

struct Random {
    uint32_t state;
    uint32_t next() {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        return state;
    }
    bool one_in(uint32_t n) { return n && next() % n == 0; }
};

// mask and match of every instruction the core has, in the order of the specification's listing
struct Format {
    const char* name;
    uint32_t mask, match;
};
constexpr Format FORMATS[] = {
    {"lui", 0x7f, 0x37}, {"auipc", 0x7f, 0x17}, {"jal", 0x7f, 0x6f}, {"jalr", 0x707f, 0x67},
    {"beq", 0x707f, 0x63}, {"bne", 0x707f, 0x1063}, {"blt", 0x707f, 0x4063}, {"bge", 0x707f, 0x5063},
    {"bltu", 0x707f, 0x6063}, {"bgeu", 0x707f, 0x7063}, {"lb", 0x707f, 0x03}, {"lh", 0x707f, 0x1003},
    {"lw", 0x707f, 0x2003}, {"lbu", 0x707f, 0x4003}, {"lhu", 0x707f, 0x5003}, {"sb", 0x707f, 0x23},
    {"sh", 0x707f, 0x1023}, {"sw", 0x707f, 0x2023}, {"addi", 0x707f, 0x13}, {"slti", 0x707f, 0x2013},
    {"sltiu", 0x707f, 0x3013}, {"xori", 0x707f, 0x4013}, {"ori", 0x707f, 0x6013}, {"andi", 0x707f, 0x7013},
    {"slli", 0xfe00707f, 0x1013}, {"srli", 0xfe00707f, 0x5013}, {"srai", 0xfe00707f, 0x40005013},
    {"add", 0xfe00707f, 0x33}, {"sub", 0xfe00707f, 0x40000033}, {"sll", 0xfe00707f, 0x1033},
    {"slt", 0xfe00707f, 0x2033}, {"sltu", 0xfe00707f, 0x3033}, {"xor", 0xfe00707f, 0x4033},
    {"srl", 0xfe00707f, 0x5033}, {"sra", 0xfe00707f, 0x40005033}, {"or", 0xfe00707f, 0x6033},
    {"and", 0xfe00707f, 0x7033}, {"fence", 0x707f, 0x0f}, {"fence.i", 0x707f, 0x100f},
    {"ecall", 0xffffffff, 0x73}, {"ebreak", 0xffffffff, 0x100073}, {"mret", 0xffffffff, 0x30200073},
    {"wfi", 0xffffffff, 0x10500073}, {"csrrw", 0x707f, 0x1073}, {"csrrs", 0x707f, 0x2073}, {"csrrc", 0x707f, 0x3073},
    {"csrrwi", 0x707f, 0x5073}, {"csrrsi", 0x707f, 0x6073}, {"csrrci", 0x707f, 0x7073},
};
constexpr int FORMAT_COUNT = sizeof FORMATS / sizeof *FORMATS;
constexpr uint32_t CSRS[] = {0x300, 0x301, 0x304, 0x305, 0x310, 0x340, 0x341, 0x342, 0x343, 0x344,
                             0xb00, 0xb02, 0xb80, 0xb82, 0xf11, 0xf12, 0xf13, 0xf14, 0xf15};

int find(uint32_t word) {  // the instruction's place in FORMATS; -1: illegal
    for (int i = 0; i < FORMAT_COUNT; i++)
        if ((word & FORMATS[i].mask) == FORMATS[i].match) {
            if (FORMATS[i].name[0] != 'c') return i;
            bool writes = (word >> 12 & 3) == 1 || (word >> 15 & 31);
            for (uint32_t csr : CSRS)
                if (word >> 20 == csr) return writes && csr >> 10 == 3 ? -1 : i;
            return -1;
        }
    return -1;
}

int32_t immediate(uint32_t w) {
    int32_t s = w;
    switch (w & 0x7f) {
        case 0x23: return (s >> 25 << 5) | (w >> 7 & 31);
        case 0x63: return (s >> 31 << 12) | (w << 4 & 0x800) | (w >> 20 & 0x7e0) | (w >> 7 & 0x1e);
        case 0x6f: return (s >> 31 << 20) | (w & 0xff000) | (w >> 9 & 0x800) | (w >> 20 & 0x7fe);
        default: return s >> 20;
    }
}

bool taken(uint32_t w, uint32_t a, uint32_t b) {
    switch (w >> 12 & 7) {
        case 0: return a == b;
        case 1: return a != b;
        case 4: return int32_t(a) < int32_t(b);
        case 5: return int32_t(a) >= int32_t(b);
        case 6: return a < b;
        default: return a >= b;
    }
}

struct Checker {
    uc_engine* uc = nullptr;
    const uint32_t* code;
    const uint8_t* data;  // as it was at the start
    uint32_t code_bytes, data_bytes;
    const Event* events;
    const Write* writes;
    size_t count, write_count, index = 0, write_index = 0;
    uint32_t registers[32] = {};
    int raised = -1;  // what Unicorn's interrupt hook saw
    uint64_t* seen;
    char* message;
    bool failed = false, probing = false;  // probing: an instruction that must trap

    void fail(const char* format, ...) {
        if (failed) return;
        failed = true;
        int used = snprintf(message, 512, "event %zu, pc %08x: ", index, index < count ? events[index].pc : 0);
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(message + used, 512 - used, format, arguments);
        va_end(arguments);
        if (uc) uc_emu_stop(uc);
    }

    uint32_t get(int which) {
        uint32_t value = 0;
        uc_reg_read(uc, which, &value);
        return value;
    }
    void set(int which, uint32_t value) { uc_reg_write(uc, which, &value); }

    bool compare_registers() {
        for (int i = 1; i < 32; i++) {
            uint32_t value = get(UC_RISCV_REG_X0 + i);
            if (value != registers[i]) {
                fail("x%d is %08x, Unicorn has %08x", i, registers[i], value);
                return false;
            }
        }
        return true;
    }

    // The exception of the instruction at pc that Unicorn does not raise itself; -1: none
    int expected(uint32_t pc, uint32_t& value) {
        value = 0;
        if (pc >= code_bytes) return 1;
        uint32_t word = code[pc / 4];
        if (find(word) < 0) return 2;
        uint32_t a = registers[word >> 15 & 31], b = registers[word >> 20 & 31], target = pc + 4;
        switch (word & 0x7f) {
            case 0x03: case 0x23: {
                uint32_t size = 1u << (word >> 12 & 3);
                value = a + immediate(word);
                if (value & (size - 1)) return word & 0x20 ? 6 : 4;
                bool in_code = value < code_bytes, in_data = value - DATA < data_bytes;
                if (!in_data && (word & 0x20 || !in_code)) return word & 0x20 ? 7 : 5;
                value = 0;
                return -1;
            }
            case 0x63: if (taken(word, a, b)) target = pc + immediate(word); break;
            case 0x67: target = (a + immediate(word)) & ~1u; break;
            case 0x6f: target = pc + immediate(word); break;
            case 0x73:
                if (word == 0x73) return 11;
                if (word == 0x100073) return 3;
                break;
        }
        if (target & 2) {
            value = target;
            return 0;
        }
        return -1;
    }

    static void on_code(uc_engine*, uint64_t pc, uint32_t, void* self) { static_cast<Checker*>(self)->step(pc); }
    static void on_interrupt(uc_engine* uc, uint32_t number, void* self) {
        static_cast<Checker*>(self)->raised = number;
        uc_emu_stop(uc);
    }
    static void on_write(uc_engine*, uc_mem_type, uint64_t address, int size, int64_t value, void* self) {
        static_cast<Checker*>(self)->wrote(address, size, value);
    }

    void step(uint32_t pc) {
        if (failed || probing || index >= count) return;
        const Event& event = events[index];
        uint32_t value;
        if (pc != event.pc) return fail("Unicorn is at %08x", pc);
        int exception = expected(pc, value);
        if (exception >= 0) return fail("retired, but exception %d is due", exception);
        if (!compare_registers()) return;
        seen[find(code[pc / 4])]++;
        if (event.rd) registers[event.rd] = event.value;
        index++;
    }

    void wrote(uint32_t address, int size, uint32_t value) {
        if (failed || probing) return;
        if (write_index == write_count) return fail("Unicorn writes %08x, the core does not", address);
        const Write& w = writes[write_index++];
        uint32_t lane = address & 3, strobe = ((1u << size) - 1) << lane, mask = 0;
        for (int i = 0; i < 4; i++) if (strobe >> i & 1) mask |= 0xffu << 8 * i;
        if (w.address != (address & ~3u) || w.strobe != strobe || (w.data & mask) != ((value << 8 * lane) & mask))
            fail("the core writes %08x to %08x (strobes %x), Unicorn %08x to %08x, %d bytes", w.data, w.address,
                 w.strobe, value, address, size);
    }

    void enter(const Event& event) {  // a trap, as the privileged specification has it
        uint32_t status = get(UC_RISCV_REG_MSTATUS);
        status = (status & ~0x1888u) | 0x1800 | (status & 8) << 4;
        set(UC_RISCV_REG_MSTATUS, status);
        set(UC_RISCV_REG_MEPC, event.pc);
        set(UC_RISCV_REG_MCAUSE, uint32_t(event.interrupt) << 31 | event.cause);
        set(UC_RISCV_REG_MTVAL, event.value);
        set(UC_RISCV_REG_PC, get(UC_RISCV_REG_MTVEC) & ~3u);
        index++;
    }

    void check_trap() {
        const Event& event = events[index];
        uint32_t pc = get(UC_RISCV_REG_PC);
        if (pc != event.pc) return fail("a trap, but Unicorn is at %08x", pc);
        if (!compare_registers()) return;
        if (event.interrupt) {
            if (!(get(UC_RISCV_REG_MSTATUS) & 8) || !(get(UC_RISCV_REG_MIE) >> event.cause & 1))
                return fail("interrupt %d, which is not enabled", event.cause);
            if (event.value) return fail("mtval %08x after an interrupt", event.value);
            return enter(event);
        }
        uint32_t value;
        int cause = expected(pc, value);
        if (cause != event.cause || value != event.value)
            return fail("exception %d with mtval %08x, but %d with %08x is due", event.cause, event.value, cause, value);
        // Where Unicorn can tell, it must trap too.
        uint32_t word = pc < code_bytes ? code[pc / 4] : 0;
        raised = -1;
        if (cause == 1 || cause == 11 || cause == 3 || cause == 5 || cause == 7 || (cause == 2 && alien(word))) {
            probing = true;
            uc_err error = uc_emu_start(uc, pc, ~0ull, 0, 1);
            probing = false;
            int got = raised;
            if (got < 0 && (error == UC_ERR_READ_UNMAPPED)) got = 5;
            if (got < 0 && (error == UC_ERR_WRITE_UNMAPPED || error == UC_ERR_WRITE_PROT)) got = 7;
            if (got < 0 && error == UC_ERR_INSN_INVALID) got = 3;
            if (got < 0 && (error == UC_ERR_FETCH_UNMAPPED || error == UC_ERR_FETCH_PROT)) got = 1;
            if (got == 8) got = 11;  // ecall: Unicorn tells the cause without the mode
            if (got == 2 && cause == 3) got = 3;
            if (got != cause) return fail("exception %d, Unicorn has %d (%s)", cause, got, uc_strerror(error));
        }
        enter(event);
    }

    static bool alien(uint32_t word) {  // illegal for Unicorn too: a 32-bit encoding with no extension's opcode
        switch (word & 0x7f) {
            case 0x0b: case 0x2b: case 0x5b: case 0x7b: return true;  // custom
            case 0x63: return (word >> 13 & 3) == 1;
            case 0x67: return word >> 12 & 7;
        }
        return word == 0 || word == 0xffffffff;
    }

    void run() {
        uc_err error = uc_open(UC_ARCH_RISCV, UC_MODE_RISCV32, &uc);
        if (error) return fail("uc_open: %s", uc_strerror(error));
        uc_mem_map(uc, 0, code_bytes, UC_PROT_READ | UC_PROT_EXEC);
        uc_mem_map(uc, DATA, data_bytes, UC_PROT_READ | UC_PROT_WRITE);
        uc_mem_write(uc, 0, code, code_bytes);
        uc_mem_write(uc, DATA, data, data_bytes);
        uc_hook on[3];
        uc_hook_add(uc, &on[0], UC_HOOK_CODE, reinterpret_cast<void*>(on_code), this, 1, 0);
        uc_hook_add(uc, &on[1], UC_HOOK_INTR, reinterpret_cast<void*>(on_interrupt), this, 1, 0);
        uc_hook_add(uc, &on[2], UC_HOOK_MEM_WRITE, reinterpret_cast<void*>(on_write), this, 1, 0);
        set(UC_RISCV_REG_MSTATUS, 0x1800);
        set(UC_RISCV_REG_PC, 0);
        while (index < count && !failed) {
            if (events[index].trap) {
                check_trap();
                continue;
            }
            size_t end = index;
            while (end < count && !events[end].trap && code[events[end].pc / 4 % (code_bytes / 4)] != 0x30200073) end++;
            bool returns = end < count && !events[end].trap;
            if (returns) end++;
            size_t begin = index;
            raised = -1;
            error = uc_emu_start(uc, get(UC_RISCV_REG_PC), ~0ull, 0, end - begin);
            // A jump to nowhere: Unicorn looks ahead; the trap behind it is checked in its turn.
            bool nowhere = error == UC_ERR_FETCH_UNMAPPED || error == UC_ERR_FETCH_PROT;
            if (nowhere && index == end && end < count && events[end].trap) error = UC_ERR_OK;
            if (!failed && (error || raised >= 0 || index != end))
                fail("Unicorn stopped: %s, exception %d, after %zu of %zu", uc_strerror(error), raised, index - begin,
                     end - begin);
            // Unicorn has user mode and puts it into MPP; a core without it keeps machine mode there.
            if (returns) set(UC_RISCV_REG_MSTATUS, get(UC_RISCV_REG_MSTATUS) | 0x1800);
        }
        if (!failed) compare_registers();
        if (!failed && write_index != write_count) fail("the core writes %zu words more", write_count - write_index);
    }
};

}  // namespace

extern "C" int format_count() { return FORMAT_COUNT; }
extern "C" const char* format_name(int index) { return FORMATS[index].name; }

// Runs `limit` instructions; returns how many retired, or -1 with a message. wait: one bus request or answer in so
// many is held back (0: none). interrupts: one cycle in so many raises a line, and an interrupt lowers it again.
// cycles, waits: totals. traps[16]: exceptions by cause; traps[16 + cause]: interrupts. seen: retired, by format.
extern "C" int64_t run_core(const uint32_t* code, uint32_t code_bytes, uint8_t* data, uint32_t data_bytes,
                            uint64_t limit, uint32_t seed, uint32_t wait, uint32_t interrupts, uint64_t* cycles,
                            uint64_t* waits, uint64_t* traps, uint64_t* seen, int break_event, char* message) {
    const std::vector<uint8_t> before(data, data + data_bytes);
    std::vector<Event> events;
    std::vector<Write> writes;
    Random random{seed | 1};
    VerilatedContext context;
    Vtop top{&context};
    uint64_t retired = 0, cycle = 0;
    auto edge = [&] {
        top.clk = 1, top.eval();
        top.clk = 0, top.eval();
    };
    top.rst = 1, top.clk = 0, top.eval();
    for (int i = 0; i < 3; i++) edge();
    top.rst = 0, top.eval();
    bool pending = false, answer_error = false;
    uint32_t answer = 0;
    while (retired < limit) {
        if (++cycle > limit * 40 + 1000) {
            snprintf(message, 512, "no end after %llu cycles; %llu instructions retired, fetching %08x",
                     (unsigned long long)cycle, (unsigned long long)retired, top.fetch_address);
            return -1;
        }
        if (random.one_in(interrupts)) (random.next() & 1 ? top.timer : top.external) = 1;
        top.request_ready = !random.one_in(wait);
        top.response_valid = pending && !random.one_in(wait);
        top.response_data = top.response_valid ? answer : random.next();
        top.response_error = top.response_valid ? answer_error : random.next() & 1;
        top.eval();
        if (top.trace_trap) {
            events.push_back({top.trace_pc, top.trace_value, 1, top.trace_interrupt, top.trace_cause, 0});
            traps[top.trace_cause + 16 * top.trace_interrupt]++;
            if (top.trace_interrupt) (top.trace_cause == 7 ? top.timer : top.external) = 0;
        }
        if (top.trace_retired) {
            retired++;
            events.push_back({top.trace_pc, top.trace_value, 0, 0, 0, uint8_t(top.trace_writes ? top.trace_rd : 0)});
        }
        *waits += top.trace_waiting;
        if (top.response_valid) pending = false;
        if (top.request_valid && top.request_ready) {
            uint32_t address = top.request_address;
            pending = true;
            answer_error = true;
            answer = 0xdeadbeef;
            if (address - DATA < data_bytes) {
                answer_error = false;
                uint32_t word, mask = 0;
                memcpy(&word, data + (address - DATA), 4);
                answer = word;
                if (top.request_write) {
                    for (int i = 0; i < 4; i++) if (top.request_strobe >> i & 1) mask |= 0xffu << 8 * i;
                    word = (word & ~mask) | (top.request_data & mask);
                    memcpy(data + (address - DATA), &word, 4);
                    writes.push_back({address, top.request_data, top.request_strobe});
                }
            } else if (address < code_bytes && !top.request_write) {
                answer_error = false;
                answer = code[address / 4];
            }
        }
        bool fetch = top.fetch_enable;
        uint32_t at = top.fetch_address;
        top.clk = 1, top.eval();
        if (fetch) {
            top.fetch_fault = at >= code_bytes;
            top.fetch_data = at < code_bytes ? code[at / 4] : random.next();
        }
        top.clk = 0, top.eval();
    }
    *cycles += cycle;
    if (break_event >= 0) {  // to show that a wrong value is found
        while (!events[break_event].rd) break_event++;
        events[break_event].value ^= 1;
    }
    Checker checker;
    checker.code = code, checker.data = before.data(), checker.code_bytes = code_bytes, checker.data_bytes = data_bytes;
    checker.events = events.data(), checker.count = events.size();
    checker.writes = writes.data(), checker.write_count = writes.size();
    checker.seen = seen, checker.message = message;
    checker.run();
    if (checker.uc) uc_close(checker.uc);
    return checker.failed ? -1 : int64_t(retired);
}
