"""Reductions over rows (axis 0 of a matrix) on a CPU, in strips of columns.

To go down a column would read one element of each cache line; a program that has one vector of columns reads one line
of each row, far from the next. Where there is one pass, a program has a strip of several vectors of columns instead,
and goes over them for every few rows: what it accumulates waits in scratch meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.emit.evaluate import Evaluator, Reducer, spec_of
from tessera.ir.schedule.emit.leaf_pass import HalvingPass
from tessera.ir.schedule.emit.request import buffers_of
from tessera.ir.schedule.emit.rows import RowKernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, minimum

_STRIPS = (8, 4, 16, 2, 1)
"""Vectors of columns that a strip has, the best first."""

_CHAINS = 4
"""Rows of a step of what needs no order."""

_AT = (Dim.symbol("_k"), Dim.symbol("_c"))


class ColumnKernel(RowKernel):
    """The emission of one kernel in strips of columns."""

    is_in_strips = True
    tile: TileBuilder
    programs: dict[str, SSAValue]
    inside: SSAValue
    strip: int

    @property
    def fits(self) -> bool:
        """Whether there is one pass, of sums alone or of none, over columns that may be more than a vector's."""
        plan = self.plan
        is_plain = plan.passes == 1 and not plan.kept and all(level == 1 for level in plan.ready.values())
        columns = self.walk.extents[-1].value if self.walk.extents else 0
        is_wide = columns is None or columns > self.width
        if not (self.by_columns and not self.request.machine.is_gpu and is_plain and is_wide and plan.reductions):
            return False
        return len(set(map(self.is_ordered, plan.reductions))) == 1

    @property
    def columns(self) -> int:
        # A vector more than there are columns, so that the last step of a strip stays inside.
        return self.strip + self.width

    @property
    def column(self) -> SSAValue:
        return self.inside

    def emit(self) -> SpecOp:
        candidates = [times * self.width for times in _STRIPS]
        self.strip = strip = self.request.choose("row.columns", candidates, extent=self.walk.extents[-1])
        *outer, columns = self.walk.extents
        self.tile = tile = self.request.builder([*outer, columns.ceildiv(strip)], "row", self.flat)
        self.programs = {name: tile.program_id(axis) for axis, name in enumerate(self.walk.names)}
        self.start = Dim.symbol(self.walk.names[-1]) * strip
        self.first = tile.index(self.start, self.programs)
        self.past = tile.index(minimum(columns, self.start + strip), self.programs)
        inputs, self.outputs = buffers_of(self.body, tile)
        self.evaluator = Evaluator(self.body, tile, inputs, self.flat)
        self.zero, self.end = tile.index(0), tile.index(self.extent)
        self.low, self.high = self.zero, self.end
        self.stored = [value for value in self.body.outputs if value not in self.plan.ready]
        self.row_region = TileRegion({}, (self.walk.names[-1],), (self.width,))
        shape = (_CHAINS, self.width)
        reducers = [Reducer(tile, record, self.body, spec_of(record).lower, shape) for record in self.plan.reductions]
        if self.is_ordered(reducers[0].record):
            HalvingPass(self, 0, reducers, self.stored, []).emit()
        else:
            self._emit_unordered(reducers)
        return tile.finish()

    def over_columns(self, body: Callable[[], None]) -> None:
        """Loop over the vectors of columns of the strip; in `body`, `row_region` and `column` are those of one."""
        tile, name = self.tile, self.walk.names[-1]

        def step(column: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            coords = {**self.programs, name: column}
            self.row_region = TileRegion(coords, (name,), (self.width,), {name: self.walk.extents[-1]})
            self.inside = tile.index(Dim.symbol("_c") - self.start, {"_c": column, name: self.programs[name]})
            with self.evaluator.scope():
                body()
            return carried

        tile.loop(self.first, self.past, self.width, step)

    def finish_columns(self) -> None:
        """Store what follows from the sums."""
        self.row_values(1)
        for value in self.plan.ready:
            self.evaluator.ready.pop(value, None)

    def _emit_unordered(self, reducers: list[Reducer]) -> None:
        """What needs no order: accumulators of a few rows, which wait in scratch."""
        tile = self.tile
        accumulators = [
            tile.scratch([_CHAINS, self.columns], dtype) for reducer in reducers for dtype in reducer.dtypes
        ]

        def here() -> TileRegion:
            return TileRegion({"_k": self.zero, "_c": self.inside}, ("_k", "_c"), (_CHAINS, self.width))

        def put(carried: list[SSAValue]) -> None:
            for value, buffer in zip(carried, accumulators, strict=True):
                tile.store(value, buffer, _AT, here())

        def take() -> list[SSAValue]:
            return [tile.load(buffer, _AT, here()) for buffer in accumulators]

        def rows(row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            def body() -> None:
                put(self.step(0, reducers, self.stored, [], take(), self.lanes_at(row, _CHAINS)))

            self.over_columns(body)
            return carried

        def finish() -> None:
            self.join(reducers, take())
            self.finish_columns()

        self.over_columns(lambda: put([start for reducer in reducers for start in reducer.start()]))
        tile.loop(self.zero, self.end, _CHAINS, rows)
        self.over_columns(finish)
