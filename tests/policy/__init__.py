"""Numerics policies: their values, the rounding they ask for, and what compiled programs make of them."""
