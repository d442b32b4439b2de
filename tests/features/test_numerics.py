"""Numerics and determinism: extremes with a defined result, ties, keyed randomness, all of it in compiled code."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DTypeError, ShapeError
from tessera.ir.base.arrays import round_as
from tessera.types.dtype import DType

INF, NAN = np.inf, np.nan
BACKENDS = ("cpu", "reference")


def wide(tensor: Any) -> Any:
    return np.asarray(tensor).astype(np.float64)


def test_N6_1_a_result_is_never_narrowed_by_itself() -> None:
    def narrow(x: ts.Tensor["N", ts.bf16]) -> ts.Tensor["N", ts.f8e4m3]:
        return x * 2

    def cured(x: ts.Tensor["N", ts.bf16]) -> ts.Tensor["N", ts.f8e4m3]:
        return (x * 2).cast(ts.f8e4m3)

    x = round_as([1.0, 2.0], ts.bf16)
    with pytest.raises(DTypeError, match="`result` is bf16, and is declared f8e4m3") as caught:
        ts.jit(narrow)(x)
    assert "return (x * 2).cast(ts.f8e4m3)" in str(caught.value)
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip() == "return x * 2"
    assert ts.jit(cured)(x).dtype is ts.f8e4m3
    cache, new = ts.KVCache.empty(1, 1, 4, 2, ts.f8e4m3), np.zeros((1, 1, 1, 2), x.dtype)
    with pytest.raises(DTypeError, match="cannot put bf16 into a cache of f8e4m3") as caught:
        ts.jit(lambda cache, k: cache.append(k, k))(cache, new)
    assert "cast" in str(caught.value.fix)

    def wide(x: ts.Tensor["N", 4, ts.f32]) -> ts.Tensor["N", 5, ts.f32]:
        return x

    with pytest.raises(ShapeError, match=r"`result\.shape\[1\] = 4`, and is declared 5"):
        ts.jit(wide)(np.ones((2, 4), np.float32))


@pytest.mark.parametrize("dtype", [ts.f32, ts.bf16], ids=str)
def test_N9_softmax_of_extremes(dtype: DType) -> None:
    rows = [[1e4, -1e4, 0, 1e4], [-INF] * 4, [NAN, 0, 0, 0], [0, -INF, 0, -INF], [-1e4] * 4, [1e4] * 4]
    wanted = [[0.5, 0, 0, 0.5], [0] * 4, [NAN] * 4, [0.5, 0, 0.5, 0], [0.25] * 4, [0.25] * 4]
    np.testing.assert_array_equal(wide(ts.jit(ops.softmax_safe)(round_as(rows, dtype))), wanted)


def normalized(x: Any, *, centred: bool) -> Any:
    exact = x.astype(np.float64)
    exact = exact - exact.mean(1, keepdims=True) if centred else exact
    return exact / np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("op", ["layernorm_safe", "rmsnorm_safe"])
def test_N9_1_norms_of_extremes(op: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 100))
    x[0] = 3.0
    x = (x * np.array([[1.0], [1e18], [1e-42], [1.0], [-1e18]])).astype(np.float32)
    function: Any = ts.jit(getattr(ops, op))
    given = wide(function(x))
    assert np.isfinite(given).all()
    np.testing.assert_allclose(given, normalized(x, centred=op == "layernorm_safe"), rtol=2e-5, atol=2e-6)


def test_N9_2_nothing_to_sum_and_nothing_to_see() -> None:
    rows = np.array([[-INF, -INF], [INF, 0], [INF, -INF], [NAN, 0], [1e4, 1e4]], np.float32)
    given = wide(ts.jit(lambda x: ops.logsumexp_safe(x, axis=1))(rows))
    np.testing.assert_allclose(given, [-INF, INF, INF, NAN, 1e4 + np.log(2)], rtol=1e-6)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
    mask = np.zeros((1, 1, 3, 3), np.float32)
    mask[..., 1, :] = -INF
    out = wide(ts.jit(lambda *a: ops.attention(*a[:3], mask=a[3]))(q, k, v, mask))
    np.testing.assert_array_equal(out[:, :, 1], 0)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_D2_1_ties_go_to_the_lowest_index(backend: str) -> None:
    x = np.array([[3, 1, 3, 3, 1], [0.0, -0.0, 0.0, -0.0, 0.0], [INF, INF, -INF, 2, INF]], np.float32)
    tied = np.tile(x, (1, 13))  # wider than any vector, so that ties meet across lanes and blocks

    @ts.jit(backend=backend)
    def f(x: Any) -> Any:
        values, places = ops.topk(x, 7)
        return ops.argmax(x, axis=1), ops.argmin(x, axis=1), ops.argsort(x, axis=1), values, places

    most, least, order, values, places = (np.asarray(out) for out in f(tied))
    np.testing.assert_array_equal(most, tied.argmax(1))
    np.testing.assert_array_equal(least, tied.argmin(1))
    np.testing.assert_array_equal(order, np.argsort(tied, axis=1, kind="stable"))
    first = np.argsort(-tied, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(places, first)
    np.testing.assert_array_equal(values, np.take_along_axis(tied, first, 1))


def philox(counter: int, key: int, stream: int) -> int:
    """The first 64 bits of Philox4x32-10, in Python's own integers."""
    mask = 0xFFFFFFFF
    c = [counter & mask, counter >> 32, stream & mask, stream >> 32]
    k = [key & mask, key >> 32]
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(right >> 32) ^ c[1] ^ k[0], right & mask, (left >> 32) ^ c[3] ^ k[1], left & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c[0] | c[1] << 32


def test_D5_the_mask_of_dropout_is_philox() -> None:
    rate, shape = 0.3, (7, 33)
    f = ts.jit(lambda x, key: ts.random.dropout(x, key, rate))
    given = np.asarray(f(np.ones(shape, np.float32), ts.random.key(1234)))
    # An element is kept where the upper 24 bits of its 32 are under its share of 2**24.
    draws = np.array([(philox(index, 1234, 0) & 0xFFFFFFFF) >> 8 for index in range(given.size)]).reshape(shape)
    np.testing.assert_array_equal(given != 0, draws < round((1 - rate) * 2.0**24))
    fused = ts.jit(lambda x, key: ops.exp(ts.random.dropout(x * 2, key, rate)))
    fused(np.ones(shape, np.float32), ts.random.key(1234))
    assert len(fused.explain(np.ones(shape, np.float32), ts.random.key(1234)).report["kernels"]) == 1
    np.testing.assert_allclose(given[given != 0], 1 / (1 - rate), rtol=1e-6)
    assert abs(np.mean(given != 0) - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / given.size)


def test_D4_each_part_of_a_key_changes_the_stream() -> None:
    @ts.jit
    def sample(seed: ts.Tensor[2, ts.u64], function: ts.Tensor[ts.i64], rank: ts.Tensor[ts.i64], step: Any) -> Any:
        key = ts.random.fold(ts.random.fold(ts.random.fold(seed, function), rank), step)
        return ts.random.bits(key, (16,))

    def numbers(seed: int = 7, function: int = 1, rank: int = 2, step: int = 3) -> Any:
        return np.asarray(sample(ts.random.key(seed), function, rank, np.array(step))).tolist()

    base = numbers()
    assert numbers() == base
    changed = [numbers(seed=8), numbers(function=2), numbers(rank=3), numbers(step=4), numbers(function=2, rank=1)]
    for number, one in enumerate(changed):
        assert not set(one) & set(base), number
    # An element is a function of its index: a part of a sample is the part of the whole.
    whole = np.asarray(ts.random.bits(ts.random.key(7), (64,)))
    np.testing.assert_array_equal(np.asarray(ts.random.bits(ts.random.key(7), (4, 8))).reshape(-1), whole[:32])


EXTREMES: list[tuple[str, list[float], list[float]]] = [
    ("largest numbers", [3.4e38, 3.4e38], [0.5, 0.5]),
    ("smallest numbers", [1e-45, 0], [0.5, 0.5]),
    ("far apart", [-3.4e38, 3.4e38], [0, 1]),
    ("one infinity below", [-INF, 0], [0, 1]),
    ("nothing but infinities below", [-INF, -INF], [0, 0]),
    ("missing", [NAN, 1], [NAN, NAN]),
    ("just below overflow of exp", [88.7, 88.7], [0.5, 0.5]),
    ("just above overflow of exp", [89.0, 89.0], [0.5, 0.5]),
    ("underflow of exp", [0, -104.0], [1, 0]),
    ("one element", [1e30], [1]),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_Q8_softmax_is_stable(backend: str) -> None:
    f = ts.jit(ops.softmax_safe, dynamic=True, backend=backend)
    for name, row, wanted in EXTREMES:
        np.testing.assert_allclose(wide(f(np.array([row], np.float32)))[0], wanted, rtol=1e-6, atol=1e-38, err_msg=name)
    assert f.cache_info().misses == 1
