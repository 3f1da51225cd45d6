"""A scratchpad: banked on-chip memory of blocks, written and read several blocks a cycle."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .blocks import BlockShape

__all__ = ["Scratchpad"]


class Scratchpad(wiring.Component):
    """A linear array of blocks, interleaved over its banks by the low address bits.

    Block i of an access lies at ``address + i * pitch`` (modulo ``blocks``). An access to more than one block needs
    an odd pitch: multiplying by an odd number permutes the residues of a power of two, so that no two blocks meet
    in one bank. A block that is read in the cycle it is written shows its old bytes.

    Latency: 1 cycle from ``read_enable`` to ``read_data``, which keeps its value until the next read.
    Throughput: one write of up to ``per_write`` blocks and one read of ``reads`` blocks a cycle.

    Parameters
    ----------
    shape : BlockShape
        Block size in bytes, number of blocks, blocks a write, banks; all but the size are powers of two.
    reads : int
        Blocks a read; no more than there are banks.

    Members
    -------
    write_enable, write_address, write_pitch, write_count, write_data : In
        Block i of ``write_count`` lies at bit ``8 * i * shape.bytes`` of ``write_data``.
    read_enable, read_address, read_pitch : In
    read_data : Out
        ``reads`` blocks.
    """

    def __init__(self, *, shape: BlockShape, reads: int = 1) -> None:
        assert shape.blocks & (shape.blocks - 1) == 0 and shape.banks & (shape.banks - 1) == 0
        assert max(reads, shape.per_write) <= shape.banks <= shape.blocks
        self.shape = shape
        self.reads = reads
        self.address_bits = (shape.blocks - 1).bit_length()
        self.bank_bits = (shape.banks - 1).bit_length()
        super().__init__({
            "write_enable": In(1),
            "write_address": In(self.address_bits),
            "write_pitch": In(self.address_bits),
            "write_count": In(shape.per_write.bit_length()),
            "write_data": In(8 * shape.bytes * shape.per_write),
            "read_enable": In(1),
            "read_address": In(self.address_bits),
            "read_pitch": In(self.address_bits),
            "read_data": Out(data.ArrayLayout(8 * shape.bytes, reads)),
        })

    def _inverse(self, m: Module, pitch, name: str):
        """The inverse of an odd ``pitch`` modulo the number of banks: its own for 8 (x * x = 1), then Newton."""
        inverse, bits = pitch[:self.bank_bits] | 1, 3
        while bits < self.bank_bits:
            better = Signal(self.bank_bits, name=f"{name}_inverse_{bits}")
            m.d.comb += better.eq(inverse * (2 - (pitch | 1) * inverse))
            inverse, bits = better, 2 * bits
        return inverse

    def elaborate(self, platform) -> Module:
        m = Module()
        banks, bits = self.shape.banks, 8 * self.shape.bytes
        write_inverse = self._inverse(m, self.write_pitch, "write")
        read_inverse = self._inverse(m, self.read_pitch, "read")
        read_banks = []
        for j in range(banks):
            m.submodules[f"bank_{j}"] = bank = memory.Memory(shape=bits, depth=self.shape.blocks // banks, init=[])
            write, read = bank.write_port(), bank.read_port(transparent_for=())

            if self.shape.per_write == 1:
                m.d.comb += [
                    write.en.eq(self.write_enable & (self.write_count != 0)
                                & (self.write_address[:self.bank_bits] == j)),
                    write.addr.eq(self.write_address[self.bank_bits:]),
                    write.data.eq(self.write_data),
                ]
            else:
                # the block of this write that falls into bank j
                index = Signal(self.bank_bits, name=f"write_index_{j}")
                lane = index[:(self.shape.per_write - 1).bit_length()]
                m.d.comb += index.eq((j - self.write_address) * write_inverse)
                with m.If(self.write_enable & (index < self.write_count)):
                    m.d.comb += [
                        write.en.eq(1),
                        write.addr.eq((self.write_address + index * self.write_pitch)[self.bank_bits:]),
                        write.data.eq(self.write_data.word_select(lane, bits)),
                    ]

            if self.reads == 1:
                m.d.comb += [
                    read.en.eq(self.read_enable & (self.read_address[:self.bank_bits] == j)),
                    read.addr.eq(self.read_address[self.bank_bits:]),
                ]
            else:
                index = Signal(self.bank_bits, name=f"read_index_{j}")
                m.d.comb += [
                    index.eq((j - self.read_address) * read_inverse),
                    read.en.eq(self.read_enable & (index < self.reads)),
                    read.addr.eq((self.read_address + index * self.read_pitch)[self.bank_bits:]),
                ]
            read_banks.append(read.data)

        for i in range(self.reads):
            source = Signal(self.bank_bits, name=f"source_{i}")
            with m.If(self.read_enable):
                m.d.sync += source.eq(self.read_address + i * self.read_pitch)
            with m.Switch(source):
                for j in range(banks):
                    with m.Case(j):
                        m.d.comb += self.read_data[i].eq(read_banks[j])
        return m
