"""The MATMUL engine: command intake, the two sequencers, faults."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import MATMUL_EVENTS, EnginePort
from ..isa import MATMUL
from .accumulators import update_layout
from .check import MatmulCheck
from .sequencers import ActivationSequencer, WeightSequencer, activation_read_layout, weight_read_layout

__all__ = ["MatmulEngine"]


class MatmulEngine(wiring.Component):
    """Turns MATMUL commands into reads of operands and updates of accumulators, without gaps between commands.

    The weight sequencer runs one tile ahead of the activation sequencer, across commands too: a command is accepted
    when the weights of the one before it have been read and its rows of A have begun. Its rules are checked at the
    same time as its first weights are read. A bad command is never begun: it stays, and the engine accepts no more.

    Latency: first row of A read ``max(load_cycles, 4) + 1`` cycles after a command is accepted by an idle engine.
    Throughput: one row of A a cycle, a weight tile at most every ``load_cycles`` cycles.

    Members
    -------
    port : In
        Commands and their end.
    weights, activations, update : Out
        What is read in this cycle, and where the row's sums go.
    ended : In
        The closing edge of this cycle writes the last sum of a command.
    events : Out
        For the counters.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "port": In(EnginePort(MATMUL)),
            "weights": Out(weight_read_layout(config)),
            "activations": Out(activation_read_layout(config)),
            "update": Out(update_layout(config.tile)),
            "ended": In(1),
            "events": Out(MATMUL_EVENTS),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.weight_sequencer = weights = WeightSequencer(config=self.config)
        m.submodules.activation_sequencer = activations = ActivationSequencer(config=self.config)
        m.submodules.check = check = MatmulCheck(config=self.config)
        port = self.port

        following = Signal(MATMUL.layout, reset_less=True)  # the command accepted last
        waits = Signal()   # the activation sequencer does not have it yet
        accept = Signal()
        m.d.comb += [
            activations.start.eq(waits & activations.idle),
            port.commands.ready.eq(~check.open & weights.idle & (~waits | activations.idle)),
            accept.eq(port.commands.valid & port.commands.ready),
            weights.start.eq(accept), weights.command.eq(port.commands.payload),
            check.start.eq(accept), check.command.eq(following),
            activations.command.eq(following), activations.hold.eq(check.open & ~waits),
            activations.ready.eq(weights.ready), weights.take.eq(activations.take),
            self.weights.eq(weights.read), self.activations.eq(activations.read), self.update.eq(activations.update),
        ]
        with m.If(accept):
            m.d.sync += [following.eq(port.commands.payload), waits.eq(1)]
        with m.Elif(activations.start):
            m.d.sync += waits.eq(0)

        # Commands in the engine: one waits, one runs, and each row on its way through the array may end one.
        array = self.config.tile.array
        inside = Signal(range(array.rows + array.columns + 8))
        m.d.sync += inside.eq(inside + accept - self.ended)
        m.d.comb += [
            port.done.eq(self.ended),
            port.busy.eq(inside != 0),
            port.quiet.eq(1),
            port.fault.eq(check.fault),
            port.fault_valid.eq(check.bad & (inside == 1)),
            self.events.active.eq(activations.read.valid),
            self.events.idle_weight.eq(activations.waiting),
            self.events.filling.eq(port.busy),
        ]
        return m
