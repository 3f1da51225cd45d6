"""Checkers that know the rules of a bus and nothing of the block that drives it."""
