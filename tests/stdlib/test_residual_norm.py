"""Dropout, residual and layer normalization in one kernel, and the rotary embedding backwards."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.stdlib import rotary_embedding
from tests.stdlib.slopes import check_gradients, compare, normal

ROUNDINGS = [(np.float32, 2.0**-19), (np.float16, 2.0**-9), (ml_dtypes.bfloat16, 2.0**-6)]


def exact(x: Any, residual: Any, weight: Any, bias: Any, mask: Any = 1.0) -> Any:
    total = x * mask + residual
    centred = total - total.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


@pytest.mark.parametrize(("dtype", "step"), ROUNDINGS, ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("width", [24, 229, 1024])
def test_the_sum_and_its_normalization(dtype: Any, step: float, width: int) -> None:
    x, residual = normal(2, 5, width, dtype=dtype), normal(2, 5, width, dtype=dtype)
    weight, bias = normal(width), normal(width)
    out, total = ts.ops.dropout_residual_layernorm(x, residual, weight, bias)
    wide = [one.astype(np.float64) for one in (x, residual, weight, bias)]
    compare(total, wide[0] + wide[1], step)
    compare(out, exact(*wide), step)


def drawn_mask(shape: tuple[int, ...], p: float, key: Any) -> Any:
    """The mask that a key draws, as it shows in the sum with a residual of zeros."""
    ones, width = np.ones(shape, np.float32), shape[-1]
    total = ts.ops.dropout_residual_layernorm(ones, ones * 0, ones[0, 0], ones[0, 0] * 0, p=p, key=key)[1]
    assert total.shape == (*shape[:-1], width)
    return np.asarray(total)


def test_both_directions_draw_one_mask() -> None:
    key, shape = ts.random.key(3), (2, 40, 50)
    mask = drawn_mask(shape, 0.25, key)
    assert set(np.unique(mask).tolist()) == {0.0, float(np.float32(1.0 / 0.75))}
    assert abs(float((mask == 0).mean()) - 0.25) < 0.03
    np.testing.assert_array_equal(mask, drawn_mask(shape, 0.25, key))
    assert not np.array_equal(mask, drawn_mask(shape, 0.25, ts.random.key(4)))

    def found(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        return ts.ops.dropout_residual_layernorm(x, residual, weight, bias, p=0.25, key=key)[0]

    def expected(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        return exact(x, residual, weight, bias, mask.astype(np.float64))

    check_gradients(found, expected, normal(*shape), normal(*shape), normal(50), normal(50), rtol=1e-3)


def test_gradients_through_both_results() -> None:
    def found(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        out, total = ts.ops.dropout_residual_layernorm(x, residual, weight, bias)
        return out + 0.5 * total

    def expected(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        return exact(x, residual, weight, bias) + 0.5 * (x + residual)

    check_gradients(found, expected, normal(2, 7, 24), normal(2, 7, 24), normal(24), normal(24), rtol=1e-3)


def test_rates_without_keys_are_refused() -> None:
    x, w = normal(1, 2, 4), normal(4)
    with pytest.raises(ts.TesseraError, match=r"a key where it is above 0, got p=0.5 and no key"):
        ts.ops.dropout_residual_layernorm(x, x, w, w, p=0.5)
    with pytest.raises(ts.TesseraError, match="its `D` is 3, and that of `x` is 4"):
        ts.ops.dropout_residual_layernorm(x, x, w[:3], w)


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    half = cos.shape[1]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


@pytest.mark.parametrize("name", ["p", "eps"])
def test_what_is_no_number_is_refused(name: str) -> None:
    x, one = normal(1, 2, 4), np.ones(4, np.float32)
    given: dict[str, Any] = {name: "a"}
    with pytest.raises(ts.TesseraError, match=f"`dropout_residual_layernorm` .*`{name}`.*'a'"):
        ts.ops.dropout_residual_layernorm(x, x, one, one, **given)


@pytest.mark.parametrize("shape", [(0, 5, 8), (2, 0, 8), (2, 5, 0)])
def test_nothing_is_normalized_to_nothing(shape: tuple[int, ...]) -> None:
    x, one = np.zeros(shape, np.float32), np.ones(shape[2], np.float32)
    assert [y.shape for y in ts.ops.dropout_residual_layernorm(x, x, one, one)] == [shape, shape]
    slopes = ts.grad(lambda *given: ts.ops.dropout_residual_layernorm(*given)[0].sum(), argnums=(0, 1, 2))(
        x, x, one, one
    )
    assert [slope.shape for slope in slopes] == [shape, shape, (shape[2],)]


@pytest.mark.parametrize("shape", [(2, 3, 21, 16), (6, 21, 16)])
def test_rotations_have_their_derivatives(shape: tuple[int, ...]) -> None:
    angles = normal(21, 8)
    check_gradients(rotary_embedding, rotate, normal(*shape), np.cos(angles), np.sin(angles))


def test_a_rotation_backwards_is_one_by_opposite_angles() -> None:
    x, angles = normal(2, 3, 21, 16, dtype=ml_dtypes.bfloat16), normal(21, 8)
    cos, sin = np.cos(angles), np.sin(angles)

    def total(x: Any) -> Any:
        return ts.ops.cast(rotary_embedding(x, cos, sin), ts.f32).sum()

    slope = ts.grad(total)(x)
    expected = rotary_embedding(np.ones_like(x), cos, -sin)
    np.testing.assert_array_equal(np.asarray(slope), np.asarray(expected))
