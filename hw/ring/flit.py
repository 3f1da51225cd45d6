"""What travels on the ring: networks, directions, flits, and the link between two stops."""

from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..memory.port import BEAT_BITS, CONTEXT_BITS, EPOCH_BITS, STROBE_BITS, TAG_BITS
from ..shaped import ShapedIntEnum

__all__ = ["Network", "Direction", "Request", "NETWORKS", "STOP_BITS", "PORT_BITS", "NUMBER_BITS", "flit_layout",
           "request_body", "response_body", "collective_body", "stops", "host_stop", "RingLink"]

STOP_BITS = 5     # 16 tiles and the host
PORT_BITS = 3     # memory ports of a tile
NUMBER_BITS = 16  # isa.RING.number


class Network(ShapedIntEnum, shape=2):
    """Virtual networks: each has buffers and credits of its own, so that none waits for another.

    What a network delivers is taken without waiting for anything but a network behind it in this list, and memory.
    """

    REQUEST = 0    # remote reads, writes and signals
    REDUCE = 1     # sums on their way to the tile that ends them
    RESPONSE = 2   # what answers a REQUEST
    BROADCAST = 3  # results on their way to all tiles of a group


class Direction(ShapedIntEnum, shape=1):
    CLOCKWISE = 0         # from stop s to stop s + 1
    COUNTERCLOCKWISE = 1


class Request(ShapedIntEnum, shape=2):
    READ = 0
    WRITE = 1
    SIGNAL = 2  # add one to semaphore ``address`` of the destination


NETWORKS = len(Network)


def stops(config: DeviceConfig) -> int:
    """Stops of the ring: stop t is tile t, the last is the host's."""
    return config.tiles + 1


def host_stop(config: DeviceConfig) -> int:
    return config.tiles


def request_body(config: DeviceConfig) -> data.StructLayout:
    """One beat. ``port`` and ``tag`` are the requester's memory port and full tag, and come back in the response."""
    return data.StructLayout({"kind": Request, "address": config.address_bits, "port": PORT_BITS, "tag": TAG_BITS,
                              "context": CONTEXT_BITS, "epoch": EPOCH_BITS, "strobe": STROBE_BITS, "data": BEAT_BITS})


def response_body(config: DeviceConfig) -> data.StructLayout:
    return data.StructLayout({"port": PORT_BITS, "tag": TAG_BITS, "context": CONTEXT_BITS, "epoch": EPOCH_BITS,
                              "write": 1, "error": 1, "data": BEAT_BITS})


def collective_body(config: DeviceConfig) -> data.StructLayout:
    """``data_bits`` bits of a vector, in the order that the collective fixes. ``number`` is that of its command."""
    return data.StructLayout({"number": NUMBER_BITS, "data": config.ring.data_bits})


def flit_layout(config: DeviceConfig) -> data.StructLayout:
    """``body`` is one of the three bodies, from bit 0. ``last``: the last flit of its packet.

    A flit finds its way alone. Flits of one source, destination, network and direction stay in order; those of a
    packet follow one another, with flits of other sources between them.
    """
    bits = max(body(config).size for body in (request_body, response_body, collective_body))
    return data.StructLayout({"destination": STOP_BITS, "source": STOP_BITS, "last": 1, "body": unsigned(bits)})


class RingLink(wiring.Signature):
    """One direction of the wires between two neighbours, as the sending stop sees them. Everything is registered.

    valid: a flit of ``network`` is on the wires in this cycle; it has a place, because a credit was spent on it.
    credits: bit n is high for one cycle for each place of network n that the receiver has freed.
    """

    def __init__(self, config: DeviceConfig) -> None:
        super().__init__({
            "valid": Out(1),
            "network": Out(Network),
            "flit": Out(flit_layout(config)),
            "credits": In(NETWORKS),
        })
