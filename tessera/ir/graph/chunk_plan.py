"""What is computed in chunks in place of a large intermediate: loops, what each gives, and what it reads.

A product with many elements and what follows it element by element is *wide*; what is reduced from it, or contracted
with it, is narrow. Everything wide has an axis along which it is independent of the rest, its *row axis*, and row loops
go along that. What contracts over the rows themselves (the gradient of a weight) is independent along another axis:
column loops go along that one, and rematerialize what is wide, from narrow values that row loops gave.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.build import is_removable, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.graph.cut_axes import BARRIER, cut_axes
from tessera.ir.tile.facets import Contraction, Pointwise

RATIO = 4
"""A narrow value has fewer elements than the product, by more than this factor: within an MLP little is gained."""


class NotIndependentError(Exception):
    """What a loop would have to compute depends on elements outside its chunk."""


@dataclass
class Loop:
    """The ops of a loop: those that give a part along an axis of their result, and what it reads, in parts or whole."""

    outputs: dict[SSAValue, int]
    inside: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """Values that it computes, and the axis of each that the loop goes along."""
    sliced: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    whole: dict[SSAValue, None] = field(default_factory=dict[SSAValue, None])
    again: dict[SSAValue, None] = field(default_factory=dict[SSAValue, None])
    """Products that an earlier loop computes too."""

    @property
    def size(self) -> int:
        """Elements along the axis."""
        value, axis = next(iter(self.outputs.items()))
        return size_of(value, axis)

    def agrees(self, other: Loop) -> bool:
        """Whether two loops go along the same axis of all that they share, and of one size."""
        mine, its = {**self.inside, **self.sliced}, {**other.inside, **other.sliced}
        shared = mine.keys() & its.keys()
        return bool(shared) and self.size == other.size and all(mine[one] == its[one] for one in shared)

    def join(self, other: Loop) -> None:
        """Do what another loop does too."""
        for name in ("outputs", "inside", "sliced", "whole", "again"):
            getattr(self, name).update(getattr(other, name))


def size_of(value: SSAValue, axis: int) -> int:
    """The size of an axis, which is known."""
    found = tensor_value(value).shape[axis].value
    assert found is not None
    return found


def resolve(value: SSAValue) -> SSAValue:
    """The value that barriers only hold back."""
    while isinstance(op := value.owner, SpecOp) and op.spec.short_name == BARRIER:
        value = op.operands[0]
    return value


def _uses(value: SSAValue) -> Iterator[tuple[Operation, int]]:
    return ((use.operation, use.index) for use in value.uses)


def users_of(value: SSAValue) -> Iterator[Operation]:
    """The ops that read a value, itself or behind barriers; not barriers that wait for it."""
    for use in value.uses:
        op = use.operation
        if not isinstance(op, SpecOp) or op.spec.short_name != BARRIER:
            yield op
        elif use.index == 0:
            yield from users_of(op.results[0])


class ChunkPlan:
    """The loops for one product along one axis of its result; raises NotIndependentError where there are none."""

    def __init__(self, block: Block, root: SpecOp, axis: int, limit: int) -> None:
        self.ops = [op for op in block.ops if isinstance(op, SpecOp)]
        self.limit = limit
        self.root, self.elements = root, tensor_value(root.results[0]).size.value or 0
        self.axes: dict[SSAValue, int] = {root.results[0]: axis}
        """The row axis of each value that follows the product row by row."""
        self.joined: set[SSAValue] = set()
        """The wide values among them that are computed of the product, or joined with such."""
        self.core = self._find_core()
        self.stage: dict[SSAValue, int] = {}
        """How many loops one after the other come before a value is in memory."""
        self.row_stage: dict[SSAValue, int] = {}
        """Of what row loops compute, the number of its loop."""
        self.columns: list[tuple[int, Loop]] = []
        self.merged: set[SSAValue] = set()
        """Wide values that have no row axis any more, as where several axes became one: for column loops alone."""
        for op in self.ops:
            self._place(op)
        if axis >= _count_rows(root) and any(self.is_wide(one) for _, loop in self.columns for one in loop.outputs):
            raise NotIndependentError("column by column there is nothing to gain")
        self.loops = [loop for _, loop in sorted([*self._row_loops(), *self.columns], key=lambda pair: pair[0])]

    @property
    def is_small(self) -> bool:
        """Whether chunks of one element are within the limit."""
        return all(self.widest_part(loop) <= self.limit for loop in self.loops)

    def widest_part(self, loop: Loop) -> int:
        """Bytes of the largest wide value of a loop for one element along its axis."""
        wide = (one for one in loop.inside if self.is_wide(one) and one not in loop.outputs)
        return -(-max((tensor_value(one).bytes.value or 0 for one in wide), default=0) // loop.size)

    # What the row loops compute.

    def is_wide(self, value: SSAValue) -> bool:
        """Whether a value has about as many elements as the product; of what follows it, only what is joined with it.

        A layer may have values as wide that come of narrow ones: their rows are needed by others.
        """
        return self._is_large(value) and (value in self.joined or value not in self.axes)

    def is_inner(self, value: SSAValue) -> bool:
        """Whether a value is wide and computed by loops alone, so that it is in memory nowhere."""
        return value in self.merged or (value in self.core and self.is_wide(value))

    def _find_core(self) -> set[SSAValue]:
        """Values of row loops: wide ones, what is computed of them, and what lies between that and other wide ones."""
        self._follow_all()
        pending = list(self.joined)
        while pending:
            new = [one for one in self._neighbours(pending.pop()) if one not in self.joined]
            self.joined.update(new)
            pending += new
        core = set[SSAValue]()
        for value in reversed(self.axes):
            assert isinstance(value.owner, SpecOp)
            operands = map(resolve, value.owner.operands)
            is_first = not self.joined.isdisjoint(operands)
            leads = any(result in core for user in users_of(value) for result in user.results)
            if self.is_wide(value) or is_first or leads:
                core.add(value)
        return core

    def _follow_all(self) -> None:
        """Find the row axis of all that follows; in order, so that most that cannot be in chunks end here early."""
        order = {op: at for at, op in enumerate(self.ops)}
        pending = [order[self.root]]
        seen = set(pending)
        while pending:
            op = self.ops[heapq.heappop(pending)]
            if op is self.root or self._follow(op):
                self._join(op)
                new = {order[user] for user in users_of(op.results[0]) if isinstance(user, SpecOp)} - seen
                seen |= new
                for at in new:
                    heapq.heappush(pending, at)
            elif not self._may_end(op) and not self.joined.isdisjoint(map(resolve, op.operands)):
                raise NotIndependentError(f"`{op.name}` needs all of a wide value")

    def _join(self, op: SpecOp) -> None:
        value = op.results[0]
        if self._is_large(value) and (op is self.root or not self.joined.isdisjoint(map(resolve, op.operands))):
            self.joined.add(value)

    def _neighbours(self, value: SSAValue) -> Iterator[SSAValue]:
        """Wide values that are computed of a wide one, or with it."""
        assert isinstance(value.owner, SpecOp)
        for op in (value.owner, *users_of(value)):
            if op.results and op.results[0] in self.axes:
                values = (*map(resolve, op.operands), op.results[0])
                yield from (one for one in values if one in self.axes and self._is_large(one))

    def _is_large(self, value: SSAValue) -> bool:
        return (tensor_value(value).size.value or 0) * RATIO >= self.elements

    def _may_end(self, op: SpecOp) -> bool:
        """Whether an op may be computed along some other axis, by a column loop."""
        if len(op.results) != 1:
            return False
        return any(cut_axes(op, axis) is not None for axis in range(tensor_value(op.results[0]).rank))

    def _follow(self, op: SpecOp) -> bool:
        known = {at: self.axes[one] for at, one in enumerate(map(resolve, op.operands)) if one in self.axes}
        for axis in range(tensor_value(op.results[0]).rank if len(op.results) == 1 else 0):
            found = cut_axes(op, axis)
            if found is not None and all(found[at] == own for at, own in known.items()):
                self.axes[op.results[0]] = axis
                return True
        return False

    # In which loop each value is computed, and which loops come after which.

    def _place(self, op: SpecOp) -> None:
        if op.results and op.results[0] in self.core:
            operands = list(map(resolve, op.operands))
            found = [self.row_stage[one] if one in self.core else self.stage.get(one, 0) for one in operands]
            self.row_stage[op.results[0]] = stage = max(found, default=0)
            self.stage[op.results[0]] = stage + 1
        elif op.spec.short_name != BARRIER and any(self.is_inner(resolve(one)) for one in op.operands):
            self._place_column(op)
        else:
            # What barriers wait for does not count: those that a loop reads wait for no other loop.
            operands = op.operands[:1] if op.spec.short_name == BARRIER else op.operands
            stage = max((self.stage.get(one, 0) for one in operands), default=0)
            self.stage.update(dict.fromkeys(op.results, stage))

    def _place_column(self, op: SpecOp) -> None:
        """Find a loop for an op that needs all rows of a wide value: a column loop, perhaps one that is there."""
        if self._is_cheap(op) and self.is_wide(op.results[0]):
            self.merged.add(op.results[0])
            return
        loop = self._column_loop(op)
        stage = max((self.stage.get(one, 0) for one in (*loop.sliced, *loop.whole)), default=0)
        self.stage[op.results[0]] = stage + 1
        same = (known for at, known in self.columns if at == stage and known.agrees(loop))
        if (known := next(same, None)) is not None:
            known.join(loop)
        else:
            self.columns.append((stage, loop))

    def _column_loop(self, op: SpecOp) -> Loop:
        """A loop for the result of an op, along the first axis whose chunks can be small enough, if there is one."""
        found: list[Loop] = []
        is_value = len(op.results) == 1 and not op.spec.is_terminator
        for axis in range(tensor_value(op.results[0]).rank if is_value else 0):
            loop = Loop({op.results[0]: axis})
            try:
                self._fill(loop, -1)
            except NotIndependentError:
                continue
            found.append(loop)
        if not found:
            raise NotIndependentError(f"`{op.name}` needs all of {op.operands[0].type}")
        return min(found, key=lambda loop: self.widest_part(loop) > self.limit)

    def _row_loops(self) -> Iterator[tuple[int, Loop]]:
        """The row loops, from the last, as those before give what it reads."""
        read = {one for _, loop in self.columns for one in (*loop.sliced, *loop.whole)}
        for stage in sorted(set(self.row_stage.values()), reverse=True):
            members = [value for value, at in self.row_stage.items() if at == stage and not self.is_wide(value)]
            given = {one: self.axes[one] for one in members if one in read or self._is_read_outside(one, stage)}
            if given:
                loop = Loop(given)
                self._fill(loop, stage)
                read.update((*loop.sliced, *loop.whole))
                yield stage, loop

    def _is_read_outside(self, value: SSAValue, stage: int) -> bool:
        waits = any(isinstance(op, SpecOp) and op.spec.short_name == BARRIER and at for op, at in _uses(value))
        return waits or any(not one.results or self.row_stage.get(one.results[0]) != stage for one in users_of(value))

    # What a loop computes itself, and what it reads.

    def _fill(self, loop: Loop, stage: int) -> None:
        """Walk back from what a loop gives to what is in memory."""
        pending = list(loop.outputs.items())
        while pending:
            value, axis = pending.pop()
            known = loop.inside.get(value, loop.sliced.get(value, axis))
            if known != axis:
                raise NotIndependentError("one value would be cut along two axes")
            if value not in loop.inside and value not in loop.sliced:
                pending += self._take(loop, stage, value, axis)
        if not loop.sliced:
            raise NotIndependentError("nothing is read in parts")

    def _take(self, loop: Loop, stage: int, value: SSAValue, axis: int) -> Iterator[tuple[SSAValue, int]]:
        """Let a loop compute a value, or read it; gives what it needs parts of for that."""
        op, is_output = value.owner, value in loop.outputs
        found = cut_axes(op, axis) if isinstance(op, SpecOp) else None
        if found is None or not (is_output or self._is_computed(value, stage)):
            if is_output or self.is_inner(value):
                raise NotIndependentError(f"{value.type} is not independent along axis {axis}")
            loop.sliced[value] = axis
            return
        loop.inside[value] = axis
        assert isinstance(op, SpecOp)
        if isinstance(op.spec.lower, Contraction) and self.row_stage.get(value, stage) != stage:
            loop.again[value] = None
        for operand, own in zip(map(resolve, op.operands), found, strict=True):
            if own is not None:
                yield operand, own
            elif self.is_inner(operand):
                raise NotIndependentError(f"all of {operand.type} is needed")
            else:
                loop.whole[operand] = None

    def _is_computed(self, value: SSAValue, stage: int) -> bool:
        """Whether a loop computes a value, and does not read it from memory."""
        assert isinstance(value.owner, SpecOp)
        if self.is_inner(value):
            return True
        if value in self.core:
            return self.row_stage[value] == stage
        is_large = self.is_wide(value) and (tensor_value(value).bytes.value or 0) > self.limit
        is_view = value.owner.spec.moves_elements or not value.owner.operands
        return is_view or is_large or (self.is_wide(value) and self._is_cheap(value.owner))

    def _is_cheap(self, op: SpecOp) -> bool:
        return len(op.results) == 1 and (op.spec.moves_elements or isinstance(op.spec.lower, Pointwise))


def _count_rows(root: SpecOp) -> int:
    """How many axes of a product are batches and rows; the others are columns, which weights usually have."""
    assert isinstance(root.spec.lower, Contraction)
    maps = root.spec.lower.maps([tensor_value(value) for value in root.operands], root.values())
    return len(maps.batch) + len(maps.m)


def best_plan(block: Block, root: SpecOp, limit: int) -> ChunkPlan | None:
    """The plan for a product whose chunks are as small as `limit`, with the fewest loops; None where there is none."""
    found: list[ChunkPlan] = []
    for axis, dim in enumerate(tensor_value(root.results[0]).shape):
        if (dim.value or 0) > 1:
            try:
                found.append(ChunkPlan(block, root, axis, limit))
            except NotIndependentError:
                continue
    return min(found, key=lambda plan: (not plan.is_small, len(plan.loops)), default=None)


def large_contractions(ops: Iterable[Operation], limit: int) -> Iterator[SpecOp]:
    """Contractions whose result has more bytes than `limit`."""
    for op in ops:
        if isinstance(op, SpecOp) and isinstance(op.spec.lower, Contraction) and is_removable(op):
            bytes = tensor_value(op.results[0]).bytes.value
            if bytes is not None and bytes > limit:
                yield op
