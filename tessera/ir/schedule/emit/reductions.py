"""Folding along a loop: what a reduction carries, how a tile joins it, and how the lanes meet at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.tape import Record, Tape
from tessera.ir.tile.facets import Reduction
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim
from tessera.types.dtype import DType, i64
from tessera.types.frozen import frozen

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
_FAR = (1 << 63) - 1


def identity(kind: str, dtype: DType) -> Any:
    """What a fold of nothing gives."""
    if kind in ("sum", "any"):
        return False if dtype.is_bool else 0
    if kind in ("prod", "all"):
        return True if dtype.is_bool else 1
    highest = kind in ("min", "argmin")
    if dtype.is_float:
        return math.inf if highest else -math.inf
    if dtype.is_bool:
        return highest
    if dtype.kind == "uint":
        return (1 << dtype.bits) - 1 if highest else 0
    return (1 << (dtype.bits - 1)) - 1 if highest else -(1 << (dtype.bits - 1))


@frozen
class Fold:
    """One reduction of a pass: its lanes are a tile whose first axis is folded at the end."""

    tile: TileBuilder
    record: Record
    body: Tape
    lower: Reduction
    shape: tuple[int, ...]

    @property
    def is_place(self) -> bool:
        return self.lower.kind in ("argmax", "argmin")

    @property
    def width(self) -> int:
        """How many tiles are carried."""
        return len(self.dtypes)

    @property
    def dtype(self) -> DType:
        """What is accumulated in: the operand's compute dtype for an extreme, the result's for a sum."""
        if self.is_place or self.lower.kind in ("max", "min"):
            return self.body.types[self.record.operands[0]].dtype.compute
        if self._asked is not None:
            return self._asked.compute
        return self.body.types[self.record.results[0]].dtype.compute

    @property
    def _asked(self) -> DType | None:
        """The accumulator that the op states, if it states one."""
        return self.record.attributes.get("accumulate")

    @property
    def dtypes(self) -> list[DType]:
        """Of the tiles that are carried."""
        return [self.dtype, i64] if self.is_place else [self.dtype]

    def start(self) -> list[SSAValue]:
        self.tile.span = self.record.span
        first = self.tile.full(identity(self.lower.kind, self.dtype), self.shape, self.dtype)
        return [first, self.tile.full(_FAR, self.shape, i64)] if self.is_place else [first]

    def step(self, carried: Sequence[SSAValue], operand: SSAValue, place: Place) -> list[SSAValue]:
        tile = self.tile
        tile.span = self.record.span
        value = tile.cast(operand, self.dtype)
        value = tile.clip(value, "_r", identity(self.lower.kind, self.dtype), place)
        if not self.is_place:
            joined = tile.elementwise(_JOIN[self.lower.kind], carried[0], value)
            is_narrow = self._asked is not None and self._asked.compute is not self._asked
            return [tile.round(joined, format=str(self._asked)) if is_narrow else joined]
        best, at = carried
        here = tile.coordinate_of(Dim.symbol("_r"), place)
        beats = tile.elementwise("gt" if self.lower.kind == "argmax" else "lt", value, best)
        ties = tile.elementwise("and", tile.elementwise("eq", value, best), tile.elementwise("lt", here, at))
        takes = tile.elementwise("or", beats, ties)
        if self.dtype.is_float:
            was_number = tile.elementwise("eq", best, best)
            takes = tile.elementwise("or", takes, tile.elementwise("and", tile.elementwise("isnan", value), was_number))
        return [tile.select(takes, value, best), tile.select(takes, here, at)]

    def finish(self, carried: Sequence[SSAValue]) -> SSAValue:
        self.tile.span = self.record.span
        out = self.body.types[self.record.results[0]].dtype
        if self.is_place:
            place = self.tile.arg_reduce(carried[0], carried[1], self.lower.kind, 0)
            # a row that turned out empty has no place to name, and says 0
            shape = self.shape[1:]
            nowhere = self.tile.elementwise("eq", place, self.tile.full(_FAR, shape, i64))
            return self.tile.cast(self.tile.select(nowhere, self.tile.full(0, shape, i64), place), out)
        return self.tile.cast(self.tile.reduce(carried[0], self.lower.kind, 0), out)
