"""Functions that make tensors from nothing but a shape."""

from __future__ import annotations

import math
from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_int, check_number
from tessera.frontend.concrete import device_class, scalar_dtype
from tessera.frontend.functions import elementwise
from tessera.frontend.functions.operands import (
    dims_of,
    dtype_of,
    rank_of,
    shape_dims,
)
from tessera.frontend.size import Size, dim_of
from tessera.frontend.traced_number import TracedNumber
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.types.dtype import f32, i64, parse_dtype
from tessera.types.shape import slice_extent


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
    if type(value) is TracedNumber and chosen.is_float:
        return apply("broadcast_to", (value.to(chosen),), {"shape": dims_of(shape)})
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


_FRACTIONS = "scale integers, as in `tessera.ops.arange(10) * 0.1`, or write `tessera.ops.linspace(0.0, 1.0, 11)`"


def arange(start: Any, stop: Any = None, step: int = 1, dtype: Any = i64) -> Any:
    """Integers from `start` up to and without `stop`, as `range`; a stop may be a dynamic size.

    There are none where `stop` is not beyond `start`, be they numbers or dynamic dims.

    >>> ts.arange(2, 8, 3)
    Tensor([2] i64, [2, 5])
    """
    first, last = (0, start) if stop is None else (start, stop)
    for name, value in (("start", first), ("stop", last), ("step", step)):
        if isinstance(value, float):
            raise ShapeError(
                f"`arange` takes integers, got `{name}` of {value}",
                fix=_FRACTIONS,
            )
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
