"""The memory port that every requester and every memory speaks, and the storage port behind a memory."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..shaped import ShapedIntEnum

__all__ = ["BEAT_BITS", "BEAT_SHIFT", "STROBE_BITS", "LEAF_TAG_BITS", "CLIENT_BITS", "TAG_BITS", "CONTEXT_BITS",
           "EPOCH_BITS", "ORIGIN_BITS", "COMMAND_BITS", "Client", "memory_tag_bits", "request_layout", "write_layout",
           "response_layout", "MemoryPort", "StoragePort", "storage_port"]

BEAT_BITS = 256
BEAT_SHIFT = 5
STROBE_BITS = BEAT_BITS // 8
LEAF_TAG_BITS = 8
CLIENT_BITS = 3
TAG_BITS = CLIENT_BITS + LEAF_TAG_BITS
CONTEXT_BITS = 8
EPOCH_BITS = 8
ORIGIN_BITS = TAG_BITS + 3 + 5
"""What the answer to another stop's request needs: the tag there, the memory port, the stop."""
COMMAND_BITS = 64


class Client(ShapedIntEnum, shape=CLIENT_BITS):
    """Who asks: the upper bits of a tag; a tile's arbiter sets them and routes the response by them."""

    CONTROL = 0   # command fetch, completion records
    LOAD = 1
    STORE = 2
    HOST = 3      # the AXI4 window
    RING = 4      # requests of other stops
    COLLECTIVE = 5


def memory_tag_bits(config: DeviceConfig) -> int:
    """Bits of a tag at the memory of a tile. With a ring there is room for what a remote request came with, so that
    nobody has to remember it."""
    return TAG_BITS if config.tiles == 1 else ORIGIN_BITS + CLIENT_BITS


def request_layout(address_bits: int, tag_bits: int) -> data.StructLayout:
    """address: byte address, a multiple of 32; write: 1 where a beat of write data belongs to it."""
    return data.StructLayout({"address": address_bits, "write": 1, "tag": tag_bits, "context": CONTEXT_BITS,
                              "epoch": EPOCH_BITS})


def write_layout() -> data.StructLayout:
    return data.StructLayout({"data": BEAT_BITS, "strobe": STROBE_BITS})


def response_layout(tag_bits: int) -> data.StructLayout:
    """write: 1 for a write's acknowledgement (``data`` has no meaning); error: the memory could not do it."""
    return data.StructLayout({"data": BEAT_BITS, "tag": tag_bits, "write": 1, "error": 1, "context": CONTEXT_BITS,
                              "epoch": EPOCH_BITS})


class MemoryPort(wiring.Signature):
    """Requests of one 32-byte beat each, as the requester sees them.

    Order is kept per tag only, and only among requests to one tile's memory. Requests to one address that are in
    flight together keep their order. The k-th beat of ``write_data`` belongs to the k-th write of ``requests``; it may
    come before, with or after it. A write is acknowledged when every port would read its bytes. Responses may be held
    back for as long as the requester likes, but a requester must be able to take every response it asked for without
    issuing anything more.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address.
    tag_bits : int
        Bits of a tag; :func:`memory_tag_bits` at a memory, :data:`LEAF_TAG_BITS` at a requester.
    """

    def __init__(self, *, address_bits: int, tag_bits: int) -> None:
        self.address_bits = address_bits
        self.tag_bits = tag_bits
        super().__init__({
            "requests": Out(stream.Signature(request_layout(address_bits, tag_bits))),
            "write_data": Out(stream.Signature(write_layout())),
            "responses": In(stream.Signature(response_layout(tag_bits))),
        })


class StoragePort(wiring.Signature):
    """Where a memory's bytes leave the design, as the memory sees it.

    Every output comes from a register. Storage samples them at the clock edge that ends a cycle with ``enable``
    and shows ``read_data`` (the bytes before a write of the same cycle) for the whole next cycle; without
    ``enable`` it changes nothing. ``address`` counts beats from the start of this tile's memory.
    ``commands`` is there with DRAM alone: what its command bus shows in this cycle (``hbm.command.COMMAND_WORD``).
    """

    def __init__(self, *, address_bits: int, commands: bool = False) -> None:
        self.address_bits = address_bits
        super().__init__({
            **({"commands": Out(COMMAND_BITS)} if commands else {}),
            "enable": Out(1),
            "write": Out(1),
            "address": Out(address_bits - BEAT_SHIFT),
            "write_data": Out(BEAT_BITS),
            "strobe": Out(STROBE_BITS),
            "read_data": In(BEAT_BITS),
        })


def storage_port(config: DeviceConfig) -> StoragePort:
    """The storage ports of a tile, one for each memory port."""
    return StoragePort(address_bits=(config.memory.bytes - 1).bit_length(), commands=config.memory.kind == "hbm")
