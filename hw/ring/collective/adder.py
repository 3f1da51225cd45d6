"""The addition of two flits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig

__all__ = ["FlitAdder"]


class FlitAdder(wiring.Component):
    """``sum`` = ``a`` + ``b``, element by element: int32 that wraps, or int8 that saturates. Combinational.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    a, b : In(data_bits)
    saturate : In(1), elements are int8
    sum : Out(data_bits)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        bits = config.ring.data_bits
        super().__init__({"a": In(bits), "b": In(bits), "saturate": In(1), "sum": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words, octets = [], []
        for word in range(len(self.a) // 32):
            words.append((self.a.word_select(word, 32) + self.b.word_select(word, 32))[:32])
        for number in range(len(self.a) // 8):
            exact = Signal(9, name=f"exact{number}")
            m.d.comb += exact.eq(self.a.word_select(number, 8).as_signed() + self.b.word_select(number, 8).as_signed())
            # Both upper bits differ where the sum does not fit: the upper one is its sign.
            octets.append(Mux(exact[7] == exact[8], exact[:8], Cat((~exact[8]).replicate(7), exact[8])))
        m.d.comb += self.sum.eq(Mux(self.saturate, Cat(octets), Cat(words)))
        return m
