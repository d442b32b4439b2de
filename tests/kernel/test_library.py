"""Kernels of the library: the definition's answer in narrow floats too, and under other schedules."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from examples.flash_attention import flash
from tessera import Schedule
from tessera.diagnostics.codes import KernelError
from tessera.stdlib import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax
from tests.kernel.compare import agree, arrays, attention

RNG = np.random.default_rng(9)
DTYPES = [(np.float32, 4e-6), (ml_dtypes.bfloat16, 2.0**-7)]


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "step"), DTYPES, ids=["f32", "bf16"])
def test_attention_with_shared_heads_equals_the_definition(dtype: Any, step: float) -> None:
    q, k, v = (normal(2, heads, rows, 16, dtype=dtype) for heads, rows in ((4, 37), (2, 70), (2, 70)))
    found = flash_attention_2(q, k, v, causal=True)
    assert found.shape == (2, 4, 37, 16)
    assert str(found.dtype) == ("f32" if dtype is np.float32 else "bf16")
    np.testing.assert_allclose(arrays(found)[0], attention(q, k, v, causal=True), atol=2 * step)


def test_another_schedule_is_another_kernel_and_the_library_stays_as_it_was() -> None:
    before = flash_attention_2.schedule
    mine = flash_attention_2.with_schedule(Schedule(block=(16, 128), warps=4, stages=2))
    q, k, v = normal(2, 40, 16), normal(2, 50, 16), normal(2, 50, 16)
    np.testing.assert_array_equal(arrays(mine(q, k, v))[0], arrays(flash_attention_2(q, k, v))[0])
    assert flash_attention_2.schedule == before
    assert mine.schedule.m == 16


@pytest.mark.parametrize(("dtype", "step"), DTYPES, ids=["f32", "bf16"])
@pytest.mark.parametrize("width", [24, 229])
def test_rows_are_normalized(dtype: Any, step: float, width: int) -> None:
    x, weight, bias = normal(3, 7, width, dtype=dtype), normal(width), normal(width)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(arrays(efficient_layernorm(x, weight, bias))[0], exact, rtol=step, atol=4 * step)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(arrays(stable_softmax(x))[0], powers / powers.sum(-1, keepdims=True), atol=step)


def test_pairs_are_rotated_by_their_angles() -> None:
    x, angles = normal(2, 3, 21, 16), normal(21, 8)
    cos, sin = np.cos(angles), np.sin(angles)
    (found,) = agree(rotary_embedding, x, cos, sin)
    first, second = x[..., :8], x[..., 8:]
    exact = np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    assert rotary_embedding(x, cos, sin).shape == x.shape
    np.testing.assert_allclose(found, exact, atol=1e-6)


@pytest.mark.parametrize(("width", "angles"), [(16, 6), (16, 1), (16, 12), (7, 3)])
def test_angles_are_half_as_many_as_what_is_rotated(width: int, angles: int) -> None:
    x, turn = normal(2, 5, width), normal(5, angles)
    with pytest.raises(KernelError, match="a row of `x` has an element pair for each angle"):
        rotary_embedding(x, np.cos(turn), np.sin(turn))


@pytest.mark.parametrize(("queries", "keys", "blind"), [(70, 7, 63), (5, 0, 5), (130, 64, 66)])
def test_a_row_that_sees_no_key_gives_zeros(queries: int, keys: int, blind: int) -> None:
    q, k, v = normal(2, queries, 16), normal(2, keys, 16), normal(2, keys, 16)
    found = arrays(flash_attention_2(q, k, v, causal=True))[0]
    np.testing.assert_array_equal(found[:, :blind], 0)
    expected = np.asarray(ts.ops.attention(q[None], k[None], v[None], causal=True))[0]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def body_of(kernel: Any) -> str:
    """What a kernel does, without its name and what is said about it."""
    (written,) = ast.parse(inspect.getsource(kernel.definition.function)).body
    assert isinstance(written, ast.FunctionDef)
    return "\n".join(ast.unparse(part) for part in (written.args, *written.body[1:]))


def test_the_example_shows_the_kernel_of_the_library() -> None:
    assert body_of(flash) == body_of(flash_attention_2)
    assert body_of(flash) != body_of(stable_softmax)


def test_they_are_ops_of_programs() -> None:
    @ts.jit
    def program(x: Any) -> Any:
        return stable_softmax(x * 2.0).sum(axis=-1)

    np.testing.assert_allclose(np.asarray(program(normal(5, 24))), 1, atol=1e-6)
    with pytest.raises(AttributeError, match="no attribute `no_such`"):
        getattr(ts.stdlib, "no_such")  # noqa: B009
