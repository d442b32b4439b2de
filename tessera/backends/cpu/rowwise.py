"""Whether a kernel works on its blocks row by row, so that they may live in scratch instead of in registers."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr

_BY_ROW = {
    *("ttile.kernel", "ttile.return", "ttile.yield", "ttile.for", "ttile.program_id", "ttile.index", "ttile.fetch"),
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.load", "ttile.store", "ttile.broadcast", "ttile.reduce", "ttile.arg_reduce"),
}


def is_rowwise(kernel: SpecOp) -> bool:
    """Whether all tiles of two axes have as many rows, and no op looks at two rows at once.

    Tiles of one axis are then columns, a number for each row, or lines that are spread down a block.
    """
    if kernel.value("schedule") is None:
        return False  # made by the compiler, with tiles that fit registers
    rows: set[int] = set()
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name not in _BY_ROW:
            return False
        values = [*op.operands, *op.results]
        rows |= {_rows(value) for value in values if _rank(value) == 2}
        if any(_rank(value) > 2 for value in values) or not _keeps_rows(op):
            return False
    return len(rows) == 1 and _stores_rows(kernel, rows.pop())


def _keeps_rows(op: SpecOp) -> bool:
    """Whether the ranks that an op takes and gives can be seen row by row."""
    if op.name in ("ttile.reduce", "ttile.arg_reduce"):
        return _rank(op.operands[0]) == 2 and op.value("axis") == 1
    if op.name == "ttile.broadcast":
        return _rank(op.results[0]) == 2 and (_rank(op.operands[0]) == 0 or op.value("axes") in ((0,), (1,)))
    if op.name == "ttile.for":
        return all(_rank(value) != 0 for value in op.operands[2:])
    return True


def _stores_rows(kernel: SpecOp, rows: int) -> bool:
    """Whether every store writes something for each row, and blocks are loaded at the same rows."""
    stores = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.store"]
    edges = {(op.value("axes")[:1], op.value("bounds")[:1]) for op in stores}
    loads = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.load"]
    edges |= {(op.value("axes")[:1], op.value("bounds")[:1]) for op in loads if _rank(op.results[0]) == 2}
    return len(edges) == 1 and all(_rank(op.operands[0]) >= 1 and _rows(op.operands[0]) == rows for op in stores)


def _rank(value: SSAValue) -> int:
    return len(value.type.shape) if isinstance(value.type, TileAttr) else -1


def _rows(value: SSAValue) -> int:
    assert isinstance(value.type, TileAttr)
    return value.type.shape[0].value or 0
