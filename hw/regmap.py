"""The register map: the one source of names, addresses and meaning of every AXI4-Lite register.

32-bit registers, byte addresses. The ``control`` block lies at 0, with ``control.kind: firmware`` queue q at
``QUEUE_BASE + q * QUEUE_STRIDE`` and the mailbox of the management core at ``MAILBOX_BASE``; tile t lies at
``TILE_BASE + t * TILE_STRIDE``.
64-bit values are a ``_low``/``_high`` pair; reading ``_low`` of a read-only pair latches ``_high``.
"""

import enum
from dataclasses import dataclass

from .counters import COUNTERS
from .isa import SEMAPHORES

__all__ = ["Access", "Register", "CONTROL", "MAILBOX", "QUEUE", "TILE", "MAILBOX_BASE", "MAILBOX_ADDRESS_BITS",
           "QUEUE_BASE", "QUEUE_STRIDE", "QUEUES_ADDRESS_BITS", "TILE_BASE", "TILE_STRIDE", "ADDRESS_BITS", "MAGIC",
           "REGMAP_VERSION", "ENGINE_STATES", "ANSWERS", "QueueStatus", "QueueCommand", "Request", "SelfTest", "Test",
           "tile_register", "queue_register", "mailbox_register", "control_register"]

MAGIC = 0x4D4C4E52  # "RNLM", little-endian
REGMAP_VERSION = 1
MAILBOX_BASE = 0x400
MAILBOX_ADDRESS_BITS = 7
QUEUE_BASE = 0x800
QUEUE_STRIDE = 0x80
QUEUES_ADDRESS_BITS = 11  # 16 queues
TILE_BASE = 0x1000
TILE_STRIDE = 0x1000
ADDRESS_BITS = 17  # 16 tiles

ENGINE_STATES = ("idle", "waiting", "running", "faulted")
"""Values of the ``state`` bits of ``*_state``."""

ANSWERS = 6
"""Words of the firmware's answer."""


class QueueStatus(enum.IntFlag):
    """Bits of a queue's ``status``. QUIET: stopped, and none of its jobs is in a tile. ABORTING: the host has asked for
    an abort that has not been dealt with."""

    STOPPED = 1
    QUIET = 2
    ABORTING = 4


class QueueCommand(enum.IntFlag):
    """Bits of a queue's ``command``. RESTART empties and opens it, ABORT ends its running jobs."""

    RESTART = 1
    ABORT = 2


class Request(enum.IntEnum):
    """What the host asks of the firmware. Memory that MARCH went over is zero behind it."""

    SKIP = 1       # no self-test at power-on; where it runs, it ends
    TELEMETRY = 2  # of a tile: cycles since reset, low and high; jobs; faults; cycles in jobs, low and high
    MARCH = 3      # march over argument1 (1 or more) beats of a tile's memory from beat argument0 on, then its address
                   # lines; the result lies in the selftest registers


class SelfTest(enum.IntEnum):
    """How a self-test went."""

    RUNNING = 0
    PASSED = 1
    FAILED = 2
    SKIPPED = 3
    INCOMPLETE = 4  # time ran out; what was tested is well


class Test(enum.IntEnum):
    """What a self-test tests."""

    MEMORY = 1   # data: a march over some beats of each port
    ADDRESS = 2  # address lines
    ARRAY = 3    # every element of the array
    RING = 4


class Access(enum.Enum):
    RO = "read-only"
    RW = "read-write"
    WO = "write-only; reads as 0"
    W1C = "read; writing 1 clears"


@dataclass(frozen=True)
class Register:
    name: str
    address: int
    access: Access
    doc: str
    bits: int = 32


CONTROL = (
    Register("id", 0x000, Access.RO, "0x4D4C4E52: the letters RNLM"),
    Register("version", 0x004, Access.RO, "version of this register map"),
    Register("tiles", 0x008, Access.RO, "tiles of the device"),
    Register("array", 0x00C, Access.RO, "rows in bits 31:16, columns in bits 15:0"),
    Register("doorbell", 0x010, Access.WO, "bit t: start the job that tile t's job registers name; without firmware",
             16),
    Register("abort", 0x014, Access.WO, "bit t: abort the job of tile t; its engines drain first", 16),
    Register("busy", 0x018, Access.RO, "bit t: tile t runs a job", 16),
    Register("irq_status", 0x01C, Access.W1C, "bit t: a job of tile t has ended; with firmware, bit q: one of queue q",
             16),
    Register("irq_enable", 0x020, Access.RW, "irq_status bits that raise the interrupt", 16),
    Register("snapshot", 0x024, Access.WO, "bit t: latch tile t's counters for reading", 16),
    Register("cycle_low", 0x028, Access.RO, "device cycles since reset"),
    Register("cycle_high", 0x02C, Access.RO, "its upper half"),
)

MAILBOX = (
    Register("request", 0x000, Access.RW, "a Request in bits 7:0, a tile in bits 15:8; writing hands it over"),
    Register("argument0", 0x004, Access.RW, "of the request; to be written before it"),
    Register("argument1", 0x008, Access.RW, "of the request; to be written before it"),
    Register("pending", 0x00C, Access.RO, "1: the request is not answered yet", 1),
    *(Register(f"answer{i}", 0x010 + 4 * i, Access.RO, "of the last request that has one") for i in range(ANSWERS)),
    Register("selftest", 0x040, Access.RO, "the last self-test: SelfTest in bits 7:0; where it failed, the Test in "
                                           "15:8 and the tile in 23:16"),
    Register("selftest_element", 0x044, Access.RO, "array: row in bits 15:0, column in bits 31:16; 65535: unknown"),
    Register("selftest_address_low", 0x048, Access.RO, "address of the first wrong bytes"),
    Register("selftest_address_high", 0x04C, Access.RO, "its upper half"),
    Register("selftest_expected", 0x050, Access.RO, "the word that should have been there"),
    Register("selftest_found", 0x054, Access.RO, "the word that was there"),
    Register("selftest_end", 0x058, Access.RO, "device cycle in which it ended"),
)

QUEUE = (
    Register("ring_low", 0x000, Access.RW, "address of the ring of descriptors, aligned to 64 bytes"),
    Register("ring_high", 0x004, Access.RW, "its upper half"),
    Register("ring_size", 0x008, Access.RW, "descriptors the ring holds, a power of two; 0: the queue is closed", 16),
    Register("tail", 0x00C, Access.RW, "descriptors written since the restart, modulo 65536; writing is the doorbell",
             16),
    Register("head", 0x010, Access.RO, "descriptors started since the restart, modulo 65536", 16),
    Register("window_base_low", 0x014, Access.RW, "first byte the queue's jobs may touch"),
    Register("window_base_high", 0x018, Access.RW, "its upper half"),
    Register("window_limit_low", 0x01C, Access.RW, "first byte behind the window; reset: nothing may be touched"),
    Register("window_limit_high", 0x020, Access.RW, "its upper half"),
    Register("policy", 0x024, Access.RW, "bits 7:0 priority, the greater goes first; bits 31:16 tiles that may run it"),
    Register("command", 0x028, Access.WO, "bit 0 restart: empty and open again; bit 1: abort its running jobs", 2),
    Register("status", 0x02C, Access.RO, "bit 0: stopped by a job that did not end well, its Status in bits 15:8, "
                                         "Code in 23:16, tile in 31:24; bit 1: and none of its jobs is in a tile; "
                                         "bit 2: an abort has been asked for and not dealt with"),
    Register("fault_command", 0x030, Access.RO, "index of the command at fault"),
    Register("fault_address_low", 0x034, Access.RO, "memory or block address at fault"),
    Register("fault_address_high", 0x038, Access.RO, "its upper half"),
    Register("jobs", 0x03C, Access.RO, "jobs ended since reset, whatever their status"),
    Register("faults", 0x040, Access.RO, "those that did not end well"),
)

TILE = (
    Register("job_low", 0x000, Access.RW, "address of the job's descriptor, aligned to 64 bytes; with firmware "
                                          "this and the window are the queue's"),
    Register("job_high", 0x004, Access.RW, "its upper half"),
    Register("window_base_low", 0x008, Access.RW, "first byte the tile's commands may touch"),
    Register("window_base_high", 0x00C, Access.RW, "its upper half"),
    Register("window_limit_low", 0x010, Access.RW, "first byte behind the window; reset: the whole memory"),
    Register("window_limit_high", 0x014, Access.RW, "its upper half"),
    Register("status", 0x018, Access.RO, "bit 0 busy, bit 1 stopping; bits 15:8 Status and 23:16 Code of the last job"),
    Register("load_state", 0x01C, Access.RO, "engine state: bits 1:0 state (idle, waiting, running, faulted), "
                                             "12:8 the semaphore it waits for, 31:16 command index"),
    Register("matmul_state", 0x020, Access.RO, "as load_state"),
    Register("store_state", 0x024, Access.RO, "as load_state"),
    Register("fetched", 0x028, Access.RO, "commands the job has fetched and dispatched"),
    Register("fault_command", 0x02C, Access.RO, "command at fault of the last job"),
    Register("fault_address_low", 0x030, Access.RO, "address at fault of the last job"),
    Register("fault_address_high", 0x034, Access.RO, "its upper half"),
    Register("slots", 0x038, Access.RO, "with firmware: bits 1:0 ended jobs not acknowledged, bit 8 the last of them "
                                        "did not end well, bit 9 the second slot is full, bit 10 nothing starts"),
    Register("slot_command", 0x03C, Access.WO, "with firmware: bits 1:0 acknowledge so many ended jobs, bit 8 resume, "
                                               "bit 9 cancel the second slot's job, bit 10 start nothing", 11),
    Register("channel_select", 0x040, Access.RW, "bits 15:8: a DRAM channel; bits 4:0: one of its counters"),
    Register("channel_value_low", 0x044, Access.RO, "the counter that channel_select names"),
    Register("channel_value_high", 0x048, Access.RO, "its upper half"),
    Register("ring_state", 0x04C, Access.RO, "as load_state; 0 where the device has one tile"),
    *(Register(f"semaphore{i}", 0x080 + 4 * i, Access.RO, f"value of semaphore {i}", 16) for i in range(SEMAPHORES)),
    *(Register(f"counter_{c.name.replace('.', '_')}_{half}", 0x200 + 8 * i + 4 * j, Access.RO,
               f"{c.name}, {c.unit}, as latched by snapshot" if j == 0 else "its upper half")
      for i, c in enumerate(COUNTERS) for j, half in enumerate(("low", "high"))),
)

_CONTROL = {r.name: r for r in CONTROL}
_MAILBOX = {r.name: r for r in MAILBOX}
_QUEUE = {r.name: r for r in QUEUE}
_TILE = {r.name: r for r in TILE}


def control_register(name: str) -> int:
    """Byte address of a register of the ``control`` block."""
    return _CONTROL[name].address


def mailbox_register(name: str) -> int:
    """Byte address of a register of the mailbox."""
    return MAILBOX_BASE + _MAILBOX[name].address


def queue_register(queue: int, name: str) -> int:
    """Byte address of a register of queue ``queue``."""
    return QUEUE_BASE + queue * QUEUE_STRIDE + _QUEUE[name].address


def tile_register(tile: int, name: str) -> int:
    """Byte address of a register of tile ``tile``."""
    return TILE_BASE + tile * TILE_STRIDE + _TILE[name].address
