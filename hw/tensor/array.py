"""The systolic array: weight-stationary, two weight planes, everything skewed with the wavefront."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
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
        ``load`` is one-hot, bit g for group g, and zero in a cycle without weights; ``weights[c][l]`` is that of
        column c, row ``g * load_rows + l``. Lanes beyond the array's rows are ignored.
    sums : Out
    """

    def __init__(self, *, config: ArrayConfig) -> None:
        self.config = config
        super().__init__({
            "plane": In(1),
            "activations": In(signed(9)).array(config.rows),
            "load": In(config.load_cycles),
            "load_plane": In(1),
            "weights": In(signed(9)).array(config.columns, config.load_rows),
            "sums": Out(signed(sum_bits(config.rows))).array(config.columns),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        rows, columns = self.config.rows, self.config.columns
        groups, lanes = self.config.load_cycles, self.config.load_rows

        # Rows are handled by groups of ``load_rows``. Within a group, the elements whose row and column add up to the
        # same number, a slant, work and are loaded in the same cycles: a slant's activations, and its weights of each
        # plane, are one word each. There are fewer, wider registers than with words of one element, for the same
        # hardware: that is what simulators are fast at. Lanes that lie beside the array are never looked at.
        slants = columns + lanes - 1
        diagonals = (groups - 1) * lanes + slants

        plane = [self.plane]
        loads = [Signal(2 * groups, name="loads_0")]
        falling = [Signal(9 * lanes * slants, name="falling_0")]
        m.d.comb += [
            loads[0].eq(Mux(self.load_plane, self.load << groups, self.load)),
            falling[0].eq(Cat(self.weights[s - lane][lane] if 0 <= s - lane < columns else Const(0, 9)
                              for s in range(slants) for lane in range(lanes))),
        ]
        for d in range(1, diagonals):
            plane.append(Signal(name=f"plane_{d}", reset_less=True))
            loads.append(Signal(2 * groups, name=f"loads_{d}"))
            falling.append(Signal(9 * lanes * slants, name=f"falling_{d}", reset_less=True))
            m.d.sync += [plane[d].eq(plane[d - 1]), loads[d].eq(loads[d - 1]), falling[d].eq(falling[d - 1])]

        sums = [[Const(0, signed(1))] * columns, *(
            [Signal(signed(sum_bits(r + 1)), name=f"sum_{r}_{c}", reset_less=True) for c in range(columns)]
            for r in range(rows))]
        for g in range(groups):
            first = g * lanes
            used = min(lanes, rows - first)
            activations = Cat(self.activations[first:first + used])
            for d in range(first + slants):
                if d > 0:
                    delayed = Signal(9 * used, name=f"activations_{g}_{d}", reset_less=True)
                    m.d.sync += delayed.eq(activations)
                    activations = delayed
                if d < first:
                    continue
                s = d - first
                planes = [Signal(9 * lanes, name=f"weights_{g}_{s}_{p}", reset_less=True) for p in range(2)]
                weights = Signal(9 * lanes, name=f"weights_{g}_{s}")
                for p in range(2):
                    with m.If(loads[d][p * groups + g]):
                        m.d.sync += planes[p].eq(falling[d].word_select(s, 9 * lanes))
                m.d.comb += weights.eq(Mux(plane[d], planes[1], planes[0]))
                for lane in range(used):
                    if 0 <= (c := s - lane) < columns:
                        r = first + lane
                        m.d.sync += sums[r + 1][c].eq(self._element(
                            (r, c), plane[d], sums[r][c], activations.word_select(lane, 9).as_signed(),
                            weights.word_select(lane, 9).as_signed()))
        m.d.comb += [self.sums[c].eq(sums[rows][c]) for c in range(columns)]
        return m

    def _element(self, place: tuple[int, int], plane: Value, above: Value, activation: Value, weight: Value) -> Value:
        """What the element of row and column ``place`` adds up; tests break it here."""
        return above + activation * weight
