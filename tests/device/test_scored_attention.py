"""Attention with functions on a GPU: values and gradients beside float64, and bits that rows around do not change."""

# pyright: reportUnknownLambdaType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(31)
BATCH, HEADS, SHARED, LENGTH = 2, 4, 2, 300
SLOPES = np.exp2(-np.arange(1, HEADS + 1)).astype(np.float32)
DOCUMENTS = np.repeat(np.arange(4, dtype=np.int32), [90, 5, 165, 40])
PREFIX = np.array([100, 40], np.int32)
EXAMPLES = ("noop", "causal", "alibi", "soft cap", "window", "documents", "prefix", "table")


def functions(name: str, put: Any, tanh: Any, cast: Any) -> tuple[Any, Any]:
    """The score and the mask of an example, of arrays of either kind."""
    slopes, documents, prefix = put(SLOPES), put(DOCUMENTS), put(PREFIX)
    table = put(np.sin(np.arange(HEADS * (2 * LENGTH - 1), dtype=np.float32)).reshape(HEADS, -1))
    scores: dict[str, Any] = {
        "noop": lambda s, b, h, i, j: s,
        "alibi": lambda s, b, h, i, j: s + slopes[h] * cast(j - i),
        "soft cap": lambda s, b, h, i, j: 2.0 * tanh(s / 2.0),
        "table": lambda s, b, h, i, j: s + table[h, i - j + (LENGTH - 1)],
    }
    masks: dict[str, Any] = {
        "causal": lambda b, h, i, j: i >= j,
        "alibi": lambda b, h, i, j: i >= j,
        "window": lambda b, h, i, j: (i >= j) & (i - j < 70),
        "documents": lambda b, h, i, j: documents[i] == documents[j],
        "prefix": lambda b, h, i, j: (j < prefix[b]) | (i >= j),
    }
    return scores.get(name), masks.get(name)


def attend(name: str) -> Any:
    score, mask = functions(name, ts.cuda.array, ts.ops.tanh, lambda x: x.cast(ts.f32))
    return lambda q, k, v: ts.ops.attention(q, k, v, mask, score=score)


def exact(name: str, q: Any, k: Any, v: Any) -> Any:
    """The same in float64."""
    score, mask = functions(name, lambda x: x, np.tanh, lambda x: x)
    k, v = (np.repeat(one, q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    at = np.ogrid[tuple(map(slice, scores.shape))]
    scores = scores if score is None else score(scores, *at)
    scores = scores if mask is None else np.where(mask(*at), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def operands(head: int, dtype: Any) -> list[Any]:
    return [RNG.standard_normal((BATCH, heads, LENGTH, head)).astype(dtype) for heads in (HEADS, SHARED, SHARED, HEADS)]


@pytest.mark.parametrize(("dtype", "head"), [(ml_dtypes.bfloat16, 64), (np.float16, 128), (np.float32, 64)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_functions_have_values_and_gradients_of_float64(name: str, dtype: Any, head: int) -> None:
    given = operands(head, dtype)
    function = attend(name)

    def run(q: Any, k: Any, v: Any, cotangent: Any) -> Any:
        out, pull = ts.vjp(function, q, k, v)
        return out, *pull(cotangent)

    with poisoned():
        found = [np.asarray(one).astype(np.float64) for one in ts.jit(run, backend="cuda")(*given)]
    wide = [one.astype(np.float64) for one in given]
    wanted = exact(name, *wide[:3])
    bound = 1e-5 if dtype is np.float32 else 1e-2
    assert np.linalg.norm(found[0] - wanted) <= bound * np.linalg.norm(wanted)
    for number, gradient in enumerate(found[1:]):
        towards = RNG.standard_normal(gradient.shape)
        ends: list[float] = []
        for sign in (1, -1):
            moved = [one + sign * 1e-5 * towards if at == number else one for at, one in enumerate(wide[:3])]
            ends.append(float((exact(name, *moved) * wide[3]).sum()))
        slope = (ends[0] - ends[1]) / 2e-5
        # Errors of elements are apart: along a random direction their sum is as large as the norm of one.
        assert abs(float((gradient * towards).sum()) - slope) <= 5 * bound * np.linalg.norm(gradient), number


@pytest.mark.parametrize("name", ["causal", "alibi", "soft cap", "window"])
def test_rows_alone_have_the_bits_of_a_batch(name: str) -> None:
    q, k, v, _ = operands(64, ml_dtypes.bfloat16)
    compiled: Any = ts.jit(attend(name), backend="cuda")
    with poisoned():
        together = np.asarray(compiled(q, k, v))
        alone = [np.asarray(compiled(*(one[at : at + 1] for one in (q, k, v)))) for at in range(BATCH)]
    assert np.array_equal(np.concatenate(alone), together)


@pytest.mark.parametrize("head", [64, 128])
def test_a_causal_function_has_the_bits_of_the_option(head: int) -> None:
    given = operands(head, ml_dtypes.bfloat16)[:3]
    with poisoned():
        found = np.asarray(ts.jit(attend("causal"), backend="cuda")(*given))
        wanted = np.asarray(ts.jit(lambda q, k, v: ts.ops.attention(q, k, v, causal=True), backend="cuda")(*given))
    assert np.array_equal(found, wanted)
