"""Products, distances and grids, against NumPy and SciPy."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingTypeStubs=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.spatial.distance import cdist

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tests.functions.cases import Case, check_case

ops = ts.ops


def two(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 3)), rng.normal(size=(size, 3))]


def vectors(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=size), rng.normal(size=size + 1)]


CASES = [
    Case("tensordot", lambda a, b: ops.tensordot(a, b, 2), two, lambda a, b: np.tensordot(a, b, 2), (0, 1),
         narrow=False),
    Case("tensordot of axes", lambda a, b: ops.tensordot(a, b, ([1], [1])), two,
         lambda a, b: np.tensordot(a, b, ([1], [1])), (0, 1), narrow=False),
    Case("outer", ops.outer, vectors, np.outer, (0, 1), narrow=False),
    Case("vecdot", ops.vecdot, two, lambda a, b: (a * b).sum(-1), (0, 1), narrow=False),
    Case("kron", ops.kron, two, np.kron, (0, 1), narrow=False),
    Case("cross", ops.cross, two, np.cross, (0, 1), narrow=False, dynamic=False),
    Case("cdist", ops.cdist, two, cdist, (0, 1), narrow=False),
    Case("cdist by sums", lambda a, b: ops.cdist(a, b, 1.0), two, lambda a, b: cdist(a, b, "cityblock"), narrow=False),
    Case("cdist of order 3", lambda a, b: ops.cdist(a, b, 3.0), two, lambda a, b: cdist(a, b, "minkowski", p=3),
         narrow=False),
    Case("cdist of the largest", lambda a, b: ops.cdist(a, b, float("inf")), two,
         lambda a, b: cdist(a, b, "chebyshev"), narrow=False),
    Case("meshgrid", ops.meshgrid, vectors, lambda a, b: tuple(np.meshgrid(a, b)), narrow=False, batched=False),
    Case("broadcast_arrays", ops.broadcast_arrays, lambda rng, n: [rng.normal(size=(n, 1)), rng.normal(size=(4,))],
         lambda a, b: tuple(np.broadcast_arrays(a, b)), narrow=False, batched=False, dynamic=False),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_product_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


def test_blocks_stand_on_a_diagonal() -> None:
    a, b = np.ones((2, 3)), np.full((1, 2), 5.0)
    np.testing.assert_array_equal(np.asarray(ops.block_diag(ts.array(a), ts.array(b))), block_diag(a, b))


def test_equal_rows_are_0_apart_and_stay_there() -> None:
    x = ts.array([[1.0, 2.0]])
    assert ts.grad(lambda a: ops.cdist(a, x).sum())(x).tolist() == [[0.0, 0.0]]


def test_wrong_axes_and_sizes_are_refused() -> None:
    with pytest.raises(ArgumentError, match="`tensordot` cannot pair 3 axes of tensors of 2 and 2 dims"):
        ops.tensordot(ts.ones((2, 2)), ts.ones((2, 2)), 3)
    with pytest.raises(ShapeError, match="`cross` takes vectors of 3, got 2 and 2"):
        ops.cross(ts.ones((2,)), ts.ones((2,)))
    with pytest.raises(ArgumentError, match='`meshgrid` takes `indexing` as "xy" or "ij"'):
        ops.meshgrid(ts.ones((2,)), indexing="yx")


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_equal_coordinates_have_no_slope(order: float) -> None:
    x, y = np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[1.0, 2.0], [1.0, 5.0]])
    found = ts.grad(lambda a, b: ops.cdist(a, b, order)[0].sum(), (0, 1))(ts.array(x), ts.array(y))
    # Of the first row, the first distance is 0, and the second is along one axis.
    expected = [[[0.0, -1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]]
    np.testing.assert_allclose([np.asarray(one) for one in found], expected, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(ops.cdist(ts.array(x), ts.array(y), order)[0]), [0.0, 3.0], rtol=1e-15)


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0, 3.0, 9.0, float("inf")])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_near_and_far_rows_keep_their_distance(order: float, scale: float) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(2, 4)) * scale).astype(np.float32), np.zeros((1, 4), np.float32)
    expected = np.linalg.norm(x.astype(np.float64), order, 1)[:, None]
    np.testing.assert_allclose(np.asarray(ops.cdist(ts.array(x), ts.array(y), order)), expected, rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_far_from_all_others_takes_no_digits_from_them(dtype: Any) -> None:
    """One scale serves all rows, with enough of the range left for those near 1; infinities have no part in it."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(4, 5)).astype(dtype)
    large = np.full((1, 5), 1e30 if dtype is np.float32 else 1e260, dtype)
    x = np.concatenate([rows, large, np.full((1, 5), np.inf, dtype)])
    exact = np.linalg.norm(rows[:, None].astype(np.longdouble) - rows.astype(np.longdouble), axis=-1)
    found = np.asarray(ops.cdist(ts.array(x), ts.array(x))).astype(np.longdouble)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found[:4, :4], exact, rtol=8 * eps)
    np.testing.assert_allclose(found[4, :4], np.linalg.norm(large.astype(np.longdouble)), rtol=8 * eps)
    assert np.isinf(found[5, :5]).all()
    assert np.isnan(found[5, 5])
    pairs = np.asarray(ops.pdist(ts.array(x[:5]))).astype(np.longdouble)
    np.testing.assert_array_equal(pairs, found[:5, :5][np.triu_indices(5, 1)])


@pytest.mark.parametrize("shift", [1.0, 1e4])
def test_near_rows_have_all_their_digits(shift: float) -> None:
    """A product in place of differences would lose what rows have in common."""
    rng = np.random.default_rng(3)
    x = (shift + 1e-3 * rng.normal(size=(40, 16))).astype(np.float32)
    y = (shift + 1e-3 * rng.normal(size=(30, 16))).astype(np.float32)
    exact = np.linalg.norm(x[:, None].astype(np.float64) - y.astype(np.float64), axis=-1)
    np.testing.assert_allclose(np.asarray(ops.cdist(ts.array(x), ts.array(y))), exact, rtol=1e-6)


def test_distances_of_order_0_count() -> None:
    x, y = ts.array([[0.0, 1.0, 2.0]]), ts.array([[0.0, 2.0, 2.0], [1.0, 0.0, 0.0]])
    assert ops.cdist(x, y, 0).tolist() == [[1.0, 3.0]]
    assert ops.cdist(ts.ones((2, 0)), ts.ones((1, 0)), 2).tolist() == [[0.0], [0.0]]
    infinite = ops.cdist(ts.array([[float("inf"), 0.0]]), ts.array([[0.0, 0.0], [float("nan"), 0.0]]))
    np.testing.assert_array_equal(np.asarray(infinite), [[np.inf, np.nan]])
    with pytest.raises(ArgumentError, match=r"`cdist` takes `p` from 0 up, got -1\.0"):
        ops.cdist(x, y, -1.0)
