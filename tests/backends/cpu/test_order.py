"""Sorting, selecting and scattering natively: lengths around runs and blocks, indices read from memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.graph.eager import reference

DTYPES = (np.float32, np.float64, ml_dtypes.bfloat16, np.int32, np.int64, np.uint8, np.bool_)


def _rows(dtype: Any, count: int) -> Any:
    x = np.random.default_rng(count).integers(0, 2 if dtype == np.bool_ else 20, (3, count)).astype(np.float32)
    if np.dtype(dtype).kind not in "iub":
        x[:, ::7] = np.nan
        x[:, ::5] = -0.0
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("descending", [False, True])
def test_a_sort_is_stable_at_every_length(dtype: Any, descending: bool) -> None:
    """One compilation for all lengths: shorter than a run, whole runs, one more, several merges."""

    def places(x: Any) -> Any:
        return ts.ops.argsort(x, descending=descending)

    def sorts(x: Any) -> Any:
        return ts.ops.sort(x, descending=descending)

    order, values = ts.jit(places, dynamic=True), ts.jit(sorts, dynamic=True)
    for count in (1, 7, 8, 9, 16, 17, 100, 257):
        x = _rows(dtype, count)
        wanted = reference("argsort", x, descending=descending)
        np.testing.assert_array_equal(np.asarray(order(x)), wanted)
        found = np.asarray(values(x)).astype(np.float64)
        np.testing.assert_array_equal(found, np.take_along_axis(x, wanted, 1).astype(np.float64))


def _any_bits(dtype: Any, count: int) -> Any:
    """Keys of any bits, with the smallest and the largest ones among them, infinities, NaN and both zeros."""
    rng, words = np.random.default_rng(count), np.dtype(f"u{np.dtype(dtype).itemsize}")
    x = rng.integers(0, np.iinfo(words).max, (2, count), words, endpoint=True).view(dtype)
    if np.dtype(dtype).kind == "f":
        some = (0.0, -0.0, np.inf, -np.inf, np.nan)
    else:
        some = (np.iinfo(dtype).min, np.iinfo(dtype).max, 0)
    for number, key in enumerate(some):
        x[:, number :: 7 + number] = key
    return x


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64, np.float32, np.float64],
    ids=lambda dtype: np.dtype(dtype).name,
)
@pytest.mark.parametrize("descending", [False, True])
def test_a_sort_by_bytes_orders_keys_of_any_bits(dtype: Any, descending: bool) -> None:
    """Lengths up to which lines are merged, and from which on they are sorted by bytes."""

    def places(x: Any) -> Any:
        return ts.ops.argsort(x, descending=descending)

    order = ts.jit(places, dynamic=True)
    for count in (127, 128, 129, 1000):
        x = _any_bits(dtype, count)
        np.testing.assert_array_equal(np.asarray(order(x)), reference("argsort", x, descending=descending))


@pytest.mark.parametrize("dtype", [*DTYPES, np.uint32, np.uint64], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("largest", [False, True])
def test_a_selection_is_the_head_of_a_sort_at_every_length(dtype: Any, largest: bool) -> None:
    """One compilation for all lengths: as many as are taken, a stretch, a block, one more, several blocks."""

    def few(x: Any) -> Any:
        return ts.ops.topk(x, 5, largest=largest)

    taken = ts.jit(few, dynamic=True)
    for count in (5, 15, 16, 17, 64, 300, 2050):
        x = _rows(dtype, count)
        if np.dtype(dtype).kind in "iu":
            # All but a few are the key that also stands for nothing.
            x[1] = np.iinfo(dtype).min if largest else np.iinfo(dtype).max
            x[1, 1::9] = 3
        values, places = (np.asarray(part) for part in taken(x))
        wanted = reference("topk", x, k=5, largest=largest)
        np.testing.assert_array_equal(places, wanted[1])
        assert values.tobytes() == wanted[0].tobytes()


@pytest.mark.parametrize(
    ("shape", "k"), [((3, 1), 1), ((3, 0), 0), ((3, 4), 0), ((4, 40), 40), ((0, 9), 2), ((2, 3, 9), 4)]
)
def test_selections_of_fixed_rows(shape: tuple[int, ...], k: int) -> None:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)

    def both(x: Any) -> Any:
        return ts.ops.topk(x, k)

    for found, wanted in zip(ts.jit(both)(x), reference("topk", x, k=k), strict=True):
        assert np.asarray(found).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_rows_are_written_in_the_order_of_their_indices(axis: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 6, 37)).astype(np.float32)
    indices = rng.integers(-3, 5, 40)
    shape = list(x.shape)
    shape[axis] = 40
    updates = rng.standard_normal(shape).astype(np.float32)
    for name in ("scatter", "scatter_add"):

        def write(x: Any, i: Any, u: Any, name: str = name) -> Any:
            return getattr(ts.ops, name)(x, i, u, axis=axis)

        found = np.asarray(ts.jit(write, dynamic=True)(x, indices, updates))
        assert found.tobytes() == reference(name, x, indices, updates, axis=axis).tobytes()
