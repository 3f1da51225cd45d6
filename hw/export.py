"""Verilog of a device or of any block, and the files an FPGA project needs beside it.

Port names join the path of a signal with single underscores (``s_axil_awvalid``); a port with a layout is one vector.
"""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amaranth.back import verilog
from amaranth.lib import wiring

from . import isa, regmap
from .config import BEAT_BYTES, DeviceConfig, load
from .device import Device, Part, flat_ports

__all__ = ["TOP", "flat_ports", "to_verilog", "export_verilog", "export"]

TOP = "ringloom"
"""Name of the device's top module."""


LINT_WAIVERS = """`verilator_config
// What Verilator's -Wall says of Verilog that Amaranth and Yosys write, and why it is no fault.

// The file is named after the configuration, its top module is always the same.
lint_off -rule DECLFILENAME
// Amaranth declares every field of a layout and both ends of every connection; not each one is read.
lint_off -rule UNUSEDSIGNAL
// A register's reset value is its initial value too: FPGAs load it with the bitstream.
lint_off -rule PROCASSINIT
// Every output of a case has its default in the assignment before it.
lint_off -rule CASEINCOMPLETE
// A signal of no bits, from a size that is 1 in this configuration: [-1:0].
lint_off -rule ASCRANGE
// Operands keep their own widths and are extended by Verilog's rules; Amaranth has sized every result for that.
lint_off -rule WIDTHEXPAND -file "*" -match "Operator*"
// Of a shifted word the low part is taken on purpose (word_select, bit_select).
lint_off -rule WIDTHTRUNC -file "*" -match "Operator ASSIGN*SHIFTR generates*"
// `!` of a word: whether all its bits are zero.
lint_off -rule WIDTHTRUNC -file "*" -match "Logical operator*"
"""
"""A Verilator configuration that goes with every exported file."""


@contextmanager
def _builtin_yosys() -> Iterator[None]:
    # The Yosys of the wheel: a system's own may be too old, and would make other bytes.
    before = os.environ.get("AMARANTH_USE_YOSYS")
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"
    try:
        yield
    finally:
        if before is None:
            del os.environ["AMARANTH_USE_YOSYS"]
        else:
            os.environ["AMARANTH_USE_YOSYS"] = before


def to_verilog(component: wiring.Component, name: str) -> str:
    """Verilog text of ``component`` and all below it; its top module is called ``name``.

    The order of some declarations follows ``PYTHONHASHSEED``; :func:`export_verilog` fixes it.
    """
    from amaranth.hdl._ir import PortDirection  # what convert() itself makes of a signature

    ports = {port: (value, PortDirection.Input if flow == wiring.In else PortDirection.Output)
             for port, (value, flow) in flat_ports(component).items() if len(value)}
    with _builtin_yosys():
        return verilog.convert(component, name, ports=ports, emit_src=False, strip_internal_attrs=True)


def export_verilog(config: DeviceConfig) -> str:
    """Verilog text of the whole device: the same bytes for the same hardware, in every process.

    One tile stands inside the top. Several are converted once: the top joins module ``ringloom_shell`` and instances
    of module ``ringloom_tile``, whose borders no combinational path crosses. Each conversion runs in a process of its
    own with ``PYTHONHASHSEED=0``.
    Raises ``RuntimeError`` with the other process's message where it fails.
    """
    names = [TOP] if config.tiles == 1 else [TOP, *(part.value for part in Part)]
    with ThreadPoolExecutor() as pool:
        return "".join(pool.map(lambda name: _converted(config, name), names))


def _converted(config: DeviceConfig, name: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    tree = config.to_dict()
    done = subprocess.run([sys.executable, "-m", "ringloom.hw.export", name], input=json.dumps(tree), env=environment,
                          capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"the conversion of configuration {config.name!r} to Verilog failed:\n{done.stderr}")
    return done.stdout


def export(config: DeviceConfig, out: Path) -> list[Path]:
    """Write a device for an FPGA project into folder ``out``.

    NAME.v, NAME.f (the list of files), NAME.vlt (waivers for Verilator's lint), NAME_registers.json (the register
    map) and NAME.h (registers and command records for C), NAME being the configuration's. Returns their paths.
    """
    out.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W", "_", config.name)
    texts = {
        f"{name}.v": f"// Ringloom {config.name}, hardware {config.hardware_hash()}; top module {TOP}\n"
                     + export_verilog(config),
        f"{name}.f": f"{name}.v\n",
        f"{name}.vlt": LINT_WAIVERS,
        f"{name}_registers.json": json.dumps(register_map(config), indent=1) + "\n",
        f"{name}.h": c_header(config),
    }
    for file, text in texts.items():
        (out / file).write_text(text, encoding="utf-8")
    return [out / file for file in texts]


def _registers(config: DeviceConfig) -> Iterator[tuple[str, int, regmap.Register]]:
    for register in regmap.CONTROL:
        yield register.name, regmap.control_register(register.name), register
    if config.control.kind == "firmware":
        for register in regmap.MAILBOX:
            yield f"mailbox_{register.name}", regmap.mailbox_register(register.name), register
        for queue in range(config.control.queues):
            for register in regmap.QUEUE:
                yield f"queue{queue}_{register.name}", regmap.queue_register(queue, register.name), register
    for tile in range(config.tiles):
        for register in regmap.TILE:
            yield f"tile{tile}_{register.name}", regmap.tile_register(tile, register.name), register


def register_map(config: DeviceConfig) -> dict[str, Any]:
    """The register map of a device as plain values: byte addresses, bits, access, meaning."""
    return {
        "name": config.name, "version": regmap.REGMAP_VERSION, "hardware": config.hardware_hash(),
        "address_bits": regmap.ADDRESS_BITS, "data_bits": 32,
        "registers": [{"name": name, "address": address, "bits": register.bits, "access": register.access.name,
                       "doc": register.doc} for name, address, register in _registers(config)],
    }


def c_header(config: DeviceConfig) -> str:
    """Registers, command records and enumerations as C macros. Places of fields are bits from the record's start."""
    text = io.StringIO()
    guard = "RINGLOOM_" + re.sub(r"\W", "_", config.name).upper() + "_H"

    def define(name: str, value: int, note: str = "", style: str = "d") -> None:
        digits = f"0x{value:05x}" if style == "x" else str(value)
        text.write(f"#define RL_{name.upper()} {digits}{f'  /* {note} */' if note else ''}\n")

    text.write(f"/* Ringloom {config.name}, generated from hw/isa.py and hw/regmap.py. */\n")
    text.write(f"#ifndef {guard}\n#define {guard}\n\n")
    for name, value in (("tiles", config.tiles), ("rows", config.tile.array.rows),
                        ("columns", config.tile.array.columns), ("beat_bytes", BEAT_BYTES),
                        ("memory_bytes", config.memory.bytes), ("isa_version", isa.VERSION),
                        ("regmap_version", regmap.REGMAP_VERSION), ("record_bytes", isa.RECORD_BYTES)):
        define(name, value)
    text.write("\n/* Registers: byte addresses */\n")
    for name, address, register in _registers(config):
        define(f"reg_{name}", address, register.access.name, "x")
    for record in isa.RECORDS:
        text.write(f"\n/* {record.name}: {record.bytes} bytes */\n")
        for field in record.fields:
            define(f"{record.name}_{field.name}_bit", field.offset)
            define(f"{record.name}_{field.name}_bits", field.bits, "signed" if field.signed else "")
    firmware = (regmap.QueueStatus, regmap.QueueCommand, regmap.Request, regmap.SelfTest, regmap.Test)
    for members in (isa.Opcode, isa.Target, isa.Rounding, isa.Collective, isa.Status, isa.Code,
                    *(firmware if config.control.kind == "firmware" else ())):
        text.write(f"\n/* {members.__name__} */\n")
        for member in members:
            define(f"{members.__name__}_{member.name}", member.value)
    text.write(f"\n#endif /* {guard} */\n")
    return text.getvalue()


def _main(name: str) -> None:
    config = load(DeviceConfig(), json.load(sys.stdin))
    device = Device(config=config, instances=config.tiles > 1)
    sys.stdout.write(to_verilog(device if name == TOP else device.part(Part(name)), name))


if __name__ == "__main__":
    _main(sys.argv[1])
