"""What warps do with tiles: dots of `mma.sync` on matrices from shared memory, and stores of rows in whole 16 bytes.

`ldmatrix` reads eight rows of 16 bytes at a time. Rows are 128 bytes apart, all in the same banks; a swizzle (piece xor
row modulo 8) sets them apart, and since the xor of a lane never changes, addresses of all steps are four, plus
constants that the instruction adds. What is transposed in memory is transposed as it is read (`.trans`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tessera.backends.nvptx.hopper import fragments as elements
from tessera.backends.nvptx.hopper.fragments import COLUMNS, FRAGMENT, Layout, Registers, is_paired
from tessera.backends.nvptx.hopper.shared_memory import Cursor, SharedTile, transposed_in
from tessera.backends.nvptx.hopper.tiles import TileOps
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.tensor_cores import CP_ASYNC_BYTES, K_BYTES, SPAN
from tessera.backends.nvptx.tensor_cores import WGMMA_ROWS as MMA_ROWS
from tessera.backends.nvptx.types import shaped_type, sizes_of
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_STEPS = SPAN // K_BYTES
"""Steps of k in a span of columns."""
_WARP_ROWS = 16
"""Rows of the M dimension that `mma.sync` gives a warp."""
_WARPS = 4
"""Warps of a group."""


class WarpTiles(TileOps):
    """The ops of one program, one after the other."""

    def begin(self, kernel: SpecOp) -> None:
        self.lane = op32(self.f, "and", self.setting.tid, 31)
        self.warp = op32(self.f, "and", self.setting.warp, 3)
        """The warp's number in its group."""
        self.across: int = kernel.value("warps_n") if kernel.name == "ttarget.warp_kernel" else 1
        """Warps of a group operand by operand, each with its share of the columns."""
        self.wide = _columns_of(kernel) // self.across
        if self.across > 1:
            self.step = _WARP_ROWS

    def layout(self, type: Any) -> Layout:
        found = super().layout(type)
        if self.across == 1:
            return found
        if found.kind == COLUMNS:
            return Layout(COLUMNS, 1, found.columns // self.across)
        columns = found.columns // self.across if found.kind == FRAGMENT else found.columns
        return Layout(found.kind, found.blocks * self.across, columns, self.step)

    def thread(self, blocks: int) -> elements.Thread:
        f = self.f
        row = op32(f, "add", self.first_row(blocks), op32(f, "lshr", self.lane, 2))
        return elements.Thread(
            row, op32(f, "add", self._first_column(), op32(f, "shl", op32(f, "and", self.lane, 3), 1))
        )

    def first_row(self, blocks: int) -> Value:
        """The first row that this warp has of tiles with so many blocks of 16 rows for each warp."""
        f = self.f
        down = _WARPS // self.across
        own = op32(f, "mul", op32(f, "udiv", self.warp, self.across), _WARP_ROWS * (blocks if self.across > 1 else 1))
        return op32(f, "add", op32(f, "mul", self.setting.group, _WARP_ROWS * down * blocks), own)

    def _beside(self) -> Value:
        """The warp's number among those operand by operand."""
        return op32(self.f, "and", self.warp, self.across - 1)

    def _first_column(self) -> Value:
        return number(0) if self.across == 1 else op32(self.f, "mul", self._beside(), self.wide)

    # Dots.

    def emit_mma_sync(self, op: ops.MmaSyncOp) -> Registers:
        f = self.f
        given = self._tile(op.operands[0])
        lhs, rhs, left_at, right_at = (self.values[value] for value in op.operands[1:])
        assert isinstance(rhs, SharedTile)
        layout, acc = given.layout, list(given.floats(f))
        is_transposed = transposed_in(op)
        left = self._lefts(lhs, left_at, layout.blocks, is_transposed[0])
        right = self._rights(rhs, right_at, layout.columns, is_transposed[1])
        along = rhs.rows if is_transposed[1] else rhs.columns
        share, steps = layout.columns // 2, along * rhs.dtype.bytes // K_BYTES
        # What the next step reads is loaded while this one is multiplied.
        prefetched = (left(0), right(0))
        for step in range(steps):
            blocks, pairs = prefetched
            prefetched = (left(step + 1), right(step + 1)) if step + 1 < steps else prefetched
            for block in range(layout.blocks):
                part = acc[block * share : (block + 1) * share]
                acc[block * share : (block + 1) * share] = asm.multiply(f, rhs.dtype, part, blocks[block], pairs)
        return Registers(layout, given.dtype, acc)

    def _lefts(self, lhs: Any, at: Cursor, blocks: int, is_transposed: bool) -> Callable[[int], list[Sequence[Value]]]:
        """The A operand of a step: four words for each block of rows."""
        f = self.f
        if isinstance(lhs, list):
            words: list[Value] = lhs  # pyright: ignore[reportUnknownVariableType]
            share = len(words) // blocks
            return lambda step: [
                words[block * share + 4 * step : block * share + 4 * step + 4] for block in range(blocks)
            ]
        assert isinstance(lhs, SharedTile)
        if is_transposed:
            return self._transposed_lefts(lhs, at, blocks)
        own = op32(f, "add", self.first_row(blocks), op32(f, "and", self.lane, 15))
        start = self._rows_at(lhs, at, own)
        swizzled = op32(f, "shl", op32(f, "xor", op32(f, "lshr", self.lane, 4), op32(f, "and", self.lane, 7)), 4)
        bases = self._addresses_along(start, swizzled)
        return lambda step: self._matrices(
            [
                (bases[step % _STEPS], step // _STEPS * lhs.span_bytes + block * self.step * SPAN)
                for block in range(blocks)
            ],
            False,
        )

    def _transposed_lefts(self, lhs: SharedTile, at: Cursor, blocks: int) -> Callable[[int], list[Sequence[Value]]]:
        """The same of a tile whose rows are k: rows of the dot are its columns, in spans of 64."""
        f = self.f
        # Lanes give rows of k: matrices 0 and 1 are neighbours along m, 2 and 3 eight rows of k further on.
        matrix, row = op32(f, "lshr", self.lane, 3), op32(f, "and", self.lane, 7)
        k, half = op32(f, "lshr", matrix, 1), op32(f, "and", matrix, 1)
        first = self.first_row(blocks)
        start = self._rows_at(lhs, at, op32(f, "add", op32(f, "shl", k, 3), row))
        start = op32(f, "add", start, op32(f, "mul", op32(f, "lshr", first, 6), lhs.span_bytes))
        pair = op32(f, "and", op32(f, "lshr", first, 4), _STEPS - 1)
        swizzled = op32(f, "shl", op32(f, "xor", op32(f, "xor", half, row), op32(f, "shl", pair, 1)), 4)
        # Blocks are 64 rows apart, in another span each, or 16, in the next pair of pieces.
        bases = self._addresses_along(start, swizzled)
        found = [
            (bases[0], block * lhs.span_bytes)
            if self.step == MMA_ROWS
            else (bases[block % _STEPS], block // _STEPS * lhs.span_bytes)
            for block in range(blocks)
        ]
        return lambda step: self._matrices([(base, step * _WARP_ROWS * SPAN + more) for base, more in found], True)

    def _rights(
        self, rhs: SharedTile, at: Cursor, columns: int, is_transposed: bool
    ) -> Callable[[int], list[Sequence[Value]]]:
        """The B operand of a step: two words for each 8 columns."""
        f = self.f
        matrix, row = op32(f, "lshr", self.lane, 3), op32(f, "and", self.lane, 7)
        high, low = op32(f, "lshr", matrix, 1), op32(f, "and", matrix, 1)
        # Of four matrices the first two are 8 columns by all of k, the others the next 8 columns.
        along, across = (low, high) if is_transposed else (high, low)
        start = self._rows_at(rhs, at, op32(f, "add", op32(f, "shl", along, 3), row))
        if self.across > 1:
            own = columns // rhs.span_columns * rhs.span_bytes if is_transposed else columns * SPAN
            start = op32(f, "add", start, op32(f, "mul", self._beside(), own))
        bases = self._addresses_along(start, op32(f, "shl", op32(f, "xor", across, row), 4))
        pairs = -(-columns // 16)

        def of(step: int) -> list[Sequence[Value]]:
            addresses: list[tuple[Value, int]] = []
            for pair in range(pairs):
                if is_transposed:
                    span = pair // _STEPS
                    addresses.append((bases[pair % _STEPS], step * _WARP_ROWS * SPAN + span * rhs.span_bytes))
                else:
                    addresses.append((bases[step % _STEPS], step // _STEPS * rhs.span_bytes + pair * _WARP_ROWS * SPAN))
            found = self._matrices(addresses, is_transposed)
            return [words[at : at + 2] for words in found for at in (0, 2)][: columns // 8]

        return of

    def _rows_at(self, tile: SharedTile, at: Cursor, row: Value) -> Value:
        """The address of a row of a stage."""
        start = tile.address(self.f, self.setting.base, at.slot)
        return op32(self.f, "add", start, op32(self.f, "mul", row, SPAN))

    def _addresses_along(self, start: Value, swizzled: Value) -> list[Value]:
        """The addresses of the four pairs of pieces in a span."""
        f = self.f
        return [
            op32(f, "add", start, op32(f, "xor", swizzled, pair << 5) if pair else swizzled) for pair in range(_STEPS)
        ]

    def _matrices(self, addresses: Sequence[tuple[Value, int]], transposed: bool) -> list[Sequence[Value]]:
        return list(asm.matrices_in(self.f, addresses, transposed))

    # Stores of rows.

    def emit_store_rows(self, op: ops.StoreRowsOp) -> None:
        """Rows that begin and end at multiples of 16 bytes are put together in shared memory, others go by element."""
        f, buffer = self.f, op.operands[2]
        shape, size = shaped_type(buffer).shape, shaped_type(buffer).dtype.bytes
        env: dict[str, Index] = {**self.setting.sizes}
        env.update(zip(op.coords, (self.values[value] for value in op.operands[3:]), strict=True))
        offset = linear(op.map, shape)
        parts = offset.coefficient(op.axes[0])
        assert parts is not None
        stride = f.mul(dim_value(f, parts[0], env), size)
        base = f.raw("i64", f"ptrtoint {self.values[buffer]} to i64")
        corner = f.add(base, f.mul(dim_value(f, offset, env), size))
        ends = f.op("or", corner, stride)
        bound: Dim = op.bounds[1]
        if bound.value != -1:
            # A row that ends within a piece may have another one right behind it, which is not this tile's to write.
            left = f.sub(dim_value(f, bound, env), env[op.axes[1]])
            ends = f.op("or", ends, f.mul(left, size))
        misaligned = f.raw("i64", f"and i64 {ends.text}, {CP_ASYNC_BYTES - 1}")

        def one_by_one() -> None:
            elements.store(self._cells(op, op.operands[0], 2), self._tile(op.operands[0]))

        f.if_(f.icmp("eq", misaligned, f.const_i(0)), lambda: self._through_rows(op, corner, stride, env), one_by_one)

    def _through_rows(self, op: SpecOp, corner: Value, stride: Value, env: dict[str, Index]) -> None:
        f, tile, staging = self.f, self._tile(op.operands[0]), self.values[op.operands[1]]
        assert isinstance(staging, SharedTile)
        layout, span = tile.layout, staging.span_columns
        group = op32(f, "mul", self.setting.group, MMA_ROWS * SPAN)
        address = op32(f, "add", op32(f, "add", self.setting.base, staging.offset), group)
        lane_row, piece = op32(f, "lshr", self.lane, 3), op32(f, "and", self.lane, 7)
        first = op32(f, "add", op32(f, "mul", self.warp, _WARP_ROWS), lane_row)
        row = op32(f, "add", self.first_row(layout.blocks), lane_row)
        vector = CP_ASYNC_BYTES // tile.dtype.bytes
        limits = [self._elements_left(op, axis, env) for axis in (0, 1)]
        column = op32(f, "add", self._first_column(), op32(f, "mul", piece, vector))
        start = f.add(corner, f.mul(stride, f.cast("zext", row, "i64")))
        start = f.add(start, f.cast("zext", op32(f, "mul", column, tile.dtype.bytes), "i64"))
        for block in range(layout.blocks):
            for part in range(layout.columns // span):
                asm.effect(f, "bar.warp.sync 0xffffffff;")
                self._stage(tile, block, part, span, address)
                asm.effect(f, "bar.warp.sync 0xffffffff;")
                is_column = self._is_below(limits[1], column, part * span)
                for quarter in range(_WARP_ROWS // 4):
                    there = self._is_below(limits[0], row, self.step * block + 4 * quarter)
                    if is_column is not None:
                        there = is_column if there is None else f.op("and", there, is_column)
                    moved = f.add(f.mul(stride, self.step * block + 4 * quarter), part * SPAN)
                    self._row_out(address, first, piece, quarter, f.add(start, moved), there)

    def _elements_left(self, op: SpecOp, axis: int, env: dict[str, Index]) -> Value | None:
        """How far the buffer goes along an axis from where the tile begins, as i32; None where all of it is there."""
        bound: Dim = op.value("bounds")[axis]
        if bound.value == -1:
            return None
        f = self.f
        left = f.sub(dim_value(f, bound, env), env[op.value("axes")[axis]])
        return f.cast("trunc", f.smax(f.smin(left, 1 << 20), 0), "i32")

    def _is_below(self, limit: Value | None, start: Value, more: int) -> Value | None:
        return None if limit is None else self.f.icmp("sgt", limit, op32(self.f, "add", start, more))

    def _row_out(
        self, address: Value, first: Value, piece: Value, quarter: int, target: Value, there: Value | None
    ) -> None:
        """16 bytes of a row from where the warp put them together."""
        f = self.f
        row = op32(f, "add", first, 4 * quarter)
        swizzled = op32(f, "shl", op32(f, "xor", piece, op32(f, "and", row, 7)), 4)
        source = op32(f, "add", op32(f, "add", address, op32(f, "mul", row, SPAN)), swizzled)
        given = there or Value("i1", "true")
        text = (
            "{ .reg .pred P; .reg .b32 a, b, c, d; setp.ne.b32 P, $2, 0; ld.shared.v4.b32 {a, b, c, d}, [$1]; "
            "@P st.global.v4.b32 [$0], {a, b, c, d}; }"
        )
        asm.effect(f, text, "l,r,r", [target, source, asm.flag(f, given)])

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
        """One span of columns of 16 rows of each warp into swizzled shared memory."""
        assert inner == 0 == count, "only warpgroups compute a span in pieces"
        if not is_paired(tile.dtype):
            super()._stage(tile, block, part, span, address)
            return
        f = self.f
        first = (block * tile.layout.columns // 2 + part * span // 2) // 2
        pairs = tile.pack(f)
        inside = op32(f, "shl", op32(f, "and", self.lane, 3), 2)
        eighth = op32(f, "lshr", self.lane, 2)
        for half in range(2):
            row = op32(f, "add", op32(f, "mul", self.warp, _WARP_ROWS), op32(f, "add", eighth, 8 * half))
            start = op32(f, "add", op32(f, "add", address, op32(f, "mul", row, SPAN)), inside)
            for piece in range(SPAN // CP_ASYNC_BYTES):
                where = op32(f, "add", start, op32(f, "shl", op32(f, "xor", eighth, piece), 4))
                asm.effect(f, "st.shared.b32 [$0], $1;", "r,r", [where, pairs[first + 2 * piece + half]])

    def _pairs(self, op: SpecOp) -> None:
        """Arithmetic on packed pairs came with sm_90."""
        return


def _columns_of(kernel: SpecOp) -> int:
    """Columns of the first dot."""
    dot = next((op for op in kernel.walk() if op.name == "ttarget.mma_sync"), None)
    return 0 if dot is None else sizes_of(dot.results[0])[1]
