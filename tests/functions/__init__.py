"""Tests of functions that are written with ops: each against NumPy or SciPy, in every way that it can be called."""
