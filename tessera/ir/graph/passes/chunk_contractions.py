"""Compute large products, and what is reduced or contracted from them, in chunks of rows, one after the other."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.build import Build, is_removable, region_of, tensor_value
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import policies_of
from tessera.ir.base.spec import Builder
from tessera.ir.base.tape import Tape
from tessera.ir.base.types import attribute_of
from tessera.ir.graph.building import slice_axis
from tessera.ir.graph.chunk_plan import ChunkPlan, Loop, best_plan, large_contractions, resolve, size_of
from tessera.ir.graph.cut_axes import BARRIER, cut_attributes, cut_axes
from tessera.ir.graph.passes.rematerialize import KEPT, line_of
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types.device import DEVICE
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT
from tessera.types.shape import ZERO

CHUNKED = "tessera.chunked"
"""An attribute of a function: a line for each product that is computed in chunks."""

LIMIT = 1 << 31
"""Bytes of a product from which on it is computed in chunks, where nothing else is asked for."""

UNIT = 128
"""Chunks have a multiple of so many elements along their axis, where they have as many."""


@frozen
class ChunkContractions(Pass):
    """Compute a product of more than `limit` bytes in chunks, where all that is needed of it is far smaller.

    Before: `%l = tgraph.matmul %x, %w` with rows of logits, and `%m = tgraph.max %l`. After: `%s = tgraph.scan` over
    chunks of the rows of `%x`, whose body has both ops and gives the maxima of its rows. What needs all rows, as the
    gradient of `%w` does, is computed by a second loop over chunks of columns, which rematerializes the product: no sum
    has other terms or another order, and so no bit changes. Sizes that no chunk divides are padded, and what is
    computed of the padding is dropped. A product that is a result itself, or is needed whole by some op, stays as it
    is, and so does one of symbolic sizes.
    """

    limit: int = LIMIT

    def run(self, module: ModuleOp) -> None:
        for function in module.ops:
            assert isinstance(function, SpecOp)
            for block in list(function.walk_blocks()):
                for plan in self._plans(block):
                    _note(function, plan, self.limit)
                    _Rewrite(block, plan, self.limit).apply()

    def _plans(self, block: Block) -> Iterator[ChunkPlan]:
        """A plan for each product of a block that can be computed in chunks; the block is rewritten between them."""
        tried = set[Operation]()
        while (
            root := next((op for op in large_contractions(block.ops, self.limit) if op not in tried), None)
        ) is not None:
            tried.add(root)
            plan = best_plan(block, root, self.limit)
            if plan is not None and any(_count(loop, plan, self.limit)[1] > 1 for loop in plan.loops):
                yield plan


def _note(function: SpecOp, plan: ChunkPlan, limit: int) -> None:
    """Say which product is computed in chunks, and no more that what it has in memory is kept."""
    known = {name: list(plain(function.attributes.get(name, attribute_of("any", ())))) for name in (KEPT, CHUNKED)}
    parts = ("{1} chunks of {0}".format(*_count(loop, plan, limit)) for loop in plan.loops)
    known[CHUNKED].append(line_of(plan.root.results[0], f", in {', '.join(parts)}"))
    inner = {line_of(value, "") for value in plan.core if plan.is_inner(value)}
    known[KEPT] = [line for line in known[KEPT] if line not in inner]
    for name, lines in known.items():
        function.attributes.pop(name, None)
        if lines:
            function.attributes[name] = attribute_of("any", tuple(lines))


def _count(loop: Loop, plan: ChunkPlan, limit: int) -> tuple[int, int]:
    """Elements of a chunk of a loop, and how many chunks there are.

    As many as the limit allows; or, down to half of that, a number that divides the size, so that nothing is padded.
    """
    size, most = loop.size, max(1, min(loop.size, limit // max(1, plan.widest_part(loop))))
    unit = UNIT if most >= UNIT else 1
    most -= most % unit if most < size else 0
    even = next((one for one in range(most, most // 2, -unit) if size % one == 0), None)
    if even is not None:
        return even, size // even
    count = -(-size // most)
    chunk = -(-size // (count * unit)) * unit
    return chunk, -(-size // chunk)


class _Rewrite:
    """The loops of a plan being built, at the end of their block, which is sorted then."""

    def __init__(self, block: Block, plan: ChunkPlan, limit: int) -> None:
        self.block, self.plan, self.limit = block, plan, limit
        self.order: dict[Operation, int] = {op: at for at, op in enumerate(block.ops)}
        self.scans: list[Operation] = []
        self.made: dict[SSAValue, SSAValue] = {}
        """What loops give, by what it was."""

    def apply(self) -> None:
        for loop in self.plan.loops:
            self._build(loop)
        for old, new in self.made.items():
            old.replace_all_uses_with(new)
        self._drop_waits()
        for op in reversed(list(self.block.ops)):
            if isinstance(op, SpecOp) and is_removable(op) and not any(result.uses for result in op.results):
                op.detach()
                op.erase()
        _sort(self.block, self.order)

    def _build(self, loop: Loop) -> None:
        last = max((value.owner for value in loop.outputs), key=self._position)
        assert isinstance(last, SpecOp)
        build = Build(self.block, self.block.last_op, last.span)
        chunk, count = _count(loop, self.plan, self.limit)
        rows = [_in_rows(build, self._current(one), axis, chunk, count) for one, axis in loop.sliced.items()]
        sources, body = _Body(loop, chunk, self.order).build()
        results: Sequence[SSAValue] = build.emit(
            "scan",
            *rows,
            *map(self._current, sources),
            body=body,
            carried=0,
            scanned=len(rows),
            length=(Dim.constant(count),),
        )
        self.scans.append(build.made[-1])
        for (value, axis), result in zip(loop.outputs.items(), results, strict=True):
            self.made[value] = _from_rows(build, result, axis, size_of(value, axis))
        self.order.update(dict.fromkeys(build.made, self._position(last)))

    def _current(self, value: SSAValue) -> SSAValue:
        return self.made.get(value, value)

    def _position(self, op: Operation | Block) -> int:
        return self.order[op] if isinstance(op, Operation) else -1

    def _drop_waits(self) -> None:
        """Let barriers that loops read wait for no loop, and none wait for what is in memory no more."""
        read = _reach(self.scans, _sources_of)
        late = _reach(self.scans, lambda op: (use.operation for result in op.results for use in result.uses))
        for op in list(self.block.ops):
            if isinstance(op, SpecOp) and op.spec.short_name == BARRIER:
                wide = {one for one in op.operands[1:] if self.plan.is_inner(resolve(one))}
                waits = {one for one in op.operands[1:] if op in read and one.owner in late}
                if wide or waits:
                    build = Build(self.block, op, op.span)
                    first, *others = op.operands
                    kept = [one for one in others if one not in wide and one not in waits]
                    op.results[0].replace_all_uses_with(build.emit(BARRIER, first, *kept) if kept else first)
                    self.order.update(dict.fromkeys(build.made, self.order[op]))


def _sources_of(op: Operation) -> Iterator[Operation]:
    """What computes the operands of an op, but for what it only waits for."""
    is_barrier = isinstance(op, SpecOp) and op.spec.short_name == BARRIER
    owners = (value.owner for value in (op.operands[:1] if is_barrier else op.operands))
    return (owner for owner in owners if isinstance(owner, Operation))


def _reach(ops: Sequence[Operation], following: Callable[[Operation], Iterable[Operation]]) -> set[Operation]:
    found, pending = set(ops), list(ops)
    while pending:
        new = [one for one in following(pending.pop()) if one not in found]
        found.update(new)
        pending += new
    return found


def _front(b: Builder, value: Any, axis: int) -> Any:
    """A value with one axis first."""
    rank = b.type_of(value).rank
    order = (axis, *(one for one in range(rank) if one != axis))
    return b.emit("transpose", value, axes=order) if axis else value


def _back(b: Builder, value: Any, axis: int) -> Any:
    """A value whose first axis is put where it was."""
    rank = b.type_of(value).rank
    order = (*range(1, axis + 1), 0, *range(axis + 1, rank))
    return b.emit("transpose", value, axes=order) if axis else value


def _in_rows(b: Builder, value: Any, axis: int, chunk: int, count: int) -> Any:
    """Chunks of a value, one behind the other along a new first axis."""
    moved = _front(b, value, axis)
    size, *rest = b.type_of(moved).shape
    missing = chunk * count - (size.value or 0)
    if missing:
        high = (Dim.constant(missing), *(ZERO for _ in rest))
        moved = b.emit("pad", moved, low=(ZERO,) * len(high), high=high, value=0.0)
    return b.emit("reshape", moved, shape=(Dim.constant(count), Dim.constant(chunk), *rest))


def _from_rows(b: Builder, value: Any, axis: int, size: int) -> Any:
    """What chunks are of."""
    count, chunk, *rest = b.type_of(value).shape
    whole = b.emit("reshape", value, shape=(count * chunk, *rest))
    if b.type_of(whole).shape[0].value != size:
        whole = slice_axis(b, whole, 0, 0, size)
    return _back(b, whole, axis)


_CONSTANTS = ("full", "iota")


class _Body:
    """The body of a loop as a tape: first the chunks, then what is read whole."""

    def __init__(self, loop: Loop, chunk: int, order: Mapping[Operation, int]) -> None:
        self.loop, self.chunk, self.order = loop, chunk, order
        self.builder = TapeBuilder()
        self.values: dict[SSAValue, int] = {}
        self.views: dict[SSAValue, None] = {}
        """Views and constants that are taken whole: they are computed inside, from what they are of."""

    def build(self) -> tuple[list[SSAValue], Tape]:
        """What the body captures, and the body."""
        sources = self._find_sources()
        chunks = list[Any]()
        for value, axis in self.loop.sliced.items():
            type = tensor_value(value)
            rest = [dim for at, dim in enumerate(type.shape) if at != axis]
            chunks.append(type.with_shape((Dim.constant(self.chunk), *rest)))
        types = [*chunks, *map(tensor_value, sources)]
        given = add_inputs(self.builder.tape, types, [f"x{at}" for at in range(len(types))])
        for (value, axis), number in zip(self.loop.sliced.items(), given, strict=False):
            self.values[value] = _back(self.builder, number, axis)
        whole = dict(zip(sources, given[len(chunks) :], strict=True))
        for value in self.views:
            whole[value] = self._emit(value, whole, None)
        for value in sorted(self.loop.inside, key=lambda value: self._position(value.owner)):
            made = self._emit(value, whole, self.loop.inside[value])
            # A kernel of its own, as it has where others reduce it too: what follows is not its epilogue there either.
            self.values[value] = self.builder.emit(BARRIER, made, made) if value in self.loop.again else made
        outputs = self.loop.outputs.items()
        self.builder.tape.outputs = [_front(self.builder, self.values[value], axis) for value, axis in outputs]
        return sources, self.builder.tape

    def _find_sources(self) -> list[SSAValue]:
        sources, pending = dict[SSAValue, None](), list(self.loop.whole)
        views = dict[SSAValue, None]()
        while pending:
            value = pending.pop()
            op = value.owner
            if isinstance(op, SpecOp) and (op.spec.moves_elements or op.spec.short_name in _CONSTANTS):
                views[value] = None
                pending += map(resolve, op.operands)
            else:
                sources[value] = None
        self.views = dict.fromkeys(sorted(views, key=lambda value: self._position(value.owner)))
        return list(sources)

    def _position(self, op: Operation | Block) -> int:
        return self.order[op] if isinstance(op, Operation) else -1

    def _emit(self, value: SSAValue, whole: Mapping[SSAValue, int], axis: int | None) -> int:
        op = value.owner
        assert isinstance(op, SpecOp)
        self.builder.span, self.builder.policy = op.span, next(iter(policies_of(op)), SILENT)
        self.builder.device = str(plain(op.attributes[DEVICE])) if DEVICE in op.attributes else ""
        self.builder.region = region_of(op)
        attributes = op.values() if axis is None else cut_attributes(op, axis, self.chunk)
        axes = (None if axis is None else cut_axes(op, axis)) or (None,) * len(op.operands)
        given = zip(map(resolve, op.operands), axes, strict=True)
        operands = [whole[one] if own is None else self.values[one] for one, own in given]
        # Not `emit`, which would choose segments of K anew: they are those of the whole.
        return self.builder.append(op.spec, operands, attributes)[0]


def _sort(block: Block, order: Mapping[Operation, int]) -> None:
    """Put each op behind what it reads, otherwise in order; ops with effects stay in theirs."""
    ops = list(block.ops)
    fixed = [op for op in ops if not (isinstance(op, SpecOp) and is_removable(op))]
    before: dict[Operation, set[Operation]] = {
        op: {value.owner for value in op.operands if isinstance(value.owner, Operation) and value.owner.parent is block}
        for op in ops
    }
    for first, second in pairwise(fixed):
        before[second].add(first)
    after: dict[Operation, list[Operation]] = {op: [] for op in ops}
    for op, needed in before.items():
        for one in needed:
            after[one].append(op)
    # The terminator is last among the ops with effects, and nothing else may be behind it.
    end = ops[-1]
    keys = {op: (order[op], at, op) for at, op in enumerate(ops)}
    ready = [keys[op] for op in ops if not before[op] and op is not end]
    heapq.heapify(ready)
    placed = list[Operation]()
    while ready:
        _, _, op = heapq.heappop(ready)
        placed.append(op)
        for one in after[op]:
            before[one].discard(op)
            if not before[one] and one is not end:
                heapq.heappush(ready, keys[one])
    assert len(placed) == len(ops) - 1
    for op in placed:
        op.detach()
        block.insert_op_before(op, end)
