"""Random RV32I programs that run for ever, for the core and its reference.

Written from the specification's instruction formats. Register 27 is where a jump outside the code comes back to, 28
and 29 hold data addresses, 30 and 31 belong to the trap handler. Branches lead forward, so that a program gets past
everything in it; its end leads to its beginning.
"""

import random

CODE_BYTES = 16384
DATA_BYTES = 8192
DATA = 0x10000000
_BODY = 64  # words before the random part

BRANCHES, LOADS, STORES = (0, 1, 4, 5, 6, 7), (0, 1, 2, 4, 5), (0, 1, 2)


def r_type(opcode, rd, function, rs1, rs2, upper=0):
    return upper << 25 | rs2 << 20 | rs1 << 15 | function << 12 | rd << 7 | opcode


def i_type(opcode, rd, function, rs1, immediate):
    return (immediate & 0xFFF) << 20 | rs1 << 15 | function << 12 | rd << 7 | opcode


def s_type(function, rs1, rs2, immediate):
    return r_type(0x23, immediate & 31, function, rs1, rs2, immediate >> 5 & 127)


def b_type(function, rs1, rs2, offset):
    low = (offset & 0x1E) | (offset >> 11 & 1)
    return r_type(0x63, low, function, rs1, rs2, (offset >> 12 & 1) << 6 | (offset >> 5 & 63))


def u_type(opcode, rd, upper):
    return (upper & 0xFFFFF) << 12 | rd << 7 | opcode


def jal(rd, offset):
    word = (offset >> 20 & 1) << 31 | (offset >> 1 & 0x3FF) << 21 | (offset >> 11 & 1) << 20
    return word | (offset >> 12 & 0xFF) << 12 | rd << 7 | 0x6F


def csr(function, rd, address, source):
    return i_type(0x73, rd, function, source, address)


def _prologue():
    """Start: mtvec, interrupts on, data addresses. Handler at 0x40: goes on behind the instruction at fault, repeats
    an interrupted one, and returns to register 27 after a fetch outside."""
    start = [
        i_type(0x13, 31, 0, 0, 0x40), csr(1, 0, 0x305, 31),                    # mtvec
        u_type(0x37, 31, 1), i_type(0x13, 31, 0, 31, -0x780), csr(1, 0, 0x304, 31),  # mie = 0x880
        csr(6, 0, 0x300, 8),                                                     # mstatus.MIE
        u_type(0x37, 28, DATA >> 12), i_type(0x13, 28, 0, 28, 0x7FC),
        u_type(0x37, 29, (DATA >> 12) + 1), jal(0, (_BODY - 9) * 4),
    ]
    handler = [
        csr(2, 30, 0x342, 0),                     # mcause
        b_type(4, 30, 0, 40),                     # an interrupt: repeat
        i_type(0x13, 31, 0, 0, 1),
        b_type(0, 30, 31, 16),                    # fetch fault: return
        csr(2, 31, 0x341, 0), i_type(0x13, 31, 0, 31, 4), jal(0, 8),
        i_type(0x13, 31, 0, 27, 0),
        csr(1, 0, 0x341, 31), csr(2, 30, 0x343, 0), csr(1, 30, 0x340, 30),
        0x30200073,
    ]
    words = start + [0x13] * (16 - len(start)) + handler
    return words + [0x13] * (_BODY - len(words))


def _one(rng):
    """One or more words that belong together; a function of the bytes to a place ahead in place of a branch."""
    def target():  # one that is free to be overwritten
        return rng.randrange(27)

    source, source2 = rng.randrange(32), rng.randrange(32)
    kind = rng.random()
    if kind < 0.22:
        function = rng.randrange(8)
        upper = 0x20 if function in (0, 5) and rng.random() < .5 else 0
        return [r_type(0x33, target(), function, source, source2, upper)]
    if kind < 0.44:
        function = rng.randrange(8)
        value = rng.choice((rng.randrange(-2048, 2048), rng.choice((-2048, -1, 0, 1, 2047))))
        if function in (1, 5):
            value = rng.randrange(32) | (0x400 if function == 5 and rng.random() < .5 else 0)
        return [i_type(0x13, target(), function, source, value)]
    if kind < 0.50:
        return [u_type(rng.choice((0x37, 0x17)), target(), rng.randrange(1 << 20))]
    if kind < 0.72:
        base = rng.choice((28, 29)) if rng.random() < .97 else source
        load = rng.random() < .6
        function = rng.choice(LOADS if load else STORES)
        offset = rng.randrange(-2044, 2044)
        if base == source and rng.random() < .5:
            function &= 4  # a byte anywhere
        if rng.random() < .95:
            offset &= -(1 << (function & 3))
        if load and rng.random() < .1:
            base = 0  # code
            offset = abs(offset)
        return [i_type(0x03, target(), function, base, offset) if load else s_type(function, base, source2, offset)]
    if kind < 0.86:
        function, odd = rng.choice(BRANCHES), 2 * (rng.random() < .02)
        other = rng.choice((source2, 0, source))
        return [lambda ahead: b_type(function, source, other, ahead + odd)]
    if kind < 0.89:
        link, odd = target(), 2 * (rng.random() < .05)
        return [lambda ahead: jal(link, ahead + odd)]
    if kind < 0.93:  # by a register
        link = rng.randrange(1, 27)
        return [u_type(0x17, link, 0), i_type(0x67, target(), 0, link, 8 + rng.choice((0, 0, 1)))]
    if kind < 0.935:
        return [u_type(0x17, 27, 0), i_type(0x13, 27, 0, 27, 12),  # outside the code, and back
                i_type(0x67, target(), 0, rng.choice((28, 29)), rng.randrange(-2048, 2048))]
    if kind < 0.97:
        address = rng.choice((0x340, 0x340, 0x343, 0x305, 0x341, 0x342, 0xF14, 0xF11, 0xF12, 0xF13, 0x300, 0x304,
                              0x301))
        if address in (0x340, 0x343):
            return [csr(rng.choice((1, 2, 3, 5, 6, 7)), target(), address, source)]
        if address in (0x305, 0x341, 0x304) or address >= 0xF00:
            return [csr(rng.choice((2, 3, 6, 7)), target(), address, 0)]
        if address == 0x342:
            return [csr(rng.choice((5, 6, 7)), target(), address, rng.randrange(16))]
        if address == 0x300:
            return [csr(rng.choice((6, 7)), target(), address, 8), csr(6, 0, address, 8)]
        return [csr(1, 0, 0xF14, source)]  # a write to a read-only register
    if kind < 0.98:
        return [rng.choice((0x0FF0000F, 0x0000100F, 0x8330000F))]
    if kind < 0.988:
        return [rng.choice((0x73, 0x100073))]
    return [_illegal(rng)]


def _illegal(rng):
    """Half without a meaning in any extension, half anything; RV32I by chance is made impossible."""
    if rng.random() < .5:
        return rng.choice((0, 0xFFFFFFFF, rng.getrandbits(25) << 7 | rng.choice((0x0B, 0x2B, 0x5B, 0x7B)),
                           r_type(0x63, 4, rng.choice((2, 3)), 1, 2), i_type(0x67, 1, rng.randrange(1, 8), 2, 3)))
    return rng.choice((
        r_type(0x33, rng.randrange(27), rng.randrange(8), 1, 2, rng.randrange(1, 32)),      # M and others
        r_type(0x2F, rng.randrange(27), 2, 1, 2, rng.randrange(128)),                       # A
        r_type(0x13, 1, rng.choice((1, 5)), 1, 2, rng.choice((1, 0x10, 0x21, 0x40))),
        i_type(0x03, 1, rng.choice((3, 6, 7)), 28, 0), s_type(rng.randrange(3, 8), 28, 1, 0),
        i_type(0x0F, 0, rng.randrange(2, 8), 0, 0), csr(4, 1, 0x340, 1), csr(2, 1, 0x7C0, 0), 0x10200073, 0x30200173,
        0x12000073, rng.getrandbits(30) << 2 | rng.randrange(3)))                           # SRET, SFENCE, compressed


def program(seed):
    """``CODE_BYTES // 4`` words."""
    rng = random.Random(seed)
    words, end = _prologue(), CODE_BYTES // 4 - 2
    starts = []
    while len(words) < end:
        starts.append(len(words))
        words += _one(rng)
    starts.append(len(words))
    words += [jal(0, (_BODY - len(words)) * 4)] + [0] * (CODE_BYTES // 4 - 1 - len(words))
    for index, place in enumerate(starts):
        if callable(words[place]):
            ahead = starts[min(index + rng.randint(1, 8), len(starts) - 1)]
            words[place] = words[place](4 * (ahead - place))
    return words
