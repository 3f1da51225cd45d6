"""The register map: aligned, unique, inside its blocks, and large enough for every counter and semaphore."""

import pytest

from ringloom.hw import regmap
from ringloom.hw.config import DeviceConfig
from ringloom.hw.counters import CAUSES, COUNTER_BITS, COUNTERS
from ringloom.hw.isa import SEMAPHORES
from ringloom.hw.regmap import CONTROL, TILE, Access


@pytest.mark.parametrize("block, size", [(CONTROL, regmap.TILE_BASE), (TILE, regmap.TILE_STRIDE)])
def test_addresses(block, size):
    addresses = [r.address for r in block]
    assert len(set(addresses)) == len(addresses) and len({r.name for r in block}) == len(block)
    assert all(a % 4 == 0 and 0 <= a < size for a in addresses)
    assert all(1 <= r.bits <= 32 and r.doc and r.name.isidentifier() for r in block)


def test_sixteen_tiles_fit():
    assert regmap.tile_register(15, TILE[-1].name) < 1 << regmap.ADDRESS_BITS
    assert regmap.tile_register(0, TILE[0].name) > max(r.address for r in CONTROL)
    assert regmap.control_register("doorbell") == 0x10


def test_pairs_are_neighbours():
    """Every ``_low`` has its ``_high`` four bytes on, with the same access."""
    for block in (CONTROL, TILE):
        registers = {r.name: r for r in block}
        for name, register in registers.items():
            if name.endswith("_low"):
                high = registers[name[:-4] + "_high"]
                assert (high.address, high.access) == (register.address + 4, register.access)


def test_every_counter_and_semaphore_has_registers():
    names = {r.name for r in TILE}
    assert {f"counter_{c.name.replace('.', '_')}_{half}" for c in COUNTERS for half in ("low", "high")} <= names
    assert {f"semaphore{i}" for i in range(SEMAPHORES)} <= names
    assert 32 < COUNTER_BITS <= 64 and set(CAUSES) <= {c.name for c in COUNTERS}


def test_window_opens_on_every_memory():
    """A device's memory can be named by the 64-bit window registers and its tiles by the 16 bits of the doorbell."""
    assert DeviceConfig().address_bits < 64
    doorbell = next(r for r in CONTROL if r.name == "doorbell")
    assert doorbell.bits == 16 and doorbell.access is Access.WO
