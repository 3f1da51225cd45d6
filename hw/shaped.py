"""Amaranth's enumerations, as a type checker can read them: their members are made at run time, where it sees none."""

import enum
from typing import TYPE_CHECKING, Any

__all__ = ["ShapedEnum", "ShapedIntEnum"]

if TYPE_CHECKING:
    class ShapedEnum(enum.Enum):
        def __init_subclass__(cls, *, shape: Any = None) -> None: ...

    class ShapedIntEnum(enum.IntEnum):
        def __init_subclass__(cls, *, shape: Any = None) -> None: ...
else:
    from amaranth.lib.enum import Enum as ShapedEnum
    from amaranth.lib.enum import IntEnum as ShapedIntEnum
