"""What is verilated of a device: one model, or one of all but the tiles and one of a tile, of which there are many.

Yosys and Amaranth write a port's direction and bits, a module's path, each in one way; that is what is read here.
"""

import re
from dataclasses import dataclass

from ringloom.hw.device import Part
from ringloom.hw.export import TOP

from .toolchain import BuildError

__all__ = ["Model", "models", "tiles", "scopes", "top_ports", "ports_header", "state_header", "registered_reset"]


@dataclass(frozen=True)
class Model:
    """``prefix`` names its C++ classes and files, ``top`` its module, ``members`` the macro that lists its state."""

    prefix: str
    top: str
    members: str = "RL_MEMBERS"


_WHOLE = (Model("Vringloom", TOP),)
_SPLIT = (Model("Vringloom", Part.SHELL.value), Model("Vtile", Part.TILE.value, "RL_TILE_MEMBERS"))


def models(verilog: str) -> tuple[Model, ...]:
    """The models of a design."""
    return _SPLIT if re.search(rf"^module {Part.TILE.value}\(", verilog, re.MULTILINE) else _WHOLE


def _module(verilog: str, top: str) -> re.Match[str]:
    found = re.search(rf"^module {re.escape(top)}\(.*?^endmodule", verilog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise BuildError(f"no module {top!r} in the Verilog")
    return found


def _directions(verilog: str, top: str) -> dict[str, tuple[str, int]]:
    found = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", _module(verilog, top)[0], re.MULTILINE)
    return {name: (direction, int(high or 0) + 1) for direction, high, name in found}


def top_ports(verilog: str, top: str = TOP) -> dict[str, int]:
    """Port name to bits of module ``top``, read from text that Yosys wrote."""
    return {name: bits for name, (_, bits) in _directions(verilog, top).items()}


def _storage(verilog: str, top: str, pattern: str) -> list[tuple[int, ...]]:
    matches = (re.fullmatch(pattern, name) for name in top_ports(verilog, top))
    return sorted(tuple(map(int, match.groups())) for match in matches if match)


def tiles(verilog: str) -> int:
    """Tiles of the design; a block alone has none."""
    return max((tile + 1 for tile, _ in _storage(verilog, TOP, r"storage(\d+)_(\d+)_enable")), default=0)


def scopes(verilog: str, top: str = TOP) -> list[str]:
    """Hierarchical names of the blocks below ``top``: Amaranth names a module by its path."""
    def below(module: str) -> list[str]:
        return re.findall(rf"^module \\{re.escape(module)}\.(\S+) \(", verilog, re.MULTILINE)

    if models(verilog) is _WHOLE or top != TOP:
        return below(top)
    parts = {"shell": below(Part.SHELL.value)}
    parts |= dict.fromkeys((f"tile{t}" for t in range(tiles(verilog))), below(Part.TILE.value))
    return [name for part, blocks in parts.items() for name in (part, *(f"{part}.{block}" for block in blocks))]


def ports_header(verilog: str) -> str:
    """What the harness must know of the ports: storage, and what joins the models."""
    count = tiles(verilog)
    if models(verilog) is _WHOLE:
        storage = _storage(verilog, TOP, r"storage(\d+)_(\d+)_enable")
        calls = " ".join(f"X({i}, {tile}, storage{tile}_{port}_)" for i, (tile, port) in enumerate(storage))
        return (f"#define RL_SPLIT 0\n#define RL_TILES {count}\n#define RL_STORAGE(X) {calls}\n"
                f"#define RL_COMMANDS {int('storage0_0_commands' in top_ports(verilog))}\n")
    storage = _storage(verilog, Part.TILE.value, r"storage_(\d+)_enable")
    calls = " ".join(f"X({port}, storage_{port}_)" for port, in storage)
    shell, wires = top_ports(verilog, Part.SHELL.value), {"input": [""], "output": [""]}
    for name, (direction, _) in _directions(verilog, Part.TILE.value).items():
        suffix = re.sub(r"^control_", "", name)
        wires[direction] += [f"X({t}, tile{t}_{suffix}, {name})" for t in range(count) if f"tile{t}_{suffix}" in shell]
    return (f"#define RL_SPLIT 1\n#define RL_TILES {count}\n#define RL_PORTS {len(storage)}\n"
            f"#define RL_STORAGE(X) {calls}\n"
            f"#define RL_COMMANDS {int('storage_0_commands' in top_ports(verilog, Part.TILE.value))}\n"
            f"#define RL_TO_TILES(X) {' '.join(wires['input'])}\n#define RL_TO_SHELL(X) {' '.join(wires['output'])}\n")


def state_header(root: str, model: Model) -> str:
    """Names of everything a model stores, from the header of its root: a macro that calls X(name) for each."""
    ports = re.findall(r"^\s*VL_(?:IN|OUT)(?:8|16|64|W)?\(&?(\w+),", root, re.MULTILINE)
    data = re.findall(r"^\s*(?:[CSIQ]Data|VlWide<|VlUnpacked<)[^;(]*?(\w+);", root, re.MULTILINE)
    members = [name for name in (*ports, *data) if not name.startswith("__V")]
    return f"#define {model.members}(X) " + " ".join(f"X({name})" for name in members) + "\n"


def registered_reset(verilog: str, top: str) -> str:
    """Let the reset of a module come from a register with a clock of its own, ``rst_set``.

    Amaranth's next states depend on the reset; were it an input, Verilator would compute them all again for every
    change of any input.
    """
    found = _module(verilog, top)
    body = re.sub(r"(module [^;]*?)\brst\b", r"\1rst_in, rst_set", found[0], count=1)
    body = body.replace("  input rst;\n  wire rst;\n",
                        "  input rst_in, rst_set;\n  reg rst;\n  always @(posedge rst_set) rst <= rst_in;\n")
    return verilog[:found.start()] + body + verilog[found.end():]
