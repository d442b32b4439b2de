"""Functions that multiply and sum: matrix products, einsum, convolutions, pooling."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ShapeError
from tessera.frontend.arguments import check_sequence, check_string
from tessera.frontend.functions.operands import axis_of, check_tensors, dtype_of, parse_dtype, rank_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.ir.base.dispatch import apply
from tessera.types.dtype import DType


def _numerics(dtype: Any, accumulate: Any) -> dict[str, DType | None]:
    return {
        "dtype": None if dtype is None else parse_dtype(dtype),
        "accumulate": None if accumulate is None else parse_dtype(accumulate),
    }


def matmul(a: Any, b: Any, *, dtype: Any = None, accumulate: Any = None) -> Any:
    """Matrix product; leading dims broadcast, and a tensor of one dim is a row (left) or a column (right).

    Sums are kept in `accumulate` (f32 for floats below 64 bits) and rounded once to `dtype`.

    >>> ts.ops.matmul(ts.array([[1.0, 2.0]]), ts.array([[3.0], [4.0]]))
    Tensor([1, 1] f32, [[11]])
    """
    check_tensors(a, b)
    return apply("matmul", (a, b), _numerics(dtype, accumulate))


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
    return apply("dot_general", (a, b), {**axes, **_numerics(dtype, accumulate)})


def einsum(equation: str, *operands: Any, dtype: Any = None) -> Any:
    """Sum of products by NumPy's index notation: `einsum("bij,bjk->bik", a, b)`.

    >>> ts.ops.einsum("ij,ij->i", ts.array([[1.0, 2.0]]), ts.array([[3.0, 4.0]]))
    Tensor([1] f32, [11])
    """
    equation = check_string("einsum", "equation", equation)
    check_tensors(*operands)
    return apply("einsum", operands, {"equation": equation, "dtype": _numerics(dtype, None)["dtype"]})


def diagonal(x: Any, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements whose two indices are equal, as a last axis."""
    dtype_of(x)
    rank = rank_of(x)
    axes = {"axis1": axis_of("diagonal", axis1, rank), "axis2": axis_of("diagonal", axis2, rank)}
    return apply("diagonal", (x,), axes)


def _padding(op: str, padding: Any, spatial: int) -> dict[str, Any]:
    """An int, one int for each axis, (low, high) for each axis, or "same" or "valid"."""
    if isinstance(padding, str):
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
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Convolution of `x` [batch, channels, size] with `w` [out, channels / groups, taps]."""
    return _conv("conv1d", 1, x, w, stride, padding, dilation, groups, _numerics(dtype, accumulate))


def conv2d(
    x: Any,
    w: Any,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    dtype: Any = None,
    accumulate: Any = None,
) -> Any:
    """Convolution of `x` [batch, channels, height, width] with `w` [out, channels / groups, taps, taps].

    >>> ts.ops.conv2d(ts.ones((1, 1, 3, 3)), ts.ones((1, 1, 2, 2))).shape
    (1, 1, 2, 2)
    """
    return _conv("conv2d", 2, x, w, stride, padding, dilation, groups, _numerics(dtype, accumulate))


def _conv(
    op: str, spatial: int, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int, numerics: Any
) -> Any:
    check_tensors(x, w)
    window = {"stride": as_tuple(stride), "dilation": as_tuple(dilation), **_padding(op, padding, spatial)}
    return apply(op, (x, w), {**window, "groups": groups, **numerics})


def max_pool(x: Any, window: Any, *, stride: Any = (), padding: Any = 0, dilation: Any = 1) -> Any:
    """The largest element of each window over the last axes; steps by the window unless `stride` says otherwise."""
    return _pool("max_pool", x, window, stride, padding, dilation, {})


def avg_pool(
    x: Any, window: Any, *, stride: Any = (), padding: Any = 0, dilation: Any = 1, count_padding: bool = True
) -> Any:
    """The mean of each window over the last axes; `count_padding` says whether padding counts as elements."""
    return _pool("avg_pool", x, window, stride, padding, dilation, {"count_padding": count_padding})


def _pool(op: str, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, more: dict[str, Any]) -> Any:
    dtype_of(x)
    sizes = as_tuple(window)
    form = {
        "window": sizes,
        "stride": as_tuple(stride),
        "dilation": as_tuple(dilation),
        **_padding(op, padding, len(sizes)),
    }
    return apply(op, (x,), {**form, **more})
