"""The register map by name: ``regs.control.doorbell = 1``, ``regs.tile0.status``."""

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np

from ringloom.hw.regmap import (
    CONTROL,
    MAILBOX,
    MAILBOX_BASE,
    QUEUE,
    QUEUE_BASE,
    QUEUE_STRIDE,
    TILE,
    TILE_BASE,
    TILE_STRIDE,
    Access,
    Register,
)

from .errors import UnsupportedError

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Registers", "RegisterBlock"]


class _NoRegister(UnsupportedError, AttributeError):
    """A name that the register map does not have."""


class RegisterBlock:
    """Registers of one block as attributes; reading and writing takes simulated time on the AXI4-Lite bus."""

    _device: "Device"
    _name: str
    _base: int
    _registers: dict[str, Register]

    def __init__(self, device: "Device", name: str, base: int, registers: tuple[Register, ...]) -> None:
        fields = {"_device": device, "_name": name, "_base": base, "_registers": {r.name: r for r in registers}}
        self.__dict__.update(fields)

    def __dir__(self) -> list[str]:
        return list(self._registers)

    def _find(self, name: str) -> Register:
        register = self._registers.get(name)
        if register is None:
            near = difflib.get_close_matches(name, self._registers, 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise _NoRegister(f"{self._name} has no register {name!r}{hint}")
        return register

    def __getattr__(self, name: str) -> int:
        return self._device._read(self._base + self._find(name).address)

    def __setattr__(self, name: str, value: int) -> None:
        register = self._find(name)
        if register.access == Access.RO:
            raise _NoRegister(f"{self._name}.{name} is read-only")
        if not isinstance(value, int | np.integer) or not 0 <= int(value) < 1 << register.bits:
            raise UnsupportedError(f"{self._name}.{name} = {value!r}: must be an integer of {register.bits} bits")
        self._device._write(self._base + register.address, int(value))


class Registers:
    """``control``, one ``tileN`` for each tile and, with firmware, ``mailbox`` and one ``queueN`` for each queue."""

    def __init__(self, device: "Device") -> None:
        self._blocks = {"control": RegisterBlock(device, "control", 0, CONTROL)}
        if device.config.control.kind == "firmware":
            self._blocks["mailbox"] = RegisterBlock(device, "mailbox", MAILBOX_BASE, MAILBOX)
            for queue in range(device.config.control.queues):
                base = QUEUE_BASE + queue * QUEUE_STRIDE
                self._blocks[f"queue{queue}"] = RegisterBlock(device, f"queue{queue}", base, QUEUE)
        for tile in range(device.config.tiles):
            self._blocks[f"tile{tile}"] = RegisterBlock(device, f"tile{tile}", TILE_BASE + tile * TILE_STRIDE, TILE)

    def __dir__(self) -> list[str]:
        return list(self._blocks)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_blocks":
            raise _NoRegister(f"regs.{name} cannot be set: write its registers, such as regs.control.irq_enable = 1")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> RegisterBlock:
        block = self.__dict__.get("_blocks", {}).get(name)
        if block is None:
            raise _NoRegister(f"the device has no register block {name!r}; it has {', '.join(dir(self))}")
        return block
