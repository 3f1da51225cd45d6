"""The semaphores that order the engines of a tile."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa import SEMAPHORE_BITS, SEMAPHORES

__all__ = ["Semaphores", "wait_layout", "signal_layout"]

COUNT_BITS = 8


def wait_layout() -> data.StructLayout:
    """enable: the wait counts; semaphore: which; count: the value it must hold, and that is taken away."""
    return data.StructLayout({"enable": 1, "semaphore": range(SEMAPHORES), "count": COUNT_BITS})


def signal_layout() -> data.StructLayout:
    """enable: the signal counts; semaphore: which one grows by one."""
    return data.StructLayout({"enable": 1, "semaphore": range(SEMAPHORES)})


class Semaphores(wiring.Component):
    """Counters from which commands take and to which ended commands add: ``value' = value + adds - takes``.

    Every engine may take and add in every cycle. ``grant`` answers ``request`` in the same cycle and takes both
    waits at once; where two engines want one semaphore in the same cycle, the lower number goes first and the
    other asks again, so that no value is taken twice. An addition is seen by ``grant`` in the next cycle.
    An addition that would pass the largest value raises ``overflow`` in its cycle and changes nothing.

    Parameters
    ----------
    engines : int
        Engines that wait and signal.
    count, bits : int
        Number of semaphores and bits of each.
    remote : bool
        Other tiles signal too.

    Members
    -------
    clear : In(1)
        Sets every semaphore to zero.
    waits, request, grant : of each engine, the two waits, that they are wanted, that they are taken
    met : Out(engines)
        Bit e: the first wait of engine e alone could be taken, so that its second is what holds it.
    signals, signal : of each engine, the two signals, that they happen
    remote : a signal of another tile
    overflow, overflow_engine, overflow_semaphore : an addition that does not fit, and whose it is
    overflow_remote : it is ``remote``
    read_index, read_value : a port for the registers
    """

    def __init__(self, *, engines: int, count: int = SEMAPHORES, bits: int = SEMAPHORE_BITS,
                 remote: bool = False) -> None:
        self.engines, self.count, self.bits, self._remote = engines, count, bits, remote
        super().__init__({
            "clear": In(1),
            "waits": In(data.ArrayLayout(wait_layout(), 2)).array(engines),
            "request": In(engines),
            "grant": Out(engines),
            "met": Out(engines),
            "signals": In(data.ArrayLayout(signal_layout(), 2)).array(engines),
            "signal": In(engines),
            "remote": In(signal_layout()),
            "overflow": Out(1),
            "overflow_remote": Out(1),
            "overflow_engine": Out(range(engines)),
            "overflow_semaphore": Out(range(SEMAPHORES)),
            "read_index": In(range(SEMAPHORES)),
            "read_value": Out(bits),
        })

    def elaborate(self, platform):
        m = Module()
        values = Array([Signal(self.bits, name=f"value{i}") for i in range(self.count)])
        m.d.comb += self.read_value.eq(values[self.read_index])

        # -- takes: both waits of an engine at once, lower engines first -----------------------------
        takes = []  # of each engine and wait: one-hot semaphore, count
        claimed = 0  # semaphores that a lower engine takes from in this cycle
        for e in range(self.engines):
            first, second = self.waits[e][0], self.waits[e][1]
            same = first.enable & second.enable & (first.semaphore == second.semaphore)
            total = Signal(COUNT_BITS + 1, name=f"total{e}")  # what the first semaphore must hold
            m.d.comb += total.eq(first.count + Mux(same, second.count, 0))
            bits = [self._one_hot(m, f"take{e}_{k}", wait) for k, wait in enumerate((first, second))]
            met = [~first.enable | (values[first.semaphore] >= total),
                   ~second.enable | same | (values[second.semaphore] >= second.count)]
            m.d.comb += [
                self.met[e].eq(met[0]),
                self.grant[e].eq(self.request[e] & met[0] & met[1] & ~((bits[0] | bits[1]) & claimed).any()),
            ]
            taken = [Signal(self.count, name=f"taken{e}_{k}") for k in range(2)]
            m.d.comb += [
                taken[0].eq(Mux(self.grant[e], bits[0], 0)),
                taken[1].eq(Mux(self.grant[e] & ~same, bits[1], 0)),
            ]
            claimed = claimed | taken[0] | taken[1]
            takes += [(taken[0], total), (taken[1], second.count)]

        # -- additions: the one-hot words are added bit-sliced, one word operation for all semaphores ---------
        slices: list[Signal] = []
        for e in range(self.engines):
            for k in range(2):
                word = Signal(self.count, name=f"added{e}_{k}")
                m.d.comb += word.eq(Mux(self.signal[e], self._one_hot(m, f"add{e}_{k}", self.signals[e][k]), 0))
                slices = self._add(m, f"sum{e}_{k}", slices, word)
        if self._remote:
            slices = self._add(m, "sum_remote", slices, self._one_hot(m, "add_remote", self.remote))

        overflows = Signal(self.count)
        with m.If(self.clear):
            m.d.sync += [v.eq(0) for v in values]
        with m.Elif((self.grant | self.signal).any() | (self.remote.enable if self._remote else 0)):
            for i, value in enumerate(values):
                # At most one engine takes from a semaphore in a cycle, so its counts need no adder.
                take = 0
                for bits, count in takes:
                    take = take | Mux(bits[i], count, 0)
                following = Signal(self.bits + 1, name=f"following{i}")
                m.d.comb += following.eq(value + Cat(*(s[i] for s in slices)) - take)
                m.d.comb += overflows[i].eq(following[-1])
                with m.If(~following[-1]):
                    m.d.sync += value.eq(following)

        m.d.comb += self.overflow.eq(overflows.any())
        if self._remote:
            with m.If(self.remote.enable & overflows.bit_select(self.remote.semaphore, 1)):
                m.d.comb += [self.overflow_remote.eq(1), self.overflow_semaphore.eq(self.remote.semaphore)]
        for e in reversed(range(self.engines)):
            for k in range(2):
                signal = self.signals[e][k]
                with m.If(self.signal[e] & signal.enable & overflows.bit_select(signal.semaphore, 1)):
                    m.d.comb += [self.overflow_engine.eq(e), self.overflow_semaphore.eq(signal.semaphore),
                                 self.overflow_remote.eq(0)]
        return m

    def _add(self, m: Module, name: str, slices: list[Signal], word: Signal) -> list[Signal]:
        """Add ``word`` to a sum held as a word for each bit of the sum."""
        total = [Signal(self.count, name=f"{name}_{b}") for b in range(len(slices) + 1)]
        carry = word
        for b, old in enumerate(slices):
            m.d.comb += total[b].eq(old ^ carry)
            carry = old & carry
        m.d.comb += total[-1].eq(carry)
        # k words add up to k at most: a slice beyond its bits stays zero.
        return total[:(2 * self.engines + self._remote).bit_length()]

    def _one_hot(self, m: Module, name: str, item) -> Signal:
        """A bit for the semaphore of a wait or a signal, zero where it is not enabled."""
        bits = Signal(self.count, name=name)
        m.d.comb += bits.eq(item.enable << item.semaphore)
        return bits
