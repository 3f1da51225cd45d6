"""The exported files: the same bytes each time, clean under Verilator's -Wall, and compiled by Icarus."""

import enum
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ringloom.hw import isa, regmap
from ringloom.hw.config import load, presets
from ringloom.hw.export import TOP, export, flat_ports, to_verilog
from ringloom.hw.tensor.requantizer import Requantizer
from ringloom.sim.verilated.build import scopes, top_ports
from ringloom.sim.verilated.toolchain import find_verilator
from tests.support.cocotb_runner import icarus_on_path

# Presets that are the same hardware are checked once.
HARDWARE = {load(name).hardware_hash(): name for name in presets()}


@pytest.fixture(scope="module", params=sorted(HARDWARE.values()))
def exported(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("export")
    return load(request.param), export(load(request.param), out)


def test_files(exported):
    config, files = exported
    name = config.name
    assert [file.name for file in files] == [f"{name}.v", f"{name}.f", f"{name}.vlt", f"{name}_registers.json",
                                               f"{name}.h"]
    verilog = files[0].read_text()
    ports = top_ports(verilog)
    assert {"clk", "rst", "irq", "s_axil_awvalid", "s_axil_rdata", "s_axi_wdata", "s_axi_rlast"} <= set(ports)
    assert ports["s_axi_wdata"] == ports["storage0_0_read_data"] == 256 and ports["s_axil_wdata"] == 32
    assert len([port for port in ports if re.fullmatch(r"storage0_\d+_enable", port)]) == config.ports
    assert not [port for port in ports if "__" in port]
    blocks = scopes(verilog)
    assert {"tile0.control", "tile0.load", "tile0.tensor.array", "tile0.store"} <= set(blocks)
    assert not [block for block in blocks if "$" in block], "a submodule shares its name with a signal"
    assert str(files[0].parent) not in verilog and "/" + "work" not in verilog  # nothing of this machine
    assert files[1].read_text().split() == [files[0].name]
    registers = {r["name"]: r for r in json.loads(files[3].read_text())["registers"]}
    assert registers["doorbell"]["address"] == regmap.control_register("doorbell")
    assert registers["tile0_job_low"]["address"] == regmap.tile_register(0, "job_low")
    assert registers["tile0_job_low"]["access"] == "RW"


def test_lint_is_clean(exported, tmp_path):
    _, files = exported
    verilator = find_verilator(tmp_path)
    done = subprocess.run([verilator.binary, "--lint-only", "-Wall", "--top-module", TOP, files[2], files[0]],
                          env={**os.environ, "VERILATOR_ROOT": str(verilator.root)}, capture_output=True, text=True)
    assert done.returncode == 0 and "%Warning" not in done.stderr, done.stderr[-4000:]


def test_icarus_compiles(exported, tmp_path):
    _, files = exported
    icarus_on_path()
    done = subprocess.run(["iverilog", "-Wall", "-Wno-timescale", "-g2005", "-s", TOP, "-o", tmp_path / "out.vvp",
                           files[0]], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr[-4000:]


def test_same_bytes_in_processes_with_other_hash_seeds(tmp_path):
    texts = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        code = ("import sys; from pathlib import Path; from ringloom.hw.config import load; "
                "from ringloom.hw.export import export; export(load('tiny'), Path(sys.argv[1]))")
        subprocess.run([sys.executable, "-c", code, out], env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
        texts.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert texts[0] == texts[1] and len(texts[0]) == 5


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on PATH to read the header with")
def test_c_header_compiles_and_agrees(exported, tmp_path):
    config, files = exported
    field = next(f for f in isa.LOAD.fields if f.name == "row_stride")
    checks = {"RL_REG_DOORBELL": regmap.control_register("doorbell"), "RL_ROWS": config.tile.array.rows,
              "RL_REG_TILE0_STATUS": regmap.tile_register(0, "status"), "RL_LOAD_ROW_STRIDE_BIT": field.offset,
              "RL_LOAD_ROW_STRIDE_BITS": field.bits, "RL_OPCODE_STORE": isa.Opcode.STORE.value,
              "RL_CODE_WATCHDOG": isa.Code.WATCHDOG.value}
    enums = [members for module in (isa, regmap) for members in vars(module).values()
             if isinstance(members, enum.EnumType) and members.__module__ == module.__name__]
    enums.remove(regmap.Access)  # Of the table itself, not of anything a register holds.
    assert isa.Collective in enums and regmap.QueueStatus in enums
    checks |= {f"RL_{members.__name__.upper()}_{member.name}": member.value for members in enums for member in members}
    source = tmp_path / "check.c"
    source.write_text(f'#include "{files[4]}"\n' + "".join(
        f"_Static_assert({name} == {value}, \"{name}\");\n" for name, value in checks.items()))
    done = subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-c", source, "-o", tmp_path / "check.o"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_ports_of_a_block():
    verilog = to_verilog(Requantizer(lanes=2), "requantizer")
    ports = top_ports(verilog, "requantizer")
    assert ports["i_valid"] == 1 and ports["o"] == 16 and {"clk", "rst"} <= set(ports)


def test_ports_of_one_name_are_refused():
    clash = wiring.Signature({"a_b": In(1), "a": Out(wiring.Signature({"b": Out(1)}))}).create()
    with pytest.raises(ValueError, match="two ports of PureInterface are both called 'a_b'"):
        flat_ports(clash)
