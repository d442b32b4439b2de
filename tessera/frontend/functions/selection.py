"""Functions that pick elements by a condition, by membership or by a pattern of indices: masks, triangles, pairs.

What a function finds may depend on values in its size: it has that size as `size=`, as `nonzero` has.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_number
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import reduction as r
from tessera.frontend.functions.algebra import broadcast_arrays, length_of_rows, norm_of_rows, scales_of_all
from tessera.frontend.functions.creation import iota, zeros
from tessera.frontend.functions.indexing import getitem, take, take_along_axis
from tessera.frontend.functions.lookup import nonzero, pack_front, searchsorted, size_of_found
from tessera.frontend.functions.movement import broadcast_to, reshape, squeeze, stack
from tessera.frontend.functions.operands import (
    as_tensor,
    as_truth,
    axis_of,
    cast,
    dtype_of,
    is_tensor,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.functions.special import compute_wide
from tessera.frontend.size import size_of
from tessera.types.dim import product
from tessera.types.dtype import f32, f64, i32, i64

_FEW = 32
"""Elements that are compared one by one, as a search has loads in place of each few comparisons."""

_MOST_ROWS = 1 << 20
"""Indices that are part of a program, of which more would be its larger part."""


def argwhere(x: Any, *, size: Any = None, fill_value: int = 0) -> Any:
    """Where elements are not zero, as rows [count, axes] in row-major order; `size` is that of `nonzero`.

    >>> ts.ops.argwhere(ts.array([[0, 3], [4, 0]]))
    Tensor([2, 2] i64, [[0, 1],
                        [1, 0]])
    """
    if rank_of(x) == 0:
        (found,) = nonzero(reshape(x, (1,)), size=size, fill_value=fill_value)
        return zeros((found.shape[0], 0), i64)
    return stack(list(nonzero(x, size=size, fill_value=fill_value)), -1)


def masked_select(x: Any, mask: Any, *, size: Any = None, fill_value: float = 0) -> Any:
    """The elements where `mask` holds, in row-major order; both broadcast.

    `size` is how many are returned: more are left out, and `fill_value` stands for those that are missing. While
    tracing it must be given.

    >>> ts.ops.masked_select(ts.array([1.0, 2.0, 3.0]), ts.array([True, False, True]))
    Tensor([2] f32, [1, 3])
    """
    fill = _number("masked_select", "fill_value", fill_value)
    x, chosen = broadcast_arrays(as_tensor(x), as_truth(mask))
    flat, chosen = reshape(x, (-1,)), reshape(chosen, (-1,))
    count = r.sum(cast(chosen, i64))
    wanted = size_of_found("masked_select", count, size)
    return e.cast_like(e.where(e.lt(iota((wanted,)), count), pack_front(flat, chosen, wanted), fill), flat)


def _number(op: str, name: str, value: Any) -> float:
    """A number, of which an int stays one: with it, integers stay integers."""
    number = check_number(op, name, value)
    return value if isinstance(value, int) else number


def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """`x` with the elements of `source`, in row-major order, where `mask` holds; the mask broadcasts to `x`.

    Where more are masked than `source` has, the last one stands.

    >>> ts.ops.masked_scatter(ts.array([1, 2, 3]), ts.array([True, False, True]), ts.array([8, 9]))
    Tensor([3] i64, [8, 2, 9])
    """
    values = e.cast_like(reshape(source, (-1,)), x)
    chosen = broadcast_to(as_truth(mask), tuple(x.shape))
    if shape_dims(values)[0].value == 0:
        return x
    order = e.sub(r.cumsum(cast(reshape(chosen, (-1,)), i64)), 1)
    at = e.minimum(e.maximum(order, 0), e.sub(as_tensor(values.shape[0], i64), 1))
    return e.where(chosen, reshape(take(values, at), tuple(x.shape)), x)


def isin(x: Any, values: Any, *, invert: bool = False) -> Any:
    """Whether each element of `x` is one of `values`; NaN is none. With `invert`, whether it is none of them.

    >>> ts.ops.isin(ts.array([1, 2, 3]), ts.array([3, 1]))
    Tensor([3] bool, [True, False, True])
    """
    x, wanted = promote_operands("isin", (x, values))
    count = product(shape_dims(wanted))
    wanted = reshape(wanted, (-1,))
    if dtype_of(x).is_bool:
        x, wanted = cast(x, i64), cast(wanted, i64)
    if count.value == 0:
        found = e.ne(iota(tuple(x.shape)) if rank_of(x) else as_tensor(0), 0)
        found = e.logical_and(found, False)
    elif count.value is not None and count.value <= _FEW:
        found = functools.reduce(e.logical_or, (e.eq(x, getitem(wanted, at)) for at in range(count.value)))
    else:
        ordered = r.sort(wanted)
        last = e.sub(as_tensor(size_of(count), i64), 1)
        found = e.eq(take(ordered, e.minimum(searchsorted(ordered, x), last)), x)
    return e.logical_not(found) if check_bool("isin", "invert", invert) else found


def mode(x: Any, axis: int = -1, *, keepdims: bool = False) -> tuple[Any, Any]:
    """The most frequent element along `axis`, the smallest of several, and how often it is there.

    >>> [int(one) for one in ts.ops.mode(ts.array([3, 1, 3, 2, 1]))]
    [1, 2]
    """
    is_kept = check_bool("mode", "keepdims", keepdims)
    if rank_of(x) == 0:
        found = mode(reshape(x, (1,)), axis)
        return found[0], found[1]
    at = axis_of("mode", axis, rank_of(x))
    if shape_dims(x)[at].value == 0:
        raise ShapeError(f"`mode` needs an element along its axis, got {list(x.shape)}")
    ordered = r.sort(cast(x, i64) if dtype_of(x).is_bool else x, at)
    place = iota(tuple(x.shape), at)
    before = take(ordered, e.maximum(e.sub(iota((x.shape[at],)), 1), 0), at)
    is_first = e.logical_or(e.eq(place, 0), e.ne(ordered, before))
    # How many equal ones there are up to each; the first that has most of them ends the smallest such run.
    runs = e.add(e.sub(place, r.cummax(e.where(is_first, place, 0), at)), 1)
    best = r.argmax(runs, at, keepdims=True)
    made = (cast(take_along_axis(ordered, best, at), dtype_of(x)), take_along_axis(runs, best, at))
    return made if is_kept else (squeeze(made[0], at), squeeze(made[1], at))


# Patterns of indices.


def tril_indices(rows: int, columns: int | None = None, offset: int = 0) -> Any:
    """The positions of a matrix on and below its diagonal, moved up by `offset`: [2, count], row by row.

    >>> ts.ops.tril_indices(2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", rows, columns, offset, is_lower=True)


def triu_indices(rows: int, columns: int | None = None, offset: int = 0) -> Any:
    """The positions of a matrix on and above its diagonal, moved up by `offset`: [2, count], row by row.

    >>> ts.ops.triu_indices(2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return _triangle("triu_indices", rows, columns, offset, is_lower=False)


def _triangle(op: str, rows: Any, columns: Any, offset: Any, *, is_lower: bool) -> Any:
    height = check_int(op, "rows", rows)
    width = height if columns is None else check_int(op, "columns", columns)
    by = check_int(op, "offset", offset)
    if height < 0 or width < 0:
        raise ArgumentError(f"`{op}` takes sizes from 0 up, got {height} and {width}")
    if is_lower:
        row, column = _lower_triangle(height, width, by)
    else:
        # The upper one is the lower one of a matrix whose rows and columns are reversed, read from its end.
        row, column = _lower_triangle(height, width, width - height - by, is_reversed=True)
    return stack([row, column], 0)


def _lower_triangle(height: int, width: int, offset: int, *, is_reversed: bool = False) -> tuple[Any, Any]:
    """The rows and columns of the positions on and below a diagonal, each of its number alone.

    Rows from `begin` on grow from `first` elements by one each, and from `begin + growing` on all are full. The number
    of a position in a triangle that begins with one element has its row in a square root. Roots and quotients are
    guesses that are wrong by one at most, and mended in integers, so that they may be narrow ones.
    """
    begin = min(max(-offset, 0), height)
    first = min(max(offset + 1, 1), width)
    growing = min(max(width - first, 0), height - begin)
    small = growing * first + growing * (growing - 1) // 2
    count = small + (height - begin - growing) * width
    if not count:
        return zeros((0,), i64), zeros((0,), i64)
    missing = first * (first - 1) // 2  # elements of the rows before the first
    is_narrow = count + missing < 1 << 27 and height < 1 << 20
    whole, real = (i32, f32) if is_narrow else (i64, f64)
    number = iota((count,), 0, whole)
    number = e.sub(count - 1, number) if is_reversed else number
    if growing:
        within = e.add(number, missing)
        nth = cast(e.mul(e.add(e.sqrt(e.mul(cast(within, real), 8.0)), 1.0), 0.5), whole)
        over = e.sub(within, _triangular(nth))
        nth, over = _mend(nth, over, nth, e.sub(nth, 1))
        row, column = e.add(nth, begin - first), over
    else:
        row, column = number, number
    if small < count:
        over = e.sub(number, small)
        full = cast(e.mul(cast(over, real), 1.0 / width), whole)
        full, over = _mend(full, e.sub(over, e.mul(full, width)), width, width)
        is_full = e.ge(number, small)
        row, column = e.where(is_full, e.add(full, begin + growing), row), e.where(is_full, over, column)
    row, column = (e.sub(height - 1, row), e.sub(width - 1, column)) if is_reversed else (row, column)
    return cast(row, i64), cast(column, i64)


def _triangular(nth: Any) -> Any:
    """How many elements the rows of one, two, up to `nth - 1` have."""
    return e.shift_right(e.mul(nth, e.sub(nth, 1)), 1)


def _mend(row: Any, over: Any, width: Any, width_before: Any) -> tuple[Any, Any]:
    """A row that may be one too many or too few, and how far a position is from its begin, which lies within it."""
    is_before, is_after = e.lt(over, 0), e.ge(over, width)
    step = e.where(is_before, -1, e.where(is_after, 1, 0))
    back = e.where(is_before, width_before, e.where(is_after, e.mul(width, -1), 0))
    return e.add(row, step), e.add(over, back)


def combinations(x: Any, r: int = 2, *, with_replacement: bool = False) -> Any:
    """All ways to pick `r` elements of a row in its order, as rows [count, r]; each once, or any number of times.

    The size of the row is a number.

    >>> ts.ops.combinations(ts.array([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    count = check_int("combinations", "r", r)
    size = shape_dims(x)[0].value if rank_of(x) == 1 else None
    if size is None or count < 0:
        raise ArgumentError(
            f"`combinations` takes a row whose size is a number, and `r` from 0, got {list(x.shape)} and {count}"
        )
    is_repeated = check_bool("combinations", "with_replacement", with_replacement)
    pick: Any = itertools.combinations_with_replacement if is_repeated else itertools.combinations
    chosen: list[Any] = list(itertools.islice(pick(range(size), count), _MOST_ROWS + 1))
    if len(chosen) > _MOST_ROWS:
        raise ArgumentError(f"`combinations` makes up to {_MOST_ROWS} rows, and {count} of {size} elements are more")
    if not chosen or not count:
        return e.cast_like(zeros((len(chosen), count)), x)
    return take(x, as_tensor(np.array(chosen, np.int64)))


def pdist(x: Any, p: float = 2.0) -> Any:
    """Distances between each two rows of `x` [N, D] by the `p`-norm, in the order of `combinations`; N is a number.

    >>> ts.ops.pdist(ts.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    Tensor([3] f32, [5, 1, 4.24264])
    """
    order = check_number("pdist", "p", p)
    size = shape_dims(x)[0].value if rank_of(x) == 2 else None
    if size is None or not order >= 0.0:
        raise ArgumentError(
            f"`pdist` takes rows whose number is known, and `p` from 0, got {list(x.shape)} and {order}",
            fix="write `tessera.ops.cdist(x, x)` where sizes are symbolic",
        )
    pairs = triu_indices(size, size, 1)

    def measure(x: Any) -> Any:
        if order == 2.0:
            scale, back = scales_of_all((x,), (-2, -1))
            x = e.mul(x, scale)
            return e.mul(length_of_rows(e.sub(take(x, pairs[0]), take(x, pairs[1]))), squeeze(back, -1))
        apart = e.sub(take(x, pairs[0]), take(x, pairs[1]))
        return norm_of_rows(apart, e.eq(apart, 0.0), order)

    return compute_wide("pdist", (x,), measure)


def threshold(x: Any, threshold: float, value: float) -> Any:
    """`x` above `threshold`, and `value` elsewhere.

    >>> ts.ops.threshold(ts.array([0.5, 2.0]), 1.0, 9.0)
    Tensor([2] f32, [9, 2])
    """
    least, other = check_number("threshold", "threshold", threshold), _number("threshold", "value", value)
    return e.where(e.gt(as_tensor(x) if not is_tensor(x) else x, least), x, other)


__all__ = [
    "argwhere", "combinations", "isin", "masked_scatter", "masked_select", "mode", "pdist", "threshold",
    "tril_indices", "triu_indices",
]  # fmt: skip
