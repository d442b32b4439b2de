"""`x[...]` as NumPy has it, and functions that pick and replace elements by tensors of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import IndexRangeError, ShapeError, TracingError
from tessera.diagnostics.error import FixLike, user_span
from tessera.frontend.arguments import check_bool
from tessera.frontend.concrete import copy_to_host, is_array, is_concrete, place_like
from tessera.frontend.fixes import fixes_of
from tessera.frontend.functions import movement
from tessera.frontend.functions.operands import (
    axis_of,
    dtype_of,
    is_tensor,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.pytree import is_sequence
from tessera.frontend.size import Size, dim_of
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.dtype import f32, parse_dtype
from tessera.types.shape import normalize_slice

_ALL = slice(None)


def getitem(x: Any, index: Any) -> Any:
    """`x[index]`: ints, slices, None, `...`, tensors of integers and constant masks, with NumPy's meaning.

    An int out of range is an error where the size is a number, and a guard at the call where it is dynamic. A tensor of
    integers picks along its axis; several of them pick together, broadcast to one shape. A mask of bools must have
    values while tracing, as an array of NumPy has: how many elements it picks is part of the program.

    >>> ts.array([[1, 2], [3, 4]])[:, ::-1]
    Tensor([2, 2] i64, [[2, 1],
                        [4, 3]])
    """
    x, items = _expand_index(x, index)
    picked, positions = _slice_axes(x, items)
    return _pick(picked, positions, _picked_axis(items)) if positions else picked


def _is_tuple(index: Any) -> bool:
    return isinstance(index, tuple)


def _expand_index(x: Any, index: Any) -> tuple[Any, list[Any]]:
    """The index with one item for each axis, and None for each new one; and `x`, its masked axes as long as masks."""
    given = [_mask_of(item) for item in (index if _is_tuple(index) else (index,))]
    items: list[Any] = []
    for item in _expand_ellipsis(given, rank_of(x)):
        if not _is_mask(item):
            items.append(item)
            continue
        for size in item.shape:
            axis = sum(1 for other in items if other is not None)
            x = _match_mask(x, axis, size, item.shape)
            items.append(_ALL)
        items[len(items) - item.ndim :] = [place_like(x, _tensor_of(part)) for part in item.nonzero()]
    return x, items


def _mask_of(item: Any) -> Any:
    """A mask with values as an array of NumPy; any other item as it is."""
    is_mask = _has_bools(item) if is_sequence(item) else is_concrete(item) and dtype_of(item).is_bool
    if not is_mask:
        return item
    import numpy as np  # noqa: PLC0415 - for masks alone

    mask = np.asarray(copy_to_host((item,))[0], np.bool_)
    return mask if mask.ndim else bool(mask)


def _has_bools(items: Any) -> bool:
    """Whether nested lists hold bools, and nothing else."""
    return isinstance(items, bool) or (is_sequence(items) and len(items) > 0 and all(_has_bools(one) for one in items))


def _is_mask(item: Any) -> bool:
    return is_array(item) and item.dtype.kind == "b"


def _match_mask(x: Any, axis: int, size: int, shape: Sequence[int]) -> Any:
    """`x`, whose axis is as long as that of a mask: checked here, or guarded where it is dynamic."""
    own = shape_dims(x)[axis]
    if own.value is None:
        return movement.split(x, (size,), axis)[0]
    if own.value != size:
        raise IndexRangeError(
            f"a mask of shape {list(shape)} does not fit: `x.shape[{axis}] = {own}` and its size there is {size}",
            fix="a mask has the sizes of the axes that it picks from",
        )
    return x


def _expand_ellipsis(items: Sequence[Any], rank: int) -> list[Any]:
    """The index with one item for each axis, a mask for as many as it has, and None for each new one."""
    used = sum(item.ndim if _is_mask(item) else 1 for item in items if item is not None and item is not Ellipsis)
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexRangeError("an index can have one `...`, got more", fix=_index_fix(rank))
    if used > rank:
        raise IndexRangeError(
            f"an index of {used} positions is too long for a tensor of {rank} dims", fix=_index_fix(rank)
        )
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
        message = "a slice bound must be a number, not a tensor: how long the slice is must be known"
        raise TracingError(message, fix=lambda span: fixes_of("statements").index_demand(span).fix)
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


def _tensor_of(numbers: Any) -> Any:
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - lists of positions are rare

    return Tensor.of(numbers, "i64")


def _positions(item: Any, x: Any) -> Any:
    """A tensor of integers from an entry of an index."""
    if isinstance(item, list):
        item = place_like(x, _tensor_of(item))
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
