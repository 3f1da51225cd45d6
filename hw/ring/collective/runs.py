"""Runs: what a lane does with a number of successive flits."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from .schedule import SLOT_BITS, block_bytes, block_flits

__all__ = ["RunQueue", "flits_shape", "read_run", "sum_run", "receive_run", "send_run", "result_run"]

_AHEAD = 20  # runs of a queue: what the reorder buffer and the queues behind it may hold in blocks of 512 bytes


def flits_shape(config: DeviceConfig):
    return range(block_flits(config) + 1)


def _bytes(config: DeviceConfig):
    return range(block_bytes(config) + 1)


def read_run(config: DeviceConfig) -> data.StructLayout:
    """Bytes of the local vector; ends: for sums that end here, else for what is sent."""
    return data.StructLayout({"address": config.address_bits, "bytes": _bytes(config), "ends": 1, "slot": SLOT_BITS})


def sum_run(config: DeviceConfig) -> data.StructLayout:
    """Sums to make: of what is received, of what is read, or of both. end: no flit, but a command's end."""
    return data.StructLayout({"flits": flits_shape(config), "receive": 1, "read": 1, "end": 1, "slot": SLOT_BITS})


def receive_run(config: DeviceConfig) -> data.StructLayout:
    """Which of the sums the next flits received belong to."""
    return data.StructLayout({"flits": flits_shape(config), "ends": 1, "slot": SLOT_BITS})


def send_run(config: DeviceConfig) -> data.StructLayout:
    """Which results go out next: those received, or this tile's own."""
    return data.StructLayout({"flits": flits_shape(config), "receive": 1, "end": 1, "slot": SLOT_BITS})


def result_run(config: DeviceConfig) -> data.StructLayout:
    """Results of one source: whether they go out, and are written."""
    return data.StructLayout({"flits": flits_shape(config), "send": 1, "write": 1, "end": 1, "slot": SLOT_BITS,
                              "address": config.address_bits, "bytes": _bytes(config)})


class RunQueue(wiring.Component):
    """Runs, and how far the first of them is. The deeper, the further a vector is read ahead.

    Latency 1 cycle, throughput one flit a cycle.

    A run with ``end`` takes one step.

    Parameters
    ----------
    layout : StructLayout with ``flits``

    Members
    -------
    i : In(stream of runs)
    valid, run : Out, the first run; stays until its last step
    moved : Out, its flits that are done
    step : In, one more is
    """

    def __init__(self, *, layout: data.StructLayout) -> None:
        super().__init__({
            "i": In(stream.Signature(layout)),
            "valid": Out(1),
            "run": Out(layout),
            "moved": Out(layout["flits"].shape),
            "step": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFO(width=self.run.shape().size, depth=_AHEAD)
        last = Signal()
        m.d.comb += [
            queue.w_en.eq(self.i.valid), queue.w_data.eq(self.i.payload), self.i.ready.eq(queue.w_rdy),
            self.valid.eq(queue.r_rdy), self.run.eq(queue.r_data),
            last.eq(self.moved + 1 >= self.run.flits),
            queue.r_en.eq(self.step & last),
        ]
        with m.If(self.step):
            with m.If(last):
                m.d.sync += self.moved.eq(0)
            with m.Else():
                m.d.sync += self.moved.eq(self.moved + 1)
        return m
