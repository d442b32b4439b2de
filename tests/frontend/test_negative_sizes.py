"""Sizes below zero: refused where they are known, and guarded where a dynamic dim decides."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ConstraintError, GuardError, ShapeError

F32 = np.float32


def _counting(length: Any) -> Any:
    return ts.scan(lambda total, _: (total + 1.0, total), ts.ops.zeros(()), length=length)[1]


MADE: list[Any] = [
    lambda size: ts.ops.zeros((size,)),
    lambda size: ts.ops.eye(size)[0],
    lambda size: ts.random.uniform(ts.random.key(0), (size,)),
    lambda size: ts.ops.broadcast_to(ts.ops.ones(()), (size,)),
    _counting,
]


@pytest.mark.parametrize("make", MADE)
def test_a_size_that_may_be_negative_is_guarded(make: Any) -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return make(x.shape[0] - 3)

    traced = f.trace(np.ones(5, F32))
    assert [str(item.constraint.text) for item in traced.assumptions if item.constraint] == ["N - 3 >= 0"]


def test_a_guard_of_a_size_names_it_at_the_call() -> None:
    @ts.jit
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.ops.zeros((x.shape[0] - 3,)) + 1.0

    assert f(np.ones(4, F32)).shape == (1,)
    assert f(np.ones(3, F32)).shape == (0,)
    with pytest.raises(GuardError, match=r"`x.shape\[0\]` is 1, but `N - 3 >= 0` must hold"):
        f(np.ones(1, F32))


@pytest.mark.parametrize("make", MADE)
def test_a_size_that_is_negative_is_refused(make: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        ts.jit(lambda x: make(-1), backend="reference").trace(np.ones(1, F32))
    assert caught.value.code == "T0101"
    with pytest.raises(ShapeError):
        make(-1)


def test_a_size_that_is_negative_for_all_sizes_is_refused() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.random.uniform(ts.random.key(0), (-1 - x.shape[0],))

    with pytest.raises(ShapeError, match="`uniform` got a size below zero: -N - 1"):
        f.trace(np.ones(2, F32))


def test_constraints_prove_sizes() -> None:
    @ts.jit(backend="reference", constraints="N >= 3")
    def fits(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.ops.zeros((x.shape[0] - 3,))

    @ts.jit(backend="reference", constraints="N <= 2")
    def never(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.ops.zeros((x.shape[0] - 3,))

    texts = [item.constraint.text for item in fits.trace(np.ones(5, F32)).assumptions if item.constraint]
    assert texts == ["N >= 3"]
    with pytest.raises(ConstraintError, match="`N - 3 >= 0` contradicts `N <= 2`"):
        never.trace(np.ones(1, F32))


def test_sizes_that_cannot_be_negative_have_no_guard() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.ops.zeros((x.shape[0] + 2,)), x[3:], ts.ops.concatenate([x, x])

    assert f.trace(np.ones(5, F32)).assumptions == ()


def test_a_range_that_ends_before_it_starts_is_empty() -> None:
    """As `range(-1)` is, whether the end is a number or a dynamic dim decides."""
    assert ts.arange(-1).tolist() == ts.arange(3, 1).tolist() == ts.arange(1, 3, -1).tolist() == []

    @ts.jit
    def f(x: ts.Tensor["N", ts.i64]) -> Any:
        size = x.shape[0]
        return ts.ops.arange(size - 3), x[3:] + ts.ops.arange(size - 3), ts.ops.arange(size, 2, -2), ts.ops.arange(-1)

    for size in range(7):
        wanted = [list(range(size - 3)), [1 + i for i in range(size - 3)], list(range(size, 2, -2)), []]
        assert [part.tolist() for part in f(np.ones(size, np.int64))] == wanted
    assert not [item for item in f.trace(np.ones(5, np.int64)).assumptions if item.constraint is not None]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_range_and_a_size_of_one_dim_agree(backend: str) -> None:
    @ts.jit(backend=backend)
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.ops.zeros((x.shape[0] - 3,), ts.i64) + ts.ops.arange(x.shape[0] - 3)

    assert f(np.ones(5, F32)).tolist() == [0, 1]
    with pytest.raises(GuardError, match="`N - 3 >= 0` must hold"):
        f(np.ones(2, F32))
