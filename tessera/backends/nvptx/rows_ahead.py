"""Rows brought ahead: while a program works on its row, the next one is on its way into shared memory.

A kernel that keeps whole rows in registers has few programs on a multiprocessor at a time, too few to read memory while
others compute. So its programs take several rows each, one after the other, and copy the next one asynchronously, which
takes no registers; at the top of a round the row is read from shared memory, before its place is filled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import BlockArgument, SSAValue

from tessera.backends.nvptx.text import SHARED, WARP, assembly
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.machine import Machine

CHUNK = 16
"""Bytes of one asynchronous copy."""
HELD = 3
"""Blocks of such programs that a multiprocessor holds: as many as their registers allow."""
BLOCKS = 24
"""Blocks for each multiprocessor: several times what it holds, so that none waits long for another at the end."""


@dataclass(frozen=True)
class RowAhead:
    """An argument whose rows come ahead: `load` is the first op that reads them, in a loop written out."""

    load: SpecOp
    loop: SpecOp
    count: int
    bytes: int
    pitch: int
    """Elements and bytes of a row, and bytes from one to the next."""

    @property
    def buffer(self) -> SSAValue:
        return self.load.operands[0]


def rows_ahead(kernel: SpecOp, machine: Machine, programs: int, held: int = HELD) -> list[RowAhead]:
    """The rows of a kernel that are worth it: read whole, of arguments that are not written, and fit shared memory."""
    found: dict[SSAValue, RowAhead] = {}
    room = machine.shared // held
    (outer,) = [op for op in kernel.regions[0].block.ops if op.name == "ttarget.programs"]
    assert isinstance(outer, SpecOp)
    if len(outer.value("grid")) != 1 or kernel.value("threads") != WARP:
        return []
    for op in kernel.walk():
        row = row_of(op, kernel, outer) if isinstance(op, SpecOp) and op.name == "ttarget.load" else None
        if row is None or row.buffer in found or row.bytes * programs > room:
            continue
        found[row.buffer] = row
        room -= row.bytes * programs
    return list(found.values())


def row_of(op: SpecOp, kernel: SpecOp, outer: SpecOp) -> RowAhead | None:
    """The row that a load reads in a loop over all of it, which is written out."""
    loop, buffer = op.parent_op(), op.operands[0]
    is_given = isinstance(buffer, BlockArgument) and buffer.index not in kernel.value("writes")
    if not isinstance(loop, SpecOp) or loop.name != "ttarget.loop" or loop.value("unroll") or not is_given:
        return None
    place, step = outer.regions[0].block.args[0], loop.regions[0].block.args[0]
    names = dict(zip(op.operands[1:], op.value("coords"), strict=False))
    if set(names) != {place, step} or op.value("guarded") or op.value("windows") or op.value("axes") != (names[step],):
        return None
    across = op.value("offset").coefficient(names[place])
    along = across[1].coefficient(names[step]) if across is not None else None
    if across is None or along is None or along[0].value != 1 or along[1].value != 0 or across[0].value is None:
        return None
    count = end_of(loop) or 0
    assert isinstance(buffer.type, BufferAttr)
    item = buffer.type.dtype.bytes
    size, pitch = count * item, across[0].value * item
    is_whole = size and size % CHUNK == 0 and pitch % CHUNK == 0 and size <= pitch and kernel.value("align") >= CHUNK
    return RowAhead(op, loop, count, size, pitch) if is_whole else None


def end_of(loop: SpecOp) -> int | None:
    """Where a loop from 0 ends, where that is known."""
    low, high = (value.owner for value in loop.operands[:2])
    if not isinstance(low, SpecOp) or not isinstance(high, SpecOp):
        return None
    starts = low.value("expr").value == 0 if low.name == "ttarget.index" else False
    return high.value("expr").value if starts and high.name == "ttarget.index" else None


class Stage:
    """Shared memory of a program for its next rows, and the copies into it."""

    def __init__(self, emitter: Any, rows: list[RowAhead], start: int) -> None:
        self.emitter, self.rows = emitter, rows
        self.offsets: dict[SSAValue, int] = {}
        self.size = 0
        for row in rows:
            self.offsets[row.buffer] = self.size
            self.size += row.bytes
        f = emitter.f
        self.base = f.add(f.mul(emitter.slot, self.size), start)

    def place(self, buffer: SSAValue) -> Value:
        """Where the row of an argument is, as a pointer."""
        f = self.emitter.f
        return f.gep(self.emitter.module.shared_base(), f.add(self.base, self.offsets[buffer]), "i8")

    def fetch(self, number: Index, total: Index) -> None:
        """Begin to copy the rows of a program, or nothing where there is no such one; without a branch."""
        f, emitter = self.emitter.f, self.emitter
        size = f.select(f.icmp("slt", number, total), Value("i32", str(CHUNK)), Value("i32", "0"))
        for row in self.rows:
            self._copy(row, number, size)
        assembly(f, "cp.async.commit_group;", "", [])
        assert emitter.threads > 1

    def _copy(self, row: RowAhead, number: Index, size: Value) -> None:
        f, emitter = self.emitter.f, self.emitter
        first = f.mul(emitter.thread, CHUNK)
        source = f.gep(emitter.buffers[row.buffer], f.add(f.mul(number, row.pitch), first), "i8")
        target = f.add(f.add(self.base, self.offsets[row.buffer]), first)
        symbol = f"ptrtoint (ptr addrspace(3) @{SHARED} to i32)"
        place = f.raw("i32", f"add i32 {f.cast('trunc', target, 'i32').text}, {symbol}")
        wide = f.raw("i64", f"ptrtoint {source} to i64")
        copy_chunks(f, [place, wide, size], emitter.thread, emitter.threads, row.bytes // CHUNK)

    def arrive(self) -> None:
        """Wait for the copies of this program's threads, all of them."""
        assembly(self.emitter.f, "cp.async.wait_group 0;", "~{memory}", [])
        self.emitter.wait()


def copy_chunks(f: FunctionText, given: Sequence[Value], thread: Value, threads: int, chunks: int) -> None:
    """Begin to copy so many chunks, one after the other to each thread.

    `given` is where the thread's first one goes in shared memory and comes from, and what of each is read.
    """
    for at in range(0, chunks, threads):
        text = f"cp.async.cg.shared.global [$0+{CHUNK * at}], [$1+{CHUNK * at}], {CHUNK}, $2;"

        def copy(text: str = text) -> None:
            assembly(f, text, "r,l,r", given)

        f.if_(f.icmp("slt", f.add(thread, at), chunks) if at + threads > chunks else Value("i1", "true"), copy)
