"""Rows that a `ttarget.kernel` reads and writes, as its accesses show them: where they begin, how wide, how aligned.

Passes ask here what could be prefetched or moved by matrices; emitters ask again for the geometry of what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.backends.nvptx.row_plan import BY_MATRIX, PREFETCH, SECTIONS, USES_MATRICES
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.typed_ops import IndexOp, KernelOp, LoadOp, LoopOp, ProgramsOp, StoreOp, TailOp
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim

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


@dataclass(frozen=True)
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
    assert isinstance(op.buffer.type, BufferAttr)
    item = op.buffer.type.dtype.bytes
    size, stride = count * item, pitch.value * item
    is_whole = size and size % CHUNK == 0 and stride % CHUNK == 0 and size <= stride and kernel.align >= CHUNK
    return StaticRow(op, loop, count, size, stride) if is_whole else None


def prefetched_static_rows(kernel: KernelOp) -> list[StaticRow]:
    """The rows that a pass has chosen to prefetch."""
    rows = [static_row(op, kernel) for op in kernel.walk() if PREFETCH.of(op) == ROW]
    return [row for row in rows if row is not None]


# Rows that several warps share.


@dataclass(frozen=True)
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
    """Elements of a row, which all loops of a kernel go over."""
    loop = next(op for op in kernel.walk() if isinstance(op, LoopOp))
    assert isinstance(loop.high.owner, IndexOp)
    return loop.high.owner.expr


def shared_widths(kernel: KernelOp) -> tuple[Dim, int, int] | None:
    """A symbolic width, with the least and most elements of rows that warps share; None where it is known."""
    width = row_width(kernel)
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
    assert isinstance(op.buffer.type, BufferAttr)
    item = op.buffer.type.dtype.bytes
    stride = pitch * item
    is_aligned = stride.value is not None and stride.value % CHUNK == 0 and kernel.align >= CHUNK
    return DividedRow(op.buffer, count * item, stride, item, is_aligned)


def _common_line(op: LoadOp, kernel: KernelOp, index: SSAValue, count: Dim) -> DividedRow | None:
    """The one line of `count` elements that all programs read with a load; None for any other load."""
    if not is_constant(kernel, op.buffer) or op.windows or list(op.at) != [index]:
        return None
    if op.axes != op.coords or op.offset != Dim.symbol(op.coords[0]):
        return None
    assert isinstance(op.buffer.type, BufferAttr)
    item = op.buffer.type.dtype.bytes
    return DividedRow(op.buffer, count * item, Dim.constant(0), item, kernel.align >= CHUNK)


def _read_once(kernel: KernelOp, found: Mapping[LoadOp, DividedRow | None]) -> list[DividedRow]:
    """Those of arguments of which nothing else is read: what is prefetched is then all that there is of one."""
    others = {v for op in kernel.walk() if not isinstance(op, LoadOp) or not found.get(op) for v in op.operands}
    rows = [row for row in found.values() if row is not None]
    return list({row.buffer: row for row in rows if row.buffer not in others}.values())


# Rows that `ldmatrix` and `stmatrix` move, eight iterations in one instruction.

STEPS = 8
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


@dataclass(frozen=True)
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
    type = (access.block if isinstance(access, StoreOp) else access.result).type
    assert isinstance(type, VectorAttr)
    end = loop_end(loop)
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
