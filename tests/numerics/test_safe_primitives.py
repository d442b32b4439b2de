"""What is safe by construction: softmax, logsumexp, norms and attention at the ends of the number range."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import Array
from tessera.ir.graph.ops import REGISTRY
from tests.numerics.bounds import assert_close

INF, NAN = np.inf, np.nan
F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
BOTH = pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
TINY = 1e-40
"""Below the least normal number of f32 and bf16."""

ROWS: dict[str, tuple[list[float], list[float] | None]] = {
    "all large": ([1e4] * 7, [1 / 7] * 7),
    "all far below": ([-1e4] * 7, [1 / 7] * 7),
    "far apart": ([1e4, -1e4, 0.0], [1.0, 0.0, 0.0]),
    "two large among small": ([1e4, -1e4, 1e4, 0.0], [0.5, 0.0, 0.5, 0.0]),
    "large by turns": ([1e4 if at % 2 else -1e4 for at in range(1001)], [at % 2 / 500 for at in range(1001)]),
    "nothing": ([-INF] * 5, [0.0] * 5),
    "nothing, long": ([-INF] * 131, [0.0] * 131),
    "one that is not nothing": ([-INF, 3.0, -INF], [0.0, 1.0, 0.0]),
    "not a number": ([1.0, NAN, 2.0], [NAN] * 3),
    "nothing and not a number": ([-INF, NAN], [NAN] * 2),
    "infinite": ([1.0, INF, 2.0], [NAN] * 3),
    "the largest and the least": ([3e38, -3e38, 3e38], [0.5, 0.0, 0.5]),
    "tiny": ([TINY, -TINY, 0.0, TINY], [0.25] * 4),
    "one": ([-1e4], [1.0]),
    "ordinary": ([0.5, -1.25, 3.0, 2.0, -7.5], None),
}
"""Rows and their shares; those of the last are what f64 says."""


def checked(name: str, given: Any, arrays: list[Array], **attributes: Any) -> Array:
    """The result as an array, after it was found within its bound of the reference, which computes in f64."""
    spec, result = REGISTRY[name], np.asarray(given)
    assert_close(spec, arrays, spec.with_defaults(attributes), [result], f"{name} {attributes}")
    return result


def rounded(values: Any, dtype: Any) -> Array:
    return np.asarray(values, np.float32).astype(dtype).astype(np.float64)


@BOTH
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("op", ["softmax", "softmax_safe"])
def test_softmax(op: str, name: str, dtype: Any) -> None:
    row, shares = ROWS[name]
    x = np.array([row, np.linspace(-1, 1, len(row)), row], np.float32).astype(dtype)
    function: Callable[..., Any] = getattr(ops, op)
    given = checked(op, ts.jit(lambda x: function(x), dynamic=True)(x), [x]).astype(np.float64)
    if shares is not None:
        np.testing.assert_allclose(given[0], rounded(shares, dtype), rtol=2 * ml_eps(dtype))
    assert np.isfinite(given[1]).all(), "rows do not touch each other"
    np.testing.assert_array_equal(given[0], given[2])
    columns = ts.jit(lambda x: function(x, axis=0), dynamic=True)(np.ascontiguousarray(x.T))
    np.testing.assert_array_equal(np.asarray(columns).astype(np.float64).T, given)


def ml_eps(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


@BOTH
@pytest.mark.parametrize("name", ROWS)
def test_log_softmax_and_logsumexp(name: str, dtype: Any) -> None:
    row, _ = ROWS[name]
    x = np.array([row, np.linspace(-1, 1, len(row))], np.float32).astype(dtype)
    logs = checked("log_softmax", ts.jit(lambda x: ops.log_softmax(x), dynamic=True)(x), [x])
    total = checked("logsumexp_safe", ts.jit(lambda x: ops.logsumexp_safe(x), dynamic=True)(x), [x], axes=(1,))
    assert np.isfinite(logs[1].astype(np.float64)).all()
    values = x[0].astype(np.float64)
    first = float(total[0])
    if np.isnan(values).any():
        assert np.isnan(first)
    elif np.isposinf(values).any():
        assert first == INF
    elif np.isneginf(values).all():
        assert first == -INF
        assert np.isneginf(logs[0].astype(np.float64)).all()
    else:
        assert np.isfinite(first)
        np.testing.assert_allclose(first, values.max(), rtol=ml_eps(dtype), atol=np.log(len(row)) + 1)


@BOTH
def test_logsumexp_of_no_elements(dtype: Any) -> None:
    jitted = ts.jit(lambda x: ops.logsumexp_safe(x), dynamic=True)
    for shape in ((3, 0), (0, 4), (2, 5)):
        x = np.zeros(shape, dtype)
        assert np.isneginf(np.asarray(jitted(x)).astype(np.float64)).all() == (shape != (2, 5)) or not shape[0]
    assert jitted.cache_info().misses == 1


def norm_rows() -> dict[str, Array]:
    rng = np.random.default_rng(5)
    normal = rng.standard_normal(67)
    return {
        "constant": np.full(67, 3.0),
        "zero": np.zeros(67),
        "constant and huge": np.full(67, 1e18),
        "huge": normal * 1e18,
        "huge and far off": normal * 1e14 + 1e18,
        "one among zeros": np.eye(67)[5] * 1e18,
        "denormal": normal * TINY,
        "constant and denormal": np.full(67, TINY),
        "ordinary": normal,
        "both ends": np.where(np.arange(67) % 2 == 0, 1e18, 1e-18) * np.sign(normal),
    }


@BOTH
@pytest.mark.parametrize("op", ["layernorm_safe", "rmsnorm_safe"])
def test_norms_of_difficult_rows_are_finite_and_near(op: str, dtype: Any) -> None:
    rows = norm_rows()
    x = np.stack(list(rows.values())).astype(np.float32).astype(dtype)
    rng = np.random.default_rng(6)
    parameters = [rng.standard_normal(67).astype(dtype) for _ in range(2 if op == "layernorm_safe" else 1)]
    function: Callable[..., Any] = getattr(ops, op)
    bare = checked(op, ts.jit(lambda x: function(x), dynamic=True)(x), [x])
    assert np.isfinite(bare.astype(np.float64)).all()
    whole = ts.jit(lambda x, *p: function(x, *p), dynamic=True)(x, *parameters)
    assert np.isfinite(checked(op, whole, [x, *parameters]).astype(np.float64)).all()
    alone = ts.jit(lambda x: function(x), dynamic=True)
    for number, name in enumerate(rows):
        np.testing.assert_array_equal(np.asarray(alone(x[number : number + 1]))[0], bare[number], err_msg=name)


@BOTH
@pytest.mark.parametrize("op", ["layernorm_safe", "rmsnorm_safe"])
def test_a_row_of_nan_stays_in_its_row(op: str, dtype: Any) -> None:
    x = np.ones((3, 33), np.float32).astype(dtype)
    x[1, 7] = NAN
    function: Callable[..., Any] = getattr(ops, op)
    given = np.asarray(ts.jit(lambda x: function(x), dynamic=True)(x)).astype(np.float64)
    assert np.isnan(given[1]).all()
    assert np.isfinite(given[[0, 2]]).all()


def heads(dtype: Any, queries: int = 5, keys: int = 7, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(9)
    shapes = ((2, 2, queries, 16), (2, 2, keys, 16), (2, 2, keys, 16))
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return [array.astype(dtype) for array in (q * scale, k, v)]


@BOTH
def test_attention_of_a_fully_masked_row_is_zero(dtype: Any) -> None:
    q, k, v = heads(dtype)
    mask = np.zeros((5, 7), np.float32)
    mask[2] = -INF
    mask[3, :6] = -INF
    jitted = ts.jit(lambda q, k, v, m: ops.attention(q, k, v, m), dynamic=True)
    given = checked("attention", jitted(q, k, v, mask), [q, k, v, mask])
    assert (given[:, :, 2] == 0).all()
    np.testing.assert_array_equal(given[:, :, 3], v[:, :, 6])
    nothing = np.full((5, 7), -INF, np.float32)
    assert (np.asarray(jitted(q, k, v, nothing)) == 0).all()


@BOTH
@pytest.mark.parametrize(("queries", "keys"), [(5, 3), (7, 7), (130, 2), (1, 131), (3, 0)])
def test_causal_queries_that_see_no_key_give_zero(queries: int, keys: int, dtype: Any) -> None:
    q, k, v = heads(dtype, queries, keys)
    jitted = ts.jit(lambda q, k, v: ops.attention(q, k, v, causal=True), dynamic=True)
    given = checked("attention", jitted(q, k, v), [q, k, v], causal=True)
    blind = max(queries - keys, 0)
    assert (given[:, :, :blind] == 0).all()
    assert np.isfinite(given.astype(np.float64)).all()


@BOTH
def test_attention_of_huge_scores_is_finite(dtype: Any) -> None:
    q, k, v = heads(dtype, scale=1e4)
    jitted = ts.jit(lambda q, k, v: ops.attention(q, k, v), dynamic=True)
    given = np.asarray(jitted(q, k, v)).astype(np.float64)
    assert np.isfinite(given).all()
    # such scores leave one key for each query, except where two are equal
    chosen = (q.astype(np.float64) @ np.swapaxes(k.astype(np.float64), 2, 3)).argmax(3)
    picked = np.take_along_axis(v.astype(np.float64), chosen[..., np.newaxis], 2)
    np.testing.assert_allclose(given, picked, atol=float(np.abs(v.astype(np.float64)).max()) * 1e-2)


@BOTH
def test_a_query_of_nan_stays_in_its_row(dtype: Any) -> None:
    q, k, v = heads(dtype)
    q[0, 1, 2, 3] = NAN
    given = np.asarray(ts.jit(lambda q, k, v: ops.attention(q, k, v), dynamic=True)(q, k, v)).astype(np.float64)
    assert np.isnan(given[0, 1, 2]).all()
    given[0, 1, 2] = 0
    assert np.isfinite(given).all()


@BOTH
def test_cross_entropy_of_extremes(dtype: Any) -> None:
    logits = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 0], [5, 5, 5], [-1e4, -1e4, -1e4]], np.float32).astype(dtype)
    labels = np.array([0, 0, 2, 9])
    jitted = ts.jit(lambda x, y: ops.cross_entropy(x, y, reduction="none"), dynamic=True)
    given = checked("cross_entropy", jitted(logits, labels), [logits, labels], reduction="none").astype(np.float64)
    wanted = rounded([0.0, 2e4, np.log(3.0), 0.0], dtype)
    np.testing.assert_allclose(given, wanted, rtol=2 * ml_eps(dtype), atol=1e-30)
