"""Compute contractions beside collectives in chunks, so that ranks exchange one chunk while they compute another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.build import Build, tensor_value
from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.effects import ops_inside
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import carried_policy
from tessera.ir.graph.building import slice_axis
from tessera.ir.graph.collective_chunks import CHUNKS, ChunkedContraction, Rows, find_chunks
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

KNOB = "collectives.chunks"


@frozen
class ChunkCollectiveMatmuls(Pass):
    """Split a contraction and the collectives at its rows into chunks: RS_MM_AG, and each part of it.

    Before: `%g = tgraph.all_gather %x {dim = 0}`, `%y = tgraph.matmul %g, %w`, `%z = tgraph.reduce_scatter %y {dim =
    0}`. After, with two chunks: the same for both halves of the rows of each rank, and `%z` their concatenation. The
    schedule then runs the matmul of a chunk while the other's bytes are under way. What may be split: an all_gather or
    reduce_scatter in front along rows or columns that are not contracted, and a reduce_scatter, all_gather or
    all_reduce behind. Every element is the same contraction, in the same segments of K, and the same reduction in rank
    order, so no bit changes. Of how many chunks is the choice `collectives.chunks`; 1 leaves a contraction as it is.
    `count` is what there is where nobody chooses.
    """

    chooser: Chooser = field(default_factory=StaticChooser)
    count: int = 0

    def run(self, module: ModuleOp) -> None:
        found = [op for op in ops_inside(module) if isinstance(op, SpecOp) and "accumulate" in op.kinds]
        rewriter = _Rewriter(StaticChooser({KNOB: self.count}) if self.count else self.chooser)
        for op in found:
            if op.parent is not None:
                rewriter.apply(op)
        rewriter.finish()


@frozen
class _Pieces:
    """A value in chunks of the rows of an axis."""

    values: tuple[SSAValue, ...]
    axis: int
    rows: Rows


class _Rewriter:
    """Rewrites contractions in order; what collectives gave in chunks is known by its value to those behind."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser, self.count = chooser, 0
        self.known: dict[SSAValue, _Pieces] = {}
        self.replaced: list[SpecOp] = []

    def apply(self, op: SpecOp) -> None:
        """Split one contraction where that pays."""
        found = find_chunks(op, self._ranks_of)
        if found is None:
            return
        if found.source is not None and found.source.op is None:
            count = len(self.known[op.operands[found.source.operand]].values)
        else:
            name, self.count = f"{KNOB}@{self.count}", self.count + 1
            most = int(self.chooser.choose(name, CHUNKS, {"overlap": found.facts}).value)
            count = next(one for one in range(most, 0, -1) if found.rows.local % one == 0)
        if count > 1 and found.rows.local % count == 0:
            self._split(op, found, count)

    def _ranks_of(self, value: SSAValue) -> tuple[int, int] | None:
        """The axis and ranks of a value that is known in chunks."""
        held = self.known.get(value)
        return None if held is None else (held.axis, held.rows.ranks)

    def _split(self, op: SpecOp, found: ChunkedContraction, count: int) -> None:
        target, source = found.target, found.source
        if source is not None and source.op is not None:
            self._split_source(source.op, count)
        assert op.parent is not None
        build = Build(op.parent, op if target is None else target, op.span, promises=carried_policy(op))
        parts = [self._parts_of(build, op, found, number, count) for number in range(len(op.operands))]
        made = [_emit_like(build, op, own) for own in zip(*parts, strict=True)]
        old = op if target is None else target
        pieces = made if target is None else [_emit_like(build, target, [one]) for one in made]
        joined = _join(build, pieces, found.axis, found.after)
        if target is not None:  # what is chunks of a collective is read as such by contractions behind
            self.known[joined] = _Pieces(tuple(pieces), found.axis, found.after)
        old.results[0].replace_all_uses_with(joined)
        self.replaced += [op] if target is None else [op, target]

    def _split_source(self, source: SpecOp, count: int) -> None:
        """The collective in front in chunks, where it stands; others read what is put together of them."""
        assert source.parent is not None
        build = Build(source.parent, source, source.span, promises=carried_policy(source))
        (value,), ranks = source.operands, int(source.value("size")[0].value)
        is_gathered = source.spec.short_name == "all_gather"
        own = tensor_value(value if is_gathered else source.results[0])
        axis = int(source.value("dim")) % own.rank
        local = own.shape[axis].value or 0
        before, after = Rows(1 if is_gathered else ranks, local), Rows(ranks if is_gathered else 1, local)
        pieces = [_emit_like(build, source, [_take(build, value, axis, before, at, count)]) for at in range(count)]
        joined = _join(build, pieces, axis, after)
        source.results[0].replace_all_uses_with(joined)
        self.known[joined] = _Pieces(tuple(pieces), axis, after)
        self.replaced.append(source)

    def _parts_of(self, build: Build, op: SpecOp, found: ChunkedContraction, number: int, count: int) -> list[SSAValue]:
        """An operand for each chunk: what came in chunks, rows of what did not, or all of it."""
        value, axis = op.operands[number], found.axes[number]
        if found.source is not None and found.source.operand == number:
            return list(self.known[value].values)
        if axis is None:
            return [value] * count
        return [_take(build, value, axis, found.rows, at, count) for at in range(count)]

    def finish(self) -> None:
        """Remove what was replaced, and what nobody put together in the end."""
        for op in reversed(self.replaced):
            if op.parent is not None and not any(result.uses for result in op.results):
                op.detach()
                op.erase()


def _emit_like(build: Build, op: SpecOp, operands: Sequence[SSAValue]) -> SSAValue:
    """The same op on other operands; segments of K are those of the whole."""
    values: Mapping[str, Any] = op.values()
    return build.emit(op.name, *operands, **values)


def _take(build: Build, value: SSAValue, axis: int, rows: Rows, at: int, count: int) -> Any:
    """Chunk `at` of the rows of every rank."""
    part = rows.local // count
    if rows.ranks == 1:
        return slice_axis(build, value, axis, at * part, (at + 1) * part)
    shape = tensor_value(value).shape
    apart = (*shape[:axis], Dim.constant(rows.ranks), Dim.constant(rows.local), *shape[axis + 1 :])
    cut = slice_axis(build, build.emit("reshape", value, shape=apart), axis + 1, at * part, (at + 1) * part)
    return build.emit("reshape", cut, shape=(*shape[:axis], Dim.constant(rows.ranks * part), *shape[axis + 1 :]))


def _join(build: Build, pieces: Sequence[SSAValue], axis: int, rows: Rows) -> Any:
    """The whole of chunks of the rows of every rank."""
    if rows.ranks == 1:
        return build.emit("concat", *pieces, axis=axis)
    shape = tensor_value(pieces[0]).shape
    part = Dim.constant(rows.local // len(pieces))
    apart = (*shape[:axis], Dim.constant(rows.ranks), part, *shape[axis + 1 :])
    joined = build.emit("concat", *(build.emit("reshape", one, shape=apart) for one in pieces), axis=axis + 1)
    whole = (*shape[:axis], Dim.constant(rows.ranks * rows.local), *shape[axis + 1 :])
    return build.emit("reshape", joined, shape=whole)
