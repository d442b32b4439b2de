"""What facets of many ops are built with: checks of shape rules, costs, and values that decompositions emit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.spec import (
    BOOL,
    Attribute,
    Attributes,
    Builder,
    Cost,
    CostRule,
    InferContext,
    Simplifier,
    Simplify,
)
from tessera.types import dtype as dt
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import DType
from tessera.types.promotion import float_of, sum_of
from tessera.types.shape import (
    ONE,
    ZERO,
    Named,
    Shape,
    TensorType,
    broadcast,
    equal_dims,
    is_at_least,
    is_refuted,
    path,
    text,
)

# The checks that shape rules of many ops share: equal and sufficient dims, axes, element types, accumulators.

Types: TypeAlias = Sequence[TensorType]
"""The types of an op's operands, or of its results."""


def dims(*sizes: int) -> Shape:
    """A shape of known sizes."""
    return tuple(Dim.of(size) for size in sizes)


def same_dim(ctx: InferContext, left: Dim, right: Dim, message: str, *, help: str = "") -> Dim:
    """The dim both must be; where they are known to differ, fails with `message` and the two values."""
    if left == right:
        return left
    if is_refuted(left, right):
        raise ctx.fail(f"{message} ({left} and {right})", help=help)
    return ctx.equal(left, right, message)


def match_dims(ctx: InferContext, op: str, left: Named, right: Named, axes: Iterable[int]) -> None:
    """Raises where two operands differ along axes on which they are equal; guards where they may."""
    for axis in axes:
        own, other = left.shape[axis], right.shape[axis]
        if own == other:
            continue
        equal_dims(ctx, op, own, other, f"{path(left.name, axis, own)} and {path(right.name, axis, other)}")


def match_shapes(ctx: InferContext, op: str, left: Named, right: Named) -> None:
    """Raises where two operands have shapes that differ; guards where they may."""
    if len(left.shape) != len(right.shape):
        raise ctx.fail(
            f"`{op}` needs `{left.name}` of {len(right.shape)} axes as `{right.name}` has, got {text(left.shape)}"
        )
    match_dims(ctx, op, left, right, range(len(left.shape)))


def broadcast_types(ctx: InferContext, op: str, names: Sequence[str], types: Types) -> Shape:
    """The shape that operands of these names broadcast to."""
    return broadcast(ctx, op, *(Named(name, x.shape) for name, x in zip(names, types, strict=True)))


def check_at_least(ctx: InferContext, dim: Dim, bound: int, message: str) -> None:
    """`dim >= bound`, proved or guarded at run time: as an equality, since that is what a guard is."""
    if is_at_least(dim, bound):
        return
    if dim.value is not None:
        raise ctx.fail(f"{message} ({dim})")
    ctx.equal(minimum(dim, bound), Dim.constant(bound), message)


def check_not_empty(ctx: InferContext, op: str, x: TensorType, axes: Sequence[int]) -> None:
    """Raises where a reduced dim is known to be 0, which the op has no answer for; guards where it may be."""
    for axis in axes:
        message = f"`{op}` of no elements has no value: {path('x', axis, x.shape[axis])}"
        if x.shape[axis].value == 0:
            raise ctx.fail(message)
        check_at_least(ctx, x.shape[axis], 1, message)


def check_axes(ctx: InferContext, op: str, x: TensorType, axes: Sequence[int]) -> tuple[int, ...]:
    """The axes of the attribute; raises where they are not sorted, not from the front, or not there."""
    for axis in axes:
        if not 0 <= axis < x.rank:
            raise ctx.fail(f"`{op}` has no axis {axis} on a value of rank {x.rank}", help=f"axes are 0..{x.rank - 1}")
    if list(axes) != sorted(set(axes)):
        raise ctx.fail(f"`{op}` needs its axes sorted and none twice, got {tuple(axes)}")
    return tuple(axes)


def check_sizes(ctx: InferContext, op: str, shape: Shape) -> None:
    """Raises where a dim of the result is below 0."""
    for axis, dim in enumerate(shape):
        if dim.value is not None and dim.value < 0:
            raise ctx.fail(f"`{op}` got a size below zero: {path('out', axis, dim)}", help="sizes are 0 or more")


def check_float(ctx: InferContext, op: str, x: TensorType, name: str = "x") -> None:
    """Raises unless the operand is of a floating dtype."""
    if not x.dtype.is_float:
        raise ctx.fail_dtype(f"`{op}` needs a floating `{name}`, got {x.dtype}", help='cast it, as in `x.cast("f32")`')


def check_integer(ctx: InferContext, op: str, x: TensorType, name: str) -> None:
    """Raises unless the operand holds integers."""
    if not x.dtype.is_integer:
        raise ctx.fail_dtype(f"`{op}` needs integer `{name}`, got {x.dtype}", help='cast it, as in `x.cast("i64")`')


def check_dtype(ctx: InferContext, op: str, name: str, x: TensorType, allowed: Sequence[str]) -> None:
    """Raises unless the operand's dtype is one the op takes, saying which cast would do."""
    if x.dtype.name in allowed:
        return
    if "f32" in allowed:
        fix = "i8" if x.dtype is dt.i4 and "i8" in allowed else str(float_of(x.dtype))
    else:
        fix = "bool" if allowed == BOOL else "i32"
    raise ctx.fail_dtype(
        f"`{op}` takes {' '.join(allowed)}, got `{name}` of {x.dtype}",
        help=f"compare it, as in `{name} != 0`" if fix == "bool" else f'cast it, as in `{name}.cast("{fix}")`',
    )


def check_same(ctx: InferContext, op: str, names: Sequence[str], types: Types) -> None:
    """Raises unless all operands have one dtype."""
    for name, x in zip(names[1:], types[1:], strict=True):
        if x.dtype is not types[0].dtype:
            raise ctx.fail_dtype(
                f"`{op}` needs operands of one dtype, got `{names[0]}` of {types[0].dtype} and `{name}` of {x.dtype}",
                help=f'cast one of them, as in `{name}.cast("{types[0].dtype}")`',
            )


def common_dtype(ctx: InferContext, op: str, types: Types) -> DType:
    """The one dtype of all operands; raises where two differ."""
    first = types[0].dtype
    for other in types[1:]:
        if other.dtype is not first:
            raise ctx.fail_dtype(
                f"`{op}` needs operands of one dtype, got {first} and {other.dtype}",
                help=f'cast one of them, as in `x.cast("{first}")`',
            )
    return first


def check_value(ctx: InferContext, op: str, value: float, dtype: DType) -> None:
    """Raises where a number is none of an integer or bool dtype, or too large to have come here unharmed."""
    if dtype.is_float:
        return
    if dtype.is_bool:
        if value not in (0, 1):
            raise ctx.fail_dtype(f"`{op}` cannot fill bool with {value}", help="the values are 0 and 1")
    elif value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise ctx.fail_dtype(f"`{op}` cannot fill {dtype} with {value}", help="use an integer, or a float dtype")


ACCUMULATE = Attribute(
    "accumulate", "dtype", None, "dtype of the running sums; default f32 (f64 for f64), integers 64 bits"
)


def accumulator(dtype: DType) -> DType:
    """The accumulator where none is stated."""
    return sum_of(dtype).compute


def check_accumulator(
    ctx: InferContext, op: str, x: TensorType, asked: DType | None, usual: DType | None = None
) -> None:
    """Raises unless the running sum of floats is a float, and that of integers the `usual` dtype of such sums."""
    usual = usual or accumulator(x.dtype)
    if asked is None or asked is usual or (x.dtype.is_float and asked.is_float):
        return
    wanted = "a float" if x.dtype.is_float else str(usual)
    raise ctx.fail_dtype(f"`{op}` of {x.dtype} accumulates in {wanted}, not {asked}")


def axes_attribute(attributes: Attributes, name: str) -> tuple[int, ...]:
    """An `ints` attribute as a tuple."""
    return tuple(int(axis) for axis in attributes[name])


# Costs, and the simplification that many ops share.

Operations: TypeAlias = Callable[[Types, Types, Attributes], Dim]


def cost_of(operations: Operations) -> CostRule:
    """A cost rule: so many operations, and each operand read once and each result written once."""

    def cost(operands: Types, results: Types, attributes: Attributes) -> Cost:
        moved = sum((value.bytes for value in (*operands, *results)), ZERO)
        return Cost(operations(operands, results, attributes), moved)

    return cost


def visits(times: int) -> CostRule:
    """A cost rule: `times` operations for each element of the first operand."""
    return cost_of(lambda operands, results, attributes: (operands or results)[0].size * times)


def pointwise_cost(flops: int) -> CostRule:
    """A cost rule: `flops` operations for each element of the result."""
    return cost_of(lambda operands, results, attributes: results[0].size * flops)


def moving_cost(operands: Types, results: Types, attributes: Attributes) -> Cost:
    """The cost of no arithmetic: each result element is read and written once."""
    return Cost(ZERO, sum((value.bytes * 2 for value in results), ZERO))


def drop_when(is_nothing: Callable[[Attributes], bool]) -> Simplify:
    """A `simplify` that gives the operand where the op changes nothing."""

    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        return operands[0] if is_nothing(attributes) else None

    return simplify


# Values that decompositions emit.

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


def log_of_sum(b: Builder, total: Any) -> Any:
    """The logarithm of a sum that is at least 1, or 0; its derivative by parts is then 0, where it would be NaN."""
    if not getattr(b, "keeps_parts", False):
        return b.emit("log", total)
    dtype = b.type_of(total).dtype
    is_empty = b.emit("eq", total, constant(b, 0.0, dtype))
    safe = b.emit("where", is_empty, constant(b, 1.0, dtype), total)
    return b.emit("where", is_empty, constant(b, float("-inf"), dtype), b.emit("log", safe))


def widen(b: Builder, value: Any) -> Any:
    """The value in the dtype floats compute in: where a composite op does all its arithmetic."""
    return cast(b, value, b.type_of(value).dtype.compute)


def expand(b: Builder, value: Any, axis: int) -> Any:
    """The value with a new axis of 1."""
    shape = b.type_of(value).shape
    return b.emit("reshape", value, shape=(*shape[:axis], ONE, *shape[axis:]))


def restate(b: Builder, value: Any, shape: Shape) -> Any:
    """The value with its dims written as in `shape`, to which they are equal for reasons that algebra does not see."""
    return value if b.type_of(value).shape == shape else b.emit("broadcast_to", value, shape=shape)


def slice_axis(b: Builder, value: Any, axis: int, start: Dim | int, stop: Dim | int, step: int = 1) -> Any:
    """A slice of one axis, the others whole."""
    starts, stops = [ZERO] * b.type_of(value).rank, list(b.type_of(value).shape)
    steps = [1] * len(stops)
    starts[axis], stops[axis], steps[axis] = Dim.of(start), Dim.of(stop), step
    return b.emit("slice", value, start=tuple(starts), stop=tuple(stops), step=tuple(steps))


def index_axis(b: Builder, value: Any, axis: int, index: int) -> Any:
    """What an axis has at one index, without the axis."""
    shape = b.type_of(value).shape
    return b.emit("reshape", slice_axis(b, value, axis, index, index + 1), shape=(*shape[:axis], *shape[axis + 1 :]))


def dilate(b: Builder, value: Any, axis: int, by: int) -> Any:
    """`by - 1` zeros between the elements along an axis, none after the last."""
    if by == 1:
        return value
    shape = b.type_of(value).shape
    spread = b.emit("reshape", value, shape=(*shape[: axis + 1], ONE, *shape[axis + 1 :]))
    none = [ZERO] * (len(shape) + 1)
    behind = list(none)
    behind[axis + 1] = Dim.of(by - 1)
    padded = b.emit("pad", spread, low=tuple(none), high=tuple(behind))
    flat = b.emit("reshape", padded, shape=(*shape[:axis], shape[axis] * by, *shape[axis + 1 :]))
    return slice_axis(b, flat, axis, ZERO, shape[axis] * by - (by - 1))


def slice_indices(b: Builder, starts: Sequence[Any], shape: Shape, axes: Sequence[int]) -> list[Any]:
    """The indices of a slice of a shape along all axes from its first to its last one, to broadcast against another.

    Starts are scalars, or have a batch in front.
    """
    every = range(axes[0], axes[-1] + 1)
    found: list[Any] = []
    for axis in every:
        size = shape[axis]
        steps = b.emit(
            "iota", shape=tuple(size if axis == own else ONE for own in every), axis=axis - axes[0], dtype=dt.i64
        )
        if axis in axes:
            start = b.emit("cast", starts[axes.index(axis)], dtype=dt.i64)
            batch = b.type_of(start).shape
            steps = b.emit("add", b.emit("reshape", start, shape=(*batch, *(ONE for _ in every))), steps)
        found.append(steps)
    return found
