"""Expand softmax and attention of tiles into the ops that backends know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.interpret import attend, softmax
from tessera.types.dtype import bool_
from tessera.types.promotion import rounding_of

NAMES = ("ttile.softmax", "ttile.attend")


class ExpandSoftmax(Pass):
    """Put the steps of a recipe in the place of the op that stands for them.

    Before: `%y = ttile.softmax %x`. After: `reduce` to maxima, `exp` of the rows less them, `reduce` to sums, `div`.
    """

    def run(self, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, SpecOp) and op.name in NAMES:
                _expand(op)


def _expand(op: SpecOp) -> None:
    steps = _Emitted(op)
    if op.name == "ttile.softmax":
        made = (softmax(steps, op.operands[0], op.value("eps")),)
    else:
        made = attend(steps, *op.operands)
    for old, new in zip(op.results, made, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()


class _Emitted:
    """Steps as ops before another one."""

    def __init__(self, at: SpecOp) -> None:
        self.at = at

    def fn(self, name: str, *tiles: SSAValue) -> SSAValue:
        type = _type(tiles[0])
        made = TileAttr.of(type.data.with_dtype(bool_)) if SCALAR_FUNCTIONS[name].is_predicate else type
        return self._emit("elementwise", list(tiles), {"fn": name}, made)

    def rows(self, kind: str, tile: SSAValue) -> SSAValue:
        type = _type(tile)
        return self._emit(
            "reduce", [tile], {"kind": kind, "axis": 1}, TileAttr.of(type.data.with_shape(type.shape[:1]))
        )

    def broadcast(self, column: SSAValue, like: SSAValue) -> SSAValue:
        type = TileAttr.of(_type(column).data.with_shape(_type(like).shape))
        return self._emit("broadcast", [column], {"axes": (0,)}, type)

    def full(self, value: float, like: SSAValue) -> SSAValue:
        return self._emit("constant", [], {"value": value}, _type(like))

    def choose(self, flags: SSAValue, yes: SSAValue, no: SSAValue) -> SSAValue:
        return self._emit("select", [flags, yes, no], {}, _type(no))

    def narrow_to(self, tile: SSAValue, like: SSAValue) -> SSAValue:
        old, new = _type(tile), _type(like).dtype
        if old.dtype is new:
            return tile
        rounding = {"rounding": rounding_of(old.dtype, new)}
        return self._emit("cast", [tile], rounding, TileAttr.of(old.data.with_dtype(new)))

    def dot(self, lhs: SSAValue, rhs: SSAValue, acc: SSAValue) -> SSAValue:
        return self._emit("dot", [lhs, rhs, acc], {}, _type(acc))

    def _emit(self, name: str, operands: list[SSAValue], values: Mapping[str, Any], type: TileAttr) -> SSAValue:
        made = make(DIALECT[name], operands, values, types=[type], span=self.at.span)
        block = self.at.parent_block()
        assert block is not None
        block.insert_op_before(made, self.at)
        return made.results[0]


def _type(value: SSAValue) -> TileAttr:
    assert isinstance(value.type, TileAttr)
    return value.type
