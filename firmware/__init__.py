"""Firmware of the management core: C sources, and the build of its image."""
