"""Linear attention and Mamba-2 in chunks: the recurrence in f64, derivatives, and bits that a batch leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.stdlib.slopes import check_gradients, compare, normal

ROUNDINGS = [(np.float32, 2.0**-17), (np.float16, 2.0**-9), (ml_dtypes.bfloat16, 2.0**-6)]


def recur(q: Any, k: Any, v: Any, g: Any = None) -> Any:
    """Row after row, in f64; groups of queries and keys are shared by heads."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    q, k = (np.repeat(x, v.shape[1] // x.shape[1], axis=1) for x in (q, k))
    state, rows = np.zeros((*v.shape[:2], q.shape[-1], v.shape[-1])), list[Any]()
    for t in range(v.shape[2]):
        if g is not None:
            state = state * np.exp(np.asarray(g)[:, :, t].astype(np.float64))[..., None, None]
        state = state + k[:, :, t, :, None] * v[:, :, t, None, :]
        rows.append(np.einsum("bhd,bhdv->bhv", q[:, :, t], state))
    return np.stack(rows, axis=2) if rows else np.zeros_like(v)


@pytest.mark.parametrize(("dtype", "step"), ROUNDINGS, ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("length", [1, 127, 128, 300])
def test_chunks_equal_the_recurrence(dtype: Any, step: float, length: int) -> None:
    q, k = normal(2, 2, length, 16, dtype=dtype), normal(2, 2, length, 16, dtype=dtype)
    v, g = normal(2, 4, length, 24, dtype=dtype), -np.abs(normal(2, 4, length)) * 0.1
    compare(ts.ops.linear_attention(q, k, v), recur(q, k, v), step)
    compare(ts.ops.linear_attention(q, k, v, g), recur(q, k, v, g), step)


def test_no_rows_give_no_rows() -> None:
    empty = np.zeros((2, 3, 0, 8), np.float32)
    assert ts.ops.linear_attention(empty, empty, empty).shape == (2, 3, 0, 8)


def elu(x: Any) -> Any:
    wide = np.asarray(x, np.float64)
    return np.where(wide > 0, wide + 1, np.exp(np.minimum(wide, 0)))


@pytest.mark.parametrize("map", [None, "elu", "relu", "exp", "softmax"])
def test_feature_maps_and_normalization(map: str | None) -> None:
    q, k, v = normal(1, 2, 150, 8), normal(1, 2, 150, 8), normal(1, 2, 150, 8)
    functions: dict[Any, Callable[[Any], Any]] = {
        None: lambda x: x,
        "elu": elu,
        "relu": lambda x: np.asarray(np.maximum(x, 0)),
        "exp": np.exp,
        "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    }
    fq, fk = (functions[map](x.astype(np.float64)) for x in (q, k))
    compare(ts.ops.linear_attention(q, k, v, feature_map=map, scale=0.5), recur(0.5 * fq, fk, v), 2.0**-19)
    whole = np.einsum("bhsd,bhtd->bhst", fq, fk) @ v
    compare(ts.ops.linear_attention(q, k, v, feature_map=map, causal=False), whole, 2.0**-19)
    if map in ("elu", "softmax"):
        weights = recur(fq, fk, np.ones((1, 2, 150, 1))) + 1e-6
        compare(ts.ops.linear_attention(q, k, v, feature_map=map, normalize=True), recur(fq, fk, v) / weights, 2.0**-19)


@pytest.mark.parametrize("groups", [1, 3])
def test_gradients_are_slopes_of_the_recurrence(groups: int) -> None:
    q, k, v = normal(1, groups, 150, 8), normal(1, groups, 150, 8), normal(1, 3, 150, 8)
    g = -np.abs(normal(1, 3, 150)) * 0.1
    check_gradients(ts.ops.linear_attention, recur, q, k, v)
    check_gradients(ts.ops.linear_attention, recur, q, k, v, g)


def with_resets(g: Any, least: float) -> Any:
    """Decays of which one row in forty has a logarithm of `least`."""
    g = g.copy()
    g[..., 20::40] = least
    return g


LEAST_LOGS = [-80.0, -150.0, -1e4, -1e6, -np.inf]


@pytest.mark.parametrize("least", LEAST_LOGS)
def test_a_decay_of_nothing_resets_the_state(least: float) -> None:
    q, k, v = normal(1, 2, 300, 16), normal(1, 2, 300, 16), normal(1, 2, 300, 24)
    g = with_resets(-np.abs(normal(1, 2, 300)) * 0.1, least)
    compare(ts.ops.linear_attention(q, k, v, g), recur(q, k, v, g), 2.0**-13)
    np.testing.assert_allclose(
        np.asarray(ts.ops.linear_attention(q, k, v, g))[:, :, 20],
        np.einsum("bhd,bhd,bhv->bhv", q[:, :, 20], k[:, :, 20], v[:, :, 20]),
        rtol=1e-5,
        atol=1e-5,
    )
    delta, a = np.where(g == least, np.float32(1e30 if least == -np.inf else -least), -g), -np.ones(2, np.float32)
    values = v / np.maximum(delta, 1)[..., None]
    found = ts.ops.ssd(values, delta, a, k, q)
    compare(found, recur(q, k, values.astype(np.float64) * delta[..., None], -delta), 2.0**-13)


@pytest.mark.parametrize("least", LEAST_LOGS)
def test_gradients_beside_resets(least: float) -> None:
    q, k, v = normal(1, 2, 150, 8), normal(1, 2, 150, 8), normal(1, 2, 150, 8)
    g = with_resets(-np.abs(normal(1, 2, 150)) * 0.1, least)
    check_gradients(ts.ops.linear_attention, recur, q, k, v, g, rtol=1e-3)
    if least < -100:
        slope = ts.grad(lambda *given: ts.ops.linear_attention(*given).sum(), argnums=3)(q, k, v, g)
        assert not np.asarray(slope)[g == least].any()


def test_second_derivatives_are_those_of_the_recurrence() -> None:
    q, k, v, g = normal(1, 1, 140, 8), normal(1, 1, 140, 8), normal(1, 1, 140, 8), -np.abs(normal(1, 1, 140)) * 0.1

    def length(q: Any, k: Any, v: Any, g: Any) -> Any:
        slopes = ts.grad(lambda *x: (ts.ops.linear_attention(*x) ** 2.0).sum(), argnums=(0, 3))(q, k, v, g)
        return sum((slope * slope).sum() for slope in slopes)

    moved = [normal(*x.shape) for x in (q, k, v, g)]
    slopes = ts.grad(length, argnums=(0, 1, 2, 3))(q, k, v, g)
    found = sum(float((np.asarray(slope) * move).sum()) for slope, move in zip(slopes, moved, strict=True))
    values = [float(length(*(x + s * m for x, m in zip((q, k, v, g), moved, strict=True)))) for s in (1e-3, -1e-3)]
    np.testing.assert_allclose(found, (values[0] - values[1]) / 2e-3, rtol=2e-2)


def scan_states(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any) -> Any:
    """Mamba-2 row after row, in f64."""
    wide = np.asarray(x).astype(np.float64)
    out = recur(c, b, wide * delta[..., None], delta * np.asarray(a).astype(np.float64)[:, None])
    return (out + d[:, None, None] * wide) * (z / (1 + np.exp(-z)))


@pytest.mark.parametrize(("dtype", "step"), ROUNDINGS, ids=["f32", "f16", "bf16"])
def test_ssd_equals_the_recurrence(dtype: Any, step: float) -> None:
    x, z = normal(2, 4, 260, 16, dtype=dtype), normal(2, 4, 260, 16, dtype=dtype)
    delta, a, d = np.abs(normal(2, 4, 260)) * 0.3, -np.abs(normal(4)), normal(4)
    b, c = normal(2, 2, 260, 8, dtype=dtype), normal(2, 2, 260, 8, dtype=dtype)
    expected = scan_states(x, delta, a, b, c, d, z.astype(np.float64))
    compare(ts.ops.ssd(x, delta, a, b, c, d, z), expected, step)


def test_gradients_of_ssd() -> None:
    x, z = normal(1, 2, 150, 8), normal(1, 2, 150, 8)
    delta, a, d = np.abs(normal(1, 2, 150)) * 0.3 + 0.05, -np.abs(normal(2)), normal(2)
    check_gradients(ts.ops.ssd, scan_states, x, delta, a, normal(1, 1, 150, 8), normal(1, 1, 150, 8), d, z)


def test_a_batch_and_other_heads_change_no_bit() -> None:
    q, k, v = (normal(3, 2, 200, 16, dtype=ml_dtypes.bfloat16) for _ in range(3))
    g = -np.abs(normal(3, 2, 200)) * 0.1
    whole, alone = (
        np.asarray(ts.ops.linear_attention(q[at], k[at], v[at], g[at])) for at in (slice(None), slice(1, 2))
    )
    np.testing.assert_array_equal(whole[1:2], alone)


def test_one_program_serves_all_lengths() -> None:
    @ts.jit
    def program(q: ts.Tensor["B", "H", "S", 8, ts.f32], g: ts.Tensor["B", "H", "S", ts.f32]) -> Any:
        return ts.ops.linear_attention(q, q, q, g)

    for length in (40, 128, 333):
        q, g = normal(1, 2, length, 8), -np.abs(normal(1, 2, length)) * 0.1
        compare(program(q, g), recur(q, q, q, g), 2.0**-19)


def test_calls_that_do_not_fit_are_refused() -> None:
    q, v = normal(1, 2, 5, 8), normal(1, 3, 5, 8)
    with pytest.raises(ts.TesseraError, match=r"3 heads \(`H`\) are not shared evenly by 2 groups"):
        ts.ops.linear_attention(q, q, v)
    with pytest.raises(ts.TesseraError, match="its `S` is 5, and that of `q` is 4"):
        ts.ops.linear_attention(q[:, :, :4], q, v)
    with pytest.raises(ts.TesseraError, match=r"takes `q` as .B, G, S, D., got 3 dims"):
        ts.ops.linear_attention(q[0], q, q)
    with pytest.raises(ts.TesseraError, match="knows no feature map 'cosine'"):
        ts.ops.linear_attention(q, q, q, feature_map="cosine")
    with pytest.raises(ts.TesseraError, match="takes no `log_decay`"):
        ts.ops.linear_attention(q, q, q, np.zeros(2, np.float32), causal=False)
    with pytest.raises(AttributeError, match="linear_atention"):
        getattr(ts.ops, "linear_atention")  # noqa: B009
