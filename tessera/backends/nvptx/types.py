"""Types that Target IR has on NVIDIA GPUs: fragments over warp groups, shared tiles, rings, tensor memory."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import MarkAttr, ShapedAttr, VectorAttr

# Types of matrix kernels: tiles over warpgroups in a closed set of layouts, dots in flight, shared memory.


class FragmentAttr(VectorAttr):
    """A tile in registers of the consumers, as `wgmma` leaves an accumulator: two rows by pairs of columns a thread."""

    name = "ttarget.fragment"


class RowVectorAttr(VectorAttr):
    """One number for each row of a fragment, held by the four threads that share the row."""

    name = "ttarget.row_vector"


class ColumnVectorAttr(VectorAttr):
    """One number for each column of a fragment, held by all threads that have the column."""

    name = "ttarget.column_vector"


class PartialRowsAttr(ShapedAttr):
    """A sum for each row of a fragment, in parts: each of the four threads of a row has that of its own columns."""

    name = "ttarget.partial_rows"


class PendingAttr(ShapedAttr):
    """A fragment that dots in flight still write; nothing but the next dot or a wait may take it."""

    name = "ttarget.pending"


class OperandAttr(ShapedAttr):
    """The A operand of a dot in registers: a fragment's own layout, its elements packed in pairs."""

    name = "ttarget.operand"


class SharedAttr(ShapedAttr):
    """A tile in shared memory, for each stage: columns in spans of some bytes, 16-byte pieces swizzled by row."""

    name = "ttarget.shared_tile"


class TensorMapAttr(MarkAttr):
    """How TMA sees a tensor: made by the host, read only."""

    name = "ttarget.tensor_map"


class RingAttr(MarkAttr):
    """Stages of shared tiles with a barrier each for `full` and for `empty`."""

    name = "ttarget.ring"


class CursorAttr(MarkAttr):
    """A position in a ring: the stage, and the parity of the pass over the ring."""

    name = "ttarget.cursor"


TENSOR_MAP, RING, CURSOR = TensorMapAttr(None), RingAttr(None), CursorAttr(None)


# The type of tensor memory: accumulators that dots write and threads read when they are done.


class TensorMemoryAttr(ShapedAttr):
    """Columns of tensor memory, in which row i of an accumulator is lane i."""

    name = "ttarget.tensor_memory"


TYPES = (
    *(FragmentAttr, RowVectorAttr, ColumnVectorAttr, PartialRowsAttr, PendingAttr, OperandAttr, SharedAttr),
    *(TensorMapAttr, RingAttr, CursorAttr, TensorMemoryAttr),
)
"""All of them."""


# What code asks of values and blocks, whose types xDSL does not know.


def shaped_type(value: SSAValue) -> ShapedAttr:
    """The type of a value that has a shape and a dtype: a tile, fragment, buffer or memory."""
    assert isinstance(value.type, ShapedAttr)
    return value.type


def sizes_of(value: SSAValue) -> tuple[int, ...]:
    """How large a value is along each axis; 0 along a dynamic one."""
    return shaped_type(value).sizes


def spec_ops(block: Block) -> list[SpecOp]:
    """The ops of a block, in order."""
    return [op for op in block.ops if isinstance(op, SpecOp)]


def yielded_values(block: Block) -> Sequence[SSAValue]:
    """What a block ends with: the values that its last op takes."""
    assert block.last_op is not None
    return block.last_op.operands
