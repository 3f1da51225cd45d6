"""The ``ringloom`` command. Exit status: 0 well, 1 a wrong result or a floor missed, 2 bad usage or an error."""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ringloom.hw.config import DeviceConfig, load, presets
from ringloom.numerics.reference import matmul_reference, qlinear_matmul

from . import bench as benchmarks
from . import demo as demonstration
from .buffers import real_dtype
from .device import Device, open
from .errors import DeviceFault, Error, OutOfMemoryError, ShapeError, UnsupportedError
from .parallel import MODES
from .profile import Profile

__all__ = ["main"]

_console = Console()
_messages = Console(stderr=True)


class _Group(click.Group):
    """Turns errors into one line on stderr and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (Error, AssertionError, RuntimeError, OSError, MemoryError) as error:
            if isinstance(error, click.exceptions.Exit):
                raise
            _messages.print(f"[bold red]error[/]: {_one_line(error)}", highlight=False, soft_wrap=True)
            ctx.exit(1 if isinstance(error, AssertionError) else 2)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).replace("[", r"\[") or type(error).__name__


def _pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, found, text = value.partition("=")
        if not found:
            raise click.BadParameter(f"{value!r}: give key=value, for instance tile.array.rows=8")
        pairs[key.strip()] = text
    return pairs


def _options(*, waves: bool = False, sim: bool = True, config: str = "inference") -> Callable:
    """The options that every command shares."""
    options = [
        click.option("--config", default=config, show_default=True, help="Preset name or YAML file."),
        click.option("--set", "overrides", multiple=True, callback=_pairs, metavar="KEY=VALUE",
                     help="Override a configuration key, for instance tile.array.rows=8. Repeatable."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
    ]
    if sim:
        options.append(click.option("--sim", default="verilated", show_default=True,
                                    help="Simulator: verilated, python or functional."))
    if waves:
        options.append(click.option("--waves", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.vcd",
                                    help="Record the signals of the run."))

    def decorate(function: Callable) -> Callable:
        return functools.reduce(lambda f, option: option(f), reversed(options), function)

    return decorate


def _tell(text: str) -> None:
    _messages.print(f"[dim]{text} ...[/]", highlight=False)


def _emit(as_json: bool, tree: Any, *shown: Any) -> None:
    if as_json:
        click.echo(json.dumps(tree, indent=1))
    else:
        for part in shown:
            _console.print(part)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ringloom")
def main() -> None:
    """Offload quantized matmuls to a simulated AI accelerator, exact to the bit."""


@main.command("presets")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def presets_command(as_json: bool) -> None:
    """List the built-in configurations."""
    configs = {name: load(name) for name in presets()}
    table = Table("preset", "tiles", "array", "scratchpads", "accumulators", "memory", "B/cycle", title="presets",
                  title_justify="left")
    for name, c in configs.items():
        pads = c.tile.scratchpad
        table.add_row(name, str(c.tiles), f"{c.tile.array.rows}x{c.tile.array.columns}",
                      f"{pads.activation_bytes >> 10} + {pads.weight_bytes >> 10} KiB",
                      f"{c.tile.accumulator.bytes >> 10} KiB", f"{_memory(c)}, {c.memory.bytes >> 20} MiB",
                      str(c.peak_bytes_per_cycle))
    _emit(as_json, {name: c.to_dict() for name, c in configs.items()}, table)


def _memory(config: DeviceConfig) -> str:
    memory = config.memory
    return f"{memory.pseudo_channels} x {memory.timing}" if memory.kind == "hbm" else memory.kind


def _draw(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


@contextlib.contextmanager
def _recorded(device: Device, waves: Path | None) -> Iterator[None]:
    with device.waves(waves) if waves else contextlib.nullcontext():
        yield


def _load_array(path: Path, name: str) -> np.ndarray:
    try:
        array = np.load(path)
    except Exception as error:  # numpy lets through what zipfile, pickle and others raise
        raise UnsupportedError(f"--{name} {path}: is no .npy file of numbers ({error}); "
                               "write one with numpy.save") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise UnsupportedError(f"--{name} {path}: holds several arrays; write one alone with numpy.save")
    if not array.ndim or not array.size:
        raise ShapeError(f"--{name} {path}: an array of shape {array.shape}; it needs axes, none of them 0")
    return real_dtype(array, name)


def _operands(config: DeviceConfig, m: int, k: int, n: int, dtype: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    need = m * k + k * n + m * n
    if need > config.memory.bytes:
        raise OutOfMemoryError(f"{m} x {k} by {k} x {n}: operands and result take {need} bytes or more, but the device "
                               f"has memory.bytes = {config.memory.bytes}; take smaller sizes or raise it with --set")
    rng = np.random.default_rng(seed)
    return _draw(rng, dtype, m, k), _draw(rng, "int8", k, n)


def _multiply(device: Device, a: np.ndarray, b: np.ndarray, *, quantized: bool, prepared: bool,
              parallel: str | None, repeat: int, waves: Path | None,
              check_memory: bool = False) -> tuple[np.ndarray, bool, Profile]:
    """Run the product; its result, whether it is right, and what it cost."""
    # a scale that spreads the sums of random operands over most of int8
    call: dict[str, Any] = {"a_scale": 0.05, "a_zero_point": 0, "b_scale": 0.02, "y_zero_point": np.int8(0),
                            "y_scale": 0.05 * 0.02 * 130 * max(1, a.shape[-1]) ** 0.5}
    weights: Any = device.put(b) if parallel is None else b  # the host places what each tile needs
    if prepared:
        weights = device.prepare(b, tiles=None)
    with device.profile(check_memory=check_memory) as profile, _recorded(device, waves):
        for _ in range(repeat):
            got = np.asarray(device.qmatmul(a, weights, parallel=parallel, **call) if quantized
                             else device.matmul(a, weights, parallel=parallel))
    want = qlinear_matmul(a, b, b_zero_point=0, **call) if quantized else matmul_reference(a, b)
    return got, bool(np.array_equal(got, want)), profile


_M_K_N = [click.argument(name, type=click.IntRange(min=1), default=size) for name, size in
          (("m", 64), ("k", 64), ("n", 64))]


def _product_options(function: Callable) -> Callable:
    for option in (click.option("--quantized", is_flag=True, help="int8 out through the requantizer, not int32."),
                   click.option("--prepared", is_flag=True, help="Pack the weights first."),
                   click.option("--parallel", type=click.Choice([*MODES, "auto"]),
                                help="Split the product over all tiles, in this way."),
                   click.option("--dtype", type=click.Choice(["int8", "uint8"]), default="int8", show_default=True,
                                help="Type of A."),
                   click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0),
                                help="Seed of the random operands."),
                   *reversed(_M_K_N)):
        function = option(function)
    return function


@main.command("matmul")
@_product_options
@click.option("--a", "a_file", type=click.Path(exists=True, path_type=Path), help="A from a .npy file.")
@click.option("--b", "b_file", type=click.Path(exists=True, path_type=Path), help="B from a .npy file.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the result to a .npy file.")
@_options(waves=True)
def matmul_command(m: int, k: int, n: int, quantized: bool, prepared: bool, parallel: str | None, dtype: str, seed: int,
                   a_file: Path | None, b_file: Path | None, out: Path | None, config: str,
                   overrides: dict[str, str], as_json: bool, sim: str, waves: Path | None) -> None:
    """Multiply M x K by K x N (64 each unless told) on the tile and check the result."""
    parsed = load(config, overrides)
    a, b = _operands(parsed, m, k, n, dtype, seed)
    a, b = _load_array(a_file, "a") if a_file else a, _load_array(b_file, "b") if b_file else b
    with open(parsed, sim=sim) as device:
        got, right, profile = _multiply(device, a, b, quantized=quantized, prepared=prepared, parallel=parallel,
                                        repeat=1, waves=waves)
    if out:
        with out.open("wb") as file:  # numpy would add .npy to another name
            np.save(file, got)
    figures = {"shape": list(got.shape), "dtype": str(got.dtype), "correct": right, "cycles": profile.cycles,
               "utilization": profile.utilization, "bottleneck": str(profile.bottleneck),
               "waves": str(waves) if waves else None}
    table = Table("figure", "value", title=f"{a.shape} @ {b.shape} on {config}, {sim}", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:.1%}" if isinstance(value, float) else str(value))
    _emit(as_json, figures, table)
    sys.exit(0 if right else 1)


@main.command("profile")
@_product_options
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(min=1), help="Jobs in the profile.")
@click.option("--check-memory", is_flag=True, help="Check the DRAM's commands against its timing set; "
              "status 1 where a rule is broken.")
@_options(waves=True)
def profile_command(m: int, k: int, n: int, quantized: bool, prepared: bool, parallel: str | None, dtype: str,
                    seed: int, repeat: int, check_memory: bool, config: str, overrides: dict[str, str],
                    as_json: bool, sim: str,
                    waves: Path | None) -> None:
    """Multiply M x K by K x N and tell where the cycles went."""
    parsed = load(config, overrides)
    a, b = _operands(parsed, m, k, n, dtype, seed)
    with open(parsed, sim=sim) as device:
        _, right, profile = _multiply(device, a, b, quantized=quantized, prepared=prepared, parallel=parallel,
                                      repeat=repeat, waves=waves, check_memory=check_memory)
    counters = Table("counter", "value", title="counters", title_justify="left")
    for name, value in profile.counters.items():
        counters.add_row(name, f"{value:,}")
    _emit(as_json, profile.to_dict() | {"correct": right}, profile.table(), counters)
    broken = profile.memory_check is not None and bool(profile.memory_check.violations)
    sys.exit(0 if right and not broken else 1)


@main.command("demo")
@_options()
@click.option("--waves", type=click.Path(path_type=Path, dir_okay=False), default=Path("ringloom_demo.vcd"),
              show_default=True, metavar="FILE.vcd", help="Where the first matmul on tiny is recorded.")
def demo_command(config: str, overrides: dict[str, str], as_json: bool, sim: str, waves: Path) -> None:
    """Classify handwritten digits on the tile: train, quantize, offload, check every int8."""
    report = demonstration.run(config, sim, overrides=overrides, waves=waves, tell=_tell)
    right = report.mismatches == 0
    figures = {
        "images": report.images, "float accuracy": report.float_accuracy, "int8 accuracy": report.int8_accuracy,
        "values checked": report.checked, "mismatches": report.mismatches, "waves": str(report.waves),
    }
    table = Table("figure", "value", title=f"digits on {config}, {sim}", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:.2%}" if isinstance(value, float) else str(value))
    table.add_row("recorded there", "the first product, on tiny")
    _emit(as_json, {name.replace(" ", "_"): value for name, value in figures.items()}
          | {"profile": report.profile.to_dict()}, report.profile.table(), table)
    sys.exit(0 if right else 1)


@main.command("selftest")
@click.option("--memory", default="all", show_default=True, metavar="BYTES",
              help="How much of each tile's memory the march goes over: bytes from its start, or all.")
@_options()
def selftest_command(memory: str, config: str, overrides: dict[str, str], as_json: bool, sim: str) -> None:
    """Test memory, arrays and ring of the device; tells what is at fault, and where. Status 1 where something is."""
    if memory != "all" and not memory.isdecimal():
        raise click.BadParameter(f"--memory {memory!r}: give a number of bytes, or all")
    parsed, first = load(config, overrides), None
    try:
        device = open(parsed, sim=sim, selftest=True)
    except DeviceFault as error:  # the rest of the device is tested all the same
        first, device = str(error), open(parsed, sim=sim, selftest=False)
    with device:
        _tell(f"testing {config}")
        report = device.selftest(memory_bytes=None if memory == "all" else int(memory))
        power_on = f"failed: {first}" if first else str(device.power_on)
    table = Table("test", "tile", "extent", "cycles", "", title=f"self-test of {config}, {sim}", title_justify="left")
    table.add_row("power-on", "", power_on, "", "[bold red]fail[/]" if first else "")
    for step in report.steps:
        table.add_row(step.test, str(step.tile), step.what, f"{step.cycles:,}",
                      "[green]pass[/]" if step.passed else "[bold red]fail[/]")
    for fault in report.faults:
        table.add_row("at fault", str(fault.tile), str(fault), "", "")
    passed = report.passed and first is None
    _emit(as_json, report.to_dict() | {"passed": passed, "power_on": power_on}, table)
    sys.exit(0 if passed else 1)


@main.command("train")
@click.option("--steps", default=10, show_default=True, type=click.IntRange(min=1))
@click.option("--images", default=512, show_default=True, type=click.IntRange(min=1), help="Size of the batch.")
@_options(config="training")
def train_command(steps: int, images: int, config: str, overrides: dict[str, str], as_json: bool, sim: str) -> None:
    """Train a digits network in integers, data parallel over the tiles; every gradient is checked."""
    from . import training
    report = training.run(config, sim, overrides=overrides, steps=steps, images=images, tell=_tell)
    figures = {"tiles": report.tiles, "first loss": report.steps[0].loss, "last loss": report.steps[-1].loss,
               "accuracy": report.accuracy, "values checked": report.checked, "mismatches": report.mismatches}
    table = Table("figure", "value", title=f"digits, {steps} steps on {config}, {sim}", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:.3f}" if isinstance(value, float) else str(value))
    _emit(as_json, {name.replace(" ", "_"): value for name, value in figures.items()}
          | {"losses": [step.loss for step in report.steps], "profile": report.profile.to_dict()},
          report.profile.table(), table)
    sys.exit(0 if report.mismatches == 0 else 1)


@main.command("export")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write to.")
@_options(sim=False)
def export_command(out: Path, config: str, overrides: dict[str, str], as_json: bool) -> None:
    """Write Verilog, the register map and a C header of a configuration."""
    from ringloom.hw.export import export
    files = [str(path) for path in export(load(config, overrides), out)]
    _emit(as_json, {"files": files}, "\n".join(files))


@main.command("bench")
@click.option("--cold/--no-cold", default=True, help="Also time first results with an empty cache (minutes).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--sim", default="verilated", show_default=True, help="Simulator: verilated or python.")
@click.option("--set", "overrides", multiple=True, callback=_pairs, metavar="KEY=VALUE",
              help="Override a configuration key. Repeatable.")
def bench_command(cold: bool, as_json: bool, sim: str, overrides: dict[str, str]) -> None:
    """Measure every floor; results are checked. Status 1 where a floor is missed."""
    figures = list(benchmarks.run(cold=cold, sim=sim, overrides=overrides, tell=_tell))
    table = Table("what", "floor", "figure", "", "detail", title="floors (inference, one tile, direct control; ideal "
                  "memory of latency 32, 64 B/cycle unless hbm2 is named)", title_justify="left")
    for figure in figures:
        floor = "" if figure.floor is None else f"{'<=' if figure.limit else '>='} {figure.floor:,g}"
        verdict = "" if figure.floor is None else ("[green]pass[/]" if figure.passed else "[bold red]fail[/]")
        table.add_row(figure.name, floor, f"{figure.value:,.2f} {figure.unit}", verdict, figure.detail)
    _emit(as_json, [figure.to_dict() for figure in figures], table)
    sys.exit(0 if all(figure.passed for figure in figures) else 1)


@main.command("memory")
@click.argument("trace", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="TRACE.csv")
@click.option("--timing", default="hbm2", show_default=True, help="Timing set, or a YAML file of one.")
@click.option("--pseudo-channels", "channels", default=1, show_default=True, help="1, 2, 4 or 8.")
@click.option("--page-policy", type=click.Choice(["open", "closed", "adaptive"]), default="open", show_default=True)
@click.option("--refresh", type=click.Choice(["per-bank", "all-bank", "off"]), default="per-bank", show_default=True)
@click.option("--saturate", is_flag=True, help="Ignore the trace's cycles and keep the queues full.")
@click.option("--set", "overrides", multiple=True, callback=_pairs, metavar="KEY=VALUE",
              help="Override a key of the configuration's memory, for instance bank_xor=true. Repeatable.")
@click.option("--dump-commands", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the command bus as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def memory_command(trace: Path, timing: str, channels: int, page_policy: str, refresh: str, saturate: bool,
                   overrides: dict[str, str], dump_commands: Path | None, as_json: bool) -> None:
    """Run a trace of 32-byte requests (cycle,op,address) on the RTL of the DRAM controller."""
    from ringloom.sim.checkers.dram import write_commands
    from ringloom.sim.memory_bench import MemoryBench
    from ringloom.sim.progress import ProgressLine

    from . import memory_bench

    requests = memory_bench.read_trace(trace)
    config = memory_bench.memory_config(timing, channels, page_policy=page_policy, refresh=refresh, **overrides)
    with ProgressLine() as progress:
        bench = MemoryBench(config, progress)
    report, result = memory_bench.measure(bench, requests, saturate=saturate)
    if dump_commands:
        write_commands(dump_commands, ((channel, command) for channel in range(config.ports)
                                       for command in result.channel_commands(channel)), config.timing)
    table = Table("figure", "value", title=f"{trace.name} on {channels} x {timing}", title_justify="left")
    table.add_row("requests", f"{report.requests:,}")
    table.add_row("cycles", f"{report.cycles:,}")
    table.add_row("bandwidth", f"{report.bandwidth_fraction:.2%} of the peak")
    table.add_row("row hits", f"{report.row_hit_rate:.2%}")
    table.add_row("read latency", f"{report.read_latency_mean:.1f} mean, {report.read_latency_p99:.0f} at 99 %")
    table.add_row("violations", str(len(report.violations)))
    for cause, share in report.loss.items():
        table.add_row("data bus in use" if cause == "data" else f"lost: {cause}", f"{share:.2%}")
    _emit(as_json, report.to_dict(), table)
    if report.violations:
        raise AssertionError(f"the DRAM's timing is broken: {report.violations[0].message}")
