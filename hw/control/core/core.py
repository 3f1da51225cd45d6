"""The management core: RV32I in machine mode."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...shaped import ShapedEnum
from .alu import Alu
from .bus import BusPort
from .csr import ControlRegisters
from .decoder import Decoder, Result, control_layout
from .encoding import Access, Branch, Cause, Csr

__all__ = ["FetchPort", "trace_layout", "Core"]


class FetchPort(wiring.Signature):
    """Instruction fetch as the core sees it: ``data`` and ``fault`` (nothing there) belong to the last address
    that came with ``enable``, from the next cycle on."""

    def __init__(self) -> None:
        super().__init__({"address": Out(32), "enable": Out(1), "data": In(32), "fault": In(1)})


trace_layout = data.StructLayout({
    "retired": 1,    # an instruction at ``pc`` took effect
    "writes": 1,     # and wrote ``value`` to ``rd``
    "trap": 1,       # a trap was entered in place of the instruction at ``pc``
    "interrupt": 1,  # it is an interrupt
    "cause": 4,
    "rd": 5,
    "pc": 32,
    "value": 32,     # of a trap: mtval
    "waiting": 1,    # the cycle is spent waiting: for the bus, or in WFI for an interrupt
})


class _Access(ShapedEnum, shape=2):
    """Where a load or store stands."""

    FIRST = 0     # the instruction is new in its stage
    REQUEST = 1   # the bus has not taken the request yet
    RESPONSE = 2  # it has
    LOADED = 3    # the word read is in a register


class Core(wiring.Component):
    """RV32I with Zicsr, machine mode, precise traps; three stages and no prediction.

    ``fetch``: an address goes to the code memory. ``decode``: its instruction comes out, is decoded, and reads the
    registers. ``execute``: result, branch, memory access; the register is written at its end and is passed on to
    ``decode`` in the same cycle, so that nothing waits for a register.

    Cycles: 1; a taken branch or jump 2; a store 2 and a load 3, plus what the bus waits; MRET, or an exception, 4.
    WFI waits until an enabled interrupt is pending. Interrupts are taken between instructions.

    Parameters
    ----------
    reset_address : int
        Byte address of the first instruction.

    Members
    -------
    fetch : Out(FetchPort())
    bus : Out(BusPort())
        Loads and stores, whole words with strobes. An error answer traps as an access fault.
    timer, external : In(1)
        Interrupt lines.
    trace : Out(trace_layout)
        What retires, for checkers.
    """

    def __init__(self, *, reset_address: int = 0) -> None:
        assert reset_address % 4 == 0
        self.reset_address = reset_address
        super().__init__({
            "fetch": Out(FetchPort()),
            "bus": Out(BusPort()),
            "timer": In(1),
            "external": In(1),
            "trace": Out(trace_layout),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.decoder = decoder = Decoder()
        m.submodules.alu = alu = Alu()
        m.submodules.csr = csr = ControlRegisters()
        m.submodules.registers = registers = Memory(shape=32, depth=32, init=[])
        write = registers.write_port()
        source1, source2 = registers.read_port(domain="comb"), registers.read_port(domain="comb")

        # -- fetch: what follows ``decode``, or where ``execute`` leads
        decode_pc, decode_valid = Signal(32, init=self.reset_address - 4 & 0xFFFF_FFFF), Signal()
        stall, redirect, redirect_pc = Signal(), Signal(), Signal(32)
        m.d.comb += [
            self.fetch.enable.eq(~stall | redirect),
            self.fetch.address.eq(Mux(redirect, redirect_pc, Cat(C(0, 2), decode_pc[2:] + 1))),
        ]
        with m.If(self.fetch.enable):
            m.d.sync += [decode_pc.eq(self.fetch.address), decode_valid.eq(1)]

        # -- decode
        x_valid, x_pc, x = Signal(), Signal(32), Signal(control_layout)
        x_fault, x_rd, x_source1 = Signal(), Signal(5), Signal(5)
        x_a, x_b, x_immediate = Signal(32), Signal(32), Signal(32)
        result = Signal(32)
        instruction = self.fetch.data
        rd, rs1, rs2 = instruction[7:12], instruction[15:20], instruction[20:25]
        m.d.comb += [decoder.instruction.eq(instruction), source1.addr.eq(rs1), source2.addr.eq(rs2)]
        # ``result`` counts only where ``execute`` completes; where it traps, what is in ``decode`` is dropped.
        passed = x_valid & x.writes
        with m.If(~stall):
            m.d.sync += [
                x_valid.eq(decode_valid & ~redirect),
                x_pc.eq(decode_pc),
                x_fault.eq(self.fetch.fault),
                x.eq(decoder.control),
                x.writes.eq(decoder.control.writes & (rd != 0)),
                x_rd.eq(rd),
                x_source1.eq(rs1),
                x_a.eq(Mux(decoder.control.zero_operand, 0, Mux(passed & (x_rd == rs1), result, source1.data))),
                x_b.eq(Mux(passed & (x_rd == rs2), result, source2.data)),
                x_immediate.eq(decoder.immediate),
            ]

        # -- execute
        access, noted, returning = Signal(_Access), Signal(), Signal()
        first = access == _Access.FIRST
        target, jump_pc, holds, taken = Signal(32), Signal(32), Signal(), Signal()
        m.d.comb += [
            alu.a.eq(x_a),
            alu.b.eq(Mux(x.immediate_operand, x_immediate, x_b)),
            alu.function.eq(x.function),
            alu.subtract.eq(x.subtract),
            alu.arithmetic.eq(x.arithmetic),
            alu.left.eq(x.left),
            target.eq(x_pc + x_immediate),
            # The address a load, store or JALR computes, or where a branch or JAL leads.
            jump_pc.eq(Mux(x.branch | x.jal, target, Cat(alu.sum[0] & ~x.jalr, alu.sum[1:]))),
        ]
        with m.Switch(x.function):
            for branch, condition in ((Branch.EQ, alu.equal), (Branch.NE, ~alu.equal),
                                      (Branch.LT, alu.less), (Branch.GE, ~alu.less),
                                      (Branch.LTU, alu.less_unsigned), (Branch.GEU, ~alu.less_unsigned)):
                with m.Case(branch):
                    m.d.comb += holds.eq(condition)
        m.d.comb += taken.eq((x.branch & holds) | x.jal | x.jalr)

        memory = x.load | x.store
        size, low = x.function[:2], alu.sum[:2]
        misaligned = ((size == Access.HALF) & low[0]) | ((size == Access.WORD) & low.any())
        answer = self.bus.responses
        # ``refused``: a trap, but for branches, whose condition comes late and which write nothing.
        trap, refused, interrupted, cause, address_trap = Signal(), Signal(), Signal(), Signal(4), Signal()
        # What is known early; the rest comes out of the adder.
        blocked, misfetch = Signal(), (x.jal | x.jalr) & jump_pc[1]
        m.d.comb += [
            interrupted.eq(csr.interrupt & first & ~x.wfi),
            blocked.eq(first & (interrupted | x_fault | x.illegal | (x.csr & ~csr.legal))),
        ]
        with m.If(first):
            with m.If(interrupted):
                m.d.comb += [refused.eq(1), cause.eq(csr.interrupt_cause)]
            with m.Elif(x_fault):
                m.d.comb += [refused.eq(1), cause.eq(Cause.FETCH_FAULT)]
            with m.Elif(x.illegal | (x.csr & ~csr.legal)):
                m.d.comb += [refused.eq(1), cause.eq(Cause.ILLEGAL)]
            with m.Elif(x.ecall):
                m.d.comb += [refused.eq(1), cause.eq(Cause.ECALL)]
            with m.Elif(x.ebreak):
                m.d.comb += [refused.eq(1), cause.eq(Cause.BREAKPOINT)]
            with m.Elif(memory):
                m.d.comb += [refused.eq(misaligned), address_trap.eq(1),
                             cause.eq(Mux(x.store, Cause.STORE_MISALIGNED, Cause.LOAD_MISALIGNED))]
            with m.Else():
                m.d.comb += [refused.eq(misfetch), address_trap.eq(1),
                             cause.eq(Cause.FETCH_MISALIGNED)]
        with m.Else():
            m.d.comb += [refused.eq((access == _Access.RESPONSE) & answer.valid & answer.payload.error),
                         address_trap.eq(1), cause.eq(Mux(x.store, Cause.STORE_FAULT, Cause.LOAD_FAULT))]
        m.d.comb += trap.eq(refused | (first & x.branch & holds & target[1]))

        # ``stall`` and ``redirect`` do not look at ``trap``, which comes late: what they do beside a trap is undone
        # by the redirection that follows it.
        request, ends, complete = Signal(), Signal(), Signal()
        word = Signal(32)
        with m.Switch(access):
            with m.Case(_Access.FIRST):
                m.d.comb += [ends.eq(~memory & (~x.wfi | csr.wake)), request.eq(x_valid & memory & ~refused)]
                with m.If(request):
                    m.d.sync += access.eq(Mux(self.bus.requests.ready, _Access.RESPONSE, _Access.REQUEST))
            with m.Case(_Access.REQUEST):
                m.d.comb += request.eq(1)
                with m.If(self.bus.requests.ready):
                    m.d.sync += access.eq(_Access.RESPONSE)
            with m.Case(_Access.RESPONSE):
                m.d.comb += ends.eq(x.store & answer.valid)
                with m.If(answer.valid):
                    m.d.sync += [word.eq(answer.payload.data),
                                 access.eq(Mux(x.load & ~answer.payload.error, _Access.LOADED, _Access.FIRST))]
            with m.Case(_Access.LOADED):
                m.d.comb += ends.eq(1)
                m.d.sync += access.eq(_Access.FIRST)
        m.d.comb += [stall.eq(x_valid & ~ends), complete.eq(x_valid & ends & ~refused)]

        payload = self.bus.requests.payload
        m.d.comb += [
            self.bus.requests.valid.eq(request),
            payload.write.eq(x.store),
            payload.address.eq(Cat(C(0, 2), alu.sum[2:])),
        ]
        with m.Switch(size):
            with m.Case(Access.BYTE):
                m.d.comb += [payload.data.eq(x_b[:8].replicate(4)), payload.strobe.eq(1 << low)]
            with m.Case(Access.HALF):
                m.d.comb += [payload.data.eq(x_b[:16].replicate(2)), payload.strobe.eq(Mux(low[1], 0b1100, 0b0011))]
            with m.Default():
                m.d.comb += [payload.data.eq(x_b), payload.strobe.eq(0b1111)]
        half, byte, loaded = Signal(16), Signal(8), Signal(32)
        m.d.comb += [half.eq(Mux(low[1], word[16:], word[:16])), byte.eq(Mux(low[0], half[8:], half[:8]))]
        extend = ~x.function[2]
        with m.Switch(size):
            with m.Case(Access.BYTE):
                m.d.comb += loaded.eq(Cat(byte, (byte[7] & extend).replicate(24)))
            with m.Case(Access.HALF):
                m.d.comb += loaded.eq(Cat(half, (half[15] & extend).replicate(16)))
            with m.Default():
                m.d.comb += loaded.eq(word)

        with m.Switch(x.result):
            with m.Case(Result.TARGET):
                m.d.comb += result.eq(target)
            with m.Case(Result.LINK):  # what is in ``decode`` always follows what is in ``execute``
                m.d.comb += result.eq(decode_pc)
            with m.Case(Result.LOAD):
                m.d.comb += result.eq(loaded)
            with m.Case(Result.CSR):
                m.d.comb += result.eq(csr.value)
            with m.Default():
                m.d.comb += result.eq(alu.o)
        m.d.comb += [
            # As ``complete``, without what holds for loads and stores alone: a load writes once it is LOADED.
            write.en.eq(x_valid & ends & x.writes & ~blocked & ~misfetch),
            write.addr.eq(x_rd),
            write.data.eq(result),
        ]

        # -- CSRs. A trap is entered, and MRET leaves, in the cycle behind: their causes lie at the ends of long paths,
        # and the address to go to is read as a CSR.
        trap_pc, trap_interrupt, trap_cause, trap_value = Signal(32), Signal(), Signal(4), Signal(32)
        m.d.sync += [
            noted.eq(x_valid & trap),
            returning.eq(x_valid & x.mret & ~blocked),
            trap_pc.eq(x_pc),
            trap_interrupt.eq(interrupted),
            trap_cause.eq(cause),
            trap_value.eq(Mux(address_trap, jump_pc, 0)),
        ]
        with m.If(x_valid & (trap | x.mret)):
            m.d.sync += x_valid.eq(0)
        m.d.comb += [
            csr.timer.eq(self.timer),
            csr.external.eq(self.external),
            csr.address.eq(Mux(noted, Csr.MTVEC, Mux(returning, Csr.MEPC, x_immediate[:12]))),
            csr.function.eq(x.function),
            csr.operand.eq(Mux(x.function[2], x_source1, x_a)),
            csr.writes.eq(x.csr_writes),
            csr.enable.eq(x_valid & x.csr & x.csr_writes & ~blocked),
            csr.trap.eq(noted),
            csr.trap_pc.eq(trap_pc),
            csr.trap_interrupt.eq(trap_interrupt),
            csr.trap_cause.eq(trap_cause),
            csr.trap_value.eq(trap_value),
            csr.mret.eq(returning),
        ]
        m.d.comb += [
            redirect.eq(noted | returning | (x_valid & taken)),
            redirect_pc.eq(Mux(noted | returning, csr.value, Cat(C(0, 2), jump_pc[2:]))),
        ]

        trace = self.trace
        m.d.comb += [
            trace.retired.eq(complete & ~trap),
            trace.writes.eq(x.writes),
            trace.trap.eq(noted),
            trace.interrupt.eq(trap_interrupt),
            trace.cause.eq(trap_cause),
            trace.rd.eq(x_rd),
            trace.pc.eq(Mux(noted, trap_pc, x_pc)),
            trace.value.eq(Mux(noted, trap_value, result)),
            trace.waiting.eq(x_valid & (((access == _Access.FIRST) & x.wfi & ~csr.wake & ~trap) |
                                        (request & ~self.bus.requests.ready) |
                                        ((access == _Access.RESPONSE) & ~answer.valid))),
        ]
        return m
