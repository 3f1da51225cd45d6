"""March test of device memory through the AXI4 window, for devices whose hardware cannot do it alone."""

from typing import TYPE_CHECKING

import numpy as np

from ringloom.hw.config import BEAT_BYTES

if TYPE_CHECKING:
    from .device import Device

__all__ = ["march", "walk"]

_PATTERN = 0x55555555
_CHUNK = 4096  # bytes of one burst
_Wrong = tuple[str, int, int, int]


def _write(device: "Device", address: int, words: np.ndarray) -> None:
    with device._bus():
        device.simulator.axi_write(address, words.astype("<u4").tobytes())


def _check(device: "Device", test: str, address: int, words: np.ndarray) -> _Wrong | None:
    """(test, address, expected, found) of the first word that is not as expected."""
    with device._bus():
        found = np.frombuffer(device.simulator.axi_read(address, 4 * words.size), "<u4")
    wrong = np.flatnonzero(found != words)
    return (test, address + 4 * int(wrong[0]), int(words[wrong[0]]), int(found[wrong[0]])) if wrong.size else None


def march(device: "Device", first: int, beats: int) -> _Wrong | None:
    """MATS+, burst by burst, and zeros at the end: write; read, write the complement; the same downwards; read."""
    start, end = first * BEAT_BYTES, (first + beats) * BEAT_BYTES
    chunks = [(at, np.full(min(_CHUNK, end - at) // 4, _PATTERN, np.uint32)) for at in range(start, end, _CHUNK)]
    for at, words in chunks:
        _write(device, at, words)
    for order, flip in ((chunks, 0), (chunks[::-1], 0xFFFFFFFF)):
        for at, words in order:
            if wrong := _check(device, "memory", at, words ^ np.uint32(flip)):
                return wrong
            _write(device, at, words ^ np.uint32(flip ^ 0xFFFFFFFF))
    for at, words in chunks:
        if wrong := _check(device, "memory", at, words):
            return wrong
        _write(device, at, np.zeros_like(words))
    return None


def walk(device: "Device", walks: list[list[int]]) -> _Wrong | None:
    """Each beat of a walk holds its own number."""
    for addresses in walks:
        beats = [(at, np.full(BEAT_BYTES // 4, at // BEAT_BYTES & 0xFFFFFFFF, np.uint32)) for at in addresses]
        for at, words in beats:
            _write(device, at, words)
        for at, words in beats:
            if wrong := _check(device, "address", at, words):
                return wrong
            _write(device, at, np.zeros_like(words))
    return None
