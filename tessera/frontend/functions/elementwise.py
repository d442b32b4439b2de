"""Functions on one element at a time that the table of scalar functions does not make, and all that it does."""

from __future__ import annotations

from typing import Any

from tessera.frontend.functions.operands import as_truth, cast, compute, dtype_of, promote_operands
from tessera.frontend.functions.scalar import *  # noqa: F403 - its stub lists them
from tessera.frontend.functions.scalar import maximum, minimum, mul
from tessera.ir.base.dispatch import apply
from tessera.types.dtype import DType, parse_dtype
from tessera.types.promotion import FLOATING


def gelu(x: Any, approximate: str = "none") -> Any:
    """`x` times the normal distribution function of `x`; `approximate` is "none" (by erf) or "tanh".

    >>> ts.ops.gelu(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0, 0.841345])
    """
    return apply("gelu", promote_operands("gelu", (x,), FLOATING), {"approximate": approximate})


def square(x: Any) -> Any:
    """`x * x`."""
    return mul(x, x)


def where(condition: Any, x: Any, y: Any) -> Any:
    """`x` where `condition` holds, else `y`; all three broadcast. Of a condition of numbers, those but zero hold.

    >>> ts.ops.where(ts.array([True, False]), 1.0, ts.array([5.0, 6.0]))
    Tensor([2] f32, [1, 6])
    """
    return apply("where", (as_truth(condition), *promote_operands("where", (x, y))))


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """`x` clamped to `low..high`; an end left out does not bind.

    >>> ts.ops.clamp(ts.array([-2.0, 0.5, 9.0]), 0.0, 1.0)
    Tensor([3] f32, [0, 0.5, 1])
    """
    if low is None or high is None:
        x = x if low is None else maximum(x, low)
        return x if high is None else minimum(x, high)
    return compute("clamp", (x, low, high))


def astype(x: Any, dtype: Any) -> Any:
    """`x` in another dtype: floats round to the nearest even, floats to integers truncate and saturate."""
    return cast(x, parse_dtype(dtype))


def cast_like(x: Any, like: Any) -> Any:
    """`x` in the dtype of `like`."""
    return cast(x, dtype_of(like))


def bitcast(x: Any, dtype: DType) -> Any:
    """The bits of `x` read as another dtype of the same width."""
    return apply("bitcast", (x,), {"dtype": parse_dtype(dtype), "source": dtype_of(x)})
