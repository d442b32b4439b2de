"""Kernels with products as matrix units see them: what fits which units, and what was chosen for them."""
