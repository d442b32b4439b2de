"""What consumers do with tiles: dots, arithmetic on fragments, and stores through shared memory.

A store has two staging buffers of 64 rows by one span for each consumer. A piece waits until the copy that left from
its buffer before has been read (`cp.async.bulk.wait_group.read`), is written there in swizzled lines, so that neither
`stmatrix` nor TMA has bank conflicts, and leaves while the next one is put together in the other buffer. Rows that TMA
does not store leave from the same buffers, by the warps that put them together (`staged_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.approximate_functions import is_exact
from tessera.backends.nvptx.approximate_functions import is_rounded as _is_rounded
from tessera.backends.nvptx.hopper import fragments as elements
from tessera.backends.nvptx.hopper.byte_fragments import ByteRegisters, read_fragment
from tessera.backends.nvptx.hopper.fast_math import (
    FLOORS,
    NARROW,
    PAIRED,
    hold_above_floor,
    map_once,
    narrow_math,
    paired_math,
    quotients,
)
from tessera.backends.nvptx.hopper.fragments import (
    COLUMNS,
    FRAGMENT,
    ROWS,
    Layout,
    Registers,
    Window,
    across_threads,
    is_paired,
    math_of,
    reduce_own,
    reduce_rows,
)
from tessera.backends.nvptx.hopper.shared_memory import SharedTile, from_cut, transposed_in
from tessera.backends.nvptx.hopper.staged_rows import ROWS as WARP_ROWS
from tessera.backends.nvptx.hopper.staged_rows import rows_of, store_rows
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.mma.boxes import cut_at
from tessera.backends.nvptx.tensor_cores import K_BYTES, PROMOTED_K, SPAN, WARPGROUP
from tessera.backends.nvptx.tensor_cores import WGMMA_ROWS as MMA_ROWS
from tessera.backends.nvptx.types import ColumnVectorAttr, PartialRowsAttr, RowVectorAttr, shaped_type, sizes_of
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import ShapedAttr
from tessera.ir.base.verify import around
from tessera.ir.target.limits import is_multiple
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import ConstantOp, IndexOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bf16, f32, i64

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops
    from tessera.backends.nvptx.hopper.emit import Setting
    from tessera.ir.target import typed_ops as target_ops


class TileOps:
    """The ops of consumers, one after the other: `emit_<op>` writes a `ttarget.<op>`, and gives its result."""

    step = MMA_ROWS
    """Rows from those that a warp has of one block to those of the next."""

    def __init__(
        self,
        f: FunctionText,
        kernel: SpecOp,
        setting: Setting,
        values: dict[SSAValue, Any],
        is_first: Value,
        thread: Callable[[int], elements.Thread],
    ) -> None:
        self.f, self.setting, self.values, self.is_first = f, setting, values, is_first
        self.consumers: int = kernel.value("consumers")
        self.exact = is_exact(kernel)
        self.apart = 1 if kernel.values().get("row_pairs") else 8
        self.window: Window | None = None
        """The columns that are at hand; None for all."""
        self._thread_of = thread
        self.begin(kernel)

    def begin(self, kernel: SpecOp) -> None:
        """What units of another kind have beside all this is worked out here, once."""

    def run(self, op: SpecOp) -> None:
        """Write one op."""
        made = getattr(self, f"emit_{op.spec.short_name}")(op)
        if op.results and made is not None:
            self.values[op.result] = made

    def _tile(self, value: SSAValue) -> Registers:
        found = self.values[value]
        assert isinstance(found, Registers)
        return found

    def thread(self, blocks: int) -> elements.Thread:
        """Where this thread stands in tiles of so many blocks of 64 rows a consumer."""
        return self._thread_of(MMA_ROWS * blocks)

    def layout(self, type: Any) -> Layout:
        """How a type lies over a consumer."""
        assert isinstance(type, ShapedAttr)
        if isinstance(type, ColumnVectorAttr):
            return Layout(COLUMNS, 1, self._columns(type.sizes[0]))
        blocks = type.sizes[0] // (MMA_ROWS * self.consumers)
        if isinstance(type, (RowVectorAttr, PartialRowsAttr)):
            return Layout(ROWS, blocks, 8, self.step, self.apart)
        return Layout(FRAGMENT, blocks, self._columns(type.sizes[1]), self.step, self.apart)

    def _columns(self, size: int) -> int:
        return size if self.window is None else self.window.count

    # Dots.

    def emit_mma_open(self, op: ops.MmaOpenOp) -> list[Value]:
        return list(self._tile(op.operands[0]).floats(self.f))

    def emit_pack(self, op: ops.PackOp) -> list[Value]:
        """An A operand in registers; one that was made before a loop is rebuilt in each of its steps.

        The assembler (ptxas 13.0) takes registers that a dot reads for its own after it, and gives them to others
        in the loop: what comes from outside would be there for the first step alone. A number that is 0, and that
        nobody else can know to be, makes them new.
        """
        pairs = self._tile(op.operands[0]).pack(self.f)
        loop, source = around(op, "ttarget.steps"), op.operands[0].owner
        made = source if isinstance(source, Block) else source.parent
        if loop is None or made is None or loop.is_ancestor(made):
            return pairs
        index = self.values[loop.regions[0].block.args[0]]
        zero = "{ .reg .b64 t; shr.s64 t, $1, 63; cvt.u32.u64 $0, t; }"
        none = asm.pure(self.f, zero, "=r,l", [self.f.index(index)], "i32")
        return [op32(self.f, "or", pair, none) for pair in pairs]

    def emit_mma_issue(self, op: ops.MmaIssueOp) -> list[Value]:
        f, base = self.f, self.setting.base
        acc, lhs, rhs, left_at, right_at = (self.values[value] for value in op.operands)
        assert isinstance(rhs, SharedTile)
        rows, columns = sizes_of(op.result)
        blocks = rows // (MMA_ROWS * self.consumers)
        address = rhs.address(f, base, right_at.slot)
        is_transposed = transposed_in(op)
        right = rhs.descriptors(f, address, is_transposed[1])
        share = columns // 2
        found: list[Value] = []
        # Zeros are not written to registers first, which may be while other dots are in flight (ptxas C7517).
        fresh = _is_zero(op.operands[0])
        acc = [Value(acc[0].type, "undef")] * len(acc) if fresh else acc
        for block in range(blocks):
            left = self._left(lhs, left_at, block, blocks, is_transposed[0], len(right))
            ends = (block == 0, block == blocks - 1)
            part, steps = acc[block * share : (block + 1) * share], list(zip(left, right, strict=True))
            found += asm.issue(f, _dtypes(lhs, rhs), columns, part, steps, is_transposed, ends, fresh=fresh)
        return found

    def emit_mma_add(self, op: ops.MmaAddOp) -> Registers:
        f, base = self.f, self.setting.base
        tile = self._tile(op.operands[0])
        lhs, rhs, left_at, right_at = (self.values[value] for value in op.operands[1:])
        assert isinstance(rhs, SharedTile)
        layout, parts = tile.layout, op.parts
        columns = layout.columns // parts
        is_transposed = transposed_in(op)
        given, found = tile.floats(f), list[Value]()
        nothing = [Value(given[0].type, "undef")] * (columns // 2)
        each = PROMOTED_K // (K_BYTES // rhs.dtype.bytes)
        for block in range(layout.blocks):
            for part in range(parts):
                address = rhs.address(f, base, right_at.slot, part * columns * rhs.swizzle)
                right = rhs.descriptors(f, address, is_transposed[1])
                left = self._left(lhs, left_at, block, layout.blocks, is_transposed[0], len(right))
                operands = list(zip(left, right, strict=True))
                totals = given[len(found) : len(found) + columns // 2]
                for at in range(0, len(operands), each):
                    few = operands[at : at + each]
                    partial = asm.issue(
                        f, _dtypes(lhs, rhs), columns, nothing, few, is_transposed, (True, True), fresh=True
                    )
                    totals = [f.op("fadd", *both) for both in zip(totals, asm.wait_dots(f, 0, partial), strict=True)]
                found += totals
        return Registers(layout, tile.dtype, found)

    def _left(
        self, lhs: Any, at: Any, block: int, blocks: int, is_transposed: bool, steps: int
    ) -> list[Sequence[Value]]:
        """The A operand of each step, for one block of 64 rows: a descriptor, or four registers."""
        f, setting = self.f, self.setting
        if isinstance(lhs, list):
            words: list[Value] = lhs  # pyright: ignore[reportUnknownVariableType]
            share = len(words) // blocks
            return [words[block * share + 4 * step : block * share + 4 * step + 4] for step in range(steps)]
        assert isinstance(lhs, SharedTile)
        # Rows of this consumer: rows of the tile, or spans of its columns where rows are k.
        each = lhs.span_bytes * MMA_ROWS // lhs.span_columns if is_transposed else MMA_ROWS * lhs.swizzle
        address = lhs.address(f, setting.base, at.slot, block * each)
        address = op32(f, "add", address, op32(f, "mul", setting.group, blocks * each))
        return [[one] for one in lhs.descriptors(f, address, is_transposed)]

    def emit_mma_wait(self, op: ops.MmaWaitOp) -> None:
        given = [self.values[value] for value in op.operands]
        found = asm.wait_dots(self.f, op.left, [value for one in given for value in one])
        for one, result in zip(given, op.results, strict=True):
            self.values[result] = Registers(self.layout(result.type), shaped_type(result).dtype, found[: len(one)])
            found = found[len(one) :]

    # Elements.

    def emit_elementwise(self, op: target_ops.ElementwiseOp) -> Registers:
        tiles = [self._tile(value) for value in op.operands]
        type = shaped_type(op.result)
        fn, dtype = op.fn, tiles[0].dtype.compute
        is_rounded = dtype is f32 and _is_rounded(op.result)
        if is_rounded and fn in PAIRED and (pairs := self._pairs(op)) is not None:
            return Registers(tiles[0].layout, bf16, None, paired_math(self.f, fn, *pairs))
        packed = self._on_bytes(op, tiles)
        if packed is not None:
            return packed
        columns = [tile.floats(self.f) for tile in tiles]
        short = is_rounded and not self.exact
        if short and fn == "div":
            return Registers(tiles[0].layout, type.dtype, quotients(self.f, *columns))
        if short and fn in NARROW:
            pairs = self._pairs(op) if fn in FLOORS else None
            if pairs is None:
                return Registers(tiles[0].layout, type.dtype, narrow_math(self.f, fn, columns[0]))
            held = Registers(tiles[0].layout, bf16, None, hold_above_floor(self.f, fn, pairs[0])).floats(self.f)
            return Registers(tiles[0].layout, type.dtype, narrow_math(self.f, fn, held, is_floored=True))
        rows = list(zip(*columns, strict=True))
        found = map_once(lambda args: elements.math_of(self.f, fn, args, dtype, self.exact), rows)
        return Registers(tiles[0].layout, type.dtype, found)

    def _on_bytes(self, op: target_ops.ElementwiseOp, tiles: Sequence[Registers]) -> Registers | None:
        """Integers of one byte and a number, four at a time; None for all else."""
        tile, maker = tiles[0], op.operands[-1].owner
        if len(tiles) != 2 or not isinstance(tile, ByteRegisters) or not isinstance(maker, ConstantOp):
            return None
        given: Any = maker.value("value")
        if isinstance(given, Dim) or shaped_type(op.result).dtype is not tile.dtype:
            return None
        return tile.with_number(self.f, op.fn, int(given))

    def _pairs(self, op: SpecOp) -> list[list[Value]] | None:
        """The operands of an op packed in pairs, where all of them are bf16 that was widened for it."""
        found: list[list[Value]] = []
        for value in op.operands:
            source = value.owner
            if not isinstance(source, SpecOp) or source.name != "ttarget.cast":
                return None
            given = self._tile(source.operands[0])
            if given.dtype is not bf16 or given.layout.kind != FRAGMENT:
                return None
            found.append(given.pack(self.f))
        return found

    def emit_cast(self, op: target_ops.CastOp) -> Registers:
        tile, type = self._tile(op.operands[0]), shaped_type(op.result)
        if tile.dtype is type.dtype:
            return tile  # computed in pairs: rounded already
        if isinstance(tile, ByteRegisters) and type.dtype.is_float and type.dtype.compute is f32:
            # Floats of two bytes hold all numbers of one: nothing rounds.
            return Registers(tile.layout, type.dtype, tile.widen(self.f))
        if is_paired(type.dtype) and tile.dtype.compute.is_float and tile.layout.kind == FRAGMENT:
            made = Registers(tile.layout, type.dtype, tile.floats(self.f))
            return Registers(tile.layout, type.dtype, None, made.pack(self.f))
        values = map_once(lambda value: convert.cast(self.f, value, tile.dtype, type.dtype), tile.floats(self.f))
        return Registers(tile.layout, type.dtype, values)

    def emit_bitcast(self, op: target_ops.BitcastOp) -> Registers:
        tile, type = self._tile(op.operands[0]), shaped_type(op.result)
        values = [convert.narrow(self.f, value, tile.dtype) for value in tile.floats(self.f)]
        stored = convert.storage_type(type.dtype)
        found = [convert.widen(self.f, self.f.bitcast(value, stored), type.dtype) for value in values]
        return Registers(tile.layout, type.dtype, found)

    def emit_select(self, op: target_ops.SelectOp) -> Registers:
        condition, first, second = (self._tile(value) for value in op.operands)
        parts = zip(condition.floats(self.f), first.floats(self.f), second.floats(self.f), strict=True)
        return Registers(first.layout, first.dtype, [self.f.select(*part) for part in parts])

    def emit_reduce_rows(self, op: ops.ReduceRowsOp) -> Registers:
        return reduce_rows(self.f, self._tile(op.operands[0]), op.kind)

    def emit_partial_rows(self, op: ops.PartialRowsOp) -> Registers:
        layout = self.layout(op.result.type)
        return Registers(layout, shaped_type(op.result).dtype, [self.f.const("float", 0.0)] * layout.count)

    def emit_grow_rows(self, op: ops.GrowRowsOp) -> Registers:
        """Sums of the thread, scaled, and its own columns added."""
        partial, factor, tile = map(self._tile, op.operands)
        parts = zip(partial.floats(self.f), factor.floats(self.f), reduce_own(self.f, tile, "sum"), strict=True)
        return Registers(partial.layout, tile.dtype, [math_of(self.f, "fma", part, tile.dtype) for part in parts])

    def emit_join_rows(self, op: ops.JoinRowsOp) -> Registers:
        """One sum for each row, of its four threads."""
        partial = self._tile(op.operands[0])
        values = [across_threads(self.f, value, "sum", partial.dtype) for value in partial.floats(self.f)]
        return Registers(partial.layout, partial.dtype, values)

    def emit_constant(self, op: target_ops.ConstantOp) -> Registers:
        type = shaped_type(op.result)
        layout, given = self.layout(type), op.value("value")
        if isinstance(given, Dim):
            wide = dim_value(self.f, given, self.setting.sizes)
            value = convert.cast(self.f, wide, i64, type.dtype)
        else:
            value = self.f.const(convert.compute_type(type.dtype), given)
        return Registers(layout, type.dtype, [value] * layout.count)

    def emit_broadcast(self, op: target_ops.BroadcastOp) -> Registers:
        tile, layout = self._tile(op.operands[0]), self.layout(op.results[0].type)
        values = tile.floats(self.f)
        number_of = layout.row if tile.layout.kind == ROWS else layout.column
        return Registers(layout, tile.dtype, [values[number_of(element)] for element in range(layout.count)])

    # Coordinates and memory.

    def _coordinates(self, op: SpecOp, type: Any, first: int) -> elements.Coordinates:
        layout = self.layout(type)
        env = {**self.setting.sizes}
        env.update(zip(op.value("coords"), (self.values[value] for value in op.operands[first:]), strict=True))
        thread = self.thread(layout.blocks)
        if self.window is not None:
            thread = elements.Thread(thread.row, op32(self.f, "add", thread.column, self._window_column(self.window)))
        return elements.Coordinates(self.f, layout, thread, op.value("axes"), env)

    def _window_column(self, window: Window) -> Value:
        """The first column of the part of a tile that is computed."""
        f, start = self.f, window.start
        if isinstance(start, int):
            return number(window.known)
        return op32(f, "add", f.raw("i32", f"trunc {start} to i32"), window.inner)

    def emit_coordinate(self, op: target_ops.CoordinateOp) -> Registers:
        type = shaped_type(op.result)
        coordinates = self._coordinates(op, type, 0)
        found = map_once(lambda value: convert.cast(self.f, value, i64, type.dtype), coordinates.evaluate(op.expr))
        return Registers(coordinates.layout, type.dtype, found)

    def emit_clip(self, op: target_ops.ClipOp) -> Registers:
        tile = self._tile(op.operands[0])
        coordinates = self._coordinates(op, op.results[0].type, 1)
        outside = self.f.const(convert.compute_type(tile.dtype), op.identity)
        below = coordinates.below(op.axis, op.bound)
        parts = zip(below, tile.floats(self.f), strict=True)
        return Registers(tile.layout, tile.dtype, [self.f.select(inside, value, outside) for inside, value in parts])

    def emit_fragment_load(self, op: ops.FragmentLoadOp) -> Registers:
        cells, dtype = self._cells(op, op.result, 0), shaped_type(op.operands[0]).dtype
        if is_paired(dtype) and cells.coordinates.layout.kind == FRAGMENT and _is_even(op):
            return elements.load_pairs(cells, dtype)
        return elements.load(cells, dtype, op.pad)

    def emit_fragment_read(self, op: ops.FragmentReadOp) -> Registers:
        tile, cursor = (self.values[value] for value in op.operands)
        layout = self.layout(op.results[0].type)
        address = tile.address(self.f, self.setting.base, cursor.slot)
        return read_fragment(self.f, tile, address, layout, self.thread(layout.blocks), op.major)

    def emit_fragment_store(self, op: ops.FragmentStoreOp) -> None:
        cells, tile = self._cells(op, op.operands[0], 1), self._tile(op.operands[0])
        if is_paired(tile.dtype) and tile.layout.kind == FRAGMENT and _is_even(op, 1):
            elements.store_pairs(cells, tile, 0)
            return
        elements.store(cells, tile, self._once(cells.coordinates.layout))

    def _cells(self, op: SpecOp, tile: SSAValue, operand: int) -> elements.Cells:
        """Where the elements of a tile are in the buffer that is an operand; coordinates come after it."""
        buffer = op.operands[operand]
        coordinates = self._coordinates(op, tile.type, operand + 1)
        inside = coordinates.inside(op.value("axes"), op.value("bounds"), op.values().get("windows", ()))
        return elements.Cells(
            coordinates, self.values[buffer], linear(op.value("map"), shaped_type(buffer).shape), inside
        )

    def _once(self, layout: Layout) -> Value | None:
        """Which of the threads that hold an element of a vector stores it."""
        f, setting = self.f, self.setting
        if layout.kind == ROWS:
            return f.icmp("eq", op32(f, "and", setting.tid, 3), number(0))
        if layout.kind == COLUMNS:
            return f.icmp("ult", op32(f, "sub", setting.tid, setting.first), number(4))
        return None

    def emit_store_tile(self, op: ops.StoreTileOp) -> None:
        """Rows of whole 16 bytes leave shared memory by TMA, others by threads; the kernel has both."""
        buffer, tile = op.operands[3], self._tile(op.operands[0])
        is_whole = self._is_whole(shaped_type(buffer).shape[-1] * tile.dtype.bytes, self.values[buffer])

        def through_shared() -> None:
            whole = self._through_shared(op)
            if whole < tile.layout.columns:
                elements.store_pairs(self._cells(op, op.operands[0], 3), tile, whole)

        def by_threads() -> None:
            whole = self._by_threads(op)
            if whole < tile.layout.columns:
                elements.store(self._cells(op, op.operands[0], 3), tile, first=whole)

        self.f.if_(is_whole, through_shared, by_threads)

    def _is_whole(self, row: Dim, buffer: Value) -> Value:
        """Whether rows of so many bytes begin at multiples of 16; where they always do, there is a TMA descriptor."""
        f = self.f
        if is_multiple(row, 16):
            return Value("i1", "true")
        start = f.raw("i64", f"ptrtoint {buffer} to i64")
        both = f.op("or", dim_value(f, row, self.setting.sizes), start)
        return f.icmp("eq", f.raw("i64", f"and i64 {both.text}, 15"), f.const_i(0))

    def _through_shared(self, op: SpecOp) -> int:
        """Store all whole spans of columns, and pieces of such; how many columns those have."""
        f, setting = self.f, self.setting
        tile, map, staging = self._tile(op.operands[0]), self.values[op.operands[1]], self.values[op.operands[2]]
        assert isinstance(staging, SharedTile)
        layout, span = tile.layout, staging.span_columns
        window = self.window or Window(0, 0, layout.columns)
        # A piece of a span waits for its staging buffer where it is the first, and leaves where it is the last. Parts
        # begin with a span; those whose beginning is computed are whole.
        inner, total = window.inner % span, sizes_of(op.operands[0])[1]
        is_piece = layout.columns < span and window.known - inner + span <= total
        spans = 1 if is_piece else layout.columns // span
        own = op32(f, "mul", setting.group, 2 * staging.bytes)
        barrier = self._own_barrier
        pieces = [(block, part) for block in range(layout.blocks) for part in range(spans)]
        before, is_odd = layout.blocks * (window.known // span), layout.blocks * (total // span) % 2
        # Two pieces have a staging buffer each and go together; of more, the third takes that of the first.
        together = 2 if len(pieces) == 2 else 1
        for first in range(0, len(pieces), together):
            at = [self._staging_at(staging, window, layout.blocks, before + first + slot) for slot in (0, 1)]
            group = [(op32(f, "add", at[slot], own), *pieces[first + slot]) for slot in range(together)]
            # Two groups may be under way, and this one takes the buffer of the older, or of both.
            # After an odd number of pieces the last one of the program before has the first buffer as well; of parts
            # whose beginning is computed any may be the first. So may the store before this one.
            is_next = first == 0 and _follows_store(op)
            left = 0 if is_next or (is_odd and before + first == 0) else 2 - together
            if inner == 0:
                asm.copies_read(f, left, self.is_first)
                asm.named_barrier(f, barrier, WARPGROUP)
            for address, block, part in group:
                self._stage(tile, block, part, span, address, inner)
            if is_piece and inner + layout.columns < span:
                continue
            asm.effect(f, "fence.proxy.async.shared::cta;")
            asm.named_barrier(f, barrier, WARPGROUP)
            for address, block, part in group:
                at_column = f.add(window.start, window.inner - inner + part * span)
                asm.copy_out(f, map, address, self._corner(op, layout, block, at_column), self.is_first)
        return layout.columns if is_piece else spans * span

    @property
    def _own_barrier(self) -> Value:
        """The barrier of this consumer."""
        return number(1) if self.consumers == 1 else op32(self.f, "add", self.setting.group, 1)

    def _by_threads(self, op: SpecOp) -> int:
        """Store all whole sixteens of columns by warps, each its own rows; how many columns those have."""
        f, setting = self.f, self.setting
        tile, staging = self._tile(op.operands[0]), self.values[op.operands[2]]
        assert isinstance(staging, SharedTile)
        assert self.window is None, "parts of a tile leave by TMA"
        layout, span = tile.layout, staging.span_columns
        total = layout.columns // 16 * 16
        lane, warp = op32(f, "and", setting.tid, 31), op32(f, "and", op32(f, "lshr", setting.tid, 5), 3)
        own = op32(f, "add", op32(f, "mul", setting.group, 2 * staging.bytes), setting.base)
        env = {**setting.sizes}
        env.update(zip(op.value("coords"), (self.values[value] for value in op.operands[4:]), strict=True))
        if _has_others(op):
            # Another result may be leaving from the same buffers, by TMA.
            asm.copies_read(f, 0, self.is_first)
            asm.named_barrier(f, self._own_barrier, WARPGROUP)
        else:
            asm.effect(f, _SYNCHRONIZE)
        pieces = [(block, column) for block in range(layout.blocks) for column in range(0, total, span)]
        for at, (block, column) in enumerate(pieces):
            address = op32(f, "add", own, staging.offset + at % 2 * staging.bytes)
            count = min(span, total - column)
            self._stage(tile, block, column // span, span, address, count=count)
            # Lanes have read the buffer of the piece before when they meet here, so that the next one may take it.
            asm.effect(f, _SYNCHRONIZE)
            lines = op32(f, "add", address, op32(f, "mul", warp, WARP_ROWS * SPAN))
            first = self._first_of_warp(layout, block, warp)
            rows = rows_of(f, op, self.values[op.operands[3]], env, first, (column, count))
            store_rows(f, lane, lines, rows, tile.dtype.bytes)
        return total

    def _first_of_warp(self, layout: Layout, block: int, warp: Value) -> Value:
        """The first row that a warp has of a block of 64 rows of its consumer."""
        f = self.f
        first = op32(f, "add", op32(f, "mul", self.setting.group, MMA_ROWS * layout.blocks), MMA_ROWS * block)
        return op32(f, "add", first, op32(f, "mul", warp, WARP_ROWS))

    def _staging_at(self, staging: SharedTile, window: Window, blocks: int, piece: int) -> Value:
        """The staging buffer of a piece, every other one; pieces are counted from a start that is known."""
        f, start = self.f, window.start
        if isinstance(start, int) or blocks % 2 == 0:
            return op32(f, "add", self.setting.base, staging.offset + piece % 2 * staging.bytes)
        spans = op32(f, "udiv", f.raw("i32", f"trunc {start} to i32"), staging.span_columns)
        slot = op32(f, "and", op32(f, "add", spans, piece), 1)
        at = op32(f, "add", self.setting.base, staging.offset)
        return op32(f, "add", at, op32(f, "mul", slot, staging.bytes))

    def _corner(self, op: SpecOp, layout: Layout, block: int, column: Index) -> list[Value]:
        """Where a box begins in the buffer, innermost dim first."""
        f = self.f
        env = {**self.setting.sizes}
        env.update(zip(op.value("coords"), (self.values[value] for value in op.operands[4:]), strict=True))
        row_axis, column_axis = op.value("axes")
        own = f.raw("i64", f"zext {op32(f, 'mul', self.setting.group, MMA_ROWS * layout.blocks)} to i64")
        here = {**env, row_axis: f.add(f.add(env[row_axis], own), MMA_ROWS * block)}
        here[column_axis] = f.add(env[column_axis], column)
        shape = shaped_type(op.operands[3]).shape
        cut = cut_at(op, op.value("bounds"), shape)
        if cut is None:
            return [f.cast("trunc", dim_value(f, expr, here), "i32") for expr in reversed(op.value("map"))]
        # An end beyond that of the buffer would be out of bounds itself, and nothing would be written.
        extent = dim_value(f, shape[cut.dim], self.setting.sizes)
        end = f.smin(dim_value(f, cut.end, env), extent)
        corner = from_cut(f, [dim_value(f, expr, here) for expr in op.value("map")], cut.dim, end, extent)
        return [f.cast("trunc", f.index(one), "i32") for one in reversed(corner)]

    def _stage(
        self,
        tile: Registers,
        block: int,
        part: int,
        span: int,
        address: Value,
        inner: int = 0,
        count: int = 0,
    ) -> None:
        """One span of columns of 64 rows into swizzled shared memory, or a piece of it from an inner column on."""
        f, tid = self.f, self.setting.tid
        count = count or min(span, tile.layout.columns)
        lane, warp = op32(f, "and", tid, 31), op32(f, "and", op32(f, "lshr", tid, 5), 3)
        first = block * tile.layout.columns // 2 + part * span // 2
        if is_paired(tile.dtype):
            row = op32(f, "add", op32(f, "mul", warp, 16), op32(f, "and", lane, 15))
            start = op32(f, "add", address, op32(f, "mul", row, SPAN))
            half, swizzle = op32(f, "lshr", lane, 4), op32(f, "and", lane, 7)
            pairs = tile.pack(f)
            for quarter in range(count // 16):
                piece = op32(f, "xor", op32(f, "add", half, 2 * quarter + inner // 8), swizzle)
                words = pairs[first // 2 + 4 * quarter : first // 2 + 4 * quarter + 4]
                asm.matrices_out(f, op32(f, "add", start, op32(f, "shl", piece, 4)), words)
            return
        values = tile.floats(f)
        for number_of in range(2):
            row = op32(f, "add", op32(f, "mul", warp, 16), op32(f, "add", op32(f, "lshr", lane, 2), 8 * number_of))
            start, swizzle = op32(f, "add", address, op32(f, "mul", row, SPAN)), op32(f, "and", row, 7)
            inside = op32(f, "shl", op32(f, "and", lane, 1), 3)
            for step in range(count // 8):
                piece = op32(f, "add", op32(f, "and", op32(f, "lshr", lane, 1), 1), 2 * step + inner // 4)
                line = op32(f, "add", start, op32(f, "shl", op32(f, "xor", piece, swizzle), 4))
                pair = values[first + 4 * step + 2 * number_of : first + 4 * step + 2 * number_of + 2]
                bits = [f.bitcast(convert.narrow(f, value, tile.dtype), "i32") for value in pair]
                text = "st.shared.v2.b32 [$0], {$1, $2};"
                asm.effect(f, text, "r,r,r", [op32(f, "add", line, inside), *bits])


_SYNCHRONIZE = "bar.warp.sync 0xffffffff;"
"""All lanes of a warp are here, and see what the others wrote."""


def _has_others(op: SpecOp) -> bool:
    """Whether another result leaves through shared memory."""
    assert op.parent is not None
    return any(one.name == op.name and one is not op for one in op.parent.ops)


def _follows_store(op: SpecOp) -> bool:
    """Whether another result may be leaving through the staging buffer that this one begins with.

    One before it in the program begins with the same. One behind it has left the part before: in an even number of
    pieces for each of this one's, or half as many, where their elements are not as wide.
    """
    assert op.parent is not None
    others = [one for one in op.parent.ops if one.name == op.name and one is not op]
    bits = shaped_type(op.operands[0]).dtype.bits
    return any(one.is_before_in_block(op) or shaped_type(one.operands[0]).dtype.bits != bits for one in others)


def _is_even(op: SpecOp, buffer: int = 0) -> bool:
    """Whether elements of a row are by twos beside each other in a buffer, beginning at an even one.

    Both are inside then, or neither is: a load makes 0 of both.
    """
    axis, shape = op.value("axes")[-1], shaped_type(op.operands[buffer]).shape
    parts, bound = linear(op.value("map"), shape).coefficient(axis), op.value("bounds")[-1]
    if parts is None or parts[0].value != 1 or axis in parts[1].symbols or not is_multiple(parts[1], 2):
        return False
    values = op.values()
    if values.get("windows") or values.get("pad") or (bound.value != -1 and not is_multiple(bound, 2)):
        return False
    start = dict(zip(op.value("coords"), op.operands[buffer + 1 :], strict=True))[axis].owner
    return isinstance(start, IndexOp) and is_multiple(start.expr, 2)


def _dtypes(lhs: Any, rhs: SharedTile) -> tuple[DType, DType]:
    """The dtypes of both operands of a dot; an A operand in registers has that of the other."""
    return lhs.dtype if isinstance(lhs, SharedTile) else rhs.dtype, rhs.dtype


def _is_zero(pending: SSAValue) -> bool:
    """Whether an accumulator that was opened begins with nothing but zeros."""
    opened = pending.owner
    tile = opened.operands[0].owner if isinstance(opened, SpecOp) and opened.name == "ttarget.mma_open" else None
    return isinstance(tile, SpecOp) and tile.name == "ttarget.constant" and tile.value("value") == 0
