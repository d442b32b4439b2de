"""Row groups, of reductions over one space: one program a row (or a block of columns), one pass over it per level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.columns import ColumnKernel
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.request import Request
from tessera.ir.schedule.emit.row_columns import RowColumnsGroup, check_columns, row_levels, split_columns
from tessera.ir.schedule.emit.rows import RowKernel, plan_passes
from tessera.ir.schedule.emit.runs import RUNS, RunGroup
from tessera.ir.schedule.emit.short_rows import ShortRowKernel
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.layouts import ROW, Access, along_rows
from tessera.ir.schedule.program import Program, RowSpace, check_shapes, row_reads, row_space
from tessera.ir.tile.facets import Reduction
from tessera.types.dim import Dim, product
from tessera.types.machine import Machine
from tessera.types.numerics import LEAF

if TYPE_CHECKING:
    from tessera.ir.schedule.grouping import Group, Groups


def choose_runs(request: Request, kernel: RowKernel) -> int:
    """Leaves of a run that a program has, or 0 where it has whole rows."""
    if kernel.extent.value is not None and kernel.extent.value <= LEAF:
        return 0
    kinds = {spec_of(record).lower.kind for record in kernel.plan.reductions if not kernel.is_ordered(record)}
    context = {
        "extent": kernel.extent,
        "programs": product(kernel.walk.extents).ceildiv(kernel.width),
        "width": kernel.width,
        "is_shared": kinds <= {"max", "min"},
    }
    return request.choose("row.runs", RUNS, **context)


_ALONE, _ALONE_BY_COLUMNS = 1 << 16, 1 << 14
"""Elements that one program of a GPU reduces sooner than two kernels would."""
_CORES = 1 << 18
"""Elements from which on cores of a CPU share a row."""
_WARPS = 16
"""Warps of a block, which share a row by leaves where they can."""
_MOST = 64
"""Leaves that such a block has in registers: rows of more would be one warp's."""


def row_runs(candidates: Sequence[Any], context: Mapping[str, Any]) -> int:
    """Runs as long as all of a GPU is busy with, where rows are too few for it or too long for a block.

    Cores of a CPU share rows that are fewer than they may be.
    """
    machine: Machine = context["machine"]
    extent, programs, width = context["extent"].value, context["programs"].value, context["width"]
    if not machine.is_gpu:
        is_long = extent is not None and extent * width > _CORES
        return candidates[-1] if is_long and programs is not None and programs <= 4 else 0
    if extent is None:
        return 0 if programs is None or programs >= machine.blocks else candidates[-1] if width == 1 else 8
    leaves = -(-extent // LEAF)
    is_long = width == 1 and (leaves > _MOST or not context["is_shared"])
    if extent * width <= (_ALONE if width == 1 else _ALONE_BY_COLUMNS) or (programs is None and not is_long):
        return 0
    wanted = 4 * machine.blocks * (1 if context["is_shared"] or width > 1 else _WARPS)
    if not is_long and (programs or 1) >= machine.blocks:
        return 0
    if (programs or 1) >= wanted and leaves <= _MOST:
        return 0
    each = leaves * (programs or 1) // wanted
    return max(run for run in candidates if run <= max(each, 1 if width > 1 else 4))


class RowKind(KernelKind):
    """Reductions over one space, and pointwise ops on the space and on its rows."""

    name = "row"
    facets = (Reduction,)
    merges = has_axes = True
    models = {"row.runs": ("static model", row_runs), "row.levels": ("static model", row_levels)}

    def shape(self, program: Program, record: Record) -> tuple[Dim, ...]:
        return program.type(record.operands[0]).shape

    def row_space(self, program: Program, record: Record) -> RowSpace:
        source = program.type(record.operands[0])
        return RowSpace(source.shape, tuple(spec_of(record).lower.axes(source, record.attributes)))

    def take(self, groups: Groups, group: Group, number: int) -> None:
        """Note which values have one element for each row."""
        program, record, space = groups.program, groups.tape.records[number], group.space
        assert space is not None
        shape = program.type(record.results[0]).shape
        reads = groups.reads_from(group, program.reads(number))
        is_row = isinstance(spec_of(record).lower, Reduction) or space.role_of(program, shape, reads) == "row"
        if is_row:
            space.rows.update(dict.fromkeys(record.results, shape == space.row_shape(True)))

    def check(self, body: Tape, axes: tuple[int, ...]) -> None:
        if (split := split_columns(body, axes)) is not None:
            check_columns(body, split)
            body = split.rows
        space, reads = row_reads(body, axes)
        plan = plan_passes(body, space)
        check_shapes(body, (space.shape, space.row_shape(True), space.row_shape(False)))
        for record in plan.reductions:
            source = body.types[record.operands[0]]
            own = tuple(spec_of(record).lower.axes(source, record.attributes))
            if (source.shape, own) != (space.shape, axes):
                raise ValueError(f"a row group reduces {source} over {own} beside {list(space.shape)} over {axes}")
        for value in (*(record.results[0] for record in plan.reductions), *plan.kept):
            reads.check(value, space.at(value, space.full))

    def accesses(self, body: Tape, axes: tuple[int, ...]) -> Mapping[int, Sequence[Access]]:
        if split_columns(body, axes) is not None:
            return {}  # its kernels go through rows in an order of their own
        space, reads = row_reads(body, axes)
        return along_rows(body, reads.found, space.shape, ROW)

    def emit(self, request: Request) -> Sequence[SpecOp]:
        if (split := split_columns(request.body, request.axes)) is not None:
            return RowColumnsGroup(request, split, request.axes).emit()
        space = row_space(request.body, request.axes)
        if (short := ShortRowKernel(request, space)).fits:
            return [short.emit()]
        columns = ColumnKernel(request, space)
        if (leaves := choose_runs(request, columns)) > 0:
            return RunGroup(request, space, leaves).emit()
        return [columns.emit() if columns.fits else RowKernel(request, space).emit()]


KIND = RowKind()
