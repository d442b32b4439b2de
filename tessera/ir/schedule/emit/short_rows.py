"""Reductions over short rows on a GPU: a program has several rows as one tile, which stays in registers.

A row of up to 256 elements has one element to each lane of a leaf, so that its sum is a halving tree over what is
there (docs/guide/numerics.md), and the reduction of a tile along its rows is that tree. A warp for each row would leave
most lanes without an element, and a block of them little to do.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.emit.evaluate import Evaluator, Reducer, spec_of
from tessera.ir.schedule.emit.request import buffers_of
from tessera.ir.schedule.emit.rows import TILE, RowKernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim, next_power_of_two, product
from tessera.types.numerics import LANES

_LEAST = 256
"""Elements of a tile that are worth a program: a warp has them."""
_ALIGNED = 16
"""Bytes that one thread moves at a time."""


class ShortRowKernel(RowKernel):
    """The emission of one kernel whose programs have some rows each."""

    tile: TileBuilder

    @property
    def fits(self) -> bool:
        """Whether rows are short, contiguous in what is reduced, and several."""
        size = self.extent.value
        is_short = size is not None and 1 < size <= LANES
        return is_short and not self.by_columns and bool(self.walk.names) and self.request.machine.is_gpu

    def _rows_of_a_program(self) -> int:
        """Rows of a tile: fewer where programs would be too few."""
        lanes, blocks = next_power_of_two(self.extent.value or LANES), self.request.machine.blocks
        rows = max(1, (_LEAST if self._has_own_warp(lanes) else TILE) // lanes)
        last, count = self.walk.extents[-1].value, product(self.walk.extents).value
        while rows > 1 and last is not None and rows // 2 >= last:
            rows //= 2
        while rows * lanes > _LEAST and count is not None and count < 2 * blocks * rows:
            rows //= 2
        return rows

    def _has_own_warp(self, lanes: int) -> bool:
        """Whether a warp has whole rows, so that it reduces them without others: long ones, and such as begin anywhere.

        Neighbours in aligned rows are one thread's, and a few threads have a row. In others they are those of threads
        side by side, so that all warps of a block would have parts of each row.
        """
        sizes = [self.body.types[value].dtype.bytes for value in self.body.inputs]
        is_aligned = (self.extent.value or 0) * min(sizes, default=1) % _ALIGNED == 0
        return lanes == LANES or (2 * lanes == LANES and not is_aligned)

    def emit(self) -> SpecOp:
        rows, lanes = self._rows_of_a_program(), next_power_of_two(self.extent.value or LANES)
        *outer, last = self.walk.extents
        self.tile = tile = self.request.builder([*outer, last.ceildiv(rows)], "row", self.flat)
        coords = {name: tile.program_id(axis) for axis, name in enumerate(self.walk.names)}
        name = self.walk.names[-1]
        coords[name] = tile.index(Dim.symbol(name) * rows, coords)
        self.row_region = TileRegion(coords, (name,), (rows,), {name: last})
        bounds = {name: last} if lanes == self.extent.value else {name: last, "_r": self.extent}
        self.region = TileRegion({**coords, "_r": tile.index(0)}, (name, "_r"), (rows, lanes), bounds)
        inputs, self.outputs = buffers_of(self.body, tile)
        self.evaluator = Evaluator(self.body, tile, inputs, self.flat)
        for level in range(self.plan.passes + 1):
            self.row_values(level)
            self._level(level)
        return tile.finish()

    def _level(self, level: int) -> None:
        """The reductions of a level, and what it stores; what earlier ones computed is still there."""
        full, region = self.at_full(), self.region
        for record in self.plan.reductions:
            if self.plan.stage[record.results[0]] != level:
                continue
            reducer = Reducer(self.tile, record, self.body, spec_of(record).lower, region.sizes)
            operand = self.evaluator.compute(record.operands[0], full, region)
            parts: list[SSAValue] = reducer.step(reducer.start(), operand, region)
            self.evaluator.ready[record.results[0]] = (reducer.finish(parts, 1), self.row_region.axes)
        for value in dict.fromkeys(self.body.outputs):
            if self.plan.stage.get(value) == level and value not in self.plan.ready:
                self._store(value, full, region)
