"""Sorting memory: keys, and with them the indices they came from."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, IndexAttr
from tessera.ir.tile.ops.access import is_shared


def _check_sort(op: SpecOp) -> None:
    *buffers, count = (operand.type for operand in op.operands)
    lines = [type for type in buffers if isinstance(type, BufferAttr) and len(type.shape) == 1]
    if len(lines) != 4 or not isinstance(count, IndexAttr):
        op.fail(f"`ttile.sort` takes four buffers of rank 1 and a count, got {[str(type) for type in buffers]}")
    if any(is_shared(operand) for operand in op.operands):
        op.fail("`ttile.sort` works in the memory of one worker", "give it private scratch")
    keys, indices, spare_keys, spare_indices = lines
    if keys.dtype.is_bool or keys.dtype.compute != keys.dtype:
        op.fail(f"`ttile.sort` does not compare {keys.dtype}", f"cast the keys to {keys.dtype.compute} first")
    if indices.dtype.name != "i64":
        op.fail(f"indices are i64, got {indices.dtype}")
    if spare_keys.dtype != keys.dtype or spare_indices.dtype != indices.dtype:
        op.fail(f"spare memory is of {keys.dtype} and i64, got {spare_keys.dtype} and {spare_indices.dtype}")


SPECS = (
    OpSpec(
        name="ttile.sort",
        summary="The first `count` keys in order, their indices moved along; equal keys stay in order, NaN goes last.",
        operands=("keys", "indices", "spare_keys", "spare_indices", "count"),
        results=(),
        attributes=(Attribute("descending", "bool", False, "largest first; NaN is last all the same"),),
        effects=frozenset(["memory"]),
        verify=_check_sort,
    ),
)
