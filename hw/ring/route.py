"""Which way around."""

from amaranth.hdl import Mux, Value, ValueLike

from .flit import STOP_BITS

__all__ = ["route"]


def route(stops: int, source: ValueLike, destination: ValueLike) -> Value:
    """The :class:`~.flit.Direction` from stop ``source`` to stop ``destination`` of a ring of ``stops``.

    The shorter way. Where both are equally long, stops of an even number go clockwise and the others
    counterclockwise: so the links of both directions carry the same, and a pair's flits stay in order.
    """
    source, destination = Value.cast(source), Value.cast(destination)
    onward = (destination - source)[:STOP_BITS + 1]
    hops = Mux(destination < source, onward + stops, onward)[:STOP_BITS]  # clockwise
    return Mux(source[0], 2 * hops >= stops, 2 * hops > stops)
