"""What a run cost and why: counters, utilization, bandwidth, roofline, verdict."""

from .report import Bottleneck, Profile

__all__ = ["Bottleneck", "Profile"]
