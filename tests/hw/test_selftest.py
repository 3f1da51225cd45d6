"""The array's test pattern against a model of an array with one stuck bit: each one is found, and located."""

import numpy as np
import pytest

from ringloom.hw.config import ConfigError
from ringloom.hw.selftest import EXPECTED, array_test, locate
from tests.support.bare import bare

SHAPES = [(1, 1), (1, 4), (3, 5), (4, 4), (8, 8), (7, 2), (16, 16), (5, 16)]
WEIGHTS = (1, -2)


def force(value, bit, level):
    """``value`` with two's complement bit ``bit`` at ``level``."""
    return np.where(level, value | 1 << bit, value & ~(1 << bit))


def broken_array(rows, columns, blocks, kind, row, column, bit, level):
    """What the job stores, by the recurrence of the array: sums go down, activations go right."""
    one_hot = np.zeros((rows + 1, rows), int)
    for i in range(1, rows + 1):
        one_hot[i, rows - i] = -1
    results = np.zeros((len(WEIGHTS), rows + 1, blocks * columns), int)
    for pattern, value in enumerate(WEIGHTS):
        for block in range(blocks):
            for c in range(columns):
                total = np.zeros(rows + 1, int)
                for r in range(rows):
                    here = (r, c) == (row, column)
                    activation, weight = one_hot[:, r], np.array(value)
                    if kind == "activation" and r == row and c >= column:
                        activation = force(activation, bit, level)
                        activation = (activation + 256) % 512 - 256
                    if here and kind == f"weight{block % 2}":
                        weight = (force(weight, bit, level) + 256) % 512 - 256
                    product = activation * weight
                    if here and kind == "product":
                        product = force(product, bit, level)
                    total = total + product
                    if here and kind == "sum":
                        total = force(total, bit, level)
                results[pattern, :, block * columns + c] = total
    return results.astype(np.int32)


@pytest.mark.parametrize("rows, columns", SHAPES)
def test_a_stuck_bit_in_any_element_is_located(rows, columns):
    config = bare("tiny", {"tile.array.rows": rows, "tile.array.columns": columns})
    blocks = array_test(config).row_bytes // 4 // columns
    rng = np.random.default_rng(rows * 100 + columns)
    assert locate(config, broken_array(rows, columns, blocks, "", 0, 0, 0, 0)) == []
    bits = {"product": 18, "sum": 17 + rows.bit_length(), "weight0": 9, "weight1": 9, "activation": 9}
    places = [(r, c) for r in range(rows) for c in range(columns)]
    if len(places) > 20:
        places = [places[i] for i in rng.choice(len(places), 12, replace=False)]
    for row, column in places:
        for kind, count in bits.items():
            for level in (0, 1):
                bit = int(rng.integers(count))
                results = broken_array(rows, columns, blocks, kind, row, column, bit, level)
                found = locate(config, results)
                right = columns if kind == "activation" else column + 1
                assert found == [(row, c) for c in range(column, right)], (kind, row, column, bit, level)


def test_every_bit_of_one_element():
    config = bare("tiny", {"tile.array.rows": 4, "tile.array.columns": 4})
    for kind, count in {"product": 18, "sum": 20, "weight0": 9, "weight1": 9}.items():
        for bit in range(count):
            for level in (0, 1):
                assert locate(config, broken_array(4, 4, 2, kind, 2, 1, bit, level)) == [(2, 1)]


def test_faults_in_several_columns_are_told_apart_and_others_have_no_row():
    config = bare("tiny", {"tile.array.rows": 4, "tile.array.columns": 4})
    both = broken_array(4, 4, 2, "sum", 1, 0, 3, 1)
    both[:, :, 3::4] = broken_array(4, 4, 2, "product", 2, 3, 5, 0)[:, :, 3::4]
    assert locate(config, both) == [(1, 0), (2, 3)]
    all_wrong = broken_array(4, 4, 2, "", 0, 0, 0, 0)
    all_wrong[:, :, 2::4] += 7  # beside the array: an accumulator, say
    assert locate(config, all_wrong) == [(None, 2)]


def test_addresses_move_with_the_place_and_what_does_not_fit_is_refused():
    test = array_test(bare("inference"))
    moved = np.frombuffer(test.bound(0x12_3456_7880), "<u4")
    plain = np.frombuffer(test.image, "<u4")
    for at in test.addresses:
        assert moved[at:at + 2].view("<u8") == plain[at:at + 2].view("<u8") + 0x12_3456_7880
    kept = np.setdiff1d(np.arange(plain.size), [at + i for at in test.addresses for i in (0, 1)])
    assert (moved[kept] == plain[kept]).all()
    assert test.row_bytes % 32 == 0 and test.results % 64 == 0 and EXPECTED == (-1, 2)
    with pytest.raises(ConfigError, match="memory.bytes = 65536"):
        array_test(bare("tiny", {"tile.array.rows": 64, "tile.array.columns": 64, "memory.bytes": 65536,
                                 "tile.accumulator.bytes": 65536, "tile.scratchpad.weight_bytes": 8192}))
