"""Every parameter of a device: a tree of frozen dataclasses, loaded from YAML and checked.

A configuration comes from a preset name, a YAML file, or :class:`DeviceConfig` itself. A file may build on
another with ``base:``; dotted overrides (``tile.array.rows=8``) come last.
"""

import dataclasses
import difflib
import functools
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import yaml

from ringloom.errors import ConfigError

if TYPE_CHECKING:
    from .memory.hbm.timing import TimingSet

__all__ = [
    "ConfigError", "DeviceConfig", "TileConfig", "ArrayConfig", "ScratchpadConfig", "AccumulatorConfig",
    "RequantizerConfig", "ParametersConfig", "MemoryConfig", "IdealConfig", "RingConfig", "ControlConfig",
    "BEAT_BYTES", "WAITING_BEATS", "presets", "load",
]

BEAT_BYTES = 32
"""Bytes a memory-port beat carries."""

WAITING_BEATS = 64
"""Beats of all clients of a port that may be in front of one that is late."""

_PRESET_DIR = Path(__file__).parent / "presets"


def _rule(condition: bool, key: str, value: Any, rule: str) -> None:
    if not condition:
        raise ConfigError(f"{key} = {value!r}: {rule}")


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class ArrayConfig:
    """The systolic array: ``rows`` x ``columns`` processing elements."""

    rows: int = 16
    columns: int = 16
    activations_per_row: int = 1
    weight_rows_per_cycle: int = 4

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            value = getattr(self, name)
            _rule(1 <= value <= 64, f"tile.array.{name}", value, "must lie in 1..64")
        _rule(self.activations_per_row == 1, "tile.array.activations_per_row", self.activations_per_row,
              "only 1 (int8) is built so far")
        _rule(self.weight_rows_per_cycle in (1, 2, 4, 8), "tile.array.weight_rows_per_cycle",
              self.weight_rows_per_cycle, "must be 1, 2, 4 or 8")

    @property
    def load_rows(self) -> int:
        """Weight rows that enter the array in one cycle (never more than it has)."""
        return min(self.weight_rows_per_cycle, self.rows)

    @property
    def load_cycles(self) -> int:
        """Cycles to bring one weight tile into the array."""
        return math.ceil(self.rows / self.load_rows)

    @property
    def macs_per_cycle(self) -> int:
        return self.rows * self.columns * self.activations_per_row


@dataclass(frozen=True, kw_only=True)
class ScratchpadConfig:
    """On-chip operand buffers, in bytes."""

    activation_bytes: int = 65536
    weight_bytes: int = 65536

    def __post_init__(self) -> None:
        for name in ("activation_bytes", "weight_bytes"):
            value = getattr(self, name)
            _rule(1024 <= value <= 1 << 24, f"tile.scratchpad.{name}", value, "must lie in 1024..16777216")


@dataclass(frozen=True, kw_only=True)
class AccumulatorConfig:
    """int32 partial sums; ``bytes`` counts both banks."""

    bytes: int = 65536

    def __post_init__(self) -> None:
        _rule(256 <= self.bytes <= 1 << 24, "tile.accumulator.bytes", self.bytes, "must lie in 256..16777216")


@dataclass(frozen=True, kw_only=True)
class RequantizerConfig:
    """Output lanes: columns requantized (or passed raw) in one cycle."""

    lanes: int = 8

    def __post_init__(self) -> None:
        _rule(self.lanes in (1, 2, 4, 8, 16), "tile.requantizer.lanes", self.lanes, "must be 1, 2, 4, 8 or 16")


@dataclass(frozen=True, kw_only=True)
class ParametersConfig:
    """Per-column parameter records (scale, bias, zero point) the tile holds."""

    columns: int = 1024

    def __post_init__(self) -> None:
        _rule(16 <= self.columns <= 65536, "tile.parameters.columns", self.columns, "must lie in 16..65536")


@dataclass(frozen=True, kw_only=True)
class TileConfig:
    """One tensor tile."""

    array: ArrayConfig = field(default_factory=ArrayConfig)
    scratchpad: ScratchpadConfig = field(default_factory=ScratchpadConfig)
    accumulator: AccumulatorConfig = field(default_factory=AccumulatorConfig)
    requantizer: RequantizerConfig = field(default_factory=RequantizerConfig)
    parameters: ParametersConfig = field(default_factory=ParametersConfig)

    def __post_init__(self) -> None:
        _rule(self.accumulator_words >= 4, "tile.accumulator.bytes", self.accumulator.bytes,
              f"must hold two words in each bank: at least {16 * self.array.columns} bytes for "
              f"{self.array.columns} columns")

    @property
    def activation_blocks(self) -> int:
        """Blocks (``array.rows`` bytes each) of the activation scratchpad."""
        return _floor_power(self.scratchpad.activation_bytes // self.array.rows)

    @property
    def weight_blocks(self) -> int:
        """Blocks (``array.columns`` bytes each) of the weight scratchpad."""
        return _floor_power(self.scratchpad.weight_bytes // self.array.columns)

    @property
    def accumulator_words(self) -> int:
        """Accumulator words (``array.columns`` int32 each), both banks; the top address bit is the bank."""
        return _floor_power(self.accumulator.bytes // (4 * self.array.columns))

    @property
    def lanes(self) -> int:
        """Requantizer lanes in use: no more than the columns rounded up to a power of two."""
        return min(self.requantizer.lanes, _ceil_power(self.array.columns))

    @property
    def column_records(self) -> int:
        """Parameter records one block of columns takes: ``columns`` rounded up to whole groups of lanes."""
        return self.lanes * math.ceil(self.array.columns / self.lanes)

    @property
    def parameter_records(self) -> int:
        """Records (16 bytes each) of the parameter scratchpad."""
        return _ceil_power(max(self.parameters.columns, self.column_records))

    @property
    def zero_point_blocks(self) -> int:
        """Blocks (``array.columns`` bytes each) of the weight zero-point scratchpad."""
        return _ceil_power(math.ceil(self.parameters.columns / self.array.columns))


def _floor_power(value: int) -> int:
    return 1 << (value.bit_length() - 1)


def _ceil_power(value: int) -> int:
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class MemoryConfig:
    """The memory of one tile."""

    kind: str = "ideal"
    timing: str = "hbm2"
    pseudo_channels: int = 4
    bytes: int = 67108864
    refresh: str = "per-bank"
    page_policy: str = "open"
    read_queue: int = 32
    write_queue: int = 32
    interleave_bytes: int = 256
    address_map: str = "row-bank-column-group"
    bank_xor: bool = False

    def __post_init__(self) -> None:
        _rule(self.kind in ("ideal", "hbm"), "memory.kind", self.kind, "must be ideal or hbm")
        _rule(self.refresh in ("per-bank", "all-bank", "off"), "memory.refresh", self.refresh,
              "must be per-bank, all-bank or off")
        _rule(self.page_policy in ("open", "closed", "adaptive"), "memory.page_policy", self.page_policy,
              "must be open, closed or adaptive")
        _rule(_power_of_two(self.pseudo_channels) and self.pseudo_channels <= 8, "memory.pseudo_channels",
              self.pseudo_channels, "must be 1, 2, 4 or 8")
        _rule(_power_of_two(self.bytes) and 65536 <= self.bytes <= 1 << 34, "memory.bytes", self.bytes,
              "must be a power of two in 65536..17179869184")
        _rule(_power_of_two(self.interleave_bytes) and 128 <= self.interleave_bytes <= 65536,
              "memory.interleave_bytes", self.interleave_bytes, "must be a power of two in 128..65536")
        for name in ("read_queue", "write_queue"):
            value = getattr(self, name)
            _rule(4 <= value <= 256, f"memory.{name}", value, "must lie in 4..256")


@dataclass(frozen=True, kw_only=True)
class IdealConfig:
    """Memory without DRAM behind it. ``jitter``, ``reorder`` and ``write_delay`` are for tests.

    latency: cycles from an accepted read to its response. bytes_per_cycle: peak of all ports together.
    jitter: up to so many random cycles more for each request. reorder: requests of different tags may overtake.
    write_delay: up to so many random cycles more before a write reaches storage and is acknowledged.
    """

    latency: int = 32
    bytes_per_cycle: int = 64
    jitter: int = 0
    reorder: bool = False
    write_delay: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _rule(4 <= self.latency <= 1000, "ideal.latency", self.latency, "must lie in 4..1000 cycles")
        _rule(self.bytes_per_cycle in (4, 8, 16, 32, 64, 128), "ideal.bytes_per_cycle", self.bytes_per_cycle,
              "must be 4, 8, 16, 32, 64 or 128")
        for name in ("jitter", "write_delay"):
            value = getattr(self, name)
            _rule(0 <= value <= 1000, f"ideal.{name}", value, "must lie in 0..1000 cycles")
        _rule(0 <= self.seed < 1 << 16, "ideal.seed", self.seed, "must lie in 0..65535")

    @property
    def patience_cycles(self) -> int:
        """Cycles without progress that are no fault: some accesses one after the other, each behind full queues."""
        beat_cycles = math.ceil(BEAT_BYTES / self.bytes_per_cycle)
        return 4 * (self.latency + self.jitter + self.write_delay + WAITING_BEATS * beat_cycles)


@dataclass(frozen=True, kw_only=True)
class RingConfig:
    """The interconnect between tiles. ``link_stages``: registers of a link beyond the stops' own.

    buffer_flits: places of each network in each direction of a stop; 0: as many as a full stream of flits needs.
    """

    data_bits: int = 256
    link_stages: int = 1
    buffer_flits: int = 0

    def __post_init__(self) -> None:
        _rule(self.data_bits in (256, 512), "ring.data_bits", self.data_bits, "must be 256 or 512")
        _rule(0 <= self.link_stages <= 8, "ring.link_stages", self.link_stages, "must lie in 0..8")
        _rule(self.buffer_flits == 0 or 2 <= self.buffer_flits <= 64, "ring.buffer_flits", self.buffer_flits,
              "must be 0 (chosen by link_stages) or lie in 2..64: one place stays free")


@dataclass(frozen=True, kw_only=True)
class ControlConfig:
    """What starts jobs: registers alone (``direct``), or queues that a RISC-V core serves with C (``firmware``).

    queues: job queues of ``firmware``. watchdog_cycles: a job's default. code_bytes, data_bytes: the core's memories.
    """

    kind: str = "direct"
    queues: int = 4
    watchdog_cycles: int = 1_000_000
    code_bytes: int = 8192
    data_bytes: int = 2048

    def __post_init__(self) -> None:
        _rule(self.kind in ("direct", "firmware"), "control.kind", self.kind, "must be direct or firmware")
        for name in ("code_bytes", "data_bytes"):
            value = getattr(self, name)
            _rule(_power_of_two(value) and 1024 <= value <= 65536, f"control.{name}", value,
                  "must be a power of two in 1024..65536")
        _rule(1 <= self.queues <= 16, "control.queues", self.queues, "must lie in 1..16")
        _rule(1000 <= self.watchdog_cycles < 1 << 32, "control.watchdog_cycles", self.watchdog_cycles,
              "must lie in 1000..4294967295 cycles without progress")


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """A whole device. ``name`` is a label for reports and does not change the hardware."""

    name: str = "custom"
    tiles: int = 1
    clock_hz: float = 1.0e9
    tile: TileConfig = field(default_factory=TileConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    ideal: IdealConfig = field(default_factory=IdealConfig)
    ring: RingConfig = field(default_factory=RingConfig)
    control: ControlConfig = field(default_factory=ControlConfig)

    def __post_init__(self) -> None:
        _rule(1 <= self.tiles <= 16, "tiles", self.tiles, "must lie in 1..16")
        _rule(math.isfinite(self.clock_hz) and self.clock_hz > 0, "clock_hz", self.clock_hz,
              "must be positive and finite")
        # All tiles may ask one memory, and each beat goes there and back.
        way = 0 if self.tiles == 1 else 8 * (self.tiles + 1) * (2 + self.ring.link_stages)
        if self.memory.kind == "ideal":
            patience = self.tiles * self.ideal.patience_cycles + way
            _rule(self.control.watchdog_cycles >= patience, "control.watchdog_cycles", self.control.watchdog_cycles,
                  f"must be at least {patience}, what memories with this ideal.latency, jitter, write_delay and "
                  "bytes_per_cycle, and so many tiles, may take without an engine being at fault")
        if self.memory.kind == "hbm":
            from .memory.hbm.address import address_map
            from .memory.hbm.patience import patience_cycles
            address_map(self)
            patience = self.tiles * patience_cycles(self.memory, self.timing) + way
            _rule(self.control.watchdog_cycles >= patience, "control.watchdog_cycles", self.control.watchdog_cycles,
                  f"must be at least {patience}, what a DRAM of timing {self.memory.timing!r} with this memory.refresh,"
                  " read_queue and write_queue, and so many tiles, may take without an engine being at fault")

    # -- derived, computed here alone ---------------------------------------------------------------

    @property
    def ports(self) -> int:
        """Memory ports of a tile: one a pseudo-channel; an ideal memory's bytes a cycle over a beat's, at least one."""
        if self.memory.kind == "hbm":
            return self.memory.pseudo_channels
        return max(1, self.ideal.bytes_per_cycle // BEAT_BYTES)

    @property
    def line_bytes(self) -> int:
        """Bytes the DMA moves in a cycle: one beat on each port's width. A line lies in one port's share."""
        return self.ports * BEAT_BYTES

    @property
    def address_bits(self) -> int:
        """Bits of a byte address in the pooled memory of all tiles."""
        return (self.tiles * self.memory.bytes - 1).bit_length()

    @property
    def peak_bytes_per_cycle(self) -> int:
        """Bytes the memory of one tile can move in a cycle: with DRAM, a beat a burst of each pseudo-channel."""
        if self.memory.kind == "hbm":
            return max(1, self.ports * BEAT_BYTES // self.timing.burst_clocks)
        return self.ideal.bytes_per_cycle

    @property
    def row_stripe_bytes(self) -> int:
        """Bytes behind which a tile's memory comes back to the same bank, one row on; 0 where it has no rows."""
        if self.memory.kind == "hbm":
            return self.ports * self.timing.banks * self.timing.row_bytes
        return 0

    @functools.cached_property
    def timing(self) -> "TimingSet":
        """The timing set of the DRAM, read once: a file that changes later changes no device that is open."""
        from .memory.hbm.timing import load_timing
        return load_timing(self.memory.timing)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain values, in the order of the dataclasses."""
        return dataclasses.asdict(self)

    def hardware_hash(self) -> str:
        """A hash of everything that changes the hardware (``name`` and ``clock_hz`` do not)."""
        tree = self.to_dict()
        del tree["name"], tree["clock_hz"]
        if self.memory.kind == "hbm":  # a set's file may change under its name
            tree["timing"] = dataclasses.asdict(self.timing)
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def presets() -> list[str]:
    """Names of the built-in configurations."""
    return sorted(path.stem for path in _PRESET_DIR.glob("*.yaml"))


def load(source: "str | Path | DeviceConfig", overrides: "dict[str, Any] | None" = None) -> DeviceConfig:
    """Load a configuration.

    source: a preset name, the path of a YAML file, or a :class:`DeviceConfig`.
    overrides: dotted key to value; a string value is read as YAML (``{"tile.array.rows": 8}``).
    Raises :class:`ConfigError` naming file, key, value, rule and, for an unknown key, the nearest valid one.
    """
    if isinstance(source, DeviceConfig):
        tree, origin = source.to_dict(), f"DeviceConfig {source.name!r}"
    else:
        tree, origin = _read(source, ())
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ConfigError(f"overrides = {overrides!r}: must be a dict of dotted keys, such as {{'tile.array.rows': 8}}")
    for key, value in (overrides or {}).items():
        if not isinstance(key, str):
            raise ConfigError(f"override {key!r}: must be a dotted key, such as 'tile.array.rows'")
        if isinstance(value, str):
            value = _parse(value, f"override {key}={value!r}: not a YAML value")
        node = tree
        *path, leaf = key.split(".")
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"override {key}: {part!r} is a value, not a group of keys")
        node[leaf] = value
    if overrides:
        origin += f" with {', '.join(f'{k}={v}' for k, v in overrides.items())}"
    try:
        return _build(DeviceConfig, tree, "")
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None


def _parse(text: str, what: str) -> Any:
    try:
        return yaml.safe_load(text)
    except Exception as error:  # PyYAML lets through whatever Python raises where a value has not the form of its tag
        raise ConfigError(f"{what} ({type(error).__name__}: {error})") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, say
        return False


def _read(source: "str | Path", chain: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    if not isinstance(source, str | os.PathLike) or not isinstance(os.fspath(source), str):
        raise ConfigError(f"source = {source!r}: must be a preset ({', '.join(presets())}), the path of a YAML file, "
                          "or a DeviceConfig")
    name = str(source)
    path = _PRESET_DIR / f"{name}.yaml"
    if name not in presets():
        path = Path(source)
        if not _is_file(path):
            name = name if len(name) <= 200 else f"{name[:200]}..."
            near = difflib.get_close_matches(name, presets(), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{name!r} is neither a preset ({', '.join(presets())}) nor a YAML file{hint}")
    here = str(path.resolve())
    if here in chain:
        raise ConfigError(f"{name}: base: leads back to itself ({' > '.join((*chain, here))})")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a YAML file: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    tree = _parse(text, f"{path}: not a YAML file")
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: the file must hold keys and values, not {type(tree).__name__}")
    base = tree.pop("base", None)
    if base is not None:
        sibling = path.parent / str(base)
        below, _ = _read(sibling if _is_file(sibling) and str(base) not in presets() else str(base), (*chain, here))
        tree = _merge(below, tree)
    tree["name"] = path.stem
    return tree, str(source) if name in presets() else str(path)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _build(cls: Any, tree: Any, prefix: str) -> Any:
    if not isinstance(tree, dict):
        raise ConfigError(f"{prefix or 'configuration'} = {tree!r}: must be a group of keys")
    hints = get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]
    values = {}
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if key not in names:
            near = difflib.get_close_matches(str(key), names, 1)
            hint = f"the nearest valid key is {near[0]!r}" if near else f"valid keys: {', '.join(names)}"
            raise ConfigError(f"{path} = {value!r}: unknown key; {hint}")
        if dataclasses.is_dataclass(hints[key]):
            values[key] = _build(hints[key], value, path)
        else:
            values[key] = _check_type(hints[key], value, path)
    return cls(**values)


def _check_type(hint: Any, value: Any, path: str) -> Any:
    if hint is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:  # YAML reads 1e9 as text; every user means a number
            return float(value)
        except (ValueError, OverflowError):
            pass
    if hint is str and isinstance(value, bool):  # YAML reads a bare off as false
        value = "on" if value else "off"
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{path} = {value!r}: must be {hint.__name__}, not {type(value).__name__}")
    return value
