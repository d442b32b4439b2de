"""What rows a kernel has: whole ones that many threads fold, with how many neighbours each, and plain ones of bf16."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.types import VectorAttr
from tessera.types.dtype import bf16

OF_ROWS = frozenset(
    f"ttile.{name}"
    for names in (
        ("for", "load", "store", "elementwise", "cast", "select", "constant", "broadcast", "reduce", "yield", "return"),
        ("index", "program_id", "coordinate", "round", "bitcast"),
    )
    for name in names
)
"""Ops of a kernel whose rows registers may hold as they lie in memory."""
FEW = frozenset(
    ("add", "sub", "mul", "div", "fma", "neg", "abs", "max", "min", "relu", "exp", "eq", "ne", "lt", "le", "gt", "ge")
)
"""Functions that take few instructions, so that many of them written out are still compiled soon."""


def has_plain_rows(kernel: SpecOp) -> bool:
    """Whether rows are of bf16, which need half a register, move by matrices, and nothing else is kept of them."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]
    types = [op.results[0].type for op in ops if op.name == "ttile.load"]
    is_narrow = all(isinstance(type, TileAttr) and type.dtype is bf16 for type in types) and _has_one_row(ops)
    is_known = {op.name for op in ops} <= OF_ROWS and all(map(is_soon_written, ops))
    return is_narrow and is_known


def _has_one_row(ops: Sequence[SpecOp]) -> bool:
    """Whether a program reads rows of one argument alone: registers hold no more."""
    buffers = {op.operands[0] for op in ops if op.name == "ttile.load"}
    return sum(isinstance(one.type, BufferAttr) and len(one.type.shape) > 1 for one in buffers) <= 1


def is_soon_written(op: SpecOp) -> bool:
    """Whether an op on each element of a row is a few instructions: a function of `FEW`, of no wide dtype."""
    type = op.results[0].type if op.results else None
    if not isinstance(type, TileAttr) or prod(dim.value or 1 for dim in type.shape) == 1:
        return True
    return type.dtype.bytes <= 4 and (op.name != "ttile.elementwise" or op.value("fn") in FEW)


def folds_whole_rows(kernel: SpecOp, size: int) -> bool:
    """Whether the largest tiles are single rows, which are folded."""
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name in ("ttile.reduce", "ttile.arg_reduce"):
            type = op.operands[0].type
            assert isinstance(type, TileAttr)
            sizes = [dim.value or 1 for dim in type.shape]
            if sizes[op.value("axis")] == prod(sizes) == size:
                return True
    return False


def neighbours_of_rows(kernel: SpecOp) -> int:
    """Neighbours of a thread where whole rows are folded: 4 bytes, since all others are joined without an exchange."""
    folds = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name.startswith("ttarget.reduce")]
    threads, found = kernel.value("threads"), 8
    for op in folds:
        type = op.operands[0].type
        assert isinstance(type, VectorAttr)
        sizes = [dim.value or 1 for dim in type.shape]
        if threads > WARP and sizes[op.value("axis")] == prod(sizes) >= 4 * threads:
            found = max(1, 4 // min(_item_bytes(kernel), default=4))
    return found


def _item_bytes(kernel: SpecOp) -> list[int]:
    """Bytes of the elements that a kernel reads."""
    types = [op.results[0].type for op in kernel.walk() if op.name == "ttarget.load"]
    return [type.dtype.bytes for type in types if isinstance(type, VectorAttr)]
