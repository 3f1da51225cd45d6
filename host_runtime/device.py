"""A device under simulation, and the calls that offload work to it."""

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ringloom.compiler import Buffer, Gemm, Stream, compile_part
from ringloom.hw.config import DeviceConfig, load
from ringloom.hw.counters import CHANNEL_COUNTERS, COUNTERS
from ringloom.hw.isa import Code
from ringloom.hw.regmap import Request
from ringloom.numerics.reference import as_array, check_scale
from ringloom.profile import MemoryCheck, Profile
from ringloom.sim import BusError, SimulationTimeout, Simulator
from ringloom.sim.checkers.bus import BusChecker

from . import collectives, parallel
from . import selftest as selftests
from .buffers import Allocator, DeviceArray, PreparedWeights, pack, real_dtype
from .collectives import Collectives
from .errors import ClosedError, DeviceFault, OutOfMemoryError, ShapeError, TimeoutError, UnsupportedError
from .groups import check_group, check_tile, check_tiles, make_program
from .operands import check_bias, check_zero_point, make_product, refuse_unknown
from .pipeline import Pipeline
from .queue import Job, JobQueue
from .queues import FirmwareQueues, Queue
from .registers import Registers

__all__ = ["Device", "open"]

_RESERVED_BYTES = 4096    # at either end of memory: the fetcher reads ahead of the last command
_AXES = 32                # numpy's limit, in its older versions
_ELEMENTS = 1 << 62
_STREAMS = 64             # compiled streams that are kept
_MATMUL = ("a_zero_point", "b_zero_point", "bias", "transpose_a", "transpose_b", "out", "parallel", "tiles")
_QMATMUL = ("a_scale", "a_zero_point", "b_scale", "b_zero_point", "y_scale", "y_zero_point", "bias", "activation",
            "rounding", "transpose_a", "transpose_b", "out", "parallel", "tiles")
_CALLS = {"matmul": _MATMUL, "qmatmul": _QMATMUL}


def open(source: "str | Path | DeviceConfig" = "inference", sim: str = "verilated", *,  # noqa: A001
         overrides: dict[str, Any] | None = None, progress: Callable[[str], None] | None = None,
         selftest: bool | None = None, **unknown: Any) -> "Device":
    """Open a simulated device.

    source: preset name, YAML path or :class:`DeviceConfig`. sim: ``verilated``, ``python`` or ``functional`` (results
    without cycles). overrides: dotted key to value. progress: told what goes on while a simulator is built.
    selftest: whether the firmware tests the device at power-on; ``dev.power_on`` tells how it went. None: not with
    ``python``, where its cycles take longer than many a user's work.
    Raises :class:`ConfigError`, :class:`UnsupportedError`, what the simulator raises where a tool is missing, and
    :class:`DeviceFault` where the self-test fails.
    """
    refuse_unknown("open", unknown, ("source", "sim", "overrides", "progress", "selftest"))
    if selftest is not None and not isinstance(selftest, bool):
        raise UnsupportedError(f"selftest = {selftest!r}: must be True, False or None")
    if progress is not None and not callable(progress):
        raise UnsupportedError(f"progress = {progress!r}: must be a function of one text, or None")
    config = load(source, overrides)
    if sim == "functional":
        from ringloom.sim.functional import FunctionalSimulator
        config = load(config, {"control.kind": "direct"})  # it has results, and neither cycles nor queues
        return Device(config, FunctionalSimulator(config))
    from ringloom.sim import ENGINES, open_simulator
    if not isinstance(sim, str) or sim not in ENGINES:
        raise UnsupportedError(f"sim = {sim!r}: the simulators are {', '.join([*ENGINES, 'functional'])}")
    try:
        simulator = open_simulator(config, sim, progress)
    except RuntimeError as error:  # a tool is missing or failed; the message says which and what to do
        raise UnsupportedError(f"sim = {sim!r}: {error}") from error
    except OSError as error:
        raise UnsupportedError(f"sim = {sim!r}: {error}; simulators are built and kept in a folder that can be "
                               "written, which RINGLOOM_CACHE names") from error
    try:
        return Device(config, simulator, selftest=sim != "python" if selftest is None else selftest)
    except BaseException:
        simulator.close()
        raise


class Device(Collectives):
    """One device; a context manager. Every call on a closed device raises :class:`ClosedError`."""

    def __init__(self, config: DeviceConfig, simulator: Simulator, *, selftest: bool = False) -> None:
        self.config = config
        self.simulator = simulator
        self.closed = False
        self.regs = Registers(self)
        size = config.memory.bytes
        self._memories = [simulator.memory(tile) for tile in range(config.tiles)]
        self._allocators = [
            Allocator(tile * size + _RESERVED_BYTES, (tile + 1) * size - _RESERVED_BYTES,
                      where=f"tile {tile}" if config.tiles > 1 else "the device", stripe=config.row_stripe_bytes)
            for tile in range(config.tiles)]
        self._allocator = self._allocators[0]
        firmware = config.control.kind == "firmware"
        self._jobs: JobQueue = FirmwareQueues(self) if firmware else JobQueue(self)
        for allocator in self._allocators:
            allocator.queued = lambda: self._jobs.held_bytes
        self._profiles: list[Profile] = []  # those that count
        self._checker: BusChecker | None = None
        self._spans: list[tuple[int, int]] = []  # from start to end of each job, while one of them does
        self._resetting = False
        self._streams: OrderedDict[tuple, Stream] = OrderedDict()
        self._number = 0
        self._collectives = 1
        self.macs = 0
        """Useful multiply-accumulates of all jobs that ended well."""
        self.jobs = 0
        """Jobs that ended well."""
        self._reset_cycle = simulator.cycle
        self.power_on = selftests.power_on(self, selftest)
        """The self-test at power-on."""
        self._jobs.start()

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free the simulator; queued jobs end with :class:`ClosedError`. A second call does nothing."""
        if not self.closed:
            self._jobs.drop(ClosedError("the device was closed before the job ran"))
            self.closed = True
            self.simulator.close()

    def __enter__(self) -> "Device":
        self._check_open()
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError("a device cannot be copied or pickled: open another with ringloom.open")

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def reset(self) -> None:
        """Reset the hardware, without a self-test: memory keeps its bytes, so arrays and prepared weights stay; queued
        jobs end."""
        self._check_open()
        self._jobs.drop(DeviceFault("the device was reset before the job ended", code=Code.ABORT.name))
        self._reset_hardware()

    def _reset_hardware(self, *, answers: bool = True) -> None:
        """The one way to reset: profiles keep what was counted, and what a reset clears is set up again.

        answers: whether the registers can still be read.
        """
        self._resetting = True
        try:
            if self._profiles:
                counters = self.counters() if answers else None
                for profile in self._profiles:
                    profile.reset(counters)
            self.simulator.reset()
            self._after_reset()
        finally:
            self._resetting = False

    def _after_reset(self) -> None:
        self._reset_cycle = self.simulator.cycle
        selftests.power_on(self, False)
        self._jobs.start()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def cycle(self) -> int:
        """Clock edges since the device was opened."""
        return self.simulator.cycle

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("this device is closed: open another with ringloom.open")

    # -- memory ----------------------------------------------------------------------------------------

    def empty(self, shape: "int | tuple[int, ...]", dtype: Any = np.int8, *, tile: int = 0) -> DeviceArray:
        """An array of ``shape`` in the memory of ``tile``, its contents undefined. Raises :class:`OutOfMemoryError`."""
        return self._empty(shape, dtype, self._allocators[check_tile(tile, self.config)])

    def _empty(self, shape: "int | tuple[int, ...]", dtype: Any, allocator: Allocator) -> DeviceArray:
        self._check_open()
        sizes = (shape,) if isinstance(shape, int | np.integer) or not isinstance(shape, Iterable) else tuple(shape)
        if any(not isinstance(s, int | np.integer) or s < 0 for s in sizes) or len(sizes) > _AXES:
            raise ShapeError(f"shape {shape!r}: every axis must be an integer, 0 or more, and there may be {_AXES}")
        try:
            kind = np.dtype(dtype)
        except (TypeError, ValueError, SyntaxError):
            raise UnsupportedError(f"dtype {dtype!r}: must be a numpy dtype, such as np.int8") from None
        if kind.kind not in "iufb":
            raise UnsupportedError(f"dtype {kind}: device memory holds integers, floats and booleans")
        extent = math.prod(max(1, int(s)) for s in sizes)
        if extent > _ELEMENTS:  # numpy cannot even name its shape
            raise OutOfMemoryError(f"shape {shape!r}: {extent} elements, but memory.bytes = {self.config.memory.bytes}")
        return DeviceArray(self, tuple(int(s) for s in sizes), kind, allocator=allocator)

    def put(self, array: Any, *, tile: int = 0, via: str | None = None, **unknown: Any) -> DeviceArray:
        """Copy ``array`` into the memory of ``tile``: at once, or with ``via="axi"`` by the host port, in simulated
        time."""
        refuse_unknown("put", unknown, ("tile", "via"))
        self._check_open()
        if via not in (None, "axi"):
            raise UnsupportedError(f"via = {via!r}: must be None (straight into memory) or 'axi' (the host port)")
        source = as_array(array, "array")
        target = self.empty(source.shape, source.dtype, tile=tile)
        if via is None:
            np.copyto(target._view, source)
        elif source.size:
            with self._bus():
                self.simulator.axi_write(target.address, source.tobytes())
        return target

    def prepare(self, b: Any, scale: Any = None, zero_point: Any = 0, bias: Any = None, bits: int = 8,
                sparsity: Any = None, *, tiles: Any = (0,), **unknown: Any) -> PreparedWeights:
        """Pack weights (..., K, N) of int8 or uint8 once, as the array takes them; they stay on the device.

        scale: float, scalar or (N,), the ``b_scale`` of ``qmatmul``. zero_point: scalar or (N,). bias: int32 (N,).
        tiles: those whose memory gets a copy (None: all); others read the first one over the ring.
        """
        refuse_unknown("prepare", unknown, ("scale", "zero_point", "bias", "bits", "sparsity", "tiles"))
        self._check_open()
        group = check_tiles(tiles, self.config)
        if not isinstance(bits, int | np.integer) or bits != 8:
            raise UnsupportedError(f"bits = {bits!r}: only 8 is built so far")
        if sparsity is not None:
            raise UnsupportedError(f"sparsity = {sparsity!r}: only None is built so far")
        if isinstance(b, PreparedWeights):
            raise UnsupportedError("b: these weights are prepared already")
        weights = real_dtype(b, "b")
        if weights.ndim < 2 or not weights.size:
            raise ShapeError(f"b: shape {weights.shape}; weights to prepare are (..., K, N), none of them 0")
        n = weights.shape[-1]
        zero = check_zero_point(zero_point, "zero_point", weights.dtype)
        if zero.size == 1:
            zero = zero.reshape(())
        elif zero.shape != (n,):
            raise ShapeError(f"zero_point: shape {zero.shape}; it may be a scalar or one a column: ({n},)")
        if scale is not None:
            scale = check_scale(scale, "scale")
            if scale.size != 1 and scale.shape != (n,):
                raise ShapeError(f"scale: shape {scale.shape}; it may be a scalar or one a column: ({n},)")
        tile = self.config.tile.array
        packed = pack(weights, zero, tile.rows, tile.columns)
        first, *copies = (self.put(packed, tile=t) for t in group)
        return PreparedWeights(first, weights.shape, weights.dtype, zero, scale, check_bias(bias, n), tuple(copies))

    # -- work ------------------------------------------------------------------------------------------

    def matmul(self, a: Any, b: Any, a_zero_point: Any = 0, **options: Any) -> "np.ndarray | DeviceArray":
        """``(a - a_zero_point) @ (b - b_zero_point) + bias`` in int32, which wraps; as ``numpy.matmul`` otherwise.

        a: int8 or uint8 (..., M, K), zero point a scalar or one a row. b: int8 or uint8 (..., K, N), or (..., N, K)
        with ``transpose_b=True``, or prepared weights. Options: b_zero_point, a scalar or one a column; bias, int32
        (N,); transpose_b; out, a :class:`DeviceArray` for the result. Returns numpy for a numpy ``a``.
        """
        return self.submit("matmul", a, b, a_zero_point=a_zero_point, **options).result()

    def qmatmul(self, a: Any, b: Any, **options: Any) -> "np.ndarray | DeviceArray":
        """ONNX QLinearMatMul, bit-exact with ONNX Runtime by default, with bias and activation.

        Options: a_scale, a_zero_point, b_scale, b_zero_point, y_scale, y_zero_point (its type, int8 or uint8, is
        that of the result), bias (int32, of scale a_scale * b_scale), activation (``"relu"`` or (lo, hi) in real
        units), rounding (``f32``, ``exact_rne``, ``exact_rne_zp``, ``half_up``, ``half_away``), transpose_b, out.
        b_scale and b_zero_point may be one a column; prepared weights bring theirs.
        """
        return self.submit("qmatmul", a, b, **options).result()

    def submit(self, kind: str, *operands: Any, **options: Any) -> Job:
        """Queue a ``matmul``, a ``qmatmul`` or a collective, called by its name, and return at once; operands are
        copied now, simulated time stands still.

        Where memory has no room beside the queued jobs, these run first, in order, until it has.
        """
        return self._submit(None, kind, operands, options)

    def _submit(self, queue: Queue | None, kind: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Job:
        if kind in collectives.OPERATIONS and queue is None:
            return self._retry(lambda: collectives.submit(self, kind, operands, options))
        return self._retry(lambda: self._enqueue(queue, kind, operands, options))

    def _retry(self, enqueue: Callable[[], Job]) -> Job:
        """Queue a job; where memory has no room, run queued ones first."""
        while True:
            try:
                return enqueue()
            except OutOfMemoryError:
                if not len(self._jobs):
                    raise
            self._jobs.run_first()  # behind the handler: the error's traceback held what was taken

    def _check_here(self, name: str, operand: Any) -> None:
        if isinstance(operand, DeviceArray | PreparedWeights) and operand.device is not self:
            how = ("prepare the weights on this one" if isinstance(operand, PreparedWeights)
                   else f"copy it with dev.put(np.asarray({name}))")
            raise UnsupportedError(f"{name}: lives on another device; {how}")

    def _enqueue(self, queue: Queue | None, kind: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Job:
        allocator = self._allocator if queue is None else queue._allocator
        self._check_open()
        if not isinstance(kind, str) or kind not in _CALLS:
            choices = (*_CALLS, *(collectives.OPERATIONS if queue is None else ()))
            raise UnsupportedError(f"submit: {kind!r} is not one of {', '.join(choices)}")
        operands += tuple(options[name] for name in ("a", "b") if name in options)
        options = {name: value for name, value in options.items() if name not in ("a", "b")}
        if len(operands) != 2:
            raise UnsupportedError(f"{kind}: takes two operands, a and b, not {len(operands)}")
        a, b = operands
        refuse_unknown(kind, [name for name in options if name not in _CALLS[kind]], _CALLS[kind])
        for name, operand in (("a", a), ("b", b), ("out", options.get("out"))):
            self._check_here(name, operand)
        group = self._group(queue, kind, options)
        product = make_product(kind, a, b, options, self.config)
        as_numpy = options.get("out") is None and not isinstance(a, DeviceArray)
        output = None
        if group is None or product.gemm is None or not as_numpy:
            home = self._allocators[a.tile] if group and isinstance(a, DeviceArray) else allocator
            output = self._output(options.get("out"), product.shape, product.dtype, home)
            for name, operand in (("a", a), ("b", b)):
                array = operand.array if isinstance(operand, PreparedWeights) else operand
                if isinstance(array, DeviceArray) and array.overlaps(output):
                    raise UnsupportedError(f"out: is the memory of {name}, which the tile still reads while it writes "
                                           "the result; give another array, or leave out= away")
        if group is not None and product.gemm is not None:
            return parallel.submit(self, kind, product, output, group,
                                   parallel.check_mode(kind, options.get("parallel")))
        macs = product.gemm.macs if product.gemm else 0
        job = Job(self, self._next_number(), kind, macs, output, as_numpy=as_numpy, shape=product.shape)
        if product.gemm is None:
            job._finish(None)
            return job
        assert output is not None
        stream = self._compile(product.gemm)
        addresses = {Buffer.C: output.address}
        sources = {Buffer.A: product.a, Buffer.B: product.b, Buffer.PARAMETERS: product.records,
                   Buffer.ZERO_POINTS: product.table}
        for buffer, source in sources.items():
            if source is not None:
                held = source if isinstance(source, DeviceArray | PreparedWeights) else self._place(source, allocator)
                job.holds.append(held)
                addresses[buffer] = held.address
        job.program = make_program(self, job.number, stream, addresses, allocator)
        output._writer = job
        job.queue = queue
        self._jobs.add(job)
        return job

    def each(self, kind: str, a: Sequence[Any], b: Any, **options: Any) -> list[Any]:
        """A ``matmul`` or ``qmatmul`` on each of several tiles, all at once; what each gives, in a list.

        a: one operand a tile, numpy or in the tile's memory. b: one for all, or a list of one a tile. tiles: a group;
        by default where the ``a`` lie, and numpy arrays on tiles 0, 1 and so on. Other options as the product's own.
        """
        return self.submit_each(kind, a, b, **options).result()

    def submit_each(self, kind: str, a: Sequence[Any], b: Any, **options: Any) -> Job:
        """Queue what :meth:`each` does and return at once."""
        self._check_open()
        if not isinstance(kind, str) or kind not in _CALLS:
            raise UnsupportedError(f"each: {kind!r} is not one of {', '.join(_CALLS)}")
        accepted = [name for name in _CALLS[kind] if name not in ("out", "parallel")]
        refuse_unknown(kind, [name for name in options if name not in accepted], accepted)
        for operand in (*a, *(b if isinstance(b, list | tuple) else [b])):
            self._check_here("an operand", operand)
        tiles = options.pop("tiles", None)
        return self._retry(lambda: parallel.submit_each(self, kind, a, b, options, tiles))

    def pipeline(self, layers: Sequence[Any], *, tiles: Any = None, micro_batch: int | None = None,
                 **unknown: Any) -> Pipeline:
        """Consecutive layers on consecutive tiles: an object to call with a batch of rows.

        layers: (weights, options) each; weights (K, N), prepared or not; options those of :meth:`qmatmul`, and in the
        last layer those of :meth:`matmul` for int32 results. tiles: neighbours, all by default; each layer takes one.
        micro_batch: rows that go from tile to tile at once; by default what the planner expects to be fastest.
        """
        refuse_unknown("pipeline", unknown, ("tiles", "micro_batch"))
        return Pipeline(self, layers, tiles, micro_batch)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _place(self, source: np.ndarray, allocator: Allocator) -> DeviceArray:
        target = self._empty(source.shape, source.dtype, allocator)
        np.copyto(target._view, source)
        return target

    def _next_collectives(self, count: int) -> int:
        """The number of the first of ``count`` collectives; they rise by one each, over all jobs of the device."""
        first = self._collectives
        self._collectives = first + count & 0xFFFF
        return first

    def _output(self, out: Any, shape: tuple[int, ...], dtype: np.dtype, allocator: Allocator) -> DeviceArray:
        if out is None:
            return self._empty(shape, dtype, allocator)
        if not isinstance(out, DeviceArray):
            raise UnsupportedError(f"out: must be a DeviceArray (dev.empty(...)), not {type(out).__name__}")
        if out.shape != shape:
            raise ShapeError(f"out: shape {out.shape}, but the result has {shape}")
        if out.dtype != dtype:
            raise UnsupportedError(f"out: dtype {out.dtype}, but the result is {dtype}")
        return out

    def _group(self, queue: Queue | None, kind: str, options: dict[str, Any]) -> tuple[int, ...] | None:
        """The tiles that a product is to run on; None: as a job of one tile."""
        if options.get("parallel") is None and options.get("tiles") is None:
            return None
        parallel.check_mode(kind, options.get("parallel"))
        group = check_group(options.get("tiles"), self.config)
        if queue is not None:
            raise UnsupportedError(f"{kind}: parallel= and tiles= are for dev.{kind} and dev.submit; the jobs of a "
                                   "queue run on one tile each, any of dev.queue(tiles=...)")
        return None if self.config.tiles == 1 else group

    def _compile(self, gemm: Gemm, *group: Any) -> Stream:
        """The stream of ``gemm``, of a part in a ``group`` (as :func:`compile_part` takes it) or alone."""
        key = (gemm, *group)
        stream = self._streams.pop(key, None)
        if stream is None:
            stream = compile_part(gemm, self.config, *group)
            if len(self._streams) >= _STREAMS:
                self._streams.popitem(last=False)
        self._streams[key] = stream
        return stream

    def queue(self, *, priority: int = 0, tiles: Any = None, memory: int | None = None, **unknown: Any) -> Queue:
        """Open a job queue of the hardware's. Needs ``control.kind: firmware``.

        priority: 0 to 255, the greater goes first; the queue of :meth:`submit` has 0. tiles: those that may run its
        jobs; all by default. memory: bytes that the queue has to itself, and that its jobs cannot leave.
        """
        refuse_unknown("queue", unknown, ("priority", "tiles", "memory"))
        self._check_open()
        if not isinstance(self._jobs, FirmwareQueues):
            raise UnsupportedError('queue: control.kind is direct; open the device with '
                                   'overrides={"control.kind": "firmware"}')
        return self._jobs.open(priority, tiles, memory)

    def telemetry(self) -> dict[str, Any]:
        """What the device has done since its reset: ``uptime_cycles``; of each tile ``jobs``, ``faults`` (jobs that did
        not end well) and ``busy_cycles`` in which it ran jobs; with firmware, which answers this, jobs and faults of
        each queue. The self-test at power-on does not count.
        """
        self._check_open()
        control = self.regs.control
        tiles, queues = {}, {}
        if isinstance(self._jobs, FirmwareQueues):
            for tile in range(self.config.tiles):
                low, high, jobs, faults, busy_low, busy_high = selftests.ask(self, Request.TELEMETRY, tile)
                tiles[tile] = {"jobs": jobs, "faults": faults, "busy_cycles": busy_high << 32 | busy_low}
            for index in range(self.config.control.queues):
                block = getattr(self.regs, f"queue{index}")
                queues[index] = {"jobs": block.jobs, "faults": block.faults}
        else:
            counters = self.counters()
            tiles = {tile: {"jobs": counters[f"tile{tile}.jobs"], "faults": self._jobs.faults[tile],
                            "busy_cycles": counters[f"tile{tile}.cycles"]} for tile in range(self.config.tiles)}
            low, high = control.cycle_low, control.cycle_high
        return {"uptime_cycles": high << 32 | low, "queues": queues, "tiles": tiles}

    def selftest(self, *, memory_bytes: int | None = None, **unknown: Any) -> "selftests.SelfTest":
        """Test the device: a march over memory, its address lines, and every element of the array.

        memory_bytes: how much of each tile's memory, from its start; all by default. Arrays keep their bytes.
        Raises :class:`UnsupportedError` while jobs are queued.
        """
        refuse_unknown("selftest", unknown, ("memory_bytes",))
        self._check_open()
        return selftests.run(self, memory_bytes)

    # -- looking inside ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def profile(self, *, check_memory: bool = False) -> Iterator[Profile]:
        """Count what the jobs run inside the ``with`` cost; the figures are there when it ends.

        check_memory: record the command buses of the DRAM meanwhile and check them against the timing set with a
        checker that knows nothing of the controller; ``memory_check`` says what it found. It takes a few microseconds
        a command; profiles that check may not lie inside each other.
        """
        self._check_open()
        checker = self._check_memory() if check_memory else None
        macs, jobs, first = self.macs, self.jobs, len(self._spans)
        profile = Profile(self.config, self.simulator.name)
        profile.start(self.counters())
        self._profiles.append(profile)
        try:
            yield profile
        finally:
            self._profiles.remove(profile)
            if self._profiles:
                spans = self._spans[first:]
            else:
                spans, self._spans = self._spans[first:], []
            if checker is not None:
                self._checker = None
                if not self.closed:
                    self.simulator.record_commands(None)
        if checker is not None:
            checker.finish(self.simulator.cycle)
            profile.memory_check = MemoryCheck(checker.commands, [
                f"tile {tile}, channel {channel}: {found.message} ({found.rule})"
                for tile, channel, found in checker.violations])
        profile.fill(self.counters(), macs=self.macs - macs, jobs=self.jobs - jobs, spans=spans)

    def _check_memory(self) -> BusChecker:
        if self.config.memory.kind != "hbm":
            raise UnsupportedError(f"profile: check_memory: memory.kind = {self.config.memory.kind!r} has no DRAM "
                                   "commands; take a configuration with memory.kind=hbm")
        if self._checker is not None:
            raise UnsupportedError("profile: check_memory: another profile that is open checks already")
        checker = BusChecker(self.config, self.simulator.cycle)
        try:
            self.simulator.record_commands(checker)
        except NotImplementedError as error:
            raise UnsupportedError(f"profile: check_memory: {error}") from error
        self._checker = checker
        return checker

    def counters(self) -> dict[str, int]:
        """All counters now, ``tile0.array.active`` and so on."""
        self.regs.control.snapshot = (1 << self.config.tiles) - 1
        values = {}
        for number in range(self.config.tiles):
            tile = getattr(self.regs, f"tile{number}")
            for counter in COUNTERS:
                low, high = (getattr(tile, f"counter_{counter.name.replace('.', '_')}_{half}")
                             for half in ("low", "high"))
                values[f"tile{number}.{counter.name}"] = high << 32 | low
            for channel in range(self.config.ports if self.config.memory.kind == "hbm" else 0):
                for index, counter in CHANNEL_COUNTERS.items():
                    tile.channel_select = channel << 8 | index
                    name = f"tile{number}.hbm{channel}.{counter.name}"
                    values[name] = tile.channel_value_high << 32 | tile.channel_value_low
        return values

    @contextlib.contextmanager
    def waves(self, path: "str | Path", *, blocks: Sequence[str] = (), start: int = 0,
              stop: int | None = None) -> Iterator[Path]:
        """Record signals to a VCD file inside the ``with``: all, or ``blocks`` such as ``tile0.tensor``, in cycles
        ``start`` to ``stop`` from here on."""
        self._check_open()
        if not isinstance(path, str | Path):
            raise UnsupportedError(f"waves: path = {path!r}: must be the name of a file, such as 'run.vcd'")
        if isinstance(blocks, str) or not isinstance(blocks, Iterable) or not all(isinstance(b, str) for b in blocks):
            raise UnsupportedError(f"waves: blocks = {blocks!r}: must be a list of names, such as ['tile0.tensor']")
        for name, cycles in (("start", start), ("stop", stop)):
            if not isinstance(cycles, int | np.integer) and (name, cycles) != ("stop", None):
                raise UnsupportedError(f"waves: {name} = {cycles!r}: must be a whole number of cycles")
        target = Path(path)
        if target.suffix != ".vcd":
            raise UnsupportedError(f"waves: {target.name}: only VCD is built so far; name the file with .vcd")
        if start < 0 or (stop is not None and stop <= start):
            raise UnsupportedError(f"waves: start = {start}, stop = {stop}: must be cycles, stop behind start")
        try:
            self.simulator.waves_start(target, blocks=list(blocks), start=int(start),
                                       stop=None if stop is None else int(stop))
        except (ValueError, NotImplementedError, OSError) as error:
            raise UnsupportedError(f"waves: {error}") from error
        try:
            yield target
        finally:
            if not self.closed:
                self.simulator.waves_stop()

    @contextlib.contextmanager
    def _bus(self) -> Iterator[None]:
        """Turn a bus that does not answer into an error, with the hardware reset behind it."""
        self._check_open()
        try:
            yield
        except SimulationTimeout as error:
            if self._resetting:  # not even after a reset
                raise TimeoutError(f"{error}, during a reset; close the device") from error
            self._reset_hardware(answers=False)
            raise TimeoutError(f"{error}; the hardware was reset and is usable") from error
        except BusError as error:
            raise DeviceFault(f"{error}. The device is usable", code=Code.MEMORY_ERROR.name) from error

    def _read(self, address: int) -> int:
        with self._bus():
            return self.simulator.read(address)

    def _write(self, address: int, value: int) -> None:
        with self._bus():
            self.simulator.write(address, value)
