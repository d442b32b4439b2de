"""Kernels of row groups: reductions over one space, one program a row (or a block of columns), one pass per level.

Softmax needs the maximum of a row before the sum of its exponentials, and that before its results: three passes. The
level of a value is the first pass that can compute it. A pass computes all reductions of its level, and stores the
results of its level; between passes, row values that follow from the reductions are computed once. Cheap values are
rematerialized in each pass that reads them; an expensive one that a later pass reads is kept in scratch.

A pass with sums goes leaf by leaf, as numerics say (docs/guide/numerics.md): some lanes of a leaf at a time, each over
its four elements; lanes wait in scratch until all of a leaf are there, and leaves until all of a row are. A pass
without any may take elements in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, delinear, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, Leaves, Reducer, producers, spec_of
from tessera.ir.schedule.emit.leaf_pass import JOINED, LIGHT, HalvingPass, LeafPass
from tessera.ir.schedule.emit.request import Request, Walk, buffers_of, walk_over
from tessera.ir.schedule.program import RowSpace
from tessera.ir.tile.facets import Pointwise, Reduction
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, maximum, next_power_of_two, product
from tessera.types.numerics import LANES, LEAF
from tessera.types.shape import ZERO

GROUP = 32
"""Lanes that a CPU computes at a time."""

WIDE = 128
"""Lanes of a pass of min and max alone, whose result no order changes: more independent chains hide latency."""

TINY = 4
"""Elements of a row that lanes over rows take: CPUs pick lanes so far apart from vectors, and gather others."""

LINE, SECTOR, TILE = 128, 8, 2048
"""Bytes of a line of a GPU's memory, columns that it reads at least, and elements of a tile of few rows."""

_JUMP = 16
"""Operations for an address that is no multiple of an element's number: a quotient, a branch, and a gather."""

KEPT = 16 << 10
"""Elements of columns that a GPU keeps from one pass to the next."""

_LEAF = Dim.symbol("_f")


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
        self.by_columns |= self._has_tiny_rows()
        self.width = self._columns() if self.by_columns else 1
        self.outer = self._count_outer() if self.by_columns else 1
        """Rows of columns of a program, where they are few and short."""

    def _has_tiny_rows(self) -> bool:
        """Whether lanes of a CPU have a row each: a vector for a row would be mask but for a few elements."""
        machine, types = self.request.machine, self.body.types
        if machine.is_gpu or not self.parallel or self.extent.value not in range(2, TINY + 1):
            return False
        count = self.walk.extents[-1].value
        is_filled = count is None or count >= 4 * machine.lanes
        # What is as large as the rows is scattered, and bytes are picked by AVX-512 alone.
        is_scattered = any(value not in self.plan.ready for value in self.body.outputs) and self.count_flops() <= LIGHT
        is_narrow = machine.lanes < 16 and any(types[value].dtype.bytes == 1 for value in self.body.inputs)
        return is_filled and not is_scattered and not is_narrow

    def _columns(self) -> int:
        """Columns of a program: a vector of a CPU; of a GPU as many as a line of memory has, or a tile of few rows."""
        if not self.request.machine.is_gpu:
            return self.request.machine.lanes
        loaded = [self.body.types[value] for value in self.body.inputs if self.body.types[value].rank > 1]
        line = LINE // min([4, *(type.dtype.bytes for type in loaded)])
        rows, columns = self.extent.value or LANES, self.walk.extents[-1].value or line
        width = min(max(line, TILE // min(next_power_of_two(rows), LANES)), next_power_of_two(columns))
        # Of few columns fewer to a program, so that more of them share the work.
        count, blocks = product(self.walk.extents).value, self.request.machine.blocks
        while count is not None and width > SECTOR and count * -(-rows // LEAF) < width * blocks:
            width //= 2
        return width

    def _count_outer(self) -> int:
        """How many of the dim before the columns a GPU's program has, where one has too little to do for a block."""
        rows, extents = self.extent.value, self.walk.extents
        if not self.request.machine.is_gpu or len(extents) < 2 or rows is None or rows > LANES:
            return 1
        found = max(1, TILE // (next_power_of_two(rows) * self.width))
        count, blocks = product(extents).value, self.request.machine.blocks
        while found > 1 and ((extents[-2].value or found) <= found // 2 or (count or 0) < blocks * self.width * found):
            found //= 2
        return found

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
        if self.outer > 1:
            extents[-2] = extents[-2].ceildiv(self.outer)
        self.tile: TileBuilder = self.request.builder(extents or [Dim.constant(1)], "row", self.flat)
        tile = self.tile
        self.row_region = self.region_at({name: tile.program_id(axis) for axis, name in enumerate(self.walk.names)})
        inputs, self.outputs = buffers_of(self.body, tile)
        self.evaluator = Evaluator(self.body, tile, inputs, self.flat)
        is_large = self.outer > 1 or (self.extent * self.width).value not in range(KEPT + 1)
        if self.by_columns and self.request.machine.is_gpu and is_large:
            # What shared memory does not hold is rematerialized.
            self.plan.kept.clear()
        self.scratch = {
            value: tile.scratch([self.extent, self.width], self.body.types[value].dtype) for value in self.plan.kept
        }
        self.zero, self.end = tile.index(0), tile.index(self.extent)
        self.low, self.high = self.zero, self.end
        for level in range(self.plan.passes + 1):
            self.row_values(level)
            self._pass(level)
        return tile.finish()

    def region_at(self, programs: Mapping[str, SSAValue]) -> TileRegion:
        """The row of a program, or its columns."""
        if not self.by_columns:
            return TileRegion(programs)
        last = self.walk.names[-1]
        coords = {**programs, last: self.tile.index(Dim.symbol(last) * self.width, programs)}
        bounds = {last: self.walk.extents[-1]}
        if self.outer == 1:
            return TileRegion(coords, (last,), (self.width,), bounds)
        before = self.walk.names[-2]
        coords[before] = self.tile.index(Dim.symbol(before) * self.outer, programs)
        bounds = {before: self.walk.extents[-2], **bounds}
        return TileRegion(coords, (before, last), (self.outer, self.width), bounds)

    is_in_strips = False
    """Whether a program runs over its columns again and again, so that nothing of them stays in registers."""

    @property
    def columns(self) -> int:
        """Columns of a program, for which lanes and leaves wait in scratch."""
        return self.width

    @property
    def column(self) -> SSAValue:
        """The first of the columns that are computed now, among those of the program."""
        return self.zero

    def over_columns(self, body: Callable[[], None]) -> None:
        """Run over the columns of a program, as many as a vector has at a time."""
        body()

    def finish_columns(self) -> None:
        """What follows as soon as the sums of some columns are there."""

    start: Dim = ZERO
    """The first of a program's elements along what is reduced."""

    def index_by_end(self, expr: Dim) -> SSAValue:
        """An expression over `_e`, the end of a program's elements along what is reduced."""
        return self.tile.index(expr.substitute({"_e": self.extent}))

    @property
    def leaves(self) -> Dim:
        """Leaves of a program at most."""
        return maximum(self.extent.ceildiv(LEAF), 1)

    @property
    def is_single(self) -> bool:
        """Whether a program has one leaf, always as long."""
        return self.leaves.value == 1

    def count_leaves(self) -> SSAValue:
        """Leaves that a program has."""
        return self.tile.index(self.leaves)

    def leaf_of(self, first: SSAValue) -> SSAValue:
        """The number of a leaf among those of a program, by its first element."""
        return self.tile.index(_LEAF // LEAF, {"_f": first})

    def take_total(self, reducer: Reducer, total: SSAValue) -> None:
        """What follows as soon as a sum is there."""
        self.evaluator.ready[reducer.record.results[0]] = (reducer.round(total), self.row_region.axes)

    def at_full(self) -> IndexMap:
        """The coordinates of every dim of the space in a pass."""
        found: list[Dim] = [ZERO] * len(self.space.shape)
        for axis, expr in zip(self.parallel, self.walk.at(), strict=True):
            found[axis] = expr
        parts = delinear(Dim.symbol("_r"), [self.space.shape[axis] for axis in self.space.axes])
        for axis, expr in zip(self.space.axes, parts, strict=True):
            found[axis] = expr
        return tuple(found)

    def row_values(self, level: int) -> None:
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
        lowers = {record.results[0]: spec_of(record).lower for record in reductions}
        reducers = [Reducer(self.tile, record, self.body, lowers[record.results[0]], ()) for record in reductions]
        self.run_pass(level, reducers, stored, kept)

    def run_pass(self, level: int, reducers: list[Reducer], stored: list[int], kept: list[int]) -> None:
        """A pass, leaf by leaf where its order matters or a block of threads shares it."""
        is_gpu = self.request.machine.is_gpu
        is_divided = is_gpu and (reducers or not self.by_columns)
        if is_divided or any(self.is_ordered(reducer.record) for reducer in reducers):
            (LeafPass if is_gpu else HalvingPass)(self, level, reducers, stored, kept).emit()
            return
        # Where the row is wide and nothing is stored, more chains than a store needs vectors.
        is_wide = not stored and not kept and not self.by_columns and not is_gpu
        self.pass_over(level, reducers, stored, kept, WIDE if is_wide and reducers else GROUP)

    def pass_over(
        self, level: int, reducers: list[Reducer], stored: list[int], kept: list[int], lanes: int = GROUP
    ) -> None:
        """A pass in any order, so many elements at a time."""
        machine = self.request.machine
        if self.by_columns and machine.is_gpu:
            lanes = max(1, 2 * TILE // (self.width * self.outer))
        elif not self.by_columns and not machine.is_gpu and self.extent.value is not None:
            # Of a short row vectors beyond its end would be masks and nothing else.
            lanes = min(lanes, max(machine.lanes, next_power_of_two(self.extent.value)))
        reducers = [reducer.with_shape((lanes, *self.row_region.sizes)) for reducer in reducers]
        starts = [tile for reducer in reducers for tile in reducer.start()]

        def step(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            with self.evaluator.scope():
                return self.step(level, reducers, stored, kept, carried, self.lanes_at(index, lanes))

        ends = self.tile.loop(self.low, self.high, lanes, step, starts)
        self.join(reducers, ends)

    def is_ordered(self, record: Record) -> bool:
        """Whether bits of a reduction depend on its order: those of sums and products of floats do."""
        is_float = self.body.types[record.results[0]].dtype.is_float
        return is_float and spec_of(record).lower.kind in ("sum", "prod")

    def count_flops(self, level: int | None = None) -> int:
        """Operations for an element of the space, about, in one pass or in all."""
        records = (one for one in self.body.records if level in (None, self.plan.stage.get(one.results[0])))
        lowers = (spec_of(record).lower for record in records)
        return sum(lower.flops for lower in lowers if isinstance(lower, Pointwise))

    def count_work(self, level: int) -> int:
        """Operations of a pass for an element, with those for addresses that jump within a row."""
        reads = Leaves(self.body, self.body.inputs)
        reads.stops.update(record.results[0] for record in self.plan.reductions)
        for record in self.plan.reductions:
            if self.plan.stage[record.results[0]] == level:
                reads.visit(record.operands[0], self.at_full())
        jumps = sum(address.coefficient("_r") is None for address in reads.addresses)
        return self.count_flops(level) + _JUMP * jumps

    def group_of(self, level: int, stored: Sequence[int]) -> int:
        """Lanes of a leaf that are computed at a time: on a GPU all, on a CPU a vector or two."""
        if self.request.machine.is_gpu:
            return min(LANES, next_power_of_two(self.extent.value or LANES)) if self.by_columns else LANES
        if self.by_columns:
            return 1
        vector = min(JOINED, self.request.machine.lanes)
        if stored or self.count_flops(level) > LIGHT:
            return vector
        is_short = self.extent.value is not None and self.extent.value <= LANES
        return JOINED if is_short else min(JOINED, 2 * vector)

    def lanes_at(self, row: SSAValue, lanes: int, *, is_whole: bool = False) -> TileRegion:
        """The region of so many elements along the reduced dim, from `row` on; all are there where it is whole."""
        region = self.row_region
        bounds = dict(region.bounds) if is_whole else {"_r": self.extent, **region.bounds}
        return TileRegion({**region.coords, "_r": row}, ("_r", *region.axes), (lanes, *region.sizes), bounds)

    def join(self, reducers: list[Reducer], ends: list[SSAValue]) -> None:
        """Reduce the lanes of all reductions."""
        for reducer in reducers:
            parts, ends = ends[: reducer.width], ends[reducer.width :]
            self.evaluator.ready[reducer.record.results[0]] = (reducer.finish(parts), self.row_region.axes)

    def step(
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
        bounds = {name: bound for name, bound in region.bounds.items() if name == "_r"}
        own = TileRegion(coords, ("_r", "_c"), region.sizes, bounds)
        return (Dim.symbol("_r"), Dim.symbol("_c")), own
