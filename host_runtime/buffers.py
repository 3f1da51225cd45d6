"""Device memory: an allocator, arrays that live there, and weights that were packed for the tile."""

import bisect
import contextlib
import copy
import gc
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.numerics.reference import as_array

from .errors import ClosedError, Error, OutOfMemoryError, UnsupportedError

if TYPE_CHECKING:
    from .device import Device
    from .queue import Job

__all__ = ["ALIGNMENT", "GUARD_BYTES", "Allocator", "DeviceArray", "PreparedWeights"]

ALIGNMENT = 64
"""Bytes: a descriptor's alignment, and a whole number of memory beats."""
GUARD_BYTES = 64
"""Bytes behind every buffer that belong to nobody, so that a stray write hits no operand."""


class Allocator:
    """First fit over ``base``..``limit`` (bytes); neighbours that are free become one again.

    owner: what those bytes belong to; it lives for as long as the allocator, and so as anything allocated here.
    where: what it is called in errors. stripe: what is as large starts at a multiple of it where there is room, so that
    streams of two arrays that keep step do not ask the same DRAM banks for different rows; 0: no such thing.
    """

    def __init__(self, base: int, limit: int, owner: Any = None, *, where: str = "the device",
                 stripe: int = 0) -> None:
        self._owner = owner
        self._stripe = stripe
        self._where = where
        self._free = [(base, limit - base)]  # sorted by address
        self._used: dict[int, int] = {}
        self.capacity = limit - base
        self.queued: Callable[[], int] = int
        """Tells how many of the bytes taken are those of queued jobs."""

    @property
    def used(self) -> int:
        """Bytes taken, guards included."""
        return sum(self._used.values())

    def allocate(self, size: int, what: str = "buffer") -> int:
        """Address of ``size`` bytes. Raises :class:`OutOfMemoryError`; nothing is taken then."""
        need = -(-max(1, size) // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
        address = self._take(need)
        if address is None:
            gc.collect()  # an error that was raised holds its job, and that its arrays, until Python looks for cycles
            address = self._take(need)
        if address is not None:
            return address
        largest = max((length for _, length in self._free), default=0)
        queued = self.queued()
        wait = f"wait for queued jobs, which hold {queued} bytes, " if queued else ""
        raise OutOfMemoryError(
            f"{what} of {size} bytes: the largest free block of {self._where} has {max(0, largest - GUARD_BYTES)} of "
            f"{self.capacity} bytes; {wait}delete arrays, or raise memory.bytes")

    def _take(self, need: int) -> int | None:
        large = self._stripe and need - GUARD_BYTES >= self._stripe
        address = self._take_at(need, self._stripe) if large else None
        return self._take_at(need, ALIGNMENT) if address is None else address

    def _take_at(self, need: int, multiple: int) -> int | None:
        for i, (address, length) in enumerate(self._free):
            start = -(-address // multiple) * multiple
            before, behind = start - address, address + length - start - need
            if behind >= 0:
                self._free[i:i + 1] = [(address, before)] * (before > 0) + [(start + need, behind)] * (behind > 0)
                self._used[start] = need
                return start
        return None

    def free(self, address: int) -> None:
        """Give back what :meth:`allocate` returned."""
        size = self._used.pop(address)
        i = bisect.bisect(self._free, (address, 0))
        if i < len(self._free) and address + size == self._free[i][0]:
            size += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == address:
            before, length = self._free.pop(i - 1)
            address, size = before, length + size
        bisect.insort(self._free, (address, size))


class DeviceArray:
    """An array in simulated device memory, C-contiguous at ``address`` (a byte address), in the memory of ``tile``.

    ``np.asarray(x)`` and DLPack show the bytes without a copy, once the job that writes them has ended; the memory
    stays taken for as long as such a view lives. ``x @ w`` is ``device.matmul(x, w)``.
    """

    def __init__(self, device: "Device", shape: tuple[int, ...], dtype: Any, *,
                 allocator: Allocator | None = None) -> None:
        self.device = device
        self.shape = shape
        self.dtype = np.dtype(dtype)
        device._check_open()
        allocator = allocator or device._allocator
        self.address = allocator.allocate(self.nbytes, f"an array of shape {shape} and type {self.dtype}")
        self.tile, self._offset = divmod(self.address, device.config.memory.bytes)
        self._memory = device._memories[self.tile]  # keeps the simulation's storage while views are alive
        self._writer: Job | None = None
        self._failure: Error | None = None  # why these bytes are not what a job was to write
        weakref.finalize(self, allocator.free, self.address)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def _view(self) -> np.ndarray:
        """The bytes as they are, whether a job writes them or not."""
        raw = self._memory[self._offset:self._offset + self.nbytes]
        return raw.view(self.dtype).reshape(self.shape)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # Rather than __array__: numpy then holds on to this object for as long as the view lives.
        if self.device.closed:
            raise ClosedError("the device of this array is closed: copy what you need with np.array(x) before")
        if self._writer is not None:
            with contextlib.suppress(Error):  # what goes wrong is kept in this array
                self._writer.wait()
        self.check()
        return {"shape": self.shape, "typestr": self.dtype.str, "version": 3,
                "data": (self._view.__array_interface__["data"][0], False)}

    def check(self) -> None:
        """Raise the error of the job that was to write this array and failed; one that writes it again clears it."""
        if self._failure is not None:
            raise copy.copy(self._failure)

    def overlaps(self, other: "DeviceArray") -> bool:
        """Whether the two share bytes."""
        return (self.address < other.address + other.nbytes and other.address < self.address + self.nbytes
                and bool(self.size and other.size))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError("a DeviceArray cannot be copied or pickled: np.array(x) copies it to the host, "
                               "dev.put(x) on the device")

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.asarray(self).__dlpack_device__()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __matmul__(self, other: Any) -> Any:
        return self.device.matmul(self, other)

    def __repr__(self) -> str:
        where = f", tile={self.tile}" if self.device.config.tiles > 1 else ""
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, address={self.address:#x}{where})"


@dataclass(frozen=True)
class PreparedWeights:
    """Weights packed for the array and resident on the device; usable wherever ``b`` is.

    copies: the same bytes in other tiles' memory.
    shape: (..., K, N) as given. zero_point: scalar or one a column; scale, bias: what ``qmatmul`` takes by default.
    """

    array: DeviceArray
    shape: tuple[int, ...]
    dtype: np.dtype
    zero_point: np.ndarray
    scale: np.ndarray | None = None
    bias: np.ndarray | None = None
    copies: tuple[DeviceArray, ...] = ()

    def on(self, tile: int) -> DeviceArray:
        """The copy in the memory of ``tile``, or else the first."""
        return next((copy for copy in (self.array, *self.copies) if copy.tile == tile), self.array)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def device(self) -> "Device":
        return self.array.device

    @property
    def address(self) -> int:
        return self.array.address

    @property
    def nbytes(self) -> int:
        return self.array.nbytes


def pack(b: np.ndarray, zero_point: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """``b`` (..., K, N) as (..., N/columns, K, columns), both rounded up, filled with the zero point.

    Every block of columns is then one run of bytes, in the order in which weight tiles enter the array.
    """
    *lead, k, n = b.shape
    steps, depth = -(-n // columns), max(1, -(-k // rows)) * rows
    packed = np.zeros((*lead, depth, steps * columns), b.dtype)
    packed[..., :n] = np.broadcast_to(zero_point, (*lead, n))[..., None, :]
    packed[..., :k, :n] = b
    split = packed.reshape(*lead, depth, steps, columns)
    return np.ascontiguousarray(np.moveaxis(split, -2, -3))


def real_dtype(array: Any, name: str) -> np.ndarray:
    """``array`` as it is, refused where it is no int8 or uint8."""
    array = as_array(array, name)
    if array.dtype not in (np.int8, np.uint8):
        hint = "quantize it first (ringloom.numerics.quantize_linear takes a scale)" if array.dtype.kind == "f" else (
            f"convert it with {name}.astype(np.int8) if its values fit")
        raise UnsupportedError(f"{name}: dtype {array.dtype}, but the array multiplies int8 and uint8; {hint}")
    return array
