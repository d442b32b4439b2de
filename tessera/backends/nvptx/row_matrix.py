"""Rows of 2-byte elements by matrices of shared memory: eight iterations of a row in one instruction, in and out.

An iteration of a reduction takes 32 neighbours, one to a lane, so a thread would move two bytes at a time. `ldmatrix`
deals out eight iterations at once if lanes are numbered as its columns are: thread `p` of a warp is lane
`8 * (p % 4) + p // 4`. Each of its four matrices has two iterations of all 32 lanes. `stmatrix` is the inverse, after
which rows leave 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import emit_access, values
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.row_accesses import CHUNK, ELEMENTS, ITEM, STAGED, STEPS, MatrixRows, line_bytes
from tessera.backends.nvptx.row_prefetch import (
    StaticPrefetch,
    commit_copies,
    copy_chunks,
    shared_address,
    wait_for_copies,
)
from tessera.backends.nvptx.text import WARP, assembly, barrier, warp_barrier
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access

_ACROSS = {1: 4, 2: 8, 4: 16, 8: 1, 16: 2}
"""The bit in which the threads of two lanes differ, by the distance of the lanes."""


class RowMatrices:
    """The accesses of a kernel by matrices: shared memory from `start` on, first lines of all, then parts of rows."""

    def __init__(self, emitter: Emitter, chosen: MatrixRows, start: int) -> None:
        self.emitter = emitter
        self._starts: dict[SSAValue, int] = {}
        self._sizes = {op.buffer: line_bytes(op, emitter.kernel) for op in chosen.lines}
        for buffer, size in self._sizes.items():
            self._starts[buffer], start = start, start + size
        self._out = start
        self.end = start + emitter.programs * STAGED
        f, lane = emitter.f, emitter.lane
        # The row of a matrix that this thread points to: its iteration, and eight lanes of it.
        steps = f.add(f.mul(f.udiv(lane, 8), 4 * WARP), f.mul(f.urem(lane, 2), 2 * WARP))
        self._row = f.add(steps, f.mul(f.udiv(f.urem(lane, 8), 2), CHUNK))
        self._read: dict[tuple[SpecOp, int], list[Value]] = {}
        self._waiting: dict[SpecOp, list[tuple[Tile, Access]]] = {}
        self.words: dict[Value, tuple[Value, int]] = {}
        """The word that an element is in, and which half of it."""

    def fetch_lines(self) -> None:
        """Copy what all programs read, by all threads of the block; once."""
        f, emitter = self.emitter.f, self.emitter
        thread = f.add(f.mul(emitter.slot, emitter.threads), emitter.lane)
        first, count = f.mul(thread, CHUNK), emitter.threads * emitter.programs
        for buffer, start in self._starts.items():
            source = f.raw("i64", f"ptrtoint {f.gep(emitter.buffers[buffer], first, 'i8')} to i64")
            operands = [shared_address(f, f.add(first, start)), source, Value("i32", str(CHUNK))]
            copy_chunks(f, operands, thread, count, self._sizes[buffer] // CHUNK)
        if self._starts:
            commit_copies(f)
            wait_for_copies(f)
            barrier(f)

    def load_rows(self, prefetch: StaticPrefetch) -> None:
        """The rows of a program, which are in shared memory, for all loads of it that follow."""
        emitter = self.emitter
        # A new program: what was read for the last one is not known any more.
        self._read.clear()
        assert not self._waiting
        for row in prefetch.rows:
            start = emitter.f.add(prefetch.base, prefetch.offsets[row.buffer])
            index = row.loop.body.block.args[0]
            assert isinstance(row.buffer.type, BufferAttr)
            for part in range(0, row.count, ELEMENTS):
                for step, register in enumerate(self._load_part(start, part, row.buffer.type.dtype)):
                    emitter.indices[index] = part + step * WARP
                    emit_access.remember_loaded(emitter, row.load, register)

    def _load_part(self, start: Index, element: int, dtype: DType) -> list[Value]:
        """What this thread has of eight iterations of a row that begins at `start`."""
        f = self.emitter.f
        address = shared_address(f, f.add(start, self._row))
        text = f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{$0, $1, $2, $3}}, [$4+{element * ITEM}];"
        four = "{ i32, i32, i32, i32 }"
        found = assembly(f, text, "=r,=r,=r,=r,r,~{memory}", [address], four)
        whole = Value("<4 x i32>", "poison")
        for at in range(4):
            whole = f.insert(whole, f.raw("i32", f"extractvalue {four} {found.text}, {at}"), at)
        halves = values.unpack(f, whole, values.memory_type(dtype), STEPS)
        words = [f.extract(whole, at) for at in range(4)]
        self.words.update((half, (words[at // 2], at % 2)) for at, half in enumerate(halves))
        return halves

    def load_line(self, op: SpecOp, element: int) -> Value:
        """One iteration of a line that all programs read."""
        part, step = divmod(element // WARP, STEPS)
        if (op, part) not in self._read:
            type = op.operands[0].type
            assert isinstance(type, BufferAttr)
            self._read[op, part] = self._load_part(self._starts[op.operands[0]], part * ELEMENTS, type.dtype)
        return self._read[op, part][step]

    def store(self, op: SpecOp, tile: Tile, access: Access, element: int) -> None:
        """One iteration of a row that is stored; the last of eight writes all of them."""
        waiting = self._waiting.setdefault(op, [])
        waiting.append((tile, access))
        if len(waiting) < STEPS:
            return
        del self._waiting[op]
        f, emitter = self.emitter.f, self.emitter
        words = values.pack(f, self._elements([one for one, _ in waiting]))
        slot = f.add(f.mul(emitter.slot, STAGED), self._out + element // ELEMENTS % 2 * (STAGED // 2))
        text = "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [$0], {$1, $2, $3, $4};"
        parts = [f.extract(words, at) for at in range(4)]
        assembly(f, text, "r,r,r,r,r,~{memory}", [shared_address(f, f.add(slot, self._row)), *parts])
        warp_barrier(f)
        own = f.mul(emitter.lane, CHUNK)
        source = f.gep(emitter.module.shared_base(), f.add(slot, own), "i8")
        whole = f.raw("<4 x i32>", f"load <4 x i32>, ptr {source.text}, align {CHUNK}")
        first = waiting[0][1]
        f.store(whole, f.gep(first.address(first.env), own, "i8"), align=CHUNK)

    def _elements(self, tiles: Sequence[Tile]) -> list[Value]:
        """Iterations side by side; those that were just rounded are rounded two at a time."""
        wide = [tile.wide for tile in tiles if tile.wide is not None]
        if len(wide) == len(tiles):
            return values.cast(self.emitter.f, [part[0] for _, part in wide], wide[0][0], tiles[0].dtype)
        return [self.emitter.registers(tile)[0] for tile in tiles]


def lane_of(emitter: Emitter) -> Value:
    """The lane that a thread of a warp has."""
    f = emitter.f
    return f.add(f.mul(f.urem(emitter.lane, 4), 8), f.udiv(emitter.lane, 4))


def thread_distance(lanes: int) -> int:
    """The mask of a butterfly shuffle that goes from a lane to the one so many further."""
    return _ACROSS[lanes]
