"""Kernels of single warps as LLVM text: copies prefetched by cp.async, and the walk through their ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tessera.backends.nvptx.ampere.tiles import WarpTiles
from tessera.backends.nvptx.hopper.emit import MatrixEmitter, emit_kernel
from tessera.backends.nvptx.hopper.shared_memory import Cursor, SharedTile
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import Share, copy_rows, effect, number, op32
from tessera.backends.nvptx.tensor_cores import CP_ASYNC_BYTES, SPAN, WARPGROUP
from tessera.backends.nvptx.text import KernelCode
from tessera.backends.nvptx.types import shaped_type, spec_ops
from tessera.backends.nvptx.waits import Waits
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.machine import Machine

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops
    from tessera.backends.nvptx.hopper.emit import Setting


# Tiles from global to shared memory by all threads: 16 bytes at a time in the background, or element by element.

_FAR = 1 << 20
"""Farther than any tile reaches: distances are cut there, to fit 32 bits."""
PIECES = SPAN // CP_ASYNC_BYTES


class TileCopy:
    """One copy: where its tile begins in both memories."""

    def __init__(
        self,
        f: FunctionText,
        setting: Setting,
        op: SpecOp,
        tile: SharedTile,
        cursor: Cursor,
        buffer: Value,
        at: Sequence[Value],
    ) -> None:
        self.f, self.setting, self.tile, self.buffer = f, setting, tile, buffer
        self.env: Mapping[str, Index] = {**setting.sizes, **dict(zip(op.value("coords"), at, strict=True))}
        self.row, self.column = op.value("axes")
        self.bounds: tuple[Dim, Dim] = op.value("bounds")
        self.offset = linear(op.value("map"), shaped_type(op.operands[2]).shape)
        parts = self.offset.coefficient(self.row)
        assert parts is not None
        self.stride = f.mul(dim_value(f, parts[0], self.env), tile.dtype.bytes)
        self.start = tile.address(f, setting.base, cursor.slot)
        base = f.raw("i64", f"ptrtoint {buffer} to i64")
        self.corner = f.add(base, f.mul(dim_value(f, self.offset, self.env), tile.dtype.bytes))

    def run(self) -> None:
        """Copy: in pieces of 16 bytes where rows begin at multiples of them."""
        f = self.f
        misaligned = f.raw("i64", f"and i64 {f.op('or', self.corner, self.stride).text}, {CP_ASYNC_BYTES - 1}")
        f.if_(f.icmp("eq", misaligned, f.const_i(0)), self._pieces, self._elements)

    def _left(self, axis: int) -> Value | None:
        """How much of the tile is there along an axis, as i32; None where all is."""
        if self.bounds[axis].value == -1:
            return None
        f, name = self.f, (self.row, self.column)[axis]
        left = f.sub(dim_value(f, self.bounds[axis], self.env), self.env[name])
        return f.cast("trunc", f.smax(f.smin(left, _FAR), -_FAR), "i32")

    def _pieces(self) -> None:
        f, tile, tid = self.f, self.tile, self.setting.tid
        step = WARPGROUP * self.setting.consumers // PIECES
        row, piece = op32(f, "lshr", tid, 3), op32(f, "and", tid, PIECES - 1)
        target = op32(f, "add", self.start, self._swizzled_offset(row, piece))
        own = f.mul(self.stride, f.cast("zext", row, "i64"))
        source = f.add(f.add(self.corner, own), f.cast("zext", op32(f, "mul", piece, CP_ASYNC_BYTES), "i64"))
        left, rows_left = self._left(1), self._left(0)
        rows_left = None if rows_left is None else op32(f, "sub", rows_left, row)
        sizes: list[Value] | None = None
        if left is not None:
            there = op32(f, "sub", op32(f, "mul", left, tile.dtype.bytes), op32(f, "mul", piece, CP_ASYNC_BYTES))
            sizes = [_between(f, op32(f, "sub", there, span * SPAN), CP_ASYNC_BYTES) for span in range(tile.spans)]
        distance = f.mul(self.stride, step)
        uneven = row if tile.rows % step else None
        copy_rows(
            f, Share(target, source, distance, tile.rows, step, tile.span_bytes, rows_left, sizes, tile.spans, uneven)
        )

    def _swizzled_offset(self, row: Value, piece: Value) -> Value:
        f = self.f
        inside = op32(f, "shl", op32(f, "xor", piece, op32(f, "and", row, 7)), 4)
        return op32(f, "add", op32(f, "mul", row, SPAN), inside)

    def _elements(self) -> None:
        """Rows that begin anywhere: a thread puts its pieces together from elements, and stores them itself."""
        f, tile, setting = self.f, self.tile, self.setting
        threads = WARPGROUP * setting.consumers
        total = tile.rows * tile.spans * PIECES
        first = f.cast("zext", setting.tid, "i64")

        def piece_of(index: Value) -> None:
            at = f.cast("trunc", index, "i32")
            row, inside = op32(f, "udiv", at, tile.spans * PIECES), op32(f, "urem", at, tile.spans * PIECES)
            span, piece = op32(f, "lshr", inside, 3), op32(f, "and", inside, PIECES - 1)
            words = self._words(row, op32(f, "mul", inside, CP_ASYNC_BYTES // tile.dtype.bytes))
            target = op32(f, "add", self.start, op32(f, "mul", span, tile.span_bytes))
            address = op32(f, "add", target, self._swizzled_offset(row, piece))
            effect(f, "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r", [address, *words])

        f.loop(first, total, threads, piece_of)

    def _words(self, row: Value, column: Value) -> list[Value]:
        """The 16 bytes at an element of the tile; zeros where it is out of bounds."""
        f, size = self.f, self.tile.dtype.bytes
        here = {**self.env}
        here[self.row] = f.add(self.env[self.row], f.cast("zext", row, "i64"))
        here[self.column] = f.add(self.env[self.column], f.cast("zext", column, "i64"))
        begin = dim_value(f, self.offset, here)
        is_there = Value("i1", "true")
        if self.bounds[0].value != -1:
            is_there = f.icmp("slt", here[self.row], dim_value(f, self.bounds[0], self.env))
        bound = None if self.bounds[1].value == -1 else dim_value(f, self.bounds[1], self.env)
        words: list[Value] = []
        for word in range(4):
            found = number(0)
            for part in range(4 // size):
                element = word * (4 // size) + part
                condition = is_there
                if bound is not None:
                    condition = f.op("and", is_there, f.icmp("slt", f.add(here[self.column], element), bound))
                address = f.gep(self.buffer, f.add(begin, element), f"i{8 * size}")
                bits = f.load(f.select(condition, address, self.buffer), f"i{8 * size}", align=size)
                wide = bits if size == 4 else f.cast("zext", bits, "i32")
                kept = f.select(condition, op32(f, "shl", wide, 8 * size * part), number(0))
                found = op32(f, "or", found, kept)
            words.append(found)
        return words


def _between(f: FunctionText, value: Value, most: int) -> Value:
    """A number held between 0 and the most."""
    below = f.select(f.icmp("slt", value, number(most)), value, number(most))
    return f.select(f.icmp("sgt", below, number(0)), below, number(0))


def emit_warp_kernel(kernel: SpecOp, machine: Machine, *, bounded: bool = False) -> KernelCode:
    """The LLVM module of a `ttarget.warp_kernel`, as `emit_kernel` gives it."""
    blocks = 2 if kernel.value("consumers") == 1 else 1
    return emit_kernel(WarpEmitter, kernel, machine, bounded, producers=0, blocks=blocks)


class WarpEmitter(MatrixEmitter):
    """The writing of one kernel, whose threads all do the same."""

    tile_ops = WarpTiles

    def __init__(self, f: FunctionText, kernel: SpecOp, base: Value, bounded: Waits | None) -> None:
        super().__init__(f, kernel, base, bounded)
        self.setting = replace(self.setting, group=op32(f, "lshr", self.setting.warp, 2), first=0)
        self.is_producer = False

    def barrier_threads(self) -> Sequence[int]:
        return (WARPGROUP * self.kernel.value("consumers"),)

    def run(self) -> None:
        if self.barriers.offsets:
            self.f.if_(self.f.icmp("eq", self.setting.tid, number(0)), self.barriers.make)
            asm.named_barrier(self.f, number(0), WARPGROUP * self.setting.consumers)
        for op in spec_ops(self.kernel.regions[0].block):
            if op.name == "ttarget.shared_tile":
                self.values[op.result] = SharedTile.of(op)
            elif op.name == "ttarget.tiles":
                self.start_tiles()
                self.one_program(op)

    def emit_stage_after(self, op: ops.StageAfterOp) -> None:
        f, stages = self.f, op.stages
        cursor = self.values[op.operands[0]]
        assert isinstance(cursor, Cursor)
        following = op32(f, "add", cursor.slot, op.by % stages)
        ends = f.icmp("sge", following, number(stages))
        slot = f.select(ends, op32(f, "sub", following, stages), following)
        self.values[op.result] = Cursor(slot, cursor.phase)

    def emit_copy_async(self, op: ops.CopyAsyncOp) -> None:
        tile, cursor, buffer, *at = self._of(op.operands)
        TileCopy(self.f, self.setting, op, tile, cursor, buffer, at).run()

    def emit_commit_copies(self, op: ops.CommitCopiesOp) -> None:
        asm.commit_copies(self.f)

    def emit_wait_copies(self, op: ops.WaitCopiesOp) -> None:
        asm.wait_copies(self.f, op.left)
        self.barriers.synchronize(number(0), WARPGROUP * self.setting.consumers)
