"""Indexing written with sorts, scatters and slices: searches, bins, segments, parts, masks, distinct elements.

What a function finds may depend on values in its size: `nonzero` and the `unique` family have that size as `size=`, and
work it out where their operands have values.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError, TracingError
from tessera.frontend.arguments import check_choice, check_int, check_number
from tessera.frontend.concrete import is_concrete
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import reduction as r
from tessera.frontend.functions.creation import full, iota, zeros
from tessera.frontend.functions.indexing import getitem, take
from tessera.frontend.functions.movement import concat, pad, reshape, split
from tessera.frontend.functions.operands import (
    as_tensor,
    axis_of,
    cast,
    dtype_of,
    is_tensor,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.functions.special import compute_wide
from tessera.frontend.functions.updates import At
from tessera.frontend.pytree import as_tuple
from tessera.frontend.size import Size, size_of
from tessera.types.dim import product
from tessera.types.dtype import f32, f64, i32, i64


def searchsorted(sorted: Any, values: Any, side: str = "left") -> Any:
    """Where values would stand in a sorted row: before equal elements, or after them with `side="right"`.

    >>> ts.ops.searchsorted(ts.array([1.0, 2.0, 2.0, 3.0]), ts.array([2.0, 9.0]))
    Tensor([2] i64, [1, 4])
    """
    check_choice("searchsorted", "side", side, ("left", "right"))
    row, wanted = promote_operands("searchsorted", (sorted, values))
    if rank_of(row) != 1:
        raise ArgumentError(f"`searchsorted` takes a sorted row, got a tensor of {rank_of(row)} dims")
    row, wanted = _for_sorting(row), _for_sorting(wanted)
    size = shape_dims(row)[0].value
    return _merge(row, wanted, side) if size is None else _bisect(row, size, wanted, side)


def _bisect(row: Any, size: int, wanted: Any, side: str) -> Any:
    """A search by halves, whose steps are as many for all values: they are gathers of one kernel, with no branch."""
    is_missing = e.ne(wanted, wanted)  # NaN stands after all numbers

    def is_before(at: Any) -> Any:
        own = take(row, at)
        if side == "right":
            return e.logical_or(e.le(own, wanted), is_missing)
        return e.logical_or(e.lt(own, wanted), e.logical_and(is_missing, e.eq(own, own)))

    # What is sought lies among `left` elements from `start` on, or after the last of them.
    start = e.where(is_missing, as_tensor(0, i64), 0)
    left = size
    while left > 1:
        half = left // 2
        start = e.add(start, e.where(is_before(e.add(start, half - 1)), half, 0))
        left -= half
    return e.add(start, cast(is_before(start), i64)) if left else start


def _merge(row: Any, wanted: Any, side: str) -> Any:
    """The search where the size of the row is symbolic, by sorting both together."""
    flat = reshape(wanted, (-1,))
    count, total = shape_dims(flat)[0], shape_dims(row)[0] + shape_dims(flat)[0]
    # All in one order, in which those of equals that come first are the ones given first.
    is_left = side == "left"
    order = r.argsort(concat([flat, row] if is_left else [row, flat]))
    start = size_of(count) if is_left else 0
    end: Any = size_of(total) if is_left else size_of(shape_dims(row)[0])
    is_row = e.logical_and(e.ge(order, start), e.lt(order, end))
    before = r.cumsum(cast(is_row, i64))
    places = At(zeros((size_of(total),), i64))[order].set(before)
    found = getitem(places, slice(0, size_of(count)) if is_left else slice(end, None))
    return reshape(found, tuple(wanted.shape))


def _for_sorting(x: Any) -> Any:
    """What sorts take: bools as integers."""
    return cast(x, i64) if dtype_of(x).is_bool else x


def bincount(x: Any, length: Any, weights: Any = None) -> Any:
    """How often each integer from 0 up to and without `length` is in `x`, or the sum of its weights.

    >>> ts.ops.bincount(ts.array([0, 2, 2, 7]), 4)
    Tensor([4] i64, [1, 0, 2, 0])
    """
    flat = reshape(x, (-1,))
    own: Any = full(tuple(flat.shape), 1, i64) if weights is None else reshape(weights, (-1,))
    # A negative index counts from the end, so that it is sent beyond it.
    legal = e.where(e.lt(flat, 0), length, cast(flat, i64))
    return At(zeros((length,), dtype_of(own)))[legal].add(own)


def histogram(x: Any, bins: int = 10, range: Any = None, weights: Any = None) -> tuple[Any, Any]:
    """How many elements lie in each of `bins` equal parts of `range` (by default smallest to largest), and the ends.

    >>> ts.ops.histogram(ts.array([0.0, 1.0, 1.0, 4.0]), 2)[0]
    Tensor([2] i64, [3, 1])
    """
    count = check_int("histogram", "bins", bins)
    if count < 1:
        raise ArgumentError(f"`histogram` takes `bins` from 1 up, got {count}")
    flat = reshape(x, (-1,))
    # Integers as f64, as f32 has not all of 32 bits.
    flat = flat if dtype_of(flat).is_float else cast(flat, f64)
    low, high = (as_tensor(end, dtype_of(flat)) for end in _range_of(flat, range))
    is_flat = e.eq(low, high)
    low, high = e.where(is_flat, e.sub(low, 0.5), low), e.where(is_flat, e.add(high, 0.5), high)
    step = e.div(e.sub(high, low), float(count))
    ends = e.add(e.mul(cast(iota((count + 1,)), dtype_of(flat)), step), low)
    ends = e.where(e.eq(iota((count + 1,)), count), high, ends)
    is_even = range is not None and _has_even_parts(range, count, dtype_of(flat))
    at = _guess_part(flat, ends, low, step, count) if is_even else e.sub(searchsorted(ends, flat, "right"), 1)
    at = e.where(e.eq(flat, high), count - 1, at)  # the last part has both its ends
    return bincount(e.where(e.gt(flat, high), count, at), count, weights), ends


def _has_even_parts(given: Any, count: int, dtype: Any) -> bool:
    """Whether the ends of equal parts are rounded by little of a part, so that a quotient is wrong by one at most."""
    if dtype not in (f32, f64) or any(is_tensor(end) for end in as_tuple(given)):
        return False
    low, high = (float(end) for end in as_tuple(given))
    if high - low < count * (2.0**-1022 if dtype is f64 else 2.0**-126):
        return False  # parts have few digits, or none
    return low < high and max(abs(low), abs(high)) * count < (high - low) * 2.0 ** (48 if dtype is f64 else 19)


def _guess_part(x: Any, ends: Any, low: Any, step: Any, count: int) -> Any:
    """The part that each element is in, -1 before all and `count` after: a quotient, and a step to where it is."""
    quotient = e.clamp(e.div(e.sub(x, low), step), 0.0, float(count - 1))
    near = cast(e.where(e.isnan(x), 0.0, quotient), i64)
    at = e.sub(near, cast(e.lt(x, take(ends, near)), i64))
    at = e.add(at, cast(e.ge(x, take(ends, e.add(near, 1))), i64))
    return e.where(e.isnan(x), count, at)


def _range_of(flat: Any, given: Any) -> tuple[Any, Any]:
    """From where to where parts of a row go: as given, from its smallest to its largest, or from 0 to 1 of none."""
    if given is None:
        return (0.0, 1.0) if shape_dims(flat)[0].value == 0 else (r.min(flat), r.max(flat))
    ends = as_tuple(given)
    if len(ends) != 2:
        raise ArgumentError(f"`histogram` takes `range` as two numbers, got {given!r}")
    if any(is_tensor(end) for end in ends):
        return ends[0], ends[1]
    low, high = (check_number("histogram", "range", end) for end in ends)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ArgumentError(
            f"`histogram` takes `range` as two finite numbers that do not fall, got {low} and {high}",
            fix="write the smaller end first, as in `range=(0, 1)`",
        )
    return low, high


# Updates at indices.


def put_along_axis(x: Any, indices: Any, values: Any, axis: int = -1) -> Any:
    """`x` with values at positions that differ by row: what `take_along_axis` reads is replaced.

    >>> ts.ops.put_along_axis(ts.array([[1, 2], [3, 4]]), ts.array([[1], [0]]), 9, 1)
    Tensor([2, 2] i64, [[1, 9],
                        [9, 4]])
    """
    at = axis_of("put_along_axis", axis, rank_of(x))
    if rank_of(indices) != rank_of(x):
        raise ShapeError(
            f"`put_along_axis` takes indices with as many dims as its operand, got {rank_of(indices)} and {rank_of(x)}"
        )
    # All positions along the other axes, to which indices of one row broadcast.
    index = [indices if own == at else _along(x, own) for own in range(rank_of(x))]
    return At(x)[tuple(index)].set(values)


def _along(x: Any, axis: int) -> Any:
    """Positions along an axis of `x`, in a shape that broadcasts to that of `x`."""
    sizes = [size_of(dim) if own == axis else 1 for own, dim in enumerate(shape_dims(x))]
    return iota(tuple(sizes), axis)


def scatter_max(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """`x` with the larger of `updates` and what is at `indices` along `axis`."""
    return At(x)[_index("scatter_max", x, indices, axis)].max(updates)


def scatter_min(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """`x` with the smaller of `updates` and what is at `indices` along `axis`."""
    return At(x)[_index("scatter_min", x, indices, axis)].min(updates)


def scatter_mul(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """`x` with what is at `indices` along `axis` times `updates`."""
    return At(x)[_index("scatter_mul", x, indices, axis)].mul(updates)


def _index(op: str, x: Any, indices: Any, axis: int) -> tuple[Any, ...]:
    return (slice(None),) * axis_of(op, axis, rank_of(x)) + (indices,)


def segment_sum(data: Any, segment_ids: Any, num_segments: int) -> Any:
    """Sums of the rows of `data` that have the same number in `segment_ids`; negative numbers count for nothing.

    >>> ts.ops.segment_sum(ts.array([1.0, 2.0, 4.0]), ts.array([0, 0, 1]), 2)
    Tensor([2] f32, [3, 4])
    """
    return _segments(data, segment_ids, num_segments, 0, "add")


def segment_prod(data: Any, segment_ids: Any, num_segments: int) -> Any:
    """Products of the rows of each segment; 1 of none."""
    return _segments(data, segment_ids, num_segments, 1, "mul")


def segment_max(data: Any, segment_ids: Any, num_segments: int) -> Any:
    """The largest of the rows of each segment; -inf, or the smallest integer, of none."""
    return _segments(data, segment_ids, num_segments, "lowest", "max")


def segment_min(data: Any, segment_ids: Any, num_segments: int) -> Any:
    """The smallest of the rows of each segment; inf, or the largest integer, of none."""
    return _segments(data, segment_ids, num_segments, "highest", "min")


def segment_mean(data: Any, segment_ids: Any, num_segments: int) -> Any:
    """The mean of the rows of each segment; 0 of none."""

    def mean(data: Any) -> Any:
        total = segment_sum(data, segment_ids, num_segments)
        counts = segment_sum(full((data.shape[0],), 1, dtype_of(total)), segment_ids, num_segments)
        shape = (num_segments, *([1] * (rank_of(data) - 1)))
        return e.div(total, e.maximum(reshape(counts, shape), 1))

    return compute_wide("segment_mean", (data,), mean)


def _segments(data: Any, segment_ids: Any, num_segments: int, start: Any, reduce: str) -> Any:
    dtype = dtype_of(data)
    if isinstance(start, str):
        ends = (float("-inf"), float("inf")) if dtype.is_float else _ends(dtype)
        start = ends[start == "highest"]
    begin = full((num_segments, *tuple(data.shape)[1:]), start, dtype)
    ids = cast(segment_ids, i64)  # a narrow one may not have the number that is beyond the end
    legal = e.where(e.lt(ids, 0), num_segments, ids)
    return getattr(At(begin)[legal], reduce)(data)


def _ends(dtype: Any) -> tuple[int, int]:
    half = 1 << (dtype.bits - 1)
    return (-half, half - 1) if dtype.kind == "int" else (0, 2 * half - 1)


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """`x` with `value` where `mask` holds."""
    return e.where(mask, value, x)


# Parts.


def chunk(x: Any, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    """`x` cut into at most `chunks` parts along `axis`, all of one size but the last.

    >>> [part.shape for part in ts.ops.chunk(ts.ones((7,)), 3)]
    [(3,), (3,), (1,)]
    """
    count = check_int("chunk", "chunks", chunks)
    at = axis_of("chunk", axis, rank_of(x))
    size = shape_dims(x)[at].value
    if count < 1 or size is None:
        raise ArgumentError(f"`chunk` needs at least one part and a size that is a number, got {count} and {size}")
    each = max(-(-size // count), 1)
    return split(x, [min(each, size - start) for start in range(0, max(size, 1), each)], at)


def narrow(x: Any, axis: int, start: Any, length: Any) -> Any:
    """`length` elements of `x` along `axis` from `start` on; a negative start counts from the end.

    >>> ts.ops.narrow(ts.array([1, 2, 3, 4, 5]), 0, -2, 2)
    Tensor([2] i64, [4, 5])
    """
    at = axis_of("narrow", axis, rank_of(x))
    start, length = (
        one if isinstance(one, Size) else check_int("narrow", name, one)
        for name, one in (("start", start), ("length", length))
    )
    size: Any = size_of(shape_dims(x)[at])
    begin: Any = start + size if isinstance(start, int) and start < 0 else start
    is_known = all(isinstance(one, int) for one in (begin, length, size))
    if is_known and not 0 <= begin <= begin + length <= size:
        raise ArgumentError(
            f"`narrow` takes {length} elements from {start} on, and axis {at} has {size}",
            fix="take as many elements as there are from the start to the end, or fewer",
        )
    return getitem(x, (slice(None),) * at + (slice(begin, begin + length),))


# Results whose size depends on values.


def size_of_found(op: str, count: Any, size: Any) -> Any:
    """How many elements a result has: as given, or as many as are found where that is known."""
    if size is not None:
        return size
    if not is_concrete(count):
        raise TracingError(
            f"how many elements `{op}` finds depends on values, which are not known while tracing",
            fix=f"say how many there are at most, as in `{op}(x, size=8)`",
        )
    return int(count)


def nonzero(x: Any, *, size: Any = None, fill_value: int = 0) -> tuple[Any, ...]:
    """Where elements are not zero: positions along each axis, in row-major order.

    `size` is how many are returned: more are left out, and `fill_value` stands for those that are missing. While
    tracing it must be given.

    >>> [one.tolist() for one in ts.ops.nonzero(ts.array([[0, 3], [4, 0]]))]
    [[0, 1], [1, 0]]
    """
    if rank_of(x) == 0:
        raise ArgumentError("`nonzero` needs at least one axis, got a scalar", fix="write `nonzero(x.reshape(1))`")
    mask = reshape(x if dtype_of(x).is_bool else e.ne(x, 0), (-1,))
    count = r.sum(cast(mask, i64))
    wanted = size_of_found("nonzero", count, size)
    whole = size_of(product(shape_dims(x)))
    order = cast(pack_front(iota((whole,), 0, _counter(whole)), mask, wanted), i64)
    missing = e.ge(iota((wanted,)), count)
    found: list[Any] = []
    for dim in reversed(shape_dims(x)[1:]):
        own = size_of(dim)
        found.append(e.where(missing, fill_value, e.mod(order, own)))
        order = e.floordiv(order, own)
    return (e.where(missing, fill_value, order), *reversed(found))


def _counter(size: Any) -> Any:
    """The dtype that counts so many elements; half the bytes where it can be."""
    return i32 if isinstance(size, int) and size < 1 << 31 else i64


def pack_front(values: Any, mask: Any, size: Any) -> Any:
    """The first `size` elements of a row that a mask has; what stands where there are fewer is not said.

    Every element goes to the place that has as many before it. The last one that goes to a place is the one that the
    mask has, so that no branch depends on the mask.
    """
    counted = cast(mask, _counter(size_of(shape_dims(mask)[0])))
    before = e.sub(r.cumsum(counted), counted)
    return At(zeros((size,), dtype_of(values)))[before].set(values)


def unique_all(x: Any, *, size: Any = None) -> tuple[Any, Any, Any, Any]:
    """Distinct elements in order, where each is first, which of them each element is, and how often each is.

    NaNs are distinct. `size` is that of `nonzero`: what is beyond the distinct ones repeats the largest, 0 times.

    >>> [one.tolist() for one in ts.ops.unique_all(ts.array([3, 1, 3]))]
    [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    """
    flat = reshape(x, (-1,))
    if shape_dims(flat)[0].value == 0:
        return _distinct_of_none(flat, tuple(x.shape), size)
    order = r.argsort(_for_sorting(flat))
    ordered = take(flat, order)
    ahead, behind = getitem(ordered, slice(1, None)), getitem(ordered, slice(None, -1))
    total = size_of(shape_dims(flat)[0])
    is_first = e.logical_or(e.eq(iota((total,)), 0), _padded_front(e.ne(ahead, behind), total))
    group = e.sub(r.cumsum(cast(is_first, i64)), 1)
    wanted = size_of_found("unique_all", r.sum(cast(is_first, i64)), size)
    inverse = At(zeros((total,), i64))[order].set(group)
    counts = At(zeros((wanted,), i64))[group].add(1)
    (starts,) = nonzero(is_first, size=wanted)
    starts = e.where(e.eq(counts, 0), e.sub(total, 1), starts)
    if wanted == 0:
        return getitem(flat, slice(0, 0)), starts, reshape(inverse, tuple(x.shape)), counts
    return take(ordered, starts), take(order, starts), reshape(inverse, tuple(x.shape)), counts


def _distinct_of_none(flat: Any, shape: tuple[Any, ...], size: Any) -> tuple[Any, Any, Any, Any]:
    """What `unique_all` gives for no elements: none, as there is no largest to repeat."""
    if size is not None and size != 0:
        raise ArgumentError(
            f"`unique_all` has no element to repeat in a result of {size}: its operand is empty",
            fix="leave `size` out, or write `size=0`",
        )
    none = zeros((0,), i64)
    return flat, none, zeros(shape, i64), none


def _padded_front(mask: Any, total: Any) -> Any:
    """A mask with one more in front; of no elements none."""
    return getitem(pad(mask, [(1, 0)]), slice(0, total))


def unique(x: Any, *, size: Any = None) -> Any:
    """Distinct elements in order; `size` is that of `unique_all`."""
    return unique_all(x, size=size)[0]


__all__ = [
    "bincount",
    "chunk",
    "histogram",
    "masked_fill",
    "narrow",
    "nonzero",
    "put_along_axis",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "searchsorted",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "unique",
    "unique_all",
]
