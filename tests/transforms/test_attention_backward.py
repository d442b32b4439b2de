"""Gradients of attention by kernels that rematerialize scores: values, higher derivatives, bits and memory."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops

RNG = np.random.default_rng(41)
BLOCKS = ((128, 128), (256, 128), (64, 128), (64, 64))


def drawn(*shape: int, dtype: Any = np.float64) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def exact(q: Any, k: Any, v: Any, given: Any, causal: bool, mask: Any = 0.0) -> list[Any]:
    """The gradients of `sum(attention * given)` by queries, keys and values, and the gradients of scores, in f64."""
    group = q.shape[1] // k.shape[1]
    q, given = q.astype(np.float64), given.astype(np.float64)
    keys, values = (np.repeat(one.astype(np.float64), group, axis=1) for one in (k, v))
    scale, (queries, count) = 1.0 / math.sqrt(q.shape[3]), (q.shape[2], k.shape[2])
    scores = q @ keys.swapaxes(2, 3) * scale + mask
    if causal:
        scores = np.where(np.tri(queries, count, count - queries, dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    terms = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = terms.sum(-1, keepdims=True)
    shares = terms / np.where(total == 0, 1.0, total)
    by_shares = given @ values.swapaxes(2, 3)
    change = shares * (by_shares - (shares * by_shares).sum(-1, keepdims=True))

    def join(x: Any) -> Any:
        return x.reshape(x.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    by_keys, by_values = change.swapaxes(2, 3) @ q * scale, shares.swapaxes(2, 3) @ given
    return [change @ keys * scale, join(by_keys), join(by_values), change]


@cache
def gradient(causal: bool, dynamic: bool = False, block: tuple[int, int] | None = None) -> Any:
    def loss(q: Any, k: Any, v: Any, given: Any) -> Any:
        return (ops.attention(q, k, v, causal=causal).cast(ts.f64 if q.dtype is ts.f64 else ts.f32) * given).sum()

    knobs = ("attention.backward", "attention.backward_queries")
    overrides = {} if block is None else dict.fromkeys(knobs, block)
    return ts.jit(ts.grad(loss, (0, 1, 2)), dynamic=dynamic, overrides=overrides)


def is_close(found: Any, wanted: Any, dtype: Any, length: int) -> bool:
    """Whether an error is that of a rounding, and of chains over a head and over `length`, in the compute dtype."""
    wide = np.finfo(np.float64 if dtype == np.float64 else np.float32).eps
    error = float(np.linalg.norm(np.asarray(found).astype(np.float64) - wanted))
    bound = float(ml_dtypes.finfo(dtype).eps) + 8 * float(wide) * math.sqrt(length + 64)
    return error <= bound * float(np.linalg.norm(wanted))


SHAPES = {
    "one block": (2, 3, 3, 50, 50, 16, 16),
    "several blocks": (1, 2, 2, 300, 300, 64, 64),
    "shared heads": (2, 4, 2, 130, 200, 32, 32),
    "more queries than keys": (1, 4, 1, 200, 70, 32, 32),
    "one query": (2, 2, 1, 1, 300, 64, 64),
    "values of another size": (1, 2, 1, 70, 90, 24, 40),
    "a head in parts": (1, 2, 1, 70, 90, 260, 48),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_the_formula(name: str, causal: bool) -> None:
    batch, heads, shared, queries, keys, size, width = SHAPES[name]
    given = (
        drawn(batch, heads, queries, size, dtype=np.float32),
        drawn(batch, shared, keys, size, dtype=np.float32),
        drawn(batch, shared, keys, width, dtype=np.float32),
        drawn(batch, heads, queries, width, dtype=np.float32),
    )
    found = gradient(causal)(*given)
    for own, wanted, like in zip(found, exact(*given, causal), given, strict=False):
        assert own.shape == like.shape
        assert is_close(own, wanted, np.float32, (queries + keys) * heads)
    same = gradient(causal, dynamic=True)(*given)
    for one, other in zip(found, same, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other), "symbolic sizes have other bits")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16, np.float16], ids=str)
def test_every_dtype_is_computed_wide_and_rounded_once(dtype: Any) -> None:
    wide = np.float64 if dtype == np.float64 else np.float32
    q, k, v = (drawn(1, heads, 150, 32, dtype=dtype) for heads in (4, 2, 2))
    given = drawn(1, 4, 150, 32, dtype=wide)
    given = given.astype(dtype).astype(wide)  # a cotangent of the dtype of the result
    for own, wanted in zip(gradient(True)(q, k, v, given), exact(q, k, v, given, True), strict=False):
        # The result was rounded once before, in `delta`.
        assert is_close(own, wanted, dtype, 300), str(own.dtype)


def test_gradients_follow_pytorch_in_double_precision() -> None:
    torch = pytest.importorskip("torch")
    for causal in (False, True):
        given = [drawn(2, 3, 140, 32) for _ in range(4)]
        leaves = [torch.tensor(one, requires_grad=True) for one in given[:3]]
        made = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
        made.backward(torch.tensor(given[3]))
        for own, leaf in zip(gradient(causal)(*given), leaves, strict=True):
            assert is_close(own, leaf.grad.numpy(), np.float64, 280)


def test_a_mask_has_a_gradient_and_a_hidden_row_has_zeros() -> None:
    q, k, v, given = (drawn(2, heads, 60, 16) for heads in (4, 2, 2, 4))
    mask = drawn(4, 60, 60)
    mask[1, 7] = -np.inf

    def loss(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return (ops.attention(q, k, v, mask) * given).sum()

    found = ts.jit(ts.grad(loss, (0, 1, 2, 3)))(q, k, v, mask)
    *wanted, change = exact(q, k, v, given, False, mask)
    for own, one in zip(found, (*wanted, change.sum(0)), strict=True):
        assert is_close(own, one, np.float64, 120)
    assert not np.asarray(found[0])[:, 1, 7].any()


def test_log_sum_exps_have_gradients() -> None:
    q, k, v = (drawn(1, 2, 20, 8) for _ in range(3))

    def loss(q: Any, k: Any, v: Any) -> Any:
        out, lse = ops.attention(q, k, v, causal=True, return_lse=True)
        return (lse * lse).sum() + (out * out).sum()

    def alone(q: Any, k: Any, v: Any) -> Any:
        return (ops.attention(q, k, v, return_lse=True)[1] * 2.0).sum()

    for function in (loss, alone):
        found = ts.grad(function, (0, 1, 2))(q, k, v)
        directions = [drawn(*one.shape) for one in (q, k, v)]
        _, slope = ts.jvp(function, (q, k, v), tuple(directions))
        along = sum(float((np.asarray(one) * other).sum()) for one, other in zip(found, directions, strict=True))
        assert along == pytest.approx(float(np.asarray(slope)), rel=1e-12)


def test_derivatives_of_gradients_agree_in_both_modes() -> None:
    q, k, v = (drawn(1, heads, 9, 4) for heads in (4, 2, 2))
    directions = tuple(drawn(*one.shape) for one in (q, k, v))
    first = ts.grad(lambda q, k, v: (ops.attention(q, k, v, causal=True) ** 2.0).sum(), (0, 1, 2))
    _, forward = ts.jvp(first, (q, k, v), directions)

    def along(*given: Any) -> Any:
        return sum((one * other).sum() for one, other in zip(first(*given), directions, strict=True))

    backward = ts.grad(along, (0, 1, 2))(q, k, v)
    step = 1e-5
    ends = [first(*(x + sign * step * d for x, d in zip((q, k, v), directions, strict=True))) for sign in (1, -1)]
    for one, other, high, low in zip(forward, backward, *ends, strict=True):
        slope = (np.asarray(high) - np.asarray(low)) / (2 * step)
        np.testing.assert_allclose(np.asarray(one), slope, rtol=0, atol=1e-7 * float(np.abs(slope).max()))
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=1e-12 * float(np.abs(slope).max()))


@pytest.mark.parametrize("causal", [False, True])
def test_blocks_and_the_batch_change_no_bit(causal: bool) -> None:
    q, k, v, given = (drawn(3, heads, 301, 32, dtype=np.float32) for heads in (4, 2, 2, 4))
    usual = [np.asarray(one) for one in gradient(causal)(q, k, v, given)]
    for block in BLOCKS:
        for one, other in zip(usual, gradient(causal, block=block)(q, k, v, given), strict=True):
            np.testing.assert_array_equal(one, np.asarray(other), str(block))
    alone = gradient(causal)(*(one[1:2] for one in (q, k, v, given)))
    for one, other in zip(usual, alone, strict=True):
        np.testing.assert_array_equal(one[1:2], np.asarray(other))


def workspace(length: int) -> int:
    """Bytes of temporaries that the gradient of attention is planned with."""
    given = [np.zeros((1, 1, length, 16), np.float32)] * 4
    gradient(True)(*given)
    lines = [line.split() for line in str(gradient(True).explain(*given)).splitlines()]
    return next(int(line[1]) for line in lines if line[:1] == ["workspace:"])


def test_memory_grows_with_the_length_and_not_with_its_square() -> None:
    short, long = workspace(512), workspace(2048)
    assert long <= 4 * short + 4096
    assert long < 2048 * 2048 * 4 / 16


def test_what_nobody_wants_is_not_computed() -> None:
    given = [np.zeros((1, 1, 64, 16), np.float32)] * 4

    def loss(q: Any, k: Any, v: Any, given: Any) -> Any:
        return (ops.attention(q, k, v) * given).sum()

    def kernels(argnums: Any) -> set[str]:
        text = str(ts.jit(ts.grad(loss, argnums)).lower(*given).tile)
        return {name.split("(")[0].rsplit("_", 1)[1] for name in text.split("@attention_backward_")[1:]}

    assert kernels(0) == {"q"}
    assert kernels((1, 2)) == {"kv"}
    assert kernels((0, 1)) == {"q", "k"}


def test_gradients_of_split_projections_lie_beside_each_other() -> None:
    x, (q, k, v) = drawn(2, 5, 32, dtype=np.float32), (drawn(2, heads, 5, 4, dtype=np.float32) for heads in (4, 2, 2))

    def pull(x: Any, q: Any, k: Any, v: Any) -> Any:
        return ts.vjp(lambda x: ops.split_qkv(x, heads=4, kv_heads=2), x)[1]((q, k, v))[0]

    wanted = np.concatenate([one.transpose(0, 2, 1, 3).reshape(2, 5, -1) for one in (q, k, v)], axis=2)
    assert np.array_equal(np.asarray(ts.jit(pull)(x, q, k, v)), wanted)

    def pull_keys(x: Any, k: Any) -> Any:
        return ts.vjp(lambda x: ops.split_qkv(x, heads=4, kv_heads=2)[1], x)[1](k)[0]

    alone = np.asarray(ts.jit(pull_keys)(x, k))
    assert np.array_equal(alone[:, :, 16:24], wanted[:, :, 16:24])
    assert not alone[:, :, :16].any()
    assert not alone[:, :, 24:].any()
