"""Row groups whose reductions many programs share: kernels for runs of leaves, and kernels that join them.

Where there are fewer rows than a machine has programs for, a row is cut into runs of a power of two of leaves. Aligned
runs are subtrees of the tree over leaves, so that a run may be reduced by itself, and the runs then by what is left of
the tree: bits are those of one program (docs/guide/numerics.md). For each level of reductions there are two kernels:
`_runs` reduces every run into a line of temporary memory, `_join` the lines of a row. What follows reads totals from
memory as it would read any input. `_full` stores what has the size of the space, again a run at a time, and `_rows`
what has that of the rows, unless the last join does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, delinear, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.emit.evaluate import Evaluator, Reducer, carried_dtypes, spec_of
from tessera.ir.schedule.emit.request import Request, buffers_of
from tessera.ir.schedule.emit.rows import RowKernel
from tessera.ir.schedule.program import RowSpace
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, maximum, minimum, product
from tessera.types.numerics import LEAF
from tessera.types.shape import ZERO, TensorType

RUNS = (0, 1, 2, 4, 8, 16, 32, 64)
"""Leaves of a run; 0 where a program has whole rows."""

_FEW = 32
"""Runs of a row that are joined in registers."""

_LINES = 8 << 10
"""Elements of lines that a program which joins them has at most, where that leaves it a row."""

_RUN, _ROW, _LINE = (Dim.symbol(name) for name in ("_s", "_j", "_r"))


class RunGroup:
    """The kernels of one row group whose rows are cut into runs of so many leaves."""

    def __init__(self, request: Request, space: RowSpace, leaves: int) -> None:
        self.request, self.space, self.run = request, space, leaves * LEAF
        self.rows = RowKernel(request, space)
        plan = self.rows.plan
        self.parts = maximum(self.rows.extent.ceildiv(self.run), 1)
        self.count = product(self.rows.walk.extents)
        self.levels = sorted({plan.stage[record.results[0]] for record in plan.reductions})
        self.full = [v for v in request.body.outputs if v in plan.stage and v not in plan.ready]
        self.temporaries: list[TensorType] = []
        self.lines: dict[int, tuple[int, ...]] = {}
        """The numbers of the temporaries that the runs of a reduction are in, by its result."""
        self.totals: dict[int, int] = {}
        """The number of the temporary that a total is in, by its value; what the last level gives is stored there only
        where a kernel follows."""
        for record in plan.reductions:
            value, dtypes = record.results[0], carried_dtypes(request.body, record)
            self.lines[value] = tuple(self._add(TensorType.of([self.parts * self.count], dtype)) for dtype in dtypes)
            if plan.stage[value] != self.levels[-1] or self.full:
                self.totals[value] = self._add(request.body.types[value])

    def _add(self, type: TensorType) -> int:
        self.temporaries.append(type)
        return len(self.temporaries) - 1

    def emit(self) -> list[SpecOp]:
        """All kernels, in the order they run."""
        last = self.levels[-1]
        found: list[SpecOp] = []
        for level in self.levels:
            found.append(self._runs(f"_runs{level}").emit_level(level))
            ends = [] if self.full or level != last else self._row_outputs
            found.append(self._join(f"_join{level}").emit_level(level, ends))
        if self.full:
            found.append(self._runs("_full").emit_full())
            if self._row_outputs:
                found.append(self._join("_rows").emit_level(None, self._row_outputs))
        return found

    @property
    def _row_outputs(self) -> list[int]:
        return [value for value in dict.fromkeys(self.request.body.outputs) if value not in self.full]

    def _runs(self, suffix: str) -> RunKernel:
        return RunKernel(self._request(suffix), self)

    def _join(self, suffix: str) -> JoinKernel:
        return JoinKernel(self._request(suffix), self)

    def _request(self, suffix: str) -> Request:
        return replace(self.request, name=f"{self.request.name}{suffix}", temporaries=tuple(self.temporaries))


class PartKernel(RowKernel):
    """What the kernels of such a group share: totals of earlier levels are in memory, and temporaries are written."""

    tile: TileBuilder

    def __init__(self, request: Request, group: RunGroup) -> None:
        super().__init__(request, group.space)
        self.group = group
        # Nothing is kept from one kernel to the next but totals.
        self.plan.kept.clear()

    def begin(self, grid: Sequence[Dim], writes: Sequence[int]) -> None:
        """A builder, its buffers, and the evaluator; `writes` are the arguments that the kernel writes."""
        self.tile = tile = self.request.builder(grid, "row", self.flat, writes)
        inputs, outputs = buffers_of(self.body, tile)
        self.outputs = outputs[: len(self.body.outputs)]
        self.temporaries = outputs[len(self.body.outputs) :]
        self.evaluator = Evaluator(self.body, tile, inputs, self.flat)
        self.zero, self.end = tile.index(0), tile.index(self.extent)
        self.scratch = {}

    def read_totals(self, levels: Callable[[int], bool]) -> None:
        """Have totals of reductions read from memory."""
        for record in self.plan.reductions:
            value = record.results[0]
            if levels(self.plan.stage[value]):
                self.evaluator.buffers[value] = self.temporaries[self.group.totals[value]]

    def argument(self, temporary: int) -> int:
        """The number of a temporary among all arguments."""
        return len(self.body.inputs) + len(self.body.outputs) + temporary

    def reducers(self, level: int | None) -> list[Reducer]:
        """The reductions of a level."""
        records = [record for record in self.plan.reductions if self.plan.stage[record.results[0]] == level]
        return [Reducer(self.tile, record, self.body, spec_of(record).lower, ()) for record in records]


class RunKernel(PartKernel):
    """A pass over the rows, with one run to a program."""

    def emit_level(self, level: int) -> SpecOp:
        """The reductions of a level, each run into its line."""
        records = [record for record in self.plan.reductions if self.plan.stage[record.results[0]] == level]
        numbers = [number for record in records for number in self.group.lines[record.results[0]]]
        self._begin_run([self.argument(number) for number in numbers])
        self.read_totals(lambda other: other < level)
        self.run_pass(level, self.reducers(level), [], [])
        return self.tile.finish()

    def emit_full(self) -> SpecOp:
        """All results that have the size of the space."""
        first = len(self.body.inputs)
        self._begin_run([first + at for at, value in enumerate(self.body.outputs) if value in self.group.full])
        self.read_totals(lambda _: True)
        self.run_pass(self.plan.passes, [], list(dict.fromkeys(self.group.full)), [])
        return self.tile.finish()

    def _begin_run(self, writes: Sequence[int]) -> None:
        """The builder of a kernel, and of its programs their run, and their row or columns."""
        run, extents = self.group.run, list(self.walk.extents)
        if self.by_columns:
            extents[-1] = extents[-1].ceildiv(self.width)
        self.begin([self.group.parts, *extents], writes)
        tile = self.tile
        coords = {name: tile.program_id(axis + 1) for axis, name in enumerate(self.walk.names)}
        self.row_region = self.region_at(coords)
        self.program = tile.program_id(0)
        self.start = _RUN * run
        self.low = tile.index(self.start, {"_s": self.program})
        self.high = tile.index(self._end, {"_s": self.program})

    @property
    def _end(self) -> Dim:
        run = self.group.run
        return _RUN * run + run if self.is_whole else minimum(self.extent, _RUN * run + run)

    def index_by_end(self, expr: Dim) -> SSAValue:
        return self.tile.index(expr.substitute({"_e": self._end}), {"_s": self.program})

    @property
    def is_whole(self) -> bool:
        """Whether all runs are of one length."""
        return self.extent.value is not None and self.extent.value % self.group.run == 0

    @property
    def is_single(self) -> bool:
        return self.group.run == LEAF and self.is_whole

    @property
    def leaves(self) -> Dim:
        return Dim.constant(self.group.run // LEAF)

    def count_leaves(self) -> SSAValue:
        # A row of no elements has a leaf too, which is the identity.
        return self.tile.index(maximum((self._end - self.start).ceildiv(LEAF), 1), {"_s": self.program})

    def leaf_of(self, first: SSAValue) -> SSAValue:
        symbol = Dim.symbol("_f")
        return self.tile.index((symbol - self.start) // LEAF, {"_f": first, "_s": self.program})

    def take_total(self, reducer: Reducer, total: SSAValue) -> None:
        self._store_run(reducer, 0, total)

    def join(self, reducers: list[Reducer], ends: list[SSAValue]) -> None:
        for reducer in reducers:
            parts, ends = ends[: reducer.width], ends[reducer.width :]
            kind = reducer.lower.kind
            self.tile.span = reducer.record.span
            self._store_run(reducer, 0, self.tile.reduce(parts[0], kind.removeprefix("arg"), 0))
            if reducer.is_argreduce:
                self._store_run(reducer, 1, self.tile.arg_reduce(parts[0], parts[1], kind, 0))

    def _store_run(self, reducer: Reducer, part: int, total: SSAValue) -> None:
        """The total of a run, as it is accumulated, into its line."""
        buffer = self.temporaries[self.group.lines[reducer.record.results[0]][part]]
        row = linear([Dim.symbol(name) for name in self.walk.names], self.walk.extents) if self.walk.names else ZERO
        region = self.row_region.with_coords(_s=self.program)
        self.tile.store(total, buffer, (_RUN * self.group.count + row,), region)


def join_lines(
    tile: TileBuilder,
    reducer: Reducer,
    parts: Dim,
    region: TileRegion,
    zero: SSAValue,
    line: Callable[[Dim, TileRegion], SSAValue],
) -> SSAValue:
    """The result of a reduction whose lines are joined by the aligned tree: in registers if few, else in scratch.

    A line is what `line` loads for its number, which may be the coordinate `_r` of a region of several.
    """
    tile.span = reducer.record.span
    if parts.value is not None and parts.value <= _FEW:
        found = [line(Dim.constant(number), region) for number in range(parts.value)]
        while len(found) > 1:
            pairs = [reducer.combine(a, b) for a, b in zip(found[::2], found[1::2], strict=False)]
            found = [*pairs, *found[len(pairs) * 2 :]]
        return reducer.round(found[0])
    width = region.sizes[0] if region.sizes else 1
    lines = tile.scratch([parts, width], reducer.dtype)
    at, step = (_LINE, Dim.symbol("_c")), max(1, 256 // width)

    def own(row: SSAValue, count: int) -> TileRegion:
        axes, sizes = ("_r", "_c"), (count, width)
        if not region.axes:
            axes, sizes = axes[:1], sizes[:1]
        if not count:
            axes, sizes = axes[1:], sizes[1:]
        return TileRegion({"_r": row, "_c": zero}, axes, sizes, {"_r": parts} if count else {})

    def put(row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        bounds = {"_r": parts, **region.bounds}
        several = TileRegion({**region.coords, "_r": row}, ("_r", *region.axes), (step, *region.sizes), bounds)
        tile.store(line(_LINE, several), lines, at, own(row, step))
        return carried

    tile.loop(zero, tile.index(parts), step, put)
    tile.tree(lines, tile.index(parts), reducer.lower.kind)
    return reducer.round(tile.load(lines, at, own(zero, 0)))


class JoinKernel(PartKernel):
    """The lines of some rows joined, and row values of what they give."""

    def emit_level(self, level: int | None, outputs: Sequence[int]) -> SpecOp:
        """The totals of a level, if one is given, to memory where others read them; and results of the program."""
        group, values = self.group, [record.results[0] for record in self.plan.reductions]
        own = [value for value in values if self.plan.stage[value] == level]
        kept = [value for value in own if value in group.totals]
        first = len(self.body.inputs)
        stored = [first + at for at, value in enumerate(self.body.outputs) if value in outputs]
        width = self._rows_of_a_program()
        self.begin([group.count.ceildiv(width)], [*stored, *(self.argument(group.totals[value]) for value in kept)])
        tile = self.tile
        start = tile.index(_ROW * width, {"_j": tile.program_id(0)})
        is_one = group.count.value == 1
        self.row_region = TileRegion(
            {"_j": start}, *(((), (), {}) if is_one else (("_j",), (width,), {"_j": group.count}))
        )
        self.read_totals(lambda other: level is None or other < level)
        for reducer in self.reducers(level):
            total = self._join_tree(reducer) if self.is_ordered(reducer.record) else self._join_unordered(reducer)
            self.evaluator.ready[reducer.record.results[0]] = (total, self.row_region.axes)
        for value in kept:
            at = self.space.at(value, self.at_full())
            where = (linear(at, self.body.types[value].shape),) if self.flat else at
            tile.store(self.evaluator.ready[value][0], self.temporaries[group.totals[value]], where, self.row_region)
        if outputs:
            for ready in range(self.plan.passes + 1):
                self.row_values(ready)
        return tile.finish()

    def _rows_of_a_program(self) -> int:
        """Rows that a program joins side by side: a warp's at least where there are as many, and lines not too many."""
        width, parts = 1, self.group.parts.value or _LINES
        while width < (self.group.count.value or 64) and width < 64 and (parts <= _FEW or 2 * width * parts <= _LINES):
            width *= 2
        return width

    def at_full(self) -> IndexMap:
        names: Mapping[str, Dim] = dict(zip(self.walk.names, delinear(_ROW, self.walk.extents), strict=True))
        return tuple(expr.substitute(names) for expr in super().at_full())

    def _line(self, reducer: Reducer, part: int, line: Dim, region: TileRegion) -> SSAValue:
        buffer = self.temporaries[self.group.lines[reducer.record.results[0]][part]]
        return self.tile.load(buffer, (line * self.group.count + _ROW,), region)

    def _join_tree(self, reducer: Reducer) -> SSAValue:
        """Lines joined by the aligned tree."""

        def line(at: Dim, region: TileRegion) -> SSAValue:
            return self._line(reducer, 0, at, region)

        return join_lines(self.tile, reducer, self.group.parts, self.row_region, self.zero, line)

    def _lines_at(self, row: SSAValue, count: int) -> TileRegion:
        region = self.row_region
        bounds = {"_r": self.group.parts, **region.bounds}
        return TileRegion({**region.coords, "_r": row}, ("_r", *region.axes), (count, *region.sizes), bounds)

    def _join_unordered(self, reducer: Reducer) -> SSAValue:
        """Lines joined in any order, which a few lanes do."""
        width = self.row_region.sizes[0] if self.row_region.sizes else 1
        lanes = max(1, 256 // width)
        made = reducer.with_shape((lanes, *self.row_region.sizes))

        def step(row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            region = self._lines_at(row, lanes)
            here = self._line(made, 1, _LINE, region) if made.is_argreduce else None
            return made.step(carried, self._line(made, 0, _LINE, region), region, here)

        return made.finish(self.tile.loop(self.zero, self.tile.index(self.group.parts), lanes, step, made.start()))
