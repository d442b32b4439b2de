"""Functions of the array API standard that reduce: sums, means, largest and smallest, tests of all, running sums."""

from __future__ import annotations

import math
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import axis_of, reduced_axes
from tessera.frontend.size import size_of
from tessera.types.dim import product
from tessera.types.dtype import i64, u64
from tessera.xp.data_types import check_kind, parse
from tessera.xp.operands import cast, dtype_of, rank_of, shape_dims


def _sum_dtype(x: Any, dtype: Any) -> Any:
    """The dtype of a sum: that asked for, else 64 bits of integers, and that of floats."""
    own = dtype_of(x)
    natural = own if own.kind in ("float", "complex") else u64 if own.kind == "uint" else i64
    return parse(dtype, natural)


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Sum over `axis`; integers in 64 bits."""
    wanted = _sum_dtype(check_kind("sum", x, "numeric"), dtype)
    return cast(ops.sum(cast(x, wanted), axis, keepdims=keepdims), wanted)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Product over `axis`; integers in 64 bits."""
    wanted = _sum_dtype(check_kind("prod", x, "numeric"), dtype)
    return cast(ops.prod(cast(x, wanted), axis, keepdims=keepdims), wanted)


def _check_elements(name: str, x: Any, axis: Any) -> None:
    axes = reduced_axes(name, axis, rank_of(x))
    if product(shape_dims(x)[at] for at in axes).value == 0:
        raise ValueError(f"`{name}` of no elements has no value")


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Largest over `axis`."""
    _check_elements("max", check_kind("max", x, "real numeric"), axis)
    return ops.max(x, axis, keepdims=keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Smallest over `axis`."""
    _check_elements("min", check_kind("min", x, "real numeric"), axis)
    return ops.min(x, axis, keepdims=keepdims)


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Mean over `axis`."""
    return ops.mean(check_kind("mean", x, "floating"), axis, keepdims=keepdims)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Variance over `axis`, divided by the count less `correction`; NaN where that is not positive."""
    check_kind("var", x, "real floating")
    count = product(shape_dims(x)[at] for at in reduced_axes("var", axis, rank_of(x)))
    is_integer = float(correction).is_integer()
    if is_integer and (correction <= 0 or (count.value is not None and count.value > correction)):
        return ops.var(x, axis, keepdims=keepdims, correction=int(correction))
    if is_integer and count.value is None:
        made = ops.var(x, axis, keepdims=keepdims, correction=int(correction))
        is_defined = ops.gt(ops.add(ops.zeros((), i64), size_of(count)), int(correction))
        return ops.where(is_defined, made, math.nan)
    if count.value is None:
        raise ArgumentError(f"`var` with a `correction` of {correction} needs sizes that are numbers")
    plain = ops.var(x, axis, keepdims=keepdims)
    left = count.value - correction
    return ops.mul(plain, count.value / left if left > 0 else math.nan)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Standard deviation over `axis`: the root of `var`."""
    own: Any = dtype_of(check_kind("std", x, "real floating"))
    return cast(ops.sqrt(var(cast(x, own.compute), axis=axis, correction=correction, keepdims=keepdims)), own)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements over `axis` are true, or not zero."""
    return ops.all(x, axis, keepdims=keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether an element over `axis` is true, or not zero."""
    return ops.any(x, axis, keepdims=keepdims)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along `axis`, taken `n` times."""
    return ops.diff(x, n, axis, prepend=prepend, append=append)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """How many elements over `axis` are not zero."""
    return ops.count_nonzero(x, axis, keepdims=keepdims)


# Running sums.


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running sum along `axis`, with the 0 that it begins from if asked for."""
    return _running("cumulative_sum", x, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
    """Running product along `axis`, with the 1 that it begins from if asked for."""
    return _running("cumulative_prod", x, axis, dtype, include_initial)


def _running(name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    check_kind(name, x, "numeric")
    if axis is None and rank_of(x) > 1:
        raise ArgumentError(f"`{name}` needs an `axis` for a tensor of {rank_of(x)} dims")
    at = 0 if axis is None else axis_of(name, axis, rank_of(x))
    wanted = _sum_dtype(x, dtype)
    is_sum = name == "cumulative_sum"
    made = cast((ops.cumsum if is_sum else ops.cumprod)(cast(x, wanted), at), wanted)
    if not include_initial:
        return made
    sizes = [1 if own == at else size_of(dim) for own, dim in enumerate(shape_dims(made))]
    return ops.concat([ops.full(tuple(sizes), 0 if is_sum else 1, wanted), made], at)


__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std",
    "sum", "var",
]  # fmt: skip
