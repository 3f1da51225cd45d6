"""The firmware's image: C and start-up code through the ``ziglang`` wheel's clang, cached by content.

``python -m ringloom.firmware.build [PRESET]`` builds one and prints its size.
"""

import importlib.metadata
import os
import struct
import subprocess
import sys
from pathlib import Path

from ringloom.hw import regmap
from ringloom.hw.config import BEAT_BYTES, DeviceConfig, load
from ringloom.hw.control.core import mailbox, sweep
from ringloom.hw.control.core.bus import REGION_SHIFT
from ringloom.hw.control.core.management import REGIONS
from ringloom.hw.control.core.queues import PORT, RESULT_STRIDE
from ringloom.hw.export import c_header
from ringloom.hw.selftest import EXPECTED, array_test

__all__ = ["FirmwareError", "STACK_BYTES", "SELFTEST_CYCLES", "header", "image", "sources"]

STACK_BYTES = 512
"""Data memory that must be left for the stack."""
SELFTEST_CYCLES = 20_000
"""The power-on self-test has ended so many cycles after a reset."""
_MARGIN = 2000  # cycles in which the firmware tells what is wrong
_LOCATING = 2000  # cycles in which it looks where that is
_HERE = Path(__file__).parent
_FLAGS = (
    "-target", "riscv32-freestanding", "-mcpu=generic_rv32", "-O2", "-flto", "-std=c11", "-ffreestanding", "-nostdlib",
    "-static", "-fomit-frame-pointer", "-fno-stack-protector", "-fno-sanitize=undefined", "-ffunction-sections",
    "-fdata-sections", "-mno-relax", "-Wall", "-Wextra", "-Werror", "-Wl,--gc-sections")


class FirmwareError(RuntimeError):
    """The firmware does not build or does not fit; the message says what to do."""


def sources() -> list[Path]:
    """Everything an image is made of but the generated header."""
    return [_HERE / "link.ld", _HERE / "start.S", *sorted((_HERE / "src").iterdir())]


def header(config: DeviceConfig) -> str:
    """``ringloom.h``: the device's registers, records and codes, and the management core's own view of it."""
    lines = [f"#define RL_QUEUES {config.control.queues}", f"#define RL_TILE_STRIDE {regmap.TILE_STRIDE}",
             f"#define RL_QUEUE_STRIDE {regmap.QUEUE_STRIDE}", f"#define RL_PORT_RESULT_STRIDE {RESULT_STRIDE}"]
    lines += [f"#define RL_REGION_{name.upper()} 0x{number << REGION_SHIFT:08x}u" for name, number in REGIONS.items()]
    for unit, addresses in (("PORT", PORT), ("SWEEP", sweep.PORT), ("MAILBOX", mailbox.PORT)):
        lines += [f"#define RL_{unit}_{name.upper()} 0x{address:03x}" for name, address in addresses.items()]
    for members in (sweep.SweepCommand, sweep.SweepStatus):
        lines += [f"#define RL_{members.__name__.upper()}_{member.name} {member.value}" for member in members]
    lines += _selftest(config)
    return c_header(config) + "\n/* The management core's view */\n" + "\n".join(lines) + "\n"


def _selftest(config: DeviceConfig) -> list[str]:
    """The job that tests the array, and how long the power-on self-test may take."""
    test = array_test(config)
    slowest = config.ideal.patience_cycles if config.memory.kind == "ideal" else 750
    patience = 1000 + 4 * slowest
    values = {"ADDRESS_BITS": config.address_bits, "RESULTS": test.results, "ROW_BYTES": test.row_bytes,
              "WORDS": len(test.image) // 4, "ADDRESSES": len(test.addresses), "PORTS": config.ports,
              "SIZE": test.size, "PATIENCE": patience,
              "INTERLEAVE_SHIFT": config.memory.interleave_bytes.bit_length() - 1,
              "LINES": (config.memory.bytes // BEAT_BYTES).bit_length() - 1,
              "MEMORY_SHIFT": config.memory.bytes.bit_length() - 1, "END": SELFTEST_CYCLES - _MARGIN - _LOCATING,
              "LAST": SELFTEST_CYCLES - _MARGIN}
    lines = [f"#define RL_SELFTEST_{name} {value}" for name, value in values.items()]
    words = struct.unpack(f"<{len(test.image) // 4}I", test.image)
    lists = {"IMAGE": (f"0x{word:08x}" for word in words), "IMAGE_ADDRESSES": map(str, test.addresses),
             "EXPECTED": map(str, EXPECTED)}
    return lines + [f"#define RL_SELFTEST_{name} {', '.join(items)}" for name, items in lists.items()]


def image(config: DeviceConfig) -> list[int]:
    """Words of code memory for ``config``, built where the cache has none.

    Raises :class:`FirmwareError` where the compiler fails or the image does not fit ``control.code_bytes`` and
    ``control.data_bytes`` with :data:`STACK_BYTES` left.
    """
    from ringloom.sim.verilated.cache import Cache, cache_folder, digest

    text = header(config)
    key = digest(text, str(config.control.data_bytes), importlib.metadata.version("ziglang"),
                 Path(__file__).read_bytes(), *(part for path in sources() for part in (path.name, path.read_bytes())))

    def make(scratch: Path) -> Path:
        (scratch / "ringloom.h").write_text(text)
        elf = scratch / "firmware.elf"
        units = [str(path) for path in sources() if path.suffix in (".c", ".S")]
        data = REGIONS["data"] << REGION_SHIFT
        cache = str(cache_folder() / "zig")
        done = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", *_FLAGS, f"-I{scratch}", f"-I{_HERE / 'src'}", "-T",
             str(_HERE / "link.ld"), f"-DSTACK_TOP={data + config.control.data_bytes}", "-o", str(elf),
             *units],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache})
        if done.returncode:
            raise FirmwareError(f"the firmware does not compile:\n{done.stdout[-4000:]}")
        return elf

    elf = Cache(cache_folder()).get(f"{key}.elf", make).read_bytes()
    code, variables = _load(elf)
    limit = config.control.code_bytes
    if len(code) > limit:
        raise FirmwareError(f"the firmware has {len(code)} bytes, control.code_bytes = {limit}: raise it")
    if variables + STACK_BYTES > config.control.data_bytes:
        raise FirmwareError(f"the firmware has {variables} bytes of variables and {STACK_BYTES} of stack, "
                            f"control.data_bytes = {config.control.data_bytes}: raise it")
    code += bytes(-len(code) % 4)
    return list(struct.unpack(f"<{len(code) // 4}I", code))


def _load(elf: bytes) -> tuple[bytes, int]:
    """What goes into code memory, and the bytes of data memory that variables take, from an ELF32 file's segments."""
    if elf[:5] != b"\x7fELF\x01":
        raise FirmwareError("the compiler wrote no ELF32 file")
    offset, = struct.unpack_from("<I", elf, 28)
    size, count = struct.unpack_from("<HH", elf, 42)
    code, variables = bytearray(), 0
    for i in range(count):
        kind, at, virtual, physical, stored, total = struct.unpack_from("<6I", elf, offset + i * size)
        if kind != 1 or not total:
            continue
        if physical >> REGION_SHIFT == REGIONS["code"] and stored:
            code += bytes(max(0, physical + stored - len(code)))
            code[physical:physical + stored] = elf[at:at + stored]
        if virtual >> REGION_SHIFT == REGIONS["data"]:
            variables = max(variables, virtual + total - (REGIONS["data"] << REGION_SHIFT))
    return bytes(code), variables


def main() -> None:
    config = load(sys.argv[1] if len(sys.argv) > 1 else "inference", {"control.kind": "firmware"})
    words = image(config)
    print(f"firmware of {config.name}: {4 * len(words)} of {config.control.code_bytes} bytes of code")


if __name__ == "__main__":
    main()
