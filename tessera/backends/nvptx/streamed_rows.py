"""Rows that are copied ahead: while a block computes one row, TMA copies the next into shared memory.

Wide rows leave room for a block or two on a multiprocessor. When all of its warps compute, or wait for each other, no
load is in flight, and memory is idle. So blocks stay and go through rows one after the other. Each warp has a slot for
its leaf, and a barrier that counts bytes. It takes the leaf of its row from there into registers, and its first lane
starts the copy of the same leaf of the next row into the slot right then: a row is always under way. No warp
waits for the copies of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.row_accesses import (
    BARRIER,
    Row,
    index_position,
    row_of,
    slot_bytes,
    streamed_loads,
    warp_bytes,
)
from tessera.backends.nvptx.row_plan import ALIGNED, row_width
from tessera.backends.nvptx.text import assembly, special, warp_barrier
from tessera.ir.base.types import shaped_type
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import IndexOp, LoadOp, LoopOp, ProgramsOp, TailOp
from tessera.types.numerics import LEAF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access
    from tessera.backends.nvptx.leaf_rows import LeafRows


class StreamedRows:
    """The copies of one kernel, and the slots of its warps from `start` of shared memory on.

    What warps exchange for a row takes `bank_bytes`, of which there are two before.
    """

    def __init__(self, emitter: Emitter, rows: LeafRows, bank_bytes: int, start: int) -> None:
        self.emitter, self.rows, self.bank_bytes = emitter, rows, bank_bytes
        self.start = -(-start // ALIGNED) * ALIGNED
        self.end = self.start + rows.warps * warp_bytes(emitter.kernel)
        self.loads = streamed_loads(emitter.kernel)
        self.sources: list[Row] = list(dict.fromkeys(map(row_of, self.loads)))
        self.step: Index = 0
        """Rows from one of a block to its next."""
        self.parity = Value("i32", "0")
        """That of the phase in which the row was copied that is computed."""

    @property
    def f(self) -> FunctionText:
        return self.emitter.f

    def prepare(self, op: ProgramsOp, grid: Sequence[Value], total: Index) -> None:
        """Make the barrier of each warp, and find its slots."""
        f, emitter = self.f, self.emitter
        self.op, self.grid, self.total = op, grid, f.index(total)
        self.step = f.cast("zext", special(f, "nctaid.x"), "i64")
        loop = next(part for part in op.walk() if isinstance(part, LoopOp))
        self.loop, self.tail = loop, loop.next_op if isinstance(loop.next_op, TailOp) else None
        self.first = self.rows.start_of(0)
        end = dim_value(f, row_width(emitter.kernel), emitter.env)
        self.count = f.smin(f.sub(end, self.first), LEAF)
        shared = emitter.module.shared_address(f)
        start = f.add(f.mul(self.rows.warp, warp_bytes(emitter.kernel)), self.start)
        self.barrier = asm.op32(f, "add", f.cast("trunc", start, "i32"), shared)
        at, self.offsets = BARRIER, dict[Row, Value]()
        for row in self.sources:
            self.offsets[row] = f.add(start, at)
            at += slot_bytes(row)
        self.shared = shared
        self.is_first = f.icmp("eq", emitter.thread, 0)

        def begin() -> None:
            asm.barrier_init(f, self.barrier, 1)
            assembly(f, "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", "~{memory}", [])

        f.if_(self.is_first, begin)
        warp_barrier(f)

    def start_copy(self, row: Value) -> None:
        """Let the first lane of a warp start to copy its leaf of a row, if there is such a row."""
        f = self.f
        f.if_(f.op("and", self.is_first, f.icmp("slt", row, self.total)), lambda: self._copy(row))

    def _copy(self, row: Value) -> None:
        f, emitter = self.f, self.emitter
        found = zip(self.op.body.block.args, emitter.program_indices(self.grid, row), strict=True)
        indices: dict[SSAValue, Index] = dict(found)
        copies: list[tuple[Value, Value, Value]] = []
        for source_row in self.sources:
            op = next(one for one in self.loads if row_of(one) == source_row and index_position(_column(one))[1] == 0)
            buffer, size = op.buffer, shaped_type(op.buffer).dtype.bytes
            env: dict[str, Index] = {
                name: self._value(value, indices) for name, value in zip(op.coords, op.at, strict=True)
            }
            start = dim_value(f, op.offset, {**emitter.env, **env})
            source = f.gep(emitter.buffers[buffer], start, values.memory_type(shaped_type(buffer).dtype))
            bytes_ = f.cast("trunc", f.mul(self.count, size), "i32")
            target = asm.op32(f, "add", self.shared, f.cast("trunc", self.offsets[source_row], "i32"))
            copies.append((target, source, bytes_))
        whole = copies[0][2]
        for _, _, bytes_ in copies[1:]:
            whole = asm.op32(f, "add", whole, bytes_)
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        asm.effect(f, text, "r,r", [self.barrier, whole])
        for target, source, bytes_ in copies:
            text = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
            asm.effect(f, text, "r,l,r,r", [target, source, bytes_, self.barrier])

    def _value(self, value: SSAValue, indices: dict[SSAValue, Index]) -> Index:
        """An index of another program."""
        if value in indices:
            return indices[value]
        if value is self.loop.body.block.args[0]:
            return self.first
        op = value.owner
        assert isinstance(op, IndexOp), "rows are found by indices of programs"
        env: dict[str, Index] = {name: self._value(one, indices) for name, one in zip(op.names, op.at, strict=True)}
        return dim_value(self.f, op.expr, {**self.emitter.env, **env})

    def take(self, row: Value) -> None:
        """Take the leaf of a row into registers, where loads find it, and start to copy that of the next."""
        from tessera.backends.nvptx.emit_access import remember_load  # noqa: PLC0415 - which asks for rows as these

        f, emitter = self.f, self.emitter
        asm.barrier_wait(f, self.barrier, self.parity, None)
        body = self.loop if self.rows.is_whole or self.tail is None else self.tail
        emitter.indices[body.body.block.args[0]] = self.first
        for part in body.body.block.ops:
            if part in self.rows.missing:
                continue
            if isinstance(part, IndexOp) and all(value in emitter.indices for value in part.at):
                emitter.on_index(part)
            elif isinstance(part, LoadOp) and part.axes and row_of(part) in self.sources:
                remember_load(emitter, part, self._load)
        warp_barrier(f)
        self.start_copy(f.add(row, self.step))

    def _load(self, access: Access) -> Tile:
        """A tile out of a slot."""
        op = access.op
        assert isinstance(op, LoadOp), "what is stored is not copied ahead"
        f, emitter, size, vector = self.f, self.emitter, access.dtype.bytes, access.layout.vector
        base = f.gep(emitter.module.shared_base(), self.offsets[row_of(op)], "i8")
        step = index_position(_column(op))[1]

        def read(lane: Value) -> list[Value]:
            """The words of a vector from a lane of the slot on."""
            address, words = f.gep(base, f.mul(f.add(lane, step), size), "i8"), vector * size // 4
            each = min(4, words)
            found: list[Value] = []
            for at in range(0, words, each):
                whole = f.load(f.gep(address, 4 * at, "i8"), f"<{each} x i32>", 4 * each)
                found += [f.extract(whole, number) for number in range(each)]
            return found

        found: list[Value] = []
        thread = f.mul(emitter.thread, vector)
        for register in range(0, access.layout.registers, vector):
            words = read(f.add(thread, access.layout.start(register)))
            # Widths are multiples of the neighbours of a thread, so that all of them are inside, or none is.
            mask = access.mask(access.here(register), register, owner=False) if access.op.guarded else None
            if mask is not None:
                element = values.to_memory(f, values.constant(f, access.dtype, access.op.value("pad")), access.dtype)
                pad = values.words_of(f, [element] * (4 // size))[0]
                words = [f.select(mask, word, pad) for word in words]
            found += values.elements_of(f, words, access.dtype)
        return Tile(access.layout, access.dtype, found)


def _column(op: LoadOp) -> SSAValue:
    """The index of a load along its row."""
    return op.at[op.coords.index(op.axes[0])]
