"""Reductions and scans written with others: counts, differences, order statistics, those that skip NaN, covariance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_bool, check_choice, check_number, check_repeats
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import reduction as r
from tessera.frontend.functions.contraction import diagonal, matmul
from tessera.frontend.functions.indexing import getitem, take, take_along_axis
from tessera.frontend.functions.movement import (
    broadcast_to,
    concat,
    expand_dims,
    moveaxis,
    reshape,
    squeeze,
    stack,
    swapaxes,
    transpose,
)
from tessera.frontend.functions.operands import (
    as_tensor,
    axis_of,
    cast,
    dtype_of,
    is_tensor,
    promote_operands,
    rank_of,
    reduced_axes,
    shape_dims,
)
from tessera.frontend.functions.special import compute_wide, interpolate_between, log_of_exponentials
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import size_of
from tessera.types.dim import product
from tessera.types.dtype import DType, f32, f64, i64
from tessera.types.promotion import FLOATING


def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many elements over `axis` are not zero.

    >>> ts.ops.count_nonzero(ts.array([[1, 0], [3, 4]]), axis=0)
    Tensor([2] i64, [2, 1])
    """
    return r.sum(cast(e.ne(x, 0) if not dtype_of(x).is_bool else x, i64), axis, keepdims=keepdims)


def ptp(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The largest less the smallest over `axis`."""
    return e.sub(r.max(x, axis, keepdims=keepdims), r.min(x, axis, keepdims=keepdims))


def diff(x: Any, n: int = 1, axis: int = -1, *, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along `axis`, taken `n` times; bools differ where they are not equal.

    >>> ts.ops.diff(ts.array([1.0, 4.0, 9.0]))
    Tensor([2] f32, [3, 5])
    """
    times = check_repeats("diff", "n", n, 0)
    at = axis_of("diff", axis, rank_of(x))
    parts = [_as_part(one, x, at) for one in (prepend, x, append) if one is not None]
    made = concat(parts, at) if len(parts) > 1 else x
    ahead, behind = ((slice(None),) * at + (part,) for part in (slice(1, None), slice(None, -1)))
    size = size_of(shape_dims(made)[at])
    for _ in range(min(times, size) if isinstance(size, int) else times):
        left, right = getitem(made, ahead), getitem(made, behind)
        made = e.ne(left, right) if dtype_of(made).is_bool else e.sub(left, right)
    return made


def _as_part(part: Any, x: Any, axis: int) -> Any:
    """What is joined to `x` along an axis: a number stands there once in every row."""
    if is_tensor(part) and rank_of(part):
        return part
    sizes = [1 if at == axis else size_of(dim) for at, dim in enumerate(shape_dims(x))]
    return broadcast_to(as_tensor(part, dtype_of(x)), tuple(sizes))


def cummin(x: Any, axis: int = -1) -> Any:
    """Running minimum along `axis`.

    >>> ts.ops.cummin(ts.array([3.0, 1.0, 2.0]))
    Tensor([3] f32, [3, 1, 1])
    """
    if dtype_of(x).is_float or (dtype_of(x).kind == "int" and dtype_of(x).bits < 64):
        wide = cast(x, i64) if dtype_of(x).is_integer else x
        return cast(e.neg(r.cummax(e.neg(wide), axis)), dtype_of(x))
    # The order of integers is reversed by inverting their bits, which no number is without.
    return e.bitwise_not(r.cummax(e.bitwise_not(x), axis))


def logcumsumexp(x: Any, axis: int = -1) -> Any:
    """`log(cumsum(exp(x)))` along `axis`, relative to the running maximum, so that nothing overflows.

    >>> ts.ops.logcumsumexp(ts.array([0.0, 0.0, 1000.0]))
    Tensor([3] f32, [0, 0.693147, 1000])
    """

    def scan(x: Any) -> Any:
        at = axis_of("logcumsumexp", axis, rank_of(x))
        moved = moveaxis(x, at, -1)
        size = shape_dims(moved)[-1]
        if size.value is None:
            raise ArgumentError(f"`logcumsumexp` needs a size that is a number along its axis, got {size}")
        made, step = moved, 1
        # Hillis and Steele: after each step an element holds twice as many.
        while step < size.value:
            head = getitem(made, (Ellipsis, slice(0, step)))
            joined = log_of_exponentials(
                getitem(made, (Ellipsis, slice(step, None))), getitem(made, (Ellipsis, slice(0, -step)))
            )
            made, step = concat([head, joined], rank_of(made) - 1), 2 * step
        return moveaxis(made, -1, at)

    return compute_wide("logcumsumexp", (x,), scan)


# Order statistics.


def _flat(x: Any, axis: Any) -> tuple[Any, int]:
    """`x` with the axes of a reduction as one last axis, and how many dims there were."""
    axes = reduced_axes("quantile", axis, rank_of(x))
    kept = tuple(at for at in range(rank_of(x)) if at not in axes)
    sizes = [size_of(shape_dims(x)[at]) for at in kept]
    moved = transpose(x, (*kept, *axes)) if rank_of(x) else x
    whole = size_of(product(shape_dims(x)[at] for at in axes))
    return reshape(moved, (*sizes, whole)), rank_of(x)


def quantile(x: Any, q: Any, axis: Any = None, *, keepdims: bool = False, method: str = "linear") -> Any:
    """The number below which a share `q` of the elements over `axis` lies; several shares are a first axis.

    Between two elements `method` chooses: "linear", "lower", "higher", "midpoint" or "nearest". NaN propagates.

    >>> ts.ops.quantile(ts.array([1.0, 2.0, 3.0, 10.0]), 0.5)
    Tensor([] f32, 2.5)
    """
    return _quantile("quantile", x, q, axis, keepdims, method, skips_nan=False)


def _quantile(op: str, x: Any, q: Any, axis: Any, keepdims: bool, method: str, *, skips_nan: bool) -> Any:
    check_choice(op, "method", method, _METHODS)
    keepdims = check_bool(op, "keepdims", keepdims)
    shares = [check_number(op, "q", one) for one in (as_tuple(q) if is_sequence(q) else (q,))]
    for share in shares:
        if not 0.0 <= share <= 1.0:
            raise ArgumentError(f"`{op}` takes `q` from 0 to 1, got {share}")
    own = dtype_of(promote_operands(op, (x,), FLOATING)[0])
    rows, rank = _flat(cast(x, _wide_dtype(x)), axis)
    ordered = r.sort(rows)
    # NaN is sorted last: one is there if the last is one, and those that are none come first.
    if skips_nan:
        count = r.sum(cast(e.logical_not(e.isnan(rows)), i64), -1)
        missing, last = e.eq(count, 0), e.maximum(e.sub(cast(count, f64), 1.0), 0.0)
    else:
        missing = e.isnan(getitem(ordered, (Ellipsis, -1)))
        last = e.sub(cast(as_tensor(ordered.shape[-1], i64), f64), 1.0)
    made = [_pick(ordered, e.mul(last, share), method) for share in shares]
    made = [cast(e.where(missing, float("nan"), one), own) for one in made]
    if keepdims:
        axes = reduced_axes(op, axis, rank)
        made = [expand_dims(one, axes) if axes else one for one in made]
    return stack(made) if is_sequence(q) else made[0]


def _wide_dtype(x: Any) -> DType:
    """In which elements are ordered and interpolated: f64 for integers of 32 bits and more, not all in f32."""
    dtype = dtype_of(x)
    return dtype.compute if dtype.is_float else f64 if dtype.bits >= 32 else f32


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _pick(ordered: Any, place: Any, method: str) -> Any:
    """The element at a place between two of sorted rows: one for all of them, or one for each."""
    below, above = e.floor(place), e.ceil(place)
    if method == "nearest":
        below = above = e.round(place)
    low, high = (_at_place(ordered, cast(at, i64)) for at in (below, above))
    if method in ("lower", "nearest"):
        return low
    if method == "higher":
        return high
    weight: Any = 0.5 if method == "midpoint" else cast(e.sub(place, below), dtype_of(low))
    # An infinite end is what lies between it and a number; two that differ have nothing between them.
    is_infinite = e.logical_or(e.isinf(low), e.isinf(high))
    return e.where(is_infinite, e.add(low, high), interpolate_between(low, high, weight))


def _at_place(ordered: Any, at: Any) -> Any:
    if rank_of(at) == 0:
        return take(ordered, at, rank_of(ordered) - 1)
    return squeeze(take_along_axis(ordered, expand_dims(at, -1), -1), -1)


def percentile(x: Any, q: Any, axis: Any = None, *, keepdims: bool = False, method: str = "linear") -> Any:
    """`quantile` of percents."""
    shares = [check_number("percentile", "q", one) / 100.0 for one in (as_tuple(q) if is_sequence(q) else (q,))]
    return quantile(x, shares if is_sequence(q) else shares[0], axis, keepdims=keepdims, method=method)


def median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The middle element over `axis`, of an even number the mean of the middle two.

    >>> ts.ops.median(ts.array([3.0, 1.0, 2.0]))
    Tensor([] f32, 2)
    """
    return quantile(x, 0.5, axis, keepdims=keepdims)


# Reductions that skip NaN.


def _without_nan(x: Any, instead: float) -> Any:
    return e.where(e.isnan(x), instead, x) if dtype_of(x).is_float else x


def nansum(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over `axis` of what is not NaN.

    >>> ts.ops.nansum(ts.array([1.0, float("nan"), 2.0]))
    Tensor([] f32, 3)
    """
    return r.sum(_without_nan(x, 0.0), axis, keepdims=keepdims)


def nanprod(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Product over `axis` of what is not NaN."""
    return r.prod(_without_nan(x, 1.0), axis, keepdims=keepdims)


def fmax(x: Any, y: Any) -> Any:
    """The larger of two numbers, and where one is NaN the other one; `maximum` propagates NaN.

    >>> ts.ops.fmax(ts.array([1.0, float("nan")]), ts.array([2.0, 3.0]))
    Tensor([2] f32, [2, 3])
    """
    return _number_of_two("fmax", e.maximum, x, y)


def fmin(x: Any, y: Any) -> Any:
    """The smaller of two numbers, and where one is NaN the other one; `minimum` propagates NaN."""
    return _number_of_two("fmin", e.minimum, x, y)


def _number_of_two(name: str, choose: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    x, y = promote_operands(name, (x, y))
    if not dtype_of(x).is_float:
        return choose(x, y)
    return e.where(e.isnan(x), y, e.where(e.isnan(y), x, choose(x, y)))


def nanmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Largest over `axis` of what is not NaN; NaN where all are."""
    return _largest_or_smallest(r.max, x, axis, keepdims, -math.inf)


def nanmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Smallest over `axis` of what is not NaN; NaN where all are."""
    return _largest_or_smallest(r.min, x, axis, keepdims, math.inf)


def _largest_or_smallest(reduce: Callable[..., Any], x: Any, axis: Any, keepdims: bool, instead: float) -> Any:
    if not dtype_of(x).is_float:
        return reduce(x, axis, keepdims=keepdims)
    found = reduce(_without_nan(x, instead), axis, keepdims=keepdims)
    return e.where(r.all(e.isnan(x), axis, keepdims=keepdims), math.nan, found)


def nanargmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the largest of what is not NaN is; 0 where all are NaN."""
    return r.argmax(_without_nan(x, -math.inf), axis, keepdims=keepdims)


def nanargmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Where the smallest of what is not NaN is; 0 where all are NaN."""
    return r.argmin(_without_nan(x, math.inf), axis, keepdims=keepdims)


def nanmean(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Mean over `axis` of what is not NaN; NaN where all are.

    >>> ts.ops.nanmean(ts.array([1.0, float("nan"), 2.0]))
    Tensor([] f32, 1.5)
    """

    def mean(x: Any) -> Any:
        count = cast(r.sum(cast(e.logical_not(e.isnan(x)), i64), axis, keepdims=keepdims), dtype_of(x))
        return e.div(nansum(x, axis, keepdims=keepdims), count)

    return compute_wide("nanmean", (x,), mean)


def nanquantile(x: Any, q: Any, axis: Any = None, *, keepdims: bool = False, method: str = "linear") -> Any:
    """`quantile` of what is not NaN; NaN where all are.

    >>> ts.ops.nanquantile(ts.array([1.0, float("nan"), 2.0]), 0.5)
    Tensor([] f32, 1.5)
    """
    return _quantile("nanquantile", x, q, axis, keepdims, method, skips_nan=True)


def nanpercentile(x: Any, q: Any, axis: Any = None, *, keepdims: bool = False, method: str = "linear") -> Any:
    """`nanquantile` of percents."""
    shares = [check_number("nanpercentile", "q", one) / 100.0 for one in (as_tuple(q) if is_sequence(q) else (q,))]
    return nanquantile(x, shares if is_sequence(q) else shares[0], axis, keepdims=keepdims, method=method)


def nanmedian(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The middle element over `axis` of what is not NaN; of an even number the mean of the middle two, as in NumPy.

    >>> ts.ops.nanmedian(ts.array([3.0, float("nan"), 1.0, 2.0]))
    Tensor([] f32, 2)
    """
    return nanquantile(x, 0.5, axis, keepdims=keepdims)


def nancumsum(x: Any, axis: int = -1) -> Any:
    """Running sum along `axis`, to which NaN adds nothing."""
    return r.cumsum(_without_nan(x, 0.0), axis)


def nancumprod(x: Any, axis: int = -1) -> Any:
    """Running product along `axis`, which NaN leaves as it is."""
    return r.cumprod(_without_nan(x, 1.0), axis)


def nanvar(x: Any, axis: Any = None, *, keepdims: bool = False, correction: float = 0) -> Any:
    """Variance over `axis` of what is not NaN, divided by their count less `correction`."""
    less = check_number("nanvar", "correction", correction)

    def variance(x: Any) -> Any:
        missing = e.isnan(x)
        # Masked before they are squared: the derivative of a square is its root, and NaN times 0 is NaN.
        apart = e.where(missing, 0.0, e.sub(e.where(missing, 0.0, x), nanmean(x, axis, keepdims=True)))
        count = cast(r.sum(cast(e.logical_not(e.isnan(x)), i64), axis, keepdims=keepdims), dtype_of(x))
        left = e.sub(count, less)
        squares = r.sum(e.mul(apart, apart), axis, keepdims=keepdims)
        return e.where(e.gt(left, 0.0), e.div(squares, e.where(e.gt(left, 0.0), left, 1.0)), math.nan)

    return compute_wide("nanvar", (x,), variance)


def nanstd(x: Any, axis: Any = None, *, keepdims: bool = False, correction: float = 0) -> Any:
    """Standard deviation over `axis` of what is not NaN."""
    return compute_wide("nanstd", (x,), lambda a: e.sqrt(nanvar(a, axis, keepdims=keepdims, correction=correction)))


# Covariance.


def cov(x: Any, *, rowvar: bool = True, correction: float = 1) -> Any:
    """The covariances of variables, which are rows of `x` (columns without `rowvar`), over their observations.

    >>> ts.ops.cov(ts.array([[0.0, 2.0], [1.0, 5.0]]))
    Tensor([2, 2] f32, [[2, 4],
                        [4, 8]])
    """
    less = check_number("cov", "correction", correction)
    check_bool("cov", "rowvar", rowvar)

    def covariance(x: Any) -> Any:
        rows = x if rank_of(x) == 2 else expand_dims(x, 0)
        rows = rows if rowvar or rank_of(x) < 2 else swapaxes(rows, 0, 1)
        apart = e.sub(rows, r.mean(rows, 1, keepdims=True))
        count = e.maximum(e.sub(cast(as_tensor(rows.shape[1], i64), dtype_of(x)), less), 0.0)
        made = e.div(matmul(apart, swapaxes(apart, 0, 1)), count)
        return made if rank_of(x) == 2 else reshape(made, ())

    return compute_wide("cov", (x,), covariance)


def corrcoef(x: Any, *, rowvar: bool = True) -> Any:
    """The covariances of variables over the products of their standard deviations, from -1 to 1."""
    check_bool("corrcoef", "rowvar", rowvar)

    def coefficients(x: Any) -> Any:
        made = cov(x, rowvar=rowvar)
        if rank_of(made) == 0:
            return e.div(made, made)
        scale = e.sqrt(diagonal(made))
        return e.clamp(e.div(made, e.mul(expand_dims(scale, 1), scale)), -1.0, 1.0)

    return compute_wide("corrcoef", (x,), coefficients)


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integral of `y` along `axis` by the trapezoidal rule, over points `x` or `dx` apart."""
    return e.mul(r.sum(_trapezoids("trapezoid", y, x, dx, axis), -1), 0.5)


def cumulative_trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """The integrals of `y` along `axis` up to each point after the first, as `trapezoid` has them.

    >>> ts.ops.cumulative_trapezoid(ts.array([1.0, 3.0, 5.0]))
    Tensor([2] f32, [2, 6])
    """
    made = e.mul(r.cumsum(_trapezoids("cumulative_trapezoid", y, x, dx, axis), -1), 0.5)
    return moveaxis(made, -1, axis_of("cumulative_trapezoid", axis, rank_of(y)))


def _trapezoids(op: str, y: Any, x: Any, dx: float, axis: int) -> Any:
    """Twice the area between each two points, which are along the last axis."""
    at = axis_of(op, axis, rank_of(y))
    points = moveaxis(x, axis, -1) if x is not None and rank_of(x) > 1 else x
    steps: Any = check_number(op, "dx", dx) if x is None else diff(points)
    moved = moveaxis(y, at, -1)
    pairs = e.add(getitem(moved, (Ellipsis, slice(1, None))), getitem(moved, (Ellipsis, slice(None, -1))))
    return e.mul(pairs, steps)


__all__ = [
    "corrcoef", "count_nonzero", "cov", "cummin", "cumulative_trapezoid", "diff", "fmax", "fmin", "logcumsumexp",
    "median", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin",
    "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "percentile", "ptp", "quantile",
    "trapezoid",
]  # fmt: skip
