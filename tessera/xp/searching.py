"""Functions of the array API standard that search, sort, and find distinct elements.

The results of `nonzero` and of the `unique` functions have sizes that depend on values. Outside of `jit` they are
counted; inside, `size=` says how many are returned, which is more than the standard has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.types.dtype import i64, u8
from tessera.xp.data_types import check_kind
from tessera.xp.operands import cast, dtype_of, is_tensor, rank_of


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the largest is along `axis`; the first of equals."""
    return ops.argmax(check_kind("argmax", x, "real numeric"), axis, keepdims=keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the smallest is along `axis`; the first of equals."""
    return ops.argmin(check_kind("argmin", x, "real numeric"), axis, keepdims=keepdims)


def nonzero(x: Any, /, *, size: int | None = None, fill_value: int = 0) -> tuple[Any, ...]:
    """Where elements are not zero: positions along each axis, in row-major order.

    >>> [one.tolist() for one in ts.xp.nonzero(ts.array([0, 5, 7]))]
    [[1, 2]]
    """
    return ops.nonzero(x, size=size, fill_value=fill_value)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where elements of `x2` would stand in the sorted row `x1`, or in that which `sorter` sorts."""
    row = x1 if sorter is None else ops.take(x1, sorter)
    return ops.searchsorted(row, x2, side)


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """`x1` where `condition` holds, else `x2`; a Python number has the dtype of the other."""
    check_kind("where", condition, "bool")
    if not is_tensor(x1) and not is_tensor(x2):
        raise ArgumentError("`where` needs a tensor among `x1` and `x2`", fix="write `xp.asarray(1.0)`")
    return ops.where(condition, x1, x2)


# Sorting; every sort is stable.


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """`x` in order along `axis`."""
    if dtype_of(x).is_bool:
        return cast(ops.sort(cast(x, u8), axis, descending=descending), dtype_of(x))
    return ops.sort(x, axis, descending=descending)


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Where the elements of `sort` come from; equal ones keep their order."""
    return ops.argsort(cast(x, u8) if dtype_of(x).is_bool else x, axis, descending=descending)


# Distinct elements.


class UniqueAll(NamedTuple):
    """Distinct elements, where each is first, which of them each element is, and how often each is."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct elements, and how often each is."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct elements, and which of them each element is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /, *, size: int | None = None) -> UniqueAll:
    """Distinct elements in order, with their first positions, what each element is of them, and counts."""
    if rank_of(x) and 0 in tuple(x.shape):
        if size is not None and size != 0:
            raise ArgumentError(
                f"`size={size}` distinct elements were asked for of a tensor of the shape {list(x.shape)}",
                notes=("rule: what is missing repeats the largest element, and there is none",),
                fix="pass `size=0`, or a tensor that has elements",
            )
        none = ops.zeros((0,), i64)
        return UniqueAll(ops.reshape(x, (-1,)), none, ops.zeros(tuple(x.shape), i64), none)
    return UniqueAll(*ops.unique_all(x, size=size))


def unique_counts(x: Any, /, *, size: int | None = None) -> UniqueCounts:
    """Distinct elements in order, and how often each is.

    >>> ts.xp.unique_counts(ts.array([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    found = unique_all(x, size=size)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /, *, size: int | None = None) -> UniqueInverse:
    """Distinct elements in order, and which of them each element is."""
    found = unique_all(x, size=size)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /, *, size: int | None = None) -> Any:
    """Distinct elements in order."""
    return unique_all(x, size=size).values


__all__ = [
    "argmax", "argmin", "argsort", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "where",
]  # fmt: skip
