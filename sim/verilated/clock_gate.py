"""Lets a simulator skip blocks that stand still.

A block below an ``EnableInserter`` has an input ``clock_enable``, low while its registers keep their values. Its next
states would be computed all the same. Here such a block gets a clock of its own that stops with the enable, and the
enable is a constant inside: Verilator then computes nothing of it in a cycle in which its clock stands.
"""

import re

__all__ = ["gated_clocks"]

ENABLE = "clock_enable"
"""Name of the enable, in the module that makes it and in every module below."""

# A latch, open while the clock is low, keeps the enable through the high phase, where its inputs change. Reset must
# reach registers that stand still.
_GATE = f"""
  reg _s_gate_open = 0;
  wire _s_gate_clk;
  always @* if (!clk) _s_gate_open = {ENABLE} | rst;
  assign _s_gate_clk = clk & _s_gate_open;
"""
_INSTANCE = re.compile(r"^  \\?\S+ +\\?\S+ +\(\n(?:    \..*\n)+  \);\n", re.MULTILINE)


def gated_clocks(verilog: str) -> str:
    """The same design, cycle for cycle, with gated clocks where a ``clock_enable`` is made."""
    return "".join(_gate(module) for module in re.split(r"(?<=^endmodule\n)", verilog, flags=re.MULTILINE))


def _gate(module: str) -> str:
    if not re.search(rf"^  assign {ENABLE} = ", module, re.MULTILINE):
        return module

    def instance(found: re.Match[str]) -> str:
        if f".{ENABLE}({ENABLE})" not in found[0]:
            return found[0]
        gated = found[0].replace(f".{ENABLE}({ENABLE})", f".{ENABLE}(1'b1)")
        return re.sub(r"\.clk\(clk\)", ".clk(_s_gate_clk)", gated)

    text = _INSTANCE.sub(instance, module)
    end = text.rindex("endmodule")
    return text[:end] + _GATE.lstrip("\n") + text[end:]
