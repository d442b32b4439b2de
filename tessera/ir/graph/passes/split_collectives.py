"""Split collectives into the exchange of bytes and the computation, so that reductions become ordinary kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.build import Build, Pattern, Rewriter, rewrite
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.graph.building import cast, constant, restate, slice_axis, widen
from tessera.ir.graph.passes.canonicalize import replace_results
from tessera.ir.graph.typed_ops import AllGatherOp, AllToAllOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

_REDUCTIONS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "mean": "add"}
_ONE = Dim.constant(1)

MOST_GATHERED = 1 << 18
"""Bytes of a sum that every rank gathers from all; of more, each rank reduces a part of it."""


class SplitCollectives(Pass):
    """Leave only collectives that concatenate the bytes of ranks: everything else becomes views and reductions.

    Before: `%y = tgraph.all_reduce %x {size = [2]}`. After: `%g = tgraph.all_gather` of `%x` with an axis of ranks in
    front, for the purpose "`all_reduce` (sum)", and `%y` the sum of its slices, rank 0 first: narrow floats are widened
    before it, and rounded once at its end; a mean divides before that. Large operands are scattered instead: each rank
    reduces a part, by the same rule, and all gather the parts. A collective of one rank stays as it is, for it moves
    nothing.
    """

    def run(self, module: ModuleOp) -> None:
        rewrite(module, _patterns)


def _patterns(op: SpecOp) -> Sequence[Pattern]:
    return (_split,) if op.name in _LOWERINGS and _is_split(op) else ()


def _is_split(op: SpecOp) -> bool:
    """Whether there is something to split: it has several ranks, and is not yet a plain exchange of bytes."""
    if op.value("size")[0].value == 1:
        return False
    if isinstance(op, AllGatherOp):
        return op.dim != 0
    return not isinstance(op, AllToAllOp) or (op.split, op.concat) != (0, 0)


def _split(op: SpecOp, rewriter: Rewriter) -> bool:
    build, attributes = rewriter.build(op), rule_attributes(op)
    ranks = attributes["size"][0].value
    if ranks is None:
        raise ScheduleError(
            f"`{op.spec.short_name}` over `{attributes['axis']}` has {attributes['size'][0]} ranks, a number that "
            "is not known while compiling",
            span=op.span,
            fix="give the axis of the mesh a size",
        )
    mesh = {name: attributes[name] for name in ("axis", "size")}
    exchange = _Exchange(build, {**mesh, "purpose": attributes.get("purpose") or _purpose(op, attributes)}, ranks)
    found = _LOWERINGS[op.name](exchange, op.operands[0], attributes)
    replace_results(op, restate(build, found, build.type_of(op.results[0]).shape), build, rewriter)
    return True


def _purpose(op: SpecOp, attributes: Mapping[str, Any]) -> str:
    """What ranks compare beside the bytes: two reductions that exchange the same ones are not the same collective."""
    facts = [str(attributes["op"])] if "op" in attributes else []
    facts += [f"{name} {attributes[name]}" for name in ("dim", "split", "concat") if attributes.get(name)]
    return f"`{op.spec.short_name}`" + (f" ({', '.join(facts)})" if facts else "")


@frozen
class _Exchange:
    """Builds the parts of a collective: where, along which mesh axis, for which purpose, among how many ranks."""

    build: Build
    mesh: dict[str, Any]
    ranks: int

    def all_reduce(self, x: Any, attributes: Any) -> Any:
        if not self._is_scattered(x):
            return self._reduce(self._gather(x), attributes["op"])
        shape, build = self._shape(x), self.build
        row = build.emit("reshape", x, shape=(build.type_of(x).size,))
        reduced = self._reduce(self._exchange(row, 0), attributes["op"])
        return build.emit("reshape", self._gather(reduced), shape=shape)

    def _is_scattered(self, x: Any) -> bool:
        """Whether each rank reduces a part, and all gather the parts: fewer bytes, for one more synchronization."""
        type = self.build.type_of(x)
        count, size = type.size.value, type.bytes.value
        return self.ranks > 2 and count is not None and count % self.ranks == 0 and (size or 0) > MOST_GATHERED

    def all_gather(self, x: Any, attributes: Any) -> Any:
        return self._join(self._gather(x), attributes["dim"] % len(self._shape(x)))

    def reduce_scatter(self, x: Any, attributes: Any) -> Any:
        return self._reduce(self._exchange(x, attributes["dim"] % len(self._shape(x))), attributes["op"])

    def all_to_all(self, x: Any, attributes: Any) -> Any:
        rank = len(self._shape(x))
        return self._join(self._exchange(x, attributes["split"] % rank), attributes["concat"] % rank)

    def _shape(self, x: Any) -> tuple[Dim, ...]:
        return tuple(self.build.type_of(x).shape)

    def _gather(self, x: Any) -> Any:
        """`x` of all ranks along a new first axis."""
        row = self.build.emit("reshape", x, shape=(_ONE, *self._shape(x)))
        return self.build.emit("all_gather", row, dim=0, **self.mesh)

    def _exchange(self, x: Any, axis: int) -> Any:
        """The part that each rank has for this one, along a new first axis, to which the parts of `axis` move."""
        shape, build = self._shape(x), self.build
        size = shape[axis] // Dim.constant(self.ranks)
        split = build.emit("reshape", x, shape=(*shape[:axis], Dim.constant(self.ranks), size, *shape[axis + 1 :]))
        order = (axis, *(at for at in range(len(shape) + 1) if at != axis))
        moved = build.emit("transpose", split, axes=order) if axis else split
        return build.emit("all_to_all", moved, split=0, concat=0, **self.mesh)

    def _join(self, parts: Any, axis: int) -> Any:
        """Parts along the first axis, concatenated along another."""
        shape, build = self._shape(parts), self.build
        order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
        moved = build.emit("transpose", parts, axes=order) if axis else parts
        whole = (*shape[1 : axis + 1], shape[0] * shape[axis + 1], *shape[axis + 2 :])
        return build.emit("reshape", moved, shape=whole)

    def _reduce(self, parts: Any, op: str) -> Any:
        """The first axis reduced, in its order."""
        build, dtype = self.build, self.build.type_of(parts).dtype
        shape = self._shape(parts)[1:]
        rows = [slice_axis(build, parts, 0, at, at + 1) for at in range(self.ranks)]
        total, *others = [widen(build, build.emit("reshape", row, shape=shape)) for row in rows]
        for other in others:
            total = build.emit(_REDUCTIONS[op], total, other)
        if op == "mean":
            total = build.emit("div", total, constant(build, float(self.ranks), build.type_of(total).dtype))
        return cast(build, total, dtype)


_LOWERINGS: dict[str, Callable[[_Exchange, Any, Any], Any]] = {
    "tgraph.all_reduce": _Exchange.all_reduce,
    "tgraph.all_gather": _Exchange.all_gather,
    "tgraph.reduce_scatter": _Exchange.reduce_scatter,
    "tgraph.all_to_all": _Exchange.all_to_all,
}
