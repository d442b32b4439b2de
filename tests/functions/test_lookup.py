"""Searches, counts, segments and distinct elements, against NumPy; their sizes inside `jit`."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError, TracingError
from tests.functions.cases import Case, check_case

ops = ts.ops


def row_and_values(rng: np.random.Generator, size: int) -> list[Any]:
    row = np.sort(np.round(rng.normal(size=size) * 2))
    return [row, np.round(rng.normal(size=(3, 2)) * 2)]


def segments(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 2)), rng.integers(0, 3, size)]


def reduce_segments(reduce: Any, start: float) -> Any:
    def reference(data: Any, ids: Any) -> Any:
        made = np.full((4, data.shape[1]), start)
        reduce.at(made, ids, data)
        return made

    return reference


def put(x: Any, indices: Any) -> Any:
    made = x.copy()
    np.put_along_axis(made, indices, 7.0, 1)
    return made


def at(x: Any, indices: Any, updates: Any, reduce: Any) -> Any:
    made = x.copy()
    reduce.at(made, indices, updates)
    return made


def updates(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 2)), np.array([0, 2, 0]), rng.normal(size=(3, 2))]


CASES = [
    Case("searchsorted", ops.searchsorted, row_and_values, np.searchsorted, (), narrow=False),
    Case("searchsorted after equals", lambda a, v: ops.searchsorted(a, v, "right"), row_and_values,
         lambda a, v: np.searchsorted(a, v, "right"), (), narrow=False),
    Case("bincount", lambda x: ops.bincount(x, 5), lambda rng, n: [rng.integers(0, 5, n)],
         lambda x: np.bincount(x, minlength=5), (), narrow=False),
    Case("histogram", lambda x: ops.histogram(x, 4), lambda rng, n: [rng.normal(size=n)],
         lambda x: tuple(np.histogram(x, 4)), (), narrow=False),
    Case("put_along_axis", lambda x, i: ops.put_along_axis(x, i, 7.0, 1),
         lambda rng, n: [rng.normal(size=(n, 3)), rng.integers(0, 3, (n, 1))], put, narrow=False),
    Case("put_along_axis with indices of one row", lambda x: ops.put_along_axis(x, ts.array([[2, 0]]), 7.0, 1),
         lambda rng, n: [rng.normal(size=(n, 3))], lambda x: put(x, np.array([[2, 0]])), narrow=False),
    Case("histogram of integers", lambda x: ops.histogram(x, 7),
         lambda rng, n: [(2**24 + rng.integers(0, 9, n)).astype(np.int32)], lambda x: tuple(np.histogram(x, 7)), (),
         narrow=False, rtol=1e-15),
    Case("scatter_max", ops.scatter_max, updates, lambda x, i, u: at(x, i, u, np.maximum), (0, 2), narrow=False),
    Case("scatter_min", ops.scatter_min, updates, lambda x, i, u: at(x, i, u, np.minimum), (0, 2), narrow=False),
    Case("scatter_mul", ops.scatter_mul, updates, lambda x, i, u: at(x, i, u, np.multiply), (), narrow=False),
    Case("segment_sum", lambda d, i: ops.segment_sum(d, i, 4), segments, reduce_segments(np.add, 0.0), narrow=False),
    Case("segment_prod", lambda d, i: ops.segment_prod(d, i, 4), segments, reduce_segments(np.multiply, 1.0), (),
         narrow=False),
    Case("segment_max", lambda d, i: ops.segment_max(d, i, 4), segments, reduce_segments(np.maximum, -np.inf), (),
         narrow=False),
    Case("segment_min", lambda d, i: ops.segment_min(d, i, 4), segments, reduce_segments(np.minimum, np.inf), (),
         narrow=False),
    Case("masked_fill", lambda x: ops.masked_fill(x, x > 0.0, -1.0), lambda rng, n: [rng.normal(size=(n, 3))],
         lambda x: np.where(x > 0, -1.0, x), narrow=False),
    Case("narrow", lambda x: ops.narrow(x, 1, 1, 2), lambda rng, n: [rng.normal(size=(n, 4))], lambda x: x[:, 1:3]),
    Case("nonzero", lambda x: ops.nonzero(x, size=4, fill_value=-1),
         lambda rng, n: [np.arange(3 * n).reshape(n, 3) % 7],
         lambda x: tuple(np.asarray(one)[:4] for one in x.nonzero()), (), narrow=False),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_lookup_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


def test_means_of_segments_and_of_none() -> None:
    found = ops.segment_mean(ts.array([[1.0], [3.0], [5.0]]), ts.array([0, 0, 2]), 3)
    assert found.tolist() == [[2.0], [0.0], [5.0]]
    assert ops.segment_sum(ts.array([1.0, 2.0]), ts.array([-1, 0]), 1).tolist() == [2.0]


@pytest.mark.parametrize("values", [[3, 1, 3, 2], [1], [True, False, True], [0.5, -0.0, 0.0, float("inf")]])
def test_distinct_elements_are_those_of_numpy(values: list[Any]) -> None:
    array = np.array(values)
    found = ops.unique_all(ts.array(array))
    expected = np.unique(array, return_index=True, return_inverse=True, return_counts=True)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_sizes_that_depend_on_values_are_given_while_tracing() -> None:
    x = ts.array([3, 0, 3, 5])
    values, _, inverse, counts = ts.jit(lambda x: ops.unique_all(x, size=5))(x)
    assert (values.tolist(), inverse.tolist(), counts.tolist()) == ([0, 3, 5, 5, 5], [1, 0, 1, 2], [1, 2, 1, 0, 0])
    assert ts.jit(lambda x: ops.nonzero(x, size=4, fill_value=9)[0])(x).tolist() == [0, 2, 3, 9]
    with pytest.raises(TracingError, match="how many elements `nonzero` finds depends on values"):
        ts.jit(lambda x: ops.nonzero(x))(x)


def test_parts_are_of_one_size_but_the_last() -> None:
    assert [part.shape[0] for part in ops.chunk(ts.ones((7,)), 3)] == [3, 3, 1]
    assert [part.shape[0] for part in ops.chunk(ts.ones((2,)), 5)] == [1, 1]


def test_what_is_put_is_what_is_taken() -> None:
    x, index = ts.array(np.zeros((3, 2, 2))), ts.array(np.array([[[1, 0]], [[0, 1]], [[1, 1]]]))
    put_in = ops.put_along_axis(x, index, 9.0, 1)
    assert ops.take_along_axis(put_in, index, 1).tolist() == [[[9.0, 9.0]]] * 3
    one = ts.array(np.array([[[1]]]))
    assert ops.take_along_axis(ops.put_along_axis(x, one, 4.0, 1), one, 1).tolist() == [[[4.0, 4.0]]] * 3
    with pytest.raises(ShapeError, match="takes indices with as many dims as its operand, got 1 and 3"):
        ops.put_along_axis(x, ts.array([1]), 9.0, 1)


def test_narrow_ids_of_segments_have_a_number_beyond_the_end() -> None:
    ids = ts.array(np.array([-1, 0, 1], np.int8))
    found = ops.segment_sum(ts.array([1.0, 2.0, 4.0]), ids, 200)
    assert (found[:2].tolist(), float(found.sum())) == ([2.0, 4.0], 6.0)
    means = ops.segment_mean(ts.array(np.ones(300, np.uint8)), ts.array(np.zeros(300, np.int64)), 1)
    assert means.tolist() == [1.0]


@pytest.mark.parametrize(("values", "bins", "ends"), [([], 3, None), ([], 2, (2.0, 4.0)), ([2.0, 2.0], 3, None)])
def test_histograms_of_few_elements(values: list[float], bins: int, ends: Any) -> None:
    found = ops.histogram(ts.array(np.array(values, np.float64)), bins, ends)
    for one, other in zip(found, np.histogram(values, bins, ends), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.parametrize("low_high", [(0.1, 0.7), (-1.0, 2.3), (0.0, 1.0)])
def test_ends_of_parts_are_those_of_numpy(low_high: tuple[float, float]) -> None:
    counts, ends = np.histogram(np.linspace(0, 1, 91), 10, low_high)
    found = ops.histogram(ts.array(np.linspace(0, 1, 91)), 10, low_high)
    np.testing.assert_array_equal(np.asarray(found[1]), ends)
    np.testing.assert_array_equal(np.asarray(found[0]), counts)


@pytest.mark.parametrize(("low", "high"), [(-1.3, 2.9), (-16.0, 16.0), (1e8, 1e8 + 64), (0.0, 1e-30), (0.0, 1e-44)])
@pytest.mark.parametrize("bins", [1, 7, 256, 5000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_at_and_beside_ends_are_in_their_parts(low: float, high: float, bins: int, dtype: Any) -> None:
    ends = np.asarray(ops.histogram(ts.array(np.zeros(1, dtype)), bins, (low, high))[1])
    beside = [np.nextafter(ends, way, dtype=dtype) for way in (-np.inf, np.inf)]
    x = np.concatenate([ends, *beside, np.array([np.nan, np.inf, -np.inf], dtype)])
    at = np.searchsorted(ends, x[(x >= ends[0]) & (x <= ends[-1])], "right") - 1
    expected = np.bincount(np.minimum(at, bins - 1), minlength=bins)
    np.testing.assert_array_equal(np.asarray(ops.histogram(ts.array(x), bins, (low, high))[0]), expected)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 9, 1000])
def test_searches_in_rows_of_known_and_of_symbolic_sizes_agree(size: int, side: Literal["left", "right"]) -> None:
    rng = np.random.default_rng(size)
    row, wanted = (np.round(rng.normal(size=count) * 9).astype(np.float32) for count in (size, 57))
    row[: size // 5], wanted[:4] = np.nan, (np.nan, np.inf, -np.inf, -0.0)
    row = np.sort(row)
    for dynamic in (False, True):
        found = ts.jit(lambda a, v: ops.searchsorted(a, v, side), dynamic=dynamic)(ts.array(row), ts.array(wanted))
        np.testing.assert_array_equal(np.asarray(found), np.searchsorted(row, wanted, side))


def test_searches_in_rows_of_known_sizes_sort_nothing() -> None:
    row, x = ts.ones((9,)), ts.ones((5,))
    assert "sort" not in str(ts.jit(lambda a, v: ops.searchsorted(a, v)).lower(row, x).tile)
    assert "sort" not in str(ts.jit(lambda x: ops.histogram(x, 8, (0.0, 1.0))[0]).lower(x).tile)
    assert "sort" not in str(ts.jit(lambda x, a: ops.isin(x, a)).lower(x, row).tile)


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (0, 3), (3, 0), (5, 7), (2, 3, 4), (1001,)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_what_masks_have_is_packed_in_order(shape: tuple[int, ...], share: float) -> None:
    rng = np.random.default_rng(3)
    mask, x = rng.random(shape) < share, rng.normal(size=shape)
    for one, other in zip(ops.nonzero(ts.array(mask)), mask.nonzero(), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
    np.testing.assert_array_equal(np.asarray(ops.masked_select(ts.array(x), ts.array(mask))), x[mask])
    some = ts.jit(lambda x, mask: ops.masked_select(x, mask, size=5, fill_value=9))(ts.array(x), ts.array(mask))
    np.testing.assert_array_equal(np.asarray(some), np.append(x[mask], [9.0] * 5)[:5])


def test_distinct_elements_of_none() -> None:
    found = ops.unique_all(ts.array(np.zeros((0, 3), np.float32)))
    assert [one.shape for one in found] == [(0,), (0,), (0, 3), (0,)]
    assert [str(one.dtype) for one in found] == ["f32", "i64", "i64", "i64"]
    with pytest.raises(ArgumentError, match="no element to repeat in a result of 2: its operand is empty"):
        ops.unique_all(ts.array(np.zeros(0)), size=2)


def test_a_start_that_is_negative_counts_from_the_end() -> None:
    x = np.arange(15.0).reshape(3, 5)
    assert ops.narrow(ts.array(x), 1, -2, 2).tolist() == x[:, 3:].tolist()
    assert ts.jit(lambda x: ops.narrow(x, 1, -3, 2), dynamic=True)(x).tolist() == x[:, 2:4].tolist()
    assert ops.narrow(ts.array(x), 1, 5, 0).shape == (3, 0)


def test_wrong_arguments_are_refused() -> None:
    for start, length in ((3, 10), (-6, 1), (0, -1), (6, 0)):
        with pytest.raises(ArgumentError, match=f"`narrow` takes {length} elements from {start} on, and axis 0 has 5"):
            ops.narrow(ts.ones((5,)), 0, start, length)
    for ends in ((3, 1), (0.0, float("nan")), (0.0, float("inf"))):
        with pytest.raises(ArgumentError, match="`histogram` takes `range` as two finite numbers that do not fall"):
            ops.histogram(ts.ones((5,)), 2, ends)
    with pytest.raises(ArgumentError, match='`searchsorted` takes `side` as "left" or "right"'):
        ops.searchsorted(ts.ones((2,)), ts.ones((2,)), "middle")
    with pytest.raises(ArgumentError, match="`searchsorted` takes a sorted row, got a tensor of 2 dims"):
        ops.searchsorted(ts.ones((2, 2)), ts.ones((2,)))
    with pytest.raises(ArgumentError, match="`nonzero` needs at least one axis"):
        ops.nonzero(ts.array(1.0))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 9])
def test_what_is_found_is_cut_or_filled_to_its_size(size: int) -> None:
    """More than are asked for are left out, at the end; of fewer the rest is filled."""
    x = np.array([[0, 3, 0], [4, 0, 5], [0, 0, 6]])
    found = [np.asarray(one) for one in ts.jit(lambda x: ops.nonzero(x, size=size, fill_value=-7))(x)]
    for one, own in zip(found, np.nonzero(x), strict=True):
        np.testing.assert_array_equal(one, np.pad(own[:size], (0, max(0, size - 4)), constant_values=-7))
