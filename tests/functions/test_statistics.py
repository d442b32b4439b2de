"""Reductions, scans and order statistics that are written with others, against NumPy."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError
from tests.functions.cases import Case, check_case

ops = ts.ops


def matrix(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.normal(size=(size, 6))]


def with_gaps(rng: np.random.Generator, size: int) -> list[Any]:
    values = rng.normal(size=(size, 6))
    values[1, 2] = values[2, 0] = values[2, 5] = np.nan
    return [values]


def integers(rng: np.random.Generator, size: int) -> list[Any]:
    return [rng.integers(-3, 3, (size, 6))]


CASES = [
    Case("count_nonzero", lambda x: ops.count_nonzero(x, 1), integers, lambda x: np.count_nonzero(x, 1), (),
         narrow=False),
    Case("ptp", lambda x: ops.ptp(x, 0), matrix, lambda x: np.ptp(x, 0)),
    Case("diff", lambda x: ops.diff(x, 2, axis=1), matrix, lambda x: np.diff(x, 2, axis=1)),
    Case("diff along rows", lambda x: ops.diff(x, axis=0), matrix, lambda x: np.diff(x, axis=0)),
    Case("cummin", lambda x: ops.cummin(x, 1), matrix, lambda x: np.minimum.accumulate(x, 1)),
    Case("cummin of integers", lambda x: ops.cummin(x, 0), integers, lambda x: np.minimum.accumulate(x, 0), ()),
    Case("logcumsumexp", ops.logcumsumexp, matrix, lambda x: np.logaddexp.accumulate(x, 1), dynamic=False),
    Case("quantile", lambda x: ops.quantile(x, [0.1, 0.5], 1), matrix, lambda x: np.quantile(x, [0.1, 0.5], 1)),
    Case("quantile of all", lambda x: ops.quantile(x, 0.3), matrix, lambda x: np.quantile(x, 0.3)),
    Case("median", lambda x: ops.median(x, 0, keepdims=True), matrix, lambda x: np.median(x, 0, keepdims=True)),
    Case("percentile", lambda x: ops.percentile(x, 25, 1, method="lower"), matrix,
         lambda x: np.percentile(x, 25, 1, method="lower")),
    Case("nansum", lambda x: ops.nansum(x, 1), with_gaps, lambda x: np.nansum(x, 1)),
    Case("nanprod", lambda x: ops.nanprod(x, 1), with_gaps, lambda x: np.nanprod(x, 1)),
    Case("nanmax", lambda x: ops.nanmax(x, 1), with_gaps, lambda x: np.nanmax(x, 1)),
    Case("nanmin", lambda x: ops.nanmin(x, 1), with_gaps, lambda x: np.nanmin(x, 1)),
    Case("nanargmax", lambda x: ops.nanargmax(x, 1), with_gaps, lambda x: np.nanargmax(x, 1), (), narrow=False),
    Case("nanargmin", lambda x: ops.nanargmin(x, 1), with_gaps, lambda x: np.nanargmin(x, 1), (), narrow=False),
    Case("nanmean", lambda x: ops.nanmean(x, 1), with_gaps, lambda x: np.nanmean(x, 1)),
    Case("nanvar", lambda x: ops.nanvar(x, 1, correction=1), with_gaps, lambda x: np.nanvar(x, 1, ddof=1)),
    Case("nanstd", lambda x: ops.nanstd(x, 1), with_gaps, lambda x: np.nanstd(x, 1)),
    Case("cov", ops.cov, matrix, np.cov, narrow=False),
    Case("cov of columns", lambda x: ops.cov(x, rowvar=False), matrix, lambda x: np.cov(x, rowvar=False), narrow=False),
    Case("corrcoef", ops.corrcoef, matrix, np.corrcoef, (), narrow=False),
    Case("trapezoid over points of each column",
         lambda y, x: ops.trapezoid(y, x, axis=0),
         lambda rng, n: [rng.normal(size=(n, 3)), rng.normal(size=(n, 3)).cumsum(0)],
         lambda y, x: np.trapezoid(y, x, axis=0), (0, 1)),
    Case("diff after a number", lambda x: ops.diff(x, axis=0, prepend=1.5, append=2), matrix,
         lambda x: np.diff(x, axis=0, prepend=1.5, append=2)),
    Case("trapezoid", lambda x: ops.trapezoid(x, dx=0.5), matrix, lambda x: np.trapezoid(x, dx=0.5)),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "case"), list(enumerate(CASES)), ids=lambda one: getattr(one, "name", ""))
def test_a_reduction_holds(turn: int, case: Case) -> None:
    check_case(case, turn)


def test_the_smallest_integer_has_a_running_minimum() -> None:
    x = np.array([0, -128, 127], np.int8)
    assert ops.cummin(ts.array(x)).tolist() == [0, -128, -128]
    assert ops.cummin(ts.array(np.array([5, 0, 255], np.uint8))).tolist() == [5, 0, 0]


def test_nan_propagates_through_order_statistics() -> None:
    assert np.isnan(float(ops.median(ts.array([1.0, float("nan"), 2.0]))))


def test_shares_are_from_0_to_1() -> None:
    with pytest.raises(ArgumentError, match=r"`quantile` takes `q` from 0 to 1, got 1\.5"):
        ops.quantile(ts.ones((3,)), 1.5)
    with pytest.raises(ArgumentError, match='takes `method` as "linear", "lower"'):
        ops.quantile(ts.ones((3,)), 0.5, method="cubic")


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([-np.inf, 1.0], 0.5, -np.inf),
        ([1.0, np.inf], 0.5, np.inf),
        ([-np.inf, np.inf], 0.5, np.nan),
        ([-np.inf, 1.0, 2.0, 3.0], 0.2, -np.inf),
        ([-np.inf, 1.0, 2.0], 0.5, 1.0),
        ([1e16, 1.0], 1.0, 1e16),
    ],
)
def test_an_infinite_end_is_kept(values: list[float], share: float, expected: float) -> None:
    np.testing.assert_array_equal(np.asarray(ops.quantile(ts.array(np.array(values)), share)), expected)


def test_integers_of_32_bits_are_ordered_exactly() -> None:
    # In f32 both neighbours of 2**24 + 1 are 2**24, or 2**24 + 2: their middle is then another one.
    x = np.array([2**24 + 1, -(2**24) - 3], np.int32)
    assert float(ops.median(ts.array(x))) == -1.0
    assert float(ops.median(ts.array(x.astype(np.int64)))) == -1.0
    bytes_ = np.array([1, 4], np.uint8)
    assert (ops.median(ts.array(bytes_)).dtype, float(ops.median(ts.array(bytes_)))) == (ts.f32, 2.5)


def test_more_corrections_than_observations_divide_by_zero() -> None:
    x = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]])
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning):
        expected = np.cov(x, ddof=3)
    np.testing.assert_array_equal(np.asarray(ops.cov(ts.array(x), correction=3)), expected)
