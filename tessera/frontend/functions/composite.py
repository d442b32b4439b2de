"""Functions of models that are safe by construction: softmax, norms, attention, losses."""

from __future__ import annotations

from typing import Any

from tessera.frontend.functions import elementwise
from tessera.frontend.functions.operands import axis_of, dtype_of, promoted, rank_of
from tessera.ir.base.dispatch import apply
from tessera.types.promotion import FLOATING


def _along(op: str, x: Any, axis: int) -> Any:
    dtype_of(x)
    return apply(op, promoted(op, (x,), FLOATING), {"axis": axis_of(op, axis, rank_of(x))})


def softmax(x: Any, axis: int = -1) -> Any:
    """Normalised exponential of `x` along `axis`.

    Subtracts the maximum first, so finite input gives finite output. Computed in f32 (f64 for f64) and rounded once.

    Raises: AxisError (T0103) if `axis` is not an axis of `x`.

    >>> ts.ops.softmax(ts.array([0.0, 0.0]))
    Tensor([0.5, 0.5], f32)
    """
    return _along("softmax", x, axis)


def softmax_safe(x: Any, axis: int = -1) -> Any:
    """Softmax that gives zeros, not NaN, for a row of nothing but -inf."""
    return _along("softmax_safe", x, axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """`log(softmax(x))` along `axis`, without cancellation."""
    return _along("log_softmax", x, axis)


def layernorm_safe(x: Any, weight: Any = None, bias: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """`x` with mean 0 and variance 1 over `axis` and all axes after it, times `weight`, plus `bias`.

    >>> ts.ops.layernorm(ts.array([1.0, 3.0]), eps=1e-9)
    Tensor([-1.,  1.], f32)
    """
    return _normalized("layernorm_safe", x, weight, bias, axis, eps)


layernorm = layernorm_safe


def rmsnorm_safe(x: Any, weight: Any = None, *, axis: int = -1, eps: float = 1e-5) -> Any:
    """`x` over its root mean square over `axis` and all axes after it, times `weight`."""
    return _normalized("rmsnorm_safe", x, weight, None, axis, eps)


rmsnorm = rmsnorm_safe


def _normalized(op: str, x: Any, weight: Any, bias: Any, axis: int, eps: float) -> Any:
    dtype_of(x)
    (x,) = promoted(op, (x,), FLOATING)
    if weight is None and bias is not None:
        return elementwise.add(_normalized(op, x, None, None, axis, eps), bias)
    parameters = [parameter for parameter in (weight, bias) if parameter is not None]
    return apply(op, (x, *parameters), {"axis": axis_of(op, axis, rank_of(x)), "eps": float(eps)})


def cross_entropy(logits: Any, labels: Any, *, reduction: str = "mean") -> Any:
    """Minus the log-probability of each label under softmax of `logits` [..., classes].

    `reduction` is "none", "mean" over the labels that count, or "sum"; a negative label does not count.
    """
    dtype_of(labels)
    return apply("cross_entropy", (*promoted("cross_entropy", (logits,), FLOATING), labels), {"reduction": reduction})
