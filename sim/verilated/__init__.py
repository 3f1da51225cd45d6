"""The device as a shared library: Amaranth to Verilog to Verilator to C++, driven through ctypes."""

from .binding import VerilatedSimulator
from .toolchain import BuildError

__all__ = ["VerilatedSimulator", "BuildError"]
