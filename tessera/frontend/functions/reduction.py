"""Reductions, scans and sorts: sums, min/max, means, norms, cumulative sums, order."""

from __future__ import annotations

from typing import Any

from tessera.frontend.functions.operands import along_axis, compute, promote_operands, rank_of, reduced_axes
from tessera.ir.base.dispatch import apply
from tessera.types.promotion import ARITHMETIC, FLOATING, INDEX, LOGICAL, SUM, OpClass


def _reduce(op: str, x: Any, axis: Any, keepdims: bool, group: OpClass = ARITHMETIC) -> Any:
    return compute(op, (x,), {"axes": reduced_axes(op, axis, rank_of(x)), "keepdims": keepdims}, group)


def _reduce_float(op: str, x: Any, axis: Any, keepdims: bool, **more: Any) -> Any:
    axes = reduced_axes(op, axis, rank_of(x))
    return apply(op, promote_operands(op, (x,), FLOATING), {"axes": axes, "keepdims": keepdims, **more})


def sum(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over `axis` (one, several, or all); integers are summed in 64 bits, no elements give 0.

    >>> ts.ops.sum(ts.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Tensor([2] f32, [4, 6])
    """
    return _reduce("sum", x, axis, keepdims, SUM)


def prod(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Product over `axis`; integers in 64 bits, no elements give 1."""
    return _reduce("prod", x, axis, keepdims, SUM)


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
    """Whether one element over `axis` is true: of numbers, not zero."""
    return _reduce("any", x, axis, keepdims, LOGICAL)


def all(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` are true: of numbers, not zero."""
    return _reduce("all", x, axis, keepdims, LOGICAL)


def argmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the largest is: the first of equals; over all axes, counted in row-major order.

    >>> ts.ops.argmax(ts.array([3.0, 7.0, 7.0]))
    Tensor([] i64, 1)
    """
    return _reduce("argmax", x, axis, keepdims, INDEX)


def argmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the smallest is: the first of equals; over all axes, counted in row-major order."""
    return _reduce("argmin", x, axis, keepdims, INDEX)


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
    """Vector norm over `axis`: the `order`-th root of the sum of `order`-th powers of sizes.

    Of order infinity it is the largest, of minus infinity the smallest size, and of order 0 how many are not zero.

    >>> ts.ops.norm(ts.array([2.0, -2.0, 0.0]), order=3)
    Tensor([] f32, 2.51984)
    """
    return _reduce_float("norm", x, axis, keepdims, order=order)


def _running(op: str, x: Any, axis: int, group: OpClass = SUM) -> Any:
    return along_axis(op, x, axis, lambda own, at: compute(op, (own,), {"axis": at}, group))


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
    return _running("cummax", x, axis, ARITHMETIC)


def sort(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """`x` in order along `axis`; NaN comes last.

    >>> ts.ops.sort(ts.array([3.0, 1.0, 2.0]))
    Tensor([3] f32, [1, 2, 3])
    """
    return along_axis("sort", x, axis, lambda own, at: apply("sort", (own,), {"axis": at, "descending": descending}))


def argsort(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """Where the elements of `sort` come from; equal ones keep their order."""
    order = {"descending": descending}
    return along_axis("argsort", x, axis, lambda own, at: apply("argsort", (own,), {"axis": at, **order}))


def topk(x: Any, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Any, Any]:
    """The `k` largest (or smallest) along `axis`, in order, and where they are; of equal ones the first."""
    return along_axis("topk", x, axis, lambda own, at: apply("topk", (own,), {"k": k, "axis": at, "largest": largest}))
