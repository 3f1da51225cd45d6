"""Where a beat of memory lies in its pseudo-channel: row, bank and column."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import C, Cat, Value

from ...config import BEAT_BYTES, ConfigError, DeviceConfig
from .timing import TimingSet

__all__ = ["AddressMap", "DEFAULT_MAP", "address_map"]

DEFAULT_MAP = "row-bank-column-group"
"""Bank groups lowest, so that a linear stream alternates between them and tCCD_S holds, not tCCD_L."""


@dataclass(frozen=True, kw_only=True)
class AddressMap:
    """Fields of a tile's beat address (byte address / 32), and the way back.

    Parameters
    ----------
    timing : TimingSet
        Banks, bank groups and columns.
    beats : int
        Beats of all pseudo-channels together; a power of two.
    channels : int
        Pseudo-channels that share the beats; a power of two.
    interleave_beats : int
        Beats that follow each other in one pseudo-channel; a power of two.
    order : str
        The fields row, bank, column and group, each once, from the highest bits to the lowest, joined by ``-``.
        Bits inside a burst stay below them.
    xor : bool
        Mix the lowest row bits into bank and bank group, so that power-of-two strides spread over banks.
    """

    timing: TimingSet
    beats: int
    channels: int = 1
    interleave_beats: int = 8
    order: str = DEFAULT_MAP
    xor: bool = False

    def __post_init__(self) -> None:
        if sorted(self.order.split("-")) != ["bank", "column", "group", "row"]:
            raise ConfigError(f"memory.address_map = {self.order!r}: must be row, bank, column and group, each once, "
                              f"joined by '-' from the highest bits to the lowest, as in {DEFAULT_MAP!r}")
        most = self.timing.rows * self.timing.banks * self.timing.row_bytes * self.channels
        least = 2 * self.timing.banks * self.timing.row_bytes * self.channels
        if not least <= 32 * self.beats <= most:
            raise ConfigError(f"memory.bytes = {32 * self.beats}: {self.channels} pseudo-channels of timing "
                              f"{self.timing.name!r} hold {least} to {most} bytes")

    @property
    def group_bits(self) -> int:
        return (self.timing.bank_groups - 1).bit_length()

    @property
    def bank_bits(self) -> int:
        """Bits of a bank number; its low ``group_bits`` are the bank group."""
        return (self.timing.banks - 1).bit_length()

    @property
    def column_bits(self) -> int:
        """Bits of a column, counted in beats."""
        return (self.timing.row_bytes // 32 - 1).bit_length()

    @property
    def row_bits(self) -> int:
        return self.beat_bits - self._channel_bits - self.bank_bits - self.column_bits

    @property
    def rows(self) -> int:
        """Rows of a bank in use."""
        return 1 << self.row_bits

    @property
    def beat_bits(self) -> int:
        return (self.beats - 1).bit_length()

    @property
    def _channel_bits(self) -> int:
        return (self.channels - 1).bit_length()

    @property
    def _interleave_bits(self) -> int:
        return (self.interleave_beats - 1).bit_length()

    def _fields(self) -> list[tuple[str, int, int]]:
        """(field, offset, bits) in the pseudo-channel's own beat address, from the lowest bits up."""
        inside = (self.timing.access_bytes // 32 - 1).bit_length()
        widths = {"row": self.row_bits, "bank": self.bank_bits - self.group_bits, "group": self.group_bits,
                  "column": self.column_bits - inside}
        fields, offset = [("inside", 0, inside)], inside
        for name in reversed(self.order.split("-")):
            fields.append((name, offset, widths[name]))
            offset += widths[name]
        return fields

    def local(self, beat: int) -> int:
        """The beat address inside its pseudo-channel."""
        low = beat & (self.interleave_beats - 1)
        return (beat >> (self._interleave_bits + self._channel_bits) << self._interleave_bits) | low

    def channel(self, beat: int) -> int:
        return (beat >> self._interleave_bits) & (self.channels - 1)

    def locate(self, beat: int) -> tuple[int, int, int]:
        """(row, bank, column) of a tile's beat address."""
        local = self.local(beat)
        part = {name: (local >> offset) & ((1 << bits) - 1) for name, offset, bits in self._fields()}
        bank = part["group"] | part["bank"] << self.group_bits
        if self.xor:
            bank ^= part["row"] & ((1 << self.bank_bits) - 1)
        inside = self._fields()[0][2]
        return part["row"], bank, part["inside"] | part["column"] << inside

    def decode(self, beat: Value) -> tuple[Value, Value, Value]:
        """(row, bank, column) of a tile's beat address in hardware."""
        local = Cat(beat[:self._interleave_bits], beat[self._interleave_bits + self._channel_bits:])
        part: dict[str, Any] = {name: local[offset:offset + bits] for name, offset, bits in self._fields()}
        bank = Cat(part["group"], part["bank"])
        if self.xor:
            bank = bank ^ part["row"][:self.bank_bits]
        return part["row"], bank, Cat(part["inside"], part["column"])

    def encode(self, row: Value, bank: Value, column: Value, channel: int) -> Value:
        """The tile's beat address of a place in pseudo-channel ``channel``."""
        if self.xor:
            bank = (bank ^ row[:self.bank_bits])[:self.bank_bits]
        inside = self._fields()[0][2]
        part = {"row": row, "group": bank[:self.group_bits], "bank": bank[self.group_bits:],
                "inside": column[:inside], "column": column[inside:]}
        local = Cat(*(part[name] for name, _, _ in self._fields()))
        number = C(channel, self._channel_bits)
        return Cat(local[:self._interleave_bits], number, local[self._interleave_bits:])


def address_map(config: DeviceConfig) -> AddressMap:
    """The address map of a tile's memory."""
    memory = config.memory
    return AddressMap(timing=config.timing, beats=memory.bytes // BEAT_BYTES, channels=config.ports,
                      interleave_beats=memory.interleave_bytes // BEAT_BYTES, order=memory.address_map,
                      xor=memory.bank_xor)
