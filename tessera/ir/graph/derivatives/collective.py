"""Derivatives of collectives: the adjoint of a collective is a collective over the same ranks.

A program is that of one rank, and the loss is the sum of those of all ranks: what goes from one rank to all comes back
as a sum over all.
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.spec import Attributes, Builder
from tessera.ir.graph.building import size_value
from tessera.ir.graph.derivatives.shared import Values, mask
from tessera.ir.graph.transforms.facets import Applied

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
