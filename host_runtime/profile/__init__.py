"""What a run cost and why: counters, utilization, bandwidth, roofline, verdict."""

from .report import Bottleneck, MemoryCheck, Profile

__all__ = ["Bottleneck", "MemoryCheck", "Profile"]
