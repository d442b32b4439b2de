"""Rows of any width on their way into shared memory: 16 bytes at a time, from the 16 that the row begins in.

A row need not begin at a multiple of 16 bytes. What is copied begins at the multiple before it, and ends with the row:
nothing behind an argument is read, and what lies before it is memory of the same allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.ir import BlockArgument, SSAValue

from tessera.backends.nvptx.rows_ahead import CHUNK
from tessera.backends.nvptx.text import SHARED, WARP, assembly
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.types import bytes_of
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access
    from tessera.backends.nvptx.row_teams import Team

_HALF = 2
"""Bytes of elements of which a word has two."""


@dataclass(frozen=True)
class RaggedRow:
    """Rows of an argument, one for each program: bytes of one, and from one to the next."""

    buffer: SSAValue
    bytes: Dim
    pitch: Dim
    item: int
    """Bytes of an element."""
    is_aligned: bool
    """Whether all of them begin at 16 bytes."""

    def room(self, elements: int) -> int:
        """Bytes of shared memory that hold so many elements, wherever they begin."""
        return -(-(elements * self.item + (0 if self.is_aligned else CHUNK - 1)) // CHUNK) * CHUNK


def row_in(op: SpecOp, kernel: SpecOp, place: SSAValue, turn: SSAValue, count: Dim) -> RaggedRow | None:
    """The row of `count` elements that a load reads, turn by turn; None where it reads anything else."""
    buffer = op.operands[0]
    if not isinstance(buffer, BlockArgument) or buffer.index in kernel.value("writes"):
        return None
    names = dict(zip(op.operands[1:], op.value("coords"), strict=False))
    if set(names) != {place, turn} or op.value("windows") or op.value("axes") != (names[turn],):
        return None
    across = op.value("offset").coefficient(names[place])
    along = across[1].coefficient(names[turn]) if across is not None else None
    if across is None or along is None or along[0].value != 1 or along[1].value != 0:
        return None
    assert isinstance(buffer.type, BufferAttr)
    item = buffer.type.dtype.bytes
    pitch = across[0] * item
    is_aligned = pitch.value is not None and pitch.value % CHUNK == 0 and kernel.value("align") >= CHUNK
    return RaggedRow(buffer, count * item, pitch, item, is_aligned)


def line_in(op: SpecOp, kernel: SpecOp, turn: SSAValue, count: Dim) -> RaggedRow | None:
    """The one row of `count` elements that all programs read with a load, turn by turn; None for any other load."""
    buffer = op.operands[0]
    if not isinstance(buffer, BlockArgument) or buffer.index in kernel.value("writes") or op.value("windows"):
        return None
    names = op.value("coords")
    if list(op.operands[1:]) != [turn] or op.value("axes") != names or op.value("offset") != Dim.symbol(names[0]):
        return None
    assert isinstance(buffer.type, BufferAttr)
    item = buffer.type.dtype.bytes
    return RaggedRow(buffer, count * item, Dim.constant(0), item, kernel.value("align") >= CHUNK)


class RaggedStage:
    """Shared memory for the next row of each team of a block, and the copies into it by all of its threads."""

    def __init__(self, emitter: Emitter, rows: Sequence[RaggedRow], elements: int, warps: int, start: int = 0) -> None:
        """`elements` of a row have room for each of the block's warps, from `start` on."""
        self.emitter, self.rows = emitter, rows
        self.rooms = {row.buffer: row.room(elements) for row in rows}
        self.offsets: dict[SSAValue, int] = {}
        self.end = start
        for row in rows:
            self.offsets[row.buffer] = self.end
            self.end += self.rooms[row.buffer] * warps
        emitter.module.shared_base()

    def _start(self, row: RaggedRow, number: Index) -> Value:
        """The address of a row."""
        f, emitter = self.emitter.f, self.emitter
        pitch = dim_value(f, row.pitch, emitter.env)
        return f.raw("i64", f"ptrtoint {f.gep(emitter.buffers[row.buffer], f.mul(number, pitch), 'i8')} to i64")

    def _own(self, row: RaggedRow, team: Team) -> Value:
        """Where a team has its room."""
        f = self.emitter.f
        return f.add(f.mul(team.first, self.rooms[row.buffer]), self.offsets[row.buffer])

    def place(self, row: RaggedRow, number: Index, team: Team) -> Value:
        """Where the row of a program is, once it is there, as a pointer."""
        f = self.emitter.f
        offset = self._own(row, team)
        if not row.is_aligned:
            offset = f.add(f.op("and", self._start(row, number), Value("i64", str(CHUNK - 1))), offset)
        return f.gep(self.emitter.module.shared_base(), offset, "i8")

    def fetch(self, number: Index, total: Index, team: Team) -> None:
        """Begin to copy the rows of a program, or nothing where there is no such one."""
        f = self.emitter.f
        is_there = f.icmp("slt", number, total)
        for row in self.rows:
            self._copy(row, number, is_there, team)
        if self.rows:
            assembly(f, "cp.async.commit_group;", "", [])

    def _copy(self, row: RaggedRow, number: Index, is_there: Value, team: Team) -> None:
        f, emitter = self.emitter.f, self.emitter
        start = self._start(row, number)
        first = start if row.is_aligned else f.op("and", start, Value("i64", str(-CHUNK)))
        end = f.select(is_there, f.op("add", start, dim_value(f, row.bytes, emitter.env)), first)
        own = f.mul(f.add(f.mul(team.place, WARP), emitter.lane), CHUNK)
        target = f.add(own, self._own(row, team))
        symbol = f"ptrtoint (ptr addrspace(3) @{SHARED} to i32)"
        shared = f.raw("i32", f"add i32 {f.cast('trunc', target, 'i32').text}, {symbol}")
        source, step = f.op("add", first, own), f.mul(team.warps, WARP * CHUNK)

        def copy(at: Index, is_sure: bool = False) -> None:
            left = f.sub(f.op("sub", end, source), at)
            count = f.cast("trunc", f.smin(left if is_sure else f.smax(left, 0), CHUNK), "i32")
            place = f.op("add", shared, f.cast("trunc", f.index(at), "i32"))
            text = f"cp.async.cg.shared.global [$0], [$1], {CHUNK}, $2;"
            assembly(f, text, "r,l,r", [place, f.op("add", source, f.index(at)), count])

        known_size, threads = row.bytes.value, team.warps
        if known_size is None or not isinstance(threads, int):
            f.loop(0, f.smax(f.op("sub", end, source), 0), step, lambda at: copy(at, is_sure=True))
            return
        chunks = row.room(known_size // row.item) // CHUNK
        for at in range(0, chunks, WARP * threads):
            is_all = at + WARP * threads <= chunks
            test = Value("i1", "true") if is_all else f.icmp("slt", f.add(own, CHUNK * at), CHUNK * chunks)
            f.if_(test, lambda at=at: copy(CHUNK * at))

    def arrive(self) -> None:
        """Wait for the copies of this thread."""
        if self.rows:
            assembly(self.emitter.f, "cp.async.wait_group 0;", "~{memory}", [])


def packed_pairs(f: FunctionText, given: Sequence[Value]) -> list[Value]:
    """Elements of 2 bytes two to a word, so that they take half the registers; any others as they are."""
    if not given or any(bytes_of(value.type) != _HALF for value in given):
        return list(given)
    bits = [f.bitcast(value, "i16") for value in given]
    bits += bits[-1:] if len(bits) % 2 else []
    pairs = zip(bits[::2], bits[1::2], strict=True)
    # Assembly, so that nobody looks through it and keeps both.
    return [f.raw("i32", f'call i32 asm "mov.b32 $0, {{$1, $2}};", "=r,h,h"({low}, {high})') for low, high in pairs]


def unpacked_pairs(f: FunctionText, given: Sequence[Value], types: Sequence[str]) -> list[Value]:
    """Those elements again."""
    if not types or any(bytes_of(type_) != _HALF for type_ in types):
        return list(given)
    words = [f.op("lshr", word, Value("i32", str(16 * half))) for word in given for half in range(2)]
    halves = [f.cast("trunc", word, "i16") for word in words[: len(types)]]
    return [f.bitcast(half, type_) for half, type_ in zip(halves, types, strict=True)]


def on_stage(access: Access) -> Access:
    """An access to a row that lies in shared memory, where it begins at 0, whichever program's it is."""
    names = [name for name in access.op.value("coords") if name not in access.op.value("axes")]
    place = access.emitter.on_stage[access.op.operands[0]]
    return replace(access, base=place, env={**access.env, **dict.fromkeys(names, 0)})
