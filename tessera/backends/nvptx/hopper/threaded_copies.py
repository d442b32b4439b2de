"""Copies of rows that begin anywhere, by all threads of a producer: TMA takes rows at multiples of 16 bytes alone.

A matrix with other rows would have to be written anew before, and be read from memory twice more. That is nothing
beside products that read it many times, and most of the time of those with few rows or columns, which read it once. So
there threads of the producer's warpgroup read aligned pieces of 16 bytes, shift them, and store them to the stage as
TMA would have, swizzled, with zeros beyond the tensor. Consumers and their bits are the same.

A thread has the pieces of a stage in flight; the rows of some stages further on are prefetched to L2, so that those
pieces come from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import SSAValue

from tessera.backends.nvptx.hopper.shared_memory import SharedTile
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.row_copies import VECTOR, read_words, shift_words
from tessera.backends.nvptx.tensor_cores import WARPGROUP
from tessera.backends.nvptx.types import shaped_type
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import around
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_TOGETHER = 8
"""Pieces that a thread has in flight: 64 registers."""
_PREFETCHED = 64 << 10
"""Bytes of an operand that are prefetched to L2: what memory hands out to a multiprocessor in two microseconds."""
_LINE = 128
"""Bytes of a line of L2."""


def is_by_threads(copy: SpecOp) -> bool:
    """Whether threads make a `ttarget.copy`."""
    made = copy.operands[0].owner
    return isinstance(made, SpecOp) and made.name == "ttarget.tensor_map" and made.value("by_threads")


def threaded_copies(kernel: SpecOp, ring: SSAValue) -> list[SpecOp]:
    """The copies to a ring that threads make, one for each tile of it."""
    copies = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.copy"]
    own = [op for op in copies if op.operands[1] is ring and is_by_threads(op)]
    return list({op.operands[3]: op for op in own}.values())


@frozen
class _Piece:
    """16 bytes of a stage: where they go, words around them in memory, their beginning in those, and bytes of them."""

    target: Value
    words: list[Value]
    shift: Value
    left: Value


class ThreadedCopy:
    """One `ttarget.copy` that the threads of a warpgroup make."""

    def __init__(self, f: FunctionText, op: ops.CopyOp, tile: SharedTile, buffer: Value, at: Sequence[Index]) -> None:
        made = op.operands[0].owner
        assert isinstance(made, SpecOp)
        self.f, self.op, self.tile = f, op, tile
        self.box: Sequence[int] = made.value("box")
        self.shape = [dim.value or 0 for dim in shaped_type(made.operands[0]).shape]
        self.row_dim = next((dim for dim, size in enumerate(self.box[:-1]) if size > 1), len(self.box) - 2)
        self.rows, self.size = self.box[self.row_dim], tile.dtype.bytes
        self.row_bytes = self.shape[-1] * self.size
        self.start = f.raw("i64", f"ptrtoint {buffer} to i64")
        *outer, self.column = [f.index(one) for one in at[: len(self.shape)]]
        self.row = outer[self.row_dim]
        flat: Value = f.const_i(0)
        for extent, index in zip(self.shape, outer, strict=False):
            flat = f.add(f.mul(flat, extent), index)
        self.flat = flat
        self.limit: Index = self.shape[self.row_dim] if len(at) == len(self.shape) else at[-1]
        """Where rows end: a copy may say so."""

    def write(self, thread: Value, address: Value) -> None:
        """Copy a stage that begins at a shared address."""
        f, vectors = self.f, self.tile.swizzle // VECTOR
        wide = f.raw("i64", f"zext {thread} to i64")
        row, vector = f.udiv(wide, vectors), f.urem(wide, vectors)
        self._prefetch(wide)
        step = WARPGROUP // vectors
        places = [(span, first) for span in range(self.op.pieces) for first in range(0, self.rows, step)]
        for start in range(0, len(places), _TOGETHER):
            few = places[start : start + _TOGETHER]
            for piece in [self._read(span, f.add(row, first), vector, address) for span, first in few]:
                self._store(piece)

    def _read(self, span: int, row: Value, vector: Value, address: Value) -> _Piece:
        """Read what a piece is made of: one or two aligned ones, as far as they are of its row."""
        f, tile = self.f, self.tile
        column = f.add(f.mul(f.add(self.column, span * tile.span_columns), self.size), f.mul(vector, VECTOR))
        left = f.sub(f.const_i(self.row_bytes), column)
        is_there = f.op("and", f.icmp("slt", f.add(self.row, row), self.limit), f.icmp("sgt", left, 0))
        is_there = f.op("and", is_there, f.icmp("slt", row, self.rows))
        source = f.add(self.start, f.add(f.mul(f.add(self.flat, row), self.row_bytes), column))
        inside = f.raw("i32", f"trunc {f.raw('i64', f'and {source}, {VECTOR - 1}')} to i32")
        whole = f.raw("i64", f"and {source}, {-VECTOR}")
        kept = f.cast("trunc", f.smin(left, VECTOR), "i32")
        reaches_on = f.op("and", is_there, f.icmp("sgt", op32(f, "add", inside, kept), number(VECTOR)))
        words = [*read_words(f, whole, is_there), *read_words(f, f.add(whole, VECTOR), reaches_on)]
        line = op32(f, "mul", f.cast("trunc", row, "i32"), tile.swizzle)
        place = op32(f, "add", line, op32(f, "shl", f.cast("trunc", vector, "i32"), 4))
        # Lines are apart by the swizzle: some bits of the number of a line are added to the number of the piece in it.
        moved = op32(f, "and", op32(f, "lshr", place, 3), tile.swizzle - VECTOR)
        target = op32(f, "add", op32(f, "add", address, span * tile.span_bytes), op32(f, "xor", place, moved))
        # Rows that the tile does not have are stored nowhere.
        exists = f.icmp("slt", row, self.rows)
        return _Piece(f.select(exists, target, number(-1)), words, inside, kept)

    def _store(self, piece: _Piece) -> None:
        """Store a piece, with zeros behind the end of its row: those are multiplied."""
        f, kept = self.f, list[Value]()
        for at, word in enumerate(shift_words(f, piece.words, piece.shift)):
            bits = op32(f, "mul", op32(f, "sub", piece.left, 4 * at), 8)
            mask = asm.pure(f, "{ .reg .b32 n; max.s32 n, $1, 0; bmsk.clamp.b32 $0, 0, n; }", "=r,r", [bits], "i32")
            kept.append(op32(f, "and", word, mask))
        text = "{ .reg .pred P; setp.ne.s32 P, $0, -1; @P st.shared.v4.b32 [$0], {$1, $2, $3, $4}; }"
        asm.effect(f, text, "r,r,r,r,r", [piece.target, *kept])

    def _prefetch(self, thread: Value) -> None:
        """Ask for the lines of the same rows, or of rows so many stages further on; each thread for those of a row."""
        f, (moved, step) = self.f, self._advance()
        if not step:
            return
        stage = self.rows * self.tile.swizzle * self.op.pieces
        away = max(1, _PREFETCHED // stage) * step
        row = f.add(thread, away if moved == self.row_dim else 0)
        column = f.add(self.column, away if moved != self.row_dim else 0)
        is_there = f.op("and", f.icmp("slt", thread, self.rows), f.icmp("slt", f.add(self.row, row), self.limit))
        source = f.add(self.start, f.add(f.mul(f.add(self.flat, row), self.row_bytes), f.mul(column, self.size)))
        width = self.tile.swizzle * self.op.pieces
        for at in (*range(0, width, _LINE), width - 1):
            inside = f.icmp("slt", f.add(f.mul(column, self.size), at), self.row_bytes)
            text = "{ .reg .pred P; setp.ne.b32 P, $1, 0; @P prefetch.global.L2 [$0]; }"
            asm.effect(f, text, "l,r", [f.add(source, at), asm.flag(f, f.op("and", is_there, inside))])

    def _advance(self) -> tuple[int, int]:
        """The dim along which the next stage follows this one, and by how many elements; 0 where that is not known."""
        loop: Any = around(self.op, "ttarget.steps")
        if loop is None:
            return 0, 0
        index = loop.regions[0].block.args[0]
        for dim, value in enumerate(self.op.operands[4 : 4 + len(self.shape)]):
            if value is index or (isinstance(value.owner, SpecOp) and index in value.owner.operands):
                return (dim, loop.step) if dim in (self.row_dim, len(self.shape) - 1) else (0, 0)
        return 0, 0
