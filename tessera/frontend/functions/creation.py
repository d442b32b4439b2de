"""Functions that make tensors from nothing but a shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, IndexRangeError, ShapeError, TracingError
from tessera.diagnostics.error import FixLike, user_span
from tessera.frontend.arguments import check_bool, check_int, check_number
from tessera.frontend.concrete import device_class, place_like, scalar_dtype
from tessera.frontend.fixes import fixes_of
from tessera.frontend.functions import elementwise, movement
from tessera.frontend.functions.operands import (
    axis_of,
    dims_of,
    dtype_of,
    is_tensor,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.size import Size, dim_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i64, parse_dtype
from tessera.types.shape import normalize_slice, slice_extent

# `x[...]` as NumPy has it, and functions that pick elements by tensors of positions.

_ALL = slice(None)


def getitem(x: Any, index: Any) -> Any:
    """`x[index]`: ints, slices, None, `...` and tensors of integers, with NumPy's meaning.

    An int out of range is an error where the size is a number, and a guard at the call where it is dynamic. A tensor of
    integers picks along its axis; several of them pick together, broadcast to one shape.

    >>> ts.array([[1, 2], [3, 4]])[:, ::-1]
    Tensor([2, 2] i64, [[2, 1],
                        [4, 3]])
    """
    items = _expand_ellipsis(index if _is_tuple(index) else (index,), rank_of(x))
    picked, positions = _slice_axes(x, items)
    return _pick(picked, positions, _picked_axis(items)) if positions else picked


def _is_tuple(index: Any) -> bool:
    return isinstance(index, tuple)


def _expand_ellipsis(items: tuple[Any, ...], rank: int) -> list[Any]:
    """The index with one item for each axis, and None for each new one."""
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexRangeError("an index can have one `...`, got more", fix=_index_fix(rank))
    if used > rank:
        message = f"an index of {used} positions is too long for a tensor of {rank} dims"
        raise IndexRangeError(message, fix=_index_fix(rank))
    fill = [_ALL] * (rank - used)
    if not dots:
        return [*items, *fill]
    return [*items[: dots[0]], *fill, *items[dots[0] + 1 :]]


def _index_fix(rank: int) -> FixLike:
    return lambda span: fixes_of("arguments").index_fix(span, rank)


def _slice_axes(x: Any, items: Sequence[Any]) -> tuple[Any, dict[int, Any]]:
    """What ints, slices and new axes make of `x`, and the tensors of positions by the axis they then pick from."""
    dims = shape_dims(x)
    start, stop, step = [Dim.constant(0)] * len(dims), list(dims), [1] * len(dims)
    dropped: list[int] = []
    kept: list[tuple[str, Any]] = []
    axis = 0
    for item in items:
        if item is None:
            kept.append(("new", None))
            continue
        if _is_slice(item):
            start[axis], stop[axis], step[axis] = _slice_of(item, dims[axis])
            kept.append(("axis", None))
        elif _is_position(item):
            at = _position(item, dims[axis], axis)
            start[axis], stop[axis] = at, at + 1
            dropped.append(axis)
        else:
            kept.append(("pick", _positions(item, x)))
        axis += 1
    if start != [Dim.constant(0)] * len(dims) or stop != list(dims) or step != [1] * len(dims):
        x = apply("slice", (x,), {"start": tuple(start), "stop": tuple(stop), "step": tuple(step)})
    x = movement.squeeze(x, tuple(dropped)) if dropped else x
    new = tuple(at for at, (kind, _) in enumerate(kept) if kind == "new")
    x = movement.expand_dims(x, new) if new else x
    return x, {at: positions for at, (kind, positions) in enumerate(kept) if kind == "pick"}


def _is_position(item: Any) -> bool:
    """A plain number: an int, a size, or a NumPy integer; a scalar tensor is a tensor of positions."""
    if isinstance(item, bool):
        raise IndexRangeError(f"an index cannot be {item}", fix="choose elements with `tessera.ops.where`")
    return isinstance(item, int | Size | Dim) or (hasattr(item, "__index__") and not is_tensor(item))


def _is_slice(item: Any) -> bool:
    return isinstance(item, slice)


def _slice_of(item: Any, size: Dim) -> tuple[Dim, Dim, int]:
    bounds = [None if bound is None else _clamp_bound(bound) for bound in (item.start, item.stop)]
    by = item.step
    if by is not None and (isinstance(by, Size | bool) or not hasattr(by, "__index__") or is_tensor(by)):
        raise ShapeError(f"a slice step must be a number, got {by!r}")
    try:
        start, stop, step, extent = normalize_slice(size, bounds[0], bounds[1], None if by is None else by.__index__())
    except ValueError as error:
        raise ShapeError(str(error), fix=lambda span: fixes_of("arguments").step_fix(span)) from None
    if extent.value == 0:
        return Dim.constant(0), Dim.constant(0), 1
    return start, stop, step


def _clamp_bound(bound: Any) -> Dim:
    if is_tensor(bound) and not hasattr(bound, "__index__"):
        raise TracingError("a slice bound must be a number, not a tensor", fix="pick with `tessera.ops.take`")
    return dim_of(bound.__index__() if is_tensor(bound) else bound)


def _position(item: Any, size: Dim, axis: int) -> Dim:
    """One position, counted from the front; checked here where both are numbers, by the shape rule elsewhere."""
    at = dim_of(item)
    if at.value is None:
        return at
    if size.value is not None and not -size.value <= at.value < size.value:
        raise IndexRangeError(
            f"index {at} is out of range: `x.shape[{axis}] = {size}`",
            fix=lambda span: fixes_of("arguments").position_fix(span, at.value, size.value),
        )
    return at + size if at.value < 0 else at


def _positions(item: Any, x: Any) -> Any:
    """A tensor of integers from an entry of an index."""
    if isinstance(item, list):
        from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - lists of positions are rare

        item = place_like(x, Tensor.of(item, "i64"))
    if not is_tensor(item):
        raise IndexRangeError(f"an index cannot be {item!r} of type `{type(item).__name__}`")
    dtype = dtype_of(item)
    if dtype.is_bool:
        raise IndexRangeError(
            "a mask cannot be an index: how many elements it picks is not known while compiling",
            fix=lambda span: fixes_of("arguments").mask_fix(span),
        )
    if not dtype.is_integer:
        raise IndexRangeError(
            f"an index must be of integers, got {dtype}", fix=lambda span: fixes_of("arguments").positions_fix(span)
        )
    return item


def _picked_axis(items: Sequence[Any]) -> int:
    """The position of the picked axes in the result: that of the index tensors if adjacent, else the front."""
    plain = [item is None or isinstance(item, slice) for item in items]
    first, last = plain.index(False), len(plain) - 1 - plain[::-1].index(False)
    return first if not any(plain[first : last + 1]) else 0


def _pick(x: Any, positions: dict[int, Any], axis: int) -> Any:
    axes = sorted(positions)
    if len(axes) == 1 and axis == axes[0]:
        return take(x, positions[axis], axis)
    return apply("index_get", (x, *(positions[own] for own in axes)), {"axes": tuple(axes), "out_axis": axis})


def take(x: Any, positions: Any, axis: int = 0) -> Any:
    """The elements of `x` at these positions along `axis`; negative positions count from the end.

    >>> ts.ops.take(ts.array([10.0, 20.0, 30.0]), ts.array([2, 0]))
    Tensor([2] f32, [30, 10])
    """
    dtype_of(x)
    return apply("take", (x, _positions(positions, x)), {"axis": axis_of("take", axis, rank_of(x))})


def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Any:
    """`x` at positions that differ by row: the result has the shape of `indices`."""
    dtype_of(x)
    return apply("take_along_axis", (x, _positions(indices, x)), {"axis": axis_of("take_along_axis", axis, rank_of(x))})


def gather(x: Any, indices: Any) -> Any:
    """The parts of `x` at points: the last axis of `indices` holds a position for each leading axis of `x`."""
    dtype_of(x)
    return apply("gather", (x, _positions(indices, x)))


def embedding(table: Any, indices: Any) -> Any:
    """Rows of `table` by number."""
    dtype_of(table)
    return apply("embedding", (table, _positions(indices, table)))


def one_hot(indices: Any, depth: Any, dtype: Any = f32) -> Any:
    """A last axis of `depth` with 1 at each index and 0 elsewhere."""
    return apply("one_hot", (_positions(indices, None),), {"depth": (dim_of(depth),), "dtype": parse_dtype(dtype)})


def scatter(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """`x` with `updates` in place of what is at `indices` along `axis`; of equal indices the last one is kept."""
    return _scatter("scatter", x, indices, updates, axis)


def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0, *, ordered: bool = True) -> Any:
    """`x` with `updates` added at `indices` along `axis`, in order; `ordered=False` allows any order, and any bits."""
    if check_bool("scatter_add", "ordered", ordered):
        return _scatter("scatter_add", x, indices, updates, axis)
    attributes = {"ordered": False}
    from tessera.frontend.scopes import active_trace, settle_nondeterminism  # noqa: PLC0415 - few calls need it

    if active_trace() is None:  # a trace does so itself
        settle_nondeterminism(REGISTRY["scatter_add"], attributes, user_span())
    return _scatter("scatter_add", x, indices, updates, axis, **attributes)


def _scatter(op: str, x: Any, indices: Any, updates: Any, axis: int, **more: Any) -> Any:
    x, updates = promote_operands(op, (x, updates))
    return apply(op, (x, _positions(indices, x), updates), {"axis": axis_of(op, axis, rank_of(x)), **more})


def sort(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """`x` in order along `axis`; NaN comes last.

    >>> ts.ops.sort(ts.array([3.0, 1.0, 2.0]))
    Tensor([3] f32, [1, 2, 3])
    """
    return apply("sort", (x,), {"axis": axis_of("sort", axis, rank_of(x)), "descending": descending})


def argsort(x: Any, axis: int = -1, *, descending: bool = False) -> Any:
    """Where the elements of `sort` come from; equal ones keep their order."""
    return apply("argsort", (x,), {"axis": axis_of("argsort", axis, rank_of(x)), "descending": descending})


def topk(x: Any, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Any, Any]:
    """The `k` largest (or smallest) along `axis`, in order, and where they are; of equal ones the first."""
    return apply("topk", (x,), {"k": k, "axis": axis_of("topk", axis, rank_of(x)), "largest": largest})


def full(shape: Any, value: Any, dtype: Any = None) -> Any:
    """A tensor of one value.

    >>> ts.full((2,), 7.0)
    Tensor([2] f32, [7, 7])
    """
    return _full(shape, value, dtype)


def _full(shape: Any, value: Any, dtype: Any, like: Any = None) -> Any:
    """A tensor of one value, on the device of another."""
    if not isinstance(value, bool | int | float):
        check_number("full", "value", value)  # a scalar of NumPy is one too
    chosen = scalar_dtype(value) if dtype is None else parse_dtype(dtype)
    if not chosen.is_float and not math.isfinite(value):
        raise ArgumentError(f"`full` takes `value` as a number that {chosen} holds, got {value}")
    filled = float(value) if chosen.is_float else int(bool(value)) if chosen.is_bool else int(value)
    attributes = {"shape": dims_of(shape), "value": filled, "dtype": chosen}
    kind = device_class()
    if kind is None or not isinstance(like, kind) or dispatch.active() is not None:
        return apply("full", (), attributes)
    return dispatch.apply_at(like.device, "full", (), attributes)


def zeros(shape: Any, dtype: Any = f32) -> Any:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: Any = f32) -> Any:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def zeros_like(x: Any) -> Any:
    """Zeros in the shape and dtype of `x`."""
    dtype = dtype_of(x)
    return _full(tuple(shape_dims(x)), 0, dtype, x)


def ones_like(x: Any) -> Any:
    """Ones in the shape and dtype of `x`."""
    dtype = dtype_of(x)
    return _full(tuple(shape_dims(x)), 1, dtype, x)


def full_like(x: Any, value: Any) -> Any:
    """One value in the shape and dtype of `x`."""
    dtype = dtype_of(x)
    return _full(tuple(shape_dims(x)), value, dtype, x)


def iota(shape: Any, axis: int = 0, dtype: Any = i64) -> Any:
    """The position along `axis` of each element."""
    return apply("iota", (), {"shape": dims_of(shape), "axis": axis, "dtype": parse_dtype(dtype)})


def arange(start: Any, stop: Any = None, step: int = 1, dtype: Any = i64) -> Any:
    """Integers from `start` up to and without `stop`, as `range`; a stop may be a dynamic size.

    There are none where `stop` is not beyond `start`, be they numbers or dynamic dims.

    >>> ts.arange(2, 8, 3)
    Tensor([2] i64, [2, 5])
    """
    first, last = (0, start) if stop is None else (start, stop)
    for name, value in (("start", first), ("stop", last), ("step", step)):
        if isinstance(value, float):
            raise ShapeError(f"`arange` takes integers, got `{name}` of {value}", fix="scale the result instead")
    low, high, step = dim_of(first), dim_of(last), check_int("arange", "step", step)
    if step == 0:
        raise ShapeError("`arange` cannot step by 0")
    counted = iota((slice_extent(low, high, step),), 0, dtype)
    scaled = counted if step == 1 else elementwise.mul(counted, step)
    start_value = first if isinstance(first, int | Size) else low.value
    return scaled if low.value == 0 else elementwise.add(scaled, start_value)


def eye(rows: Any, columns: Any = None, dtype: Any = f32, *, offset: int = 0) -> Any:
    """Ones on a diagonal, zeros elsewhere."""
    shape = dims_of((rows, rows if columns is None else columns))
    return apply("eye", (), {"shape": shape, "dtype": parse_dtype(dtype), "offset": offset})


def linspace(start: float, stop: float, num: int, dtype: Any = f32, *, endpoint: bool = True) -> Any:
    """Evenly spaced numbers from `start` to `stop`."""
    ends = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    return apply("linspace", (), {**ends, "dtype": parse_dtype(dtype)})


def tril(x: Any, offset: int = 0) -> Any:
    """`x` with zeros above its diagonal, moved up by `offset`."""
    return _triangle(x, offset, lower=True)


def triu(x: Any, offset: int = 0) -> Any:
    """`x` with zeros below its diagonal, moved up by `offset`."""
    return _triangle(x, offset, lower=False)


def _triangle(x: Any, offset: int, *, lower: bool) -> Any:
    op = "tril" if lower else "triu"
    if rank_of(x) < 2:
        raise ShapeError(f"`{op}` needs a matrix, got {rank_of(x)} dims")
    return apply(op, (x,), {"offset": offset})
