"""Ringloom: offload quantized matmuls to a simulated AI accelerator, exact to the bit."""

from .errors import (
    ClosedError,
    ConfigError,
    DeviceFault,
    Error,
    OutOfMemoryError,
    ShapeError,
    TimeoutError,
    UnsupportedError,
)

__all__ = [
    "ClosedError", "ConfigError", "Device", "DeviceArray", "DeviceFault", "Error", "Job", "OutOfMemoryError",
    "PreparedWeights", "ShapeError", "TimeoutError", "UnsupportedError", "open",
]

from .buffers import DeviceArray, PreparedWeights
from .device import Device, open
from .queue import Job
