"""Rows whose values are also summed along columns: one kernel reads them once, and two small ones join its sums.

A backward pass of a norm needs sums over each row (the gradient of its input) and sums over all rows (the gradients of
scale and bias). Numerics fix the order of both (docs/guide/numerics.md): the sum of a column has leaves of 1024 rows
with 256 lanes, of which lane `l` takes rows `l`, `l + 256`, `l + 512` and `l + 768` of the leaf; lanes join those 128,
64, ... 1 further on; leaves join in an aligned tree. So the rows of the lanes `r`, `r + S`, `r + 2 S`, ... of a leaf,
where `S` is a power of two, are a subtree: whoever goes through them in the order of the tree has what the first steps
of it leave of lane `r`, whatever the others do. A program takes such rows one after the other:

    for i in range(4 * 256 / S):        # rows in the order of the tree: the four of a lane, then those it joins
        the row as in any row kernel; what is summed along columns is added to sums[0]
        if the four rows of a lane are over: sums[1] += sums[0]; sums[0] = 0
        if also those of two lanes:          sums[2] += sums[1]; sums[1] = 0; and so on

    the last sums are line `leaf * S + r` of memory

Sums begin at +0, and are never -0, so that adding to 0 is what taking over is. `_lanes` then reduces the `S` lines of
each leaf, by what is left of the tree over lanes, and `_join` the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, delinear, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, Reducer, carried_dtypes, spec_of
from tessera.ir.schedule.emit.request import Request
from tessera.ir.schedule.emit.rows import RowKernel
from tessera.ir.schedule.emit.runs import join_lines
from tessera.ir.schedule.program import RowSpace, row_reads
from tessera.ir.tile.facets import Reduction
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.typed_ops import ScratchOp
from tessera.types.dim import Dim, maximum, minimum, product
from tessera.types.dtype import f32
from tessera.types.frozen import frozen
from tessera.types.machine import MAX_REGISTERS, WARP, Machine, Multiprocessor, Usage, occupancy
from tessera.types.numerics import LANES, LEAF
from tessera.types.shape import ZERO, TensorType

LEVELS = (0, 1, 2, 3, 4, 5)
"""Steps of the tree over lanes that a program does; of its rows there are 4, 8, 16 ... 128."""

RESERVED = 1 << 10
"""Bytes of shared memory that a program needs beside its sums, about."""

REGISTERS, REGISTERS_OF_A_SUM = 128, 40
"""Registers of a thread that has a leaf of two tensors, and of each sum, about: so measured of gradients of norms."""

ENOUGH, IDLE = 12, 0.45
"""Warps of a multiprocessor that hide what others wait for, and how fast it is beside that with next to none.

As measured of gradients of rms norms of 4096 on an H200: 4 warps take 1.8 times as long as 12 for each row, 8 take 1.2.
"""

FREE_LEVELS = 2
"""Steps for rows of a symbolic number: a program has up to 16 of them."""

_CHAIN = LEAF // LANES
_COLUMNS = 64
"""Columns that a program joins side by side: lines are read in pieces of 256 bytes."""

_PROGRAM, _NUMBER, _ROW, _COLUMN, _LINE, _LANE = (Dim.symbol(name) for name in ("_p", "_i", "_w", "_j", "_s", "_l"))


@frozen
class Split:
    """The body of such a group in two: what is computed for rows, and what follows from sums along columns."""

    rows: Tape
    """Records of rows; its outputs are those of the body among them, and what is summed along columns."""
    sums: tuple[Record, ...]
    """The sums along columns."""
    outputs: tuple[int, ...]
    """Outputs of the body that follow from these."""
    space: RowSpace
    """The space that they reduce, and which values are rows of it: one number for each column."""


def reduced_axes(body: Tape, record: Record) -> tuple[int, ...]:
    """The axes of a reduction; none of anything else."""
    lower = spec_of(record).lower
    return tuple(lower.axes(body.types[record.operands[0]], record.attributes)) if isinstance(lower, Reduction) else ()


def split_columns(body: Tape, axes: tuple[int, ...]) -> Split | None:
    """The two parts of a body whose rows are along `axes`; None where it reduces nothing else.

    Raises ValueError for one that no kernel computes: sums that rows need, or that are not along all other axes.
    """
    sums = [record for record in body.records if reduced_axes(body, record) not in ((), axes)]
    if not sums:
        return None
    shape = body.types[sums[0].operands[0]].shape
    others = tuple(axis for axis in range(len(shape)) if axis not in axes)
    space = RowSpace(shape, others)
    behind: set[int] = set()
    for record in body.records:
        if record in sums or not behind.isdisjoint(record.operands):
            behind.update(record.results)
    for record in sums:
        source = body.types[record.operands[0]]
        if source.shape != shape or reduced_axes(body, record) != others or record.operands[0] in behind:
            raise ValueError(f"a row group reduces {source} over {reduced_axes(body, record)} beside rows over {axes}")
    for record in body.records:
        for value in record.results:
            if value in behind:
                keepdims = body.types[value].shape == space.row_shape(True)
                if not keepdims and body.types[value].shape != space.row_shape(False):
                    raise ValueError(f"`{record.op}` reads what a group of rows of {list(shape)} reduces along columns")
                space.rows[value] = keepdims
    stored = [value for value in body.outputs if value not in behind]
    summed = dict.fromkeys(record.operands[0] for record in sums)
    records = [record for record in body.records if behind.isdisjoint(record.results)]
    rows = replace(body, records=records, outputs=[*stored, *(value for value in summed if value not in stored)])
    return Split(rows, tuple(sums), tuple(value for value in body.outputs if value in behind), space)


def check_columns(body: Tape, split: Split) -> None:
    """Raise ValueError where a number of one column is read at another, or rows are read with it."""
    _, reads = row_reads(replace(body, outputs=list(split.outputs)), split.space.axes)
    for value, keepdims in split.space.rows.items():
        if value in reads.found:
            reads.check(value, split.space.row_at(split.space.full, keepdims))


def can_sum(body: Tape, record: Record) -> bool:
    """Whether a reduction is a sum with an f32 accumulator, whose lanes and leaves may be anybody's."""
    lower = spec_of(record).lower
    return isinstance(lower, Reduction) and lower.kind == "sum" and carried_dtypes(body, record) == [f32]


def _speed(programs: int, resident: int, warps: int) -> float:
    """How fast a multiprocessor is with so many programs, of which some are there at a time; in the end these are few.

    >>> _speed(8, 2, 4) < _speed(6, 3, 4), _speed(4, 3, 4) < _speed(6, 3, 4)
    (True, True)
    """
    whole, left = divmod(programs, resident)
    parts = [resident] * whole + [left] * bool(left)
    return programs / sum(part / min(1.0, IDLE + (1 - IDLE) * part * warps / ENOUGH) for part in parts)


def row_levels(candidates: Sequence[Any], context: Mapping[str, Any]) -> int:
    """Steps of the tree over lanes for each program, by what is moved for sums and how evenly programs fill a GPU.

    A program has sums of each step in shared memory. What it moves is its rows, and its last sums twice.
    """
    machine: Machine = context["machine"]
    rows, level, row = context["rows"].value, context["level"], context["row"]
    warps, registers = -(-context["width"] // LEAF), REGISTERS + REGISTERS_OF_A_SUM * context["sums"]
    found, best = 0, 0.0
    for levels in candidates:
        usage = Usage(warps * WARP, min(registers, MAX_REGISTERS), levels * level + RESERVED)
        resident = occupancy(machine.multiprocessor or Multiprocessor(64, 32, machine.shared), usage).blocks
        if not resident or usage.shared > machine.shared:
            break
        each = _CHAIN << levels
        share = each * row / (each * row + 2 * level)
        if rows is None:
            # Few rows are as likely as many: programs stay short.
            share *= levels <= FREE_LEVELS
        else:
            programs = -(-rows // LEAF) * (LANES >> levels)
            most = -(-programs // machine.blocks)
            share *= programs / (most * machine.blocks) * _speed(most, resident, warps)
        if share > best:
            found, best = levels, share
    return found


class RowColumnsGroup:
    """The three kernels of such a group."""

    def __init__(self, request: Request, split: Split, axes: tuple[int, ...]) -> None:
        self.request, self.split = request, split
        shape = split.space.shape
        self.rows = product(shape[axis] for axis in split.space.axes)
        self.width = product(shape[axis] for axis in axes)
        self.leaves = maximum(self.rows.ceildiv(LEAF), 1)
        self.axes = axes
        full = [type for type in request.arguments if type.shape == shape]
        size = self.width.value or 0
        context = {
            "rows": self.rows,
            "width": size,
            "sums": len(split.sums),
            "level": len(split.sums) * size * f32.bytes,
            "row": sum(type.dtype.bytes for type in full) * size,
        }
        self.levels: int = request.choose("row.levels", LEVELS, **context)
        self.parts = LANES >> self.levels
        """Programs of a leaf, each with every so many lanes of it."""
        each = [TensorType.of([self.leaves * self.parts * self.width], f32) for _ in split.sums]
        joined = [TensorType.of([self.leaves * self.width], f32) for _ in split.sums]
        self.temporaries = (*each, *joined)

    def emit(self) -> list[SpecOp]:
        """All kernels, in the order they run."""
        space = row_reads(self.split.rows, self.axes)[0]
        own = replace(self.request, body=self.split.rows)
        made = RowsKernel(own, space, self).emit()
        return [made, self._reduce_lanes(), self._join_leaves()]

    def request_of(self, suffix: str) -> Request:
        """The request for one of the kernels, all of which have the group's arguments and temporaries."""
        return replace(self.request, name=f"{self.request.name}{suffix}", temporaries=self.temporaries)

    def argument(self, temporary: int) -> int:
        """The number of a temporary among all arguments."""
        return len(self.request.body.inputs) + len(self.request.body.outputs) + temporary

    def lines_of(self, tile: TileBuilder, number: int, *, are_joined: bool = False) -> SSAValue:
        """The memory of a sum: lines of all programs, or of leaves once they are joined."""
        return tile.arguments[self.argument(number + are_joined * len(self.split.sums))]

    def reducer(self, tile: TileBuilder, number: int) -> Reducer:
        """A sum along columns."""
        record = self.split.sums[number]
        return Reducer(tile, record, self.request.body, spec_of(record).lower, ())

    def _columns(self, tile: TileBuilder, program: SSAValue) -> TileRegion:
        start = tile.index(_COLUMN * _COLUMNS, {"_j": program})
        return TileRegion({"_j": start}, ("_j",), (_COLUMNS,), {"_j": self.width})

    def _reduce_lanes(self) -> SpecOp:
        """The lines of each leaf, by what is left of the tree over lanes; a program has some columns of a leaf."""
        count = len(self.split.sums)
        tile = self.request_of("_lanes").builder(
            [self.leaves, self.width.ceildiv(_COLUMNS)],
            "row",
            True,
            [self.argument(count + number) for number in range(count)],
        )
        leaf = tile.program_id(0)
        region = self._columns(tile, tile.program_id(1))
        first = tile.index(_LINE * self.parts, {"_s": leaf})
        lines = TileRegion({**region.coords, "_w": first}, ("_w", "_j"), (self.parts, _COLUMNS), region.bounds)
        for number in range(count):
            found = tile.load(self.lines_of(tile, number), (_ROW * self.width + _COLUMN,), lines)
            total = tile.reduce(found, "sum", 0)
            where = (_LINE * self.width + _COLUMN,)
            tile.store(total, self.lines_of(tile, number, are_joined=True), where, region.with_coords(_s=leaf))
        return tile.finish()

    def _join_leaves(self) -> SpecOp:
        """The leaves of some columns joined, and what follows from their sums stored."""
        body, split = self.request.body, self.split
        first = len(body.inputs)
        writes = [first + at for at, value in enumerate(body.outputs) if value in split.outputs]
        tile = self.request_of("_join").builder([self.width.ceildiv(_COLUMNS)], "row", True, writes)
        region = self._columns(tile, tile.program_id(0))
        evaluator = Evaluator(body, tile, dict(zip(body.inputs, tile.arguments[:first], strict=True)), True)
        zero = tile.index(0)
        for number, record in enumerate(split.sums):
            buffer = self.lines_of(tile, number, are_joined=True)

            def line(at: Dim, where: TileRegion, buffer: SSAValue = buffer) -> SSAValue:
                return tile.load(buffer, (at * self.width + _COLUMN,), where)

            total = join_lines(tile, self.reducer(tile, number), self.leaves, region, zero, line)
            evaluator.ready[record.results[0]] = (total, region.axes)
        full = [ZERO] * len(split.space.shape)
        for axis, expr in zip(self.axes, delinear(_COLUMN, [split.space.shape[a] for a in self.axes]), strict=True):
            full[axis] = expr
        for number, value in enumerate(body.outputs):
            if value in split.outputs:
                at = split.space.at(value, tuple(full))
                tile.span = evaluator.span_of(value)
                where = (linear(at, body.types[value].shape),)
                tile.store(evaluator.value(value, at, region), tile.arguments[first + number], where, region)
        return tile.finish()


class RowsKernel(RowKernel):
    """The rows: each program has those of some lanes of a leaf, and leaves a line of sums for each of the sums."""

    tile: TileBuilder

    def __init__(self, request: Request, space: RowSpace, group: RowColumnsGroup) -> None:
        super().__init__(request, space)
        self.group = group

    @property
    def is_single(self) -> bool:
        # Also one leaf is gone over by a loop, like those around it: warps have leaves of rows and of accumulators.
        return False

    def emit(self) -> SpecOp:
        group, whole = self.group, self.group.request
        names = list(whole.body.outputs)
        stored = [value for value in self.body.outputs if value in names]
        first = len(whole.body.inputs)
        writes = [first + names.index(value) for value in stored]
        writes += [group.argument(number) for number in range(len(group.split.sums))]
        grid = [group.leaves * group.parts]
        self.tile = tile = group.request_of("_rows").builder(grid, "row", self.flat, writes)
        self.targets = {value: tile.arguments[first + names.index(value)] for value in stored}
        self.evaluator = Evaluator(
            self.body, tile, dict(zip(self.body.inputs, tile.arguments[:first], strict=True)), self.flat
        )
        self.zero, self.end = tile.index(0), tile.index(self.extent)
        self.low, self.high = self.zero, self.end
        self.scratch = {
            value: tile.scratch([self.extent, self.width], self.body.types[value].dtype) for value in self.plan.kept
        }
        spaces = ["private", *["shared"] * group.levels]
        self.sums = [[tile.scratch([self.extent], f32, space=space) for _ in group.split.sums] for space in spaces]
        self.program = tile.program_id(0)
        self.over_leaves(lambda region: self._clear(range(len(self.sums)), region))
        tile.loop(self.zero, tile.index(_CHAIN << group.levels), 1, self._row)
        self.over_leaves(self._store_lines)
        return hoist_scratch(tile.finish())

    def over_leaves(self, body: Callable[[TileRegion], None]) -> None:
        """Go over the columns, leaf by leaf as rows are reduced, with all lanes of a leaf as tiles."""
        tile = self.tile

        def leaf(start: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            for number in range(_CHAIN):
                # As passes over rows write it: threads that hold sums in registers find them by their index.
                at = tile.index(_LANE + number * LANES, {"_l": start}) if number else start
                body(TileRegion({"_r": at}, ("_r",), (LANES,), {"_r": self.extent}))
            return carried

        tile.loop(self.low, self.high, LEAF, leaf)

    def _clear(self, levels: Sequence[int], region: TileRegion) -> None:
        for level in levels:
            for buffer in self.sums[level]:
                self._put(self.tile.full(0, region.sizes, f32), buffer, region)

    def _put(self, value: SSAValue, buffer: SSAValue, region: TileRegion) -> None:
        self.tile.store(value, buffer, (Dim.symbol("_r"),), region)

    def _take(self, buffer: SSAValue, region: TileRegion) -> SSAValue:
        return self.tile.load(buffer, (Dim.symbol("_r"),), region)

    def _row(self, number: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """A row of the program, and steps of the tree that end with it."""
        group, tile = self.group, self.tile
        lane = _PROGRAM % group.parts
        for level in range(group.levels):
            # What lanes join first is furthest on.
            lane = lane + (_NUMBER // (_CHAIN << level)) % 2 * (LANES // 2 >> level)
        at = _PROGRAM // group.parts * LEAF + lane + _NUMBER % _CHAIN * LANES
        row = tile.index(at, {"_p": self.program, "_i": number})

        def write(_: SSAValue | None, carried: list[SSAValue]) -> list[SSAValue]:
            with self.evaluator.scope():
                parts = delinear(_ROW, self.walk.extents)
                coords = {
                    name: tile.index(expr, {"_w": row}) for name, expr in zip(self.walk.names, parts, strict=True)
                }
                self.row_region = TileRegion(coords)
                for level in range(self.plan.passes + 1):
                    self.row_values(level)
                    self._pass(level)
            return carried

        if group.rows.value is not None and group.rows.value % LEAF == 0:
            write(None, [])
        else:
            # The last leaf may have fewer rows.
            is_there = tile.index(maximum(minimum(group.rows - _ROW, 1), 0), {"_w": row})
            tile.loop(self.zero, is_there, 1, write)
        self._join_levels(number, 0)
        return carried

    def _join_levels(self, number: SSAValue, level: int) -> None:
        """The sums of a level joined with those of the next one, where the rows up to this one are all of theirs."""
        if level == self.group.levels:
            return
        tile, each = self.tile, _CHAIN << level

        def join(_: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            self.over_leaves(lambda region: self._join_level(level, region))
            self._join_levels(number, level + 1)
            return carried

        is_last = tile.index((_NUMBER % each + 1) // each, {"_i": number})
        tile.loop(self.zero, is_last, 1, join)

    def _join_level(self, level: int, region: TileRegion) -> None:
        for own, other in zip(self.sums[level], self.sums[level + 1], strict=True):
            joined = self.tile.elementwise("add", self._take(other, region), self._take(own, region))
            self._put(joined, other, region)
        self._clear([level], region)

    def _store_lines(self, region: TileRegion) -> None:
        own = region.with_coords(_p=self.program)
        for number, buffer in enumerate(self.sums[-1]):
            where = (_PROGRAM * self.extent + Dim.symbol("_r"),)
            self.tile.store(self._take(buffer, region), self.group.lines_of(self.tile, number), where, own)

    def _pass(self, level: int) -> None:
        """A pass; what is summed along columns is added in the last one, when all of it can be computed."""
        records = [record for record in self.plan.reductions if self.plan.stage[record.results[0]] == level]
        is_last = level == self.plan.passes - 1
        stored = [v for v in self.targets if self.plan.stage.get(v) == level and v not in self.plan.ready]
        kept = [value for value in self.plan.kept if self.plan.stage[value] == level]
        self.adds = is_last
        if records or stored or kept or is_last:
            reducers = [Reducer(self.tile, record, self.body, spec_of(record).lower, ()) for record in records]
            self.run_pass(level, reducers, stored, kept)

    def step(
        self,
        level: int,
        reducers: list[Reducer],
        stored: list[int],
        kept: list[int],
        carried: list[SSAValue],
        region: TileRegion,
    ) -> list[SSAValue]:
        results = super().step(level, reducers, stored, kept, carried, region)
        if self.adds:
            lanes = TileRegion({"_r": region.coords["_r"]}, ("_r",), region.sizes, {"_r": self.extent})
            for number, record in enumerate(self.group.split.sums):
                value = self.evaluator.compute(record.operands[0], self.at_full(), region)
                sums = self.group.reducer(self.tile, number)
                buffer = self.sums[0][number]
                (total,) = sums.step([self._take(buffer, lanes)], value, region)
                self._put(total, buffer, lanes)
        return results

    def _store(self, value: int, at: IndexMap, region: TileRegion) -> None:
        if value in self.targets:
            where = (linear(at, self.body.types[value].shape),) if self.flat else at
            self.tile.span = self.evaluator.span_of(value)
            self.tile.store(self.evaluator.value(value, at, region), self.targets[value], where, region)


def hoist_scratch(kernel: SpecOp) -> SpecOp:
    """Have a kernel allocate all of its scratch once, in front of its loops."""
    block = kernel.regions[0].block
    for op in list(kernel.walk()):
        if isinstance(op, ScratchOp) and op.parent_block() is not block:
            op.detach()
            assert block.first_op is not None
            block.insert_op_before(op, block.first_op)
    return kernel
