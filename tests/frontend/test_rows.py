"""Python loops over tensors, of as many rows as are known, and dicts: as outside `jit`; a free number is refused."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import SpecializationError, TracingError

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def _unpacked(x: Any) -> Any:
    a, b, c = x
    return a + b * 10.0 - c


@pytest.mark.parametrize(
    "function",
    [
        _unpacked,
        lambda x: sum(row for row in x),
        lambda x: [row * (at + 1.0) for at, row in enumerate(x)],
        lambda x: ts.ops.stack(list(reversed(list(x)))),
        lambda x: [a - b for a, b in zip(x, x * 2.0, strict=True)],
        lambda x: x * len(x),
    ],
)
def test_rows_are_those_of_the_tensor_outside(function: Any) -> None:
    jitted: Any = ts.jit(function)
    wanted, found = function(ts.array(X)), jitted(X)
    for left, right in zip(
        wanted if isinstance(wanted, list) else [wanted], found if isinstance(found, list) else [found], strict=True
    ):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def test_no_rows() -> None:
    assert ts.jit(lambda x: [x.shape, *x])(np.zeros((0, 3), np.float32)) == [(0, 3)]


def test_free_rows_are_refused() -> None:
    @ts.jit
    def f(x: ts.Tensor["N", 2, ts.f32]) -> Any:
        return sum(x)

    with pytest.raises(SpecializationError, match="`N` is a symbolic dim and cannot be the length of a Python loop"):
        f(X)
    with pytest.raises(TracingError, match="a scalar cannot be iterated over"):
        ts.jit(lambda x: list(x.sum()))(X)


def test_dicts_come_back_in_the_order_that_they_were_written() -> None:
    def f(x: Any) -> Any:
        return {"z": x, "a": {"y": x + 1.0, "b": x + 2.0}, "m": 3}

    for made in (f(ts.array(X)), ts.jit(f)(X)):
        assert list(made) == ["z", "a", "m"]
        assert list(made["a"]) == ["y", "b"]
        assert made["a"]["b"].tolist() == (X + 2).tolist()
