"""What the device computes, in numpy: the reference of every result, and the quantization around it."""

from .reference import ROUNDINGS, matmul_reference, multiplier, qlinear_matmul, quantize_linear, requantize

__all__ = ["ROUNDINGS", "matmul_reference", "multiplier", "qlinear_matmul", "quantize_linear", "requantize"]
