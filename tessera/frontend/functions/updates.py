"""`x.at[...]`: new tensors with some elements replaced or combined; slices at positions that a tensor holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import DTypeError, ShapeError
from tessera.frontend.arguments import explain_wrong_calls
from tessera.frontend.functions import creation, elementwise, indexing, movement
from tessera.frontend.functions.operands import cast, dtype_of, is_tensor, promote_operands, rank_of, shape_dims
from tessera.frontend.pytree import as_tuple
from tessera.frontend.size import dim_of, size_of
from tessera.ir.base.dispatch import apply
from tessera.types.dim import Dim
from tessera.types.dtype import i4, i8, i64, u8
from tessera.types.shape import is_at_least, is_refuted, text


class At:
    """`x.at`: indexed like `x` itself, it gives what replaces elements of `x`."""

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> IndexedTensor:
        return IndexedTensor(self._x, index)


class IndexedTensor:
    """Some elements of a tensor: `x.at[index]`, for every index that `x[index]` takes.

    Each method gives a new tensor of the shape and dtype of `x`; values broadcast to the shape of `x[index]`. What
    several indices name is updated by each of them, in their order; narrow floats are combined in f32 and rounded once.
    While tracing, a mask of bools takes values without an axis for what it picks: nobody knows how many there are.
    `mode` is what an out-of-bounds index of a tensor does: "drop" (the default) updates nothing, "clip" updates the
    nearest element, and "error" ends the run with PositionError (T0710).

    >>> ts.array([1, 2, 3]).at[[0, 0, 2]].add(10)
    Tensor([3] i64, [21, 2, 13])
    """

    __slots__ = ("_index", "_x")

    def __init__(self, x: Any, index: Any) -> None:
        self._x, self._index = x, index

    @explain_wrong_calls
    def set(self, values: Any, *, mode: str | None = None) -> Any:
        """`x` with these elements replaced; of equal indices the last one counts."""
        return _update(self._x, self._index, values, "set", mode)

    @explain_wrong_calls
    def add(self, values: Any, *, mode: str | None = None) -> Any:
        """`x` with values added to these elements."""
        return _update(self._x, self._index, values, "add", mode)

    @explain_wrong_calls
    def mul(self, values: Any, *, mode: str | None = None) -> Any:
        """`x` with these elements multiplied by values."""
        return _update(self._x, self._index, values, "mul", mode)

    @explain_wrong_calls
    def max(self, values: Any, *, mode: str | None = None) -> Any:
        """`x` with the larger of these elements and values; NaN propagates."""
        return _update(self._x, self._index, values, "max", mode)

    @explain_wrong_calls
    def min(self, values: Any, *, mode: str | None = None) -> Any:
        """`x` with the smaller of these elements and values; NaN propagates."""
        return _update(self._x, self._index, values, "min", mode)

    @explain_wrong_calls
    def get(self, *, mode: str | None = None) -> Any:
        """`x[index]`, with a `mode` for indices out of bounds: "clip" (the default), "drop" (reads 0) or "error"."""
        return indexing.read(self._x, self._index, mode)


_COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}
_OF_BOOLS = {"add": "max", "mul": "min"}
"""What sums and products of bools are: or, and."""


def _update(x: Any, index: Any, values: Any, reduce: str, mode: str | None) -> Any:
    indexing.check_mode("at", mode)
    masked = indexing.find_mask(x, index)
    if masked is not None:
        mask, axis, all_axes = masked
        _check_same_for_all(values, all_axes, axis + rank_of(mask))
        made = _update(x, tuple(all_axes), values, reduce, mode)
        behind = range(rank_of(mask), rank_of(x) - axis)
        return elementwise.where(movement.expand_dims(mask, tuple(behind)) if behind else mask, made, x)
    dtype = dtype_of(x)
    values = _values_for("at", x, values)
    via = i8 if dtype is i4 else u8 if dtype.is_bool else None
    if via is not None and reduce != "set":
        made = _update(
            cast(x, via), index, cast(values, via), _OF_BOOLS.get(reduce, reduce) if dtype.is_bool else reduce, mode
        )
        return cast(made, dtype)
    x, items = indexing.expand_index(x, index)
    picked, positions = indexing.slice_axes(x, items)
    if positions:
        made = _put(picked, positions, indexing.picked_axis(items), values, reduce, mode)
    else:
        values = _broadcast(values, shape_dims(picked))
        made = values if reduce == "set" else getattr(elementwise, _COMBINE[reduce])(picked, values)
    return made if picked is x else _place(x, items, made)


def _check_same_for_all(values: Any, items: Sequence[Any], end: int) -> None:
    """Raises unless values have only axes that are behind those of a mask."""
    kept = sum(isinstance(item, slice) for item in items[end:])
    if is_tensor(values) and rank_of(values) > kept:
        raise ShapeError(
            f"the values, {text(shape_dims(values))}, have an axis for what a mask picks, and how many elements that "
            "are is not known while compiling",
            notes=(f"rule: values for a mask are the same for all that it picks, with {kept} axes at most here",),
            fix="choose elementwise with `tessera.ops.where(mask, values, x)`, for values of the shape of `x`",
        )


def _values_for(op: str, x: Any, values: Any) -> Any:
    """Values in the dtype of `x`, which holds them."""
    own, made = promote_operands(op, (x, values))
    if dtype_of(own) is not dtype_of(x):
        given = dtype_of(values) if is_tensor(values) else repr(values)
        raise DTypeError(
            f"`{op}` keeps the dtype of `x`, {dtype_of(x)}, which does not hold {given}",
            fix=f'cast the values, as in `values.cast("{dtype_of(x)}")`, or `x` to a wider dtype',
        )
    return made


def _broadcast(values: Any, picked: Sequence[Dim]) -> Any:
    """Values in the shape of the elements that they are for; raises ShapeError (T0101) where they cannot fit."""
    own = shape_dims(values)
    pairs = zip(reversed(own), reversed(picked), strict=False)
    if len(own) > len(picked) or any(one.value != 1 and is_refuted(one, other) for one, other in pairs):
        given, wanted = text(own), text(picked)
        raise ShapeError(
            f"the values, {given}, do not fit what `at[...]` selects, {wanted}",
            fix=f"give values that broadcast to {wanted}" if picked else "give one value, without axes",
        )
    return movement.broadcast_to(values, tuple(picked))


def _put(x: Any, positions: dict[int, Any], out_axis: int, values: Any, reduce: str, mode: str | None) -> Any:
    axes = sorted(positions)
    indices = [positions[axis] for axis in axes]
    joined = indexing.joined_dims(indices)
    kept = [dim for axis, dim in enumerate(shape_dims(x)) if axis not in axes]
    updates = _broadcast(values, (*kept[:out_axis], *joined, *kept[out_axis:]))
    where = {"axes": tuple(axes), "out_axis": out_axis}
    return apply("index_put", (x, updates, *indices), {**where, "reduce": reduce, "mode": mode or "", "by": "at"})


def _place(x: Any, items: Sequence[Any], made: Any) -> Any:
    """`x` with a slice of it replaced: what ints, slices and new axes had made of it."""
    taken = [item for item in items if item is not None]
    places = indexing.slices_of(x, taken)
    new: list[int] = []
    rank = 0
    for item in items:
        if item is None:
            new.append(rank)
        rank += item is None or not indexing.is_position(item)
    made = movement.squeeze(made, tuple(new)) if new else made
    dropped = tuple(axis for axis, item in enumerate(taken) if indexing.is_position(item))
    made = movement.expand_dims(made, dropped) if dropped else made
    dims, mask = shape_dims(x), None
    for axis, (start, stop, step) in enumerate(places):
        if (start, stop, step) == (Dim.constant(0), dims[axis], 1):
            continue
        distance = elementwise.sub(_along(axis, len(dims), dims[axis]), size_of(start))
        number = elementwise.floordiv(distance, step) if step != 1 else distance
        own = elementwise.logical_and(elementwise.ge(number, 0), elementwise.lt(number, made.shape[axis]))
        if abs(step) > 1:
            own = elementwise.logical_and(own, elementwise.eq(elementwise.mod(distance, step), 0))
        made = _fill(made, axis, (start, step), dims[axis], number)
        mask = own if mask is None else elementwise.logical_and(mask, own)
    return made if mask is None else elementwise.where(mask, made, x)


def _along(axis: int, rank: int, size: Dim) -> Any:
    """The indices of an axis, to broadcast against a tensor of that rank."""
    return movement.reshape(creation.iota((size_of(size),)), [size_of(size) if at == axis else 1 for at in range(rank)])


def _fill(made: Any, axis: int, place: tuple[Dim, int], size: Dim, number: Any) -> Any:
    """A slice stretched to its whole axis: each element where it belongs, anything elsewhere."""
    start, count, extent = place[0].value, shape_dims(made)[axis].value, size.value
    if place[1] != 1 or start is None or count is None or extent is None:
        # An index below 0 would count from the end; what it reads is not taken.
        index = movement.reshape(elementwise.maximum(number, 0), (size_of(size),))
        return indexing.index_get(made, [index], (axis,), axis, "drop", "at")
    return movement.pad(
        made, [(start, extent - start - count) if at == axis else (0, 0) for at in range(rank_of(made))]
    )


def dynamic_slice(x: Any, starts: Any, sizes: Any) -> Any:
    """The slice of `x` that begins at `starts`, which may be tensors, and has these sizes.

    `starts` is one scalar for each axis, or one tensor with them. A negative start counts from the end; one that leaves
    too little behind it is moved back until the slice fits, as in JAX.

    >>> ts.ops.dynamic_slice(ts.arange(6), (ts.array(2),), (3,))
    Tensor([3] i64, [2, 3, 4])
    """
    dims = shape_dims(x) if rank_of(x) else ()
    asked = tuple(dim_of(size) for size in as_tuple(sizes))
    begins = _starts("dynamic_slice", x, starts, asked)
    cut = [axis for axis, (own, size) in enumerate(zip(dims, asked, strict=True)) if own != size]
    if not cut:
        return x
    return apply(
        "slice_legal",
        (x, *(begins[axis] for axis in cut)),
        {"axes": tuple(cut), "lengths": tuple(asked[axis] for axis in cut)},
    )


def dynamic_update_slice(x: Any, update: Any, starts: Any) -> Any:
    """`x` with the slice that begins at `starts` replaced by `update`; starts as those of `dynamic_slice`.

    >>> ts.ops.dynamic_update_slice(ts.zeros((4,)), ts.ones((2,)), (ts.array(1),))
    Tensor([4] f32, [0, 1, 1, 0])
    """
    rank = rank_of(x)
    update = _values_for("dynamic_update_slice", x, update)
    if rank_of(update) != rank:
        raise ShapeError(
            f"`dynamic_update_slice` of {rank} dims takes an update of as many, got {rank_of(update)}",
            fix="add axes of size 1, as in `update[None]`",
        )
    dims, asked = shape_dims(x), shape_dims(update)
    begins = _starts("dynamic_update_slice", x, starts, asked)
    cut = [axis for axis, (own, size) in enumerate(zip(dims, asked, strict=True)) if own != size]
    if not cut:
        return update
    return apply("slice_write", (x, update, *(begins[axis] for axis in cut)), {"axes": tuple(cut)})


def _starts(op: str, x: Any, starts: Any, sizes: Sequence[Dim]) -> list[Any]:
    """The first index along each axis, as scalars of i64 in bounds."""
    dims = shape_dims(x)
    given = list(as_tuple(starts))
    if is_tensor(starts) and rank_of(starts) == 1 and dims:
        given = [movement.squeeze(part, 0) for part in movement.split(starts, (1,) * len(dims))]
    if len(given) != len(dims) or len(sizes) != len(dims):
        raise ShapeError(
            f"`{op}` takes a start and a size for each of {len(dims)} axes, got {len(given)} and {len(sizes)}",
            fix="give 0 and `x.shape[axis]` for an axis that is not cut",
        )
    found: list[Any] = []
    for axis, (start, own, size) in enumerate(zip(given, dims, sizes, strict=True)):
        if (size.value or 0) < 0:
            raise ShapeError(f"`{op}` got a size below zero: {size} for axis {axis}", fix="sizes are 0 or more")
        if not is_at_least(own - size, 0):
            _check_fits(op, x, axis, size)
        at = cast(indexing.scalar_index(op, start), i64)
        wrapped = elementwise.where(elementwise.lt(at, 0), elementwise.add(at, size_of(own)), at)
        found.append(elementwise.clamp(wrapped, 0, size_of(own - size)))
    return found


def _check_fits(op: str, x: Any, axis: int, size: Dim) -> None:
    """Raises, or guards, unless an axis has as many elements as are asked for."""
    own = shape_dims(x)[axis]
    if (own - size).value is not None:
        raise ShapeError(
            f"`{op}` cannot cut {size} elements from `x.shape[{axis}] = {own}`", fix="ask for as many as there are"
        )
    start, stop, ones = [Dim.constant(0)] * rank_of(x), list(shape_dims(x)), (1,) * rank_of(x)
    stop[axis] = size
    apply("slice", (x,), {"start": tuple(start), "stop": tuple(stop), "step": ones})


__all__ = ["dynamic_slice", "dynamic_update_slice"]
