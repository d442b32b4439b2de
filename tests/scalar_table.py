"""What tests read of the table of scalar functions: those with an error bound, and the ops that compute them."""

from __future__ import annotations

from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS

ULP_BOUNDS = {name: function.ulp for name, function in SCALAR_FUNCTIONS.items() if function.ulp is not None}
"""Largest error of a function, in units of the last place of its result, for f32 and f64."""

FUNCTION_OF_OP = {op.name: function for function in SCALAR_FUNCTIONS.values() for op in function.graph_ops}
"""The scalar function that a graph op computes."""

APPROXIMATE_OPS = tuple(
    name for name, function in FUNCTION_OF_OP.items() if function.ulp is not None and function.ulp[0] > 0.5
)
"""Ops whose compiled results may differ from their reference by the declared error; others are equal bit for bit."""
