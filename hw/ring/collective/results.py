"""The lane of results: to the neighbour, counterclockwise, and into this tile's memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import DeviceConfig
from ..flit import NUMBER_BITS, collective_body
from .ends import Received
from .runs import RunQueue, result_run, send_run
from .schedule import SLOTS, block_flits, flit_bytes
from .writer import write_run_layout

__all__ = ["ResultLane"]


class ResultLane(wiring.Component):
    """Sends and writes this tile's results and those received, each flit at once and both in the same cycle.

    Two blocks of own results may wait for its turn. Latency 1 cycle for own results, 0 for those received.

    Parameters
    ----------
    config : DeviceConfig

    Members
    -------
    runs_send, runs_own, runs_receive : In(streams of runs)
    numbers : In; oldest : In, number of the oldest command, while ``running``
    own : In(stream of data)
    received : Out(Received)
    send : Out(stream of collective_body)
    write_own, write_received : Out(stream of write_run_layout)
    ended : Out(3), a command has sent everything; written its own results; written those received
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self._config = config
        write = stream.Signature(write_run_layout(config))
        super().__init__({
            "runs_send": In(stream.Signature(send_run(config))),
            "runs_own": In(stream.Signature(result_run(config))),
            "runs_receive": In(stream.Signature(result_run(config))),
            "numbers": In(data.ArrayLayout(NUMBER_BITS, SLOTS)), "oldest": In(NUMBER_BITS), "running": In(1),
            "own": In(stream.Signature(config.ring.data_bits)),
            "received": Out(Received(config)),
            "send": Out(stream.Signature(collective_body(config))),
            "write_own": Out(write), "write_received": Out(write),
            "ended": Out(3),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        size = flit_bytes(config)
        m.submodules.sends = sends = RunQueue(layout=send_run(config))
        m.submodules.owns = owns = RunQueue(layout=result_run(config))
        m.submodules.receives = receives = RunQueue(layout=result_run(config))
        for port, queue in ((self.runs_send, sends), (self.runs_own, owns), (self.runs_receive, receives)):
            wiring.connect(m, wiring.flipped(port), queue.i)
        m.submodules.results = results = fifo.SyncFIFO(width=config.ring.data_bits, depth=2 * block_flits(config))
        received = self.received
        m.d.comb += [
            results.w_en.eq(self.own.valid), results.w_data.eq(self.own.payload), self.own.ready.eq(results.w_rdy),
            received.expect.eq(receives.valid & ~receives.run.end),
            received.known.eq(receives.valid | self.running),
            received.number.eq(Mux(receives.valid, self.numbers[receives.run.slot], self.oldest)),
        ]

        goes = []
        for name, queue, there, flit, write in (
                ("own", owns, results.r_rdy, results.r_data, self.write_own),
                ("received", receives, received.valid, received.data, self.write_received)):
            run = queue.run
            turn, shown, go = Signal(name=f"turn_{name}"), Signal(name=f"shown_{name}"), Signal(name=f"go_{name}")
            left = Signal(run.bytes.shape(), name=f"left_{name}")
            m.d.comb += [
                turn.eq(sends.valid & ~sends.run.end & (sends.run.receive == (queue is receives)) & self.send.ready),
                shown.eq(queue.valid & ~run.end & there & (~run.send | turn)),
                go.eq(shown & (~run.write | write.ready)),
                left.eq(run.bytes - (queue.moved << (size - 1).bit_length())),
                write.valid.eq(shown & run.write),
                write.p.address.eq(run.address + (queue.moved << (size - 1).bit_length())),
                write.p.data.eq(flit), write.p.slot.eq(run.slot), write.p.bytes.eq(Mux(left < size, left, size)),
                queue.step.eq(go | (queue.valid & run.end)),
            ]
            goes.append((go, go & run.send, flit))
        (own_go, own_sent, own_flit), (received_go, received_sent, received_flit) = goes
        m.d.comb += [
            results.r_en.eq(own_go), received.take.eq(received_go),
            self.send.valid.eq(own_sent | received_sent),
            self.send.p.data.eq(Mux(sends.run.receive, received_flit, own_flit)),
            self.send.p.number.eq(self.numbers[sends.run.slot]),
            sends.step.eq(own_sent | received_sent | self.ended[0]),
            # What is sent before the end has left the register when that has room again.
            self.ended[0].eq(sends.valid & sends.run.end & self.send.ready),
            self.ended[1].eq(owns.valid & owns.run.end),
            self.ended[2].eq(receives.valid & receives.run.end),
        ]
        return m
