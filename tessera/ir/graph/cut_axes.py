"""Which axes of its operands an op reads in step with an axis of its result, where elements along it are independent.

Along such an axis a part of the result is the same op on parts of the operands, with the same bits: pointwise ops,
views that keep the axis, reductions over other axes, and contractions along rows, columns or batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.build import is_removable, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.graph.ops.contraction import coordinate
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types.dim import Dim, product
from tessera.types.shape import TensorType

Axes: TypeAlias = "tuple[int | None, ...] | None"
"""For each operand the axis that is read in step, or None where it is read whole; None for an op that is not
independent along the axis."""

BARRIER = "optimization_barrier"


def cut_axes(op: SpecOp, axis: int) -> Axes:
    """The axes of the operands of an op that go with an axis of its only result."""
    if len(op.results) != 1 or op.regions or not is_removable(op):
        return None
    lower: object = op.spec.lower
    rule = _RULES.get(op.spec.short_name) or _RULES_OF_FACETS.get(type(lower))
    types = [tensor_value(value) for value in op.operands]
    return None if rule is None else rule(op, types, tensor_value(op.results[0]), axis)


def cut_attributes(op: SpecOp, axis: int, size: int) -> dict[str, Any]:
    """The attributes of an op that gives a part of its result: `size` elements along an axis."""
    values = op.values()
    if op.spec.short_name not in _SHAPED:
        return values
    shape: Sequence[Dim] = values["shape"]
    return {**values, "shape": (*shape[:axis], Dim.constant(size), *shape[axis + 1 :])}


_SHAPED = ("reshape", "broadcast_to", "full", "iota")


def _find_stretched(type: TensorType, out: TensorType, axis: int) -> int | None:
    """The axis of an operand that is broadcast to a result."""
    own = axis - (out.rank - type.rank)
    return None if own < 0 or (type.shape[own].value == 1 and out.shape[axis].value != 1) else own


def _pointwise(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    # What has no operands depends on positions, except for the rules of its own below.
    return tuple(_find_stretched(type, out, axis) for type in types) if types else None


def _nowhere(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    """Of ops whose elements depend on their position."""
    return None


def _full(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    return ()


def _iota(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    return None if op.value("axis") % out.rank == axis else ()


def _reduction(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    assert isinstance(op.spec.lower, Reduction)
    reduced = op.spec.lower.axes(types[0], op.values())
    if op.value("keepdims"):
        return None if axis in reduced else (axis,)
    return ([own for own in range(types[0].rank) if own not in reduced][axis],)


def _contraction(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    assert isinstance(op.spec.lower, Contraction)
    maps = op.spec.lower.maps(types, op.values())
    if maps.windows or maps.cut is not None or op.value("partial"):
        return None
    names = [coordinate(group, at) for group in "bmn" for at in range(len(getattr(maps, _EXTENTS[group])))]
    found = tuple(_position(index, names[axis]) for index in (maps.lhs, maps.rhs))
    return None if _ELSEWHERE in found or found == (None, None) else found


_EXTENTS = {"b": "batch", "m": "m", "n": "n"}
_ELSEWHERE = -1


def _position(index: Sequence[Dim], name: Dim) -> int | None:
    """The axis of an operand that is read at a coordinate; None for one that does not read it."""
    (symbol,) = name.symbols
    found = [at for at, expr in enumerate(index) if symbol in expr.symbols]
    if not found:
        return None
    return found[0] if len(found) == 1 and index[found[0]] == name else _ELSEWHERE


def _reshape(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    (x,) = types
    before = product(out.shape[:axis])
    at = [own for own, dim in enumerate(x.shape) if dim == out.shape[axis] and product(x.shape[:own]) == before]
    return (at[0],) if at else None


def _transpose(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    return (op.value("axes")[axis],)


def _squeeze(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    return ([own for own in range(types[0].rank) if own not in op.value("axes")][axis],)


def _expand_dims(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    added: Sequence[int] = op.value("axes")
    return None if axis in added else (axis - sum(one < axis for one in added),)


def _take_along(op: SpecOp, types: Sequence[TensorType], out: TensorType, axis: int) -> Axes:
    if op.value("axis") % out.rank == axis or op.value("checked") is not None:
        return None
    return tuple(_find_stretched(type, out, axis) for type in types)


_Rule: TypeAlias = Callable[[SpecOp, Sequence[TensorType], TensorType, int], Axes]

_RULES: Mapping[str, _Rule] = {
    "full": _full,
    "iota": _iota,
    "tril": _nowhere,
    "triu": _nowhere,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_to": _pointwise,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "take_along_legal": _take_along,
}

_RULES_OF_FACETS: Mapping[type[object], _Rule] = {
    Pointwise: _pointwise,
    Reduction: _reduction,
    Contraction: _contraction,
}
