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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

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


@dataclass(frozen=True)
class Rule:
    """What a parameter's value may be, in words, and whether one is that."""

    text: str
    holds: Callable[[Any], bool]


def _range(low: int, high: int, unit: str = "") -> Rule:
    return Rule(f"must lie in {low}..{high}{unit and ' ' + unit}", lambda value: low <= value <= high)


def _choice(*values: int | str) -> Rule:
    *others, last = map(str, values)
    return Rule(f"must be {', '.join(others)} or {last}", lambda value: value in values)


def _power_of_two(low: int, high: int) -> Rule:
    return Rule(f"must be a power of two in {low}..{high}",
                lambda value: low <= value <= high and value & (value - 1) == 0)


def _parameter(default: Any, meaning: str, rule: Rule | None = None) -> Any:
    """A parameter of a group. meaning: one line, with the unit; docs/configuration.md shows it and the rule."""
    return field(default=default, metadata={"meaning": meaning, "rule": rule})


class _Group:
    """Parameters under ``_KEY``: each has its type, and keeps its rule, however the group is made."""

    _KEY: ClassVar[str] = ""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for parameter in dataclasses.fields(self):  # type: ignore[arg-type]
            key = f"{self._KEY}.{parameter.name}".lstrip(".")
            value = _check_type(hints[parameter.name], getattr(self, parameter.name), key)
            object.__setattr__(self, parameter.name, value)  # a number may have come as text
            rule = parameter.metadata.get("rule")
            if rule is not None:
                _rule(rule.holds(value), key, value, rule.text)


@dataclass(frozen=True, kw_only=True)
class ArrayConfig(_Group):
    """The systolic array: ``rows`` x ``columns`` processing elements."""

    _KEY = "tile.array"
    rows: int = _parameter(16, "rows of processing elements", _range(1, 64))
    columns: int = _parameter(16, "columns of processing elements", _range(1, 64))
    activations_per_row: int = _parameter(1, "int8 activations an element takes a cycle",
                                          Rule("only 1 (int8) is built so far", lambda value: value == 1))
    weight_rows_per_cycle: int = _parameter(4, "rows of weights that enter the array in a cycle", _choice(1, 2, 4, 8))

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
class ScratchpadConfig(_Group):
    """On-chip operand buffers."""

    _KEY = "tile.scratchpad"
    activation_bytes: int = _parameter(65536, "bytes for activations; a power of two of blocks of `rows` bytes is used",
                                       _range(1024, 1 << 24))
    weight_bytes: int = _parameter(65536, "bytes for weights; a power of two of blocks of `columns` bytes is used",
                                   _range(1024, 1 << 24))


@dataclass(frozen=True, kw_only=True)
class AccumulatorConfig(_Group):
    """int32 partial sums."""

    _KEY = "tile.accumulator"
    bytes: int = _parameter(65536, "bytes of both banks; a power of two of words of `columns` int32 is used",
                            _range(256, 1 << 24))


@dataclass(frozen=True, kw_only=True)
class RequantizerConfig(_Group):
    """Output lanes."""

    _KEY = "tile.requantizer"
    lanes: int = _parameter(8, "columns requantized, or passed raw, in a cycle", _choice(1, 2, 4, 8, 16))


@dataclass(frozen=True, kw_only=True)
class ParametersConfig(_Group):
    """Parameter records that the tile holds."""

    _KEY = "tile.parameters"
    columns: int = _parameter(1024, "columns whose scale, bias and zero point the tile holds; rounded up to a power of "
                              "two", _range(16, 65536))


@dataclass(frozen=True, kw_only=True)
class TileConfig(_Group):
    """One tensor tile."""

    _KEY = "tile"
    array: ArrayConfig = field(default_factory=ArrayConfig)
    scratchpad: ScratchpadConfig = field(default_factory=ScratchpadConfig)
    accumulator: AccumulatorConfig = field(default_factory=AccumulatorConfig)
    requantizer: RequantizerConfig = field(default_factory=RequantizerConfig)
    parameters: ParametersConfig = field(default_factory=ParametersConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
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
class MemoryConfig(_Group):
    """The memory of one tile."""

    _KEY = "memory"
    kind: str = _parameter("ideal", "without DRAM behind it (`ideal.*`), or DRAM", _choice("ideal", "hbm"))
    timing: str = _parameter("hbm2", "hbm: name or YAML file of the DRAM's timing set, see memory.md")
    pseudo_channels: int = _parameter(4, "hbm: channels, each one port of the tile", _choice(1, 2, 4, 8))
    bytes: int = _parameter(67108864, "bytes of a tile's memory", _power_of_two(65536, 1 << 34))
    refresh: str = _parameter("per-bank", "hbm: how rows are refreshed", _choice("per-bank", "all-bank", "off"))
    page_policy: str = _parameter("open", "hbm: when a row is closed", _choice("open", "closed", "adaptive"))
    read_queue: int = _parameter(32, "hbm: reads a channel holds", _range(4, 256))
    write_queue: int = _parameter(32, "hbm: writes a channel holds", _range(4, 256))
    interleave_bytes: int = _parameter(256, "bytes in a row that one port holds", _power_of_two(128, 65536))
    address_map: str = _parameter("row-bank-column-group", "hbm: an address's fields, the highest first, see memory.md")
    bank_xor: bool = _parameter(False, "hbm: the bank's bits are changed by the row's lowest")


@dataclass(frozen=True, kw_only=True)
class IdealConfig(_Group):
    """Memory without DRAM behind it. ``jitter``, ``reorder`` and ``write_delay`` are for tests."""

    _KEY = "ideal"
    latency: int = _parameter(32, "cycles from an accepted read to its response", _range(4, 1000, "cycles"))
    bytes_per_cycle: int = _parameter(64, "peak of all ports together", _choice(4, 8, 16, 32, 64, 128))
    jitter: int = _parameter(0, "up to so many random cycles more for each request", _range(0, 1000, "cycles"))
    reorder: bool = _parameter(False, "requests of different tags may overtake")
    write_delay: int = _parameter(0, "up to so many random cycles more before a write is in storage and acknowledged",
                                  _range(0, 1000, "cycles"))
    seed: int = _parameter(0, "of the random cycles", _range(0, 65535))

    @property
    def patience_cycles(self) -> int:
        """Cycles without progress that are no fault: some accesses one after the other, each behind full queues."""
        beat_cycles = math.ceil(BEAT_BYTES / self.bytes_per_cycle)
        return 4 * (self.latency + self.jitter + self.write_delay + WAITING_BEATS * beat_cycles)


@dataclass(frozen=True, kw_only=True)
class RingConfig(_Group):
    """The interconnect between tiles."""

    _KEY = "ring"
    data_bits: int = _parameter(256, "bits of data a link carries in a cycle, each way", _choice(256, 512))
    link_stages: int = _parameter(1, "registers of a link beyond the stops' own", _range(0, 8))
    buffer_flits: int = _parameter(
        0, "flits a stop keeps of each network and direction; 0: as many as a full stream needs",
        Rule("must be 0 (chosen by link_stages) or lie in 2..64: one place stays free",
             lambda value: value == 0 or 2 <= value <= 64))


@dataclass(frozen=True, kw_only=True)
class ControlConfig(_Group):
    """What starts jobs."""

    _KEY = "control"
    kind: str = _parameter("direct", "registers alone, or queues that a RISC-V core serves with C",
                           _choice("direct", "firmware"))
    queues: int = _parameter(4, "firmware: job queues", _range(1, 16))
    watchdog_cycles: int = _parameter(1_000_000, "cycles without progress after which a job ends as a fault, unless it "
                                      "says otherwise", _range(1000, (1 << 32) - 1, "cycles without progress"))
    code_bytes: int = _parameter(8192, "firmware: the core's memory for code", _power_of_two(1024, 65536))
    data_bytes: int = _parameter(2048, "firmware: the core's memory for data", _power_of_two(1024, 65536))


@dataclass(frozen=True, kw_only=True)
class DeviceConfig(_Group):
    """A whole device. ``name`` is a label for reports and does not change the hardware."""

    name: str = _parameter("custom", "for reports")
    tiles: int = _parameter(1, "tiles on the ring", _range(1, 16))
    clock_hz: float = _parameter(1.0e9, "Hz, for times in reports; the hardware does not depend on it",
                                 Rule("must be positive and finite", lambda value: math.isfinite(value) and value > 0))
    tile: TileConfig = field(default_factory=TileConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    ideal: IdealConfig = field(default_factory=IdealConfig)
    ring: RingConfig = field(default_factory=RingConfig)
    control: ControlConfig = field(default_factory=ControlConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
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
        values[key] = _build(hints[key], value, path) if dataclasses.is_dataclass(hints[key]) else value
    return cls(**values)


def _check_type(hint: Any, value: Any, path: str) -> Any:
    if hint is float and isinstance(value, Real | str) and not isinstance(value, bool):
        try:  # YAML reads 1e9 as text; every user means a number
            return float(value)
        except (ValueError, OverflowError):
            pass
    if hint is int and isinstance(value, Integral) and not isinstance(value, bool):  # numpy's, say
        return int(value)
    if hint is str and isinstance(value, bool):  # YAML reads a bare off as false
        value = "on" if value else "off"
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{path} = {value!r}: must be {hint.__name__}, not {type(value).__name__}")
    return value
