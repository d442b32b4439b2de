"""Dots and transposes expanded into loops over scratch, for kernels whose blocks are not computed row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.promotion import rounding_of
from tessera.types.tensor_type import TensorType

LARGEST = 1 << 14
"""Elements of a tile that is kept in registers; of a larger one there would be too much code."""
_ROW, _COLUMN, _STEP = "_r", "_c", "_s"


def can_expand(kernel: SpecOp) -> bool:
    """Whether all tiles of a kernel are small enough to be kept in registers."""
    sizes = [
        result.type.data.size.value or 0
        for op in kernel.walk()
        for result in op.results
        if isinstance(result.type, TileAttr)
    ]
    return max(sizes, default=0) <= LARGEST


def expand_dots(kernel: SpecOp) -> SpecOp:
    """The kernel with each dot a loop over K; every element is the same chain of multiply-adds."""
    copy = kernel.clone()
    for op in list(copy.walk()):
        if isinstance(op, SpecOp) and op.name == "ttile.dot":
            _Expansion(op).dot()
        elif isinstance(op, SpecOp) and op.name == "ttile.transpose":
            _Expansion(op).transpose()
    return copy


class _Expansion:
    """What replaces one op."""

    def __init__(self, op: SpecOp) -> None:
        self.op = op
        block = op.parent
        assert block is not None
        self.outer: Block = block
        self.zero = self.put("index", (), {"names": (), "expr": Dim.constant(0)}, [INDEX])

    def make(
        self, name: str, operands: Sequence[SSAValue], values: Mapping[str, Any], types: Sequence[Any] = ()
    ) -> SpecOp:
        return make(DIALECT[name], list(operands), values, types=types, span=self.op.span)

    def put(self, name: str, operands: Sequence[SSAValue], values: Mapping[str, Any], types: Sequence[Any]) -> Any:
        """An op before the one that is replaced; its result, if it has one."""
        made = self.make(name, operands, values, types)
        self.outer.insert_op_before(made, self.op)
        return made.results[0] if made.results else None

    def keep_in_scratch(self, tile: SSAValue, dtype: DType) -> SSAValue:
        """A tile in scratch, in a dtype."""
        assert isinstance(tile.type, TileAttr)
        type = tile.type.data
        if type.dtype is not dtype:
            wide = TileAttr.of(type.with_dtype(dtype))
            tile = self.put("cast", [tile], {"rounding": rounding_of(type.dtype, dtype)}, [wide])
        buffer = self.put("scratch", (), {"space": "private"}, [BufferAttr.of(type.with_dtype(dtype))])
        access = _access((_ROW, _COLUMN), (_ROW, _COLUMN), (_ROW, _COLUMN))
        self.put("store", [tile, buffer, self.zero, self.zero], {**access, "mode": "set"}, [])
        return buffer

    def transpose(self) -> None:
        (tile,), out = self.op.operands, self.op.results[0].type
        assert isinstance(out, TileAttr)
        buffer = self.keep_in_scratch(tile, out.dtype)
        access = _access((_ROW, _COLUMN), (_COLUMN, _ROW), (_ROW, _COLUMN))
        self._replace(self.put("load", [buffer, self.zero, self.zero], {**access, "pad": 0}, [out]))

    def dot(self) -> None:
        lhs, rhs, acc = self.op.operands
        assert isinstance(acc.type, TileAttr)
        assert isinstance(lhs.type, TileAttr)
        type, k = acc.type.data, lhs.type.shape[1]
        left, right = self.keep_in_scratch(lhs, type.dtype), self.keep_in_scratch(rhs, type.dtype)
        body = Block(arg_types=[INDEX, acc.type])
        step, accumulators = body.args
        column = self._load_line(body, left, [self.zero, step], (_ROW, _STEP), _ROW, type.with_shape(type.shape[:1]), 0)
        row = self._load_line(
            body, right, [step, self.zero], (_STEP, _COLUMN), _COLUMN, type.with_shape(type.shape[1:]), 1
        )
        joined = self.make("elementwise", [column, row, accumulators], {"fn": "fma"}, [acc.type])
        body.add_op(joined)
        body.add_op(self.make("yield", joined.results, {}))
        end = self.put("index", (), {"names": (), "expr": k}, [INDEX])
        loop = make(
            DIALECT["for"], [self.zero, end, acc], {"step": 1}, types=[acc.type], regions=[body], span=self.op.span
        )
        self.outer.insert_op_before(loop, self.op)
        self._replace(loop.results[0])

    def _load_line(
        self,
        body: Block,
        buffer: SSAValue,
        at: Sequence[SSAValue],
        coords: tuple[str, str],
        axis: str,
        type: TensorType,
        axis_index: int,
    ) -> SSAValue:
        """A column or row of scratch, broadcast over the block."""
        values = {**_access(coords, (axis,), coords), "pad": 0}
        line = self.make("load", [buffer, *at], values, [TileAttr.of(type)])
        wide = self.make("broadcast", line.results, {"axes": (axis_index,)}, [self.op.results[0].type])
        body.add_op(line)
        body.add_op(wide)
        return wide.results[0]

    def _replace(self, value: SSAValue) -> None:
        self.op.results[0].replace_all_uses_with(value)
        self.op.detach()
        self.op.erase()


def _access(coords: tuple[str, ...], axes: tuple[str, ...], map: tuple[str, ...]) -> dict[str, Any]:
    return {
        "coords": coords,
        "axes": axes,
        "map": tuple(Dim.symbol(name) for name in map),
        "bounds": tuple(Dim.constant(-1) for _ in axes),
    }
