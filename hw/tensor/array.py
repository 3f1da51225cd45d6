"""The systolic array: weight-stationary, two weight planes, everything skewed with the wavefront."""

from amaranth.hdl import Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import ArrayConfig

__all__ = ["SystolicArray", "sum_bits"]


def sum_bits(rows: int) -> int:
    """Bits of the exact signed sum of ``rows`` products of 9-bit signed operands."""
    return 17 + rows.bit_length()


class SystolicArray(wiring.Component):
    """``rows`` x ``columns`` processing elements: ``sums[c] = sum over r of activations[r] * weight[plane][r][c]``.

    A row of activations moves right, its partial sums move down: element (r, c) works r + c cycles after the
    activations entered. Each row of activations carries the plane of weights it is multiplied with. A tile of
    weights enters in ``load_cycles`` groups of ``load_rows`` rows, one a cycle, and moves down the columns, one row
    a cycle and one column later in each column: row r of group g is written g + r + c + 1 cycles after group 0
    came. So activations may use a tile from the cycle after its last group on, a tile may come while the last
    activations of the tile before the last enter, and a tile can start every ``load_cycles`` cycles.

    Sums are exact: no sum of ``rows`` products needs more than ``sum_bits(rows)`` bits.

    Latency: ``rows + c`` cycles from ``activations`` to ``sums[c]``. Throughput: one row of activations and one
    group of weights a cycle.

    Parameters
    ----------
    config : ArrayConfig
        Rows, columns, weight rows a cycle.

    Members
    -------
    plane, activations : In
        One row of A, ``activations[r]`` for row r of the array, and the plane it uses.
    load, load_plane, weights : In
        ``load`` is one-hot, bit g for group g, and zero in a cycle without weights; ``weights[c]`` holds the 9-bit
        weights of column c, row ``g * load_rows + l`` at bit 9 * l. Lanes beyond the array's rows are ignored.
    sums : Out
    """

    def __init__(self, *, config: ArrayConfig) -> None:
        self.config = config
        super().__init__({
            "plane": In(1),
            "activations": In(signed(9)).array(config.rows),
            "load": In(config.load_cycles),
            "load_plane": In(1),
            "weights": In(9 * config.load_rows).array(config.columns),
            "sums": Out(signed(sum_bits(config.rows))).array(config.columns),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        rows, columns = self.config.rows, self.config.columns
        groups, lanes = self.config.load_cycles, self.config.load_rows
        diagonals = rows + columns - 1

        # What travels with a wavefront is the same for all elements of a diagonal.
        plane, loads = [self.plane], [Signal(2 * groups, name="loads_0")]
        m.d.comb += loads[0].eq(Mux(self.load_plane, self.load << groups, self.load))
        for d in range(1, diagonals):
            plane.append(Signal(name=f"plane_{d}", reset_less=True))
            loads.append(Signal(2 * groups, name=f"loads_{d}"))
            m.d.sync += [plane[d].eq(plane[d - 1]), loads[d].eq(loads[d - 1])]

        # Weights rest while no tile is on its way: a simulator then skips them.
        age = Signal(range(diagonals + 1))
        moving = Signal()
        m.d.comb += moving.eq(self.load.any() | (age != 0))
        with m.If(self.load.any()):
            m.d.sync += age.eq(diagonals)
        with m.Elif(age != 0):
            m.d.sync += age.eq(age - 1)

        sums = [Const(0, signed(1))] * columns
        falling = []
        for c in range(columns):
            chain = [self.weights[c]]
            for i in range(1, rows + c):
                chain.append(Signal(9 * lanes, name=f"lanes_{c}_{i}", reset_less=True))
            falling.append(chain)
        with m.If(moving):
            for chain in falling:
                m.d.sync += [after.eq(before) for before, after in zip(chain, chain[1:], strict=False)]

        for r in range(rows):
            group, lane = divmod(r, lanes)
            activation = self.activations[r]
            for i in range(r):
                delayed = Signal(signed(9), name=f"skew_{r}_{i}", reset_less=True)
                m.d.sync += delayed.eq(activation)
                activation = delayed
            for c in range(columns):
                weights = [Signal(signed(9), name=f"weight_{r}_{c}_{p}", reset_less=True) for p in range(2)]
                for p in range(2):
                    with m.If(loads[r + c][p * groups + group]):
                        m.d.sync += weights[p].eq(falling[c][r + c].word_select(lane, 9))
                total = Signal(signed(sum_bits(r + 1)), name=f"sum_{r}_{c}", reset_less=True)
                m.d.sync += total.eq(sums[c] + activation * Mux(plane[r + c], weights[1], weights[0]))
                sums[c] = total
                if c + 1 < columns:
                    right = Signal(signed(9), name=f"activation_{r}_{c}", reset_less=True)
                    m.d.sync += right.eq(activation)
                    activation = right
        m.d.comb += [self.sums[c].eq(sums[c]) for c in range(columns)]
        return m
