"""Values against f64 and gradients against its slopes, for functions of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts

_RNG = np.random.default_rng(17)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return _RNG.normal(size=shape).astype(np.float32).astype(dtype)


def compare(found: Any, expected: Any, step: float) -> None:
    """Within so many of the largest element: sums cancel, and their terms are rounded."""
    wide = np.asarray(found).astype(np.float64)
    assert wide.shape == expected.shape
    np.testing.assert_allclose(wide, expected, rtol=0, atol=step * max(1.0, float(np.abs(expected).max(initial=0.0))))


def check_gradients(
    function: Callable[..., Any], exact: Callable[..., Any], *operands: Any, rtol: float = 2e-4
) -> None:
    """Each gradient of a weighted sum of results, along a direction, against the central difference in f64."""
    wide = [np.asarray(x).astype(np.float64) for x in operands]
    weights = normal(*exact(*wide).shape)
    places = tuple(range(len(operands)))
    slopes = ts.jit(ts.grad(lambda *x: (function(*x) * weights).sum(), argnums=places))(*operands)
    for place, (slope, x) in enumerate(zip(slopes, wide, strict=True)):
        assert slope.shape == x.shape
        # A random direction, and one along the gradient itself: the first alone may hide what is small.
        for move in (_RNG.normal(size=x.shape), np.sign(np.asarray(slope).astype(np.float64))):
            ends = [
                (exact(*(one + s * move if at == place else one for at, one in enumerate(wide))) * weights).sum()
                for s in (1e-5, -1e-5)
            ]
            expected = (ends[0] - ends[1]) / 2e-5
            scale = np.abs(np.asarray(slope).astype(np.float64) * move).sum()
            found = (np.asarray(slope).astype(np.float64) * move).sum()
            np.testing.assert_allclose(
                found, expected, rtol=0, atol=rtol * max(scale, 1e-6), err_msg=f"operand {place}"
            )
