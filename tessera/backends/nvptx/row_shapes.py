"""Whole rows that many threads fold: how many threads that are, and how many neighbours each has."""

from __future__ import annotations

from math import prod

from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.target.types import VectorAttr


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
    folds = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name.startswith("ttarget.fold")]
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
