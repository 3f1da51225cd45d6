"""Collectives: arrays that lie one a tile, reduced, gathered and sent round by the tiles themselves."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.compiler import Buffer, Operation, Place, Transfers, emit, ring_operation
from ringloom.hw.isa import Collective
from ringloom.numerics.reference import as_array

from .buffers import ALIGNMENT, DeviceArray
from .errors import ShapeError, UnsupportedError
from .groups import GroupJob, Part, check_group, check_tile, launch
from .operands import refuse_unknown
from .queue import Job

if TYPE_CHECKING:
    from .device import Device

__all__ = ["OPERATIONS", "Collectives", "submit"]

_OPTIONS = {
    "all_reduce": ("op", "tiles", "saturate", "out"),
    "reduce_scatter": ("op", "tiles", "saturate"),
    "all_gather": ("tiles",),
    "broadcast": ("root", "tiles"),
    "barrier": ("tiles",),
}
OPERATIONS = tuple(_OPTIONS)


class Collectives:
    """The collectives of a device. Each takes ``tiles``, the group: neighbours in rising order.

    Where ``tiles`` is left out, arrays on the device say it themselves, and numpy arrays go to tiles 0, 1, and so on.
    A numpy array is copied into its tile's memory first; an array on the device must lie there. Results are
    :class:`DeviceArray`, one a tile, in the order of the tiles.
    """

    submit: Callable[..., Job]

    def all_reduce(self, arrays: Any, op: str = "sum", **options: Any) -> list[DeviceArray]:
        """The sum of ``arrays`` on every tile. int32 wraps; int8 saturates at each addition, in the ring's order.

        Options: tiles; saturate, which may only say what the type does; out, one array a tile, which may be
        ``arrays`` themselves.
        """
        return self.submit("all_reduce", arrays, op=op, **options).result()

    def reduce_scatter(self, arrays: Any, op: str = "sum", **options: Any) -> list[DeviceArray]:
        """Piece i of the sum on tile i of the group: ``numpy.array_split`` along the first axis. Options: tiles,
        saturate."""
        return self.submit("reduce_scatter", arrays, op=op, **options).result()

    def all_gather(self, arrays: Any, **options: Any) -> list[DeviceArray]:
        """``numpy.concatenate(arrays)`` on every tile; their first axes may differ. Options: tiles."""
        return self.submit("all_gather", arrays, **options).result()

    def broadcast(self, array: Any, root: int | None = None, **options: Any) -> list[DeviceArray]:
        """``array`` on every tile; that of ``root`` is the array itself. Options: tiles, all by default.

        root: the tile that has it; by default where it lies, or the first of the group.
        """
        return self.submit("broadcast", array, root=root, **options).result()

    def barrier(self, **options: Any) -> None:
        """No tile of the group goes on before every one of them has come. Options: tiles, all by default."""
        self.submit("barrier", **options).result()


def submit(device: "Device", kind: str, operands: Sequence[Any], options: dict[str, Any]) -> Job:
    """Queue the collective called ``kind``."""
    device._check_open()
    refuse_unknown(kind, [name for name in options if name not in _OPTIONS[kind]], _OPTIONS[kind])
    wanted = 0 if kind == "barrier" else 1
    if len(operands) != wanted:
        raise UnsupportedError(f"{kind}: takes {wanted} operand{'s' * (wanted != 1)}, not {len(operands)}")
    return _Call(device, kind, options).submit(*operands)


def _padded(size: int) -> int:
    """Bytes of a whole number of flits: what lies behind an array belongs to it up to there."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Call:
    """One collective: its group, its operations of each tile, its results."""

    def __init__(self, device: "Device", kind: str, options: dict[str, Any]) -> None:
        self.device = device
        self.kind = kind
        self.options = options
        self.parts: dict[int, Part] = {}
        self.results: list[DeviceArray] = []
        self.kept: list[DeviceArray] = []  # results that the job does not write
        self.saturate = 0

    def submit(self, operand: Any = None) -> Job:
        getattr(self, f"_{self.kind}")(operand)
        results = None if self.kind == "barrier" else self.results
        outputs = [result for result in self.results if result.tile in self.parts and result not in self.kept]
        job = GroupJob(self.device, self.device._next_number(), self.kind, 0, outputs, as_numpy=False,
                       gather=lambda outputs: results)
        if not self.parts:
            job._finish(None)
            return job
        return launch(self.device, job, self.parts)

    # -- what is asked for ------------------------------------------------------------------------------

    def _all_reduce(self, arrays: Any) -> None:
        given = self._check_list(arrays)
        self._check_sum(given[0])
        sources = self._sources(given)
        self.results = self._outputs(self.options.get("out"), sources)
        size = _padded(sources[0].nbytes)
        if not sources[0].size:
            return
        for source, result in zip(sources, self.results, strict=True):
            self._part(source, result, [self._ring(Collective.ALL_REDUCE, size)] if len(self.group) > 1
                       else self._copy(source.nbytes))

    def _reduce_scatter(self, arrays: Any) -> None:
        given = self._check_list(arrays)
        shape = given[0].shape
        if not shape:
            raise ShapeError("reduce_scatter: scalars; the first axis is what is cut over the tiles")
        cuts = self._cuts(shape[0])
        row = math.prod(shape[1:]) * given[0].dtype.itemsize
        pitch = _padded(max(high - low for low, high in cuts) * row)
        aligned = (all(low * row == i * pitch for i, (low, _) in enumerate(cuts))
                   and _padded((cuts[-1][1] - cuts[-1][0]) * row) == pitch)
        self._check_sum(given[0])
        if aligned or not isinstance(given[0], np.ndarray):
            sources = self._sources(given)
        else:  # the host puts each piece where the tiles want it
            sources = [self._pieces(array, cuts, pitch, tile) for tile, array in zip(self.group, given, strict=True)]
        self.results = [self.device.empty((high - low, *shape[1:]), given[0].dtype, tile=tile)
                        for tile, (low, high) in zip(self.group, cuts, strict=True)]
        if not pitch:
            return
        spread = not aligned and isinstance(given[0], DeviceArray)
        for source, result in zip(sources, self.results, strict=True):
            if len(self.group) == 1:
                self._part(source, result, self._copy(source.nbytes))
                continue
            transfers = Transfers([], self.device.config)
            if spread:  # the tile moves the pieces apart first
                for p, (low, high) in enumerate(cuts):
                    self._move(transfers, (Buffer.A, low * row), (Buffer.SUMS, p * pitch), (high - low) * row)
            # every piece is as long as the longest, so that the result of a shorter one does not hold it
            direct = _padded(result.nbytes) == pitch
            transfers.operations.append(self._ring(
                Collective.REDUCE_SCATTER, pitch, pitch, Buffer.SUMS if spread else Buffer.A,
                Buffer.C if direct else Buffer.TOTALS, after=transfers.last))
            if not direct:
                self._move(transfers, (Buffer.TOTALS, 0), (Buffer.C, 0), result.nbytes,
                           after=[len(transfers.operations) - 1])
            self._part(source, result, transfers.operations, len(cuts) * pitch * spread, pitch * (not direct))

    def _all_gather(self, arrays: Any) -> None:
        given = self._check_list(arrays, lengths=True)
        if not given[0].shape:
            raise ShapeError("all_gather: scalars; pieces are put together along their first axis")
        sources = [self._source(array, tile) for tile, array in zip(self.group, given, strict=True)]
        length = sum(source.shape[0] for source in sources)
        shape, dtype = (length, *sources[0].shape[1:]), sources[0].dtype
        self.results = [self.device.empty(shape, dtype, tile=tile) for tile in self.group]
        pitch = _padded(max(source.nbytes for source in sources))
        if not pitch:
            return
        aligned = all(source.nbytes == pitch for source in sources)
        for source, result in zip(sources, self.results, strict=True):
            if len(self.group) == 1:
                self._part(source, result, self._copy(source.nbytes))
            elif aligned:
                self._part(source, result, [self._ring(Collective.ALL_GATHER, pitch, pitch)])
            else:
                transfers = Transfers([], self.device.config)
                short = _padded(source.nbytes) < pitch
                if short:  # every tile gives as much as the longest piece
                    self._move(transfers, (Buffer.A, 0), (Buffer.SUMS, 0), source.nbytes)
                transfers.operations.append(self._ring(
                    Collective.ALL_GATHER, pitch, pitch, Buffer.SUMS if short else Buffer.A, Buffer.TOTALS,
                    after=transfers.last))
                ring, at = len(transfers.operations) - 1, 0
                for p, piece in enumerate(sources):  # the pieces have come apart: the tile moves them together
                    self._move(transfers, (Buffer.TOTALS, p * pitch), (Buffer.C, at), piece.nbytes, after=[ring])
                    at += piece.nbytes
                self._part(source, result, transfers.operations, pitch * short, len(sources) * pitch)

    def _broadcast(self, array: Any) -> None:
        self.group = check_group(self.options.get("tiles"), self.device.config)
        root = self.options.get("root")
        if root is None:
            root = array.tile if isinstance(array, DeviceArray) else self.group[0]
        root = check_tile(root, self.device.config)
        if root not in self.group:
            raise UnsupportedError(f"broadcast: root = {root} is none of the tiles {list(self.group)} of the group")
        source = self._source(array, root)
        self.results = [source if tile == root else self.device.empty(source.shape, source.dtype, tile=tile)
                        for tile in self.group]
        self.kept = [source]
        if not source.size or len(self.group) == 1:
            return
        command = self._ring(Collective.BROADCAST, _padded(source.nbytes), root=root)
        for result in self.results:
            # only the root gives something; the others name a place of their own
            self._part(source if result.tile == root else result, result, [command])

    def _barrier(self, _: None) -> None:
        self.group = check_group(self.options.get("tiles"), self.device.config)
        if len(self.group) > 1:
            stream = emit([self._ring(Collective.BARRIER, 0)])
            self.parts = {tile: Part(stream, {}) for tile in self.group}

    # -- operands -----------------------------------------------------------------------------------------

    def _check_list(self, arrays: Any, *, lengths: bool = False) -> list[Any]:
        """The operands, one a tile, of one shape and type; with ``lengths`` the first axis may differ."""
        if isinstance(arrays, DeviceArray) or not isinstance(arrays, Sequence) and not isinstance(arrays, np.ndarray):
            raise UnsupportedError(f"{self.kind}: takes a list of one array a tile, not {type(arrays).__name__}")
        given = [array if isinstance(array, DeviceArray) else as_array(array, f"{self.kind}: array {i}")
                 for i, array in enumerate(arrays)]
        if not given:
            raise ShapeError(f"{self.kind}: an empty list; it takes one array a tile")
        tiles = self.options.get("tiles")
        if tiles is None and isinstance(given[0], DeviceArray):
            tiles = range(given[0].tile, given[0].tile + len(given))
        elif tiles is None:
            tiles = range(len(given))
            if len(given) > self.device.config.tiles:
                raise ShapeError(f"{self.kind}: {len(given)} arrays, but the device has {self.device.config.tiles} "
                                 "tiles: one array a tile")
        self.group = check_group(tiles, self.device.config)
        if len(self.group) != len(given):
            raise ShapeError(f"{self.kind}: {len(given)} arrays for the {len(self.group)} tiles {list(self.group)}; "
                             "it takes one array a tile")
        first = given[0]
        for i, array in enumerate(given[1:], 1):
            if array.dtype != first.dtype:
                raise UnsupportedError(f"{self.kind}: array {i} is {array.dtype}, array 0 {first.dtype}")
            if array.shape[lengths:] != first.shape[lengths:] or array.ndim != first.ndim:
                raise ShapeError(f"{self.kind}: array {i} has shape {array.shape}, array 0 {first.shape}")
        if not all(isinstance(array, DeviceArray) == isinstance(first, DeviceArray) for array in given):
            raise UnsupportedError(f"{self.kind}: some arrays are on the device and some are not; dev.put(x, tile=t) "
                                   "brings one there")
        for i, (array, tile) in enumerate(zip(given, self.group, strict=True)):
            self._check_place(array, tile, f"array {i}")
        return given

    def _check_place(self, array: Any, tile: int, name: str) -> None:
        if not isinstance(array, DeviceArray):
            if array.dtype.kind not in "iufb":
                raise UnsupportedError(f"{self.kind}: {name} is {array.dtype}; device memory holds numbers")
            return
        if array.device is not self.device:
            raise UnsupportedError(f"{self.kind}: {name} lives on another device; copy it with dev.put(np.asarray(x))")
        if array.tile != tile:
            raise UnsupportedError(f"{self.kind}: {name} lies in the memory of tile {array.tile}, but is that of tile "
                                   f"{tile}; a collective reads each tile's own memory (dev.put(x, tile={tile}))")

    def _source(self, array: Any, tile: int) -> DeviceArray:
        if not isinstance(array, DeviceArray):
            array = as_array(array, f"{self.kind}: array")
        self._check_place(array, tile, "array")
        return array if isinstance(array, DeviceArray) else self.device.put(array, tile=tile)

    def _sources(self, arrays: Any) -> list[DeviceArray]:
        return [self._source(array, tile) for array, tile in
                zip(self._check_list(arrays), self.group, strict=True)]

    def _check_sum(self, array: Any) -> None:
        """Refuse what the ring cannot add; int8 saturates, int32 wraps."""
        op, saturate = self.options.get("op", "sum"), self.options.get("saturate")
        if op != "sum":
            raise UnsupportedError(f"{self.kind}: op = {op!r}: the ring adds, so it must be 'sum'")
        if array.dtype not in (np.int8, np.int32):
            raise UnsupportedError(f"{self.kind}: dtype {array.dtype}, but the ring adds int32, which wraps, and int8, "
                                   "which saturates")
        small = array.dtype == np.int8
        if saturate is not None and bool(saturate) != small:
            raise UnsupportedError(f"{self.kind}: saturate = {saturate!r}: int8 saturates at each addition, and int32 "
                                   "wraps; leave saturate= out")
        self.saturate = int(small)

    def _outputs(self, out: Any, sources: list[DeviceArray]) -> list[DeviceArray]:
        if out is None:
            return [self.device.empty(s.shape, s.dtype, tile=s.tile) for s in sources]
        if not isinstance(out, Sequence) or len(out) != len(sources) or not all(
                isinstance(array, DeviceArray) for array in out):
            raise UnsupportedError(f"{self.kind}: out must be a list of one DeviceArray a tile (the arrays themselves "
                                   "reduce in place)")
        for i, (array, source) in enumerate(zip(out, sources, strict=True)):
            self._check_place(array, source.tile, f"out {i}")
            if array.shape != source.shape:
                raise ShapeError(f"{self.kind}: out {i} has shape {array.shape}, but the result {source.shape}")
            if array.dtype != source.dtype:
                raise UnsupportedError(f"{self.kind}: out {i} is {array.dtype}, but the result is {source.dtype}")
            if array is not source and array.overlaps(source):
                raise UnsupportedError(f"{self.kind}: out {i} shares memory with its array; give the array itself, or "
                                       "another")
        return list(out)

    def _cuts(self, length: int) -> list[tuple[int, int]]:
        """The pieces of ``numpy.array_split``: the first ones have one more where it does not come out even."""
        size, more = divmod(length, len(self.group))
        ends = [i * size + min(i, more) for i in range(len(self.group) + 1)]
        return list(zip(ends, ends[1:], strict=False))

    def _pieces(self, array: np.ndarray, cuts: list[tuple[int, int]], pitch: int, tile: int) -> DeviceArray:
        target = self.device.empty(pitch * len(cuts), np.uint8, tile=tile)
        for i, (low, high) in enumerate(cuts):
            raw = np.frombuffer(array[low:high].tobytes(), np.uint8)
            target._view[i * pitch:i * pitch + raw.size] = raw
        return target

    # -- operations ---------------------------------------------------------------------------------------

    def _ring(self, operation: Collective, size: int, pitch: int = 0, source: Buffer = Buffer.A,
              destination: Buffer = Buffer.C, *, root: int = 0, after: Collection[int] = ()) -> Operation:
        if operation == Collective.BARRIER:
            return ring_operation(operation, self.group, 0, set())
        return ring_operation(operation, self.group, 0, set(after), source, destination, saturate=self.saturate,
                              root=root, bytes=size, pitch=pitch)

    def _move(self, transfers: Transfers, source: tuple[Buffer, int], target: tuple[Buffer, int], size: int,
              after: Collection[int] = ()) -> None:
        """Copy ``size`` bytes, and up to 3 of no meaning behind them."""
        if size:
            transfers.add(Place(*source), Place(*target), rows=1, columns=-(-size // 4), after=after)

    def _copy(self, size: int) -> list[Operation]:
        transfers = Transfers([], self.device.config)
        self._move(transfers, (Buffer.A, 0), (Buffer.C, 0), size)
        return transfers.operations

    def _part(self, source: DeviceArray, result: DeviceArray, operations: list[Operation], sums: int = 0,
              totals: int = 0) -> None:
        """What the tile of ``result`` runs; sums, totals: bytes of the buffers of these names."""
        addresses, holds = {Buffer.A: source.address, Buffer.C: result.address}, [source]
        for buffer, size in ((Buffer.SUMS, sums), (Buffer.TOTALS, totals)):
            if size:
                holds.append(self.device.empty(size, np.uint8, tile=result.tile))
                addresses[buffer] = holds[-1].address
        self.parts[result.tile] = Part(emit(operations), addresses, holds)
