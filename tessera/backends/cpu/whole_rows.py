"""Rows found by number: an index that is one for a whole tile is read once, and the tile then lies together."""

from __future__ import annotations

from collections.abc import Container

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr

_KINDS = ("map", "row")
"""Kernels that the schedule makes: a tile of theirs has an element inside, so that its index is there to be read."""


def row_numbers(kernel: SpecOp) -> set[SSAValue]:
    """Index tiles that are one number from end to end, and that all who use them take for nothing else."""
    if kernel.value("kind") not in _KINDS:
        return set()
    loads = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.load"]
    found = {op.result: _users(op) for op in loads if _is_one_number(op)}
    while True:
        # One reader's tiles are all numbers or all tiles: who loses one loses the others.
        kept = {tile: users for tile, users in found.items() if all(_finds_rows(user, tile, found) for user in users)}
        if len(kept) == len(found):
            return set(kept)
        found = kept


def _users(op: SpecOp) -> list[SpecOp]:
    return [use.operation for use in op.result.uses if isinstance(use.operation, SpecOp)]


def _is_one_number(op: SpecOp) -> bool:
    """Whether an integer is read at a place that no axis of the tile reaches."""
    axes, coords = set(op.value("axes")), op.value("coords")
    is_plain = len(op.operands) == 1 + len(coords) and not op.value("windows")
    reached = set[str]().union(*(expr.symbols for expr in op.value("map")))
    type = op.result.type
    is_integer = isinstance(type, TileAttr) and type.dtype.is_integer and type.dtype.bits >= 8
    return bool(axes) and is_plain and is_integer and not reached & axes


def _finds_rows(reader: SpecOp, tile: SSAValue, numbers: Container[SSAValue]) -> bool:
    """Whether a load takes a tile as an index only, and reads nothing where that one would not have been read."""
    if reader.name != "ttile.load" or not isinstance(tile.owner, SpecOp):
        return False
    tiles = reader.operands[1 + len(reader.value("coords")) :]
    return all(other in numbers for other in tiles) and _edges(tile.owner) <= _edges(reader)


def _edges(op: SpecOp) -> set[tuple[SSAValue, object]]:
    where = dict(zip(op.value("coords"), op.operands[1:], strict=False))
    edges = zip(op.value("axes"), op.value("bounds"), strict=True)
    return {(where[axis], bound) for axis, bound in edges if bound.value != -1}
