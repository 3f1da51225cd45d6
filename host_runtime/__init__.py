"""Ringloom: offload quantized matmuls to a simulated AI accelerator, exact to the bit."""

from importlib.metadata import version as _version

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
    "PreparedWeights", "ShapeError", "TimeoutError", "UnsupportedError", "__version__", "open",
]

from .buffers import DeviceArray, PreparedWeights
from .device import Device, open
from .queue import Job

__version__ = _version("ringloom")
