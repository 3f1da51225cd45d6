"""The host's window on device memory: an AXI4 slave in front of a memory port."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import BEAT_BYTES, DeviceConfig
from ..control.axi_lite import AxiResponse
from ..shaped import ShapedIntEnum
from .port import BEAT_BITS, BEAT_SHIFT, LEAF_TAG_BITS, STROBE_BITS, MemoryPort

__all__ = ["Axi", "AxiWindow", "AXI_ADDRESS_BITS", "AXI_ID_BITS"]

AXI_ADDRESS_BITS = 40
"""More than any memory needs, so that an address behind memory can be told from one in it."""
AXI_ID_BITS = 4

_READ_SLOTS = 32
_WRITE_TAG = _READ_SLOTS
_WRAP_BITS = 8 + BEAT_SHIFT  # a burst has at most 256 beats of 32 bytes


class _Burst(ShapedIntEnum, shape=2):
    FIXED = 0
    INCR = 1
    WRAP = 2
    RESERVED = 3


class Axi(wiring.Signature):
    """An AXI4 interface with 256 bits of data, as the slave sees it. Members carry the standard names."""

    def __init__(self, *, address_bits: int = AXI_ADDRESS_BITS, id_bits: int = AXI_ID_BITS) -> None:
        def address(p):
            return {f"{p}id": In(id_bits), f"{p}addr": In(address_bits), f"{p}len": In(8), f"{p}size": In(3),
                    f"{p}burst": In(2), f"{p}valid": In(1), f"{p}ready": Out(1)}
        super().__init__({
            **address("aw"),
            "wdata": In(BEAT_BITS), "wstrb": In(STROBE_BITS), "wlast": In(1), "wvalid": In(1), "wready": Out(1),
            "bid": Out(id_bits), "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
            **address("ar"),
            "rid": Out(id_bits), "rdata": Out(BEAT_BITS), "rresp": Out(2), "rlast": Out(1), "rvalid": Out(1),
            "rready": In(1),
        })


class AxiWindow(wiring.Component):
    """Reads and writes device memory for an AXI4 master: one memory beat for each beat of a burst.

    FIXED, INCR and WRAP bursts, narrow and unaligned ones; strobes alone decide what is written. Reads: up to 32
    beats in flight, answered in the order of their addresses whatever their IDs, one beat a cycle, one cycle between
    bursts. Writes: one burst at a time, its response when memory has acknowledged every beat.
    A beat outside memory is answered DECERR and goes nowhere; a burst that AXI4 does not have (a size over 32
    bytes, a reserved type, a WRAP of another length than 2, 4, 8 or 16) SLVERR in every beat; a memory error SLVERR.

    Parameters
    ----------
    config : DeviceConfig
        The device; its memory lies at address 0.
    id_bits : int
        Bits of an ID.

    Members
    -------
    axi : Out(Axi(...)), as the slave drives it
    memory : Out(MemoryPort(...))
    """

    def __init__(self, *, config: DeviceConfig, id_bits: int = AXI_ID_BITS) -> None:
        self.config, self.id_bits = config, id_bits
        super().__init__({
            "axi": Out(Axi(id_bits=id_bits)),
            "memory": Out(MemoryPort(address_bits=config.address_bits, tag_bits=LEAF_TAG_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        axi, requests, writes = self.axi, self.memory.requests, self.memory.write_data
        read, write = self._burst(m, "ar"), self._burst(m, "aw")

        # -- one register of requests for both; where both want it, they take turns --------------------------
        free, read_wants, write_wants, read_goes, write_goes, turn = (
            Signal(name=n) for n in ("free", "read_wants", "write_wants", "read_goes", "write_goes", "turn"))
        m.d.comb += [
            free.eq(~requests.valid | requests.ready),
            write_wants.eq(write.active & (write.response == AxiResponse.OKAY) & axi.wvalid
                           & (~writes.valid | writes.ready)),
            read_goes.eq(free & read_wants & ~(write_wants & turn)),
            write_goes.eq(free & write_wants & ~read_goes),
        ]
        with m.If(free):
            m.d.sync += requests.valid.eq(read_goes | write_goes)
        with m.If(writes.ready):
            m.d.sync += writes.valid.eq(0)
        with m.If(read_goes):
            m.d.sync += turn.eq(1)
        with m.If(write_goes):
            m.d.sync += [turn.eq(0), writes.valid.eq(1), writes.payload.data.eq(axi.wdata),
                         writes.payload.strobe.eq(axi.wstrb)]

        # -- writes ---------------------------------------------------------------------------------------------
        response = self.memory.responses
        outstanding, failed, ended = Signal(9), Signal(AxiResponse), Signal()
        acknowledged = response.valid & response.payload.write
        m.d.comb += [
            response.ready.eq(1),
            axi.wready.eq(write_goes | (write.active & (write.response != AxiResponse.OKAY))),
            write.step.eq(axi.wvalid & axi.wready),
            write.open.eq(~write.active & ~ended),
        ]
        m.d.sync += outstanding.eq(outstanding + write_goes - acknowledged)
        with m.If(write.step & (write.response > failed)):
            m.d.sync += failed.eq(write.response)
        with m.If(acknowledged & response.payload.error & (failed == AxiResponse.OKAY)):
            m.d.sync += failed.eq(AxiResponse.SLVERR)
        with m.If(write.step & (write.left == 0)):
            m.d.sync += ended.eq(1)
        with m.If(ended & (outstanding == 0) & ~axi.bvalid):
            m.d.sync += [axi.bvalid.eq(1), axi.bresp.eq(failed), axi.bid.eq(write.id)]
        with m.If(axi.bvalid & axi.bready):
            m.d.sync += [axi.bvalid.eq(0), ended.eq(0), failed.eq(AxiResponse.OKAY)]

        # -- reads: beats come back to the slot in their tag, and leave in order --------------------------------
        first, last = Signal(range(_READ_SLOTS)), Signal(range(_READ_SLOTS))
        level = Signal(range(_READ_SLOTS + 1))
        arrived, broken = Signal(_READ_SLOTS), Signal(_READ_SLOTS)
        beat = data.StructLayout({"id": self.id_bits, "last": 1, "response": AxiResponse})
        m.submodules.beats = beats = Memory(shape=beat, depth=_READ_SLOTS, init=[])
        m.submodules.bytes = stored = Memory(shape=BEAT_BITS, depth=_READ_SLOTS, init=[])
        beat_in, beat_out = beats.write_port(), beats.read_port(domain="comb")
        data_in, data_out = stored.write_port(), stored.read_port(domain="comb")
        room, nowhere, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            room.eq(level != _READ_SLOTS),
            read_wants.eq(read.active & room & (read.response == AxiResponse.OKAY)),
            nowhere.eq(read.active & room & (read.response != AxiResponse.OKAY)),
            read.step.eq(read_goes | nowhere),
            read.open.eq(~read.active),
            beat_in.en.eq(read.step), beat_in.addr.eq(last),
            beat_in.data.id.eq(read.id), beat_in.data.last.eq(read.left == 0),
            beat_in.data.response.eq(read.response),
            data_in.en.eq(response.valid & ~response.payload.write), data_in.addr.eq(response.payload.tag),
            data_in.data.eq(response.payload.data),
            beat_out.addr.eq(first), data_out.addr.eq(first),
            axi.rvalid.eq(arrived.bit_select(first, 1)),
            axi.rdata.eq(data_out.data), axi.rid.eq(beat_out.data.id), axi.rlast.eq(beat_out.data.last),
            axi.rresp.eq(Mux(broken.bit_select(first, 1), AxiResponse.SLVERR, beat_out.data.response)),
            taken.eq(axi.rvalid & axi.rready),
        ]
        m.d.sync += level.eq(level + read.step - taken)
        with m.If(read.step):
            m.d.sync += last.eq(last + 1)
        with m.If(taken):
            m.d.sync += [first.eq(first + 1), arrived.bit_select(first, 1).eq(0), broken.bit_select(first, 1).eq(0)]
        with m.If(nowhere):
            m.d.sync += arrived.bit_select(last, 1).eq(1)
        with m.If(data_in.en):
            m.d.sync += [arrived.bit_select(data_in.addr, 1).eq(1),
                         broken.bit_select(data_in.addr, 1).eq(response.payload.error)]

        with m.If(read_goes | write_goes):
            m.d.sync += [
                requests.payload.write.eq(write_goes),
                requests.payload.address.eq(Mux(write_goes, write.address, read.address) & ~(BEAT_BYTES - 1)),
                requests.payload.tag.eq(Mux(write_goes, _WRITE_TAG, last)),
            ]
        return m

    def _burst(self, m: Module, prefix: str) -> "_Walk":
        """Accept bursts on an address channel while ``open``; walk a beat on with ``step``."""
        axi = self.axi
        channel = {n: getattr(axi, prefix + n) for n in ("id", "addr", "len", "size", "burst", "valid", "ready")}
        walk = _Walk(prefix, self.id_bits)
        kind, size, wrap, legal = (Signal(_Burst, name=f"{prefix}_kind"), Signal(3, name=f"{prefix}_size"),
                                   Signal(_WRAP_BITS, name=f"{prefix}_wrap"), Signal(name=f"{prefix}_legal"))
        bytes, following = Signal(BEAT_SHIFT + 1, name=f"{prefix}_bytes"), Signal.like(walk.address)
        m.d.comb += [
            channel["ready"].eq(walk.open),
            bytes.eq(1 << size),
            following.eq((walk.address & ~(bytes - 1)) + bytes),
        ]
        with m.If(~legal):
            m.d.comb += walk.response.eq(AxiResponse.SLVERR)
        with m.Elif(walk.address >= self.config.tiles * self.config.memory.bytes):
            m.d.comb += walk.response.eq(AxiResponse.DECERR)
        with m.If(channel["valid"] & channel["ready"]):
            length = channel["len"]
            wraps = Cat(length == n - 1 for n in (2, 4, 8, 16)).any()
            m.d.sync += [
                walk.active.eq(1), walk.id.eq(channel["id"]), walk.address.eq(channel["addr"]),
                walk.left.eq(length), size.eq(channel["size"]), kind.eq(channel["burst"]),
                wrap.eq(((length + 1) << channel["size"]) - 1),
                legal.eq((channel["size"] <= BEAT_SHIFT) & (channel["burst"] != _Burst.RESERVED)
                         & ((channel["burst"] != _Burst.WRAP) | wraps)),
            ]
        with m.If(walk.step):
            m.d.sync += [walk.left.eq(walk.left - 1), walk.active.eq(walk.left != 0)]
            with m.If(kind == _Burst.INCR):
                m.d.sync += walk.address.eq(following)
            with m.If(kind == _Burst.WRAP):
                m.d.sync += walk.address[:_WRAP_BITS].eq((walk.address & ~wrap) | (following & wrap))
        return walk


class _Walk:
    """A burst under way: ``address`` of the beat that comes next, ``left`` beats behind it, its ``response``."""

    def __init__(self, prefix: str, id_bits: int) -> None:
        self.active = Signal(name=f"{prefix}_active")
        self.open = Signal(name=f"{prefix}_open")
        self.step = Signal(name=f"{prefix}_step")
        self.id = Signal(id_bits, name=f"{prefix}_id")
        self.address = Signal(AXI_ADDRESS_BITS, name=f"{prefix}_address")
        self.left = Signal(8, name=f"{prefix}_left")
        self.response = Signal(AxiResponse, name=f"{prefix}_response")
