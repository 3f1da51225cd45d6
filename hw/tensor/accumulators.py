"""The accumulators: one memory a column and bank, updated in skew with the array's sums."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig, TileConfig
from .array import sum_bits
from .ports import AccumulatorRead

__all__ = ["Accumulators", "update_layout"]


def update_layout(tile: TileConfig) -> data.StructLayout:
    """One row of sums on its way: the word it goes to, whether it overwrites, whether it ends a command."""
    return data.StructLayout({
        "valid": 1, "overwrite": 1, "last": 1, "address": (tile.accumulator_words - 1).bit_length()})


class Accumulators(wiring.Component):
    """``word[address][c] = (0 if overwrite else word[address][c]) + sums[c]``, modulo 2**32.

    An update travels beside the array: column c reads its word in the cycle before its sum arrives and writes it in
    the cycle of the sum. Updates of one address in successive cycles are exact: the sum just written is carried
    over, as the read saw the word before. The top address bit is the bank; STORE reads a bank in cycles in which
    no column of the array reads it, LOAD writes one that no update is on its way to.

    Latency: column c's word is written ``delay + 1 + c`` cycles after ``update``. Throughput: one update a cycle.

    Parameters
    ----------
    config : DeviceConfig
    delay : int
        Cycles from ``update`` to the read of column 0: one less than its sum takes to ``sums[0]``.

    Members
    -------
    update : In
        Row of sums that enters the array.
    sums : In
        ``sums[c]``, one column later in each column.
    ended : Out
        The closing edge of this cycle writes the last word of an update with ``last``.
    write_enable, write_address, write_data : In
        LOAD's write of a whole word.
    read : In
        STORE's reads.
    """

    def __init__(self, *, config: DeviceConfig, delay: int) -> None:
        self.config = config
        self.delay = delay
        tile = config.tile
        super().__init__({
            "update": In(update_layout(tile)),
            "sums": In(signed(sum_bits(tile.array.rows))).array(tile.array.columns),
            "ended": Out(1),
            "write_enable": In(1),
            "write_address": In((tile.accumulator_words - 1).bit_length()),
            "write_data": In(32 * tile.array.columns),
            "read": In(AccumulatorRead(config)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        tile = self.config.tile
        columns, depth = tile.array.columns, tile.accumulator_words // 2
        layout = update_layout(tile)

        before = self.update
        for i in range(self.delay):
            after = Signal(layout, name=f"delayed_{i}")
            m.d.sync += after.eq(before)
            before = after
        # updates[c] is where column c reads, updates[c + 1] where it writes
        updates = [before]
        repeats = []
        for c in range(columns):
            updates.append(Signal(layout, name=f"update_{c}"))
            m.d.sync += updates[-1].eq(updates[-2])
            repeats.append(Signal(name=f"repeat_{c}"))
        m.d.sync += repeats[0].eq(updates[1].valid & (updates[1].address == updates[0].address))
        m.d.sync += [repeats[c].eq(repeats[c - 1]) for c in range(1, columns)]
        m.d.comb += self.ended.eq(updates[columns].valid & updates[columns].last)

        reading = [Signal(columns, name=f"reading_{b}") for b in range(2)]
        granted = [Signal(name=f"granted_{b}") for b in range(2)]
        read_bank = Signal()
        wanted = self.read.address[-1]
        m.d.comb += self.read.ready.eq(~Mux(wanted, reading[1].any(), reading[0].any()))
        m.d.comb += [granted[b].eq(self.read.valid & self.read.ready & (wanted == b)) for b in range(2)]
        m.d.sync += read_bank.eq(wanted)

        for c in range(columns):
            at_read, at_write = updates[c], updates[c + 1]
            words = []
            total = Signal(32, name=f"total_{c}")
            carried = Signal(32, name=f"carried_{c}", reset_less=True)
            for b in range(2):
                m.submodules[f"bank_{b}_{c}"] = bank = memory.Memory(shape=32, depth=depth, init=[])
                write, read = bank.write_port(), bank.read_port(transparent_for=())
                updating = at_write.valid & (at_write.address[-1] == b)
                m.d.comb += [
                    reading[b][c].eq(at_read.valid & ~at_read.overwrite & (at_read.address[-1] == b)),
                    read.en.eq(reading[b][c] | granted[b]),
                    read.addr.eq(Mux(granted[b], self.read.address[:-1], at_read.address[:-1])),
                    write.en.eq(updating | self.write_enable & (self.write_address[-1] == b)),
                    write.addr.eq(Mux(updating, at_write.address[:-1], self.write_address[:-1])),
                    write.data.eq(Mux(updating, total, self.write_data.word_select(c, 32))),
                ]
                words.append(read.data)
            word = Mux(repeats[c], carried, Mux(at_write.address[-1], words[1], words[0]))
            m.d.comb += total.eq(Mux(at_write.overwrite, 0, word) + self.sums[c])
            m.d.sync += carried.eq(total)
            m.d.comb += self.read.data[c].eq(Mux(read_bank, words[1], words[0]))
        return m
