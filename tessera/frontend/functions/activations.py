"""Activations written with ops: each computes narrow floats in f32, rounds once, and has the derivative of its formula.

Where a formula has two branches, the exponential of the one that is not taken is of a number that cannot overflow, so
that derivatives stay finite.
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ShapeError
from tessera.frontend.arguments import check_number
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.movement import split
from tessera.frontend.functions.operands import axis_of, rank_of, shape_dims
from tessera.frontend.functions.special import compute_wide

_SELU = (1.6732632423543772, 1.0507009873554805)
"""The slope below zero and the scale for which layers keep mean 0 and variance 1 (Klambauer and others, 2017)."""


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    """`x` above 0, and `negative_slope * x` below.

    >>> ts.ops.leaky_relu(ts.array([-10.0, 2.0]), 0.1)
    Tensor([2] f32, [-1, 2])
    """
    slope = check_number("leaky_relu", "negative_slope", negative_slope)
    return compute_wide("leaky_relu", (x,), lambda a: e.where(e.ge(a, 0.0), a, e.mul(a, slope)))


def prelu(x: Any, weight: Any) -> Any:
    """`x` above 0, and `weight * x` below; the weight is a tensor, which broadcasts.

    >>> ts.ops.prelu(ts.array([-10.0, 2.0]), ts.array([0.5]))
    Tensor([2] f32, [-5, 2])
    """
    return compute_wide("prelu", (x, weight), lambda a, w: e.where(e.ge(a, 0.0), a, e.mul(w, a)))


def _exponential_below(a: Any, scale: float = 1.0) -> Any:
    """`exp(a / scale) - 1` where `a` is not above 0, of which the exponential cannot overflow.

    A choice, not a minimum: of a tie at 0 a minimum gives half its derivative to the constant.
    """
    return e.expm1(e.div(e.where(e.gt(a, 0.0), 0.0, a), scale))


def elu(x: Any, alpha: float = 1.0) -> Any:
    """`x` above 0, and `alpha * (exp(x) - 1)` below.

    >>> ts.ops.elu(ts.array([-1.0, 2.0]))
    Tensor([2] f32, [-0.632121, 2])
    """
    scale = check_number("elu", "alpha", alpha)
    return compute_wide("elu", (x,), lambda a: e.where(e.gt(a, 0.0), a, e.mul(_exponential_below(a), scale)))


def celu(x: Any, alpha: float = 1.0) -> Any:
    """`x` above 0, and `alpha * (exp(x / alpha) - 1)` below, which has no kink at 0."""
    scale = check_number("celu", "alpha", alpha)
    return compute_wide("celu", (x,), lambda a: e.where(e.gt(a, 0.0), a, e.mul(_exponential_below(a, scale), scale)))


def selu(x: Any) -> Any:
    """The scaled `elu` under which layers keep mean 0 and variance 1.

    >>> ts.ops.selu(ts.array([-1.0, 2.0]))
    Tensor([2] f32, [-1.11133, 2.1014])
    """
    slope, scale = _SELU
    return compute_wide(
        "selu",
        (x,),
        lambda a: e.mul(e.where(e.gt(a, 0.0), a, e.mul(_exponential_below(a), slope)), scale),
    )


def relu6(x: Any) -> Any:
    """`x` clamped to 0..6."""
    return e.clamp(x, 0, 6)


def hard_tanh(x: Any, low: float = -1.0, high: float = 1.0) -> Any:
    """`x` clamped to `low..high`."""
    ends = (check_number("hard_tanh", "low", low), check_number("hard_tanh", "high", high))
    return compute_wide("hard_tanh", (x,), lambda a: e.clamp(a, *ends))


def _gate(a: Any) -> Any:
    return e.div(e.clamp(e.add(a, 3.0), 0.0, 6.0), 6.0)


def hard_sigmoid(x: Any) -> Any:
    """`(x + 3) / 6` clamped to 0..1: lines in place of `sigmoid`.

    >>> ts.ops.hard_sigmoid(ts.array([-9.0, 0.0, 1.5]))
    Tensor([3] f32, [0, 0.5, 0.75])
    """
    return compute_wide("hard_sigmoid", (x,), _gate)


def hard_swish(x: Any) -> Any:
    """`x * hard_sigmoid(x)`.

    >>> ts.ops.hard_swish(ts.array([-9.0, 3.0]))
    Tensor([2] f32, [-0, 3])
    """
    return compute_wide("hard_swish", (x,), lambda a: e.mul(a, _gate(a)))


def mish(x: Any) -> Any:
    """`x * tanh(softplus(x))`.

    >>> ts.ops.mish(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0, 0.865098])
    """
    return compute_wide("mish", (x,), lambda a: e.mul(a, e.tanh(e.softplus(a))))


def log_sigmoid(x: Any) -> Any:
    """`log(sigmoid(x))`, without overflow.

    >>> ts.ops.log_sigmoid(ts.array([-1000.0, 0.0]))
    Tensor([2] f32, [-1000, -0.693147])
    """
    return compute_wide("log_sigmoid", (x,), lambda a: e.neg(e.softplus(e.neg(a))))


def tanhshrink(x: Any) -> Any:
    """`x - tanh(x)`."""
    return compute_wide("tanhshrink", (x,), lambda a: e.sub(a, e.tanh(a)))


def softshrink(x: Any, threshold: float = 0.5) -> Any:
    """`x` moved by `threshold` towards 0, and 0 up to there."""
    by = check_number("softshrink", "threshold", threshold)
    return compute_wide("softshrink", (x,), lambda a: e.sub(a, e.clamp(a, -by, by)))


def hardshrink(x: Any, threshold: float = 0.5) -> Any:
    """`x`, and 0 up to `threshold` from 0."""
    by = check_number("hardshrink", "threshold", threshold)
    return compute_wide("hardshrink", (x,), lambda a: e.where(e.gt(e.abs(a), by), a, 0.0))


# Gates: one half of an axis times a function of the other.


def _halves(op: str, x: Any, axis: int) -> tuple[Any, ...]:
    at = axis_of(op, axis, rank_of(x))
    size = shape_dims(x)[at]
    if (size % 2).value == 1:
        raise ShapeError(f"`{op}` cuts an axis into two halves, and `x.shape[{at}] = {size}` is odd")
    return split(x, 2, at)


def glu(x: Any, axis: int = -1) -> Any:
    """The first half of `axis` times `sigmoid` of the second.

    >>> ts.ops.glu(ts.array([3.0, 0.0]))
    Tensor([1] f32, [1.5])
    """
    first, second = _halves("glu", x, axis)
    return compute_wide("glu", (first, second), lambda a, b: e.mul(a, e.sigmoid(b)))


def swiglu(x: Any, axis: int = -1) -> Any:
    """`silu` of the first half of `axis` times the second.

    >>> ts.ops.swiglu(ts.array([0.0, 3.0]))
    Tensor([1] f32, [0])
    """
    first, second = _halves("swiglu", x, axis)
    return compute_wide("swiglu", (first, second), lambda a, b: e.mul(e.silu(a), b))


def geglu(x: Any, axis: int = -1) -> Any:
    """`gelu` of the first half of `axis` times the second."""
    first, second = _halves("geglu", x, axis)
    return compute_wide("geglu", (first, second), lambda a, b: e.mul(e.gelu(a), b))


__all__ = [
    "celu",
    "elu",
    "geglu",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "hardshrink",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "prelu",
    "relu6",
    "selu",
    "softshrink",
    "swiglu",
    "tanhshrink",
]
