"""A pipeline of layers: consecutive layers on consecutive tiles, a batch of rows sent through in micro-batches."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.compiler import SLOTS, Batch, Buffer, Gemm, Stage, StageLayer, Stream, compile_stage, cost
from ringloom.numerics.reference import as_array

from .buffers import ALIGNMENT, DeviceArray, PreparedWeights, real_dtype
from .errors import ShapeError, UnsupportedError
from .groups import GroupJob, Part, check_group, launch
from .operands import Product, make_product
from .queue import Job

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Pipeline"]

_REFUSED = ("out", "parallel", "tiles", "transpose_a", "transpose_b")


class _Layer:
    """One layer on its tile: weights, column records and zero points lie in the tile's own memory."""

    def __init__(self, device: "Device", number: int, tile: int, weights: Any, options: Mapping[str, Any],
                 last: bool) -> None:
        self.number, self.tile = number, tile
        self.kind = "qmatmul" if "y_scale" in options or "y_zero_point" in options else "matmul"
        if self.kind == "matmul" and not last:
            raise UnsupportedError(f"layer {number}: has no y_scale=, so its result is int32; only the last one may "
                                   "give that")
        for name in _REFUSED:
            if name in options:
                raise UnsupportedError(f"layer {number}: {name}= is not for a layer of a pipeline")
        if np.size(options.get("a_zero_point", 0)) != 1:
            raise UnsupportedError(f"layer {number}: a_zero_point: one for all rows, in a pipeline")
        self.options = dict(options)
        self.device = device
        if not isinstance(weights, PreparedWeights):
            zero = self.options.get("b_zero_point")
            weights = device.prepare(weights, zero_point=0 if zero is None else zero, tiles=(tile,))
        if weights.ndim != 2:
            raise ShapeError(f"layer {number}: weights of shape {weights.shape}; a layer's are (K, N)")
        held = weights.on(tile)
        self.weights = weights
        self.packed = held if held.tile == tile else device.put(np.asarray(held), tile=tile)
        self.k, self.n = weights.shape
        self.input_dtype: Any = None  # of the last product
        self._placed: list[tuple[Buffer, DeviceArray]] = []

    def product(self, rows: int, dtype: Any) -> Product:
        """The layer on ``rows`` rows, checked."""
        shape_only = np.broadcast_to(np.zeros((), dtype), (rows, self.k))
        try:
            product = make_product(self.kind, shape_only, self.weights, self.options, self.device.config)
        except (ShapeError, UnsupportedError) as error:
            raise type(error)(f"layer {self.number}: {error}") from None
        if dtype != self.input_dtype:
            self.input_dtype = dtype
            self._placed = [(buffer, self.device.put(array, tile=self.tile)) for buffer, array in
                            ((Buffer.PARAMETERS, product.records), (Buffer.ZERO_POINTS, product.table))
                            if array is not None]
        return product

    @property
    def places(self) -> dict[Buffer, DeviceArray]:
        """What of the layer stays in memory."""
        return {Buffer.B: self.packed, **dict(self._placed)}


class Pipeline:
    """Consecutive layers on consecutive tiles, several on each where there are more; made by :meth:`Device.pipeline`.

    Calling it, ``pipeline(x)``, gives exactly what the layers give one after the other. Rows go through in
    micro-batches: a tile stores its results in the next one's memory and tells it so, which tells it back when it has
    taken them; two micro-batches have room there.
    """

    def __init__(self, device: "Device", layers: Sequence[Any], tiles: Any = None,
                 micro_batch: int | None = None) -> None:
        device._check_open()
        if isinstance(layers, PreparedWeights) or not isinstance(layers, Sequence):
            raise UnsupportedError(f"pipeline: layers must be a list of (weights, options), not "
                                   f"{type(layers).__name__}")
        pairs = [self._pair(i, layer) for i, layer in enumerate(layers)]
        group = check_group(tiles, device.config)
        if not pairs:
            raise ShapeError("pipeline: no layers")
        if micro_batch is not None and (not isinstance(micro_batch, int | np.integer) or micro_batch < 1):
            raise UnsupportedError(f"micro_batch = {micro_batch!r}: must be a number of rows, 1 or more, or None")
        self.device = device
        self.micro_batch = micro_batch
        shares = _shares([np.size(weights) if isinstance(weights, np.ndarray) else math.prod(weights.shape)
                          for weights, _ in pairs], len(group))
        self.tiles = group[:len(shares)]
        self._layers = [_Layer(device, i, tile, *pairs[i], i == len(pairs) - 1)
                        for tile, share in zip(self.tiles, shares, strict=True) for i in share]
        self._stages = [[self._layers[i] for i in share] for share in shares]
        for before, layer in zip(self._layers, self._layers[1:], strict=False):
            if before.n != layer.k:
                raise ShapeError(f"layer {layer.number}: weights of shape {(layer.k, layer.n)}, but layer "
                                 f"{before.number} gives {before.n} columns")
        self._streams: dict[tuple, list[Stream]] = {}

    @staticmethod
    def _pair(number: int, layer: Any) -> tuple[Any, Mapping[str, Any]]:
        if isinstance(layer, Sequence) and len(layer) == 2 and isinstance(layer[1], Mapping):
            weights = layer[0] if isinstance(layer[0], PreparedWeights) else real_dtype(layer[0], f"layer {number}")
            return weights, layer[1]
        raise UnsupportedError(f"layer {number}: must be (weights, options), the options those of qmatmul, such as "
                               '(w, {"a_scale": 0.1, "a_zero_point": 0, "y_scale": 0.2, "y_zero_point": np.int8(0)})')

    def __call__(self, x: Any) -> "np.ndarray | DeviceArray":
        """The result of the last layer: numpy for a numpy ``x``, else a :class:`DeviceArray` on the last tile."""
        return self.submit(x).result()

    def submit(self, x: Any) -> Job:
        """Queue ``x`` (..., K), int8 or uint8, and return at once."""
        device, first, last = self.device, self._layers[0], self._layers[-1]
        device._check_open()
        if not isinstance(x, DeviceArray):
            x = real_dtype(as_array(x, "x"), "x")
        elif x.device is not device:
            raise UnsupportedError("x: lives on another device; copy it with dev.put(np.asarray(x))")
        if not x.shape or x.shape[-1] != first.k:
            raise ShapeError(f"x: shape {x.shape}; layer 0 takes (..., {first.k})")
        rows = math.prod(x.shape[:-1])
        products = self._products(max(1, rows), x.dtype)
        shape = (*x.shape[:-1], last.n)
        as_numpy = not isinstance(x, DeviceArray)
        result = device.empty(shape, products[-1].dtype, tile=self.tiles[-1])
        job = GroupJob(device, device._next_number(), "pipeline", rows * sum(layer.k * layer.n for layer in
                                                                            self._layers),
                       [result], as_numpy=as_numpy,
                       gather=lambda outputs: np.array(outputs[0]) if as_numpy else outputs[0])
        if not rows:
            job._finish(None)
            return job
        size = self._micro_batch(rows, products)
        source = device.put(x, tile=self.tiles[0]) if as_numpy else x
        return launch(device, job, self._parts(rows, size, products, source, result))

    def _products(self, rows: int, dtype: Any) -> list[Product]:
        products: list[Product] = []
        for layer in self._layers:
            products.append(layer.product(rows, dtype))
            dtype = products[-1].dtype
        return products

    def _micro_batch(self, rows: int, products: list[Product]) -> int:
        """Rows of a micro-batch: those given, else those with the fewest cycles by the layers' plans."""
        if self.micro_batch is not None:
            return min(rows, int(self.micro_batch))

        def cycles(size: int) -> float:
            each = [cost(_gemm(product, [0], size, [0]), self.device.config).cycles for product in products]
            stages = [sum(each[layer.number] for layer in stage) for stage in self._stages]
            return max(stages) * (math.ceil(rows / size) - 1) + sum(stages)

        return min({math.ceil(rows / parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)}, key=cycles)

    def _parts(self, rows: int, size: int, products: list[Product], source: DeviceArray,
               result: DeviceArray) -> dict[int, Part]:
        # the last micro-batch ends with the last row, whatever it has in common with the one before
        starts = [min(i * size, rows - size) for i in range(math.ceil(rows / size))]
        slots = [i % SLOTS * size for i in range(len(starts))]
        key = (rows, size, *(product.gemm for product in products))
        streams = self._streams.get(key)
        if streams is None:
            streams = [self._compile(i, products, starts, slots, size) for i in range(len(self._stages))]
            self._streams = {key: streams}
        parts = {}
        for i, (tile, stage, stream) in enumerate(zip(self.tiles, self._stages, streams, strict=True)):
            bases, between = self._bases(stage), self._between(stage, size)
            part = parts[tile] = Part(stream, {**bases, Buffer.A: source.address}, [source])
            part.holds.extend(held for layer in stage for held in layer.places.values())
            if between[-1]:
                part.holds.append(self.device.empty(between[-1], np.uint8, tile=tile))
                part.addresses[Buffer.BETWEEN] = part.holds[-1].address
            if i == len(self._stages) - 1:
                part.addresses[Buffer.C] = result.address
            else:
                dtype = products[stage[-1].number].dtype
                source = self.device.empty((SLOTS * size, stage[-1].n), dtype, tile=self.tiles[i + 1])
                part.addresses[Buffer.C] = source.address
                part.holds.append(source)
        return parts

    def _compile(self, number: int, products: list[Product], starts: list[int], slots: list[int],
                 size: int) -> Stream:
        """The stream of stage ``number``."""
        stage = self._stages[number]
        first, last = number == 0, number == len(self._stages) - 1
        bases, between, layers = self._bases(stage), self._between(stage, size), []
        none = [0] * len(starts)
        for i, layer in enumerate(stage):
            places = {buffer: (buffer, held.address - bases[buffer]) for buffer, held in layer.places.items()}
            if i > 0:
                places[Buffer.A] = (Buffer.BETWEEN, between[i - 1])
            if i < len(stage) - 1:
                places[Buffer.C] = (Buffer.BETWEEN, between[i])
            came = none if i else starts if first else slots
            goes = none if i < len(stage) - 1 else starts if last else slots
            layers.append(StageLayer(_gemm(products[layer.number], came, size, goes), places))
        return compile_stage(layers, self.device.config, Stage(
            self.tiles, None if first else self.tiles[number - 1], None if last else self.tiles[number + 1]))

    @staticmethod
    def _bases(stage: list[_Layer]) -> dict[Buffer, int]:
        """The lowest address of each kind of buffer that the layers of a stage have."""
        held = [item for layer in stage for item in layer.places.items()]
        return {buffer: min(array.address for other, array in held if other == buffer) for buffer, _ in held}

    @staticmethod
    def _between(stage: list[_Layer], size: int) -> list[int]:
        """Where in BETWEEN the results of each layer but the last begin, and its bytes."""
        ends = [0]
        for layer in stage[:-1]:
            ends.append(ends[-1] + -(-size * layer.n // ALIGNMENT) * ALIGNMENT)
        return ends


def _shares(weights: list[int], tiles: int) -> list[range]:
    """Layers of each tile, consecutive ones, so that the heaviest tile has as little as can be."""
    count = len(weights)
    if count <= tiles:
        return [range(i, i + 1) for i in range(count)]
    # best[i]: the least weight of the heaviest tile with the first i layers on the tiles so far, and its cuts
    best: list[tuple[int, list[int]]] = [(sum(weights[:i]), [i]) for i in range(count + 1)]
    for _ in range(tiles - 1):
        best = [min((max(best[j][0], sum(weights[j:i])), [*best[j][1], i]) for j in range(i + 1))
                for i in range(count + 1)]
    cuts = sorted(set(best[count][1]) - {0})
    return [range(first, last) for first, last in zip([0, *cuts], cuts, strict=False)]


def _gemm(product: Product, a_starts: list[int], size: int, c_starts: list[int]) -> Gemm:
    """``product`` on micro-batches of ``size`` rows that begin at the rows ``a_starts`` and go to ``c_starts``."""
    gemm = product.gemm
    assert gemm is not None
    zero = gemm.batches[0].a_zero_points[0][1]
    batches = tuple(Batch(a * gemm.k, 0, c * gemm.n * gemm.out_bytes, 0, ((size, zero),), version)
                    for version, (a, c) in enumerate(zip(a_starts, c_starts, strict=True)))
    return dataclasses.replace(gemm, m=size, batches=batches)
