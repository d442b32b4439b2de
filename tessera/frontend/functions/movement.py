"""Functions that move elements and compute nothing: reshape, transpose, slice, join, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import AxisError, ShapeError
from tessera.frontend.arguments import check_int, check_number
from tessera.frontend.fixes import fixes_of
from tessera.frontend.functions.operands import (
    axes_of,
    axis_of,
    dims_of,
    dtype_of,
    promote_operands,
    rank_of,
    shape_dims,
)
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import dim_of
from tessera.ir.base.dispatch import apply
from tessera.types.dim import Dim, product
from tessera.types.shape import resolve_reshape


class _Rules:
    """A shape rule asked before its op is recorded: it fails at the user's line."""

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        return left

    def fail(self, message: str, *, help: str = "") -> Exception:
        return ShapeError(message, fix=help or None)


def reshape(x: Any, shape: Any) -> Any:
    """The same elements, in row-major order, in another shape; one size may be -1 and is worked out.

    >>> ts.ops.reshape(ts.array([1.0, 2.0, 3.0, 4.0]), (2, -1))
    Tensor([2, 2] f32, [[1, 2],
                        [3, 4]])
    """
    dtype_of(x)
    dims = resolve_reshape(_Rules(), "reshape", product(shape_dims(x)), dims_of(shape))
    if dims == shape_dims(x):
        return x
    try:
        return apply("reshape", (x,), {"shape": dims})
    except ShapeError as error:
        size, sizes = product(shape_dims(x)).value, [dim.value for dim in dims]
        raise error.with_fix(lambda span: fixes_of("arguments").reshape_fix(span, size, sizes)) from None


def flatten(x: Any) -> Any:
    """All elements in one row."""
    return reshape(x, (-1,))


def transpose(x: Any, axes: Any = None) -> Any:
    """The axes in another order: axis `i` of the result is axis `axes[i]` of `x`; by default reversed.

    >>> ts.ops.transpose(ts.array([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([2, 2] f32, [[1, 3],
                        [2, 4]])
    """
    rank = rank_of(x)
    order = (
        tuple(reversed(range(rank)))
        if axes is None
        else tuple(axis_of("transpose", axis, rank) for axis in as_tuple(axes))
    )
    if sorted(order) != list(range(rank)):
        raise AxisError(f"`transpose` needs each of {rank} axes once, got {order}")
    return x if order == tuple(range(rank)) else apply("transpose", (x,), {"axes": order})


permute = transpose


def swapaxes(x: Any, first: int, second: int) -> Any:
    """`x` with two axes exchanged."""
    rank = rank_of(x)
    order = list(range(rank))
    a, b = axis_of("swapaxes", first, rank), axis_of("swapaxes", second, rank)
    order[a], order[b] = order[b], order[a]
    return transpose(x, order)


def moveaxis(x: Any, source: int, destination: int) -> Any:
    """`x` with one axis moved to another position."""
    rank = rank_of(x)
    order = list(range(rank))
    axis = order.pop(axis_of("moveaxis", source, rank))
    order.insert(axis_of("moveaxis", destination, rank), axis)
    return transpose(x, order)


def broadcast_to(x: Any, shape: Any) -> Any:
    """`x` stretched to a shape: trailing dims aligned, dims of 1 repeated; -1 keeps a dim of `x`."""
    dtype_of(x)
    own, dims = shape_dims(x), list(dims_of(shape))
    for at, dim in enumerate(dims):
        if dim.value == -1:
            axis = at - len(dims) + len(own)
            if axis < 0:
                raise ShapeError(
                    f"`broadcast_to` cannot keep dim {at} of {len(dims)}: `x` has {len(own)} dims, aligned at the end",
                    fix="write the size of a new dim as a number",
                )
            dims[at] = own[axis]
    dims = tuple(dims)
    return x if dims == shape_dims(x) else apply("broadcast_to", (x,), {"shape": dims})


expand = broadcast_to


def expand_dims(x: Any, axis: Any) -> Any:
    """`x` with new axes of size 1 at these positions of the result."""
    dtype_of(x)
    count = len(as_tuple(axis))
    return apply("expand_dims", (x,), {"axes": axes_of("expand_dims", axis, rank_of(x) + count)})


unsqueeze = expand_dims


def squeeze(x: Any, axis: Any = None) -> Any:
    """`x` without axes of size 1: those named, or all that are 1 for certain."""
    dtype_of(x)
    dims = shape_dims(x)
    if axis is None:
        axes = tuple(at for at, dim in enumerate(dims) if dim.value == 1)
    else:
        axes = axes_of("squeeze", axis, len(dims))
    return apply("squeeze", (x,), {"axes": axes}) if axes else x


def flip(x: Any, axis: Any = None) -> Any:
    """`x` with its elements in reverse order along `axis`."""
    return apply("flip", (x,), {"axes": axes_of("flip", axis, rank_of(x))})


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """`x` moved along `axis`, what falls off one end comes back at the other; over all elements by default."""
    dtype_of(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, 0), x.shape)
    rank = rank_of(x)
    listed = as_tuple(axis)
    shifts = as_tuple(shift) if is_sequence(shift) else (shift,) * len(listed)
    if len(shifts) != len(listed):
        raise AxisError(f"`roll` needs one shift for each axis, got {len(shifts)} shifts and {len(listed)} axes")
    numbers = [check_int("roll", "shift", by) for by in shifts]
    pairs = sorted((axis_of("roll", at, rank), by) for at, by in zip(listed, numbers, strict=True))
    return apply("roll", (x,), {"shifts": tuple(by for _, by in pairs), "axes": tuple(at for at, _ in pairs)})


def tile(x: Any, reps: Any) -> Any:
    """`x` laid side by side `reps` times along each axis."""
    dtype_of(x)
    counts = tuple(check_int("tile", "reps", count) for count in as_tuple(reps))
    rank = max(rank_of(x), len(counts))
    x = expand_dims(x, tuple(range(rank - rank_of(x)))) if rank > rank_of(x) else x
    return apply("tile", (x,), {"reps": (1,) * (rank - len(counts)) + counts})


def repeat(x: Any, repeats: int, axis: int | None = None) -> Any:
    """`x` with each element repeated along `axis`; over all elements by default."""
    dtype_of(x)
    if axis is None:
        return repeat(reshape(x, (-1,)), repeats, 0)
    return apply("repeat", (x,), {"repeats": repeats, "axis": axis_of("repeat", axis, rank_of(x))})


def concat(tensors: Sequence[Any], axis: int = 0) -> Any:
    """Tensors joined end to end along `axis`; their other dims are equal.

    >>> ts.ops.concat([ts.array([1.0]), ts.array([2.0, 3.0])])
    Tensor([3] f32, [1, 2, 3])
    """
    listed = promote_operands("concat", _as_list("concat", tensors))
    return apply("concat", listed, {"axis": axis_of("concat", axis, rank_of(listed[0]))})


concatenate = concat


def stack(tensors: Sequence[Any], axis: int = 0) -> Any:
    """Tensors of one shape laid along a new axis."""
    listed = promote_operands("stack", _as_list("stack", tensors))
    return apply("stack", listed, {"axis": axis_of("stack", axis, rank_of(listed[0]) + 1)})


def _as_list(op: str, tensors: Any) -> list[Any]:
    if not is_sequence(tensors) or not tensors:
        got = repr(tensors) if is_sequence(tensors) else f"one value of type {type(tensors).__name__}"
        raise ShapeError(f"`{op}` takes a list of at least one tensor, got {got}", fix=f"write `{op}([a, b])`")
    return list(tensors)


def split(x: Any, parts: Any, axis: int = 0) -> tuple[Any, ...]:
    """`x` cut along `axis`: into that many equal parts, or into parts of the sizes given.

    >>> [part.shape for part in ts.ops.split(ts.ones((6, 2)), 3)]
    [(2, 2), (2, 2), (2, 2)]
    """
    at = axis_of("split", axis, rank_of(x))
    size = shape_dims(x)[at]
    if isinstance(parts, tuple | list):
        sizes = dims_of(parts)
    else:
        parts = check_int("split", "parts", parts)
        if parts < 1 or (size % parts).value not in (0, None):
            raise ShapeError(
                f"`split` cannot cut `x.shape[{at}] = {size}` into {parts} equal parts",
                fix=lambda span: fixes_of("arguments").parts_fix(span, size.value, parts),
            )
        sizes = (size // parts,) * parts
    try:
        return as_tuple(apply("split", (x,), {"sizes": sizes, "axis": at}))
    except ShapeError as error:
        given = [item.value for item in sizes]
        raise error.with_fix(lambda span: fixes_of("arguments").sizes_fix(span, size.value, given)) from None


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices of `x` along `axis`, which must be a number."""
    at = axis_of("unstack", axis, rank_of(x))
    count = shape_dims(x)[at].value
    if count is None:
        raise ShapeError(f"`unstack` needs a size that is a number, got `x.shape[{at}] = {shape_dims(x)[at]}`")
    return tuple(squeeze(part, at) for part in split(x, count, at)) if count else ()


def pad(x: Any, widths: Any, value: complex | bool = 0) -> Any:
    """`x` with `value` around it: `widths` is one number, or (before, after) for each axis.

    >>> ts.ops.pad(ts.array([1.0]), [(1, 2)])
    Tensor([4] f32, [0, 1, 0, 0])
    """
    rank = rank_of(x)
    pairs = [_pair(item) for item in widths] if is_sequence(widths) else [(widths, widths)] * rank
    if len(pairs) != rank:
        raise ShapeError(
            f"`pad` needs (before, after) for each of {rank} axes, got {len(pairs)}",
            fix=lambda span: fixes_of("arguments").widths_fix(span, pairs, rank),
        )
    low, high = tuple(dim_of(a) for a, _ in pairs), tuple(dim_of(b) for _, b in pairs)
    filled = int(value) if isinstance(value, bool) else check_number("pad", "value", value)
    return apply("pad", (x,), {"low": low, "high": high, "value": filled})


def _pair(item: Any) -> tuple[Any, Any]:
    listed = as_tuple(item) if is_sequence(item) else (item, item)
    if len(listed) != 2:
        raise ShapeError(f"`pad` takes (before, after) for each axis, got {item!r}")
    return listed[0], listed[1]
