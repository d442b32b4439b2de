"""Rows that are prefetched: while a program works on its row, the next one is copied into shared memory.

`cp.async` copies 16 bytes at a time without registers. At the top of a program the row is read from shared memory,
before its space is filled again. Rows of one warp are static and begin at 16 bytes (`StaticPrefetch`). Those that warps
share need not: what is copied of one begins at the multiple of 16 bytes before it and ends with the row, so that
nothing behind an argument is read, and what precedes it is memory of the same allocation (`DividedPrefetch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx.row_accesses import CHUNK, DividedRow, StaticRow
from tessera.backends.nvptx.text import SHARED, WARP, assembly
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value
from tessera.ir.target.llvm.text import FunctionText

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access
    from tessera.backends.nvptx.row_warps import WarpGroup

_HALF = 2
"""Bytes of elements of which a word has two."""


def shared_address(f: FunctionText, offset: Index) -> Value:
    """An offset into shared memory as the 32-bit address that instructions want."""
    symbol = f"ptrtoint (ptr addrspace(3) @{SHARED} to i32)"
    return f.raw("i32", f"add i32 {f.cast('trunc', f.index(offset), 'i32').text}, {symbol}")


def commit_copies(f: FunctionText) -> None:
    """End a group of copies."""
    assembly(f, "cp.async.commit_group;", "", [])


def wait_for_copies(f: FunctionText) -> None:
    """Wait for all copies of this thread."""
    assembly(f, "cp.async.wait_group 0;", "~{memory}", [])


def copy_chunks(f: FunctionText, operands: Sequence[Value], thread: Value, threads: int, chunks: int) -> None:
    """Begin to copy so many chunks, one after the other to each thread.

    `operands` are the addresses of the thread's first one in shared and in global memory, and how many bytes of each
    are read.
    """
    for at in range(0, chunks, threads):
        text = f"cp.async.cg.shared.global [$0+{CHUNK * at}], [$1+{CHUNK * at}], {CHUNK}, $2;"

        def copy(text: str = text) -> None:
            assembly(f, text, "r,l,r", operands)

        f.if_(f.icmp("slt", f.add(thread, at), chunks) if at + threads > chunks else Value("i1", "true"), copy)


class StaticPrefetch:
    """Shared memory of a program, one warp, for its next rows, and the copies into it."""

    def __init__(self, emitter: Emitter, rows: Sequence[StaticRow], start: int) -> None:
        self.emitter, self.rows = emitter, rows
        self.offsets: dict[SSAValue, int] = {}
        self.size = 0
        for row in rows:
            self.offsets[row.buffer] = self.size
            self.size += row.bytes
        f = emitter.f
        self.base = f.add(f.mul(emitter.slot, self.size), start)

    def address(self, buffer: SSAValue) -> Value:
        """Where the row of an argument is, as a pointer."""
        f = self.emitter.f
        return f.gep(self.emitter.module.shared_base(), f.add(self.base, self.offsets[buffer]), "i8")

    def fetch(self, number: Index, total: Index) -> None:
        """Begin to copy the rows of a program, or nothing where there is no such one; without a branch."""
        f, emitter = self.emitter.f, self.emitter
        size = f.select(f.icmp("slt", number, total), Value("i32", str(CHUNK)), Value("i32", "0"))
        for row in self.rows:
            self._copy(row, number, size)
        commit_copies(f)
        assert emitter.threads > 1

    def _copy(self, row: StaticRow, number: Index, size: Value) -> None:
        f, emitter = self.emitter.f, self.emitter
        first = f.mul(emitter.thread, CHUNK)
        source = f.gep(emitter.buffers[row.buffer], f.add(f.mul(number, row.pitch), first), "i8")
        target = shared_address(f, f.add(f.add(self.base, self.offsets[row.buffer]), first))
        wide = f.raw("i64", f"ptrtoint {source} to i64")
        copy_chunks(f, [target, wide, size], emitter.thread, emitter.threads, row.bytes // CHUNK)

    def wait(self) -> None:
        """Wait for the copies of this program's threads, all of them."""
        wait_for_copies(self.emitter.f)
        self.emitter.wait()


class DividedPrefetch:
    """Shared memory for the next row of each warp group of a block, and the copies into it by all of its threads."""

    def __init__(self, emitter: Emitter, rows: Sequence[DividedRow], elements: int, warps: int, start: int = 0) -> None:
        """There is space for `elements` of a row for each of the block's warps, from `start` on."""
        self.emitter, self.rows = emitter, rows
        self.sizes = {row.buffer: row.padded_bytes(elements) for row in rows}
        self.offsets: dict[SSAValue, int] = {}
        self.end = start
        for row in rows:
            self.offsets[row.buffer] = self.end
            self.end += self.sizes[row.buffer] * warps
        emitter.module.shared_base()

    def _source(self, row: DividedRow, number: Index) -> Value:
        """The address of a row in global memory."""
        f, emitter = self.emitter.f, self.emitter
        pitch = dim_value(f, row.pitch, emitter.env)
        return f.raw("i64", f"ptrtoint {f.gep(emitter.buffers[row.buffer], f.mul(number, pitch), 'i8')} to i64")

    def _target(self, row: DividedRow, group: WarpGroup) -> Value:
        """The offset in shared memory where a warp group has its row."""
        f = self.emitter.f
        return f.add(f.mul(group.first, self.sizes[row.buffer]), self.offsets[row.buffer])

    def address(self, row: DividedRow, number: Index, group: WarpGroup) -> Value:
        """Where the row of a program is, once it is there, as a pointer."""
        f = self.emitter.f
        offset = self._target(row, group)
        if not row.is_aligned:
            offset = f.add(f.op("and", self._source(row, number), Value("i64", str(CHUNK - 1))), offset)
        return f.gep(self.emitter.module.shared_base(), offset, "i8")

    def fetch(self, number: Index, total: Index, group: WarpGroup) -> None:
        """Begin to copy the rows of a program, or nothing where there is no such one."""
        f = self.emitter.f
        is_there = f.icmp("slt", number, total)
        for row in self.rows:
            self._copy(row, number, is_there, group)
        if self.rows:
            commit_copies(f)

    def _copy(self, row: DividedRow, number: Index, is_there: Value, group: WarpGroup) -> None:
        f, emitter = self.emitter.f, self.emitter
        start = self._source(row, number)
        first = start if row.is_aligned else f.op("and", start, Value("i64", str(-CHUNK)))
        end = f.select(is_there, f.op("add", start, dim_value(f, row.bytes, emitter.env)), first)
        own = f.mul(f.add(f.mul(group.index, WARP), emitter.lane), CHUNK)
        shared = shared_address(f, f.add(own, self._target(row, group)))
        source, step = f.op("add", first, own), f.mul(group.warps, WARP * CHUNK)

        def copy(at: Index, is_sure: bool = False) -> None:
            left = f.sub(f.op("sub", end, source), at)
            count = f.cast("trunc", f.smin(left if is_sure else f.smax(left, 0), CHUNK), "i32")
            target = f.op("add", shared, f.cast("trunc", f.index(at), "i32"))
            text = f"cp.async.cg.shared.global [$0], [$1], {CHUNK}, $2;"
            assembly(f, text, "r,l,r", [target, f.op("add", source, f.index(at)), count])

        known_size, warps = row.bytes.value, group.warps
        if known_size is None or not isinstance(warps, int):
            f.loop(0, f.smax(f.op("sub", end, source), 0), step, lambda at: copy(at, is_sure=True))
            return
        chunks = row.padded_bytes(known_size // row.item) // CHUNK
        for at in range(0, chunks, WARP * warps):
            is_all = at + WARP * warps <= chunks
            test = Value("i1", "true") if is_all else f.icmp("slt", f.add(own, CHUNK * at), CHUNK * chunks)
            f.if_(test, lambda at=at: copy(CHUNK * at))

    def wait(self) -> None:
        """Wait for the copies of this thread."""
        if self.rows:
            wait_for_copies(self.emitter.f)


def pack_pairs(f: FunctionText, elements: Sequence[Value]) -> list[Value]:
    """Elements of 2 bytes two to a word, so that they take half the registers; any others as they are."""
    if not elements or any(bytes_of(value.type) != _HALF for value in elements):
        return list(elements)
    bits = [f.bitcast(value, "i16") for value in elements]
    bits += bits[-1:] if len(bits) % 2 else []
    pairs = zip(bits[::2], bits[1::2], strict=True)
    # Assembly, since LLVM would look through a shift and keep both halves in registers of their own.
    return [f.raw("i32", f'call i32 asm "mov.b32 $0, {{$1, $2}};", "=r,h,h"({low}, {high})') for low, high in pairs]


def unpack_pairs(f: FunctionText, words: Sequence[Value], types: Sequence[str]) -> list[Value]:
    """The elements that `pack_pairs` was given."""
    if not types or any(bytes_of(type_) != _HALF for type_ in types):
        return list(words)
    shifted = [f.op("lshr", word, Value("i32", str(16 * half))) for word in words for half in range(2)]
    halves = [f.cast("trunc", word, "i16") for word in shifted[: len(types)]]
    return [f.bitcast(half, type_) for half, type_ in zip(halves, types, strict=True)]


def to_staged(access: Access) -> Access:
    """An access to a row that is in shared memory, where it begins at 0, whichever program's it is."""
    names = [name for name in access.op.coords if name not in access.op.axes]
    base = access.emitter.staged[access.op.buffer]
    return replace(access, base=base, env={**access.env, **dict.fromkeys(names, 0)})
