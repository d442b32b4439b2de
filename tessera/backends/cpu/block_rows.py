"""Which rows of its blocks a kernel with products computes: those that all of its stores keep to."""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.types.dim import Dim, minimum
from tessera.types.frozen import frozen


@frozen
class Rows:
    """The rows of a block: its height, and where the block starts and its rows end, if they do before its height."""

    height: Dim
    axis: str = ""
    start: SSAValue | None = None
    bound: Dim | None = None

    @property
    def extent(self) -> Dim:
        """How many rows there are, over the name of the axis for where the block starts."""
        return self.height if self.bound is None else minimum(self.height, self.bound - Dim.symbol(self.axis))

    @property
    def coords(self) -> dict[str, SSAValue]:
        """What the names in the extent stand for."""
        return {} if self.start is None else {self.axis: self.start}

    def is_same(self, other: Rows) -> bool:
        """Whether these are the same rows, by whatever index they start."""
        return self.height == other.height and self.bound == other.bound and is_same_index(self.start, other.start)


def rows_of(kernel: SpecOp) -> Rows:
    """The rows of a kernel's blocks; raises TargetVerifyError where its stores keep to different ones."""
    found: Rows | None = None
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name != "ttile.store":
            continue
        rows = _rows(op)
        if rows is None or (found is not None and not found.is_same(rows)):
            raise TargetVerifyError(
                "all stores of a kernel that multiplies tiles keep to the same rows on CPUs",
                span=op.span,
                notes=() if found is None else (f"another store has {found.extent} rows",),
                fix="store what has other rows in a kernel of its own",
            )
        found = found or rows
    return found or Rows(Dim.constant(1))


def _rows(store: SpecOp) -> Rows | None:
    tile = store.operands[0].type
    assert isinstance(tile, TileAttr)
    if not tile.shape:
        return None
    axis, bound = store.value("axes")[0], store.value("bounds")[0]
    if bound.value == -1:
        return Rows(tile.shape[0])
    coords = dict(zip(store.value("coords"), store.operands[2:], strict=False))
    return Rows(tile.shape[0], axis, coords[axis], bound)


def is_same_index(left: SSAValue | None, right: SSAValue | None) -> bool:
    """Whether two indices are one, or computed in the same way from the same."""
    if left is right:
        return True
    if not isinstance(left, OpResult) or not isinstance(right, OpResult):
        return False
    one, other = left.op, right.op
    if not isinstance(one, SpecOp) or not isinstance(other, SpecOp) or one.name != other.name:
        return False
    if one.name not in ("ttile.index", "ttile.program_id") or one.values() != other.values():
        return False
    return all(is_same_index(a, b) for a, b in zip(one.operands, other.operands, strict=True))
