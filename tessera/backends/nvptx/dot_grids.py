"""Layouts of accumulators whose rows threads do not share evenly: rows of threads, each with some of the columns.

Elements of a tile go to threads in the order of memory. Where a row is a power of two, all that a thread has is in the
same columns, and what it reads of either operand is multiplied with all it reads of the other. With 96 columns each of
its elements would be in another row and in other columns: it would read 30 times from shared memory for 96
multiply-adds, and not 20. Which thread has an element changes no bit of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from xdsl.ir import SSAValue

from tessera.backends.nvptx.layout import Layout, ThreadGrid
from tessera.backends.nvptx.matmul_plan import STAGES
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import VectorAttr
from tessera.ir.target.typed_ops import DotOp, KernelOp, LoadOp

_PIECE = 4
"""Elements that one read of shared memory has at most."""
_LEAST_ACROSS, _MOST_ACROSS = 8, 32
"""Threads along a row: a warp at most, and so many that what they read together is a sector."""
_ABLE = frozenset(
    f"ttarget.{name}"
    for names in (
        ("load", "store", "elementwise", "constant", "broadcast", "select", "cast", "dot", "transpose"),
        ("loop", "tail", "yield"),
    )
    for name in names
)
"""Ops that find elements by their coordinates, or have them where they are."""

Grids = Mapping[tuple[int, ...], ThreadGrid]


def grids_of(kernel: KernelOp) -> Grids:
    """The layouts of accumulators of a kernel that are not in the order of memory, by their shape."""
    if STAGES.of(kernel) or kernel.warps_per_row:
        return {}
    shapes = {sizes_of(op.result) for op in kernel.walk() if isinstance(op, DotOp)}
    grids = {shape: _grid_of(shape, kernel) for shape in shapes}
    return {shape: grid for shape, grid in grids.items() if grid is not None and _is_able(kernel, shape)}


def _grid_of(shape: Sequence[int], kernel: KernelOp) -> ThreadGrid | None:
    """Threads over a tile, as many along a row as divide it; None where the order of memory is as good."""
    rows, columns = shape
    group = Layout(tuple(shape), kernel.threads, kernel.vector).group
    if group % columns == 0 or columns % group == 0:
        return None
    across = min(_MOST_ACROSS, columns & -columns)
    down = kernel.threads // max(across, 1)
    if across < _LEAST_ACROSS or rows % down or kernel.threads % across:
        return None
    return ThreadGrid(across, across, 1, gcd(columns // across, _PIECE))


def _is_able(kernel: KernelOp, shape: Sequence[int]) -> bool:
    """Whether all that is done with tiles of a shape is done wherever their elements are."""
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or not any(_has(value, shape) for value in (*op.operands, *op.results)):
            continue
        if op.name not in _ABLE or (op.name == "ttarget.broadcast" and _has(op.operands[0], shape)):
            return False
        if isinstance(op, LoadOp) and op.pattern != "contiguous":
            return False
        if op.name == "ttarget.transpose" and not all(isinstance(use.operation, DotOp) for use in op.results[0].uses):
            return False
    return True


def _has(value: SSAValue, shape: Sequence[int]) -> bool:
    return isinstance(value.type, VectorAttr) and tuple(value.type.sizes) == tuple(shape)
