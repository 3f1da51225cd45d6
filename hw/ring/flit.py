"""What travels on the ring: networks, directions, flits, and the link between two stops."""

from amaranth.hdl import unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..memory.port import BEAT_BITS, CONTEXT_BITS, EPOCH_BITS, STROBE_BITS, TAG_BITS
from ..shaped import ShapedIntEnum

__all__ = ["Network", "Direction", "Request", "NETWORKS", "STOP_BITS", "PORT_BITS", "NUMBER_BITS", "flit_layout",
           "request_body", "response_body", "collective_body", "stops", "host_stop",
           "buffer_flits", "turn_flits", "LANE_EVENTS", "RingLink"]

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


def buffer_flits(config: DeviceConfig) -> int:
    """Places of each network's buffer in each direction of a stop: ``ring.buffer_flits``, or what never waits.

    A place that is given away in cycle t can be given away again in cycle t + 4 + 2 link_stages: the flit is on the
    wires in t + 1, at the head in t + 2 + link_stages, its credit is counted 2 + link_stages later. So many places
    keep a stream of one flit a cycle going, and one more does so where the bubble must stay free.
    """
    return config.ring.buffer_flits or 1 << (4 + 2 * config.ring.link_stages).bit_length()


def turn_flits(config: DeviceConfig) -> int:
    """Flits that a stop may inject into a network and direction from one turn to the next.

    At least the cycles in which an unhindered turn goes around, so that it slows no stream down; and enough for bursts.
    """
    return max(32, 1 << (stops(config) * (2 + config.ring.link_stages) - 1).bit_length())


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


LANE_EVENTS = data.StructLayout({
    "injected": 1,   # a flit of this stop goes onto the link
    "forwarded": 1,  # a flit of another stop does
    "ejected": range(NETWORKS + 1),  # flits that leave the ring here
    "stalled": 1,    # flits wait for the link, and none may go
})
"""What one direction of a stop does in a cycle."""


class RingLink(wiring.Signature):
    """One direction of the wires between two neighbours, as the sending stop sees them. Everything is registered.

    valid: a flit of ``network`` is on the wires in this cycle; it has a place, because a credit was spent on it.
    turn: bit n is high for one cycle when the turn of network n goes on to the receiver.
    credits: bit n is high for one cycle for each place of network n that the receiver has freed.
    """

    def __init__(self, config: DeviceConfig) -> None:
        super().__init__({
            "valid": Out(1),
            "network": Out(Network),
            "flit": Out(flit_layout(config)),
            "turn": Out(NETWORKS),
            "credits": In(NETWORKS),
        })
