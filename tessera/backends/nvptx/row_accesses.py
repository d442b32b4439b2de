"""Accesses of the rows of a kernel: which can be copied ahead of their use, and what a row lacks of its last leaf.

The last leaf of a row may end in the first of its four tiles of 256 lanes. Everything of the others is masked: loads
give padding, which is clipped to what adds nothing, and stores store nothing. A warp that computes it all the same is
the one that the others of its row wait for, so it is left out where that changes nothing.
"""

from __future__ import annotations

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.backends.nvptx.access_groups import has_index_tiles, size_of
from tessera.backends.nvptx.row_plan import ALIGNED, is_constant, is_row_loop, run_length
from tessera.ir.base.types import shaped_type
from tessera.ir.target.limits import MOST_ROW_WARPS
from tessera.ir.target.typed_ops import ClipOp, ElementwiseOp, IndexOp, KernelOp, LoadOp, LoopOp, StoreOp, TailOp
from tessera.types.dim import Dim
from tessera.types.numerics import LANES, LEAF

# Rows that are copied to shared memory before they are loaded.

BARRIER = 16
"""Bytes of a barrier that counts bytes, and of what is free behind it."""
MOST_SLOTS = 208 << 10
"""Bytes of shared memory of a multiprocessor, of 227 KB, that slots of all warps take that it holds."""

Row = tuple[SSAValue, Dim]
"""A row of a program: its buffer, and where it begins there."""


def row_of(op: LoadOp) -> Row:
    """The row that a load is of."""
    return op.buffer, op.offset - Dim.symbol(op.axes[0])


def slot_bytes(row: Row) -> int:
    """Bytes of a leaf of a row."""
    return LEAF * shaped_type(row[0]).dtype.bytes


def streamed_loads(kernel: KernelOp) -> list[LoadOp]:
    """Loads of the first loop over a row whose leaves can be copied ahead: of each program another row."""
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp)]
    if not loops or kernel.align < ALIGNED or run_length(loops[0].low) or any(map(is_row_loop, loops)):
        return []
    found = [op for op in loops[0].body.block.ops if isinstance(op, LoadOp)]
    return [op for op in found if op.align == ALIGNED and _is_row_load(kernel, op)]


def _is_row_load(kernel: KernelOp, op: LoadOp) -> bool:
    """Whether a load is of neighbours of 2 or 4 bytes that nobody writes, in another row for each program."""
    is_plain = op.pattern == "contiguous" and len(op.axes) == 1 and not op.windows and not has_index_tiles(op)
    if not is_plain or not isinstance(op.buffer, BlockArgument) or size_of(op) not in (2, 4):
        return False
    start, axis = row_of(op)[1], op.axes[0]
    is_row = axis not in start.symbols and not set(op.guarded) - {axis} and bool(start.symbols & {*op.coords})
    return is_row and is_constant(kernel, op.buffer)


def warp_bytes(kernel: KernelOp) -> int:
    """Bytes of shared memory for the barrier and the slots of a warp."""
    return BARRIER + sum(map(slot_bytes, {row_of(op) for op in streamed_loads(kernel)}))


def can_stream(kernel: KernelOp) -> bool:
    """Whether the rows of a kernel can be copied ahead, and there is shared memory for it."""
    return bool(streamed_loads(kernel)) and MOST_ROW_WARPS * warp_bytes(kernel) <= MOST_SLOTS


def index_position(index: SSAValue) -> tuple[SSAValue, int]:
    """An index as another one and a number."""
    op = index.owner
    if isinstance(op, IndexOp) and len(op.names) == 1:
        step = (op.expr - Dim.symbol(op.names[0])).value
        if step is not None:
            return op.at[0], step
    return index, 0


# What is left out of the end of a row.

_IDENTITIES = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
"""What changes nothing, by the function that joins it; a sum starts from 0, so that it is never -0."""
_WHOLE = ("ttarget.reduce", "ttarget.arg_reduce", "ttarget.yield", "ttarget.tree")
"""Ops that need all of a tile."""

Left = dict[Operation, SSAValue | None]
"""Ops that are left out, with the value that their result is then, if it is used."""


def find_missing(tail: TailOp, tiles: int) -> Left | None:
    """What is left out of the end of a row that has so many tiles of its leaf; None where something needs all of it."""
    absent: set[SSAValue] = set()
    found: Left = {}
    for op in tail.body.block.ops:
        if isinstance(op, IndexOp):
            base, step = index_position(op.result)
            is_beyond = base is tail.body.block.args[0] and step >= tiles * LANES
        else:
            is_beyond = False
        gone = [value for value in op.operands if value in absent]
        if not is_beyond and not gone:
            continue
        if op.name in _WHOLE or (isinstance(op, StoreOp) and not op.axes):
            return None
        kept = _kept_operand(op, gone)
        found[op] = kept
        if kept is None:
            absent.update(op.results)
    return found


def _kept_operand(op: Operation, gone: list[SSAValue]) -> SSAValue | None:
    """The operand that an op gives where the other is clipped wholly; None where it gives nothing."""
    if not isinstance(op, ElementwiseOp) or len(op.operands) != 2 or len(gone) != 1 or op.fn not in _IDENTITIES:
        return None
    (clipped,) = gone
    is_nothing = isinstance(clipped.owner, ClipOp) and clipped.owner.identity == _IDENTITIES[op.fn]
    first, second = op.operands
    return (second if first is clipped else first) if is_nothing else None
