"""How the simulators drive the device's AXI ports: the one place that fixes the cycles of a bus access.

The rule, which ``verilated/harness.cpp`` follows too:

1. A transaction starts in the cycle it is called in: everything it offers is on the wires before the next edge.
2. The address, and the first beat of data of a write, are offered together; each channel's valid falls after the
   edge that took its last transfer, and the next beat of data follows without an idle cycle.
3. The ready of the response is high from the start until the last response is taken.
4. The call returns right behind the edge that took the last response, all wires low again. The next transaction may
   start in that same cycle. One transaction is on its way at a time.
5. ``BUS_LIMIT`` cycles without a transfer on any of its channels end it with :class:`SimulationTimeout`.

A transaction is a generator: it yields the wires it drives (names without prefix) for a cycle and is sent the device's
wires as they stood just before the edge that ended it.
"""

from collections.abc import Generator, Iterator
from typing import NoReturn

from ringloom.sim.simulator import BusError, SimulationTimeout

__all__ = ["BUS_LIMIT", "BEAT", "RESPONSES", "LITE", "FULL", "Transaction", "bursts", "fail", "lite_write",
           "lite_read", "burst_write", "burst_read", "read_memory_plan", "write_memory_plan"]

BUS_LIMIT = 20_000
"""Cycles without a transfer after which a bus access is given up."""

BEAT = 32
"""Bytes of a beat of the AXI4 window."""

_PAGE = 4096  # a burst must not cross a 4 KiB boundary

RESPONSES = ("OKAY", "EXOKAY", "SLVERR", "DECERR")

LITE = ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rdata", "rresp")
"""What a transaction on the AXI4-Lite port looks at."""

FULL = (*LITE, "rlast")
"""What a transaction on the AXI4 port looks at."""

Wires = dict[str, int]
Transaction = Generator[Wires, Wires, int | list[int]]


def fail(bus: str, address: int, channel: str, response: int | None = None) -> NoReturn:
    """Raise what a bus access that did not end well raises, in the words both simulators use."""
    if response is None:
        raise SimulationTimeout(f"{bus} at address {address:#x}: no transfer on channel {channel} "
                                f"in {BUS_LIMIT} cycles")
    raise BusError(f"{bus} at address {address:#x}: the device answered {RESPONSES[response]} on channel {channel}")


def bursts(address: int, size: int) -> Iterator[tuple[int, int]]:
    """Aligned start address and beats of the legal bursts that cover ``size`` bytes from ``address`` on."""
    start, end = address // BEAT * BEAT, address + size
    while start < end:
        stop = min(end, (start // _PAGE + 1) * _PAGE)
        beats = -(-(stop - start) // BEAT)
        yield start, beats
        start += beats * BEAT


def read_memory_plan(address: int, size: int) -> Iterator[tuple[int, int, slice]]:
    """Start, beats, and which of the burst's bytes are wanted, for every burst of a read."""
    for start, beats in bursts(address, size):
        yield start, beats, slice(max(0, address - start), min(beats * BEAT, address + size - start))


def write_memory_plan(address: int, data: bytes) -> Iterator[tuple[int, bytes, list[int]]]:
    """Start, padded data and a strobe for each beat, for every burst of a write."""
    for start, beats in bursts(address, len(data)):
        head = max(0, address - start)
        part = data[max(0, start - address):start + beats * BEAT - address]
        padded = (bytes(head) + part).ljust(beats * BEAT, b"\0")
        strobe = ((1 << len(part)) - 1) << head
        yield start, padded, [strobe >> BEAT * i & (1 << BEAT) - 1 for i in range(beats)]


def _write(bus: str, address: int, fixed: Wires, beats: list[Wires]) -> Transaction:
    address_open, sent, idle = True, 0, 0
    while True:
        wires = {"bready": 1}
        if address_open:
            wires |= {"awvalid": 1, "awaddr": address, **fixed}
        if sent < len(beats):
            wires |= {"wvalid": 1, **beats[sent]}
        seen = yield wires
        idle += 1
        if address_open and seen["awready"]:
            address_open, idle = False, 0
        if sent < len(beats) and seen["wready"]:
            sent, idle = sent + 1, 0
        if seen["bvalid"]:
            if seen["bresp"]:
                fail(bus, address, "B", seen["bresp"])
            return 0
        if idle >= BUS_LIMIT:
            fail(bus, address, "AW" if address_open else "W" if sent < len(beats) else "B")


def _read(bus: str, address: int, fixed: Wires, beats: int) -> Transaction:
    address_open, idle = True, 0
    data: list[int] = []
    error = 0
    while True:
        wires = {"rready": 1}
        if address_open:
            wires |= {"arvalid": 1, "araddr": address, **fixed}
        seen = yield wires
        idle += 1
        if address_open and seen["arready"]:
            address_open, idle = False, 0
        if seen["rvalid"]:
            idle = 0
            data.append(seen["rdata"])
            error = error or seen["rresp"]
            if len(data) == beats:
                if error:
                    fail(bus, address, "R", error)
                return data
        if idle >= BUS_LIMIT:
            fail(bus, address, "AR" if address_open else "R")


def lite_write(address: int, value: int) -> Transaction:
    """Write a register."""
    return _write("register write", address, {}, [{"wdata": value, "wstrb": 0xF}])


def lite_read(address: int) -> Transaction:
    """Read a register; its value is the only item of the list returned."""
    return _read("register read", address, {}, 1)


def _burst(prefix: str, beats: int) -> Wires:
    # INCR bursts of whole beats; strobes alone say which bytes of a write count.
    return {f"{prefix}len": beats - 1, f"{prefix}size": BEAT.bit_length() - 1, f"{prefix}burst": 1}


def burst_write(address: int, data: bytes, strobes: list[int]) -> Transaction:
    """Write one burst of whole beats."""
    beats = [{"wdata": int.from_bytes(data[BEAT * i:BEAT * (i + 1)], "little"), "wstrb": strobe,
              "wlast": int(i == len(strobes) - 1)} for i, strobe in enumerate(strobes)]
    return _write("memory write", address, _burst("aw", len(strobes)), beats)


def burst_read(address: int, beats: int) -> Transaction:
    """Read one burst of whole beats; returns their values."""
    return _read("memory read", address, _burst("ar", beats), beats)
