"""Kernels that fold columns on a processor: a strip of columns a program, its sums in memory while rows go by.

A column alone would read a line of memory here and there; a strip reads runs. The lanes of a fold are those of every
row kernel, and so are its bits.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.emit.evaluate import Evaluator, spec_of
from tessera.ir.schedule.emit.folds import Fold
from tessera.ir.schedule.emit.frame import Request, buffers_of
from tessera.ir.schedule.emit.row_kernel import LANES, RowKernel
from tessera.ir.schedule.rows import RowSpace
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim, minimum

_STRIPS = (8, 4, 16, 2, 1)
"""Registers of columns that a strip has, the best first."""


class ColumnKernel(RowKernel):
    """The writing of one such kernel."""

    tile: TileBuilder
    programs: dict[str, SSAValue]
    own_place: Place
    """Where the lanes of the columns at hand lie among the sums."""

    @property
    def fits(self) -> bool:
        """Whether there is one pass and nothing but folds in it, over columns that may be more than a register's."""
        plan = self.plan
        is_plain = plan.passes == 1 and not plan.kept and all(level == 1 for level in plan.ready.values())
        columns = self.walk.extents[-1].value if self.walk.extents else 0
        is_wide = columns is None or columns > self.width
        is_folded = bool(plan.folds) and all(output in plan.ready for output in self.body.outputs)
        return self.by_columns and not self.request.machine.is_gpu and is_plain and is_wide and is_folded

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
        self.writers = [Fold(tile, fold, self.body, spec_of(fold).lower, shape) for fold in self.plan.folds]
        # A register more than there are columns: whatever the step, no place of a strip is beyond its end.
        self.sums = [
            tile.scratch([LANES, strip + self.width], dtype) for writer in self.writers for dtype in writer.dtypes
        ]
        self._along(lambda: self._keep([start for writer in self.writers for start in writer.start()]))
        tile.loop(self.zero, self.end, LANES, self._rows)
        self._along(self._finish)
        return tile.finish()

    def _along(self, body: Callable[[], None]) -> None:
        """`body` for every register of columns of the strip, which `row_place` and `own_place` then say."""
        tile, name = self.tile, self.walk.names[-1]

        def step(column: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            coords = {**self.programs, name: column}
            self.row_place = Place(coords, (name,), (self.width,), {name: self.walk.extents[-1]})
            inside = tile.index(Dim.symbol("_c") - self.start, {"_c": column, name: self.programs[name]})
            self.own_place = Place({"_k": self.zero, "_c": inside}, ("_k", "_c"), (LANES, self.width))
            with self.evaluator.scope():
                body()
            return carried

        tile.loop(self.first, self.past, self.width, step)

    def _keep(self, carried: list[SSAValue]) -> None:
        at = (Dim.symbol("_k"), Dim.symbol("_c"))
        for value, buffer in zip(carried, self.sums, strict=True):
            self.tile.store(value, buffer, at, self.own_place)

    def _kept(self) -> list[SSAValue]:
        at = (Dim.symbol("_k"), Dim.symbol("_c"))
        return [self.tile.load(buffer, at, self.own_place) for buffer in self.sums]

    def _rows(self, row: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """What one round of rows adds to the lanes of all columns."""

        def body() -> None:
            self._keep(self._step(0, self.writers, [], [], self._kept(), self._lanes_at(row, LANES)))

        self._along(body)
        return carried

    def _finish(self) -> None:
        """The lanes meet, and what follows from them is stored."""
        self._join(self.writers, self._kept())
        self._row_values(1)
        for value in self.plan.ready:
            self.evaluator.ready.pop(value, None)


def emit_row(request: Request, space: RowSpace) -> SpecOp:
    """The kernel of a group of reductions and what goes with them: in strips of columns where it can be."""
    columns = ColumnKernel(request, space)
    return columns.emit() if columns.fits else RowKernel(request, space).emit()
