"""Transposes of ops that move elements, which are all linear: views, slices, pads, joins, and collectives.

A program is that of one rank, and the loss is the sum of those of all ranks: what goes from one rank to all comes back
as a sum over all.
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import axes_attribute, constant, dilate, expand, restate, size_value, slice_axis
from tessera.ir.graph.derivatives.shared import Applied, Linear, Values, linear_type, mask, unbroadcast, zeros
from tessera.types import dtype as dt
from tessera.types.dim import Dim, maximum
from tessera.types.shape import ONE, ZERO


def reshape(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Also of `expand_dims` and `squeeze`."""
    return (b.emit("reshape", cotangents[0], shape=linear_type(operands[0]).shape),)


expand_dims = squeeze = reshape


def transpose(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The inverse permutation."""
    axes = axes_attribute(attributes, "axes")
    inverse = tuple(axes.index(axis) for axis in range(len(axes)))
    return (b.emit("transpose", cotangents[0], axes=inverse),)


def broadcast_to(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The sum over the copies."""
    return (unbroadcast(b, cotangents[0], linear_type(operands[0]).shape),)


def slice(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Zeros around, and between the elements of a slice with steps."""
    (value,), x = cotangents, linear_type(operands[0])
    start, step = (tuple(attributes[name]) for name in ("start", "step"))
    low, high = [ZERO] * x.rank, [ZERO] * x.rank
    for axis, by in enumerate(step):
        extent = b.type_of(value).shape[axis]
        first = start[axis]
        if by < 0:
            # The same elements from the last to the first.
            value = b.emit("flip", value, axes=(axis,))
            first = first + (extent - 1) * by
        if extent.value == 0:
            low[axis], high[axis] = ZERO, x.shape[axis]
            continue
        value = dilate(b, value, axis, abs(by))
        # Of a dim that is only guarded to be large enough, nobody can prove that these are no less than 0.
        low[axis] = maximum(first, ZERO)
        high[axis] = maximum(x.shape[axis] - first - b.type_of(value).shape[axis], ZERO)
    return (restate(b, b.emit("pad", value, low=tuple(low), high=tuple(high)), x.shape),)


def pad_jvp(b: Builder, op: Applied) -> Any:
    """The tangent with zeros around it, whatever the value is padded with."""
    return b.emit("pad", op.tangents[0], low=op.attributes["low"], high=op.attributes["high"])


def pad(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """What is not padding."""
    x, low = linear_type(operands[0]), tuple(map(Dim.of, attributes["low"]))
    stop = tuple(first + dim for first, dim in zip(low, x.shape, strict=True))
    return (b.emit("slice", cotangents[0], start=low, stop=stop, step=(1,) * x.rank),)


def concat(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The part of each operand."""
    axis, at, made = int(attributes["axis"]), ZERO, list[Any]()
    for operand in operands:
        extent = (operand.type if isinstance(operand, Linear) else b.type_of(operand)).shape[axis]
        is_linear = isinstance(operand, Linear)
        part = slice_axis(b, cotangents[0], axis, at, at + extent) if is_linear else None
        made.append(restate(b, part, operand.type.shape) if is_linear else None)
        at = at + extent
    return made


def stack(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The row of each operand."""
    axis, made = int(attributes["axis"]), list[Any]()
    for at, operand in enumerate(operands):
        if not isinstance(operand, Linear):
            made.append(None)
            continue
        row = slice_axis(b, cotangents[0], axis, at, at + 1)
        made.append(b.emit("reshape", row, shape=operand.type.shape))
    return made


def split(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The parts joined, zeros for those without a cotangent."""
    x, axis = linear_type(operands[0]), int(attributes["axis"])
    parts: list[Any] = []
    for value, size in zip(cotangents, attributes["sizes"], strict=True):
        shape = (*x.shape[:axis], Dim.of(size), *x.shape[axis + 1 :])
        parts.append(zeros(b, x.with_shape(shape)) if value is None else value)
    return (restate(b, b.emit("concat", *parts, axis=axis), x.shape),)


def prefetch(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent as it is."""
    return (cotangents[0],)


def shard(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """A cotangent is sharded as its value is."""
    return (b.emit("shard", cotangents[0], sharding=attributes["sharding"]),)


def flip(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The same order reversed again."""
    return (b.emit("flip", cotangents[0], axes=attributes["axes"]),)


def roll(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The way back."""
    back = tuple(-shift for shift in axes_attribute(attributes, "shifts"))
    return (b.emit("roll", cotangents[0], shifts=back, axes=attributes["axes"]),)


def tile(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The sum over the copies."""
    x, reps = linear_type(operands[0]), axes_attribute(attributes, "reps")
    shape = (*(ONE for _ in range(len(reps) - x.rank)), *x.shape)
    split_up: list[Dim] = []
    for count, dim in zip((*(1 for _ in range(len(shape) - len(reps))), *reps), shape, strict=True):
        split_up += [Dim.of(count), dim]
    spread = b.emit("reshape", cotangents[0], shape=tuple(split_up))
    total = b.emit("sum", spread, axes=tuple(range(0, len(split_up), 2)), keepdims=False)
    return (b.emit("reshape", total, shape=x.shape),)


def repeat(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The sum over the copies of each element."""
    x, axis, count = linear_type(operands[0]), int(attributes["axis"]), int(attributes["repeats"])
    shape = (*x.shape[: axis + 1], Dim.of(count), *x.shape[axis + 1 :])
    spread = b.emit("reshape", cotangents[0], shape=shape)
    return (b.emit("sum", spread, axes=(axis + 1,), keepdims=False),)


def triangle(name: str) -> Any:
    """Of `tril` and `triu`: the same elements are kept."""

    def rule(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
        return (b.emit(name, cotangents[0], **attributes),)

    return rule


tril, triu = triangle("tril"), triangle("triu")


def diagonal(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The cotangent on the diagonal of zeros: the axis that is kept stands where the first of the two stood."""
    x = linear_type(operands[0])
    first, second = sorted(int(attributes[name]) % x.rank for name in ("axis1", "axis2"))
    column = expand(b, cotangents[0], second)
    on = b.emit("eye", shape=(x.shape[first], x.shape[second]), dtype=dt.bool_)
    shape = tuple(dim if axis in (first, second) else ONE for axis, dim in enumerate(x.shape))
    placed = b.emit("where", b.emit("reshape", on, shape=shape), column, constant(b, 0.0, x.dtype))
    return (restate(b, placed, x.shape),)


LINEAR = ("sum", "mean")


def _mesh(attributes: Attributes) -> dict[str, Any]:
    return {"axis": attributes["axis"], "size": attributes["size"]}


def reduce_jvp(b: Builder, op: Applied) -> Any:
    """Sums and means are linear; of `max` and `min` the ranks that have it share it; a product has no rule."""
    kind = op.attributes["op"]
    if kind in LINEAR:
        return b.emit(op.spec.short_name, op.tangents[0], **op.attributes)
    if kind in ("max", "min") and op.spec.short_name == "all_reduce":
        dtype = b.type_of(op.operands[0]).dtype
        mine = mask(b, b.emit("eq", op.operands[0], op.results[0]), dtype)
        count = b.emit("all_reduce", mine, **_mesh(op.attributes))
        total = b.emit("all_reduce", b.emit("mul", op.tangents[0], mine), **_mesh(op.attributes))
        return b.emit("div", total, count)
    raise DifferentiationError(
        f"`{op.spec.short_name}` with `{kind}` has no derivative",
        span=getattr(b, "span", None),
        fix="reduce by `sum` or `mean`",
    )


def all_reduce(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The same reduction of the cotangents."""
    return (b.emit("all_reduce", cotangents[0], **attributes),)


def all_gather(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Each rank sums what all ranks have for its part."""
    return (b.emit("reduce_scatter", cotangents[0], **_mesh(attributes), dim=attributes["dim"]),)


def reduce_scatter(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """Each part goes back to all ranks; a mean divides, by the number of ranks, what a sum would give."""
    value = b.emit("all_gather", cotangents[0], **_mesh(attributes), dim=attributes["dim"])
    if attributes["op"] == "mean":
        (size,) = attributes["size"]
        value = b.emit("div", value, size_value(b, size, b.type_of(value).dtype))
    return (value,)


def all_to_all(b: Builder, cotangents: Values, operands: Values, attributes: Attributes) -> Any:
    """The parts go back where they came from."""
    back = {"split": attributes["concat"], "concat": attributes["split"], "purpose": attributes["purpose"]}
    return (b.emit("all_to_all", cotangents[0], **_mesh(attributes), **back),)
