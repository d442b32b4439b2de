"""Make powers of what a softmax computes powers of two, with the factor of the scores inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tessera.backends.nvptx.mma.fit import kernels_on_units
from tessera.backends.nvptx.tensor_cores import WGMMA
from tessera.diagnostics.error import Span
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.types.dtype import f32
from tessera.types.frozen import frozen

_LOG2E = math.log2(math.e)


class UseExp2(Pass):
    """`exp(s * c - t)`, rounded to 2 bytes for a product, as one multiply-add and a power of two.

    Before: `%s = ttile.elementwise %x, %c {fn = "mul"}`, its rows' maxima `%t`, `exp` of `%s` less `%t`, and a cast of
    it to bf16. After: maxima of `%x`, which are scaled by themselves, and `exp2` of `fma(%x, %c', %t')`. A maximum of
    scaled numbers is the scaled maximum, to the last bit; powers differ by what the rounding of `t * log2(e)` moves,
    `t` units of the last place of f32, and `exp` of numbers less the same `t` is computed with the same one.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            if units is WGMMA:
                use_exp2(kernel)


def find_narrowed_exps(kernel: SpecOp) -> list[SpecOp]:
    """The powers of a kernel that this is about."""
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and _find_shifted(op) is not None and _is_narrowed(op)]


def use_exp2(kernel: SpecOp) -> None:
    """Do it to one kernel."""
    powers = find_narrowed_exps(kernel)
    if not powers:
        return
    for op in list(kernel.walk()):
        if isinstance(op, SpecOp) and _is_monotone(op):
            _sink(op)
    lowered: dict[SSAValue, SSAValue] = {}
    for op in powers:
        _rewrite_as_exp2(op, lowered)
    for op in list(kernel.walk()):
        shifted = _find_shifted(op) if isinstance(op, SpecOp) else None
        if isinstance(op, SpecOp) and shifted is not None and shifted.by in lowered:
            _rewrite_as_exp2(op, lowered)


@frozen
class _Shifted:
    """`exp(value - by)`; `is_broadcast` where `by` is one number for each row of it."""

    value: SSAValue
    by: SSAValue
    is_broadcast: bool


def _maker(value: SSAValue, name: str) -> SpecOp | None:
    """The op of a name that a value is made by."""
    op = value.op if isinstance(value, OpResult) else None
    return op if isinstance(op, SpecOp) and op.name == name else None


def _operands(value: SSAValue, fn: str) -> Sequence[SSAValue]:
    """What a value is a function of; nothing, where it is none of that function."""
    op = _maker(value, "ttile.elementwise")
    return op.operands if op is not None and op.value("fn") == fn else ()


def _type(value: SSAValue) -> TileAttr:
    assert isinstance(value.type, TileAttr)
    return value.type


def _find_shifted(op: SpecOp) -> _Shifted | None:
    """An `exp` of a difference, in f32."""
    if op.name != "ttile.elementwise" or op.value("fn") != "exp" or _type(op.result).dtype is not f32:
        return None
    parts = _operands(op.operands[0], "sub")
    if not parts:
        return None
    value, by = parts
    source = _maker(by, "ttile.broadcast")
    if source is None or source.value("axes") != (0,):
        return _Shifted(value, by, is_broadcast=False)
    is_rows = len(_type(source.operands[0]).shape) == 1
    return _Shifted(value, source.operands[0], is_broadcast=True) if is_rows else None


def _is_narrowed(op: SpecOp) -> bool:
    """Whether a tile of powers is rounded to 2 bytes, and otherwise only summed up."""
    users = [use.operation for use in op.result.uses]
    casts = [user for user in users if user.name == "ttile.cast" and _type(user.results[0]).dtype.bytes == 2]
    sums = [user for user in users if isinstance(user, SpecOp) and user.name == "ttile.reduce"]
    shifted = _find_shifted(op)
    is_all = len(casts) + len(sums) == len(users) and all(user.value("kind") == "sum" for user in sums)
    return shifted is not None and shifted.is_broadcast and bool(casts) and is_all


def _find_scaled(value: SSAValue) -> tuple[SSAValue, float] | None:
    """A value as another one times a positive number."""
    parts = _operands(value, "mul")
    for tile, factor in zip(parts, reversed(parts), strict=True):
        constant = _maker(factor, "ttile.constant")
        number = None if constant is None else constant.value("value")
        if isinstance(number, float) and 0.0 < number < math.inf:
            return tile, number
    return None


def _is_monotone(op: SpecOp) -> bool:
    """Whether scaling before an op is scaling after it: the largest, the smallest, and what is cut off at infinity."""
    if op.name == "ttile.reduce":
        return op.value("kind") in ("max", "min") and _type(op.result).dtype is f32
    return op.name == "ttile.clip" and _type(op.result).dtype is f32 and math.isinf(op.value("identity"))


def _sink(op: SpecOp) -> None:
    """Scale after an op what was scaled before it."""
    found = _find_scaled(op.operands[0])
    if found is None:
        return
    before, readers = op.operands[0], list(op.result.uses)
    op.operands[0] = found[0]
    made = _scale_by(_writer_after(op.result, op.span), op.result, found[1])
    for use in readers:
        use.operation.operands[use.index] = made
    _drop(before)


_DROPPED = ("ttile.elementwise", "ttile.constant", "ttile.broadcast")


def _drop(value: SSAValue) -> None:
    """Take away what nobody reads any more."""
    op = value.owner
    if isinstance(op, SpecOp) and op.name in _DROPPED and not list(value.uses):
        operands = list(op.operands)
        op.detach()
        op.erase()
        for operand in operands:
            _drop(operand)


class _Writer:
    """New ops before another one."""

    def __init__(self, block: Block, at: Operation | None, span: Span | None) -> None:
        self.block, self.at, self.span = block, at, span

    def emit(self, name: str, operands: list[SSAValue], values: Mapping[str, Any], type: TileAttr) -> SSAValue:
        made = make(DIALECT[name], operands, values, types=[type], span=self.span)
        assert self.at is not None
        self.block.insert_op_before(made, self.at)
        return made.results[0]

    def full(self, value: float, type: TileAttr) -> SSAValue:
        return self.emit("constant", [], {"value": value}, type)


def _writer_after(value: SSAValue, span: Span | None) -> _Writer:
    """New ops where a value has just been made."""
    if isinstance(value, OpResult):
        assert value.op.parent is not None
        return _Writer(value.op.parent, value.op.next_op, span)
    assert isinstance(value.owner, Block)
    return _Writer(value.owner, value.owner.first_op, span)


def _scale_by(b: _Writer, value: SSAValue, factor: float) -> SSAValue:
    return b.emit("elementwise", [value, b.full(factor, _type(value))], {"fn": "mul"}, _type(value))


def _rewrite_as_exp2(op: SpecOp, lowered: dict[SSAValue, SSAValue]) -> None:
    """`exp(x * c - t)` as `exp2(fma(x, c log2(e), -t log2(e)))`."""
    shifted = _find_shifted(op)
    assert shifted is not None
    assert op.parent is not None
    b, type = _Writer(op.parent, op, op.span), _type(op.result)
    value, factor = _find_scaled(shifted.value) or (shifted.value, 1.0)
    if shifted.by not in lowered:
        early = _writer_after(shifted.by, op.span)
        base = _scale_by(early, shifted.by, _LOG2E)
        lowered[shifted.by] = early.emit("elementwise", [base], {"fn": "neg"}, _type(base))
    offset = lowered[shifted.by]
    if shifted.is_broadcast:
        offset = b.emit("broadcast", [offset], {"axes": (0,)}, type)
    inner = b.emit("elementwise", [value, b.full(factor * _LOG2E, type), offset], {"fn": "fma"}, type)
    made = b.emit("elementwise", [inner], {"fn": "exp2"}, type)
    op.result.replace_all_uses_with(made)
    difference = op.operands[0]
    op.detach()
    op.erase()
    _drop(difference)
