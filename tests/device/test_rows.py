"""Kernels that memory bounds, on a GPU: what was done to make them fast leaves every bit where it was."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Schedule
from tessera.runtime.devices.cuda.driver import is_available
from tessera.stdlib import efficient_layernorm, rotary_embedding, stable_softmax
from tests.device.poison import poisoned

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

RNG = np.random.default_rng(17)
BF16 = ml_dtypes.bfloat16


def same(function: Any, *arrays: Any) -> None:
    """The bits of the CPU, NaN being one value."""
    with poisoned():
        there = np.asarray(ts.jit(function, backend="cuda")(*arrays))
    here = np.asarray(ts.jit(function)(*arrays))
    wide = [part.astype(np.float32) for part in (here, there)]
    bits = [part.view(np.uint32) for part in wide]
    agree = (bits[0] == bits[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    assert agree.all(), (np.argwhere(~agree)[:3], here[~agree][:3], there[~agree][:3])


def gelu_tanh(x: Any) -> Any:
    return ts.ops.gelu(x, approximate="tanh")


def test_quotients_by_all_numbers_from_1_to_2() -> None:
    """What is divided by is 1 and a power; the powers here are about all that change it, and some that do not."""
    logarithms = np.log(np.arange(1, 1 << 23, dtype=np.float64) / (1 << 23))
    corners = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-23, -(2.0**-23)]
    x = np.concatenate([logarithms, -logarithms[::7], np.linspace(-120, 120, 1 << 20), corners]).astype(np.float32)
    for function in (ts.ops.sigmoid, ts.ops.silu, ts.ops.tanh):
        same(function, x)


@pytest.mark.parametrize("function", [ts.ops.sigmoid, ts.ops.silu, ts.ops.gelu, gelu_tanh])
def test_activations_of_every_bf16(function: Any) -> None:
    same(function, np.arange(1 << 16, dtype=np.uint16).view(BF16))


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def log_softmax(x: Any) -> Any:
    return ts.ops.log_softmax(x, axis=-1)


def logsumexp(x: Any) -> Any:
    return ts.ops.logsumexp(x, axis=-1)


def wild(columns: int, dtype: Any, most: float) -> Any:
    """Rows of small and large numbers, one of the largest, and some with infinities or what is no number."""
    x = (RNG.standard_normal((40, columns)) * RNG.choice([1.0, 30.0, 100.0], (40, 1))).astype(dtype)
    x[1, ::3] = -np.inf
    x[2] = -np.inf
    x[3, 5] = np.nan
    x[4, 7] = np.inf
    x[5] = most
    return x


@pytest.mark.parametrize("function", [softmax, log_softmax, logsumexp])
@pytest.mark.parametrize("dtype", [BF16, np.float32])
@pytest.mark.parametrize("columns", [33, 1024, 4096, 5024, 5120, 6000, 8192, 9216, 10240, 16384])
def test_exps_that_fall_far(function: Any, dtype: Any, columns: int) -> None:
    x = wild(columns, dtype, 3e38)
    same(function, x)


def rmsnorm(x: Any, weight: Any, bias: Any) -> Any:
    return ts.ops.rmsnorm(x, weight) + bias


def layernorm(x: Any, weight: Any, bias: Any) -> Any:
    return ts.ops.layernorm(x, weight, bias)


@pytest.mark.parametrize("function", [rmsnorm, layernorm])
@pytest.mark.parametrize("columns", [4096, 4864, 5000, 5120, 8192, 9216, 9472, 16384])
def test_norms_of_wide_rows(function: Any, columns: int) -> None:
    """Rows that registers hold widened, as they lie in memory, and not at all."""
    x = (RNG.standard_normal((1500, columns)) * RNG.choice([1e-3, 1.0, 1e30], (1500, 1))).astype(BF16)
    weight, bias = (RNG.standard_normal(columns).astype(BF16) for _ in range(2))
    x[3, 5], x[4, 7] = np.nan, np.inf
    same(function, x, weight, bias)


def with_bias(x: Any, bias: Any) -> Any:
    return ts.ops.softmax(x + bias, axis=-1)


@pytest.mark.parametrize("columns", [8192, 12288])
@pytest.mark.parametrize("rows", [1, 65])
def test_exps_of_wide_reductions(columns: int, rows: int) -> None:
    """One row or two that each program reads in several passes, and fewer programs than blocks have."""
    x, bias = ((3 * RNG.standard_normal((65, columns))).astype(BF16) for _ in range(2))
    same(with_bias, x, bias[:rows] if rows > 1 else bias[0])


def row_logs(x: Any) -> Any:
    return ts.ops.logsumexp(x, axis=-1) + x.max(axis=-1)


def test_reductions_of_exps_of_wide_rows() -> None:
    x = (RNG.standard_normal((300, 8192)) * RNG.choice([1.0, 30.0, 100.0], (300, 1))).astype(BF16)
    x[1, ::3], x[2], x[3, 5], x[4, 7] = -np.inf, -np.inf, np.nan, np.inf
    same(row_logs, x)


def library_softmax(x: Any) -> Any:
    return stable_softmax(x)


def library_layernorm(x: Any, weight: Any, bias: Any) -> Any:
    return efficient_layernorm(x, weight, bias)


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32])
@pytest.mark.parametrize("columns", [33, 777, 1000, 1001, 1024, 3000, 4096, 4100])
def test_rows_of_the_library(dtype: Any, columns: int) -> None:
    """Logits of all sizes, rows of nothing, and rows with what is no number."""
    x = wild(columns, dtype, 6e4)
    x[6, 1:] = x[6, 0] - 90
    same(library_softmax, x)
    weight, bias = (RNG.standard_normal(columns).astype(dtype) for _ in range(2))
    same(library_layernorm, x[7:], weight, bias)


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


def column_spread(x: Any) -> Any:
    return x.mean(axis=0) + (x * x).sum(axis=0)


@pytest.mark.parametrize("function", [column_sums, column_spread])
@pytest.mark.parametrize("shape", [(31, 40), (2048, 100), (2049, 64), (5003, 33)])
@pytest.mark.parametrize("dtype", [BF16, np.float32])
def test_columns(function: Any, shape: tuple[int, int], dtype: Any) -> None:
    same(function, RNG.standard_normal(shape).astype(dtype))


@pytest.mark.parametrize("size", [8, 64, 96, 128])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(size: int, interleaved: bool) -> None:
    x = RNG.standard_normal((2, 3, 37, size)).astype(BF16)
    angles = RNG.standard_normal((37, size // 2))
    cos, sin = np.cos(angles).astype(BF16), np.sin(angles).astype(BF16)

    def turned(a: Any, c: Any, s: Any) -> Any:
        return ts.ops.rotary(a, c, s, interleaved=interleaved)

    same(turned, x, cos, sin)


SCHEDULES = [None, Schedule(block=(16,), warps=1), Schedule(block=(64,), warps=4), Schedule(block=(37,), warps=8)]


@pytest.mark.parametrize("dtype", [BF16, np.float32])
def test_rotary_of_the_library_has_one_result_under_all_schedules(dtype: Any) -> None:
    x = RNG.standard_normal((6, 100, 64)).astype(dtype)
    angles = RNG.standard_normal((100, 32)).astype(np.float32)
    for schedule in SCHEDULES:
        chosen = rotary_embedding if schedule is None else rotary_embedding.with_schedule(schedule)

        def turned(a: Any, c: Any, s: Any, chosen: Any = chosen) -> Any:
            return chosen(a, c, s)

        same(turned, x, np.cos(angles), np.sin(angles))


def joined(x: Any, y: Any) -> Any:
    return ts.ops.concat([x, y * 2.0, x + 1.0], axis=-1)


def scaled(x: Any, y: Any) -> Any:
    return x * y


@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (300, 40), (33, 1000), (1, 7)])
def test_short_rows(rows: int, columns: int) -> None:
    x, y = (RNG.standard_normal((4, rows, columns)).astype(np.float32) for _ in range(2))
    same(joined, x, y)
    same(scaled, x, y[:, :1])
    same(scaled, x, y[:1])


MANY = (2049, 1 << 20)
"""A shape with more elements than 31 bits count."""


def numbered(one: Any) -> Any:
    rows, columns = (ts.ops.iota(MANY, axis, ts.i64) for axis in (0, 1))
    return ((rows * MANY[1] + columns) % 251).cast(ts.bf16) + one


def wrong(x: Any) -> Any:
    """How many elements of each row are not what `numbered` and a 1 made them."""
    rows, columns = (ts.ops.iota(MANY, axis, ts.i64) for axis in (0, 1))
    expected = ((rows * MANY[1] + columns) % 251 + 2).cast(ts.bf16)
    return (x != expected).cast(ts.i32).sum(axis=1)


def next_of(x: Any) -> Any:
    return x + 1.0


def picked(x: Any, at: Any) -> Any:
    return ts.ops.take(ts.ops.reshape(x, (MANY[0] * MANY[1],)), at, axis=0)


def test_more_elements_than_31_bits_count() -> None:
    x = ts.jit(numbered, backend="cuda")(ts.cuda.array(np.ones((), BF16)))
    x = ts.jit(next_of, backend="cuda")(x)
    assert not np.asarray(ts.jit(wrong, backend="cuda")(x)).any()
    at = np.array([0, 1, 2**31 - 1, 2**31, 2**31 + 250, MANY[0] * MANY[1] - 1], np.int64)
    found = np.asarray(ts.jit(picked, backend="cuda")(x, at)).astype(np.float64)
    assert found.tolist() == (at % 251 + 2).tolist()


def folded(a: Any) -> Any:
    return ts.ops.relu(a @ a.T) @ a


def multiplied(a: Any, b: Any) -> Any:
    return a @ b


def doubled(value: Any) -> Any:
    return value + value


def is_small(value: Any) -> Any:
    return value.sum() < 1000.0


def grown(x: Any) -> Any:
    return ts.while_loop(is_small, doubled, x)


def test_a_capture_keeps_its_memory() -> None:
    function = ts.jit(folded, backend="cuda")
    value = RNG.standard_normal((96, 96)).astype(np.float32)
    x = ts.cuda.array(value)
    expected = np.asarray(function(function(x)))
    with ts.cuda.capture() as graph:
        y = function(function(x))
    del x
    ts.cuda.POOL.trim()
    others = [ts.cuda.array(np.full((96, 96), np.nan, np.float32)) for _ in range(8)]
    for _ in range(2):
        graph.replay()
        np.testing.assert_array_equal(np.asarray(y), expected)
    assert len(others) == 8


def test_threads_in_one_program_do_not_read_each_others_numbers() -> None:
    function = ts.jit(grown, backend="cuda")
    starts = [np.full(4, 1.0 + number, np.float32) for number in range(8)]
    function(starts[0])
    found: dict[int, list[Any]] = {}

    def run(number: int) -> None:
        found[number] = [np.asarray(function(starts[number])) for _ in range(20)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(starts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, start in enumerate(starts):
        expected = start
        while expected.sum() < 1000:
            expected = expected * 2
        for one in found[number]:
            np.testing.assert_array_equal(one, expected)


def test_tensor_maps_are_made_once() -> None:
    function = ts.jit(multiplied, backend="cuda")
    a, b = (ts.cuda.array(RNG.standard_normal((256, 256)).astype(BF16)) for _ in range(2))
    made = function(a, b)
    before = ts.cuda.tensor_map_counts()
    for _ in range(10):
        made = function(a, b)
    after = ts.cuda.tensor_map_counts()
    # Results take turns in two blocks of memory; the operands are where they were.
    assert after["created"] - before["created"] <= 2
    assert after["reused"] - before["reused"] >= 28
    assert made.shape == (256, 256)
