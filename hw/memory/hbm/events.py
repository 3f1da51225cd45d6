"""What a channel reports each cycle, for counters and for the account of lost bandwidth."""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from ...shaped import ShapedIntEnum

__all__ = ["Cause", "CHANNEL_EVENTS", "LEVEL_BITS"]

LEVEL_BITS = 10


class Cause(ShapedIntEnum, shape=3):
    """What a cycle of the data bus was used or lost for. Each cycle has one; the first that holds."""

    DATA = 0         # the slot of a burst
    IDLE = 1         # no request waits
    RESPONSE = 2     # no place for another response: the requester does not take them
    TURNAROUND = 3   # a row is open for a request, and the bus changes direction
    GROUP = 4        # a row is open for a request, and its bank group waits for tCCD_L
    REFRESH = 5      # a request waits for a bank that is refreshed
    ROW = 6          # rows are being closed and opened


CHANNEL_EVENTS = wiring.Signature({
    "read": Out(1),
    "write": Out(1),
    "row_hit": Out(1),        # the access found its row open
    "row_miss": Out(1),       # its bank was closed
    "row_conflict": Out(1),   # another row had to be closed first
    "refresh": Out(1),        # a refresh command, of one bank or of all
    "cause": Out(Cause),
    "level": Out(LEVEL_BITS),            # requests in both queues
    "latency": Out(16),                  # of the read that ends in this cycle, from acceptance to response
    "latency_valid": Out(1),
})
"""Events of one pseudo-channel; ``read`` and ``write`` are column commands."""
