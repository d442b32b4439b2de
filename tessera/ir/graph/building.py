"""What decompositions build with: constants, sizes as values, widening into arithmetic and rounding out of it."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.spec import Builder
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType

LOWEST = {"f32": -3.4028234663852886e38, "f64": -1.7976931348623157e308}
"""The least finite number of each dtype floats compute in."""


def constant(b: Builder, value: float | bool, dtype: DType) -> Any:
    """A scalar, which broadcasts against anything of its dtype."""
    return b.emit("full", shape=(), value=value, dtype=dtype)


def size(b: Builder, dim: Dim, dtype: DType = dt.i64) -> Any:
    """A dim as a scalar value."""
    return constant(b, dim.value, dtype) if dim.value is not None else cast(b, b.emit("dim_size", dims=(dim,)), dtype)


def cast(b: Builder, value: Any, dtype: DType) -> Any:
    """The value in a dtype, which it may have already."""
    return value if b.type_of(value).dtype is dtype else b.emit("cast", value, dtype=dtype)


def widened(b: Builder, value: Any) -> Any:
    """The value in the dtype floats compute in: where a composite op does all its arithmetic."""
    return cast(b, value, b.type_of(value).dtype.compute)


def expanded(b: Builder, value: Any, axis: int) -> Any:
    """The value with a new axis of 1."""
    shape = b.type_of(value).shape
    return b.emit("reshape", value, shape=(*shape[:axis], Dim.constant(1), *shape[axis:]))


def restated(b: Builder, value: Any, shape: tuple[Dim, ...]) -> Any:
    """The value with its dims written as in `shape`, to which they are equal for reasons that algebra does not see."""
    return value if b.type_of(value).shape == shape else b.emit("broadcast_to", value, shape=shape)


def part(b: Builder, value: Any, axis: int, start: Dim | int, stop: Dim | int, step: int = 1) -> Any:
    """A slice of one axis, the others whole."""
    shape = b.type_of(value).shape
    starts = tuple(Dim.of(start) if own == axis else Dim.constant(0) for own in range(len(shape)))
    stops = tuple(Dim.of(stop) if own == axis else dim for own, dim in enumerate(shape))
    return b.emit(
        "slice", value, start=starts, stop=stops, step=tuple(step if own == axis else 1 for own in range(len(shape)))
    )
