"""The registers of the device and of each tile, made from the tables in ``hw/regmap.py``."""

from collections.abc import Callable, Mapping, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..counters import CHANNEL_INDEX_BITS, COUNTER_BITS, COUNTERS
from ..isa import SEMAPHORES
from ..regmap import (
    ADDRESS_BITS,
    CONTROL,
    MAGIC,
    MAILBOX_ADDRESS_BITS,
    MAILBOX_BASE,
    QUEUE_BASE,
    QUEUES_ADDRESS_BITS,
    REGMAP_VERSION,
    TILE,
    TILE_BASE,
    TILE_STRIDE,
    Access,
    Register,
)
from .axi_lite import AxiResponse, RegisterBus
from .command_processor import ENGINES, TileControl

__all__ = ["ControlRegisters", "TileRegisters", "TILE_ADDRESS_BITS", "REACH", "register_table"]

REACH = 2
"""Cycles from an address to the answer of a tile's registers, where there is more than one tile."""

TILE_ADDRESS_BITS = TILE_STRIDE.bit_length() - 1


def register_table(m: Module, bus, table: Sequence[Register], shown: Callable[[str], ValueLike],
           reset: Mapping[str, int] | None = None) -> dict[str, Value]:
    """Answer ``bus`` from ``table``.

    shown: what a read of a RO or W1C register gives, by name. WO reads as 0, RW as what was written.
    Returns, by name, the register itself (RW) or the ones written to it in this cycle (WO, W1C).
    An address without a register is answered DECERR, a write to a RO register SLVERR and changes nothing.
    """
    written: dict[str, Value] = {}
    mask = Cat(bit.replicate(8) for bit in bus.strobe)
    reads: dict[int, tuple[Value, list[int]]] = {}  # registers that show the same value share a case
    for register in table:
        value: Value
        if register.access is Access.RW:
            value = Signal(register.bits, name=register.name, init=(reset or {}).get(register.name, 0))
            with m.If(bus.write & (bus.write_address == register.address)):
                m.d.sync += value.eq((value & ~mask) | (bus.write_data & mask))
            written[register.name] = value
        elif register.access is Access.WO:
            value = Value.cast(0)
        else:
            value = Value.cast(shown(register.name))
        if register.access in (Access.WO, Access.W1C):
            hit = bus.write & (bus.write_address == register.address)
            written[register.name] = Mux(hit, bus.write_data & mask, 0)[:register.bits]
        reads.setdefault(id(value), (value, []))[1].append(register.address)
    with m.Switch(bus.read_address):
        for value, addresses in reads.values():
            with m.Case(*addresses):
                m.d.comb += [bus.read_data.eq(value), bus.read_response.eq(AxiResponse.OKAY)]
        with m.Default():
            m.d.comb += bus.read_response.eq(AxiResponse.DECERR)
    with m.Switch(bus.write_address):
        with m.Case(*(r.address for r in table if r.access is not Access.RO)):
            m.d.comb += bus.write_response.eq(AxiResponse.OKAY)
        with m.Case(*(r.address for r in table if r.access is Access.RO)):
            m.d.comb += bus.write_response.eq(AxiResponse.SLVERR)
        with m.Default():
            m.d.comb += bus.write_response.eq(AxiResponse.DECERR)
    return written


class ControlRegisters(wiring.Component):
    """The ``control`` block: identity, doorbells, aborts, interrupts, the cycle counter; passes tile blocks on.

    Every answer comes in the cycle of the access, those of tiles :data:`REACH` cycles later where there are several.
    A doorbell or abort reaches its tile in the cycle of the write;
    a doorbell of a busy tile is dropped, which ``busy`` tells. An ended job sets ``irq_status`` though the same
    cycle clears it. ``cycle_high`` shows the upper half as it was when ``cycle_low`` was last read.

    Parameters
    ----------
    config : DeviceConfig
        The device.

    Members
    -------
    bus : In(RegisterBus(...)), tiles : Out(RegisterBus(...)), one a tile
    queues, mailbox : Out(RegisterBus(...))
        The registers of the queues and of the mailbox, with firmware alone.
    start, abort, snapshot : Out(tiles), busy : In(tiles)
    ended : In(tiles), or In(queues) with firmware
        Sets ``irq_status``.
    cycle : Out(64)
        Cycles since reset.
    irq : Out(1)
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        tiles = config.tiles
        firmware = config.control.kind == "firmware"
        self.sources = config.control.queues if firmware else tiles
        super().__init__({
            **({"queues": Out(RegisterBus(address_bits=QUEUES_ADDRESS_BITS)),
                "mailbox": Out(RegisterBus(address_bits=MAILBOX_ADDRESS_BITS))} if firmware else {}),
            "bus": In(RegisterBus(address_bits=ADDRESS_BITS)),
            "tiles": Out(RegisterBus(address_bits=TILE_ADDRESS_BITS)).array(tiles),
            "start": Out(tiles), "abort": Out(tiles), "snapshot": Out(tiles),
            "busy": In(tiles), "ended": In(self.sources),
            "cycle": Out(64),
            "irq": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bus, array = self.bus, self.config.tile.array
        irq_status = Signal(self.sources)
        cycle_high = Signal(32)
        m.d.sync += self.cycle.eq(self.cycle + 1)
        written = register_table(m, bus, CONTROL, {
            "id": MAGIC, "version": REGMAP_VERSION, "tiles": self.config.tiles,
            "array": array.rows << 16 | array.columns, "busy": self.busy, "irq_status": irq_status,
            "cycle_low": self.cycle[:32], "cycle_high": cycle_high,
        }.__getitem__)
        low = next(r.address for r in CONTROL if r.name == "cycle_low")
        with m.If(bus.read & (bus.read_address == low)):
            m.d.sync += cycle_high.eq(self.cycle[32:])
        m.d.comb += [
            self.start.eq(written["doorbell"]),
            self.abort.eq(written["abort"]),
            self.snapshot.eq(written["snapshot"]),
            self.irq.eq((irq_status & written["irq_enable"]).any()),
        ]
        m.d.sync += irq_status.eq((irq_status & ~written["irq_status"]) | self.ended)

        blocks = [(tile, TILE_ADDRESS_BITS, TILE_BASE + t * TILE_STRIDE) for t, tile in enumerate(self.tiles)]
        if self.config.control.kind == "firmware":
            blocks += [(self.queues, QUEUES_ADDRESS_BITS, QUEUE_BASE),
                       (self.mailbox, MAILBOX_ADDRESS_BITS, MAILBOX_BASE)]
        for tile, low, base in blocks:
            reads = bus.read_address[low:] == base >> low
            writes = bus.write_address[low:] == base >> low
            m.d.comb += [
                tile.read.eq(bus.read & reads),
                tile.read_address.eq(bus.read_address),
                tile.write.eq(bus.write & bus.write_ready & writes),
                tile.write_address.eq(bus.write_address),
                tile.write_data.eq(bus.write_data),
                tile.strobe.eq(bus.strobe),
            ]
            with m.If(reads):
                m.d.comb += [bus.read_data.eq(tile.read_data), bus.read_response.eq(tile.read_response)]
            with m.If(writes):
                m.d.comb += bus.write_response.eq(tile.write_response)
        if self.config.tiles > 1:
            for way in ("read", "write"):
                self._reach(m, way)
        return m

    def _reach(self, m: Module, way: str) -> None:
        """Accesses of tiles wait until address and answer have passed the tile's border."""
        active, address = getattr(self.bus, way), getattr(self.bus, f"{way}_address")
        ready = Signal(name=f"{way}_reached")
        waited = Signal(range(REACH + 1), name=f"{way}_waited")
        m.d.comb += [
            ready.eq((address < TILE_BASE) | (waited == REACH)),
            getattr(self.bus, f"{way}_ready").eq(ready),
        ]
        m.d.sync += waited.eq(Mux(active & ~ready, waited + 1, 0))


class TileRegisters(wiring.Component):
    """The block of one tile: job and windows, status, semaphores, latched counters. Answers in the cycle of the access.

    A counter's ``_high`` belongs to the same snapshot as its ``_low``.

    Parameters
    ----------
    config : DeviceConfig
        The device; the window's reset value is its whole memory.

    Members
    -------
    bus : In(RegisterBus(...))
    control : Out(TileControl())
        ``start``, ``abort`` and ``cycle`` are copied from the members of the same name.
    start, abort : In(1), cycle : In(64)
    slots : In(32), slot_command : Out(11)
        The registers of these names.
    counter_index : Out, counter_value : In(48)
        A port to read the latched counters.
    channel, channel_index : Out, channel_value : In(48)
        A port to read the counters of a DRAM channel.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "bus": In(RegisterBus(address_bits=TILE_ADDRESS_BITS)),
            "control": Out(TileControl()),
            "start": In(1), "abort": In(1), "cycle": In(64),
            "slots": In(32), "slot_command": Out(11),
            "counter_index": Out(range(len(COUNTERS))),
            "counter_value": In(COUNTER_BITS),
            "channel": Out(8), "channel_index": Out(CHANNEL_INDEX_BITS), "channel_value": In(COUNTER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        bus, control = self.bus, self.control
        addresses = {r.name: r.address for r in TILE}
        counters = [f"counter_{c.name.replace('.', '_')}" for c in COUNTERS]
        first_semaphore, first_counter = addresses["semaphore0"], addresses[f"{counters[0]}_low"]
        # The tables lie where an index is a slice of the address.
        assert all(addresses[f"semaphore{i}"] == first_semaphore + 4 * i for i in range(SEMAPHORES))
        assert all(addresses[f"{name}_low"] == first_counter + 8 * i for i, name in enumerate(counters))
        assert first_semaphore % (4 * SEMAPHORES) == 0 and first_counter & (8 * len(COUNTERS) - 1) == 0

        counter_low, counter_high = self.counter_value[:32], self.counter_value[32:]
        status = Cat(control.busy, control.stopping, Const(0, 6), control.status, control.code)

        def shown(name: str) -> ValueLike:
            if name.startswith("semaphore"):
                return control.semaphore_value
            if name.startswith("counter_"):
                return counter_low if name.endswith("_low") else counter_high
            return {"status": status, "fetched": control.fetched,
                    "fault_command": control.fault_command,
                    "fault_address_low": control.fault_address[:32], "fault_address_high": control.fault_address[32:],
                    "slots": self.slots,
                    "channel_value_low": self.channel_value[:32], "channel_value_high": self.channel_value[32:],
                    **{f"{engine}_state": control.states[e] for e, engine in enumerate((*ENGINES, "ring"))}}[name]

        size = self.config.tiles * self.config.memory.bytes
        written = register_table(m, bus, TILE, shown,
                                 {"window_limit_low": size & 0xFFFFFFFF, "window_limit_high": size >> 32})
        m.d.comb += [
            control.semaphore_index.eq(bus.read_address[2:]),
            self.counter_index.eq(bus.read_address[3:]),
            self.channel.eq(written["channel_select"][8:16]), self.channel_index.eq(written["channel_select"]),
            control.start.eq(self.start),
            control.abort.eq(self.abort),
            control.cycle.eq(self.cycle),
            self.slot_command.eq(written["slot_command"]),
        ]
        for name in ("job", "window_base", "window_limit"):
            m.d.comb += getattr(control, name).eq(Cat(written[f"{name}_low"], written[f"{name}_high"]))
        return m
