"""softmax and its relatives at the edges: huge, empty, infinite and missing numbers have one defined result."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, round_as
from tessera.types.dtype import DType, bf16, f32, i32, i64
from tests.graph.eager import RuleDTypeError, RuleError, infer, reference, run_decomposition, tensor

INF, NAN = np.inf, np.nan


def both(op: str, x: Array, **attributes: object) -> Array:
    """The result by reference and by decomposition, which agree."""
    wanted = reference(op, x, **attributes)
    given = run_decomposition(op, x, **attributes)
    np.testing.assert_allclose(given.astype(np.float64), wanted.astype(np.float64), rtol=1e-2, atol=1e-6)
    return wanted.astype(np.float64)


@pytest.mark.parametrize("dtype", [f32, bf16])
@pytest.mark.parametrize("op", ["softmax", "softmax_safe"])
def test_softmax_of_hard_rows_is_defined(op: str, dtype: DType) -> None:
    rows = [[1e4, -1e4, 0, 1e4], [-INF] * 4, [NAN, 0, 0, 0], [0, -INF, 0, -INF], [-1e4] * 4]
    out = both(op, round_as(rows, dtype))
    np.testing.assert_array_equal(out[0], [0.5, 0, 0, 0.5])
    np.testing.assert_array_equal(out[1], 0)
    assert np.isnan(out[2]).all()
    np.testing.assert_array_equal(out[3], [0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(out[4], 0.25)


def test_rows_sum_to_one() -> None:
    x = np.random.default_rng(0).standard_normal((50, 1000)).astype(np.float32) * 20
    np.testing.assert_allclose(both("softmax", x).sum(1), 1.0, rtol=1e-6)


def test_log_softmax_of_hard_rows_is_defined() -> None:
    out = both("log_softmax", np.array([[1e4, -1e4], [-INF, -INF], [0, -INF]], np.float32))
    np.testing.assert_array_equal(out[0], [0, -2e4])
    np.testing.assert_array_equal(out[1], [-INF, -INF])
    np.testing.assert_array_equal(out[2], [0, -INF])


def test_logsumexp_of_hard_rows_is_defined() -> None:
    rows = np.array([[-INF, -INF], [INF, 0], [INF, -INF], [NAN, 0], [1e4, 1e4]], np.float32)
    out = both("logsumexp_safe", rows, axes=(1,))
    np.testing.assert_allclose(out, [-INF, INF, INF, NAN, 1e4 + np.log(2)], rtol=1e-7)
    np.testing.assert_array_equal(both("logsumexp_safe", np.zeros((2, 0), np.float32), axes=(1,)), [-INF, -INF])


def test_cross_entropy_is_minus_the_log_probability_and_skips_padding() -> None:
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((6, 5)).astype(np.float32)
    labels = np.array([0, 4, -100, 2, 7, 1])
    shifted = logits.astype(np.float64)
    each = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(6), np.clip(labels, 0, 4)]
    counted = (labels >= 0) & (labels < 5)
    for reduction, wanted in (
        ("none", np.where(counted, each, 0)),
        ("sum", each[counted].sum()),
        ("mean", each[counted].mean()),
    ):
        np.testing.assert_allclose(
            run_decomposition("cross_entropy", logits, labels, reduction=reduction), wanted, rtol=1e-5
        )
    ignored = np.full(6, -1)
    assert run_decomposition("cross_entropy", logits, ignored) == 0


def test_softmax_says_what_is_wrong() -> None:
    with pytest.raises(RuleDTypeError, match="floating `x`, got i32"):
        infer("softmax", tensor(2, 3, dtype=i32))
    with pytest.raises(RuleError, match="no axis 2"):
        infer("softmax", tensor(2, 3, dtype=f32), axis=2)
    with pytest.raises(RuleError, match="pairs"):
        infer("cross_entropy", tensor(4, 3, dtype=f32), tensor(5, dtype=i64))
    with pytest.raises(RuleError, match="needs labels"):
        infer("cross_entropy", tensor(4, 3, dtype=f32), tensor(4, 3, dtype=i64))
    with pytest.raises(RuleError, match="reductions"):
        infer("cross_entropy", tensor(4, 3, dtype=f32), tensor(4, dtype=i64), reduction="max")
