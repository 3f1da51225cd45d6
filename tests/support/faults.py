"""A device with one stuck bit, chosen while it runs: in the array, at memory's ports; or for good: on a link."""

import ctypes
from contextlib import contextmanager
from unittest import mock

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from ringloom.hw import shell, tile
from ringloom.hw.device import Device
from ringloom.hw.export import TOP, to_verilog
from ringloom.hw.memory.ideal import IdealMemory
from ringloom.hw.ring.flit import NUMBER_BITS, Direction, Network
from ringloom.hw.ring.link import LinkStages
from ringloom.hw.tensor import engine
from ringloom.hw.tensor.array import SystolicArray
from ringloom.sim.amaranth_sim import PythonSimulator
from ringloom.sim.verilated import VerilatedSimulator
from ringloom.sim.verilated.binding import _state

KINDS = {"product": 18, "activation": 9, "weight0": 9, "weight1": 9, "sum": None, "data": 256, "address": None}
"""Where a bit may be stuck, and how many bits there are; ``weightN`` in plane N, data and address at every port."""
LAYOUT = data.StructLayout({"kind": 3, "value": 1, "row": 6, "column": 6, "bit": 9})
QUIET = {"kind": 7, "value": 0, "row": 0, "column": 0, "bit": 0}


def one_hot(m, fault, bits=32):
    """The fault's bit as a mask."""
    mask = Signal(bits)
    m.d.comb += mask.eq(Cat(fault.bit == bit for bit in range(bits)))
    return mask


def stuck(fault, mask, kind, value, here=True):
    """``value`` with the fault's bit stuck, where the fault is of ``kind`` and ``here``."""
    shape = value.shape()
    hit = Mux(here & (fault.kind == list(KINDS).index(kind)), mask[:shape.width], 0)
    changed = Mux(fault.value, value | hit, value & ~hit)[:shape.width]
    return changed.as_signed() if shape.signed else changed


@contextmanager
def faulty(fault):
    """Devices elaborated inside have the bit stuck that the signal ``fault`` names."""
    class FaultyArray(SystolicArray):
        def __init__(self, *, config):
            super().__init__(config=config)
            self.mask = Signal(32)

        def elaborate(self, platform):
            m = super().elaborate(platform)
            m.d.comb += self.mask.eq(one_hot(m, fault))
            return m

        def _element(self, place, plane, above, activation, weight):
            here = (fault.row == place[0]) & (fault.column == place[1])
            for number in range(2):
                weight = stuck(fault, self.mask, f"weight{number}", weight, here & (plane == number))
            product = stuck(fault, self.mask, "activation", activation, here) * weight
            total = above + stuck(fault, self.mask, "product", product, here)
            return stuck(fault, self.mask, "sum", total, here)

    class FaultyMemory(wiring.Component):
        def __init__(self, *, config):
            self.config = config
            self.inner = IdealMemory(config=config)
            super().__init__(self.inner.signature)

        def elaborate(self, platform):
            m = Module()
            m.submodules.inner = inner = self.inner
            mask = one_hot(m, fault, 256)
            for outside, inside, storage, own in zip(self.ports, inner.ports, self.storage, inner.storage, strict=True):
                wiring.connect(m, wiring.flipped(outside), inside)
                m.d.comb += [
                    *(getattr(storage, name).eq(getattr(own, name))
                      for name in ("enable", "write", "write_data", "strobe")),
                    storage.address.eq(stuck(fault, mask, "address", own.address)),
                    own.read_data.eq(stuck(fault, mask, "data", storage.read_data)),
                ]
            return m

    with mock.patch.object(engine, "SystolicArray", FaultyArray), mock.patch.object(tile, "IdealMemory", FaultyMemory):
        yield


class FaultyDevice(Device):
    """``Device`` with one more input, ``fault``."""

    def __init__(self, *, config):
        super().__init__(config=config)
        self.fault = Signal(LAYOUT, init=QUIET)

    @property
    def signature(self):
        return wiring.Signature({**super().signature.members, "fault": In(LAYOUT, init=QUIET)})


class PythonFaults(PythonSimulator):
    def __init__(self, config):
        device = FaultyDevice(config=config)
        self._fault = device.fault
        with faulty(device.fault):
            super().__init__(config, lambda text: None, device=device)

    def break_bit(self, **fault):
        self._ctx.set(self._fault, QUIET | fault)


class VerilatedFaults(VerilatedSimulator):
    def __init__(self, config):
        device = FaultyDevice(config=config)
        with faulty(device.fault):
            text = to_verilog(device, TOP)
        super().__init__(config, lambda text: None, verilog=text)
        self.break_bit()

    def break_bit(self, **fault):
        address, size = _state(self._library, self._device)[0, "fault"]
        ctypes.memmove(address, LAYOUT.const(QUIET | fault).as_value().value.to_bytes(size, "little"), size)


class BrokenLink(PythonSimulator):
    """A link of the ring, from a stop onward in ``direction``, that changes or loses flits of collectives.

    bit, value: the data wire that is stuck, and at what; None: no flit comes through.
    """

    def __init__(self, config, stop, direction, bit=None, value=0):
        links = []

        class FaultyLink(LinkStages):
            def elaborate(self, platform):
                m = super().elaborate(platform)
                if self is links[len(Direction) * stop + direction]:
                    with m.If((self.i.network == Network.REDUCE) | (self.i.network == Network.BROADCAST)):
                        m.d.comb += (self.o.valid if bit is None else self.o.flit.body[NUMBER_BITS + bit]).eq(value)
                return m

        def link(**options):
            links.append(FaultyLink(**options))
            return links[-1]

        with mock.patch.object(shell, "LinkStages", link):
            super().__init__(config, lambda text: None)
