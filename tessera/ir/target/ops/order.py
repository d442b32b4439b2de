"""Memory that says where to go, and memory put in order."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, IndexAttr
from tessera.ir.target.scope import check_symbols, check_written


def _check_fetch(op: SpecOp) -> None:
    buffer = op.operands[0].type
    if not isinstance(buffer, BufferAttr) or not buffer.dtype.is_integer:
        op.fail(f"`ttarget.fetch` reads a buffer of integers, got {buffer}")
    indices = [value for value in op.operands[1:] if isinstance(value.type, IndexAttr)]
    if len(op.operands) - 1 != len(op.value("coords")) or len(indices) != len(op.operands) - 1:
        op.fail(f"`ttarget.fetch` names {len(op.value('coords'))} indices and has {len(indices)}")
    check_symbols(op, "the offset", [op.value("offset")], op.value("coords"))


def _check_sort(op: SpecOp) -> None:
    *lines, count = (operand.type for operand in op.operands)
    dtypes = [line.dtype for line in lines if isinstance(line, BufferAttr)]
    if len(dtypes) != 4 or not isinstance(count, IndexAttr):
        op.fail("`ttarget.sort` takes four buffers and a count")
    if dtypes[:2] != dtypes[2:] or dtypes[1].name != "i64":
        op.fail(f"keys have spare memory of their own dtype, and places are i64, got {', '.join(map(str, dtypes))}")
    for line in op.operands[:4]:
        check_written(op, line)


SPECS = (
    OpSpec(
        name="ttarget.fetch",
        summary="One integer of a buffer, in 64 bits.",
        operands=("buffer", "at*"),
        results=("index",),
        attributes=(
            Attribute("coords", "strs", doc="the name of each index operand"),
            Attribute("offset", "dim", doc="elements from the start of the buffer"),
        ),
        effects=frozenset(["memory"]),
        verify=_check_fetch,
    ),
    OpSpec(
        name="ttarget.sort",
        summary="A stable merge sort of `count` keys with their places; NaN goes last.",
        operands=("keys", "places", "spare_keys", "spare_places", "count"),
        results=(),
        attributes=(Attribute("descending", "bool", False, "largest first"),),
        effects=frozenset(["memory"]),
        verify=_check_sort,
    ),
)
