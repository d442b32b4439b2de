"""Kernels with tiles of any size as loops over parts of them: the text grows with the ops, not with the elements.

The result is Tile IR again, and computes the same bits: every tile is a few vectors wide, and what one loop gives and
another one reads is in private scratch. Dots alone keep their whole tiles, loaded from scratch and stored to it at
once: those become `ttarget.block_dot`, which works in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.cpu.block_kernels import is_fresh
from tessera.backends.cpu.tile_segments import Plan, Planner, Segment, sizes_of, space_of, undo_transpose
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr
from tessera.ir.tile import typed_ops as ttile
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.language import TileWriter, tile_type
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import holds

_SCALAR = ("ttile.program_id", "ttile.index", "ttile.fetch", "ttile.scratch")
_SHIFTED = {"ttile.load": 1, "ttile.store": 2, "ttile.coordinate": 0, "ttile.clip": 1}
"""Ops with coordinates, and the operand that those begin at."""
_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
_ROWS = 8
"""Rows of a column that are reduced in registers."""
_MOST = 8
"""Vectors of a row that is in registers as a whole."""
_STEP = 32
"""Elements of a longer row that an iteration has: the segments that lanes exchange in are no longer."""


@frozen
class Offset:
    """Where a part begins along an axis: a number, or an index that is known in the scopes from `level` on."""

    number: int = 0
    value: SSAValue | None = None
    level: int = 0


_START = Offset()


@frozen
class Part:
    """A part of a tile: where it begins, and its sizes."""

    offsets: tuple[Offset, ...]
    sizes: tuple[int, ...]

    def pick(self, axes: Sequence[int]) -> Part:
        """The part of a tile that has some of the axes."""
        return Part(tuple(self.offsets[axis] for axis in axes), tuple(self.sizes[axis] for axis in axes))

    def insert(self, axis: int, offset: Offset, size: int) -> Part:
        """The part of a tile that has an axis more."""
        return Part(
            (*self.offsets[:axis], offset, *self.offsets[axis:]), (*self.sizes[:axis], size, *self.sizes[axis:])
        )


@dataclass
class _Scope:
    """A block that is being written, and what was computed in it."""

    block: Block
    made: dict[Any, SSAValue] = field(default_factory=dict[Any, SSAValue])


class TileLoops(TileWriter):
    """Writes a kernel once more, with loops over parts of its tiles for vectors of so many `lanes`."""

    def __init__(self, kernel: SpecOp, lanes: int) -> None:
        source = kernel.regions[0].block
        super().__init__(Block(arg_types=[argument.type for argument in source.args]))
        self.kernel, self.lanes = kernel, lanes
        self.values: dict[SSAValue, SSAValue] = dict(zip(source.args, self.block.args, strict=True))
        """What stands for indices and buffers."""
        self.homes: dict[SSAValue, SSAValue] = {}
        """The scratch that tiles are kept in."""
        self.planner = Planner(kernel, self.has_rows)
        self.scopes = [_Scope(self.block)]
        self.base = 0
        """The scope of the segment at hand."""
        self.current: set[SpecOp] = set()
        self.done: set[object] = set()
        """Ops that nothing is left to be written of."""
        self.yields: dict[SSAValue, SSAValue] = {}
        """What loops end with, and where it is carried on."""

    def run(self) -> SpecOp:
        """The kernel."""
        self.write_block(self.kernel.regions[0].block)
        self.emit("return")
        return make(
            DIALECT["kernel"], values=self.kernel.values(), types=(), regions=[self.block], span=self.kernel.span
        )

    # Blocks.

    def write_block(self, source: Block) -> None:
        """The ops of a block: what is between loops and dots, divided into segments."""
        run: list[SpecOp] = []
        for op in source.ops:
            assert isinstance(op, SpecOp)
            if isinstance(op, ttile.FetchOp) and op.operands[0] not in self.planner.read_only:
                self._flush(run)
            if op.name in _SCALAR:
                self._copy(op)
            elif isinstance(op, ttile.DotOp | ttile.ForOp | ttile.BarrierOp | ttile.SortOp | ttile.TreeOp):
                self._flush(run)
                self.span = op.span
                self._write_alone(op)
                self.done.add(op)
            elif not isinstance(op, ttile.YieldOp | ttile.ReturnOp):
                run.append(op)
        self._flush(run)

    def _write_alone(self, op: SpecOp) -> None:
        if isinstance(op, ttile.DotOp):
            self._dot(op)
        elif isinstance(op, ttile.ForOp):
            self._for(op)
        elif isinstance(op, ttile.SortOp | ttile.TreeOp):
            self.emit(op.spec.short_name, [self.values[value] for value in op.operands], op.values())

    def _copy(self, op: SpecOp) -> None:
        self.span = op.span
        operands = [self.values[value] for value in op.operands]
        types = [result.type for result in op.results]
        self.values[op.results[0]] = self.emit(op.spec.short_name, operands, op.values(), types).results[0]

    def _flush(self, run: list[SpecOp]) -> None:
        plan = self.planner.plan(run)
        run.clear()
        for segment in plan.segments:
            self.current = set(segment.ops)
            with self._segment():
                if segment.reduction:
                    self._reduce(segment.ops[0])
                else:
                    self._write_segment(segment, plan)
            self.current = set()
            self.done.update(segment.ops)

    def _write_segment(self, segment: Segment, plan: Plan) -> None:
        """One loop nest: a part goes through all ops, and what others read of it goes to scratch."""
        kept = [op.results[0] for op in segment.ops if op.results and op.results[0] in plan.kept]
        for value in kept:
            buffer = self.yields.get(value)
            is_free = buffer is not None and self._can_overwrite(buffer, self.current)
            self.homes[value] = buffer if is_free and buffer is not None else self._allocate(value)

        def write(part: Part) -> None:
            for op in segment.ops:
                self.span = op.span
                if isinstance(op, ttile.StoreOp):
                    self._shift(op, part.pick(range(len(space_of(op)))))
                else:
                    self.evaluate(op.results[0], part.pick(range(len(sizes_of(op.results[0])))))
            for value in kept:
                own = part.pick(range(len(sizes_of(value))))
                self._write(self.homes[value], self.evaluate(value, own), own)

        self._each_part(segment.space, write)

    # Scopes, loops, and parts.

    @contextmanager
    def _scope(self, block: Block) -> Generator[None]:
        outer, self.block = self.block, block
        self.scopes.append(_Scope(block))
        yield
        self.scopes.pop()
        self.block = outer

    @contextmanager
    def _segment(self) -> Generator[None]:
        """A scope in the block at hand: what a segment computes, no other one finds there."""
        outer = self.base
        with self._scope(self.block):
            self.base = self._level
            yield
        self.base = outer

    def _at(self, level: int, key: Any, write: Callable[[], SSAValue]) -> SSAValue:
        """What was written under a key, or is now, in the scope of a level."""
        scope = self.scopes[level]
        if key not in scope.made:
            outer, self.block = self.block, scope.block
            scope.made[key] = write()
            self.block = outer
        return scope.made[key]

    def _constant(self, number: int) -> SSAValue:
        return self._at(0, ("constant", number), lambda: self.index(number))

    @property
    def _level(self) -> int:
        return len(self.scopes) - 1

    def _offset(self, number: int) -> Offset:
        return Offset(number, self._constant(number) if number else None)

    def _each(self, low: int, high: int, step: int, body: Callable[[Offset], None]) -> None:
        """`body` for each of the whole steps from `low` to `high`."""
        if high - low <= step:
            body(self._offset(low))
            return
        start, end, inner = self._constant(low), self._constant(high), Block(arg_types=[INDEX])
        with self._scope(inner):
            body(Offset(0, inner.args[0], self._level))
            self.emit("yield")
        self.emit("for", [start, end], {"step": step}, (), [inner])

    def has_rows(self, space: Sequence[int]) -> bool:
        """Whether whole rows of tiles of these sizes are in registers."""
        last = space[-1] if space else 0
        return 0 < last <= _MOST * self.lanes and (last % self.lanes == 0 or last < self.lanes)

    def _runs(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """A stretch of a row as whole steps, whole vectors, and what is left: where each begins, ends, and its step."""
        found: list[tuple[int, int, int]] = []
        for step in (_STEP, (high - low) % _STEP // self.lanes * self.lanes, (high - low) % _STEP % self.lanes):
            if step and (count := (high - low) // step):
                found.append((low, low + count * step, step))
                low += count * step
        return found

    def _each_part(
        self, space: tuple[int, ...], body: Callable[[Part], None], done: Part | None = None, *, is_single: bool = False
    ) -> None:
        """`body` for each part of a tile: whole rows that fit registers, else steps of a row, or single elements."""
        done = done or Part((), ())
        axis = len(done.sizes)
        if axis == len(space):
            body(done)
            return
        runs = [(0, space[axis], 1)]
        if axis == len(space) - 1 and not is_single:
            runs = [(0, space[axis], space[axis])] if self.has_rows(space) else self._runs(0, space[axis])
        for low, high, step in runs:

            def next_axis(at: Offset, step: int = step) -> None:
                self._each_part(space, body, done.insert(axis, at, step), is_single=is_single)

            self._each(low, high, step, next_axis)

    # Memory.

    def _allocate(self, value: SSAValue, sizes: Sequence[int] | None = None, dtype: DType | None = None) -> SSAValue:
        """Scratch for a tile, of which there is one for all iterations of a loop."""
        type = tile_type(value)
        outer, self.block = self.block, self.scopes[0].block
        buffer = self.scratch(type.shape if sizes is None else sizes, dtype or type.dtype)
        self.block = outer
        return buffer

    def _address(self, part: Part, is_transposed: bool = False) -> tuple[list[SSAValue], dict[str, Any]]:
        names = tuple(f"_{axis}" for axis in range(len(part.sizes)))
        at = [offset.value or self._constant(0) for offset in part.offsets]
        # A transposed tile is read with the axes of the memory swapped, at the part of what is in memory.
        axes = names[::-1] if is_transposed else names
        none = tuple(Dim.constant(-1) for _ in names)
        return at, {"coords": names, "axes": axes, "map": tuple(map(Dim.symbol, names)), "bounds": none}

    def _read(self, buffer: SSAValue, part: Part, is_transposed: bool = False) -> SSAValue:
        assert isinstance(buffer.type, BufferAttr)
        at, access = self._address(part, is_transposed)
        sizes = part.sizes[::-1] if is_transposed else part.sizes
        type = TileAttr.of(buffer.type.data.with_shape(sizes))
        return self.emit("load", [buffer, *at], {**access, "pad": 0}, [type]).result

    def _write(self, buffer: SSAValue, tile: SSAValue, part: Part) -> None:
        at, access = self._address(part)
        self.emit("store", [tile, buffer, *at], {**access, "mode": "set"})

    def _keep(self, value: SSAValue, buffer: SSAValue) -> None:
        """Copy a tile to scratch."""

        def copy(part: Part) -> None:
            self._write(buffer, self.evaluate(value, part), part)

        with self._segment():
            self._each_part(sizes_of(value), copy)

    def _can_overwrite(self, buffer: SSAValue, ops: set[SpecOp]) -> bool:
        """Whether nothing reads what is in scratch any more but `ops`, which read a part before they write it."""
        users = [use.operation for value, home in self.homes.items() if home is buffer for use in value.uses]
        return all(user in self.done or user in ops for user in users)

    # Tiles.

    def evaluate(self, value: SSAValue, part: Part) -> SSAValue:
        """A part of a tile, computed in the outermost loop that knows where it is."""
        return self._at(self._level_of(part.offsets), (value, part), lambda: self._compute(value, part))

    def _level_of(self, offsets: Sequence[Offset]) -> int:
        return max((self.base, *(offset.level for offset in offsets)))

    def _compute(self, value: SSAValue, part: Part) -> SSAValue:
        op = value.op if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or not (op in self.current or self.planner.is_free(value)):
            return self._read(self.homes[value], part)
        if isinstance(op, ttile.BroadcastOp):
            return self.broadcast(self.evaluate(op.operands[0], part.pick(op.axes)), part.sizes, op.axes)
        if isinstance(op, ttile.TransposeOp):
            return self._transpose(op.operands[0], part.pick((1, 0)))
        if isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp):
            part = part.insert(op.value("axis"), _START, space_of(op)[-1])
        if op.name in _SHIFTED:
            return self._shift(op, part)
        operands = [self.evaluate(operand, part) for operand in op.operands]
        sizes = part.sizes if not isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp) else part.sizes[:-1]
        type = TileAttr.of(tile_type(value).with_shape(sizes))
        return self.emit(op.spec.short_name, operands, op.values(), [type]).result

    def _transpose(self, source: SSAValue, part: Part) -> SSAValue:
        if self.planner.is_free(source):
            assert isinstance(source, OpResult)
            assert isinstance(source.op, ttile.LoadOp)
            return self._shift(source.op, part, is_transposed=True)
        return self._read(self.homes[source], part, is_transposed=True)

    def _shift(self, op: SpecOp, part: Part, *, is_transposed: bool = False) -> Any:
        """An op with coordinates, at a part of its tile."""
        first, values = _SHIFTED[op.name], op.values()
        starts = dict(zip(values["axes"], part.offsets, strict=True))
        coords = dict(zip(values["coords"], op.operands[first:], strict=False))
        at = [
            self._add(self.values[start], starts[name]) if name in starts else self.values[start]
            for name, start in coords.items()
        ]
        before = [
            self.evaluate(value, part) if isinstance(value.type, TileAttr) else self.values[value]
            for value in op.operands[:first]
        ]
        tiles = [self.evaluate(value, part) for value in op.operands[first + len(coords) :]]
        sizes = part.sizes
        if is_transposed:
            values.update(axes=values["axes"][::-1], bounds=values["bounds"][::-1])
            sizes = sizes[::-1]
        types = [TileAttr.of(tile_type(result).with_shape(sizes)) for result in op.results]
        made = self.emit(op.spec.short_name, [*before, *at, *tiles], values, types)
        return made.results[0] if types else None

    def _add(self, start: SSAValue, offset: Offset, more: int = 0) -> SSAValue:
        """An index, and how far a part is from it."""
        if offset.value is None and not more:
            return start
        by = offset.value or self._constant(0)
        names = {"_start": start, "_by": by}
        return self._at(
            self._level_of([offset]),
            ("add", start, by, more),
            lambda: self.index(Dim.symbol("_start") + Dim.symbol("_by") + more, names),
        )

    # Loops and dots.

    def _for(self, op: SpecOp) -> None:
        """A loop that carries tiles in scratch: its body reads what the iteration before has left there."""
        source = op.regions[0].block
        last = source.last_op
        assert last is not None
        carried = list(zip(op.operands[2:], source.args[1:], op.results, last.operands, strict=True))
        self.done.add(op)
        for start, inner, _, end in carried:
            self.homes[inner] = self._own(start, {op})
            self.yields[end] = self.homes[inner]
        bounds, body = [self.values[value] for value in op.operands[:2]], Block(arg_types=[INDEX])
        self.values[source.args[0]] = body.args[0]
        with self._scope(body):
            self.write_block(source)
            self._carry([(inner, end) for _, inner, _, end in carried])
            self.emit("yield")
        self.span = op.span
        self.emit("for", bounds, op.values(), (), [body])
        self.homes.update({result: self.homes[inner] for _, inner, result, _ in carried})

    def _own(self, value: SSAValue, ops: set[SpecOp]) -> SSAValue:
        """Scratch that holds a tile and may be overwritten: the tile's own where only `ops` read it, else a copy."""
        is_here = isinstance(value, OpResult) and any(value.op.parent is op.parent for op in ops)
        is_here |= any(value in op.parent.args for op in ops if op.parent is not None)
        if value in self.homes and is_here and self._can_overwrite(self.homes[value], ops):
            return self.homes[value]
        buffer = self._allocate(value)
        self._keep(value, buffer)
        return buffer

    def _carry(self, pairs: Sequence[tuple[SSAValue, SSAValue]]) -> None:
        """Put what an iteration ends with where the next one reads it."""
        moved = [(self.homes[inner], end) for inner, end in pairs if self.homes.get(end) is not self.homes[inner]]
        targets, staged = [buffer for buffer, _ in moved], list[tuple[SSAValue, SSAValue, SSAValue]]()
        for buffer, end in moved:
            sources = self.planner.sources(end, tuple(range(len(sizes_of(end)))))
            if any(self.homes[value] in targets for value, _ in sources):
                # Copied before any of them is overwritten.
                staged.append((buffer, self._allocate(end), end))
                self._keep(end, staged[-1][1])
        for buffer, end in moved:
            if not any(end is other for _, _, other in staged):
                self._keep(end, buffer)
        for buffer, spare, end in staged:
            with self._segment():
                self._each_part(
                    sizes_of(end),
                    lambda part, buffer=buffer, spare=spare: self._write(buffer, self._read(spare, part), part),
                )

    def _dot(self, op: SpecOp) -> None:
        """Whole tiles of scratch, added to one of them in place."""
        lhs, rhs, acc = op.operands
        fresh = is_fresh(acc)
        operands = [self._operand(value, acc) for value in (lhs, rhs)]
        buffer = self._allocate(acc) if fresh else self._own(acc, {op})
        if any(load.op.operands[0] is buffer for load in operands if isinstance(load, OpResult)):
            buffer = self._allocate(acc)
            self._keep(acc, buffer)
        whole = _whole(sizes_of(acc))
        start = self.full(0, whole.sizes, tile_type(acc).dtype) if fresh else self._read(buffer, whole)
        self._write(buffer, self.emit("dot", [*operands, start], op.values(), [acc.type]).result, whole)
        self.homes[op.results[0]] = buffer

    def _operand(self, value: SSAValue, acc: SSAValue) -> SSAValue:
        """An operand of a dot, as it is in scratch, in a dtype that the accumulator's holds."""
        source, is_transposed = undo_transpose(value)
        home, dtype = self.homes[source], tile_type(acc).dtype
        if not holds(dtype, tile_type(source).dtype):
            home = wide = self._allocate(source, dtype=dtype)

            def widen(part: Part) -> None:
                self._write(wide, self.cast(self.evaluate(source, part), dtype), part)

            with self._segment():
                self._each_part(sizes_of(source), widen)
        return self._read(home, _whole(sizes_of(source)), is_transposed)

    # Reductions by loops: of columns, and of rows that are longer than registers or not whole vectors.

    def _reduce(self, op: SpecOp) -> None:
        axis, space = op.value("axis"), space_of(op)
        home = self.homes[op.results[0]] = self._allocate(op.results[0])
        is_last = axis == len(space) - 1

        def write(part: Part) -> None:
            reduce = self._reduce_by_halves if isinstance(op, ttile.ReduceOp) else self._reduce_indices
            self._write(home, reduce(op, part), part)

        self._each_part((*space[:axis], *space[axis + 1 :]), write, is_single=is_last)

    def _reduce_by_halves(self, op: SpecOp, part: Part) -> SSAValue:
        """The halving tree: upper halves joined to lower ones in scratch, until what is left fits registers."""
        axis: int = op.value("axis")
        size = space_of(op)[axis]
        is_last, kind = axis == len(space_of(op)) - 1, op.value("kind")
        most = _MOST * self.lanes if is_last else _ROWS

        def source(at: Offset, count: int) -> SSAValue:
            return self.evaluate(op.operands[0], part.insert(axis, at, count))

        if not (self.has_rows((size,)) if is_last else size <= most):
            half = 1 << (size - 1).bit_length() - 1
            line = _whole(part.sizes)
            buffer = self._allocate(op.operands[0], line.insert(axis, _START, half).sizes)

            def read(at: Offset, count: int) -> SSAValue:
                return self._read(buffer, line.insert(axis, at, count))

            def join(low: int, high: int, read: Callable[[Offset, int], SSAValue], by: int) -> None:
                for first, end, step in self._runs(low, high) if is_last else [(low, high, 1)]:

                    def write(at: Offset, step: int = step) -> None:
                        tile = read(at, step)
                        if by:
                            tile = self.elementwise(_JOIN[kind], tile, read(self._plus(at, by), step))
                        self._write(buffer, tile, line.insert(axis, at, step))

                    self._each(first, end, step, write)

            join(0, size - half, source, half)
            if size < 2 * half:
                join(size - half, half, source, 0)
            while half > most:
                half //= 2
                join(0, half, read, half)
            size, source = half, read
        return self.reduce(source(_START, size), kind, axis)

    def _reduce_indices(self, op: SpecOp, part: Part) -> SSAValue:
        """The min or max of each few elements and its index, and then of those: no order gives another result."""
        axis: int = op.value("axis")
        size = space_of(op)[axis]
        most = self.lanes if axis == len(space_of(op)) - 1 else _ROWS
        line, kind = _whole(part.sizes), op.value("kind")

        def sources(at: Offset, count: int) -> list[SSAValue]:
            return [self.evaluate(value, part.insert(axis, at, count)) for value in op.operands]

        while size > most:
            count = -(-size // most)
            buffers = [self._allocate(value, line.insert(axis, _START, count).sizes) for value in op.operands]

            def write(at: Offset, width: int, read: Any = sources, buffers: Sequence[SSAValue] = buffers) -> None:
                values, indices = read(at, width)
                found = (self.reduce(values, kind[3:], axis), self.arg_reduce(values, indices, kind, axis))
                for buffer, tile in zip(buffers, found, strict=True):
                    self._write_slice(buffer, tile, axis, self._quotient(at, most))

            self._each(0, size // most * most, most, lambda at, write=write: write(at, most))
            if size % most:
                write(self._offset(size // most * most), size % most)

            def read(at: Offset, count: int, buffers: Sequence[SSAValue] = buffers) -> list[SSAValue]:
                return [self._read(buffer, line.insert(axis, at, count)) for buffer in buffers]

            size, sources = count, read
        values, indices = sources(_START, size)
        return self.arg_reduce(values, indices, kind, axis)

    def _write_slice(self, buffer: SSAValue, tile: SSAValue, axis: int, slot: SSAValue) -> None:
        """Write a tile to scratch that has an axis more, at one index along it."""
        assert isinstance(buffer.type, BufferAttr)
        at, access = self._address(_whole([1] * len(buffer.type.shape)))
        at[axis] = slot
        names = access["coords"]
        access.update(axes=(*names[:axis], *names[axis + 1 :]), bounds=access["bounds"][1:])
        self.emit("store", [tile, buffer, *at], {**access, "mode": "set"})

    def _plus(self, at: Offset, more: int) -> Offset:
        if not at.level:
            return self._offset(at.number + more)
        assert at.value is not None
        return Offset(0, self.index(Dim.symbol("_by") + more, {"_by": at.value}), at.level)

    def _quotient(self, at: Offset, by: int) -> SSAValue:
        if not at.level:
            return self._constant(at.number // by)
        assert at.value is not None
        return self.index(Dim.symbol("_by") // by, {"_by": at.value})


def _whole(sizes: Sequence[int]) -> Part:
    """All of a tile."""
    return Part((_START,) * len(sizes), tuple(sizes))
