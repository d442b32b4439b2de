"""Row sums of fragments in loops: each thread keeps a partial sum until the end."""

from __future__ import annotations

from tessera.backends.nvptx.types import FragmentAttr, PartialRowsAttr, RowVectorAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.types import ShapedAttr


def _check_rows(op: SpecOp, fragment: object, rows: object) -> None:
    """A number for each row of a fragment, in its dtype."""
    if not isinstance(fragment, FragmentAttr) or not isinstance(rows, ShapedAttr):
        op.fail(f"`{op.name}` takes a fragment and a number for each of its rows, got {fragment} and {rows}")
    if rows.data != fragment.data.with_shape(fragment.shape[:1]):
        op.fail(f"`{op.name}` takes a number for each row of {fragment}, got {rows}")


def _check_partial(op: SpecOp) -> None:
    type = op.results[0].type
    if not isinstance(type, PartialRowsAttr) or len(type.shape) != 1 or not type.dtype.is_float:
        op.fail(f"`{op.name}` gives a float for each row, got {type}")


def _check_grow(op: SpecOp) -> None:
    partial, factor, fragment = (value.type for value in op.operands)
    _check_rows(op, fragment, factor)
    _check_rows(op, fragment, partial)
    if not isinstance(partial, PartialRowsAttr) or not isinstance(factor, RowVectorAttr):
        op.fail(f"`{op.name}` scales sums of threads by a number for each row, got {partial} and {factor}")
    if op.results[0].type != partial:
        op.fail(f"`{op.name}` of {partial} does not give {op.results[0].type}")


def _check_join(op: SpecOp) -> None:
    partial, rows = op.operands[0].type, op.results[0].type
    if not isinstance(partial, PartialRowsAttr) or rows != RowVectorAttr.of(partial.data):
        op.fail(f"`{op.name}` joins sums of threads to one for each row, got {partial} to {rows}")


SPECS = (
    OpSpec(
        name="ttarget.partial_rows",
        summary="Row sums of 0: each thread has its own, of the columns that it holds.",
        results=("partial",),
        verify=_check_partial,
    ),
    OpSpec(
        name="ttarget.grow_rows",
        summary="Each thread's sums times a number for each row, and the columns of a fragment that it holds added.",
        operands=("partial", "factor", "fragment"),
        results=("partial",),
        verify=_check_grow,
    ),
    OpSpec(
        name="ttarget.join_rows",
        summary="The sums of the four threads of a row as one number, which all of them have.",
        operands=("partial",),
        results=("rows",),
        verify=_check_join,
    ),
)
