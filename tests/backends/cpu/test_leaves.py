"""Reductions over leaves on a CPU: those in no order beside sums, ragged lengths, symbolic ones, columns and runs."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tests.graph.eager import reference

FIRST: dict[str, tuple[Any, ...]] = {"argmax": (5, np.nan, -np.inf), "argmin": (-5, np.nan, np.inf)}
"""Values that an argreduce takes wherever they are; the last is its identity."""

PAIRS = ((128, 768), (16, 768), (17, 32), (31, 900), (1100, 1999), (0, 1024))
"""Indices of equal elements: a halving tree meets the second of them first, by lanes, by elements or by leaves."""


def with_sum(name: str, axis: int) -> Callable[[Any], Any]:
    """An argreduce that shares its pass with a sum, whose order is fixed."""
    return lambda x: (x.sum(axis=axis), getattr(ts.ops, name)(x, axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FIRST)
def test_an_argreduce_beside_a_sum_finds_the_first(name: str, dynamic: bool, axis: int) -> None:
    function = ts.jit(with_sum(name, axis), dynamic=dynamic)
    for dtype in (np.float32, np.float64):
        for value in FIRST[name]:
            x = np.zeros((len(PAIRS), 2000), dtype)
            if value in (np.inf, -np.inf):
                x[:] = value
            for row, pair in enumerate(PAIRS):
                x[row, pair] = value
            x = x if axis == 1 else np.ascontiguousarray(x.T)
            found = np.asarray(function(x)[1])
            np.testing.assert_array_equal(found, reference(name, x, axes=(axis,)))
