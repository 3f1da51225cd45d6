"""Waveform files: the same names and times from every simulator, cut to blocks and cycles."""

import difflib
import re
from collections.abc import Sequence
from typing import TextIO

__all__ = ["CYCLE_PS", "block_error", "cut_vcd"]

CYCLE_PS = 1000
"""Picoseconds of a cycle in a VCD file: edge n, counted from 1 as ``Simulator.cycle`` does, is at n * 1000."""


def block_error(block: str, known: Sequence[str]) -> ValueError:
    """What is raised for a block the design does not have."""
    near = difflib.get_close_matches(block, known, 3)
    shown = near or sorted(known, key=lambda name: (name.count("."), name))[:12]
    return ValueError(f"no block {block!r} to record; {'did you mean' if near else 'there are'} {', '.join(shown)}"
                      f"{'?' if near else ' ...' if len(known) > 12 else ''}")


def _inside(path: tuple[str, ...], blocks: list[tuple[str, ...]]) -> bool:
    # The top's own signals (clock, reset, interrupt, buses) are always kept.
    return not blocks or not path or any(path[:len(block)] == block for block in blocks)


def cut_vcd(raw: TextIO, final: TextIO, *, root: tuple[str, ...], blocks: Sequence[str], start: int,
            stop: int | None) -> None:
    """Copy what was asked for from a VCD file that Amaranth wrote, as Verilator's would show it.

    root: scopes above and including the top; the last one stays. blocks: names below the top; none: all.
    start, stop: first cycle, and first cycle behind the last, by ``Simulator.cycle``. Rows of memories are left out.
    """
    raw.seek(0)
    wanted = [tuple(block.split(".")) for block in blocks]
    kept: set[str] = set()
    final.write(f"$timescale 1 ps $end\n$scope module {root[-1]} $end\n")
    path: list[str] = []
    names: set[str] = set()
    open_scopes: list[str] = []  # scopes below the top that the new file is in
    for line in raw:
        words = line.split()
        if words[:1] == ["$scope"]:
            path.append(words[2])
            names = set()
        elif words[:1] == ["$upscope"]:
            path.pop()
        elif words[:1] == ["$var"]:
            inner, name = tuple(path[len(root):]), words[4]
            names.add(name)
            row = re.match(r"\\(.*?)[\[.]", name)
            if tuple(path[:len(root)]) != root or not _inside(inner, wanted) or (row and row[1] not in names):
                continue
            while open_scopes != list(inner[:len(open_scopes)]):
                open_scopes.pop()
                final.write("$upscope $end\n")
            for scope in inner[len(open_scopes):]:
                open_scopes.append(scope)
                final.write(f"$scope module {scope} $end\n")
            final.write(line)
            kept.add(words[3])
        elif words[:1] == ["$enddefinitions"]:
            break
    final.write("$upscope $end\n" * (len(open_scopes) + 1) + "$enddefinitions $end\n")
    _cut_changes(raw, final, kept, start * CYCLE_PS, None if stop is None else stop * CYCLE_PS)


def _cut_changes(raw: TextIO, final: TextIO, kept: set[str], first: int, last: int | None) -> None:
    values: dict[str, str] = {}
    started = False
    time = 0

    def begin() -> None:
        final.write(f"#{first}\n$dumpvars\n" + "".join(values.values()) + "$end\n")

    for line in raw:
        if line.startswith("#"):
            time = int(line[1:]) // 1000  # Amaranth counts femtoseconds
            if last is not None and time >= last:
                break
            if time > first:
                if not started:
                    begin()
                    started = True
                final.write(f"#{time}\n")
        elif not line.startswith("$") and line.strip():
            identifier = line.split()[-1] if line[0] in "bBrRs" else line[1:].strip()
            if identifier in kept:
                values[identifier] = line
                if started:
                    final.write(line)
    if not started:
        begin()
