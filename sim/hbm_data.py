"""The data of a DRAM: from a command to its burst, and to storage."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw.memory.hbm.timing import TimingSet
from ringloom.hw.memory.port import BEAT_BITS, STROBE_BITS, StoragePort

__all__ = ["DramData", "POISON"]

POISON = 0xA5
"""Every byte of data that a broken rule made undefined."""

_PENDING = 16   # accesses between command and data


class DramData(wiring.Component):
    """Accesses wait for their burst in two queues, each with a line that tells when the oldest is due.

    Parameters
    ----------
    timing : TimingSet
        Latencies and burst.
    beat_bits : int
        Bits of a beat's address in storage.

    Members
    -------
    read, write : In(1)
        The column command of this cycle.
    beat : In
        Where its bytes lie in storage.
    broken : In(1)
        It broke a rule: reads and writes :data:`POISON`.
    write_data, strobe : In, read_data : Out
        The command bus.
    storage : Out(StoragePort)
    """

    def __init__(self, *, timing: TimingSet, beat_bits: int) -> None:
        self._timing = timing
        super().__init__({
            "read": In(1), "write": In(1), "beat": In(beat_bits), "broken": In(1),
            "write_data": In(BEAT_BITS), "strobe": In(STROBE_BITS), "read_data": Out(BEAT_BITS),
            "storage": Out(StoragePort(address_bits=beat_bits + 5)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t, storage = self._timing, self.storage

        def queue(name: str, push: Signal, delay: int) -> tuple[Signal, Signal, Signal]:
            m.submodules[name] = waiting = memory.Memory(shape=len(self.beat) + 1, depth=_PENDING, init=[])
            put, get = waiting.write_port(), waiting.read_port(domain="comb")
            first, free = Signal(range(_PENDING), name=f"{name}_first"), Signal(range(_PENDING), name=f"{name}_free")
            due = Signal(delay + 1, name=f"{name}_due")
            m.d.sync += due.eq((due >> 1) | Mux(push, 1 << delay, 0))
            m.d.comb += [put.addr.eq(free), put.en.eq(push), put.data.eq(Cat(self.beat, self.broken)),
                         get.addr.eq(first)]
            with m.If(push):
                m.d.sync += free.eq(free + 1)
            with m.If(due[0]):
                m.d.sync += first.eq(first + 1)
            return due[0], get.data[:-1], get.data[-1]

        # Storage takes two cycles: one to be asked, one to answer, in the last of the burst.
        read_due, read_beat, read_bad = queue("reading", self.read, t.cl + t.burst_clocks - 4)
        write_due, write_beat, write_bad = queue("writing", self.write, t.cwl + t.burst_clocks - 2)
        poison = Const(int.from_bytes(bytes([POISON]) * (BEAT_BITS // 8), "little"), BEAT_BITS)
        bad = Signal(2)
        m.d.sync += [storage.enable.eq(read_due | write_due), storage.write.eq(write_due),
                     bad.eq(Cat(read_due & read_bad, bad[0]))]
        with m.If(write_due):
            m.d.sync += [
                storage.address.eq(write_beat),
                storage.write_data.eq(Mux(write_bad, poison, self.write_data)),
                storage.strobe.eq(Mux(write_bad, (1 << STROBE_BITS) - 1, self.strobe)),
            ]
        with m.Elif(read_due):
            m.d.sync += storage.address.eq(read_beat)
        m.d.comb += self.read_data.eq(Mux(bad[1], poison, storage.read_data))
        return m
