"""Functions that multiply and sum: matrix products, einsum, convolutions, pooling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, DTypeError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_sequence, check_string
from tessera.frontend.functions.elementwise import abs as magnitude
from tessera.frontend.functions.elementwise import where
from tessera.frontend.functions.movement import moveaxis, reshape
from tessera.frontend.functions.operands import (
    as_tensor,
    axis_of,
    cast,
    check_tensors,
    dtype_of,
    rank_of,
    shape_dims,
)
from tessera.frontend.functions.reduction import sum as total_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import size_of
from tessera.ir.base.dispatch import apply
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import FORMATS, DType, bool_, f32, i32, i64, parse_dtype
from tessera.types.frozen import frozen
from tessera.types.promotion import promote_all
from tessera.types.shape import is_refuted, text

# Functions that narrow explicitly: rounding to a format, quantizing by scales, blocks.


def _format_name(format: Any) -> str:
    name = str(format)
    if name not in FORMATS:
        raise DTypeError(f"`{format}` is no format to round to", fix=f"the formats are {', '.join(FORMATS)}")
    return name


def round_to(
    x: Any,
    format: Any,
    *,
    rounding: str = "nearest_even",
    saturation: str = "",
    denormals: str = "keep",
    key: Any = None,
) -> Any:
    """`x` as numbers of a format, in the dtype that stores it: a cast that says how it rounds.

    `format` is a dtype, `tf32` or `"f4e2m1"`; `rounding` nearest_even, toward_zero or stochastic, which takes a `key`;
    `saturation` saturate, or wrap for integers; `denormals` keep or flush.

    >>> ts.ops.round_to(ts.array([1.999, 500.0]), ts.f8e4m3, rounding="toward_zero", saturation="saturate")
    Tensor([2] f8e4m3, [1.875, 448])
    """
    limits = {"format": _format_name(format), "saturation": saturation, "denormals": denormals}
    value = as_tensor(x, f32)
    if rounding != "stochastic":
        return apply("round_to", (value,), {**limits, "rounding": rounding})
    if key is None:
        raise DTypeError("stochastic rounding needs a `key` to draw from", fix="make one with `random.key(seed)`")
    bits = apply("random_bits", (key,), {"shape": shape_dims(value)})
    return round_stochastic(value, bits, format, saturation=saturation, denormals=denormals)


def round_stochastic(x: Any, bits: Any, format: Any, *, saturation: str = "", denormals: str = "keep") -> Any:
    """As `round_to`, up or down by 32 random bits of u32 for each element."""
    limits = {"format": _format_name(format), "saturation": saturation, "denormals": denormals}
    return apply("round_stochastic", (x, bits), limits)


def round_blocks(x: Any, format: str = "nvfp4", axis: int = -1, *, whole: bool = True) -> Any:
    """`x` as blocks of narrow numbers along `axis`, each block with its scale, would keep it.

    With `whole` there is one more scale, in f32, that brings the largest number of all to the largest there is.

    >>> ts.ops.round_blocks(ts.arange(16).cast(ts.f32))[1:4]
    Tensor([3] f32, [1.25, 2.5, 2.5])
    """
    check_tensors(x)
    own_axis = axis_of("round_blocks", axis, rank_of(x))
    return apply("round_blocks", (x,), {"format": str(format), "axis": own_axis, "whole": whole})


def quantize(
    x: Any,
    scale: Any,
    dtype: Any,
    *,
    block: Sequence[int] = (),
    rounding: str = "nearest_even",
    saturation: str = "saturate",
    denormals: str = "keep",
) -> Any:
    """`x / scale` in a narrow dtype; scales broadcast to `x`, or there is one for each `block` of it.

    >>> ts.ops.quantize(ts.array([0.1, -0.25]), 0.01, ts.i8)
    Tensor([2] i8, [10, -25])
    """
    conversion = {"rounding": rounding, "saturation": saturation, "denormals": denormals}
    attributes = {"dtype": parse_dtype(dtype), "block": as_tuple(block), **conversion}
    return apply("quantize", (as_tensor(x, f32), as_tensor(scale, f32)), attributes)


def dequantize(q: Any, scale: Any, *, dtype: Any = f32, block: Sequence[int] = ()) -> Any:
    """`q * scale` as floats; scales as those of `quantize`.

    >>> ts.ops.dequantize(ts.array([10, -25]).cast(ts.i8), 0.5)
    Tensor([2] f32, [5, -12.5])
    """
    return apply("dequantize", (q, as_tensor(scale, f32)), {"dtype": parse_dtype(dtype), "block": as_tuple(block)})


def scale_of(x: Any, dtype: Any, *, axis: Any = None, block: Sequence[int] = ()) -> Any:
    """The scale that brings the largest of `x` to the largest of a dtype: one for each index of `axis`, or each block.

    Without either there is one for all. What is zero everywhere, or has no elements, has the scale 1.

    >>> ts.ops.scale_of(ts.array([[1.0, 254.0], [-127.0, 0.0]]), ts.i8, axis=1)
    Tensor([1, 2] f32, [[1, 2]])
    """
    target: DType = parse_dtype(dtype)
    value, rank = cast(x, f32), rank_of(x)
    _format_name(target)
    blocks = [check_int("scale_of", "block", own) for own in check_sequence("scale_of", "block", block)]
    if blocks:
        if len(blocks) != rank or min(blocks) < 1:
            raise ArgumentError(f"`scale_of` takes a `block` of a size for each of {rank} dims, got {blocks}")
        pairs = [part for size, own in zip(value.shape, blocks, strict=True) for part in (size // own, own)]
        top = _largest(reshape(value, pairs), range(1, 2 * rank, 2), keepdims=False)
    else:
        kept = {axis_of("scale_of", one, rank) for one in as_tuple(() if axis is None else axis)}
        top = _largest(value, (at for at in range(rank) if at not in kept), keepdims=True)
    scale = top / FORMATS[target.name].largest
    return where(scale <= 0.0, 1.0, scale)


def _largest(value: Any, axes: Iterable[int], *, keepdims: bool) -> Any:
    """The largest magnitude along axes; -inf of no elements, which have a scale like all that has nothing to scale."""
    return apply("max", (magnitude(value),), {"axes": tuple(axes), "keepdims": keepdims, "identity": True})


def _numerics(dtype: Any, accumulate: Any) -> dict[str, DType | None]:
    return {
        "dtype": None if dtype is None else parse_dtype(dtype),
        "accumulate": None if accumulate is None else parse_dtype(accumulate),
    }


def matmul(a: Any, b: Any, *, dtype: Any = None, accumulate: Any = None) -> Any:
    """Matrix product; leading dims broadcast, and a tensor of one dim is a row (left) or a column (right).

    Sums are kept in `accumulate` (f32 for floats below 64 bits) and rounded once to `dtype`.

    Heads [batch, heads, length, head dim] times a matrix of heads * head dim rows are merged first, where the head dim
    alone does not fit: a projection of what attention gives, [batch, length, columns]. One head fits as it is, and the
    ordinary rule gives [batch, 1, length, columns]: a program for any number of heads merges them itself, with
    `y.transpose(0, 2, 1, 3).reshape(batch, length, -1)`.

    >>> ts.ops.matmul(ts.array([[1.0, 2.0]]), ts.array([[3.0], [4.0]]))
    Tensor([1, 1] f32, [[11]])
    """
    check_tensors(a, b)
    return _contract("matmul", (_merge_heads(a, b), b), {}, dtype, accumulate)


def _merge_heads(a: Any, b: Any) -> Any:
    """[batch, heads, length, head dim] as [batch, length, heads * head dim], where that alone fits a matrix."""
    if rank_of(a) != 4 or rank_of(b) != 2:
        return a
    batch, heads, length, head = shape_dims(a)
    rows = shape_dims(b)[0]
    if not is_refuted(head, rows) or heads * head != rows:
        return a
    return reshape(moveaxis(a, 1, 2), tuple(size_of(dim) for dim in (batch, length, rows)))


def _contract(op: str, operands: Sequence[Any], attributes: dict[str, Any], dtype: Any, accumulate: Any) -> Any:
    """A contraction; one of bools asks whether any pair is true, and bools beside numbers are 0 and 1."""
    numerics = _numerics(dtype, accumulate)
    if op == "einsum":
        del numerics["accumulate"]
    dtypes = [dtype_of(operand) for operand in operands]
    numbers = promote_all([own for own in dtypes if not own.is_bool] or [i32])
    if numbers is None or not any(own.is_bool for own in dtypes):
        return apply(op, tuple(operands), {**attributes, **numerics})
    cast_ones = [
        cast(operand, numbers) if own.is_bool else operand for operand, own in zip(operands, dtypes, strict=True)
    ]
    made = apply(op, tuple(cast_ones), {**attributes, **numerics})
    return cast(made, bool_) if dtype is None and all(own.is_bool for own in dtypes) else made


def dot_general(
    a: Any,
    b: Any,
    *,
    contract: tuple[tuple[int, ...], tuple[int, ...]],
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Contraction over paired axes: `batch` axes first, `contract` axes summed, then the free axes of `a` and `b`."""
    check_tensors(a, b)
    ranks = rank_of(a), rank_of(b)
    axes = {
        f"{side}_{kind}": tuple(axis_of("dot_general", axis, rank) for axis in as_tuple(axes))
        for kind, pair in (("batch", batch), ("contract", contract))
        for side, axes, rank in zip(("lhs", "rhs"), check_sequence("dot_general", kind, pair, 2), ranks, strict=True)
    }
    return _contract("dot_general", (a, b), axes, dtype, accumulate)


def einsum(equation: str, *operands: Any, dtype: Any = None) -> Any:
    """Sum of products by NumPy's index notation: `einsum("bij,bjk->bik", a, b)`.

    >>> ts.ops.einsum("ij,ij->i", ts.array([[1.0, 2.0]]), ts.array([[3.0, 4.0]]))
    Tensor([1] f32, [11])
    """
    equation = check_string("einsum", "equation", equation)
    check_tensors(*operands)
    return _contract("einsum", operands, {"equation": equation}, dtype, None)


def ragged_dot(x: Any, w: Any, group_sizes: Any) -> Any:
    """Rows in groups one after the other, each group by a matrix of its own: tokens by expert, as in JAX.

    `x` is [T, K], `w` is [G, K, N], and group `g` has `group_sizes[g]` rows; rows beyond all groups give zeros. A size
    below 0 counts as 0, and groups end where the rows do.

    >>> rows, scales = ts.array([[1.0], [2.0], [3.0]]), ts.array([[[10.0]], [[100.0]]])
    >>> ts.ops.ragged_dot(rows, scales, ts.array([1, 2]))
    Tensor([3, 1] f32, [[10],
                        [200],
                        [300]])
    """
    check_tensors(x, w)
    sizes = as_tensor(group_sizes)
    if not dtype_of(sizes).is_integer:
        raise DTypeError(f"`ragged_dot` takes integers as `group_sizes`, got {dtype_of(sizes)}", fix="count the rows")
    groups = shape_dims(sizes)[0] if rank_of(sizes) == 1 else None
    if groups is None or (rank_of(w) and is_refuted(groups, shape_dims(w)[0])):
        raise ShapeError(
            f"`ragged_dot` takes one of `group_sizes` for each matrix of `w`, got {text(shape_dims(sizes))} and "
            f"{text(shape_dims(w))}",
            fix="give a row of sizes, as many as there are matrices; a size may be 0",
        )
    here, other = (apply("iota", (), {"shape": (groups + 1, groups), "axis": at, "dtype": i64}) for at in (0, 1))
    counts = apply("maximum", (cast(sizes, i64), as_tensor(0, i64)), {})
    offsets = total_of(where(other < here, counts, as_tensor(0, i64)), axis=1)
    return apply("ragged_dot", (x, w, offsets), {})


def diagonal(x: Any, axis1: int = 0, axis2: int = 1, *, offset: int = 0) -> Any:
    """The elements whose indices along two axes are equal, as a last axis, as in NumPy; `offset` is added to the first.

    >>> ts.ops.diagonal(ts.array([[1, 2, 3], [4, 5, 6]]), offset=1)
    Tensor([2] i64, [2, 6])
    """
    rank = rank_of(x)
    first, second = axis_of("diagonal", axis1, rank), axis_of("diagonal", axis2, rank)
    offset = check_int("diagonal", "offset", offset)
    dims = list(shape_dims(x))
    start = [Dim.constant(0)] * rank
    if first != second:
        for at, skipped in ((first, max(-offset, 0)), (second, max(offset, 0))):
            start[at] = minimum(dims[at], skipped)
        size = minimum(dims[first] - start[first], dims[second] - start[second])
        stop = [start[at] + size if at in (first, second) else dim for at, dim in enumerate(dims)]
        if stop != dims or offset:
            x = apply("slice", (x,), {"start": tuple(start), "stop": tuple(stop), "step": (1,) * rank})
    made = apply("diagonal", (x,), {"axis1": first, "axis2": second})
    return moveaxis(made, min(first, second), -1)


def trace(x: Any, axis1: int = 0, axis2: int = 1, *, offset: int = 0) -> Any:
    """The sum of a diagonal."""
    return total_of(diagonal(x, axis1, axis2, offset=offset), -1)


_PADDINGS = ("same", "valid")
"""What a padding may be that is no number; the op's own word for numbers says nothing without them."""


def _padding(op: str, padding: Any, spatial: int) -> dict[str, Any]:
    """An int, one int for each axis, (low, high) for each axis, or "same" or "valid"."""
    if isinstance(padding, str):
        if padding not in _PADDINGS:
            raise ArgumentError(
                f"`{op}` takes `padding` as numbers, or as {' or '.join(map(repr, _PADDINGS))}, got {padding!r}",
                fix='write numbers, as in `padding=1`, or `padding="same"`',
            )
        return {"padding": (0,), "padding_mode": padding}
    if any(is_sequence(item) for item in as_tuple(padding)):
        if len(padding) != spatial or any(len(as_tuple(item)) != 2 for item in as_tuple(padding)):
            raise ShapeError(f"`{op}` takes (low, high) padding for each of {spatial} axes, got {padding!r}")
        return {"padding": tuple(side for item in padding for side in as_tuple(item))}
    return {"padding": as_tuple(padding)}


def conv1d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels_last: bool = False,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Convolution of `x` [batch, channels, size] with `w` [out, channels / groups, taps].

    `stride` and `dilation` are numbers for all spatial axes, or one for each. `padding` is a number, one for each axis,
    a pair (low, high) for each, "same" (as many elements as strides fit in) or "valid" (none).

    With `channels_last` `x` and the result are [batch, size, channels], and `w` is as ever; the bits are the same.
    """
    window = _Window(stride, padding, dilation, groups, channels_last)
    return _conv("conv1d", 1, x, w, window, _numerics(dtype, accumulate))


def conv2d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels_last: bool = False,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Convolution of `x` [batch, channels, height, width] with `w` [out, channels / groups, taps, taps].

    `stride` and `dilation` are numbers for all spatial axes, or one for each. `padding` is a number, one for each axis,
    a pair (low, high) for each, "same" (as many elements as strides fit in) or "valid" (none).

    With `channels_last` `x` and the result are [batch, height, width, channels], and `w` is as ever; the bits are the
    same.

    >>> ts.ops.conv2d(ts.ones((1, 1, 3, 3)), ts.ones((1, 1, 2, 2))).shape
    (1, 1, 2, 2)
    >>> ts.ops.conv2d(ts.ones((1, 3, 3, 2)), ts.ones((4, 2, 2, 2)), channels_last=True).shape
    (1, 2, 2, 4)
    """
    window = _Window(stride, padding, dilation, groups, channels_last)
    return _conv("conv2d", 2, x, w, window, _numerics(dtype, accumulate))


def conv3d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels_last: bool = False,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Convolution of `x` [batch, channels, depth, height, width] with `w` [out, channels / groups, taps, taps, taps].

    Arguments are those of `conv2d`. With `channels_last` `x` and the result are [batch, depth, height, width,
    channels].

    >>> ts.ops.conv3d(ts.ones((1, 1, 3, 3, 3)), ts.ones((2, 1, 2, 2, 2)), padding="same").shape
    (1, 2, 3, 3, 3)
    """
    window = _Window(stride, padding, dilation, groups, channels_last)
    return _conv("conv3d", 3, x, w, window, _numerics(dtype, accumulate))


def conv_transpose1d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels_last: bool = False,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Transpose of a convolution: `x` [batch, channels, size] with `w` [channels, out / groups, taps].

    `padding` is what that convolution pads, and so what is cut here; `output_padding` adds elements at the end, which
    no window of it reached. A size becomes `(size - 1) * stride + dilation * (taps - 1) + 1 + output_padding - padding`
    of both sides. With `channels_last` `x` and the result are [batch, size, channels].
    """
    window = _Window(stride, padding, dilation, groups, channels_last, output_padding)
    return _conv("conv_transpose1d", 1, x, w, window, _numerics(dtype, accumulate))


def conv_transpose2d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels_last: bool = False,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Transpose of a convolution: `x` [batch, channels, height, width] with `w` [channels, out / groups, taps, taps].

    Arguments are those of `conv_transpose1d`.

    >>> ts.ops.conv_transpose2d(ts.ones((1, 3, 4, 4)), ts.ones((3, 2, 2, 2)), stride=2).shape
    (1, 2, 8, 8)
    """
    window = _Window(stride, padding, dilation, groups, channels_last, output_padding)
    return _conv("conv_transpose2d", 2, x, w, window, _numerics(dtype, accumulate))


def conv_transpose3d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels_last: bool = False,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Transpose of a convolution along three axes, as `conv_transpose1d` is along one."""
    window = _Window(stride, padding, dilation, groups, channels_last, output_padding)
    return _conv("conv_transpose3d", 3, x, w, window, _numerics(dtype, accumulate))


@frozen
class _Window:
    """How the window of a convolution lies, as a user gives it."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int
    channels_last: bool
    output_padding: Any = None


def _conv(op: str, spatial: int, x: Any, w: Any, window: _Window, numerics: Any) -> Any:
    check_tensors(x, w)
    attributes = {
        "stride": as_tuple(window.stride),
        "dilation": as_tuple(window.dilation),
        **_padding(op, window.padding, spatial),
        "groups": check_int(op, "groups", window.groups),
        **numerics,
    }
    if window.output_padding is not None:
        attributes["output_padding"] = as_tuple(window.output_padding)
    is_last = check_bool(op, "channels_last", window.channels_last)
    _check_channels(op, spatial, x, w, window)
    if not is_last:
        return apply(op, (x, w), attributes)
    if rank_of(x) != spatial + 2:
        raise ShapeError(
            f"`{op}` with `channels_last` needs `x` of rank {spatial + 2}, got {text(shape_dims(x))}",
            fix=f"`x` is [N, {('L', 'H, W', 'D, H, W')[spatial - 1]}, C]",
        )
    # A view on both sides: how elements lie in memory is no part of what is computed.
    return moveaxis(apply(op, (moveaxis(x, -1, 1), w), attributes), 1, -1)


def _check_channels(op: str, spatial: int, x: Any, w: Any, window: _Window) -> None:
    """Refuse an image with its channels along the other axis, and with `channels_last` any other number of them."""
    if rank_of(x) != spatial + 2 or rank_of(w) != spatial + 2:
        return
    shape, taps = shape_dims(x), shape_dims(w)
    needed = taps[1] * window.groups if window.output_padding is None else taps[0]
    at, other = (spatial + 1, 1) if window.channels_last else (1, spatial + 1)
    is_otherwise = not is_refuted(shape[other], needed)
    if not is_refuted(shape[at], needed) or not (is_otherwise or window.channels_last):
        return
    fix = f"give `x` with {needed} channels along axis {at}"
    if is_otherwise:
        fix = "leave out `channels_last`" if window.channels_last else "write `channels_last=True`"
        fix += f": axis {other} of `x` has {needed}"
    raise ShapeError(
        f"`{op}` of {text(shape)} with {text(taps)}: `x` has {shape[at]} channels along axis {at}, `w` takes {needed}",
        fix=fix,
    )


def max_pool(x: Any, window: Any, *, stride: Any = (), padding: Any = 0, dilation: Any = 1) -> Any:
    """The largest element of each window; steps by the window unless `stride` says otherwise.

    A number as window is that size along all spatial axes, which are those after batch and channels; a tuple has the
    size along each of the last axes. `stride`, `padding` and `dilation` are numbers for all these axes, or tuples.

    >>> ts.ops.max_pool(ts.ones((1, 3, 8, 6)), 2).shape
    (1, 3, 4, 3)
    """
    return _pool("max_pool", x, window, stride, padding, dilation, {})


def avg_pool(
    x: Any, window: Any, *, stride: Any = (), padding: Any = 0, dilation: Any = 1, count_padding: bool = True
) -> Any:
    """The mean of each window, as `max_pool` has them; `count_padding` says whether padding counts as elements."""
    return _pool("avg_pool", x, window, stride, padding, dilation, {"count_padding": count_padding})


def _pool(op: str, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, more: dict[str, Any]) -> Any:
    rank = rank_of(x)
    sizes = as_tuple(window)
    if not is_sequence(window):
        if rank < 3:
            raise ShapeError(
                f"`{op}` with a number as window pools the axes after batch and channels: {list(x.shape)} has none",
                fix=f"write a tuple with the size along each of the last axes, as in `{op}(x, ({window},))`",
            )
        sizes *= rank - 2
    form = {
        "window": sizes,
        "stride": as_tuple(stride),
        "dilation": as_tuple(dilation),
        **_padding(op, padding, len(sizes)),
    }
    return apply(op, (x,), {**form, **more})


__all__ = [
    "avg_pool",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "dequantize",
    "diagonal",
    "dot_general",
    "einsum",
    "matmul",
    "max_pool",
    "quantize",
    "ragged_dot",
    "round_blocks",
    "round_stochastic",
    "round_to",
    "scale_of",
    "trace",
]
