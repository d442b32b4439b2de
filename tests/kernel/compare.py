"""Comparing the three ways a kernel runs: compiled, as a tile program, and as the Python function it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.frontend.pytree import as_tuple


def arrays(result: Any) -> list[Any]:
    """Results as arrays of f64."""
    return [np.asarray(one).astype(np.float64) for one in as_tuple(result)]


def agree(kernel: Any, *args: Any, ulps: float = 0.0, **kwargs: Any) -> list[Any]:
    """What a compiled kernel gives, after the interpreters gave the same, up to so many units in the last place of 1.

    Functions such as `exp` are rounded otherwise in NumPy; all else is the same bit for bit.
    """
    compiled = arrays(kernel(*args, **kwargs))
    for way in (kernel.interpret, kernel.run_tiles):
        for one, other in zip(compiled, arrays(way(*args, **kwargs)), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=ulps * 2.0**-23 * max(1.0, float(np.abs(other).max())))
    return compiled


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, length: int | None = None) -> Any:
    """Attention of [heads, S, D] to [heads, L, D] in f64; the last query stands at the last key."""
    keys = int(k.shape[-2]) if length is None else length
    q, k, v = q.astype(np.float64), k[..., :keys, :].astype(np.float64), v[..., :keys, :].astype(np.float64)
    k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        rows = np.arange(int(q.shape[-2]))[:, None] + (keys - int(q.shape[-2]))
        scores = np.where(np.arange(keys) <= rows, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v
