"""Kernels with dots as tensor cores see them: what fits which, what was chosen, and how it becomes Target IR."""
