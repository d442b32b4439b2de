"""Compiled results against references: every op, safe primitives, exported programs."""
