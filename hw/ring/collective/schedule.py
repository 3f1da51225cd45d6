"""The static order of a collective: what all tiles of a group agree on without a word.

A group that is the whole ring is *closed*: a piece's sum starts behind its owner and goes CLOCKWISE once around, to end
there. Any other group is an open *chain*: sums go CLOCKWISE from its first tile to its last. Results go back
COUNTERCLOCKWISE. The work is done in rounds of one block of each piece; blocks of one round are what a tile sends one
after the other, so a block is no shorter than the loop from a tile to its neighbour: then no link waits.
"""

from amaranth.lib import data

from ...config import DeviceConfig
from ...isa import Collective

__all__ = ["SLOTS", "SLOT_BITS", "SIZE_BITS", "block_flits", "block_bytes", "flit_bytes", "is_closed", "fold_order",
           "plan_layout"]

SLOT_BITS = 2
SLOTS = 1 << SLOT_BITS
"""Commands that may be in the engine at once."""

SIZE_BITS = 5  # 1 to 16 tiles


def flit_bytes(config: DeviceConfig) -> int:
    return config.ring.data_bits // 8


def block_flits(config: DeviceConfig) -> int:
    """Flits of a block: 16, which covers two hops (the host's stop lies between the last tile and the first)."""
    return 16 if config.ring.link_stages <= 4 else 32


def block_bytes(config: DeviceConfig) -> int:
    """Bytes of a block. Block b of a closed all-reduce belongs to the piece of tile ``b % size``."""
    return block_flits(config) * flit_bytes(config)


def is_closed(config: DeviceConfig, operation: Collective, size: int) -> bool:
    """Whether a group's vectors go around the ring; a barrier, and one root's vector, go there and back."""
    return (operation in (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
            and size == config.tiles > 1)


def fold_order(config: DeviceConfig, first: int, size: int, piece: int) -> list[int]:
    """Tiles in the order in which their vectors are added, for the sum of ``piece`` (of tile ``first + piece``)."""
    if size == config.tiles > 1:
        return [first + (piece + 1 + step) % size for step in range(size)]
    return [first + step for step in range(size)]


def plan_layout(config: DeviceConfig) -> data.StructLayout:
    """A checked command.

    closed: around the ring. sums: vectors are added. copies: one tile gives each piece. scatter, gather: the result,
    the source is one piece. writes: there is a result at all. index: of this tile in the group; root: of the root.
    pieces: in a round. bytes: of the vector, or of each piece; cut: the pieces lie one after the other in the vector.
    stride: bytes from round to round. pitch: from piece to piece; mine, top: times index, times size - 1.
    """
    span = config.address_bits + 1
    return data.StructLayout({
        "slot": SLOT_BITS, "closed": 1, "sums": 1, "copies": 1, "scatter": 1, "gather": 1, "writes": 1, "cut": 1,
        "index": SIZE_BITS, "root": SIZE_BITS, "size": SIZE_BITS, "pieces": SIZE_BITS,
        "bytes": span, "stride": span, "pitch": span, "mine": span, "top": span,
        "source": config.address_bits, "destination": config.address_bits,
    })
