"""The DRAM controller: one per pseudo-channel."""
