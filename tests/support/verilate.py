"""One block under Verilator with a C++ driver of its own, as a library for ctypes, built once for each content."""

import ctypes
from pathlib import Path

from amaranth.lib import wiring

from ringloom.hw.export import to_verilog
from ringloom.sim.verilated.cache import Cache, cache_folder, digest
from ringloom.sim.verilated.toolchain import find_compiler, find_verilator, run

_VERILATOR_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing", "-Wno-lint",
                    "-Wno-style", "-Wno-fatal")
_CXX_FLAGS = ("-std=gnu++20", "-O2", "-fPIC", "-w", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0",
              "-DVM_TRACE=0")


def verilate(component: wiring.Component, driver: Path, *, include: tuple[Path, ...] = (),
             libraries: tuple[Path, ...] = ()) -> ctypes.CDLL:
    """The library of ``driver`` (C++ that includes ``Vtop.h``) and the Verilator model of ``component``.

    include: more folders of headers. libraries: shared libraries to link, found again where they lie.
    """
    cache = Cache(cache_folder())
    verilator = find_verilator(cache.folder / "tools")
    compiler = find_compiler(cache.folder / "zig")
    verilog = to_verilog(component, "top")
    key = digest(verilog, driver.read_bytes(), Path(__file__).read_bytes(), verilator.identity, compiler.identity)
    headers = [f"-I{path}" for path in (*include, verilator.include, verilator.include / "vltstd")]

    def build(scratch: Path) -> Path:
        (scratch / "top.v").write_text(verilog)
        generated = scratch / "obj"
        run([str(verilator.binary), "--cc", "--prefix", "Vtop", "--top-module", "top", "--Mdir", str(generated),
             *_VERILATOR_FLAGS, str(scratch / "top.v")], what="verilator",
            environment={"VERILATOR_ROOT": str(verilator.root)})
        sources = [driver, *sorted(generated.glob("*.cpp"))]
        (scratch / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources))
        objects = [scratch / "all.o"]
        run([*compiler.command, "-c", *_CXX_FLAGS, f"-I{generated}", *headers, "-o", str(objects[0]),
             str(scratch / "all.cpp")], what="the C++ compiler", environment=compiler.environment)
        for name in ("verilated", "verilated_threads"):
            def runtime(scratch: Path, name: str = name) -> Path:
                run([*compiler.command, "-c", *_CXX_FLAGS, *headers, "-o", str(scratch / "out.o"),
                     str(verilator.include / f"{name}.cpp")], what="the C++ compiler",
                    environment=compiler.environment)
                return scratch / "out.o"
            own = digest(verilator.identity, compiler.identity, *_CXX_FLAGS)
            objects.append(cache.get(f"{own}-block-{name}.o", runtime))
        linked = [part for path in libraries for part in (str(path), f"-Wl,-rpath,{path.parent}")]
        run([*compiler.command, "-shared", "-o", str(scratch / "block.so"), *map(str, objects), *linked, "-lpthread"],
            what="the linker", environment=compiler.environment)
        return scratch / "block.so"

    return ctypes.CDLL(str(cache.get(f"{key}-block.so", build)))
