"""Ringloom's hardware: configuration, command set, and the Amaranth description of every block."""
