"""The tensor engine: operand memories, feed, array, accumulators, and the MATMUL engine that drives them."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import DeviceConfig
from ..control.engine import MATMUL_EVENTS, EnginePort
from ..isa import MATMUL, Target
from ..memory.blocks import BlockWrite, block_shapes
from ..memory.scratchpad import Scratchpad
from .accumulators import Accumulators
from .array import SystolicArray
from .feed import OperandFeed
from .matmul import MatmulEngine
from .ports import AccumulatorRead, ParameterRead

__all__ = ["TensorEngine"]


class TensorEngine(wiring.Component):
    """Everything of a tile between LOAD's write bus and STORE's reads.

    Latency: a row of A enters the array 2 cycles after it is read; a command is done ``rows + columns + 1`` cycles
    after its last row was read.

    Members
    -------
    port : In
        MATMUL commands.
    load : In
        LOAD's writes, to any target.
    accumulator, parameters : In
        STORE's reads.
    events : Out
        For the counters.
    """

    def __init__(self, *, config: DeviceConfig) -> None:
        self.config = config
        super().__init__({
            "port": In(EnginePort(MATMUL)),
            "load": In(BlockWrite(config)),
            "accumulator": In(AccumulatorRead(config)),
            "parameters": In(ParameterRead(config)),
            "events": Out(MATMUL_EVENTS),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        config, tile = self.config, self.config.tile
        rows, columns = tile.array.rows, tile.array.columns
        shapes = block_shapes(config)

        reads = {Target.ACTIVATION: 1, Target.WEIGHT: tile.array.load_rows, Target.PARAMETER: tile.lanes,
                 Target.ZERO_POINT: 1}
        pads = {}
        for target, count in reads.items():
            pads[target] = pad = Scratchpad(shape=shapes[target], reads=count)
            m.submodules[target.name.lower()] = pad
            m.d.comb += [
                pad.write_enable.eq(self.load.valid & (self.load.target == target)),
                pad.write_address.eq(self.load.address), pad.write_pitch.eq(self.load.pitch),
                pad.write_count.eq(self.load.count), pad.write_data.eq(self.load.data),
            ]
        activation, weight, zero_point, parameter = (pads[target] for target in (
            Target.ACTIVATION, Target.WEIGHT, Target.ZERO_POINT, Target.PARAMETER))

        m.submodules.matmul = matmul = MatmulEngine(config=config)
        m.submodules.feed = feed = OperandFeed(config=config)
        m.submodules.array = array = SystolicArray(config=tile.array)
        # A row enters the array 2 cycles after its read; its sum is at ``sums[0]`` ``rows`` cycles later.
        m.submodules.accumulators = accumulators = Accumulators(config=config, delay=rows + 1)

        wiring.connect(m, wiring.flipped(self.port), matmul.port)
        m.d.comb += [
            self.events.eq(matmul.events),
            activation.read_enable.eq(matmul.activations.valid),
            activation.read_address.eq(matmul.activations.address),
            weight.read_enable.eq(matmul.weights.load.any()),
            weight.read_address.eq(matmul.weights.address),
            weight.read_pitch.eq(matmul.weights.pitch),
            zero_point.read_enable.eq(matmul.weights.load.any() & matmul.weights.table),
            zero_point.read_address.eq(matmul.weights.zero_point_address),

            feed.activation_read.eq(matmul.activations), feed.activation_block.eq(activation.read_data[0]),
            feed.weight_read.eq(matmul.weights), feed.weight_blocks.eq(weight.read_data.as_value()),
            feed.zero_point_block.eq(zero_point.read_data[0]),

            array.plane.eq(feed.plane), array.load.eq(feed.load), array.load_plane.eq(feed.load_plane),
            [array.activations[r].eq(feed.activations[r]) for r in range(rows)],
            [array.weights[c][lane].eq(feed.weights[c][lane])
             for c in range(columns) for lane in range(tile.array.load_rows)],

            accumulators.update.eq(matmul.update), matmul.ended.eq(accumulators.ended),
            [accumulators.sums[c].eq(array.sums[c]) for c in range(columns)],
            accumulators.write_enable.eq(self.load.valid & (self.load.target == Target.ACCUMULATOR)),
            accumulators.write_address.eq(self.load.address), accumulators.write_data.eq(self.load.data),

            parameter.read_enable.eq(self.parameters.enable), parameter.read_address.eq(self.parameters.address),
            parameter.read_pitch.eq(1), self.parameters.data.as_value().eq(parameter.read_data.as_value()),
        ]
        wiring.connect(m, wiring.flipped(self.accumulator), accumulators.read)
        return m
