"""What facets of many ops are built with: costs, a simplification, and values that decompositions emit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.spec import Attributes, Builder, Cost, CostRule, Simplifier, Simplify
from tessera.ir.graph.shape_rules import Types
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import ONE, ZERO, Shape

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
