"""Take collectives apart into what moves bytes between ranks and what computes, so that folds are kernels like any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.build import Build
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import Pattern, Rewriter, rewrite
from tessera.ir.graph.building import cast, part, restated, widened
from tessera.ir.graph.passes.canonicalize import put_instead
from tessera.types.dim import Dim

_FOLDS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
_ONE = Dim.constant(1)

MOST_GATHERED = 1 << 18
"""Bytes of a sum that every rank gathers from all; of more, each of several ranks folds a share."""


@dataclass(frozen=True)
class SplitCollectives(Pass):
    """Leave only collectives that put the bytes of ranks one after the other: the rest are views and folds around them.

    Before: `%y = tgraph.all_reduce %x {size = [2]}`. After: `%g = tgraph.all_gather` of `%x` with an axis of ranks in
    front, for the purpose "`all_reduce` (sum)", and `%y` the sum of its slices, rank 0 first: narrow floats are widened
    before it, and rounded once at its end. Many bytes of many ranks are cut instead: each rank folds a share, by the
    same rule, and all gather them. A collective of one rank stays as it is, for it moves nothing.
    """

    def run(self, module: ModuleOp) -> None:
        rewrite(module, _patterns)


def _patterns(op: SpecOp) -> Sequence[Pattern]:
    return (_split,) if op.name in _WAYS and _is_split(op) else ()


def _is_split(op: SpecOp) -> bool:
    """Whether there is something to take apart: it has several ranks, and is not yet a plain move of bytes."""
    if op.value("size")[0].value == 1:
        return False
    if op.name == "tgraph.all_gather":
        return op.value("dim") != 0
    return op.name != "tgraph.all_to_all" or (op.value("split"), op.value("concat")) != (0, 0)


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
    moved = _Moved(build, {**mesh, "purpose": attributes.get("purpose") or _purpose(op, attributes)}, ranks)
    found = _WAYS[op.name](moved, op.operands[0], attributes)
    put_instead(op, restated(build, found, build.type_of(op.results[0]).shape), build, rewriter)
    return True


def _purpose(op: SpecOp, attributes: Mapping[str, Any]) -> str:
    """What ranks compare beside the bytes: two folds that move the same ones are not the same collective."""
    facts = [str(attributes["op"])] if "op" in attributes else []
    facts += [f"{name} {attributes[name]}" for name in ("dim", "split", "concat") if attributes.get(name)]
    return f"`{op.spec.short_name}`" + (f" ({', '.join(facts)})" if facts else "")


@dataclass(frozen=True)
class _Moved:
    """What writes the pieces: where to, along which axis of the mesh, for what, among how many ranks."""

    build: Build
    mesh: dict[str, Any]
    ranks: int

    def all_reduce(self, x: Any, attributes: Any) -> Any:
        if not self._is_shared(x):
            return self._folded(self._gathered(x), attributes["op"])
        shape, build = self._shape(x), self.build
        row = build.emit("reshape", x, shape=(build.type_of(x).size,))
        share = self._folded(self._exchanged(row, 0), attributes["op"])
        return build.emit("reshape", self._gathered(share), shape=shape)

    def _is_shared(self, x: Any) -> bool:
        """Whether each rank folds a share, and all gather them: fewer bytes, for one more meeting."""
        type = self.build.type_of(x)
        count, size = type.size.value, type.bytes.value
        return self.ranks > 2 and count is not None and count % self.ranks == 0 and (size or 0) > MOST_GATHERED

    def all_gather(self, x: Any, attributes: Any) -> Any:
        return self._joined(self._gathered(x), attributes["dim"] % len(self._shape(x)))

    def reduce_scatter(self, x: Any, attributes: Any) -> Any:
        return self._folded(self._exchanged(x, attributes["dim"] % len(self._shape(x))), attributes["op"])

    def all_to_all(self, x: Any, attributes: Any) -> Any:
        rank = len(self._shape(x))
        return self._joined(self._exchanged(x, attributes["split"] % rank), attributes["concat"] % rank)

    def _shape(self, x: Any) -> tuple[Dim, ...]:
        return tuple(self.build.type_of(x).shape)

    def _gathered(self, x: Any) -> Any:
        """`x` of all ranks along a new first axis."""
        row = self.build.emit("reshape", x, shape=(_ONE, *self._shape(x)))
        return self.build.emit("all_gather", row, dim=0, **self.mesh)

    def _exchanged(self, x: Any, axis: int) -> Any:
        """The part that each rank has for this one, along a new first axis: the axis is cut, and the cut goes ahead."""
        shape, build = self._shape(x), self.build
        share = shape[axis] // Dim.constant(self.ranks)
        cut = build.emit("reshape", x, shape=(*shape[:axis], Dim.constant(self.ranks), share, *shape[axis + 1 :]))
        order = (axis, *(at for at in range(len(shape) + 1) if at != axis))
        ahead = build.emit("transpose", cut, axes=order) if axis else cut
        return build.emit("all_to_all", ahead, split=0, concat=0, **self.mesh)

    def _joined(self, parts: Any, axis: int) -> Any:
        """Parts along the first axis, one after the other along another."""
        shape, build = self._shape(parts), self.build
        order = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
        placed = build.emit("transpose", parts, axes=order) if axis else parts
        whole = (*shape[1 : axis + 1], shape[0] * shape[axis + 1], *shape[axis + 2 :])
        return build.emit("reshape", placed, shape=whole)

    def _folded(self, parts: Any, op: str) -> Any:
        """The first axis folded in its order."""
        build, dtype = self.build, self.build.type_of(parts).dtype
        shape = self._shape(parts)[1:]
        rows = [part(build, parts, 0, at, at + 1) for at in range(self.ranks)]
        total, *others = [widened(build, build.emit("reshape", row, shape=shape)) for row in rows]
        for other in others:
            total = build.emit(_FOLDS[op], total, other)
        return cast(build, total, dtype)


_WAYS: dict[str, Callable[[_Moved, Any, Any], Any]] = {
    "tgraph.all_reduce": _Moved.all_reduce,
    "tgraph.all_gather": _Moved.all_gather,
    "tgraph.reduce_scatter": _Moved.reduce_scatter,
    "tgraph.all_to_all": _Moved.all_to_all,
}
