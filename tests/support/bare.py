"""Presets without what surrounds a tile: for tests of one block, or of one tile on memory that answers at once."""

from typing import Any

from ringloom.hw.config import DeviceConfig, load

__all__ = ["BARE", "bare"]

BARE: dict[str, Any] = {"tiles": 1, "memory.kind": "ideal", "control.kind": "direct"}


def bare(preset: str, overrides: dict[str, Any] | None = None) -> DeviceConfig:
    """The preset with :data:`BARE`, and then with ``overrides``."""
    return load(preset, BARE | (overrides or {}))
