"""Reductions and scans: sums, min/max, means, norms, cumulative sums."""

from __future__ import annotations

from typing import Any

from tessera.frontend.functions.operands import axes_of, axis_of, promote_operands, rank_of
from tessera.ir.base.dispatch import apply
from tessera.types.promotion import FLOATING


def _reduce(op: str, x: Any, axis: Any, keepdims: bool) -> Any:
    return apply(op, (x,), {"axes": axes_of(op, axis, rank_of(x)), "keepdims": keepdims})


def _reduce_float(op: str, x: Any, axis: Any, keepdims: bool, **more: Any) -> Any:
    axes = axes_of(op, axis, rank_of(x))
    return apply(op, promote_operands(op, (x,), FLOATING), {"axes": axes, "keepdims": keepdims, **more})


def sum(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over `axis` (one, several, or all); integers are summed in 64 bits, no elements give 0.

    >>> ts.ops.sum(ts.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Tensor([2] f32, [4, 6])
    """
    return _reduce("sum", x, axis, keepdims)


def prod(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Product over `axis`; integers in 64 bits, no elements give 1."""
    return _reduce("prod", x, axis, keepdims)


def max(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Largest over `axis`; NaN propagates. The larger of two tensors is `maximum`.

    >>> ts.ops.max(ts.array([[1.0, 5.0], [3.0, 4.0]]), axis=-1)
    Tensor([2] f32, [5, 4])
    """
    return _reduce("max", x, axis, keepdims)


def min(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Smallest over `axis`; NaN propagates. The smaller of two tensors is `minimum`."""
    return _reduce("min", x, axis, keepdims)


def any(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether one element over `axis` is true."""
    return _reduce("any", x, axis, keepdims)


def all(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` are true."""
    return _reduce("all", x, axis, keepdims)


def argmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the largest is: the first of equals; over all axes, counted in row-major order.

    >>> ts.ops.argmax(ts.array([3.0, 7.0, 7.0]))
    Tensor([] i64, 1)
    """
    return _reduce("argmax", x, axis, keepdims)


def argmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the smallest is: the first of equals; over all axes, counted in row-major order."""
    return _reduce("argmin", x, axis, keepdims)


def mean(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Mean over `axis`; integers become floats first.

    >>> ts.ops.mean(ts.array([1.0, 2.0, 6.0]))
    Tensor([] f32, 3)
    """
    return _reduce_float("mean", x, axis, keepdims)


def var(x: Any, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
    """Variance over `axis`, divided by the count less `correction`."""
    return _reduce_float("var", x, axis, keepdims, correction=correction)


def std(x: Any, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
    """Standard deviation over `axis`: the square root of `var`."""
    return _reduce_float("std", x, axis, keepdims, correction=correction)


def logsumexp(x: Any, axis: Any = -1, *, keepdims: bool = False) -> Any:
    """`log(sum(exp(x)))` over `axis`, without overflow.

    >>> ts.ops.logsumexp(ts.array([1000.0, 1000.0]))
    Tensor([] f32, 1000.69)
    """
    return _reduce_float("logsumexp", x, axis, keepdims)


def logsumexp_safe(x: Any, axis: Any = -1, *, keepdims: bool = False) -> Any:
    """`logsumexp` that stays finite for a row of nothing but -inf."""
    return _reduce_float("logsumexp_safe", x, axis, keepdims)


def norm(x: Any, axis: Any = None, *, order: float = 2, keepdims: bool = False) -> Any:
    """Vector norm over `axis`: the `order`-th root of the sum of `order`-th powers."""
    return _reduce_float("norm", x, axis, keepdims, order=order)


def _running(op: str, x: Any, axis: int) -> Any:
    return apply(op, (x,), {"axis": axis_of(op, axis, rank_of(x))})


def cumsum(x: Any, axis: int = -1) -> Any:
    """Running sum along `axis`.

    >>> ts.ops.cumsum(ts.array([1.0, 2.0, 3.0]))
    Tensor([3] f32, [1, 3, 6])
    """
    return _running("cumsum", x, axis)


def cumprod(x: Any, axis: int = -1) -> Any:
    """Running product along `axis`."""
    return _running("cumprod", x, axis)


def cummax(x: Any, axis: int = -1) -> Any:
    """Running maximum along `axis`."""
    return _running("cummax", x, axis)
