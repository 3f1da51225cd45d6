"""Products on several tiles at once: rows of A, columns of B, or K split over a group, and the choice between them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.compiler import (
    Broadcast,
    Buffer,
    Conversion,
    Cut,
    Gemm,
    Layout,
    Place,
    Reduction,
    Stream,
    bounds,
    cost,
    cuts,
    matrices,
    restrict,
)
from ringloom.hw.config import BEAT_BYTES
from ringloom.hw.isa import COLUMN, Rounding

from .buffers import ALIGNMENT, DeviceArray, PreparedWeights
from .errors import ShapeError, UnsupportedError
from .groups import GroupJob, Part, check_group, launch
from .operands import Product, make_product
from .queue import Job

if TYPE_CHECKING:
    from .device import Device

__all__ = ["MODES", "check_mode", "submit", "submit_each"]

MODES = ("data", "tensor-n", "tensor-k")
_START_CYCLES = 100     # of a collective, before its first byte and behind its last
_REMOTE_CYCLES = 60     # what a remote access takes longer than one to the tile's own memory


def check_mode(kind: str, mode: Any) -> str:
    """The mode that ``parallel=`` names. Raises :class:`UnsupportedError`."""
    if mode is None:
        return "auto"
    if mode not in (*MODES, "auto"):
        raise UnsupportedError(f"{kind}: parallel = {mode!r}: must be one of {', '.join(MODES)}, auto")
    return mode


def submit(device: "Device", job_name: str, product: Product, output: DeviceArray | None, group: tuple[int, ...],
           mode: str) -> Job:
    """Queue ``product`` on ``group``. output: where the result goes; None: to the host, from wherever it lies."""
    assert product.gemm is not None
    call = _Call(device, product, output, group)
    if mode == "auto":
        mode = min((*MODES, "single"), key=call.estimate)
    return call.submit(job_name, mode)


def submit_each(device: "Device", kind: str, arrays: Any, b: Any, options: dict[str, Any], tiles: Any) -> Job:
    """Queue one product a tile, all at once: ``arrays[i]`` by ``b``, or by ``b[i]`` where ``b`` is a list."""
    if isinstance(arrays, DeviceArray) or not isinstance(arrays, Sequence):
        raise UnsupportedError(f"each: a must be a list of one array a tile, not {type(arrays).__name__}")
    if tiles is None:
        tiles = [x.tile if isinstance(x, DeviceArray) else i for i, x in enumerate(arrays)]
    group = check_group(tiles, device.config)
    others = list(b) if isinstance(b, list | tuple) else [b] * len(arrays)
    if not len(arrays) == len(others) == len(group):
        raise ShapeError(f"each: {len(arrays)} a and {len(others)} b for the {len(group)} tiles {list(group)}; it "
                         "takes one of each a tile")
    built, outputs, macs = {}, [], 0
    for tile, a, other in zip(group, arrays, others, strict=True):
        product = make_product(kind, a, other, options, device.config)
        outputs.append(device.empty(product.shape, product.dtype, tile=tile))
        if product.gemm is not None:
            call = _Call(device, product, outputs[-1], (tile,))
            cut, = call._cuts("single")
            built[tile] = call._part(tile, cut, device._compile(call._restrict(cut)))
            macs += product.gemm.macs
    on_host = [not isinstance(a, DeviceArray) for a in arrays]
    if any(on_host) and not all(on_host):
        raise UnsupportedError("each: some arrays are on the device and some are not; dev.put(x, tile=t) brings one "
                               "there")
    job = GroupJob(device, device._next_number(), kind, macs, outputs, as_numpy=all(on_host),
                   gather=lambda values: [np.array(v) for v in values] if all(on_host) else list(values))
    if not built:
        job._finish(None)
        return job
    return launch(device, job, built)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Call:
    """One product on one group."""

    def __init__(self, device: "Device", product: Product, output: DeviceArray | None, group: tuple[int, ...]) -> None:
        assert product.gemm is not None
        self.device, self.config = device, device.config
        self.product, self.gemm = product, product.gemm
        self.output = output
        self.group = group
        self.own_a = isinstance(product.a, np.ndarray)
        self.own_b = isinstance(product.b, np.ndarray)

    def _cuts(self, mode: str) -> list[Cut]:
        if mode == "single":
            return cuts(self.gemm, "data", 1, self.config)
        return cuts(self.gemm, mode, len(self.group), self.config)

    def _restrict(self, cut: Cut, gemm: Gemm | None = None, *, own_c: bool | None = None, c_stride: int = 0) -> Gemm:
        return restrict(gemm or self.gemm, cut, self.config, own_a=self.own_a, own_b=self.own_b,
                        own_c=self.output is None if own_c is None else own_c, c_stride=c_stride)

    # -- the choice -------------------------------------------------------------------------------------

    def estimate(self, mode: str) -> float:
        """Cycles that the product is expected to take, by the plans of its largest parts and the bytes on the ring."""
        parts = self._cuts(mode)
        tiles = self.group[:len(parts)]
        shapes = {(c.rows, c.depth, c.columns, c.batches[1] - c.batches[0]): c for c in parts}
        if mode == "tensor-k" and len(parts) > 1:
            raw = self._partial()
            compute = max(cost(self._restrict(cut, raw, own_c=True), self.config).cycles for cut in shapes.values())
            remote = self._remote(parts, tiles, set())
            return max(compute, remote) + self._reduction_cycles(len(parts))
        compute = max(cost(self._restrict(cut), self.config).cycles for cut in shapes.values())
        spread = self._spread(parts, tiles)
        sent = sum(_START_CYCLES + self._operand(b).nbytes / (self.config.ring.data_bits // 8) for b in spread)
        return max(compute, self._remote(parts, tiles, set(spread))) + sent

    def _partial(self) -> Gemm:
        return dataclasses.replace(self.gemm, rounding=Rounding.RAW, bias=False, clamp_low=0, clamp_high=0)

    def _reduction_cycles(self, tiles: int) -> float:
        gemm = self.gemm
        rows, row = gemm.m * len(gemm.batches), _padded(4 * gemm.n)
        sent = rows * row * (tiles - 1) / tiles / (self.config.ring.data_bits // 8)
        moved = 0.0
        if self.output is not None or gemm.rounding != Rounding.RAW:
            width = self.config.tile.array.columns
            moved = (math.ceil(rows / tiles) * math.ceil(gemm.n / width)
                     * max(math.ceil(width / self.config.tile.lanes), 4 * width / self.config.peak_bytes_per_cycle))
        return 2 * _START_CYCLES + sent * (1 if rows >= tiles else 2) + moved

    def _operand(self, buffer: Buffer) -> "DeviceArray | PreparedWeights":
        held = self.product.a if buffer == Buffer.A else self.product.b
        assert not isinstance(held, np.ndarray)
        return held

    def _source(self, buffer: Buffer, tile: int) -> DeviceArray | None:
        """The array that ``tile`` reads an operand from; None where it gets a copy of what it needs."""
        held = self.product.a if buffer == Buffer.A else self.product.b
        if isinstance(held, np.ndarray):
            return None
        return held.on(tile) if isinstance(held, PreparedWeights) else held

    def _traffic(self, parts: list[Cut], tiles: Sequence[int], buffer: Buffer) -> int:
        """Bytes of an operand that tiles read from the memory of others."""
        total = 0
        for tile, cut in zip(tiles, parts, strict=True):
            source = self._source(buffer, tile)
            if source is not None and source.tile != tile:
                figures = cost(self._restrict(cut), self.config)
                total += figures.a_bytes if buffer == Buffer.A else figures.b_bytes
        return total

    def _remote(self, parts: list[Cut], tiles: Sequence[int], spread: set[Buffer]) -> float:
        """Cycles for which the links of the tile that others read from, or write to, are busy."""
        traffic = sum(self._traffic(parts, tiles, b) for b in (Buffer.A, Buffer.B) if b not in spread)
        cycles = traffic / min(2 * BEAT_BYTES, self.config.peak_bytes_per_cycle) + (_REMOTE_CYCLES if traffic else 0)
        if self.output is not None:
            rows = sum(cut.rows * cut.columns * (cut.batches[1] - cut.batches[0])
                       for tile, cut in zip(tiles, parts, strict=True) if tile != self.output.tile)
            cycles = max(cycles, rows * self.gemm.out_bytes / (2 * BEAT_BYTES))
        return cycles

    def _spread(self, parts: list[Cut], tiles: Sequence[int]) -> list[Buffer]:
        """Operands to send round first: all tiles need all of it, and reading it from afar takes longer."""
        chosen = []
        for buffer in (Buffer.A, Buffer.B):
            sources = {source.tile for tile in tiles if (source := self._source(buffer, tile)) is not None}
            if len(sources) != 1 or len(tiles) < 2 or not sources <= set(tiles):
                continue
            whole = all((c.m if buffer == Buffer.A else c.n) == ((0, self.gemm.m) if buffer == Buffer.A
                        else (0, self.gemm.n)) and c.k == (0, self.gemm.k) and c.batches == parts[0].batches
                        for c in parts)
            sent = _START_CYCLES + self._operand(buffer).nbytes / (self.config.ring.data_bits // 8)
            compute = max(cost(self._restrict(cut), self.config).cycles for cut in parts[:1])
            apart = self._traffic(parts, tiles, buffer) / min(2 * BEAT_BYTES, self.config.peak_bytes_per_cycle)
            if whole and compute + sent < max(compute, apart):
                chosen.append(buffer)
        return chosen

    # -- the work ---------------------------------------------------------------------------------------

    def submit(self, name: str, mode: str) -> Job:
        parts = self._cuts(mode)
        tiles = self.group[:len(parts)]
        if mode == "tensor-k" and len(parts) > 1:
            return self._submit_sums(name, parts, tiles)
        spread = self._spread(parts, tiles)
        broadcasts = tuple(Broadcast(b, self._sources_tile(b, tiles), _padded(self._operand(b).nbytes))
                           for b in spread)
        built, outputs = {}, []
        for tile, cut in zip(tiles, parts, strict=True):
            gemm = self._restrict(cut)
            part = self._part(tile, cut, self.device._compile(gemm, tiles if broadcasts else (), broadcasts))
            if self.output is None:
                count = cut.batches[1] - cut.batches[0]
                outputs.append(self.device.empty((count, cut.rows, cut.columns), self.product.dtype, tile=tile))
                part.addresses[Buffer.C] = outputs[-1].address
            for broadcast in broadcasts:
                self._receive(part, tile, broadcast)
            built[tile] = part

        def gather(views: list[np.ndarray]) -> np.ndarray:
            whole = np.empty((len(self.gemm.batches), self.gemm.m, self.gemm.n), self.product.dtype)
            for cut, view in zip(parts, views, strict=True):
                whole[slice(*cut.batches), slice(*cut.m), slice(*cut.n)] = view
            return whole.reshape(self.product.shape)

        return self._launch(name, built, outputs, gather)

    def _submit_sums(self, name: str, parts: list[Cut], tiles: tuple[int, ...]) -> Job:
        """K over the tiles: int32 sums of each are added up on the ring, then made results by all of them."""
        gemm, count = self.gemm, len(parts)
        raw = gemm.rounding == Rounding.RAW
        rows, row = gemm.m * len(gemm.batches), _padded(4 * gemm.n)
        scatter = rows >= count
        height = math.ceil(rows / count) if scatter else rows
        pitch = height * row if scatter else 0
        size = self.product.dtype.itemsize
        blocks = [(0, gemm.n)] * count if scatter else bounds(gemm.n, count, self.config.tile.array.columns)
        conversion = Conversion() if raw else Conversion(gemm.rounding, gemm.bias, gemm.clamp_low, gemm.clamp_high)
        convert = self.output is not None or not raw
        built, outputs, places = {}, [], []
        for i, (tile, cut) in enumerate(zip(tiles, parts, strict=True)):
            first = min(rows, i * height) if scatter else 0
            own = min(height, rows - first)
            n0, n1 = blocks[i] if i < len(blocks) else (0, 0)
            target = Place(Buffer.C, (first * gemm.n + n0) * size, gemm.n * size)
            if self.output is None:
                target = Place(Buffer.C, 0, (n1 - n0) * size)
            reduction = Reduction(height * row, pitch, own if convert else 0, n1 - n0,
                                  Place(Buffer.TOTALS, 4 * n0, row), target, conversion, n0)
            # the bias counts once, so one tile adds it where the sums are the result
            partial = dataclasses.replace(self._partial(), bias=gemm.bias and raw and i == 0)
            own_gemm = self._restrict(cut, partial, own_c=True, c_stride=row)
            part = self._part(tile, cut, self.device._compile(own_gemm, tiles, (), reduction))
            for buffer, height_of in ((Buffer.SUMS, count * height if scatter else rows), (Buffer.TOTALS, height)):
                held = self.device.empty((height_of, row // 4), np.int32, tile=tile)
                part.addresses[buffer] = held.address
                part.holds.append(held)
            if self.output is None and convert:
                held = self.device.empty((own, n1 - n0), self.product.dtype, tile=tile)
                part.addresses[Buffer.C] = held.address
            if self.output is None:
                outputs.append(held)
                places.append((slice(first, first + own), slice(n0, n1)))
            built[tile] = part

        def gather(views: list[np.ndarray]) -> np.ndarray:
            whole = np.empty((rows, gemm.n), self.product.dtype)
            for place, view in zip(places, views, strict=True):
                piece = whole[place]
                start = 0 if convert else place[1].start
                piece[...] = view[:piece.shape[0], start:start + piece.shape[1]]
            return whole.reshape(self.product.shape)

        return self._launch(name, built, outputs, gather)

    def _launch(self, name: str, built: dict[int, Part], outputs: list[DeviceArray], gather: Any) -> Job:
        output = self.output
        job = GroupJob(self.device, self.device._next_number(), name, self.gemm.macs,
                       outputs if output is None else [output], as_numpy=output is None,
                       gather=gather if output is None else lambda arrays: output)
        return launch(self.device, job, built)

    def _sources_tile(self, buffer: Buffer, tiles: Sequence[int]) -> int:
        source = self._source(buffer, tiles[0])
        assert source is not None
        return source.tile

    def _part(self, tile: int, cut: Cut, stream: Stream) -> Part:
        """What ``tile`` runs, with its operands placed; a result of its own has no place yet."""
        part = Part(stream, {}, [])
        if self.output is not None:
            part.addresses[Buffer.C] = self.output.address
        for buffer, name in ((Buffer.A, "a"), (Buffer.B, "b")):
            source = self._source(buffer, tile)
            if source is None:
                source = self._place(self._slice(name, cut), tile)
            part.holds.append(source)
            part.addresses[buffer] = source.address
        if self.product.records is not None:
            part.holds.append(self._place(self.product.records, tile))
            part.addresses[Buffer.PARAMETERS] = part.holds[-1].address + cut.n[0] * COLUMN.bytes
        if self.product.table is not None:
            part.holds.append(self._place(self.product.table, tile))
            part.addresses[Buffer.ZERO_POINTS] = part.holds[-1].address
        return part

    def _place(self, array: np.ndarray, tile: int) -> DeviceArray:
        return self.device._place(array, self.device._allocators[tile])

    def _slice(self, name: str, cut: Cut) -> np.ndarray:
        """What a part needs of an operand that comes from the host."""
        gemm = self.gemm
        array = self.product.a if name == "a" else self.product.b
        assert isinstance(array, np.ndarray)
        across = cut.m if name == "a" else cut.n
        turned = (gemm.a_layout if name == "a" else gemm.b_layout) == Layout.COLUMNS
        size = gemm.m if name == "a" else gemm.n
        first, second = ((size, across), (gemm.k, cut.k)) if (name == "a") != turned else ((gemm.k, cut.k),
                                                                                          (size, across))
        if not array.size:
            return np.empty(0, np.int8)
        whole = array.reshape(-1, first[0], second[0])
        used = matrices(gemm, name, cut.batches)
        return whole[used, slice(*first[1]), slice(*second[1])]

    def _receive(self, part: Part, tile: int, broadcast: Broadcast) -> None:
        """Where a broadcast operand comes from and goes to."""
        source = self._source(broadcast.buffer, tile)
        assert source is not None
        giver = Buffer.SOURCE_A if broadcast.buffer == Buffer.A else Buffer.SOURCE_B
        if tile != broadcast.root:
            source = self.device.empty(broadcast.size, np.uint8, tile=tile)
            part.holds.append(source)
        part.addresses[giver] = part.addresses[broadcast.buffer] = source.address
