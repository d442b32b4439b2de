"""Row groups, of reductions over one space: one program a row (or a block of columns), one pass over it per level.

Softmax needs the maximum of a row before the sum of its exponentials, and that before its results: three passes. The
level of a value is the first pass that can compute it. A pass computes all reductions of its level, in 32 lanes, and
stores the results of its level; between passes, row values that follow from the reductions are computed once. Cheap
values are rematerialized in each pass that reads them; an expensive one that a later pass reads is kept in scratch.

Reducing rows (axis 0 of a matrix) would read one element of each cache line. There a program has a vector of columns as
its lanes; and on a CPU, where there is one pass, a whole strip of columns, whose accumulators wait in scratch while the
rows go by (`ColumnKernel`). The lanes of a reduction are the same 32 in all of them, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, delinear, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, Leaves, Reducer, producers, spec_of
from tessera.ir.schedule.emit.request import Request, Walk, buffers_of, walk_over
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.program import Program, RowSpace, check_shapes, row_reads, row_space
from tessera.ir.tile.facets import Pointwise, Reduction
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, minimum, product
from tessera.types.shape import ZERO

if TYPE_CHECKING:
    from tessera.ir.schedule.grouping import Group, Groups

LANES = 32
"""Lanes of a reduction: see docs/guide/numerics.md. Part of what a program means, never tuned."""

WIDE = 128
"""Lanes of a pass of min and max alone, whose result no order changes: more independent chains hide latency."""

_UNORDERED = ("max", "min", "any", "all")


@dataclass
class Plan:
    """Which pass computes what: `stage` of full values, `ready` of row values (the first pass that may use them)."""

    stage: dict[int, int] = field(default_factory=dict[int, int])
    ready: dict[int, int] = field(default_factory=dict[int, int])
    reductions: list[Record] = field(default_factory=list[Record])
    kept: list[int] = field(default_factory=list[int])

    def level(self, value: int) -> int:
        return self.ready.get(value, self.stage.get(value, 0))

    @property
    def passes(self) -> int:
        return 1 + max([0, *self.stage.values()])


def plan_passes(body: Tape, space: RowSpace) -> Plan:
    """Levels of all values, and those to keep between passes."""
    plan = Plan()
    expensive: set[int] = set()
    for record in body.records:
        lower = spec_of(record).lower
        level = max((plan.level(operand) for operand in record.operands), default=0)
        if isinstance(lower, Reduction):
            plan.reductions.append(record)
            plan.stage[record.results[0]] = level
            plan.ready[record.results[0]] = level + 1
            continue
        for result in record.results:
            if space.is_row(result):
                plan.ready[result] = level
            else:
                plan.stage[result] = level
                if isinstance(lower, Pointwise) and (lower.expensive or lower.flops > 4):
                    expensive.add(result)
    for record in body.records:
        for operand in record.operands:
            later = plan.stage.get(record.results[0], 0) > plan.stage.get(operand, 0)
            if operand in expensive and later and operand not in plan.kept and not space.is_row(record.results[0]):
                plan.kept.append(operand)
    return plan


class RowKernel:
    """The emission of one row kernel."""

    def __init__(self, request: Request, space: RowSpace) -> None:
        self.request, self.space, self.body = request, space, request.body
        self.plan = plan_passes(self.body, space)
        self.makers = producers(self.body)
        rank = len(space.shape)
        self.parallel = [axis for axis in range(rank) if axis not in space.axes]
        self.by_columns = bool(self.parallel) and rank - 1 not in space.axes
        self.extent = product(space.shape[axis] for axis in space.axes)
        self.walk, self.flat = self._walk_of()
        self.width = request.machine.lanes if self.by_columns else 1

    def _walk_of(self) -> tuple[Walk, bool]:
        """The parallel dims, joined as far as the accesses allow."""
        space = self.space
        names = [f"_d{axis}" for axis in range(len(space.shape))]
        full = tuple(Dim.symbol(name) for name in names)
        leaves = Leaves(self.body, self.body.inputs)
        for record in self.body.records:
            if isinstance(spec_of(record).lower, Reduction):
                leaves.stops.add(record.results[0])
        for reduction in self.plan.reductions:
            leaves.visit(reduction.operands[0], full)
        for output in self.body.outputs:
            at = space.at(output, full)
            leaves.visit(output, at)
            leaves.addresses.append(linear(at, self.body.types[output].shape))
        for value in self.plan.ready:
            leaves.visit(value, space.at(value, full))
        chosen = [names[axis] for axis in self.parallel]
        extents = [space.shape[axis] for axis in self.parallel]
        walk = walk_over(chosen, extents, leaves.addresses, leaves.numbers)
        return walk, len(walk.groups) < len(chosen) or len(space.axes) > 1

    def emit(self) -> SpecOp:
        extents = list(self.walk.extents)
        if self.by_columns:
            extents[-1] = extents[-1].ceildiv(self.width)
        self.tile: TileBuilder = self.request.builder(extents or [Dim.constant(1)], "row", self.flat)
        tile = self.tile
        coords = {name: tile.program_id(axis) for axis, name in enumerate(self.walk.names)}
        self.row_region = TileRegion(coords)
        if self.by_columns:
            last = self.walk.names[-1]
            coords = {**coords, last: tile.index(Dim.symbol(last) * self.width, coords)}
            self.row_region = TileRegion(coords, (last,), (self.width,), {last: self.walk.extents[-1]})
        inputs, self.outputs = buffers_of(self.body, tile)
        self.evaluator = Evaluator(self.body, tile, inputs, self.flat)
        self.scratch = {
            value: tile.scratch([self.extent, self.width], self.body.types[value].dtype) for value in self.plan.kept
        }
        self.zero, self.end = tile.index(0), tile.index(self.extent)
        for level in range(self.plan.passes + 1):
            self._row_values(level)
            self._pass(level)
        return tile.finish()

    def at_full(self) -> IndexMap:
        """The coordinates of every dim of the space in a pass."""
        found: list[Dim] = [ZERO] * len(self.space.shape)
        for axis, expr in zip(self.parallel, self.walk.at(), strict=True):
            found[axis] = expr
        parts = delinear(Dim.symbol("_r"), [self.space.shape[axis] for axis in self.space.axes])
        for axis, expr in zip(self.space.axes, parts, strict=True):
            found[axis] = expr
        return tuple(found)

    def _row_values(self, level: int) -> None:
        """Compute, and store where they are results, the row values that are ready before pass `level`."""
        for value, ready in self.plan.ready.items():
            if ready != level:
                continue
            at = self.space.at(value, self.at_full())
            if value not in self.evaluator.ready:
                made = self.evaluator.value(value, at, self.row_region)
                self.evaluator.ready[value] = (made, self.row_region.axes)
            self._store(value, at, self.row_region)

    def _store(self, value: int, at: IndexMap, region: TileRegion) -> None:
        for output, buffer in zip(self.body.outputs, self.outputs, strict=True):
            if output == value:
                where = (linear(at, self.body.types[value].shape),) if self.flat else at
                self.tile.span = self.evaluator.span_of(value)
                self.tile.store(self.evaluator.value(value, at, region), buffer, where, region)

    def _pass(self, level: int) -> None:
        reductions = [record for record in self.plan.reductions if self.plan.stage[record.results[0]] == level]
        stored = [v for v in self.body.outputs if self.plan.stage.get(v) == level and v not in self.plan.ready]
        kept = [value for value in self.plan.kept if self.plan.stage[value] == level]
        if not reductions and not stored and not kept:
            return
        unordered = all(spec_of(record).lower.kind in _UNORDERED for record in reductions)
        is_wide = unordered and not stored and not kept and not self.by_columns and not self.request.machine.is_gpu
        lanes = WIDE if is_wide else LANES
        reducers = [
            Reducer(self.tile, record, self.body, spec_of(record).lower, (lanes, *self.row_region.sizes))
            for record in reductions
        ]
        starts = [tile for reducer in reducers for tile in reducer.start()]

        def step(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            with self.evaluator.scope():
                return self._step(level, reducers, stored, kept, carried, self._lanes_at(index, lanes))

        ends = self.tile.loop(self.zero, self.end, lanes, step, starts)
        self._join(reducers, ends)

    def _lanes_at(self, row: SSAValue, lanes: int) -> TileRegion:
        """The region of so many elements along the reduced dim, from `row` on."""
        region = self.row_region
        bounds = {"_r": self.extent, **region.bounds}
        return TileRegion({**region.coords, "_r": row}, ("_r", *region.axes), (lanes, *region.sizes), bounds)

    def _join(self, reducers: list[Reducer], ends: list[SSAValue]) -> None:
        """Reduce the lanes of all reductions."""
        for reducer in reducers:
            parts, ends = ends[: reducer.width], ends[reducer.width :]
            self.evaluator.ready[reducer.record.results[0]] = (reducer.finish(parts), self.row_region.axes)

    def _step(
        self,
        level: int,
        reducers: list[Reducer],
        stored: list[int],
        kept: list[int],
        carried: list[SSAValue],
        region: TileRegion,
    ) -> list[SSAValue]:
        full = self.at_full()
        r_map, own = self._locate_in_scratch(region)
        self.evaluator.ready.update(
            {
                value: (self.tile.load(self.scratch[value], r_map, own), region.axes)
                for value in self.plan.kept
                if self.plan.stage[value] < level
            }
        )
        results: list[SSAValue] = []
        for reducer in reducers:
            parts, carried = carried[: reducer.width], carried[reducer.width :]
            operand = self.evaluator.compute(reducer.record.operands[0], full, region)
            results += reducer.step(parts, operand, region)
        for value in kept:
            self.tile.store(self.evaluator.value(value, full, region), self.scratch[value], r_map, own)
        for value in dict.fromkeys(stored):
            self._store(value, full, region)
        for value in self.plan.kept:
            if self.plan.stage[value] < level:
                del self.evaluator.ready[value]
        return results

    def _locate_in_scratch(self, region: TileRegion) -> tuple[IndexMap, TileRegion]:
        """The index of the lanes of a step in scratch: all columns of the program, or the one there is."""
        if not self.by_columns:
            return (Dim.symbol("_r"), ZERO), region
        coords = {"_r": region.coords["_r"], "_c": self.zero}
        own = TileRegion(coords, ("_r", "_c"), region.sizes, {"_r": self.extent})
        return (Dim.symbol("_r"), Dim.symbol("_c")), own


_STRIPS = (8, 4, 16, 2, 1)
"""Vectors of columns that a strip has, the best first."""

_MOST_FLOPS = 16
"""Operations of a body that is repeated for each of a step's lanes."""


class ColumnKernel(RowKernel):
    """The emission of one kernel in strips of columns."""

    tile: TileBuilder
    programs: dict[str, SSAValue]
    own_region: TileRegion
    """The region of the lanes of the current columns in the accumulators."""

    @property
    def rows(self) -> int:
        """Rows of a step: its code is repeated for each, and a long one gains nothing from it, so takes one."""
        lowers = (spec_of(record).lower for record in self.body.records)
        flops = sum(lower.flops for lower in lowers if isinstance(lower, Pointwise))
        return LANES if flops <= _MOST_FLOPS else 1

    @property
    def fits(self) -> bool:
        """Whether there is one pass, with reductions, over columns that may be more than a vector's."""
        plan = self.plan
        is_plain = plan.passes == 1 and not plan.kept and all(level == 1 for level in plan.ready.values())
        columns = self.walk.extents[-1].value if self.walk.extents else 0
        is_wide = columns is None or columns > self.width
        return self.by_columns and not self.request.machine.is_gpu and is_plain and is_wide and bool(plan.reductions)

    def emit(self) -> SpecOp:
        candidates = [times * self.width for times in _STRIPS]
        strip = self.request.choose("row.columns", candidates, extent=self.walk.extents[-1])
        *outer, columns = self.walk.extents
        self.tile = tile = self.request.builder([*outer, columns.ceildiv(strip)], "row", self.flat)
        self.programs = {name: tile.program_id(axis) for axis, name in enumerate(self.walk.names)}
        self.start = Dim.symbol(self.walk.names[-1]) * strip
        self.first = tile.index(self.start, self.programs)
        self.past = tile.index(minimum(columns, self.start + strip), self.programs)
        inputs, self.outputs = buffers_of(self.body, tile)
        self.evaluator = Evaluator(self.body, tile, inputs, self.flat)
        self.zero, self.end = tile.index(0), tile.index(self.extent)
        shape = (LANES, self.width)
        self.reducers = [
            Reducer(tile, record, self.body, spec_of(record).lower, shape) for record in self.plan.reductions
        ]
        # A vector more than there are columns, so that the last step of a strip stays inside.
        self.accumulators = [
            tile.scratch([LANES, strip + self.width], dtype) for reducer in self.reducers for dtype in reducer.dtypes
        ]
        self._over_columns(lambda: self._store_lanes([start for reducer in self.reducers for start in reducer.start()]))
        tile.loop(self.zero, self.end, self.rows, self._rows)
        self._over_columns(self._finish)
        return tile.finish()

    def _over_columns(self, body: Callable[[], None]) -> None:
        """Loop over the vectors of columns of the strip; in `body`, `row_place` and `own_place` are those of one."""
        tile, name = self.tile, self.walk.names[-1]

        def step(column: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            coords = {**self.programs, name: column}
            self.row_region = TileRegion(coords, (name,), (self.width,), {name: self.walk.extents[-1]})
            inside = tile.index(Dim.symbol("_c") - self.start, {"_c": column, name: self.programs[name]})
            self.own_region = TileRegion({"_k": self.zero, "_c": inside}, ("_k", "_c"), (LANES, self.width))
            with self.evaluator.scope():
                body()
            return carried

        tile.loop(self.first, self.past, self.width, step)

    def _store_lanes(self, carried: list[SSAValue]) -> None:
        at = (Dim.symbol("_k"), Dim.symbol("_c"))
        for value, buffer in zip(carried, self.accumulators, strict=True):
            self.tile.store(value, buffer, at, self.own_region)

    def _load_lanes(self) -> list[SSAValue]:
        at = (Dim.symbol("_k"), Dim.symbol("_c"))
        return [self.tile.load(buffer, at, self.own_region) for buffer in self.accumulators]

    def _rows(self, row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """Accumulate one step of rows into their lanes of all columns."""
        rows, stored = self.rows, [value for value in self.body.outputs if value not in self.plan.ready]
        lane = row if rows == LANES else self.tile.index(Dim.symbol("_r") % LANES, {"_r": row})

        def body() -> None:
            if rows != LANES:
                coords = {**self.own_region.coords, "_k": lane}
                self.own_region = TileRegion(coords, self.own_region.axes, (rows, self.width))
            region = self._lanes_at(row, rows)
            self._store_lanes(self._step(0, self.reducers, stored, [], self._load_lanes(), region))

        self._over_columns(body)
        return carried

    def _finish(self) -> None:
        """Reduce the lanes, and store what follows from them."""
        self._join(self.reducers, self._load_lanes())
        self._row_values(1)
        for value in self.plan.ready:
            self.evaluator.ready.pop(value, None)


class RowKind(KernelKind):
    """Reductions over one space, and pointwise ops on the space and on its rows."""

    name = "row"
    facets = (Reduction,)
    merges = has_axes = True

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

    def emit(self, request: Request) -> Sequence[SpecOp]:
        space = row_space(request.body, request.axes)
        columns = ColumnKernel(request, space)
        return [columns.emit() if columns.fits else RowKernel(request, space).emit()]


KIND = RowKind()
