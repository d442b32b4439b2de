"""Matrix products: the packed, register-blocked loop nest as one op, its epilogue as a region."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import INDEX, BufferAttr
from tessera.ir.target.types import VectorAttr


def _check_gemm(op: SpecOp) -> None:
    block = op.regions[0].block
    count = len(op.value("batch"))
    types = [argument.type for argument in block.args]
    if types[:-1] != [INDEX] * (count + 2) or not isinstance(types[-1], VectorAttr):
        op.fail(f"the epilogue takes {count} batch indices, a row, a column and accumulators, got {types}")
    sides = (op.value("lhs_dtype"), op.value("rhs_dtype"))
    accumulator = types[-1].dtype
    if sides[0] != sides[1] or (accumulator.is_float and accumulator.bits < 32):
        op.fail(f"a product of {sides[0]} by {sides[1]} cannot accumulate in {accumulator}")


def _check_block_dot(op: SpecOp) -> None:
    for value in op.operands[:4]:
        if not isinstance(value.type, BufferAttr):
            op.fail(f"`ttarget.block_dot` works on buffers, got {value.type}")
    if len(op.operands) - 4 != len(op.value("names")):
        op.fail(f"`{op.name}` names {len(op.value('names'))} indices and has {len(op.operands) - 4}")
    for side, axes in (("lhs", ("_row", "_depth")), ("rhs", ("_depth", "_col"))):
        offset = op.value(f"{side}_offset")
        rows = offset.coefficient(axes[0])
        if rows is None or rows[1].coefficient(axes[1]) is None:
            op.fail(f"the offset {offset} of {side} is not linear in {axes[0]} and {axes[1]}")


SPECS = (
    OpSpec(
        name="ttarget.gemm",
        summary=(
            "This task's share of `out[batch, m, n] = epilogue(sum over k of lhs * rhs)`: operands packed in panels, "
            "blocks of accumulators in registers, each element one chain of multiply-adds over k in order."
        ),
        operands=("lhs", "rhs"),
        results=(),
        attributes=(
            Attribute("batch", "dims", doc="extents of the batch dims"),
            Attribute("m", "dim", doc="rows"),
            Attribute("n", "dim", doc="columns"),
            Attribute("k", "dim", doc="depth"),
            Attribute("lhs_offset", "dim", doc="over _b0.., _m, _k: elements from the start"),
            Attribute("rhs_offset", "dim", doc="over _b0.., _k, _n: elements from the start"),
            Attribute("lhs_windows", "dims", (), "expression, extent, ...: outside reads zero"),
            Attribute("rhs_windows", "dims", (), "expression, extent, ...: outside reads zero"),
            Attribute("lhs_dtype", "dtype", doc="what is stored"),
            Attribute("rhs_dtype", "dtype", doc="what is stored"),
        ),
        regions=("epilogue",),
        effects=frozenset(["memory"]),
        verify=_check_gemm,
    ),
    OpSpec(
        name="ttarget.block_dot",
        summary=(
            "`out[i, j] += sum over k of lhs[i, k] * rhs[k, j]` on blocks in memory, for i < m, j < n: both operands "
            "packed in panels, each element one chain of multiply-adds over k in order. `room` is where panels go."
        ),
        operands=("lhs", "rhs", "out", "room", "at*"),
        results=(),
        attributes=(
            Attribute("names", "strs", doc="the name of each index operand"),
            Attribute("m", "dim", doc="rows"),
            Attribute("n", "dim", doc="columns"),
            Attribute("k", "dim", doc="depth"),
            Attribute("rows", "int", doc="the most rows there can be"),
            Attribute("depth", "int", doc="the greatest depth there can be"),
            Attribute("lhs_offset", "dim", doc="over _row, _depth and names: elements from the start"),
            Attribute("rhs_offset", "dim", doc="over _depth, _col and names: elements from the start"),
            Attribute("out_stride", "int", doc="elements between rows of out"),
            Attribute("is_fresh", "bool", False, "whether out begins as zero, whatever it holds"),
        ),
        effects=frozenset(["memory"]),
        verify=_check_block_dot,
    ),
)
