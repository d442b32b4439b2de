"""What op declarations are built with: checks of shape rules, costs, and values that decompositions emit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder, Cost, InferContext
from tessera.types import dtype as dt
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import DType
from tessera.types.shape import is_at_least, is_refuted
from tessera.types.tensor_type import TensorType

# The checks that shape rules of many ops share: equal and sufficient dims, element types, costs.


def same_dim(ctx: InferContext, left: Dim, right: Dim, message: str, *, help: str = "") -> Dim:
    """The dim both must be; where they are known to differ, fails with `message` and the two values."""
    if left == right:
        return left
    if is_refuted(left, right):
        raise ctx.fail(f"{message} ({left} and {right})", help=help)
    return ctx.equal(left, right, message)


def check_at_least(ctx: InferContext, dim: Dim, bound: int, message: str) -> None:
    """`dim >= bound`, proved or guarded at run time: as an equality, since that is what a guard is."""
    if is_at_least(dim, bound):
        return
    if dim.value is not None:
        raise ctx.fail(f"{message} ({dim})")
    ctx.equal(minimum(dim, bound), Dim.constant(bound), message)


def check_float(ctx: InferContext, op: str, x: TensorType, name: str = "x") -> None:
    """Raises unless the operand is of a floating dtype."""
    if not x.dtype.is_float:
        raise ctx.fail_dtype(f"`{op}` needs a floating `{name}`, got {x.dtype}", help="cast it, as in `x.cast(f32)`")


def check_integer(ctx: InferContext, op: str, x: TensorType, name: str) -> None:
    """Raises unless the operand holds integers."""
    if not x.dtype.is_integer:
        raise ctx.fail_dtype(f"`{op}` needs integer `{name}`, got {x.dtype}", help="cast it, as in `x.cast(i64)`")


def common_dtype(ctx: InferContext, op: str, types: Sequence[TensorType]) -> DType:
    """The one dtype of all operands; raises where two differ."""
    first = types[0].dtype
    for other in types[1:]:
        if other.dtype is not first:
            raise ctx.fail_dtype(
                f"`{op}` needs operands of one dtype, got {first} and {other.dtype}",
                help=f"cast one of them, as in `x.cast({first})`",
            )
    return first


def axes_attribute(attributes: Attributes, name: str) -> tuple[int, ...]:
    """An `ints` attribute as a tuple."""
    return tuple(int(axis) for axis in attributes[name])


def index_dtype() -> DType:
    """The dtype of positions that ops give (argsort, topk)."""
    return dt.i64


def traffic(operands: Sequence[TensorType], results: Sequence[TensorType]) -> Dim:
    """Bytes moved when each operand is read once and each result written once."""
    total = Dim.constant(0)
    for value in (*operands, *results):
        total = total + value.bytes
    return total


def visits(times: int) -> Any:
    """A cost rule: `times` operations for each element of the first operand."""

    def cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Any) -> Cost:
        size = operands[0].size if operands else results[0].size
        return Cost(size * times, traffic(operands, results))

    return cost


LOWEST = {"f32": -3.4028234663852886e38, "f64": -1.7976931348623157e308}
"""The least finite number of each dtype floats compute in."""


def constant(b: Builder, value: float | bool, dtype: DType) -> Any:
    """A scalar, which broadcasts against anything of its dtype."""
    return b.emit("full", shape=(), value=value, dtype=dtype)


def size_value(b: Builder, dim: Dim, dtype: DType = dt.i64) -> Any:
    """A dim as a scalar value."""
    return constant(b, dim.value, dtype) if dim.value is not None else cast(b, b.emit("dim_size", dims=(dim,)), dtype)


def cast(b: Builder, value: Any, dtype: DType) -> Any:
    """The value in a dtype, which it may have already."""
    return value if b.type_of(value).dtype is dtype else b.emit("cast", value, dtype=dtype)


def widen(b: Builder, value: Any) -> Any:
    """The value in the dtype floats compute in: where a composite op does all its arithmetic."""
    return cast(b, value, b.type_of(value).dtype.compute)


def expand(b: Builder, value: Any, axis: int) -> Any:
    """The value with a new axis of 1."""
    shape = b.type_of(value).shape
    return b.emit("reshape", value, shape=(*shape[:axis], Dim.constant(1), *shape[axis:]))


def restate(b: Builder, value: Any, shape: tuple[Dim, ...]) -> Any:
    """The value with its dims written as in `shape`, to which they are equal for reasons that algebra does not see."""
    return value if b.type_of(value).shape == shape else b.emit("broadcast_to", value, shape=shape)


def slice_axis(b: Builder, value: Any, axis: int, start: Dim | int, stop: Dim | int, step: int = 1) -> Any:
    """A slice of one axis, the others whole."""
    shape = b.type_of(value).shape
    starts = tuple(Dim.of(start) if own == axis else Dim.constant(0) for own in range(len(shape)))
    stops = tuple(Dim.of(stop) if own == axis else dim for own, dim in enumerate(shape))
    return b.emit(
        "slice", value, start=starts, stop=stops, step=tuple(step if own == axis else 1 for own in range(len(shape)))
    )
