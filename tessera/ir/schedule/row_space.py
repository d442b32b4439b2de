"""The iteration space of a group with reductions: its full shape, the reduced axes, and where each value is in it.

Values of such a group are of two sorts. A *full* value has an element for each point of the space; a *row* value has
one for each combination of the axes that are kept, either with the reduced dims as 1 (`keepdims`) or without them.
Whether an op may be computed in the group is a question about index maps: for the coordinates of the space, every value
of the group must be read exactly where it is computed. Maps are compared as canonical expressions over coordinates,
with 0 along dims of one element (`settled`), so that equal maps are equal tuples and no proof is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.tape import Tape
from tessera.ir.schedule.emit.evaluate import operand_reads, producers, spec_of
from tessera.ir.schedule.program import Program, Read, settled
from tessera.ir.tile.facets import Gather, Reduction
from tessera.types.dim import Dim
from tessera.types.shape import ZERO


@dataclass
class RowSpace:
    """`shape` with `axes` reduced; `rows` maps each row value to whether it kept the reduced dims."""

    shape: tuple[Dim, ...]
    axes: tuple[int, ...]
    rows: dict[int, bool] = field(default_factory=dict[int, bool])

    @property
    def full(self) -> IndexMap:
        """The coordinates of the space."""
        return coordinates(len(self.shape))

    def is_row(self, value: int) -> bool:
        return value in self.rows

    def row_shape(self, keepdims: bool) -> tuple[Dim, ...]:
        if keepdims:
            return tuple(Dim.constant(1) if axis in self.axes else dim for axis, dim in enumerate(self.shape))
        return tuple(dim for axis, dim in enumerate(self.shape) if axis not in self.axes)

    def at(self, value: int, full: IndexMap) -> IndexMap:
        """The index of a value of the group, for coordinates of the full space."""
        if value not in self.rows:
            return full
        return self.row_at(full, self.rows[value])

    def row_at(self, full: IndexMap, keepdims: bool) -> IndexMap:
        """The index of a row value, for coordinates of the full space."""
        if keepdims:
            return tuple(ZERO if axis in self.axes else expr for axis, expr in enumerate(full))
        return tuple(expr for axis, expr in enumerate(full) if axis not in self.axes)

    def row_coordinates(self, keepdims: bool) -> IndexMap:
        """Coordinates of the full space for those of a row value; any along what is reduced."""
        kept = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        return tuple(
            Dim.symbol(f"_f{axis}") if axis in self.axes else Dim.symbol(f"d{axis if keepdims else kept.index(axis)}")
            for axis in range(len(self.shape))
        )

    def is_in_place(self, program: Program, full: IndexMap, reads: Sequence[Read]) -> bool:
        """Whether values of the group are all read where they are computed, for these coordinates of the space."""
        return all(
            program.settled(read) == settled(self.at(read.value, full), program.type(read.value).shape)
            for read in reads
        )

    def role_of(self, program: Program, out: tuple[Dim, ...], reads: Sequence[Read]) -> str | None:
        """What a pointwise op that reads the group would be in it: a `row` value, a `full` one, or None for neither."""
        if all(self.is_row(read.value) for read in reads):
            for keepdims in (True, False):
                full = self.row_coordinates(keepdims)
                if out == self.row_shape(keepdims) and self.is_in_place(program, full, reads):
                    return "row"
        return "full" if out == self.shape and self.is_in_place(program, self.full, reads) else None


def row_space(body: Tape, axes: tuple[int, ...]) -> RowSpace:
    """The space of a row group's body: the shape of its first reduction; how values are read says which are rows."""
    shape = next(body.types[r.operands[0]].shape for r in body.records if isinstance(spec_of(r).lower, Reduction))
    space = RowSpace(shape, axes)
    reads = _ReadMaps(body, space)
    for record in body.records:
        if isinstance(spec_of(record).lower, Reduction):
            result = record.results[0]
            space.rows[result] = body.types[result].shape == space.row_shape(True)
            reads.visit(record.operands[0], space.full)
    for record in body.records:
        for value in record.results:
            keepdims = body.types[value].shape == space.row_shape(True)
            if value in space.rows or not (keepdims or body.types[value].shape == space.row_shape(False)):
                continue
            if value in body.outputs:
                reads.visit(value, space.row_at(space.full, keepdims))
    for output in body.outputs:
        if body.types[output].shape == shape and output not in space.rows:
            reads.visit(output, space.full)
    reads.mark_rows()
    return space


class _ReadMaps:
    """The index maps at which each value of a body is read, over coordinates of the full space."""

    def __init__(self, body: Tape, space: RowSpace) -> None:
        self.body, self.space = body, space
        self.makers = producers(body)
        self.found: dict[int, set[IndexMap]] = {}

    def visit(self, value: int, at: IndexMap) -> None:
        at = settled(at, self.body.types[value].shape)
        seen = self.found.setdefault(value, set())
        record = self.makers.get(value)
        if at in seen:
            return
        seen.add(at)
        if record is None:
            return
        reads = operand_reads(self.body, record, value, at)
        # A gather reads its first operand wherever the indices say, from memory.
        for operand, where in reads[1:] if isinstance(spec_of(record).lower, Gather) else reads:
            self.visit(operand, where)

    def mark_rows(self) -> None:
        """Values of a row's shape that are read only at their own row are rows."""
        for value in self.makers:
            shape = self.body.types[value].shape
            for keepdims in (True, False):
                if value not in self.space.rows and shape == self.space.row_shape(keepdims):
                    own = self.space.row_at(self.space.full, keepdims)
                    if self.found.get(value, set()) <= {settled(own, shape)}:
                        self.space.rows[value] = keepdims
