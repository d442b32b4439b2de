"""`switch`: the branch of an index, eager and traced, with clamped indices, trees, derivatives and batches."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, PytreeError, ShapeError

X = np.array([0.3, -1.5, 2.0])
BRANCHES: list[Any] = [
    lambda x: {"y": x * 2.0, "n": ts.ops.full((), 0)},
    lambda x: {"y": ts.ops.sin(x), "n": ts.ops.full((), 1)},
    lambda x: {"y": x * x * x, "n": ts.ops.full((), 2)},
    lambda x: {"y": -x, "n": ts.ops.full((), 3)},
    lambda x: {"y": ts.ops.exp(x), "n": ts.ops.full((), 4)},
]
VALUES = [2 * X, np.sin(X), X**3, -X, np.exp(X)]
SLOPES = [2 + 0 * X, np.cos(X), 3 * X**2, -1 + 0 * X, np.exp(X)]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_branch_of_an_index_runs(count: int) -> None:
    def run(index: Any, x: Any) -> Any:
        return ts.switch(index, BRANCHES[:count], x)

    compiled = ts.jit(run, backend="reference")
    for index in (-3, *range(count), count + 4):
        chosen = min(max(index, 0), count - 1)
        for found in (run(index, ts.array(X)), run(ts.array(index), ts.array(X)), compiled(ts.array(index), X)):
            np.testing.assert_allclose(np.asarray(found["y"]), VALUES[chosen], rtol=1e-12)
            assert int(found["n"]) == chosen


def test_only_the_branch_runs_and_each_is_traced_once() -> None:
    traced = list[int]()

    def branch(number: int) -> Any:
        def run(x: Any) -> Any:
            traced.append(number)
            return x * float(number)

        return run

    branches = [branch(number) for number in range(7)]
    function = ts.jit(lambda index, x: ts.switch(index, branches, x))
    for index in range(7):
        np.testing.assert_allclose(np.asarray(function(ts.array(index), X)), X * index)
    assert sorted(traced) == list(range(7))
    traced.clear()
    ts.switch(3, branches, ts.array(X))
    assert traced == [3]


def test_branches_are_differentiated_and_batched() -> None:
    def loss(x: Any, index: Any) -> Any:
        return ts.switch(index, BRANCHES, x)["y"].sum()

    slope = ts.jit(ts.grad(loss))
    for index in range(5):
        np.testing.assert_allclose(np.asarray(slope(X, ts.array(index))), SLOPES[index], rtol=1e-12)
    rows = np.stack([X, X + 1.0, X - 1.0])
    found = ts.jit(ts.vmap(lambda index, x: ts.switch(index, BRANCHES, x)["y"]))(ts.array([2, 9, -1]), rows)
    np.testing.assert_allclose(np.asarray(found), [rows[0] ** 3, np.exp(rows[1]), 2 * rows[2]], rtol=1e-12)


def test_branches_may_capture_tensors_and_have_symbolic_sizes() -> None:
    @ts.jit
    def run(index: ts.Tensor[ts.i64], x: ts.Tensor["N", ts.f32]) -> Any:
        y = x + 1.0
        return ts.switch(index, [lambda: y, lambda: x * y, lambda: -x])

    for size in (3, 5):
        x = np.arange(size, dtype=np.float32)
        for index, expected in enumerate((x + 1, x * (x + 1), -x)):
            np.testing.assert_allclose(np.asarray(run(index, x)), expected)
    assert run.cache_info().misses == 1


def test_wrong_branches_are_refused() -> None:
    wrong: Any = 2
    with pytest.raises(ArgumentError, match="list of at least one function"):
        ts.switch(0, [])
    with pytest.raises(ArgumentError, match=r"branches\[1\]"):
        ts.switch(0, [lambda: 1, wrong])
    with pytest.raises(ShapeError, match="needs a scalar of integers"):
        ts.switch(ts.array(0.5), [lambda: 1])
    with pytest.raises(PytreeError, match="different forms"):
        ts.jit(lambda i, x: ts.switch(i, [lambda: x, lambda: (x, x)]), backend="reference")(ts.array(0), X)
