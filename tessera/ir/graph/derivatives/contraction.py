"""Transposes of contractions, which are linear in each operand: each is a contraction with the other operand."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import axes_attribute, expand
from tessera.ir.graph.derivatives.shared import Values, in_dtype, unbroadcast
from tessera.ir.graph.transforms.facets import Linear
from tessera.types.promotion import promote
from tessera.types.shape import TensorType


def _type(b: Builder, operand: Any) -> TensorType:
    return operand.type if isinstance(operand, Linear) else b.type_of(operand)


def _cotangent(b: Builder, value: Any, a: TensorType, c: TensorType) -> Any:
    """A cotangent in the dtype that the operands are multiplied in."""
    dtype = promote(a.dtype, c.dtype)
    assert dtype is not None
    return in_dtype(b, value, dtype)


def _transposed(b: Builder, value: Any) -> Any:
    rank = b.type_of(value).rank
    return b.emit("transpose", value, axes=(*range(rank - 2), rank - 1, rank - 2))


def matmul(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """`ct @ bᵀ` or `aᵀ @ ct`, summed over batch axes that were broadcast; a vector is a matrix of one row or column."""
    left, right = operands
    a, c = _type(b, left), _type(b, right)
    value = _cotangent(b, cotangents[0], a, c)
    if a.rank == 1:
        value = expand(b, value, b.type_of(value).rank - (c.rank > 1))
    if c.rank == 1:
        value = expand(b, value, b.type_of(value).rank)
    if isinstance(left, Linear):
        other = right if c.rank > 1 else expand(b, right, 1)
        made = b.emit("matmul", value, _transposed(b, other), accumulate=attributes["accumulate"], dtype=a.dtype)
        shape = a.shape if a.rank > 1 else (b.type_of(made).shape[-2], *a.shape)
        made = unbroadcast(b, made, shape)
        return (made if a.rank > 1 else b.emit("reshape", made, shape=a.shape), None)
    other = left if a.rank > 1 else expand(b, left, 0)
    made = b.emit("matmul", _transposed(b, other), value, accumulate=attributes["accumulate"], dtype=c.dtype)
    shape = c.shape if c.rank > 1 else (*c.shape, b.type_of(made).shape[-1])
    made = unbroadcast(b, made, shape)
    return (None, made if c.rank > 1 else b.emit("reshape", made, shape=c.shape))


def dot_general(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The result is [batch, free axes of the left, free axes of the right]."""
    left, right = operands
    a, c = _type(b, left), _type(b, right)
    value = _cotangent(b, cotangents[0], a, c)
    names = ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract")
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = (axes_attribute(attributes, name) for name in names)
    is_left = isinstance(left, Linear)
    own, own_batch, own_contract = (a, lhs_batch, lhs_contract) if is_left else (c, rhs_batch, rhs_contract)
    other, other_batch, other_contract = (
        (right, rhs_batch, rhs_contract) if is_left else (left, lhs_batch, lhs_contract)
    )
    own_free = [axis for axis in range(own.rank) if axis not in (*own_batch, *own_contract)]
    kind = _type(b, other)
    other_free = [axis for axis in range(kind.rank) if axis not in (*other_batch, *other_contract)]
    batch, lhs_free = len(own_batch), a.rank - len(lhs_batch) - len(lhs_contract)
    # The axes of the cotangent that are free axes of the other operand.
    shared = range(batch + lhs_free, batch + lhs_free + len(other_free)) if is_left else range(batch, batch + lhs_free)
    made = b.emit(
        "dot_general", value, other, lhs_batch=tuple(range(batch)), rhs_batch=other_batch,
        lhs_contract=tuple(shared), rhs_contract=tuple(other_free),
        accumulate=attributes["accumulate"], dtype=own.dtype,
    )  # fmt: skip
    # It is [batch, own free axes, contracted axes in the order of the other operand].
    partners = dict(zip(other_contract, own_contract, strict=True))
    order = [*own_batch, *own_free, *(partners[axis] for axis in sorted(other_contract))]
    made = b.emit("transpose", made, axes=tuple(order.index(axis) for axis in range(own.rank)))
    return (made, None) if is_left else (None, made)
