"""Rows that are prefetched: while a program works on its row, the next one is copied into shared memory.

`cp.async` copies 16 bytes at a time without registers. At the top of a program the row is read from shared memory,
before its space is filled again. Rows of one warp are static and begin at 16 bytes (`StaticPrefetch`). Those that warps
share need not: what is copied of one begins at the multiple of 16 bytes before it and ends with the row, so that
nothing behind an argument is read, and what precedes it is memory of the same allocation (`DividedPrefetch`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.backends.nvptx.row_plan import BY_MATRIX, LEAVES, PREFETCH, SECTIONS, USES_MATRICES, run_length
from tessera.backends.nvptx.text import SHARED, WARP, assembly
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import shaped_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import IndexOp, KernelOp, LoadOp, LoopOp, ProgramsOp, StoreOp, TailOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.numerics import LEAF

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.emit_access import Access
    from tessera.backends.nvptx.row_warps import WarpGroup


# Rows that a `ttarget.kernel` reads and writes, as its accesses show them: where they begin, how wide, how aligned.

CHUNK = 16
"""Bytes of one `cp.async`."""
SECTION = 8
"""Iterations of a section: what a warp has of a row of symbolic width is whole sections."""
LEAST_SHARED = 2048
"""Elements of a row of symbolic width from which on warps share it; shorter ones have one warp each."""
ROW, LINE = "row", "line"
"""What is prefetched: a row of its own for every program, or one line that all programs read."""


def programs_in(kernel: KernelOp) -> ProgramsOp:
    """The op that goes through the grid."""
    (found,) = [op for op in kernel.body.block.ops if isinstance(op, ProgramsOp)]
    return found


def is_constant(kernel: KernelOp, buffer: SSAValue) -> bool:
    """Whether a buffer is an argument that the kernel does not write."""
    return isinstance(buffer, BlockArgument) and buffer.index not in kernel.writes


def loop_end(loop: LoopOp | TailOp) -> int | None:
    """Where a loop from 0 ends, where that is known."""
    low, high = loop.low.owner, loop.high.owner
    if not isinstance(low, IndexOp) or not isinstance(high, IndexOp) or low.expr.value != 0:
        return None
    return high.expr.value


def _pitch(op: LoadOp, program: SSAValue, index: SSAValue) -> Dim | None:
    """Elements from one program's row to the next, of a load that reads it element by element along `index`."""
    names = dict(zip(op.at, op.coords, strict=False))
    if set(names) != {program, index} or op.windows or op.axes != (names[index],):
        return None
    across = op.offset.coefficient(names[program])
    along = across[1].coefficient(names[index]) if across is not None else None
    if across is None or along is None or along[0].value != 1 or along[1].value != 0:
        return None
    return across[0]


# Rows of programs that are one warp each, in loops that are unrolled whole.


@frozen
class StaticRow:
    """Rows of an argument, one for each program: `load` is the first op that reads them, in a loop unrolled whole."""

    load: LoadOp
    loop: LoopOp
    count: int
    bytes: int
    pitch: int
    """Elements and bytes of a row, and bytes from one to the next."""

    @property
    def buffer(self) -> SSAValue:
        return self.load.buffer


def static_row(op: Operation, kernel: KernelOp) -> StaticRow | None:
    """The whole row that a load reads, in 16-byte chunks; None for any other op."""
    loop = op.parent_op()
    if not isinstance(op, LoadOp) or not isinstance(loop, LoopOp) or loop.unroll or op.guarded:
        return None
    program, index = programs_in(kernel).body.block.args[0], loop.body.block.args[0]
    pitch = _pitch(op, program, index) if is_constant(kernel, op.buffer) else None
    if pitch is None or pitch.value is None:
        return None
    count = loop_end(loop) or 0
    item = shaped_type(op.buffer).dtype.bytes
    size, stride = count * item, pitch.value * item
    is_whole = size and size % CHUNK == 0 and stride % CHUNK == 0 and size <= stride and kernel.align >= CHUNK
    return StaticRow(op, loop, count, size, stride) if is_whole else None


def prefetched_static_rows(kernel: KernelOp) -> list[StaticRow]:
    """The rows that a pass has chosen to prefetch."""
    rows = [static_row(op, kernel) for op in kernel.walk() if PREFETCH.of(op) == ROW]
    return [row for row in rows if row is not None]


# Rows that several warps share.


@frozen
class DividedRow:
    """Rows of an argument that warps divide: bytes of one, from one to the next (0 for a line), and of an element."""

    buffer: SSAValue
    bytes: Dim
    pitch: Dim
    item: int
    is_aligned: bool
    """Whether all of them begin at 16 bytes."""

    def padded_bytes(self, elements: int) -> int:
        """Bytes of shared memory that hold so many elements, wherever they begin."""
        return -(-(elements * self.item + (0 if self.is_aligned else CHUNK - 1)) // CHUNK) * CHUNK


def row_width(kernel: KernelOp) -> Dim:
    """Elements of a row, which all loops of a kernel go over, or of a run of one."""
    loop = next(op for op in kernel.walk() if isinstance(op, LoopOp))
    assert isinstance(loop.high.owner, IndexOp)
    run = run_length(loop.low)
    return Dim.constant(run) if run else loop.high.owner.expr


def shared_widths(kernel: KernelOp) -> tuple[Dim, int, int] | None:
    """A symbolic width, with the least and most elements of rows that warps share; None where it is known."""
    width = row_width(kernel)
    if LEAVES.of(kernel):
        return (width, 1, kernel.warps_per_row * LEAVES.of(kernel) * LEAF) if width.value is None else None
    most = (kernel.warps_per_row * SECTIONS.of(kernel) + 1) * SECTION * WARP - 1
    return (width, LEAST_SHARED, most) if width.value is None else None


def widest_row(kernel: KernelOp) -> int:
    """Elements of the widest row that warps share."""
    found = shared_widths(kernel)
    return row_width(kernel).value or 0 if found is None else found[2]


def elements_in_shared_memory(kernel: KernelOp) -> tuple[int, int]:
    """Elements of a row that shared memory holds, and for how many warps of a block each."""
    width = row_width(kernel).value
    return (width, 1) if width is not None else ((SECTIONS.of(kernel) + 1) * SECTION * WARP, kernel.warps_per_row)


def loads_of_rows(kernel: KernelOp) -> Iterator[tuple[LoadOp, SSAValue, SSAValue]]:
    """Loads of loops over a row, each with the index of its program and of its loop."""
    block = programs_in(kernel).body.block
    for loop in block.ops:
        if isinstance(loop, LoopOp | TailOp) and len(block.args) == 1:
            for op in loop.body.block.ops:
                if isinstance(op, LoadOp):
                    yield op, block.args[0], loop.body.block.args[0]


def divided_rows(kernel: KernelOp) -> list[DividedRow]:
    """The rows of a program's own that could be prefetched."""
    width = row_width(kernel)
    return _read_once(
        kernel, {op: _divided_row(op, kernel, at, index, width) for op, at, index in loads_of_rows(kernel)}
    )


def common_lines(kernel: KernelOp) -> list[DividedRow]:
    """The lines that all programs read, and that could be prefetched: weights and biases of a norm."""
    width = row_width(kernel)
    return _read_once(kernel, {op: _common_line(op, kernel, index, width) for op, _, index in loads_of_rows(kernel)})


def prefetched_rows(kernel: KernelOp, what: str) -> list[DividedRow]:
    """The rows, or lines, that a pass has chosen to prefetch."""
    chosen = {op.buffer for op in kernel.walk() if isinstance(op, LoadOp) and PREFETCH.of(op) == what}
    return [row for row in (divided_rows if what == ROW else common_lines)(kernel) if row.buffer in chosen]


def _divided_row(op: LoadOp, kernel: KernelOp, program: SSAValue, index: SSAValue, count: Dim) -> DividedRow | None:
    """The row of `count` elements that a load reads; None where it reads anything else."""
    pitch = _pitch(op, program, index) if is_constant(kernel, op.buffer) else None
    if pitch is None:
        return None
    item = shaped_type(op.buffer).dtype.bytes
    stride = pitch * item
    is_aligned = stride.value is not None and stride.value % CHUNK == 0 and kernel.align >= CHUNK
    return DividedRow(op.buffer, count * item, stride, item, is_aligned)


def _common_line(op: LoadOp, kernel: KernelOp, index: SSAValue, count: Dim) -> DividedRow | None:
    """The one line of `count` elements that all programs read with a load; None for any other load."""
    if not is_constant(kernel, op.buffer) or op.windows or list(op.at) != [index]:
        return None
    if op.axes != op.coords or op.offset != Dim.symbol(op.coords[0]):
        return None
    item = shaped_type(op.buffer).dtype.bytes
    return DividedRow(op.buffer, count * item, Dim.constant(0), item, kernel.align >= CHUNK)


def _read_once(kernel: KernelOp, found: Mapping[LoadOp, DividedRow | None]) -> list[DividedRow]:
    """Those of arguments of which nothing else is read: what is prefetched is then all that there is of one."""
    others = {v for op in kernel.walk() if not isinstance(op, LoadOp) or not found.get(op) for v in op.operands}
    rows = [row for row in found.values() if row is not None]
    return list({row.buffer: row for row in rows if row.buffer not in others}.values())


# Rows that `ldmatrix` and `stmatrix` move, eight iterations in one instruction.

STEPS = 8  # elements of 16 bits that a lane gets of `ldmatrix.x4`: four registers of two
ELEMENTS = STEPS * WARP
"""Iterations, and elements of a row, that one instruction moves."""
ITEM = 2
"""Bytes of an element that it moves."""
STAGED = 2 * ELEMENTS * ITEM
"""Bytes of shared memory that a program's stores need: while one part is read, the next is written."""
_ANY_LANE = frozenset(
    f"ttarget.{name}"
    for names in (
        ("programs", "index", "loop", "yield", "return", "scratch", "load", "store"),
        ("elementwise", "cast", "round", "bitcast", "select", "constant", "coordinate", "clip", "broadcast", "reduce"),
    )
    for name in names
)
"""Ops that are right whichever thread has which lane."""


@frozen
class MatrixRows:
    """Accesses of a kernel that go by matrices: loads of lines that all programs read, and stores of rows."""

    lines: tuple[LoadOp, ...]
    stores: frozenset[StoreOp]


def matrix_rows(kernel: KernelOp) -> MatrixRows | None:
    """The accesses that a pass has chosen to move by matrices; None in a kernel without any."""
    if not USES_MATRICES.of(kernel):
        return None
    ops = [op for op in kernel.walk() if BY_MATRIX.of(op)]
    stores = frozenset(op for op in ops if isinstance(op, StoreOp))
    return MatrixRows(tuple(op for op in ops if isinstance(op, LoadOp)), stores)


def can_use_matrices(kernel: KernelOp, rows: Sequence[StaticRow]) -> bool:
    """Whether all rows are of whole parts, and no op asks which thread has which lane."""
    ops = [op for op in kernel.walk() if op is not kernel]
    return bool(rows) and all(_has_whole_parts(row.load) for row in rows) and all(op.name in _ANY_LANE for op in ops)


def _has_whole_parts(access: LoadOp | StoreOp) -> bool:
    """Whether an access takes 32 neighbours of 2 bytes in each iteration of a loop unrolled whole, in whole parts."""
    loop = access.parent_op()
    if not isinstance(loop, LoopOp) or loop.unroll or loop.step != WARP:
        return False
    type, end = shaped_type(access.block if isinstance(access, StoreOp) else access.result), loop_end(loop)
    is_simple = not access.guarded and not access.windows and len(access.axes) == 1
    is_lane = [dim.value for dim in type.shape] == [WARP] and type.dtype.bytes == ITEM
    return is_simple and is_lane and end is not None and end > 0 and end % ELEMENTS == 0


def line_bytes(op: Operation, kernel: KernelOp) -> int:
    """Bytes of a line that all programs read by whole parts, of an argument that none writes; 0 for any other op."""
    loop = op.parent_op()
    if not isinstance(op, LoadOp) or not isinstance(loop, LoopOp) or not _has_whole_parts(op):
        return 0
    index = loop.body.block.args[0]
    if not is_constant(kernel, op.buffer) or list(op.at) != [index] or op.offset != Dim.symbol(op.coords[0]):
        return 0
    return (loop_end(loop) or 0) * ITEM if kernel.align >= CHUNK else 0


def stores_whole_parts(op: Operation, kernel: KernelOp) -> bool:
    """Whether a store is of whole parts of a row, each of which begins at 16 bytes."""
    loop = op.parent_op()
    if not isinstance(op, StoreOp) or not isinstance(loop, LoopOp) or not _has_whole_parts(op):
        return False
    index, names = loop.body.block.args[0], dict(zip(op.at, op.coords, strict=False))
    is_only_stored = isinstance(op.buffer, BlockArgument) and all(
        isinstance(use.operation, StoreOp) for use in op.buffer.uses
    )
    if not is_only_stored or op.mode != "set" or index not in names or op.axes != (names[index],):
        return False
    parts = op.offset.coefficient(names[index])
    if parts is None or parts[0].value != 1 or kernel.align < CHUNK:
        return False
    others = {name for value, name in names.items() if value is not index}
    steps = [parts[1].coefficient(name) for name in others if name in parts[1].symbols]
    return len(steps) <= 1 and all(
        step is not None and step[1] == Dim.constant(0) and (step[0].value or 1) * ITEM % CHUNK == 0 for step in steps
    )


def is_row_op(op: SpecOp) -> bool:
    """Whether an op is inside a loop over a row."""
    return isinstance(op.parent_op(), LoopOp | TailOp)


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
