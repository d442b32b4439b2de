"""Which ops of a kernel are computed in one loop over parts of a tile, where tiles are too large to be unrolled.

A segment is a run of ops over tiles of one shape that become one loop nest: in each iteration a part of the tile goes
through all of them in registers. An op joins the first segment that comes after all it depends on; it depends on
another op of that segment only by the same part, never by elements that another iteration computes. Ops that cost
nothing to repeat (constants, coordinates, broadcasts, loads of read-only memory) belong to no segment: whoever wants
them computes them. What a segment gives and another one reads is kept in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.ir import OpResult, SSAValue

from tessera.backends.cpu.block_kernels import is_fresh
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile import typed_ops as ttile
from tessera.types.frozen import frozen

_FREE = ("ttile.constant", "ttile.coordinate", "ttile.broadcast", "ttile.transpose")
"""Ops that every segment that reads them rematerializes."""


def sizes_of(value: SSAValue) -> tuple[int, ...]:
    """The sizes of a tile."""
    assert isinstance(value.type, TileAttr)
    return tuple(dim.value or 0 for dim in value.type.shape)


def space_of(op: SpecOp) -> tuple[int, ...]:
    """The sizes of the tile whose elements an op goes over."""
    is_of_operand = isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp | ttile.StoreOp)
    return sizes_of(op.operands[0] if is_of_operand else op.results[0])


def tiles_of(op: SpecOp) -> list[SSAValue]:
    """The operands of an op that are tiles."""
    return [value for value in op.operands if isinstance(value.type, TileAttr)]


@dataclass
class Segment:
    """Ops over tiles of one shape; whole `rows` of it are a part, or the one op is a reduction by loops."""

    space: tuple[int, ...]
    has_rows: bool
    reduction: bool = False
    ops: list[SpecOp] = field(default_factory=list[SpecOp])

    def accepts(self, space: tuple[int, ...]) -> bool:
        """Whether an op over tiles of these sizes may be computed part by part here, or once for each row."""
        return not self.reduction and (space == self.space or (self.has_rows and space == self.space[:-1]))

    def is_aligned(self, axes: tuple[int, ...]) -> bool:
        """Whether a value read along these axes of the segment is read at the part that an iteration has."""
        count = len(self.space)
        return axes == tuple(range(count)) or (self.has_rows and axes == tuple(range(count - 1)))


@frozen
class Plan:
    """The segments of a run of ops, in order, and what they keep in scratch."""

    segments: tuple[Segment, ...]
    kept: frozenset[SSAValue]


class Planner:
    """Divides runs of ops of one kernel; `has_rows` says of a shape whether its rows are parts of their own."""

    def __init__(self, kernel: SpecOp, has_rows: Callable[[Sequence[int]], bool]) -> None:
        self.kernel, self.has_rows = kernel, has_rows
        self.read_only = {
            argument
            for number, argument in enumerate(kernel.regions[0].block.args)
            if number not in kernel.value("writes")
        }
        self.forced = self._find_forced()

    def _find_forced(self) -> set[SSAValue]:
        """Values that are needed in memory, whatever they cost: operands of dots, and what is transposed."""
        found: set[SSAValue] = set()
        for op in self.kernel.walk():
            if isinstance(op, ttile.DotOp):
                found.update(undo_transpose(value)[0] for value in op.operands[:2])
                found.update(value for value in op.operands[2:] if not is_fresh(value))
            elif isinstance(op, ttile.TransposeOp) and not self._is_plain_load(op.operands[0]):
                found.add(op.operands[0])
        return found

    def _is_plain_load(self, value: SSAValue) -> bool:
        op = value.op if isinstance(value, OpResult) else None
        is_load = isinstance(op, ttile.LoadOp) and op.operands[0] in self.read_only
        return is_load and isinstance(op, SpecOp) and not tiles_of(op)

    def is_free(self, value: SSAValue) -> bool:
        """Whether a value is rematerialized wherever it is read."""
        op = value.op if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or value in self.forced:
            return False
        return op.name in _FREE or self._is_plain_load(value)

    def sources(self, value: SSAValue, axes: tuple[int, ...]) -> Iterator[tuple[SSAValue, tuple[int, ...]]]:
        """What a value that is read along `axes` is computed from, beyond what is rematerialized, with its axes."""
        if not self.is_free(value):
            yield value, axes
            return
        assert isinstance(value, OpResult)
        if isinstance(value.op, ttile.BroadcastOp):
            yield from self.sources(value.op.operands[0], tuple(axes[axis] for axis in value.op.axes))
        elif isinstance(value.op, ttile.TransposeOp):
            yield from self.sources(value.op.operands[0], axes[::-1])

    def plan(self, run: Sequence[SpecOp]) -> Plan:
        """The segments of ops that follow each other in a block."""
        segments: list[Segment] = []
        places: dict[SSAValue, int] = {}
        accesses: dict[SSAValue, list[tuple[int, bool]]] = {}
        for op in run:
            if op.results and self.is_free(op.results[0]):
                continue
            at = self._place(op, segments, places, accesses)
            segments[at].ops.append(op)
            places.update(dict.fromkeys(op.results, at))
            for buffer in _buffers_of(op):
                accesses.setdefault(buffer, []).append((at, isinstance(op, ttile.StoreOp)))
        return Plan(tuple(segments), frozenset(self._find_kept(run, segments, places)))

    def _place(
        self,
        op: SpecOp,
        segments: list[Segment],
        places: dict[SSAValue, int],
        accesses: dict[SSAValue, list[tuple[int, bool]]],
    ) -> int:
        """The number of the segment that an op goes to, which may be new."""
        first, space = 0, space_of(op)
        is_looped = isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp) and not self._is_of_row(op)
        for operand in tiles_of(op):
            for value, axes in self.sources(operand, tuple(range(len(sizes_of(operand))))):
                if value in places:
                    at = places[value]
                    is_with = not is_looped and segments[at].is_aligned(axes)
                    first = max(first, at if is_with else at + 1)
        for buffer in _buffers_of(op):
            for at, is_store in accesses.get(buffer, ()):
                if is_store or isinstance(op, ttile.StoreOp):
                    first = max(first, at + 1)
        for number in range(first, 0 if is_looped else len(segments)):
            if segments[number].accepts(space):
                return number
        segments.append(Segment(space, self.has_rows(space) and not is_looped, is_looped))
        return len(segments) - 1

    def _is_of_row(self, op: SpecOp) -> bool:
        """Whether a reduction is of rows that are in registers as a whole."""
        space = space_of(op)
        return op.value("axis") == len(space) - 1 and self.has_rows(space)

    def _find_kept(
        self, run: Sequence[SpecOp], segments: Sequence[Segment], places: dict[SSAValue, int]
    ) -> Iterator[SSAValue]:
        """What is read outside of the segment that computes it."""
        inside = set[object](run)
        used = [(number, operand) for number, one in enumerate(segments) for op in one.ops for operand in tiles_of(op)]
        for op in run:
            used += [(-1, one) for one in op.results if any(use.operation not in inside for use in one.uses)]
        for number, value in used:
            for source, _ in self.sources(value, tuple(range(len(sizes_of(value))))):
                if places.get(source, number) != number:
                    yield source


def undo_transpose(value: SSAValue) -> tuple[SSAValue, bool]:
    """What an operand of a dot is read from, and whether it is read transposed."""
    if isinstance(value, OpResult) and isinstance(value.op, ttile.TransposeOp):
        return value.op.operands[0], True
    return value, False


def _buffers_of(op: SpecOp) -> list[SSAValue]:
    return [value for value in op.operands if isinstance(value.type, BufferAttr)]
