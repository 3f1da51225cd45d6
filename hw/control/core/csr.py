"""Control and status registers of the management core: machine mode, traps and interrupts."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .encoding import Csr, Interrupt, System

__all__ = ["MISA", "ControlRegisters"]

MISA = 1 << 30 | 1 << 8
"""RV32 with I alone."""


class ControlRegisters(wiring.Component):
    """The CSRs of a core that knows machine mode alone.

    A read is combinational; a write, a trap and a return take effect at the end of their cycle; at most one of
    ``enable``, ``trap``, ``mret`` is high. ``mtvec`` is direct (bits 1:0 zero), ``mstatus`` holds MIE and MPIE
    (MPP reads as machine), ``mcause`` bits 31 and 3:0. The counters and the identification registers are zero.

    Members
    -------
    address : In(12)
        A :class:`Csr`, or ``legal`` is 0 and ``enable`` must be too.
    writes : In(1)
        The instruction would write.
    function : In(3)
        funct3 of the instruction.
    operand : In(32)
        rs1's value, or its field.
    enable : In(1)
        The CSR is written.
    value : Out(32)
        The CSR before that.
    legal : Out(1)
        There is such a CSR, and it is not read-only where ``writes``.
    timer, external : In(1)
        Interrupt lines, high as long as they ask.
    wake : Out(1)
        An interrupt that ``mie`` enables is pending.
    interrupt : Out(1)
        It may be taken now.
    interrupt_cause : Out(4)
        An :class:`Interrupt`.
    trap : In(1)
        Enter: mepc, mcause and mtval take ``trap_pc``, ``trap_interrupt`` with ``trap_cause``, and ``trap_value``.
    mret : In(1)
        Leave.
    """

    def __init__(self) -> None:
        super().__init__({
            "address": In(12),
            "function": In(3),
            "operand": In(32),
            "writes": In(1),
            "enable": In(1),
            "value": Out(32),
            "legal": Out(1),
            "timer": In(1),
            "external": In(1),
            "wake": Out(1),
            "interrupt": Out(1),
            "interrupt_cause": Out(4),
            "trap": In(1),
            "trap_pc": In(32),
            "trap_interrupt": In(1),
            "trap_cause": In(4),
            "trap_value": In(32),
            "mret": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        mie, mpie = Signal(), Signal()
        timer_enable, external_enable = Signal(), Signal()
        mtvec, mepc = Signal(30), Signal(30)
        mscratch, mtval = Signal(32), Signal(32)
        cause_interrupt, cause = Signal(), Signal(4)

        values = {
            Csr.MSTATUS: Cat(C(0, 3), mie, C(0, 3), mpie, C(0, 3), C(3, 2)),
            Csr.MISA: C(MISA, 32),
            Csr.MIE: Cat(C(0, 7), timer_enable, C(0, 3), external_enable),
            Csr.MTVEC: Cat(C(0, 2), mtvec),
            Csr.MSCRATCH: mscratch,
            Csr.MEPC: Cat(C(0, 2), mepc),
            Csr.MCAUSE: Cat(cause, C(0, 27), cause_interrupt),
            Csr.MTVAL: mtval,
            Csr.MIP: Cat(C(0, 7), self.timer, C(0, 3), self.external),
        }
        # The known addresses differ in bit 11 (those that are zero), 6, 4 and 2:0: fewer bits to decode.
        selects = {f"0----{register >> 6 & 1}-{register >> 4 & 1}-{register & 7:03b}": register for register in values}
        assert len(selects) == len(values)
        with m.Switch(self.address):
            for pattern, register in selects.items():
                with m.Case(pattern):
                    m.d.comb += self.value.eq(values[register])

        known = Signal()
        with m.Switch(self.address):
            with m.Case(*Csr):
                m.d.comb += known.eq(1)
        m.d.comb += self.legal.eq(known & ~(self.writes & self.address[10:].all()))

        written = Signal(32)
        with m.Switch(self.function[:2]):
            with m.Case(System.CSRRS):
                m.d.comb += written.eq(self.value | self.operand)
            with m.Case(System.CSRRC):
                m.d.comb += written.eq(self.value & ~self.operand)
            with m.Default():
                m.d.comb += written.eq(self.operand)
        with m.If(self.enable):
            with m.Switch(self.address):
                with m.Case(Csr.MSTATUS):
                    m.d.sync += [mie.eq(written[3]), mpie.eq(written[7])]
                with m.Case(Csr.MIE):
                    m.d.sync += [timer_enable.eq(written[Interrupt.TIMER]),
                                 external_enable.eq(written[Interrupt.EXTERNAL])]
                with m.Case(Csr.MTVEC):
                    m.d.sync += mtvec.eq(written[2:])
                with m.Case(Csr.MSCRATCH):
                    m.d.sync += mscratch.eq(written)
                with m.Case(Csr.MEPC):
                    m.d.sync += mepc.eq(written[2:])
                with m.Case(Csr.MCAUSE):
                    m.d.sync += [cause.eq(written[:4]), cause_interrupt.eq(written[31])]
                with m.Case(Csr.MTVAL):
                    m.d.sync += mtval.eq(written)
        with m.If(self.trap):
            m.d.sync += [mpie.eq(mie), mie.eq(0), mepc.eq(self.trap_pc[2:]), cause.eq(self.trap_cause),
                         cause_interrupt.eq(self.trap_interrupt), mtval.eq(self.trap_value)]
        with m.If(self.mret):
            m.d.sync += [mie.eq(mpie), mpie.eq(1)]

        external = self.external & external_enable
        m.d.comb += [
            self.wake.eq(external | (self.timer & timer_enable)),
            self.interrupt.eq(self.wake & mie),
            self.interrupt_cause.eq(Mux(external, Interrupt.EXTERNAL, Interrupt.TIMER)),
        ]
        return m
