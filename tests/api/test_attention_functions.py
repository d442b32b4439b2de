"""`attention` with functions: values and gradients in float64 beside FlexAttention's published examples."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import TracingError
from tessera.ir.base.arrays import Array

Function = Callable[..., Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Example:
    """Functions of attention, each as `make(table)`, written so that arrays run them too; and what they capture."""

    score: Callable[[Any], Function] | None = None
    mask: Callable[[Any], Function] | None = None
    table: Array | None = None
    queries: int = 70
    keys: int = 70


def number(x: Any) -> Any:
    """An index as a float."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.cast(ts.f32)


def tanh(x: Any) -> Any:
    return np.tanh(x) if isinstance(x, np.ndarray) else ops.tanh(x)


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


WIDTH, NEAR = 9, 2
EXAMPLES = {
    "full": Example(score=lambda t: lambda s, b, h, i, j: s),
    "causal": Example(mask=lambda t: causal),
    "alibi": Example(lambda t: lambda s, b, h, i, j: s + t[h] * number(j - i), lambda t: causal, normal(4)),
    "relative bias": Example(lambda t: lambda s, b, h, i, j: s + t[h, i - j + 69], None, normal(4, 139)),
    "soft cap": Example(lambda t: lambda s, b, h, i, j: tanh(s / 2.0) * 2.0, lambda t: causal),
    "sliding window": Example(mask=lambda t: lambda b, h, i, j: (i >= j) & (i - j <= 10), queries=150, keys=300),
    "prefix": Example(mask=lambda t: lambda b, h, i, j: (j < t[b]) | (i >= j), table=np.array([20, 7], np.int32)),
    "documents": Example(
        mask=lambda t: lambda b, h, i, j: (t[i] == t[j]) & (i >= j),
        table=np.repeat(np.arange(5, dtype=np.int32), [3, 40, 1, 20, 6]),
    ),
    "neighbourhood of two axes": Example(
        mask=lambda t: lambda b, h, i, j: (abs(i // WIDTH - j // WIDTH) <= NEAR) & (abs(i % WIDTH - j % WIDTH) <= NEAR)
    ),
    "batches of lengths": Example(mask=lambda t: lambda b, h, i, j: j < t[b], table=np.array([0, 33], np.int64)),
    "square of a scaled score": Example(lambda t: lambda s, b, h, i, j: s * s * t[h] - s, lambda t: causal, normal(4)),
}


def operands(example: Example, dtype: Any = np.float32) -> list[Array]:
    """Queries of four heads, keys and values of two; values are wider."""
    shapes = ((2, 4, example.queries, 16), (2, 2, example.keys, 16), (2, 2, example.keys, 24))
    return [normal(*shape, seed=at).astype(dtype) for at, shape in enumerate(shapes)]


def functions(example: Example, table: Any) -> dict[str, Any]:
    return {
        name: None if make is None else make(table) for name, make in (("score", example.score), ("mask", example.mask))
    }


def weights_of(example: Example, q: Array, k: Array, table: Any) -> tuple[Array, Array, Array]:
    """Shares of rows, scaled scores, and whether each is seen, in f64."""
    wide = np.repeat(k.astype(np.float64), q.shape[1] // k.shape[1], 1)
    raw = q.astype(np.float64) @ wide.swapaxes(2, 3) / np.sqrt(q.shape[3])
    where = np.ogrid[tuple(slice(size) for size in raw.shape)]
    of = functions(
        example, None if table is None else table.astype(np.float64 if table.dtype.kind == "f" else np.int64)
    )
    scores = raw if of["score"] is None else of["score"](raw, *where)
    seen = np.broadcast_to(True if of["mask"] is None else of["mask"](*where), raw.shape)
    top = np.where(seen, scores, -np.inf).max(-1, keepdims=True)
    terms = np.where(seen, np.exp(scores - np.where(np.isinf(top), 0.0, top)), 0.0)
    total = terms.sum(-1, keepdims=True)
    return terms / np.where(total == 0, 1.0, total), raw, seen


@pytest.mark.parametrize("name", EXAMPLES)
def test_values_are_those_of_float64(name: str) -> None:
    example = EXAMPLES[name]
    q, k, v = operands(example)
    table = None if example.table is None else ts.asarray(example.table)
    of = functions(example, table)
    found = ts.jit(lambda q, k, v: ops.attention(q, k, v, of["mask"], score=of["score"]))(q, k, v)
    wanted = weights_of(example, q, k, example.table)[0] @ np.repeat(v.astype(np.float64), 2, 1)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-5, atol=2e-5)
    eager = ops.attention(q, k, v, of["mask"], score=of["score"])
    np.testing.assert_array_equal(np.asarray(eager), np.asarray(found))


def difference(example: Example, arrays: list[Array], at: int, direction: Array, cotangent: Array) -> float:
    """The derivative of the sum of results times `cotangent` along a direction of an operand, by differences in f64."""
    step, ends = 1e-6, list[float]()
    for sign in (1.0, -1.0):
        moved = [one.astype(np.float64) if one.dtype.kind == "f" else one for one in arrays]
        moved[at] = moved[at] + sign * step * direction
        q, k, v, *table = moved
        shares = weights_of(example, q, k, table[0] if table else None)[0]
        ends.append(float(np.sum(shares @ np.repeat(v, 2, 1) * cotangent)))
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_are_those_of_float64(name: str) -> None:
    example = EXAMPLES[name]
    arrays = [*operands(example), *([] if example.table is None else [example.table])]
    cotangent = normal(2, 4, example.queries, 24, seed=9)
    by = tuple(at for at, one in enumerate(arrays) if one.dtype.kind == "f")

    def total(q: Any, k: Any, v: Any, table: Any = None) -> Any:
        of = functions(example, table)
        return (ops.attention(q, k, v, of["mask"], score=of["score"]) * cotangent).sum()

    found = ts.jit(ts.grad(total, argnums=by))(*arrays)
    for at, gradient in zip(by, found, strict=True):
        direction = normal(*arrays[at].shape, seed=20 + at).astype(np.float64)
        wanted = difference(example, arrays, at, direction, cotangent)
        own = np.asarray(gradient).astype(np.float64)
        tolerance = 2e-5 * float(np.sum(np.abs(own * direction))) + 1e-4
        assert abs(float(np.sum(own * direction)) - wanted) <= tolerance, (name, at)


@pytest.mark.parametrize("head", [16, 40, 128, 256])
def test_heads_of_any_size(head: int) -> None:
    q, k, v = normal(1, 2, 33, head), normal(1, 1, 65, head, seed=1), normal(1, 1, 65, 2 * head, seed=2)
    found = ops.attention(q, k, v, lambda b, h, i, j: j <= i + 32, score=lambda s, b, h, i, j: s * 0.5)
    plain = ops.attention(q, k, v, causal=True, scale=0.5 / np.sqrt(head))
    np.testing.assert_allclose(np.asarray(found), np.asarray(plain), rtol=1e-5, atol=1e-5)


def test_a_mask_alone_has_the_bits_of_attention() -> None:
    q = normal(1, 2, 300, 16)
    hidden, cases = normal(300, 300) > 0, list[tuple[Any, dict[str, Any]]]()
    cases += ((causal, {"causal": True}), (lambda b, h, i, j: ts.asarray(hidden)[i, j], {"mask": hidden}))
    for mask, plain in cases:
        found = ops.attention(q, q, q, mask)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(ops.attention(q, q, q, **plain)))


def test_bits_do_not_depend_on_blocks_or_on_rows_beside() -> None:
    q, k = normal(1, 2, 300, 16), normal(1, 2, 700, 16, seed=1)

    def window(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j <= i + 400) & (j > i + 100)

    def run(queries: int, **options: Any) -> Any:
        def attend(q: Any, k: Any) -> Any:
            return ops.attention(q, k, k, window, score=lambda s, b, h, i, j: ops.tanh(s))

        return np.asarray(ts.jit(attend, **options)(q[:, :, :queries], k))

    whole = run(300)
    for queries in (32, 64, 128):
        np.testing.assert_array_equal(run(300, overrides={"attention.queries": queries}), whole)
    np.testing.assert_array_equal(run(45), whole[:, :, :45])


@pytest.mark.parametrize("dtype", [bool, np.float32])
@pytest.mark.parametrize("shape", [(3, 7), (3,), (5, 6), (2, 1, 5, 7), (1, 2, 5, 7)])
def test_a_tensor_beside_a_score_function_broadcasts_to_the_scores(shape: tuple[int, ...], dtype: Any) -> None:
    q, k, v = (x[:1] for x in operands(Example(queries=5, keys=7)))
    mask = np.ones(shape, dtype)
    with pytest.raises(ts.TesseraError, match=r"T0106.*cannot broadcast \[1, 4, 5, 7\] with") as error:
        ops.attention(q, k, v, mask, score=lambda s, b, h, i, j: s)
    assert f"with {list(shape)}" in str(error.value)
    with pytest.raises(ts.TesseraError, match="T0106"):
        ts.jit(lambda q, mask: ops.attention(q, k, v, mask, score=lambda s, b, h, i, j: s))(q, mask)


def test_a_tensor_of_symbolic_sizes_beside_a_score_function_is_guarded() -> None:
    q, k, v = (x[:1] for x in operands(Example(queries=5, keys=7)))

    @ts.jit
    def program(q: ts.Tensor[1, 4, "S", 16, ts.f32], mask: ts.Tensor["R", 7, ts.f32]) -> Any:
        return ops.attention(q, k, v, mask, score=lambda s, b, h, i, j: s)

    mask = np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_allclose(program(q, mask), ops.attention(q, k, v, mask), rtol=1e-6, atol=1e-6)
    with pytest.raises(ts.TesseraError, match="`attention` broadcasts"):
        program(q, mask[:3])


@pytest.mark.parametrize("name", ["causal", "sliding window", "prefix", "documents", "neighbourhood of two axes"])
def test_what_is_skipped_changes_no_bit(name: str) -> None:
    """Of a mask with a part that interval analysis does not know nothing is skipped."""
    example = replace(EXAMPLES[name], queries=70, keys=70)
    table = None if example.table is None else ts.asarray(example.table)
    mask = functions(example, table)["mask"]
    q, k, v = operands(example)

    def total(mask: Any) -> Any:
        def of(q: Any, k: Any, v: Any) -> Any:
            return ops.attention(q, k, v, mask).sum()

        return ts.jit(lambda q, k, v: (ops.attention(q, k, v, mask), ts.grad(of, argnums=(0, 1, 2))(q, k, v)))(q, k, v)

    skipped, whole = total(mask), total(lambda b, h, i, j: mask(b, h, i, j) ^ (j < 0))
    np.testing.assert_array_equal(np.asarray(skipped[0]), np.asarray(whole[0]))
    for own, other in zip(skipped[1], whole[1], strict=True):
        np.testing.assert_array_equal(np.asarray(own), np.asarray(other))


def test_hidden_rows_give_zeros_and_infinite_slopes_of_hidden_scores_nothing() -> None:
    q = normal(1, 1, 40, 8)

    def attend(q: Any) -> Any:
        return ops.attention(q, q, q, lambda b, h, i, j: i > j, score=lambda s, b, h, i, j: s / number(i - j))

    out, gradient = np.asarray(attend(q)), np.asarray(ts.grad(lambda q: attend(q).sum())(q))
    assert not out[0, 0, 0].any()
    assert np.isfinite(out).all()
    assert np.isfinite(gradient).all()


def test_log_sum_exps_scales_and_narrow_floats() -> None:
    q = normal(1, 2, 20, 16)
    out, lse = ops.attention(q, q, q, causal, scale=0.3, return_lse=True)
    plain, rows = ops.attention(q, q, q, causal=True, scale=0.3, return_lse=True)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(plain))
    np.testing.assert_array_equal(np.asarray(lse), np.asarray(rows))
    narrow = ts.asarray(q).cast(ts.bf16)
    found = ops.attention(narrow, narrow, narrow, causal, score=lambda s, b, h, i, j: s)
    np.testing.assert_allclose(
        np.asarray(found.cast(ts.f32)), np.asarray(ops.attention(q, q, q, causal=True)), rtol=3e-2, atol=3e-2
    )
    double = ts.asarray(q.astype(np.float64))
    wide = ops.attention(double, double, double, causal, score=lambda s, b, h, i, j: ops.tanh(s))
    assert wide.dtype == ts.f64


def test_one_program_serves_symbolic_lengths() -> None:
    @ts.jit
    def attend(q: ts.Tensor["B", "H", "S", 16, ts.f32], documents: ts.Tensor["S", ts.i32]) -> Any:
        last = q.shape[2] - 1
        return ops.attention(q, q, q, lambda b, h, i, j: (documents[i] == documents[j]) & (i <= last))

    for length in (5, 40, 300):
        q, documents = normal(1, 2, length, 16), (np.arange(length) // 7).astype(np.int32)
        seen = documents[:, np.newaxis] == documents
        np.testing.assert_array_equal(np.asarray(attend(q, documents)), np.asarray(ops.attention(q, q, q, seen)))


def test_what_depends_on_no_score_is_computed_once_outside() -> None:
    table = ts.asarray(normal(4, 30))

    @ts.jit
    def attend(q: Any) -> Any:
        return ops.attention(q, q, q, score=lambda s, b, h, i, j: s * table.mean() + ops.exp(table).sum(axis=1)[h])

    q = normal(1, 4, 30, 8)
    wanted = ops.attention(q, q, q, scale=float(np.asarray(table).mean()) / np.sqrt(8))
    np.testing.assert_allclose(np.asarray(attend(q)), np.asarray(wanted), rtol=1e-4, atol=1e-5)


def test_batches_are_joined() -> None:
    q, table = normal(3, 2, 2, 40, 16), normal(3, 2, 79, seed=3)

    def attend(q: Any, table: Any) -> Any:
        return ops.attention(q, q, q, causal, score=lambda s, b, h, i, j: s * number(b + 1) + table[h, i - j])

    gradient = ts.grad(lambda q, table: attend(q, table).sum(), argnums=(0, 1))
    for function in (attend, gradient):
        found, single = ts.jit(ts.vmap(function))(q, table), ts.jit(function)
        for at in range(3):
            leaves = zip(
                *((x if isinstance(x, tuple) else (x,)) for x in (found, single(q[at], table[at]))), strict=True
            )
            for whole, own in leaves:
                np.testing.assert_array_equal(np.asarray(whole)[at], np.asarray(own))


# Caches.


def near(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i - j < 8


def nearer(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s - 0.1 * number(i - j)


def test_queries_count_from_the_first_key_of_a_cache_and_nothing_beyond_it_is_read() -> None:
    keys, values = normal(1, 2, 40, 16, seed=1), normal(1, 2, 40, 16, seed=2)
    stored = [np.full((1, 2, 64, 16), np.nan, np.float32) for _ in range(2)]
    stored[0][:, :, :40], stored[1][:, :, :40] = keys, values
    cache = ts.KVCache(ts.array(stored[0]), ts.array(stored[1]), ts.array(40))
    q = normal(1, 4, 40, 16)

    def attend(q: Any, cache: Any) -> Any:
        return ops.attention(q, cache, mask=near, score=nearer, causal=True)

    whole = np.asarray(ops.attention(q, keys, values, near, score=nearer, causal=True))
    for rows in (1, 3, 40):
        found = ts.jit(attend)(q[:, :, 40 - rows :], cache)
        np.testing.assert_array_equal(np.asarray(found), whole[:, :, 40 - rows :])
    gradient = ts.jit(ts.grad(lambda q, cache: attend(q, cache).sum()))(q, cache)
    plain = ts.grad(lambda q: ops.attention(q, keys, values, near, score=nearer, causal=True).sum())(q)
    np.testing.assert_array_equal(np.asarray(gradient), np.asarray(plain))


@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_a_tensor_is_no_mask_of_a_cache_and_a_function_that_reads_it_is(dtype: type) -> None:
    keys, values, q = normal(1, 2, 24, 16, seed=1), normal(1, 2, 24, 16, seed=2), normal(1, 2, 24, 16)
    cache = ts.KVCache.empty(1, 2, 32, 16).append(keys, values)
    for shape in ((3, 32), (32, 32), (1, 2, 3, 24)):
        with pytest.raises(TracingError, match="over a cache takes no tensor as a mask"):
            ops.attention(q[:, :, 21:], cache, mask=np.ones(shape, dtype), score=nearer)
    table = ts.array(np.random.default_rng(3).random((24, 24)) < 0.5)
    found = ops.attention(q[:, :, 21:], cache, mask=lambda b, h, i, j: table[i, j], score=nearer)
    whole = ops.attention(q, keys, values, table, score=nearer)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(whole)[:, :, 21:])
