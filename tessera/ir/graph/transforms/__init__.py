"""Transforms of traced programs, program in and program out: linearize, transpose, batch."""
