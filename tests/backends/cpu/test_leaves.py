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
    for value in FIRST[name]:
        x = np.full((len(PAIRS), 2000), value if np.isinf(value) else 0, np.float32)
        for row, pair in enumerate(PAIRS):
            x[row, pair] = value
        x = x if axis == 1 else np.ascontiguousarray(x.T)
        np.testing.assert_array_equal(np.asarray(function(x)[1]), reference(name, x, axes=(axis,)))


LENGTHS = (0, 1, 8, 31, 33, 255, 257, 1023, 1024, 1025, 1281, 2048, 3333)
"""Below, at and above vectors, joined lanes, lanes and leaves."""


def numbers(*shape: int) -> Any:
    """Numbers of many sizes, so that the order of additions shows."""
    rng = np.random.default_rng(shape)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("total", [None, ts.f16], ids=str)
def test_a_symbolic_row_has_the_bits_of_the_recipe_at_every_length(axis: int, total: Any) -> None:
    """Whole leaves are unrolled, and the last one goes through lines of scratch: one program for all lengths."""

    def sums(x: Any) -> Any:
        return x.sum(axis=axis), (x * x).sum(axis=axis), x - x.sum(axis=axis, keepdims=True)

    policy = ts.Policy() if total is None else ts.Policy(accumulate=total)
    compiled, wanted = (ts.jit(sums, dynamic=True, policy=policy, backend=backend) for backend in ("cpu", "reference"))
    for length in LENGTHS:
        x = numbers(3, length) if axis == 1 else numbers(length, 11)
        for found, expected in zip(compiled(x), wanted(x), strict=True):
            assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), length


@pytest.mark.parametrize("length", [31, 257, 1025, 1281])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_known_length_changes_no_bit(axis: int, length: int) -> None:
    def sums(x: Any) -> Any:
        return x.sum(axis=axis), ts.ops.var(x, axis=axis)

    x = numbers(3, length) if axis == 1 else numbers(length, 11)
    for found, expected in zip(ts.jit(sums)(x), ts.jit(sums, backend="reference")(x), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
