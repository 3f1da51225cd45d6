"""Operations on vectors with one bit an entry, a bank or a slot."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Const, Mux, Value

__all__ = ["any_of", "lowest", "number_of", "repeat", "pick_field", "matches", "spread"]


def any_of(values: Iterable[Value]) -> Value:
    """The OR of vectors."""
    return reduce(or_, values)


def lowest(vector: Value) -> Value:
    """The lowest set bit alone, as a vector; nothing where there is none."""
    return (vector & (~vector + 1))[:len(vector)]


def number_of(one_hot: Value, bit: int) -> Value:
    """Bit ``bit`` of the number of the one set bit."""
    return (one_hot & sum(1 << k for k in range(len(one_hot)) if k >> bit & 1)).any()


def repeat(bit: Value, width: int) -> Value:
    """``bit`` in each of ``width`` places."""
    return Mux(bit, Const((1 << width) - 1, width), Const(0, width))


def pick_field(planes: Sequence[Value], chosen: Value) -> list[Value]:
    """The bits of the field of the one chosen entry; ``planes[k]`` holds bit k of every entry's field."""
    return [(plane & chosen).any() for plane in planes]


def matches(planes: Sequence[Value], value: Value, width: int) -> Value:
    """Entries whose field equals ``value``."""
    if not planes:
        return Const((1 << width) - 1, width)
    return ~any_of(plane ^ repeat(value[k], width) for k, plane in enumerate(planes))


def spread(planes: Sequence[Value], flags: Value, width: int) -> Value:
    """Entries whose number (a bank), stored in ``planes``, is flagged: a tree of selections."""
    level = [repeat(flags[k], width) for k in range(len(flags))]
    for plane in planes:
        level = [below ^ ((below ^ above) & plane) for below, above in zip(level[::2], level[1::2], strict=True)]
    return level[0]
