"""`x[...]` picks what NumPy picks, with static dims and with free ones."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import GuardError, ShapeError

SHAPE = (3, 4, 5)
X = np.arange(60, dtype=np.float32).reshape(SHAPE)
ROWS, COLUMN = np.array([0, 2, 1]), np.array([[1], [2]])

BOUNDS = st.one_of(st.none(), st.integers(-7, 7))
SLICES = st.builds(slice, BOUNDS, BOUNDS, st.one_of(st.none(), st.integers(-3, 3).filter(bool)))


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """A legal index of `X`: positions, slices, new axes, an ellipsis, at most two arrays."""
    items: list[Any] = []
    for size in SHAPE[: draw(st.integers(0, 3))]:
        if draw(st.booleans()):
            items.append(None)
        kinds = st.one_of(st.integers(-size, size - 1), SLICES, st.sampled_from([ROWS, COLUMN]), SLICES)
        items.append(draw(kinds))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), ...)
    return tuple(items)


@given(indices())
def test_an_index_means_what_numpy_means(index: tuple[Any, ...]) -> None:
    try:
        expected = X[index]
    except IndexError:
        return  # an ellipsis moved a position to an axis it is too large for
    for dynamic in (False, True):
        found = np.asarray(ts.jit(dynamic=dynamic, backend="reference")(lambda x: x[index])(X))
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "index",
    [
        np.s_[ROWS, :, ROWS],
        np.s_[0, :, ROWS],
        np.s_[:, 0, ROWS],
        np.s_[:, ROWS, COLUMN],
        np.s_[ROWS, None, :, 0],
        np.s_[None, 0, :, ROWS],
        np.s_[[0, 1]],
        np.s_[5:2],
    ],
)
def test_arrays_beside_positions(index: Any) -> None:
    found = np.asarray(ts.jit(backend="reference")(lambda x: x[index])(X))
    np.testing.assert_array_equal(found, X[index])
    assert found.shape == X[index].shape


def test_a_traced_position() -> None:
    f = ts.jit(backend="reference")(lambda x, i: x[i])
    np.testing.assert_array_equal(f(X, np.int64(-1)), X[-1])
    np.testing.assert_array_equal(f(X, ROWS), X[ROWS])


def test_a_position_past_a_free_dim_is_a_guard() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return x[4]

    assert float(f(np.arange(5, dtype=np.float32))) == 4.0
    with pytest.raises(GuardError, match="`N` is 4, but it must be at least 5"):
        f(np.zeros(4, np.float32))


def test_slices_follow_a_free_dim() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return x[1:-1], x[::-2], x[: x.shape[0] // 2], x[-3:]

    for count in (0, 1, 2, 3, 7, 8):
        x = np.arange(count, dtype=np.float32)
        expected = (x[1:-1], x[::-2], x[: count // 2], x[-3:])
        for found, wanted in zip(f(x), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert f.cache_info().compiles == 1


@pytest.mark.parametrize("index", [True, 1.5, "a", np.array([True, False, True, True, True])])
def test_what_is_no_index_is_refused(index: Any) -> None:
    with pytest.raises(ShapeError):
        ts.jit(lambda x: x[index]).trace(X)
