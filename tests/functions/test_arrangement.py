"""Functions that lay tensors out, pick elements, and skip NaN in order statistics, against NumPy and PyTorch."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, AxisError, ShapeError, TracingError
from tests.functions.cases import REFERENCE, Case, check_batched, check_gpu, check_gradient, check_values

torch: Any = pytest.importorskip("torch")
ops = ts.ops


def matrix(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 6))]


def with_gaps(rng: np.random.Generator, size: int) -> list[Any]:
    values = rng.normal(size=(size, 6))
    values[1, 2] = values[2, 0] = values[2, 5] = np.nan
    values[3] = np.nan
    return [values]


def pair(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 3)), rng.normal(size=(size, 3))]


def repeats(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.integers(-2, 3, (size, 6)) * 1.5]


def most_frequent(x: Any) -> tuple[Any, Any]:
    found = [np.unique(row, return_counts=True) for row in x]
    return np.array([one[count.argmax()] for one, count in found]), np.array([count.max() for _, count in found])


def theirs(function: Any) -> Any:
    return lambda *arrays: function(*map(torch.tensor, arrays)).numpy()


def masked_row(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 6)), rng.random((size, 6)) < 0.4, rng.normal(size=60)]


def put_masked(x: Any, mask: Any, source: Any) -> Any:
    made = x.copy()
    made[mask] = source[np.minimum(np.arange(mask.sum()), source.size - 1)]
    return made


CASES = [
    Case("hstack", lambda x, y: ops.hstack([x, y]), pair, lambda x, y: np.hstack([x, y]), (0, 1)),
    Case("vstack", lambda x, y: ops.vstack([x, y]), pair, lambda x, y: np.vstack([x, y]), (0, 1)),
    Case("dstack", lambda x, y: ops.dstack([x, y]), pair, lambda x, y: np.dstack([x, y]), (0, 1)),
    Case("column_stack", lambda x, y: ops.column_stack([x, y[:, 0]]), pair, lambda x, y: np.column_stack([x, y[:, 0]]),
         (0, 1)),
    Case("array_split", lambda x: ops.array_split(x, 4, 1), matrix, lambda x: np.array_split(x, 4, 1), dynamic=False),
    Case("array_split at indices", lambda x: ops.array_split(x, [1, 5, 9], 1), matrix,
         lambda x: np.array_split(x, [1, 5, 9], 1), dynamic=False),
    Case("diag", lambda x: ops.diag(x[:, 0], 1), matrix, lambda x: np.diag(x[:, 0], 1), batched=False),
    Case("diag of a matrix", lambda x: ops.diag(x, -1), matrix, lambda x: np.diag(x, -1), batched=False, dynamic=False),
    Case("diag_embed", lambda x: ops.diag_embed(x, -2, 0, 1), matrix, theirs(lambda x: torch.diag_embed(x, -2, 0, 1)),
         batched=False),
    Case("rot90", lambda x: ops.rot90(x, 3), matrix, lambda x: np.rot90(x, 3)),
    Case("vander", lambda x: ops.vander(x[:, 0], 4), matrix, lambda x: np.vander(x[:, 0], 4)),
    Case("cartesian_prod", lambda x: ops.cartesian_prod(x[:, 0], x[0]), matrix,
         theirs(lambda x: torch.cartesian_prod(x[:, 0], x[0]))),
    Case("combinations", lambda x: ops.combinations(x[0], 3), matrix, theirs(lambda x: torch.combinations(x[0], 3)),
         dynamic=False),
    Case("isin", lambda x, y: ops.isin(x, y), lambda rng, n: [*repeats(rng, n), np.array([1.5, -3.0, np.nan])],
         np.isin, (), batched=False),
    Case("isin, inverted", lambda x: ops.isin(x, ts.array([[1, 3], [5, 5]]), invert=True),
         lambda rng, n: [rng.integers(0, 6, (n, 2))], lambda x: np.isin(x, [1, 3, 5], invert=True), ()),
    Case("mode", lambda x: ops.mode(x, 1), repeats, most_frequent, ()),
    Case("pdist", lambda x: ops.pdist(x, 3.0), matrix, theirs(lambda x: torch.pdist(x, 3.0)), dynamic=False),
    Case("threshold", lambda x: ops.threshold(x, 0.3, 7.0), matrix,
         theirs(lambda x: torch.nn.functional.threshold(x, 0.3, 7.0))),
    Case("masked_scatter", ops.masked_scatter, masked_row, put_masked, (0, 2)),
    Case("masked_select", lambda x, mask, _: ops.masked_select(x, mask, size=9, fill_value=-1), masked_row,
         lambda x, mask, _: np.append(x[mask], [-1.0] * 9)[:9]),
    Case("nanquantile", lambda x: ops.nanquantile(x, [0.2, 0.9], 1), with_gaps,
         lambda x: np.nanquantile(x, [0.2, 0.9], 1), ()),
    Case("nanquantile of all", lambda x: ops.nanquantile(x, 0.3, method="higher"), with_gaps,
         lambda x: np.nanquantile(x, 0.3, method="higher"), ()),
    Case("nanmedian", lambda x: ops.nanmedian(x, 0, keepdims=True), with_gaps,
         lambda x: np.nanmedian(x, 0, keepdims=True)),
    Case("nanpercentile", lambda x: ops.nanpercentile(x, 25, 0), with_gaps, lambda x: np.nanpercentile(x, 25, 0)),
    Case("nancumsum", lambda x: ops.nancumsum(x, 1), with_gaps, lambda x: np.nancumsum(x, 1)),
    Case("nancumprod", lambda x: ops.nancumprod(x, 1), with_gaps, lambda x: np.nancumprod(x, 1)),
    Case("cumulative_trapezoid", lambda y, x: ops.cumulative_trapezoid(y, x, axis=0), pair,
         lambda y, x: theirs(lambda a, b: torch.cumulative_trapezoid(a, b, dim=0))(y, x), (0, 1)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_function_holds(turn: int, case: Case) -> None:
    check_values(case)
    if case.grad:
        check_gradient(case, REFERENCE)
    if case.batched:
        check_batched(case, REFERENCE)
    if turn % 5 == 0:
        check_gpu(case)


def test_ranks_below_are_filled_as_numpy_does() -> None:
    for shape in ((), (2,), (2, 3), (2, 3, 4), (1, 2, 3, 4)):
        x = np.ones(shape)
        for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
            assert getattr(ops, name)(ts.array(x)).shape == getattr(np, name)(x).shape
            assert [one.shape for one in getattr(ops, name)(ts.array(x), 2.0)] == [
                one.shape for one in getattr(np, name)(x, 2.0)
            ]
    for name in ("hstack", "vstack", "dstack"):
        for shape in ((3,), (2, 3), (2, 3, 4)):
            x = np.arange(np.prod(shape)).reshape(shape)
            expected = getattr(np, name)([x, x + 1])
            np.testing.assert_array_equal(np.asarray(getattr(ops, name)([ts.array(x), ts.array(x + 1)])), expected)


@pytest.mark.parametrize("k", range(-2, 5))
def test_right_angles_turn_any_plane(k: int) -> None:
    x = np.arange(24).reshape(2, 3, 4)
    for axes in ((0, 1), (1, 0), (2, 0)):
        np.testing.assert_array_equal(np.asarray(ops.rot90(ts.array(x), k, axes)), np.rot90(x, k, axes))


def test_diagonals_stand_on_any_two_axes() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for offset in (-1, 0, 2):
        for axes in ((-2, -1), (0, 1), (2, 0), (1, 0)):
            expected = torch.diag_embed(torch.tensor(x), offset, *axes).numpy()
            np.testing.assert_array_equal(np.asarray(ops.diag_embed(ts.array(x), offset, *axes)), expected)
    assert ops.diag(ts.zeros((0,))).shape == (0, 0)


def test_positions_are_one_number_or_one_for_each_axis() -> None:
    numbers = np.arange(24).reshape(4, 6)
    found = ops.unravel_index(ts.array(numbers), (2, 3, 4))
    for one, other in zip(found, np.unravel_index(numbers, (2, 3, 4)), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
    np.testing.assert_array_equal(np.asarray(ops.ravel_multi_index(found, (2, 3, 4))), numbers)
    assert [int(one) for one in ops.unravel_index(ts.array(-1), (2, 3))] == [1, 2]
    with pytest.raises(ArgumentError, match="along each of 2 axes"):
        ops.ravel_multi_index((ts.array(0),), (2, 3))


def test_triangles_have_their_positions() -> None:
    for rows, columns, offset in ((3, 3, 0), (2, 4, 1), (4, 2, -2), (3, 3, -5), (3, 3, 5), (0, 2, 0)):
        for name in ("tril_indices", "triu_indices"):
            expected = getattr(torch, name)(rows, columns, offset).numpy()
            np.testing.assert_array_equal(np.asarray(getattr(ops, name)(rows, columns, offset)), expected)


@pytest.mark.parametrize(
    ("rows", "columns", "offset"),
    [(600, 600, 0), (600, 70, -3), (70, 600, 9), (1, 5000, 2), (5000, 1, -7), ((1 << 20) + 5, 3, -(1 << 20))],
)
@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
def test_triangles_of_many_rows(name: str, rows: int, columns: int, offset: int) -> None:
    expected = getattr(torch, name)(rows, columns, offset).numpy()
    np.testing.assert_array_equal(np.asarray(getattr(ops, name)(rows, columns, offset)), expected)


def test_positions_of_triangles_are_computed_and_not_gathered() -> None:
    text = str(ts.jit(lambda: ops.triu_indices(7, 9, 1)).lower().graph)
    assert "scatter" not in text
    assert "cumsum" not in text


def test_shapes_broadcast_or_do_not() -> None:
    assert ops.broadcast_shapes((2, 1, 3), (4, 1), ()) == (2, 4, 3)
    assert ops.broadcast_shapes(3, (1, 3), (0, 1, 1)) == (0, 1, 3)
    assert ops.broadcast_shapes() == ()
    with pytest.raises(ShapeError, match="do not broadcast: 2 and 3 differ"):
        ops.broadcast_shapes((2,), (3,))

    @ts.jit
    def stretch(x: ts.Tensor["N", 1, ts.f32], y: ts.Tensor["M", ts.f32]) -> Any:
        return ops.broadcast_to(y, ops.broadcast_shapes(x.shape, y.shape))

    assert stretch(ts.ones((3, 1)), ts.ones((5,))).shape == (3, 5)


def test_sizes_that_depend_on_values_are_asked_for_in_a_trace() -> None:
    x, mask = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[True, False], [True, True]])
    assert ops.masked_select(ts.array(x), ts.array(mask)).tolist() == [1.0, 3.0, 4.0]
    assert ops.masked_select(ts.array(x), ts.array([True, False])).tolist() == [1.0, 3.0]
    assert ops.masked_select(ts.zeros((0,)), ts.zeros((0,), ts.bool_)).shape == (0,)
    assert ops.argwhere(ts.array(mask)).tolist() == np.argwhere(mask).tolist()
    assert ops.argwhere(ts.array(3)).shape == (1, 0)
    found = ts.jit(lambda x: ops.argwhere(x, size=4, fill_value=-1))(mask)
    assert found.tolist() == [[0, 0], [1, 0], [1, 1], [-1, -1]]
    with pytest.raises(TracingError, match="size="):
        ts.jit(ops.masked_select)(x, mask)


def test_elements_of_any_dtype_are_found() -> None:
    assert ops.isin(ts.array([True, False]), ts.array([True])).tolist() == [True, False]
    assert ops.isin(ts.array(3), ts.array([[3, 4]])).item() is True
    assert ops.isin(ts.array([1.0, 2.0]), ts.zeros((0,))).tolist() == [False, False]
    assert ops.isin(ts.zeros((0, 2)), ts.zeros((3,))).shape == (0, 2)
    assert [one.tolist() for one in ops.mode(ts.array([[True, False, False]]))] == [[False], [2]]
    assert [one.shape for one in ops.mode(ts.ones((2, 3, 4)), 1, keepdims=True)] == [(2, 1, 4)] * 2
    assert [int(one) for one in ops.mode(ts.array(5), 0)] == [5, 1]


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(ShapeError, match="`mode` needs an element"):
        ops.mode(ts.zeros((2, 0)))
    with pytest.raises(ShapeError, match="`diag` takes a vector or a matrix"):
        ops.diag(ts.ones((1, 1, 1)))
    with pytest.raises(AxisError, match="`rot90` takes two different axes"):
        ops.rot90(ts.ones((2, 2)), axes=(1, 1))
    with pytest.raises(ShapeError, match="takes a list of at least one tensor"):
        ops.hstack(ts.ones((2,)))
    with pytest.raises(ArgumentError, match="`combinations` makes up to"):
        ops.combinations(ts.ones((60,)), 10)
    with pytest.raises(ArgumentError, match="`pdist` takes rows"):
        ops.pdist(ts.ones((3,)))
    with pytest.raises(ArgumentError, match="`nanquantile` takes `q` from 0 to 1"):
        ops.nanquantile(ts.ones((3,)), 2)
    assert ops.combinations(ts.array([1, 2]), 0).shape == (1, 0)
    assert ops.combinations(ts.array([1, 2]), 2, with_replacement=True).tolist() == [[1, 1], [1, 2], [2, 2]]
    assert ops.combinations(ts.array([1, 2]), 3).shape == (0, 3)
    assert ops.vander(ts.array([1, 2]), 0).shape == (2, 0)


@pytest.mark.parametrize("dtype", [ts.bool_, ts.i8, ts.i64, ts.f32])
def test_what_is_laid_out_or_selected_keeps_its_dtype(dtype: Any) -> None:
    x = ts.array([1, 0, 1], dtype)
    assert ops.diag(x).dtype is dtype
    assert ops.diag_embed(x, 1).dtype is dtype
    for size in (None, 1, 5):
        assert ops.masked_select(x, ts.array([True, False, True]), size=size).dtype is dtype
    assert ops.masked_select(ts.array([2**60 + 1]), ts.array([True])).tolist() == [2**60 + 1]
    assert ops.threshold(ts.array([1, 5]), 2, 0).tolist() == [0, 5]
    assert ops.threshold(ts.array([1, 5]), 2, 0).dtype is ts.i64
