"""Transposes of contractions and convolutions, which are linear in each operand: each is one with the other operand."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import axes_attribute, cast, expand, restate
from tessera.ir.graph.derivatives.shared import Linear, Values, unbroadcast
from tessera.ir.graph.ops.transposed_convolution import transpose_windows
from tessera.types.dim import product
from tessera.types.promotion import promote
from tessera.types.shape import TensorType


def _type(b: Builder, operand: Any) -> TensorType:
    return operand.type if isinstance(operand, Linear) else b.type_of(operand)


def _cotangent(b: Builder, value: Any, a: TensorType, c: TensorType) -> Any:
    """A cotangent in the dtype that the operands are multiplied in."""
    dtype = promote(a.dtype, c.dtype)
    assert dtype is not None
    return cast(b, value, dtype)


def _transpose_last(b: Builder, value: Any) -> Any:
    rank = b.type_of(value).rank
    return b.emit("transpose", value, axes=(*range(rank - 2), rank - 1, rank - 2))


def _join_rows(b: Builder, value: Any) -> Any:
    """Matrices of several batches as one, with the rows of all."""
    shape = b.type_of(value).shape
    return b.emit("reshape", value, shape=(product(shape[:-1]), shape[-1]))


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
        made = b.emit("matmul", value, _transpose_last(b, other), accumulate=attributes["accumulate"], dtype=a.dtype)
        shape = a.shape if a.rank > 1 else (b.type_of(made).shape[-2], *a.shape)
        made = unbroadcast(b, made, shape)
        return (made if a.rank > 1 else b.emit("reshape", made, shape=a.shape), None)
    other = left if a.rank > 1 else expand(b, left, 0)
    if a.rank > 2 and c.rank <= 2:
        # One matrix for all batches: their rows are one K, whose sum is rounded once.
        other, value = _join_rows(b, other), _join_rows(b, value)
    made = b.emit("matmul", _transpose_last(b, other), value, accumulate=attributes["accumulate"], dtype=c.dtype)
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


def ragged_dot(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """By rows it is one with transposed matrices, by matrices the outer products of each group."""
    x, w, offsets = operands
    a, c = _type(b, x), _type(b, w)
    value = _cotangent(b, cotangents[0], a, c)
    if isinstance(x, Linear):
        return (b.emit("ragged_dot", value, _transpose_last(b, w), offsets, dtype=a.dtype), None, None)
    return (None, b.emit("ragged_outer", x, value, offsets, dtype=c.dtype), None)


def ragged_outer(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """By either rows it is the product of the others with the matrices of their groups."""
    x, y, offsets = operands
    a, c = _type(b, x), _type(b, y)
    value = _cotangent(b, cotangents[0], a, c)
    if isinstance(x, Linear):
        return (b.emit("ragged_dot", y, _transpose_last(b, value), offsets, dtype=a.dtype), None, None)
    return (None, b.emit("ragged_dot", x, value, offsets, dtype=c.dtype), None)


def conv_windows(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """By the weights a sum over images and positions, by the image each cotangent goes to all of its window."""
    w, x = operands
    weights, image = _type(b, w), _type(b, x)
    value = _cotangent(b, cotangents[0], weights, image)
    if isinstance(x, Linear):
        return (None, transpose_windows(b, value, w, image, attributes))
    lead, rank = 3 if attributes["grouped"] else 2, weights.rank
    taps = weights.shape[lead - 1 : -1] if attributes["taps_first"] else weights.shape[lead:]
    made = b.emit(
        "conv_weights", value, x, taps=taps, **_window(attributes), accumulate=attributes["accumulate"],
        dtype=weights.dtype,
    )  # fmt: skip
    if attributes["taps_first"]:
        made = b.emit("transpose", made, axes=(*range(lead - 1), *range(lead, rank), lead - 1))
    return (restate(b, made, weights.shape), None)


def conv_weights(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """By the cotangents it is the convolution, by the image its transpose: the weights are what is given."""
    y, x = operands
    values, image = _type(b, y), _type(b, x)
    weights = _cotangent(b, cotangents[0], values, image)
    window = {**_window(attributes), "taps_first": False, "accumulate": attributes["accumulate"]}
    if isinstance(x, Linear):
        return (None, transpose_windows(b, y, weights, image, window))
    return (restate(b, b.emit("conv_windows", weights, x, **window, dtype=values.dtype), values.shape), None)


def _window(attributes: Attributes) -> dict[str, Any]:
    return {name: attributes[name] for name in ("stride", "dilation", "low", "high", "grouped")}
