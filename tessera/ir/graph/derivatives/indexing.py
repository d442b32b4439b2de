"""Derivatives of reads and writes by index: a read becomes a sum into zeros, a write becomes a read.

Rules are those of the ops that take legal indices, into which the others are decomposed: which index is out of bounds,
and what becomes of it, is settled there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import constant, size_value
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, add_all, linear_type, mask, zeros
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import ONE, TensorType

# Reads.


def index_legal(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Each cotangent added to the element it was read from; one that was read from nowhere goes nowhere."""
    x, indices = linear_type(operands[0]), operands[1:]
    place = {"axes": attributes["axes"], "out_axis": attributes["out_axis"]}
    extents = [x.shape[int(axis)] for axis in attributes["axes"]]
    given = _behind(b, indices, extents) if attributes["masked"] else indices
    made = b.emit("index_put", zeros(b, x), cotangents[0], *given, **place, reduce="add", mode="drop")
    return (made, *(None for _ in indices))


def slice_legal(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent where it was read from, and zero around it."""
    none, starts = zeros(b, linear_type(operands[0])), operands[1:]
    made = b.emit("slice_write", none, cotangents[0], *starts, axes=attributes["axes"])
    return (made, *(None for _ in starts))


def slice_write_jvp(b: Builder, op: Applied) -> Any:
    """The same slice of both tangents."""
    given = [
        zeros(b, b.type_of(one)) if t is None else t for one, t in zip(op.operands[:2], op.tangents[:2], strict=True)
    ]
    return b.emit("slice_write", *given, *op.operands[2:], axes=op.attributes["axes"])


def slice_write(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """What was written over has no part in the result; the update is where it was written."""
    (value,), (x, update, *starts) = cotangents, operands
    axes: tuple[int, ...] = tuple(attributes["axes"])
    kind: TensorType = update.type if isinstance(update, Linear) else b.type_of(update)
    made = b.emit("slice_write", value, zeros(b, kind), *starts, axes=axes) if isinstance(x, Linear) else None
    lengths = tuple(kind.shape[axis] for axis in axes)
    read = b.emit("slice_legal", value, *starts, axes=axes, lengths=lengths) if isinstance(update, Linear) else None
    return (made, read, *(None for _ in starts))


def _behind(b: Builder, indices: Values, extents: Sequence[Dim]) -> list[Any]:
    """Indices of which those below 0, which count from the end elsewhere, are past the end: they read nothing."""
    made: list[Any] = []
    for index, extent in zip(indices, extents, strict=True):
        wide = index if b.type_of(index).dtype is dt.i64 else b.emit("cast", index, dtype=dt.i64)
        is_before = b.emit("lt", wide, constant(b, 0, dt.i64))
        made.append(b.emit("where", is_before, size_value(b, extent), wide))
    return made


def take_along(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """As `index_legal`, with the position along all other axes spelled out."""
    x, indices = linear_type(operands[0]), operands[1]
    shape, dtype = b.type_of(cotangents[0]).shape, b.type_of(indices).dtype
    axis = int(attributes["axis"]) % x.rank
    places: list[Any] = []
    for own, dim in enumerate(x.shape):
        if own == axis:
            places.append(b.emit("broadcast_to", indices, shape=shape))
        elif dim.value == 1:
            places.append(b.emit("full", shape=shape, value=0, dtype=dtype))
        else:
            places.append(b.emit("iota", shape=shape, axis=own, dtype=dtype))
    if attributes["masked"]:
        (places[axis],) = _behind(b, [places[axis]], [x.shape[axis]])
    given = {"axes": tuple(range(x.rank)), "out_axis": 0, "reduce": "add", "mode": "drop"}
    return (b.emit("index_put", zeros(b, x), cotangents[0], *places, **given), None)


def sort_jvp(b: Builder, op: Applied) -> Any:
    """The tangents in the order of the values."""
    return (b.emit("take_along_legal", op.tangents[0], op.results[1], axis=-1), None)


# Writes: x[:, indices[i]] = updates[:, i], and the like.


def _read(b: Builder, x: Any, indices: Values, attributes: Attributes) -> Any:
    """What a tensor has where the updates go; zero for one that goes nowhere."""
    axes = tuple(range(1, 1 + len(indices)))
    return b.emit("index_legal", x, *indices, axes=axes, out_axis=1, masked=bool(attributes["drops"]))


def _write(b: Builder, x: Any, updates: Any, indices: Values, attributes: Attributes, mode: str) -> Any:
    return b.emit("scatter_rows", x, updates, *indices, mode=mode, drops=attributes["drops"])


def write_jvp(b: Builder, op: Applied) -> Any:
    """`set` and `add` are linear; of `max` and `min` all that are it have equal parts; a product has its others."""
    x, updates, *indices = op.operands
    mode = op.attributes["mode"]
    if mode in ("set", "add"):
        given = [
            zeros(b, b.type_of(one)) if t is None else t for one, t in zip((x, updates), op.tangents, strict=False)
        ]
        return b.emit("scatter_rows", *given, *indices, **{**op.attributes, "in_place": False})
    weigh = _extremum_weights if mode in ("max", "min") else _factor_weights
    own, others = weigh(b, x, updates, indices, op.results[0], op.attributes)
    parts: list[Any] = []
    if op.tangents[0] is not None:
        parts.append(b.emit("mul", op.tangents[0], own))
    if op.tangents[1] is not None:
        start = zeros(b, b.type_of(x))
        parts.append(_write(b, start, b.emit("mul", op.tangents[1], others), indices, op.attributes, "add"))
    return add_all(b, parts)


def _extremum_weights(b: Builder, x: Any, updates: Any, indices: Values, result: Any, attributes: Attributes) -> Any:
    dtype = b.type_of(x).dtype
    own = mask(b, b.emit("eq", x, result), dtype)
    others = mask(b, b.emit("eq", updates, _read(b, result, indices, attributes)), dtype)
    count = _write(b, own, others, indices, attributes, "add")
    share = b.emit("div", constant(b, 1.0, dtype), count)
    return b.emit("mul", own, share), b.emit("mul", others, _read(b, share, indices, attributes))


def _factor_weights(b: Builder, x: Any, updates: Any, indices: Values, result: Any, attributes: Attributes) -> Any:
    """The product of all other factors of a cell, from that of its factors that are not 0 and how many are 0."""
    dtype = b.type_of(x).dtype
    one, none = constant(b, 1.0, dtype), constant(b, 0.0, dtype)
    empty = [b.emit("eq", value, none) for value in (x, updates)]
    filled = [b.emit("where", is_zero, one, value) for is_zero, value in zip(empty, (x, updates), strict=True)]
    whole = _write(b, filled[0], filled[1], indices, attributes, "mul")
    zero_count = _write(b, mask(b, empty[0], dtype), mask(b, empty[1], dtype), indices, attributes, "add")

    def multiply_others(is_zero: Any, value: Any, total: Any, count: Any) -> Any:
        divided = b.emit("where", b.emit("eq", count, none), b.emit("div", total, value), none)
        return b.emit("where", is_zero, b.emit("where", b.emit("eq", count, one), total, none), divided)

    own = multiply_others(empty[0], filled[0], whole, zero_count)
    there = (_read(b, whole, indices, attributes), _read(b, zero_count, indices, attributes))
    return own, multiply_others(empty[1], filled[1], *there)


def write(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """What was written is read; with `set` an element that was written over has no part in the result."""
    (value,), (x, updates, *indices) = cotangents, operands
    is_set = attributes["mode"] == "set"
    made_x, made_updates = None, None
    if isinstance(x, Linear):
        made_x = value
        if is_set:
            type = updates.type if isinstance(updates, Linear) else b.type_of(updates)
            made_x = _write(b, value, zeros(b, type), indices, attributes, "set")
    if isinstance(updates, Linear):
        made_updates = _read(b, value, indices, attributes)
        if is_set:
            made_updates = _keep_last(b, made_updates, indices, b.type_of(value), attributes)
    return (made_x, made_updates, *(None for _ in indices))


def _keep_last(b: Builder, read: Any, indices: Values, x: TensorType, attributes: Attributes) -> Any:
    """Zero for an update that a later one of the same element wrote over.

    The updates are numbered, the numbers written, and those that are still there are the last ones.
    """
    count = b.type_of(indices[0]).shape[0]
    numbers = b.emit("iota", shape=(ONE, count, ONE), axis=1, dtype=dt.i64)
    extents = x.shape[1 : 1 + len(indices)]
    start = b.emit("full", shape=(ONE, *extents, ONE), value=-1, dtype=dt.i64)
    written = _write(b, start, numbers, indices, attributes, "set")
    is_last = b.emit("eq", _read(b, written, indices, attributes), numbers)
    return b.emit("where", is_last, read, constant(b, 0.0, b.type_of(read).dtype))
