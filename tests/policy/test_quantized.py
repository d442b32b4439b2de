"""Scales as part of the type: values and scales together, products within their bound, scales that are missing."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DTypeError, RuntimeArgumentError
from tessera.ir.graph.ops.quantize import dequantize_reference, quantize_reference

RNG = np.random.default_rng(4)
A = RNG.standard_normal((24, 48)).astype(np.float32)
B = (RNG.standard_normal((48, 20)) * np.exp(RNG.standard_normal(20))).astype(np.float32)


@pytest.mark.parametrize("dtype", [ts.i8, ts.i4], ids=str)
def test_l5_products_of_quantized_tensors_are_within_the_bound(dtype: Any) -> None:
    def weigh(x: Any, w: Any) -> Any:
        return x @ w

    weigh.__annotations__ = {
        "x": ts.Tensor["M", "K", dtype @ ts.scaled(0)],
        "w": ts.Tensor["K", "N", dtype @ ts.scaled(1)],
    }
    f = ts.jit(weigh)
    x, w = ts.quantize(A, dtype, axis=0), ts.quantize(B, dtype, axis=1)
    given = np.asarray(f(x, w)).astype(np.float64)
    sx, sw = np.asarray(x.scale).astype(np.float64), np.asarray(w.scale).astype(np.float64)
    # Each element is within half a scale of its number.
    bound = np.abs(A).sum(1, keepdims=True) * sw / 2 + sx / 2 * np.abs(B).sum(0, keepdims=True) + 48 * sx * sw / 4
    exact = A.astype(np.float64) @ B.astype(np.float64)
    assert (np.abs(given - exact) <= bound * (1 + 1e-5)).all()
    assert "tgraph.matmul" in f.lower(x, w).graph
    assert "accumulate = i32, dtype = i32" in f.lower(x, w).graph


def test_l5_a_missing_scale_is_an_error_of_type() -> None:
    @ts.jit
    def f(w: ts.Quantized["K", "N", ts.i8 @ ts.scaled(1)]) -> Any:
        return w.dequantize()

    with pytest.raises(DTypeError, match="`w` has no scales, but is declared with scales") as caught:
        f(np.ones((3, 4), np.int8))
    assert 'Quantized["K", "N", i8 @ scaled(1)]' in caught.value.notes[0]
    with pytest.raises(RuntimeArgumentError, match=r"`w\.scale\.shape\[0\]` must be 1, got 3"):
        f(ts.quantize(np.ones((3, 4), np.float32), ts.i8, axis=0))
    with pytest.raises(RuntimeArgumentError, match=r"`w\.values` must be i8, got i4"):
        f(ts.quantize(np.ones((3, 4), np.float32), ts.i4, axis=1))


def test_scales_of_tiles() -> None:
    @ts.jit
    def f(w: ts.Quantized[32, 48, ts.f8e4m3 @ ts.tile_scaled(16, 16)]) -> Any:
        return w.dequantize(ts.bf16)

    x = RNG.standard_normal((32, 48)).astype(np.float32) * 100
    q = ts.quantize(x, ts.f8e4m3, block=(16, 16))
    assert tuple(q.scale.shape) == (2, 3)
    top = np.abs(x).reshape(2, 16, 3, 16).max((1, 3))
    np.testing.assert_array_equal(np.asarray(q.scale), top / np.float32(448))
    values = quantize_reference(x, np.asarray(q.scale), dtype=ts.f8e4m3, block=(16, 16), saturation="saturate")
    np.testing.assert_array_equal(np.asarray(q.values).view(np.uint8), values.view(np.uint8))
    wanted = dequantize_reference(values, np.asarray(q.scale), dtype=ts.bf16, block=(16, 16))
    np.testing.assert_array_equal(np.asarray(f(q)).view(np.uint16), wanted.view(np.uint16))
    # Half a step of e4m3 is a sixteenth of what is not small, and the largest of a tile is not lost.
    assert np.abs(np.asarray(q.dequantize()) - x).max() <= np.abs(x).max() / 16


def test_a_quantized_tensor_is_a_tree_and_says_what_it_is() -> None:
    q = ts.quantize(B, ts.i8, axis=1)
    assert repr(q) == "Quantized[48, 20, i8 @ scaled(1)]"
    assert repr(ts.quantize(np.ones((32, 32), np.float32), ts.i8, block=(16, 32))).endswith("i8 @ tile_scaled(16, 32)]")

    @ts.jit
    def double(q: Any) -> Any:
        return ts.Quantized(q.values, q.scale * 2.0)

    twice = double(q)
    assert isinstance(twice, ts.Quantized)
    np.testing.assert_array_equal(np.asarray(twice.dequantize()), np.asarray(q.dequantize()) * 2)
    np.testing.assert_allclose(np.asarray(A @ q), A @ np.asarray(q.dequantize()), rtol=1e-4, atol=1e-4)


def test_tensors_of_every_kind_are_multiplied_by_quantized_ones() -> None:
    q = ts.quantize(B, ts.i8, axis=1)
    wanted = np.asarray(A @ q)
    jitted = ts.jit(lambda x, w: x @ w)  # pyright: ignore[reportUnknownLambdaType]
    for given in (ts.array(A) @ q, jitted(A, q), jitted(ts.array(A), q)):
        assert np.asarray(given).tobytes() == wanted.tobytes()


def test_nothing_to_scale_has_the_scale_one() -> None:
    for shape, axis in (((0, 4), 1), ((0, 4), 0), ((4, 0), None)):
        none = ts.quantize(ts.zeros(shape), ts.i8, axis=axis)
        assert none.dequantize().shape == shape
        assert (np.asarray(none.scale) == 1).all()
    free = ts.jit(lambda x: ts.quantize(x, ts.i8, axis=1).dequantize(), dynamic=True)
    assert np.asarray(free(np.zeros((0, 4), np.float32))).shape == (0, 4)
    assert np.isnan(np.asarray(ts.quantize(ts.array([[np.nan, 1.0]]), ts.i8).scale)).all()
