"""`x[...]` as NumPy has it, and functions that pick and replace elements by tensors of indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, IndexRangeError, ShapeError, TracingError
from tessera.diagnostics.error import FixLike, user_span
from tessera.frontend.arguments import check_bool, check_int, describe_value
from tessera.frontend.concrete import copy_to_host, is_array, is_concrete, place_like
from tessera.frontend.fixes import fixes_of
from tessera.frontend.functions import movement
from tessera.frontend.functions.operands import (
    as_tensor,
    axis_of,
    dtype_of,
    is_tensor,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.pytree import is_sequence
from tessera.frontend.size import Size, dim_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i64, parse_dtype
from tessera.types.shape import is_at_least, is_refuted, normalize_slice, text

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
    return read(x, index, None)


def read(x: Any, index: Any, mode: str | None) -> Any:
    """`x[index]`, with a mode for what is out of bounds."""
    check_mode("x[...]", mode)
    if is_tensor(index) and is_concrete(index) and dtype_of(index).is_bool and rank_of(index) == 0:
        # A mask without axes picks all or nothing, along a new axis.
        return apply_slice(movement.expand_dims(x, 0), 1 if bool(index) else 0)
    x, items = expand_index(x, index)
    picked, positions = slice_axes(x, items)
    if not positions:
        return picked
    axes, out_axis = tuple(sorted(positions)), picked_axis(items)
    if len(axes) == 1 and out_axis == axes[0] and mode is None:
        return take(picked, positions[out_axis], out_axis)
    return index_get(picked, [positions[axis] for axis in axes], axes, out_axis, mode, "x[...]")


def apply_slice(x: Any, stop: int) -> Any:
    """The first elements of the first axis."""
    return read(x, slice(0, stop), None)


def index_get(x: Any, indices: Sequence[Any], axes: Sequence[int], out_axis: int, mode: str | None, by: str) -> Any:
    """Elements by indices along some axes; their dims stand at `out_axis` of the result."""
    where = {"axes": tuple(axes), "out_axis": out_axis, "by": by}
    return apply("index_get", (x, *indices), {**where, **_reading(x, axes, mode)})


def check_mode(op: str, mode: Any) -> None:
    """Raises `ArgumentError` (T0202) for a mode that there is not."""
    if not (mode is None or (isinstance(mode, str) and mode in ("clip", "drop", "error"))):
        raise ArgumentError(
            f'`{op}` takes `mode` as "clip", "drop" or "error", got {describe_value(mode)}',
            fix='write `mode="clip"`',
        )


def _reading(x: Any, axes: Sequence[int], mode: str | None) -> dict[str, Any]:
    """The attributes of a read: in the body of a loop or branch, which may not run, an axis may have no elements."""
    attributes: dict[str, Any] = {"mode": mode} if mode else {}
    if getattr(dispatch.tracing(), "parent", None) is not None:
        dims = shape_dims(x)
        if not all(is_at_least(dims[axis], 1) for axis in axes):
            attributes["may_be_empty"] = True
    return attributes


def joined_dims(indices: Sequence[Any]) -> tuple[Dim, ...]:
    """The shape that tensors of indices broadcast to; where they do not, the rule of the op that takes them says so."""
    shapes = [shape_dims(index) for index in indices]
    rank = max(len(shape) for shape in shapes)
    padded = [(Dim.constant(1),) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((dim for dim in dims if dim.value != 1), dims[0]) for dims in zip(*padded, strict=True))


def scalar_index(op: str, value: Any) -> Any:
    """An index as a scalar of integers, from a number, a size or a tensor."""
    if not is_tensor(value):
        return as_tensor(value, i64) if isinstance(value, Size) else as_tensor(check_int(op, "starts", value), i64)
    if rank_of(value) or not dtype_of(value).is_integer:
        raise ShapeError(f"`{op}` takes starts as integers, got {dtype_of(value)} of shape {list(value.shape)}")
    return value


def _is_tuple(index: Any) -> bool:
    return isinstance(index, tuple)


def expand_index(x: Any, index: Any) -> tuple[Any, list[Any]]:
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


def find_mask(x: Any, index: Any) -> tuple[Any, int, list[Any]] | None:
    """The one mask in an index whose values are not known, its first axis, and the index with all in its place.

    None where there is none, or where tensors of positions are beside it.
    """
    given = list(index) if _is_tuple(index) else [index]
    tensors = [at for at, item in enumerate(given) if is_sequence(item) or is_tensor(item)]
    if len(tensors) != 1 or not is_tensor(given[tensors[0]]):
        return None
    mask = given[tensors[0]]
    is_mask = not is_concrete(mask) and dtype_of(mask).is_bool and rank_of(mask) > 0
    if not is_mask or any(item is None for item in given):
        return None
    axes = [slice(None) for _ in range(rank_of(mask))]
    given[tensors[0] : tensors[0] + 1] = axes
    items = _expand_ellipsis(given, rank_of(x))
    axis = next(at for at, item in enumerate(items) if item is axes[0])
    for at, size in enumerate(shape_dims(mask), axis):
        own = shape_dims(x)[at]
        if own != size and (size.value == 1 or is_refuted(own, size)):
            raise _mask_error(shape_dims(mask), at, own, size)
    return mask, axis, items


def _mask_error(shape: Sequence[Any], axis: int, own: Dim, size: Any) -> IndexRangeError:
    return IndexRangeError(
        f"a mask of shape {text(shape)} does not fit: `x.shape[{axis}] = {own}` and its size there is {size}",
        fix="a mask has the sizes of the axes that it picks from",
    )


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
        raise _mask_error(shape, axis, own, size)
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


def slice_axes(x: Any, items: Sequence[Any]) -> tuple[Any, dict[int, Any]]:
    """What ints, slices and new axes make of `x`, and the tensors of positions by the axis they then pick from."""
    dropped: list[int] = []
    kept: list[tuple[str, Any]] = []
    axis = 0
    for item in items:
        if item is None:
            kept.append(("new", None))
            continue
        if _is_slice(item):
            kept.append(("axis", None))
        elif is_position(item):
            dropped.append(axis)
        else:
            kept.append(("pick", _positions(item, x)))
        axis += 1
    places = slices_of(x, [item for item in items if item is not None])
    if places != [(Dim.constant(0), dim, 1) for dim in shape_dims(x)]:
        start, stop, step = zip(*places, strict=True)
        x = apply("slice", (x,), {"start": start, "stop": stop, "step": step})
    x = movement.squeeze(x, tuple(dropped)) if dropped else x
    new = tuple(at for at, (kind, _) in enumerate(kept) if kind == "new")
    x = movement.expand_dims(x, new) if new else x
    return x, {at: positions for at, (kind, positions) in enumerate(kept) if kind == "pick"}


def slices_of(x: Any, items: Sequence[Any]) -> list[tuple[Dim, Dim, int]]:
    """What an index with one item for each axis takes of it, as start, stop and step; all for a tensor of positions."""
    found: list[tuple[Dim, Dim, int]] = []
    for axis, (item, size) in enumerate(zip(items, shape_dims(x), strict=True)):
        if _is_slice(item):
            found.append(_slice_of(item, size))
        elif is_position(item):
            at = _position(item, size, axis)
            found.append((at, at + 1, 1))
        else:
            found.append((Dim.constant(0), size, 1))
    return found


def is_position(item: Any) -> bool:
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
            fix=lambda span: fixes_of("assignments").mask_fix(span, item, x),
        )
    if not dtype.is_integer:
        raise IndexRangeError(
            f"an index must be of integers, got {dtype}", fix=lambda span: fixes_of("arguments").positions_fix(span)
        )
    return item


def picked_axis(items: Sequence[Any]) -> int:
    """The position of the picked axes in the result: that of the index tensors if adjacent, else the front."""
    plain = [item is None or isinstance(item, slice) for item in items]
    first, last = plain.index(False), len(plain) - 1 - plain[::-1].index(False)
    return first if not any(plain[first : last + 1]) else 0


def take(x: Any, positions: Any, axis: int = 0, *, mode: str | None = None) -> Any:
    """The elements of `x` at these positions along `axis`; negative positions count from the end.

    `mode` is what a position out of bounds reads: "clip" (the default) the nearest element, "drop" 0, and "error" ends
    the run with PositionError (T0710).

    >>> ts.ops.take(ts.array([10.0, 20.0, 30.0]), ts.array([2, 0]))
    Tensor([2] f32, [30, 10])
    """
    check_mode("take", mode)
    at = axis_of("take", axis, rank_of(x))
    return apply("take", (x, _positions(positions, x)), {"axis": at, **_reading(x, (at,), mode)})


def take_along_axis(x: Any, indices: Any, axis: int = -1, *, mode: str | None = None) -> Any:
    """`x` at positions that differ by row: the result has the shape of `indices`. `mode` is that of `take`."""
    check_mode("take_along_axis", mode)
    at = axis_of("take_along_axis", axis, rank_of(x))
    return apply("take_along_axis", (x, _positions(indices, x)), {"axis": at, **_reading(x, (at,), mode)})


def gather(x: Any, indices: Any, *, mode: str | None = None) -> Any:
    """The parts of `x` at points: the last axis of `indices` holds a position for each leading axis of `x`.

    `mode` is that of `take`.
    """
    check_mode("gather", mode)
    return apply("gather", (x, _positions(indices, x)), _reading(x, range(rank_of(x)), mode))


def embedding(table: Any, indices: Any, *, mode: str | None = None) -> Any:
    """Rows of `table` by number. `mode` is that of `take`: a number out of bounds reads the nearest row by default."""
    check_mode("embedding", mode)
    return apply("embedding", (table, _positions(indices, table)), _reading(table, range(rank_of(table)), mode))


def one_hot(indices: Any, depth: Any, dtype: Any = f32) -> Any:
    """A last axis of `depth` with 1 at each index and 0 elsewhere."""
    return apply("one_hot", (_positions(indices, None),), {"depth": (dim_of(depth),), "dtype": parse_dtype(dtype)})


def scatter(x: Any, indices: Any, updates: Any, axis: int = 0, *, mode: str | None = None) -> Any:
    """`x` with `updates` in place of what is at `indices` along `axis`; of equal indices the last one is kept.

    `mode` is what an index out of bounds does: "drop" (the default) writes nothing, "clip" writes to the nearest
    element, and "error" ends the run with PositionError (T0710). Negative indices count from the end.
    """
    return _scatter("scatter", x, indices, updates, axis, mode)


def scatter_add(
    x: Any, indices: Any, updates: Any, axis: int = 0, *, ordered: bool = True, mode: str | None = None
) -> Any:
    """`x` with `updates` added at `indices` along `axis`, in order; `ordered=False` allows any order, and any bits.

    `mode` is that of `scatter`.
    """
    if check_bool("scatter_add", "ordered", ordered):
        return _scatter("scatter_add", x, indices, updates, axis, mode)
    attributes = {"ordered": False}
    from tessera.frontend.scopes import active_trace, settle_nondeterminism  # noqa: PLC0415 - few calls need it

    if active_trace() is None:  # a trace does so itself
        settle_nondeterminism(REGISTRY["scatter_add"], attributes, user_span())
    return _scatter("scatter_add", x, indices, updates, axis, mode, **attributes)


def _scatter(op: str, x: Any, indices: Any, updates: Any, axis: int, mode: str | None, **more: Any) -> Any:
    check_mode(op, mode)
    x, updates = promote_operands(op, (x, updates))
    attributes = {"axis": axis_of(op, axis, rank_of(x)), "mode": mode or "", **more}
    return apply(op, (x, _positions(indices, x), updates), attributes)


__all__ = ["embedding", "gather", "getitem", "one_hot", "scatter", "scatter_add", "take", "take_along_axis"]
