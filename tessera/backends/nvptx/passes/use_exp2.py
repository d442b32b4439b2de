"""Make each `exp` of a softmax an `exp2`, with the factor of the scores inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tessera.backends.nvptx.mma.fit import kernels_on_units
from tessera.backends.nvptx.tensor_cores import WGMMA
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.typed_ops import BroadcastOp, CastOp, ClipOp, ConstantOp, ElementwiseOp, ReduceOp
from tessera.types.dtype import f32
from tessera.types.frozen import frozen

_LOG2E = math.log2(math.e)


class UseExp2(Pass):
    """`exp(s * c - t)`, rounded to 2 bytes for a dot, as one multiply-add and an `exp2`.

    Before: `%s = ttile.elementwise %x, %c {fn = "mul"}`, its rows' maxima `%t`, `exp` of `%s` less `%t`, and a cast of
    it to bf16. After: maxima of `%x`, which are scaled by themselves, and `exp2` of `fma(%x, %c', %t')`. A maximum of
    scaled numbers is the scaled maximum, to the last bit; `exp2` differs by what the rounding of `t * log2(e)`
    moves, `t` ulp of f32, and `exp` of numbers less the same `t` is computed with the same one.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            if units is WGMMA:
                use_exp2(kernel)


def find_narrowed_exps(kernel: SpecOp) -> list[ElementwiseOp]:
    """The `exp` of a kernel that this is about."""
    return [op for op in kernel.walk() if isinstance(op, ElementwiseOp) and _is_narrowed(op)]


def use_exp2(kernel: SpecOp) -> None:
    """Do it to one kernel."""
    exps = find_narrowed_exps(kernel)
    if not exps:
        return
    for op in list(kernel.walk()):
        if isinstance(op, ReduceOp | ClipOp) and _is_monotone(op):
            _sink(op)
    lowered: dict[SSAValue, SSAValue] = {}
    for op in exps:
        _rewrite_as_exp2(op, lowered)
    for op in list(kernel.walk()):
        shifted = _find_shifted(op) if isinstance(op, ElementwiseOp) else None
        if isinstance(op, ElementwiseOp) and shifted is not None and shifted.by in lowered:
            _rewrite_as_exp2(op, lowered)


@frozen
class _Shifted:
    """`exp(value - by)`; `is_broadcast` where `by` is one number for each row of it."""

    value: SSAValue
    by: SSAValue
    is_broadcast: bool


def _operands(value: SSAValue, fn: str) -> Sequence[SSAValue]:
    """What a value is a function of; nothing, where it is none of that function."""
    op = value.owner
    return op.operands if isinstance(op, ElementwiseOp) and op.fn == fn else ()


def _type(value: SSAValue) -> TileAttr:
    assert isinstance(value.type, TileAttr)
    return value.type


def _find_shifted(op: ElementwiseOp) -> _Shifted | None:
    """An `exp` of a difference, in f32."""
    parts = _operands(op.tiles[0], "sub")
    if op.fn != "exp" or _type(op.result).dtype is not f32 or not parts:
        return None
    value, by = parts
    source = by.owner
    if not isinstance(source, BroadcastOp) or source.axes != (0,):
        return _Shifted(value, by, is_broadcast=False)
    is_rows = len(_type(source.tile).shape) == 1
    return _Shifted(value, source.tile, is_broadcast=True) if is_rows else None


def _is_narrowed(op: ElementwiseOp) -> bool:
    """Whether a tile of `exp` is rounded to 2 bytes, and otherwise only summed up."""
    users, shifted = [use.operation for use in op.result.uses], _find_shifted(op)
    casts = [user for user in users if isinstance(user, CastOp) and _type(user.result).dtype.bytes == 2]
    sums = [user for user in users if isinstance(user, ReduceOp) and user.kind == "sum"]
    is_all = len(casts) + len(sums) == len(users)
    return shifted is not None and shifted.is_broadcast and bool(casts) and is_all


def _find_scaled(value: SSAValue) -> tuple[SSAValue, float] | None:
    """A value as another one times a positive number."""
    parts = _operands(value, "mul")
    for tile, factor in zip(parts, reversed(parts), strict=True):
        number = factor.owner.value("value") if isinstance(factor.owner, ConstantOp) else None
        if isinstance(number, float) and 0.0 < number < math.inf:
            return tile, number
    return None


def _is_monotone(op: ReduceOp | ClipOp) -> bool:
    """Whether scaling before an op is scaling after it: the largest, the smallest, and what is cut off at infinity."""
    is_kept = op.kind in ("max", "min") if isinstance(op, ReduceOp) else math.isinf(op.identity)
    return is_kept and _type(op.result).dtype is f32


def _sink(op: ReduceOp | ClipOp) -> None:
    """Scale after an op what was scaled before it."""
    found = _find_scaled(op.tile)
    if found is None:
        return
    before, readers = op.tile, list(op.result.uses)
    op.operands[0] = found[0]
    made = _scale_by(_after(op.result), op.result, found[1])
    for use in readers:
        use.operation.operands[use.index] = made
    _drop(before)


def _drop(value: SSAValue) -> None:
    """Take away what nobody reads any more."""
    op = value.owner
    if isinstance(op, ElementwiseOp | ConstantOp | BroadcastOp) and not list(value.uses):
        operands = list(op.operands)
        Rewriter.erase_op(op)
        for operand in operands:
            _drop(operand)


def _after(value: SSAValue) -> Operation:
    """The op before which new ones stand where a value has just been made."""
    found = value.owner.first_op if isinstance(value.owner, Block) else value.owner.next_op
    assert found is not None
    return found


def _insert(at: Operation, name: str, operands: list[SSAValue], type: TileAttr, **values: Any) -> SSAValue:
    """A new op before another one."""
    made = make(DIALECT[name], operands, values, types=[type], span=at.span if isinstance(at, SpecOp) else None)
    Rewriter.insert_op(made, InsertPoint.before(at))
    return made.result


def _scale_by(at: Operation, value: SSAValue, factor: float) -> SSAValue:
    type = _type(value)
    return _insert(at, "elementwise", [value, _insert(at, "constant", [], type, value=factor)], type, fn="mul")


def _rewrite_as_exp2(op: ElementwiseOp, lowered: dict[SSAValue, SSAValue]) -> None:
    """`exp(x * c - t)` as `exp2(fma(x, c log2(e), -t log2(e)))`."""
    shifted = _find_shifted(op)
    assert shifted is not None
    type = _type(op.result)
    value, factor = _find_scaled(shifted.value) or (shifted.value, 1.0)
    if shifted.by not in lowered:
        early = _after(shifted.by)
        base = _scale_by(early, shifted.by, _LOG2E)
        lowered[shifted.by] = _insert(early, "elementwise", [base], _type(base), fn="neg")
    offset = lowered[shifted.by]
    if shifted.is_broadcast:
        offset = _insert(op, "broadcast", [offset], type, axes=(0,))
    scale = _insert(op, "constant", [], type, value=factor * _LOG2E)
    inner = _insert(op, "elementwise", [value, scale, offset], type, fn="fma")
    difference = op.tiles[0]
    Rewriter.replace_op(op, [], [_insert(op, "elementwise", [inner], type, fn="exp2")])
    _drop(difference)
