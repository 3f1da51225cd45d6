"""Numbers of the RISC-V specification that the core decodes: opcodes, functions, CSR addresses, trap causes."""

from ...shaped import ShapedIntEnum

__all__ = ["Opcode", "Branch", "Access", "Arithmetic", "System", "Csr", "Cause", "Interrupt", "ECALL", "EBREAK",
           "MRET", "WFI"]


class Opcode(ShapedIntEnum, shape=7):
    """Bits 6:0 of an instruction."""

    LOAD = 0x03
    FENCE = 0x0F
    IMMEDIATE = 0x13
    AUIPC = 0x17
    STORE = 0x23
    REGISTER = 0x33
    LUI = 0x37
    BRANCH = 0x63
    JALR = 0x67
    JAL = 0x6F
    SYSTEM = 0x73


class Branch(ShapedIntEnum, shape=3):
    """funct3 of BRANCH."""

    EQ = 0
    NE = 1
    LT = 4
    GE = 5
    LTU = 6
    GEU = 7


class Access(ShapedIntEnum, shape=3):
    """funct3 of LOAD and STORE: bits 1:0 the log2 of the bytes, bit 2 no sign extension."""

    BYTE = 0
    HALF = 1
    WORD = 2
    BYTE_UNSIGNED = 4
    HALF_UNSIGNED = 5


class Arithmetic(ShapedIntEnum, shape=3):
    """funct3 of REGISTER and IMMEDIATE."""

    ADD = 0
    SLL = 1
    SLT = 2
    SLTU = 3
    XOR = 4
    SR = 5
    OR = 6
    AND = 7


class System(ShapedIntEnum, shape=3):
    """funct3 of SYSTEM; bit 2: the operand is the rs1 field itself."""

    PRIVILEGED = 0
    CSRRW = 1
    CSRRS = 2
    CSRRC = 3
    CSRRWI = 5
    CSRRSI = 6
    CSRRCI = 7


# Whole instructions of SYSTEM with funct3 PRIVILEGED.
ECALL = 0x00000073
EBREAK = 0x00100073
MRET = 0x30200073
WFI = 0x10500073


class Csr(ShapedIntEnum, shape=12):
    """Control and status registers; bits 11:10 both set: read-only."""

    MSTATUS = 0x300
    MISA = 0x301
    MIE = 0x304
    MTVEC = 0x305
    MSTATUSH = 0x310
    MSCRATCH = 0x340
    MEPC = 0x341
    MCAUSE = 0x342
    MTVAL = 0x343
    MIP = 0x344
    MCYCLE = 0xB00
    MINSTRET = 0xB02
    MCYCLEH = 0xB80
    MINSTRETH = 0xB82
    MVENDORID = 0xF11
    MARCHID = 0xF12
    MIMPID = 0xF13
    MHARTID = 0xF14
    MCONFIGPTR = 0xF15


class Cause(ShapedIntEnum, shape=4):
    """What mcause holds after an exception."""

    FETCH_MISALIGNED = 0
    FETCH_FAULT = 1
    ILLEGAL = 2
    BREAKPOINT = 3
    LOAD_MISALIGNED = 4
    LOAD_FAULT = 5
    STORE_MISALIGNED = 6
    STORE_FAULT = 7
    ECALL = 11


class Interrupt(ShapedIntEnum, shape=4):
    """What mcause holds, beside its bit 31, after an interrupt; also the bit numbers of mie and mip."""

    TIMER = 7
    EXTERNAL = 11
