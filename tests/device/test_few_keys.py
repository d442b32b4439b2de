"""Attention of few keys on a GPU: right, with the bits of any number of keys, of queries alone, and of other blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.device.test_attention import cached, distance, exact

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(29)
SHAPES = [
    (59, 12, 3, 1, 77, 64), (300, 2, 2, 32, 32, 96), (70, 2, 1, 64, 82, 40), (90, 3, 3, 100, 5, 24),
    (7, 4, 2, 9, 128, 128), (40, 2, 2, 17, 64, 200),
]  # fmt: skip
"""Batch, heads, those of keys, queries, keys and the size of a head."""


def attention(is_causal: bool) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return ts.ops.attention(q, k, v, causal=is_causal)

    return attend


def of_any_keys(is_causal: bool, head: int) -> Callable[..., Any]:
    """The same of lengths that are not known: masked blocks in a loop."""
    function = attention(is_causal)
    names = {"q": "S", "k": "T", "v": "T"}
    function.__annotations__ = {
        name: ts.Tensor["B", "H" if name == "q" else "G", one, head] for name, one in names.items()
    }
    return function


def given(shape: tuple[int, ...], dtype: Any) -> list[Any]:
    batch, heads, shared, queries, keys, head = shape
    shapes = [(batch, heads, queries, head), (batch, shared, keys, head), (batch, shared, keys, head)]
    return [RNG.standard_normal(one).astype(dtype) for one in shapes]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_few_keys_have_the_bits_of_a_loop_over_any(shape: tuple[int, ...], is_causal: bool, dtype: Any) -> None:
    """A block as wide as its keys adds what whole ones do: keys that those have more are masked, and add 0."""
    q, k, v = given(shape, dtype)
    known, free = (ts.jit(one, backend="cuda") for one in (attention(is_causal), of_any_keys(is_causal, shape[-1])))
    with poisoned():
        found = np.asarray(known(q, k, v))
        looped = np.asarray(free(q, k, v))
    assert distance(found, exact(q, k, v, is_causal)[0]) <= 4e-3
    assert looped.tobytes() == found.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_that_of_a_batch(shape: tuple[int, ...]) -> None:
    """Alone, without the other heads of its group, and in blocks of another number of queries."""
    q, k, v = given(shape, ml_dtypes.bfloat16)
    jitted = ts.jit(attention(False), backend="cuda")
    wide = ts.jit(attention(False), backend="cuda", overrides={"attention.queries": 128})
    group = q.shape[1] // k.shape[1]
    with poisoned():
        found = np.asarray(jitted(q, k, v))
        assert np.asarray(wide(q, k, v)).tobytes() == found.tobytes()
        alone = np.asarray(jitted(q[3:4, :, :1], k[3:4], v[3:4]))
        apart = np.asarray(jitted(q[:, ::group], k, v))
    assert alone.tobytes() == found[3:4, :, :1].tobytes()
    assert apart.tobytes() == found[:, ::group].tobytes()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_a_query_alone_is_divided_as_in_a_batch(dtype: Any) -> None:
    """Two million quotients: reciprocals that are off by a unit of f32 round one in twenty thousand otherwise."""
    k, v = (RNG.standard_normal((1, 64, 600, 128)).astype(dtype) for _ in range(2))
    q = RNG.standard_normal((1, 64, 256, 128)).astype(dtype)
    over = ts.jit(cached, backend="cuda")
    k, v, length = (ts.cuda.array(part) for part in (k, v, np.array(600)))
    with poisoned():
        found = np.asarray(over(q, k, v, length))
        alone = [np.asarray(over(q[:, :, at : at + 1], k, v, length)) for at in range(q.shape[2])]
    assert "attention_parts" in over.lower(q[:, :, :1], k, v, length).target
    assert np.concatenate(alone, 2).tobytes() == found.tobytes()
