"""The lane of sums: what comes in clockwise, plus this tile's vector, goes on or ends here."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from ..flit import NUMBER_BITS, collective_body
from .adder import FlitAdder
from .ends import Received
from .runs import RunQueue, receive_run, sum_run
from .schedule import SLOTS

__all__ = ["SumLane"]


class SumLane(wiring.Component):
    """Adds each flit as it arrives. Two sums a cycle may be ready: one that is only read and goes out, and one that
    is received and ends here; so the link is never idle while a piece ends. Latency 0; one flit a cycle and way out.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    runs_send, runs_end, runs_receive : In(streams of runs)
    numbers, saturate : In, of the commands in the slots; oldest : In, number of the oldest, while ``running``
    local_send, local_end : In(stream of data), this tile's vector
    received : Out(Received)
    send : Out(stream of collective_body)
    result : Out(stream of data)
    ended : Out, a command has sent all its sums
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        flit = stream.Signature(config.ring.data_bits)
        super().__init__({
            "runs_send": In(stream.Signature(sum_run(config))),
            "runs_end": In(stream.Signature(sum_run(config))),
            "runs_receive": In(stream.Signature(receive_run(config))),
            "numbers": In(data.ArrayLayout(NUMBER_BITS, SLOTS)), "saturate": In(SLOTS),
            "oldest": In(NUMBER_BITS), "running": In(1),
            "local_send": In(flit), "local_end": In(flit),
            "received": Out(Received(config)),
            "send": Out(stream.Signature(collective_body(config))),
            "result": Out(flit),
            "ended": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.sends = sends = RunQueue(layout=sum_run(config))
        m.submodules.ends = ends = RunQueue(layout=sum_run(config))
        m.submodules.receives = receives = RunQueue(layout=receive_run(config))
        for port, queue in ((self.runs_send, sends), (self.runs_end, ends), (self.runs_receive, receives)):
            wiring.connect(m, wiring.flipped(port), queue.i)

        # -- what is received belongs to one of the two ways out
        received, to_end = self.received, receives.run.ends
        m.submodules.adder = adder = FlitAdder(config=config)
        m.d.comb += [
            received.expect.eq(receives.valid), received.known.eq(receives.valid | self.running),
            received.number.eq(Mux(receives.valid, self.numbers[receives.run.slot], self.oldest)),
            adder.a.eq(received.data), adder.b.eq(Mux(to_end, self.local_end.payload, self.local_send.payload)),
            adder.saturate.eq(self.saturate.bit_select(receives.run.slot, 1)),
        ]
        takes = []
        for queue, local, mine, way, payload in (
                (sends, self.local_send, ~to_end, self.send, self.send.p.data),
                (ends, self.local_end, to_end, self.result, self.result.payload)):
            run, name = queue.run, "end" if queue is ends else "send"
            there, go = Signal(name=f"there_{name}"), Signal(name=f"go_{name}")
            m.d.comb += [
                there.eq(queue.valid & ~run.end & (~run.read | local.valid) & (~run.receive | (received.valid & mine))),
                way.valid.eq(there),
                payload.eq(Mux(run.receive, Mux(run.read, adder.sum, received.data), local.payload)),
                go.eq(there & way.ready),
                local.ready.eq(go & run.read),
                queue.step.eq(go | (queue.valid & run.end & way.ready)),
            ]
            takes.append(go & run.receive)
        m.d.comb += [
            received.take.eq(Cat(takes).any()), receives.step.eq(received.take),
            self.send.p.number.eq(Array(self.numbers)[sends.run.slot]),
            # What is sent before the end has left the register when that has room again.
            self.ended.eq(sends.valid & sends.run.end & self.send.ready),
        ]
        return m
