"""A tile's border: control wires and the register bus, behind registers."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from .axi_lite import RegisterBus
from .registers import TILE_ADDRESS_BITS

__all__ = ["ControlBorder", "TileBorder"]


class TileBorder(wiring.Signature):
    """What registers, doorbells and firmware tell a tile and hear of it, as the tile sees it.

    start, abort, snapshot : In(1), busy, ended : Out(1), cycle : In(64)
        As ``ControlRegisters`` has them.
    reported, full : Out(1)
        With firmware: jobs have ended that it has not acknowledged; the second job slot is taken.
    job, window_base, window_limit : In(64)
        With firmware: what ``start`` starts, in place of the registers.
    """

    def __init__(self) -> None:
        super().__init__({
            "bus": In(RegisterBus(address_bits=TILE_ADDRESS_BITS)),
            "start": In(1), "abort": In(1), "snapshot": In(1), "cycle": In(64),
            "job": In(64), "window_base": In(64), "window_limit": In(64),
            "busy": Out(1), "ended": Out(1), "reported": Out(1), "full": Out(1),
        })


class ControlBorder(wiring.Component):
    """One register on every wire, both ways, so that no path through a tile's border is combinational.

    Reads of a tile's registers have no effect, so that the address alone passes; the access ends
    :data:`.registers.REACH` cycles behind it, which ``ControlRegisters`` counts. All wires are a cycle late in the same
    way, the cycle counter too: stamps are those of the outside.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    outer : TileBorder(), as the tile's
    inner : TileBorder(), what the tile is inside
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._firmware = config.control.kind == "firmware"
        super().__init__({"outer": Out(TileBorder()), "inner": In(TileBorder())})

    def elaborate(self, platform) -> Module:
        m = Module()
        inner, outer = self.inner, self.outer
        pulses = ["start", "abort", "snapshot", "cycle"]
        jobs = ["job", "window_base", "window_limit"] if self._firmware else []
        for name in (*pulses, *jobs):
            m.d.sync += getattr(inner, name).eq(getattr(outer, name))
        for name in ("busy", "ended", *(("reported", "full") if self._firmware else ())):
            m.d.sync += getattr(outer, name).eq(getattr(inner, name))
        bus, own = outer.bus, inner.bus
        m.d.sync += own.write.eq(bus.write)
        for name in ("write_address", "write_data", "strobe", "read_address"):
            m.d.sync += getattr(own, name).eq(getattr(bus, name))
        for name in ("read_data", "read_response", "write_response"):
            m.d.sync += getattr(bus, name).eq(getattr(own, name))
        return m
