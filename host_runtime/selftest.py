"""Self-tests: what the firmware found at power-on, and the whole test, which the host starts."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.hw.config import BEAT_BYTES
from ringloom.hw.isa import DESCRIPTOR
from ringloom.hw.regmap import ANSWERS, Request, Test
from ringloom.hw.regmap import SelfTest as State
from ringloom.hw.selftest import EXPECTED, array_test, locate

from .buffers import DeviceArray
from .errors import DeviceFault, Error, UnsupportedError
from .march import march, walk
from .queue import Job

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Finding", "PowerOn", "SelfTest", "Step", "ask", "power_on", "run"]

_UNKNOWN = 0xFFFF
_NO_TILE = 0xFF
_BEAT_SHIFT = BEAT_BYTES.bit_length() - 1
_ANSWER_CYCLES = 20_000   # the firmware may be busy with jobs
_POWER_ON_CYCLES = 25_000  # more than the firmware gives itself
_BEAT_CYCLES = 100        # of a march, at most


@dataclass(frozen=True)
class Finding:
    """What is wrong, and where.

    test: memory, address, array or ring. tile: None where memory does not answer, and nobody knows whose. row, column:
    of the array's element; None: not one element alone. address: of the first wrong word. expected, found: that word.
    """

    test: str
    tile: int | None
    row: int | None = None
    column: int | None = None
    address: int = 0
    expected: int = 0
    found: int = 0
    text: str = ""

    def __str__(self) -> str:
        if self.tile is None:
            return "the memory of a tile does not answer"
        words = f"{self.found:#010x} in place of {self.expected:#010x} at address {self.address:#x}"
        if self.test == "array":
            if self.text:
                what = self.text
            elif self.row is None:
                what = f"column {self.column} of the array: {words}"
            else:
                what = f"the array's element in row {self.row}, column {self.column}: {words}"
        elif self.test == "ring":
            what = self.text
        else:
            what = f"{'address bits' if self.test == 'address' else 'bits'} {self.bits} of memory's beats: {words}"
        return f"tile {self.tile}, {what}"

    @property
    def bits(self) -> list[int]:
        """Bits that are wrong: of a beat (memory), of an address (address), of a word (array)."""
        first = {"address": _BEAT_SHIFT, "memory": 8 * (self.address % BEAT_BYTES)}.get(self.test, 0)
        return [first + bit for bit in range(32) if (self.expected ^ self.found) >> bit & 1]


@dataclass(frozen=True)
class PowerOn:
    """The self-test at power-on. state: passed, skipped, incomplete (time ran out) or absent (no firmware)."""

    state: str
    cycles: int

    def __str__(self) -> str:
        return {"passed": f"passed in {self.cycles} cycles", "skipped": "skipped: it was not asked for",
                "incomplete": f"ended before its time ran out, after {self.cycles} cycles, and found nothing",
                "absent": "absent: control.kind is direct"}[self.state]


@dataclass(frozen=True)
class Step:
    """One part of the whole test. what: its extent, in words."""

    test: str
    tile: int
    what: str
    cycles: int
    passed: bool


@dataclass
class SelfTest:
    """The whole test. faults: what is wrong, with its place."""

    steps: list[Step] = field(default_factory=list)
    faults: list[Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "steps": [asdict(step) for step in self.steps],
                "faults": [asdict(fault) | {"text": str(fault)} for fault in self.faults]}


def ask(device: "Device", request: Request, tile: int, arguments: tuple[int, ...] = (),
        cycles: int = _ANSWER_CYCLES) -> list[int]:
    """Have the firmware do something; returns its answer. Raises :class:`DeviceFault` where none comes."""
    mailbox = device.regs.mailbox
    for i, value in enumerate(arguments):
        setattr(mailbox, f"argument{i}", value)
    mailbox.request = request | tile << 8
    end = device.cycle + cycles
    while mailbox.pending:
        if device.cycle > end:
            raise DeviceFault(f"the firmware did not answer {request.name} within {cycles} cycles: reset the device")
        with device._bus():
            device.simulator.run(50)
    return [getattr(mailbox, f"answer{i}") for i in range(ANSWERS)]


def power_on(device: "Device", wanted: bool) -> PowerOn:
    """Wait for the firmware's self-test, or skip it. Raises :class:`DeviceFault` where it fails."""
    if device.config.control.kind == "direct":
        return PowerOn("absent", 0)
    mailbox = device.regs.mailbox
    if not wanted:
        mailbox.request = Request.SKIP
    end = device.cycle + _POWER_ON_CYCLES
    while (result := mailbox.selftest) & 0xFF == State.RUNNING:
        if device.cycle > end:
            raise DeviceFault("the firmware does not end its self-test: the management core is at fault",
                              code="SELF_TEST", where={"test": "core"})
        with device._bus():
            device.simulator.run(200 if wanted else 10)
    if wanted and result & 0xFF == State.FAILED:
        finding = _finding(device, result)
        raise DeviceFault(f"the power-on self-test failed: {finding}. Open with selftest=False to use the rest of the "
                          "device; `ringloom selftest` tells all", code="SELF_TEST", address=finding.address,
                          where={name: getattr(finding, name) for name in ("test", "tile", "row", "column", "address")})
    return PowerOn(State(result & 0xFF).name.lower(), mailbox.selftest_end)


def _finding(device: "Device", result: int) -> Finding:
    mailbox = device.regs.mailbox
    element = mailbox.selftest_element
    row, column = (None if value == _UNKNOWN else value for value in (element & 0xFFFF, element >> 16))
    test = Test(result >> 8 & 0xFF).name.lower()
    text = "" if test != "array" or column is not None else "the test of the array did not run to its end"
    tile = result >> 16 & 0xFF
    return Finding(test, None if tile == _NO_TILE else tile, row, column,
                   mailbox.selftest_address_high << 32 | mailbox.selftest_address_low, mailbox.selftest_expected,
                   mailbox.selftest_found, text)


def run(device: "Device", memory_bytes: int | None) -> SelfTest:
    """The whole test of a device without queued jobs."""
    size = device.config.memory.bytes
    if memory_bytes is None:
        memory_bytes = size
    if not isinstance(memory_bytes, int | np.integer) or not BEAT_BYTES <= memory_bytes <= size:
        raise UnsupportedError(f"memory_bytes = {memory_bytes!r}: must lie in {BEAT_BYTES}..{size}, or be None for all")
    if len(device._jobs):
        raise UnsupportedError(f"selftest: {len(device._jobs)} jobs are queued: wait for them first")
    report = SelfTest()
    for tile in range(device.config.tiles):
        for test, step in (("memory", _memory), ("array", _array)):
            before = device.cycle
            what, faults = step(device, tile, int(memory_bytes) // BEAT_BYTES)
            report.faults += faults
            report.steps.append(Step(test, tile, what, device.cycle - before, not faults))
    for tile in range(max(1, device.config.tiles - 1)):
        before = device.cycle
        what, faults = _ring(device, tile)
        report.faults += faults
        report.steps.append(Step("ring", tile, what, device.cycle - before, not faults))
    return report


def _memory(device: "Device", tile: int, beats: int) -> tuple[str, list[Finding]]:
    """Where there is firmware the hardware marches, else the host does, through the AXI4 window."""
    config, memory = device.config, device.simulator.memory(tile)
    touched = [*_pieces(config), (0, beats * BEAT_BYTES)]
    saved = [memory[start:start + size].copy() for start, size in touched]
    try:
        if config.control.kind == "firmware":
            ask(device, Request.MARCH, tile, (0, beats), cycles=_ANSWER_CYCLES + _BEAT_CYCLES * beats)
            result = device.regs.mailbox.selftest
            faults = [_finding(device, result)] if result & 0xFF == State.FAILED else []
        else:
            base = tile * config.memory.bytes
            wrong = (march(device, base // BEAT_BYTES, beats)
                     or walk(device, [[base + address for address in addresses] for addresses in walks(config)]))
            faults = [Finding(wrong[0], tile, None, None, *wrong[1:])] if wrong else []
    finally:
        for (start, size), data in zip(touched, saved, strict=True):
            memory[start:start + size] = data
    share = beats * BEAT_BYTES / config.memory.bytes
    return f"{beats * BEAT_BYTES:,} bytes ({share:.0%}) and the address lines", faults


def walks(config: Any) -> Iterator[list[int]]:
    """For each port, addresses that differ in one line each from the first."""
    for port in range(config.ports):
        first = port * config.memory.interleave_bytes
        lines = range(_BEAT_SHIFT, config.memory.bytes.bit_length() - 1)
        yield [first, *(first ^ 1 << line for line in lines)]


def _pieces(config: Any) -> Iterator[tuple[int, int]]:
    return ((address, BEAT_BYTES) for addresses in walks(config) for address in addresses)


def _array(device: "Device", tile: int, _: int) -> tuple[str, list[Finding]]:
    config = device.config
    test, rows, columns = array_test(config), config.tile.array.rows, config.tile.array.columns
    what = f"{rows} x {columns} elements, {len(EXPECTED)} patterns"
    program = DeviceArray(device, (test.size,), np.uint8)
    view, job = program._view, Job(device, device._next_number(), "selftest", 0, None, as_numpy=False, shape=())
    head = DESCRIPTOR.decode(test.bound(program.address))
    view[:] = 0
    view[:len(test.image)] = np.frombuffer(test.bound(program.address), np.uint8)
    view[:DESCRIPTOR.bytes] = np.frombuffer(DESCRIPTOR.encode(**head | {"job": job.number}), np.uint8)
    job.program, job.tile = program, tile
    queue = None
    if config.control.kind == "firmware" and config.tiles > 1:  # the default queue's jobs run on any tile
        job.queue = queue = device.queue(tiles=[tile], priority=255)
    try:
        device._jobs.add(job)
        job.wait()
    except Error as error:
        return what, [Finding("array", tile, address=program.address, text=f"the test of the array ended: {error}")]
    finally:
        device.jobs -= job.status == "done"
        if queue is not None:
            queue.close()
    size = len(EXPECTED) * test.rows * test.row_bytes
    results = view[test.results:test.results + size].view(np.int32).reshape(len(EXPECTED), test.rows, -1)
    faults = []
    for row, column in locate(config, results):
        expected = np.zeros_like(results)
        expected[:, 1:] = np.array(EXPECTED).reshape(-1, 1, 1)
        wrong = np.argwhere((results != expected) & (np.arange(results.shape[2]) % columns == column))[0]
        at = test.results + int(np.ravel_multi_index(tuple(wrong), results.shape)) * 4
        faults.append(Finding("array", tile, row, column, program.address + at,
                              int(expected[tuple(wrong)]) & 0xFFFFFFFF, int(results[tuple(wrong)]) & 0xFFFFFFFF))
    return what, faults


def _ring(device: "Device", tile: int) -> tuple[str, list[Finding]]:
    """Each data wire of the links between ``tile`` and the next one, as 0 and as 1, in both directions.

    A broadcast: the first one's data goes to the second, and comes back from there (docs/collectives.md, the chain). It
    is the bits of each wire's number and their complements, so that any two wires differ somewhere. The links of the
    host's stop carry what the memory test writes and reads.
    """
    if device.config.tiles == 1:
        return "no ring: one tile", []
    bits, behind = device.config.ring.data_bits, tile + 1
    numbers = np.arange(bits) >> np.arange((bits - 1).bit_length())[:, None] & 1
    flits = np.packbits(np.concatenate([numbers, 1 - numbers]).astype(np.uint8), axis=1, bitorder="little")
    what, jobs = f"links between tiles {tile} and {behind}, {bits} wires each way", device.jobs
    try:
        received = device.submit("broadcast", flits, root=tile, tiles=[tile, behind]).result()
    except Error as error:
        return what, [Finding("ring", tile, text=f"the ring between it and tile {behind}: {error}")]
    finally:
        device.jobs = jobs
    at_first, at_second = (array._view for array in received)
    faults = []
    for source, receiver, before in ((tile, behind, flits), (behind, tile, at_second)):
        after = at_second if receiver == behind else at_first
        words, found = before.reshape(-1).view("<u4"), after.reshape(-1).view("<u4")
        wrong = np.flatnonzero(words != found)
        if wrong.size:
            at = int(wrong[0])
            wires = np.flatnonzero(np.unpackbits(np.bitwise_or.reduce(before ^ after), bitorder="little")).tolist()
            faults.append(Finding("ring", receiver, address=received[receiver - tile].address + 4 * at,
                                  expected=int(words[at]), found=int(found[at]),
                                  text=f"what comes from tile {source} over the ring: bits {wires} of a flit's data "
                                       "are wrong"))
    return what, faults
