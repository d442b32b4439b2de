"""Score programs on tiles of scores: what a kernel of attention computes a function by.

A value has the axes that it depends on: none for one of the whole block, such as the index of a head, the queries, the
keys, or both. It is computed once for each, and broadcast where it meets a value of other axes, so that what a mask
reads of a document of a key is read once for a block, and not once for each score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.graph.score_programs import BATCH, FIRST, HEAD, KEY, QUERY, Lines, evaluate
from tessera.ir.tile.language import TileBuilder, TileRegion, tile_type
from tessera.stdlib.kernels.call import Call
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType, i32, i64
from tessera.types.frozen import frozen

NAMES = {BATCH: "_b", HEAD: "_h", QUERY: "_i", KEY: "_j"}
"""The coordinate of each index of a score."""


@frozen
class ScoreTile:
    """A value of a program on a block: a tile, and which axes of the block it has."""

    tile: SSAValue
    axes: tuple[str, ...]


class TileArithmetic:
    """Lines as tile ops, for the block of scores of one region."""

    def __init__(
        self,
        b: TileBuilder,
        call: Call,
        first: int,
        region: TileRegion,
        extents: Mapping[str, Dim],
        least: tuple[str, ...] = (),
    ) -> None:
        """`first` is the operand of the first captured tensor, `extents` are how many batches, heads, ... there are.

        `least` are the axes of a value that depends on none: fragments of tensor cores have rows at least.
        """
        self.b, self.call, self.first, self.region, self.extents = b, call, first, region, extents
        self.least = least

    def run(self, lines: Lines, scores: SSAValue | None) -> SSAValue:
        """The result of a program, for the whole block, whose scores are given; indices are those that it reads."""
        used = {operand for _, operands, _ in lines for operand in operands}
        where = [self._index(name) if number in used else None for number, name in NAMES.items()]
        return self.whole(evaluate(lines, [scores and ScoreTile(scores, self.region.axes), *where], self)[-1])

    def whole(self, value: ScoreTile) -> SSAValue:
        return self._broadcast(value, self.region.axes)

    def _region_of(self, axes: Sequence[str]) -> TileRegion:
        axes = axes if any(name in self.region.axes for name in axes) else self.least
        kept = [(name, size) for name, size in zip(self.region.axes, self.region.sizes, strict=True) if name in axes]
        bounds = {name: bound for name, bound in self.region.bounds.items() if name in axes}
        return TileRegion(self.region.coords, tuple(n for n, _ in kept), tuple(s for _, s in kept), bounds)

    def _index(self, name: str) -> ScoreTile:
        region = self._region_of((name,))
        return ScoreTile(self.b.cast(self.b.coordinate_of(Dim.symbol(name), region), i32), region.axes)

    def _broadcast(self, value: ScoreTile, axes: Sequence[str]) -> SSAValue:
        if value.axes == tuple(axes):
            return value.tile
        sizes = dict(zip(self.region.axes, self.region.sizes, strict=True))
        found = [list(axes).index(name) for name in value.axes]
        return self.b.broadcast(value.tile, tuple(sizes[name] for name in axes), found)

    def _together(self, *values: ScoreTile) -> tuple[tuple[str, ...], list[SSAValue]]:
        """Values with the axes of all of them."""
        used = {name for value in values for name in value.axes}
        axes = tuple(name for name in self.region.axes if name in used) or self.least
        return axes, [self._broadcast(value, axes) for value in values]

    def elementwise(self, fn: str, *values: ScoreTile) -> ScoreTile:
        axes, tiles = self._together(*values)
        return ScoreTile(self.b.elementwise(fn, *tiles), axes)

    def select(self, condition: ScoreTile, first: ScoreTile, second: ScoreTile) -> ScoreTile:
        axes, tiles = self._together(condition, first, second)
        return ScoreTile(self.b.select(*tiles), axes)

    def cast(self, value: ScoreTile, dtype: DType) -> ScoreTile:
        return ScoreTile(self.b.cast(value.tile, dtype), value.axes)

    def constant(self, value: Any, dtype: DType) -> ScoreTile:
        region = self._region_of(())
        return ScoreTile(self.b.full(value, region.sizes, dtype), region.axes)

    def load(self, capture: int, indices: Sequence[tuple[int, ScoreTile]]) -> ScoreTile:
        """Elements of a captured tensor: at the index of the block itself where that is in bounds, else where told."""
        b, number = self.b, self.first + capture
        shape = self.call.operands[number].shape
        axes, _ = self._together(*(value for _, value in indices))
        at: list[Dim] = []
        found: list[SSAValue] = []
        for (source, value), size in zip(indices, shape, strict=True):
            direct = direct_index(source, size, self.extents)
            if direct is None:
                at.append(Dim.symbol(f"t{len(found)}"))
                found.append(self._broadcast(self._legal(value, size), axes))
            else:
                at.append(direct)
        region = self._region_of(axes)
        read = b.load(self.call.input(b, number), self.call.at(number, at), region, indices=found)
        return ScoreTile(read, axes)

    def _legal(self, value: ScoreTile, size: Dim) -> ScoreTile:
        """An index as i64: a negative one counts from the end, and what is out of bounds then is clamped."""
        wide = self.cast(value, i64)
        shape = tile_type(wide.tile).shape
        none = TileRegion({}, (), (), {})
        extent, last = (ScoreTile(self.b.coordinate_of(end, none), ()) for end in (size, maximum(size - 1, 0)))
        zero = ScoreTile(self.b.full(0, shape, i64), value.axes)
        is_negative = self.elementwise("lt", wide, zero)
        wrapped = self.select(is_negative, self.elementwise("add", wide, extent), wide)
        return self.elementwise("max", self.elementwise("min", wrapped, last), zero)


def direct_index(source: int, size: Dim, extents: Mapping[str, Dim]) -> Dim | None:
    """Where an axis is read that is indexed as scores are; None where that may be out of bounds, or is computed."""
    if not BATCH <= source < FIRST:
        return None
    own = Dim.symbol(NAMES[source])
    if size == extents[NAMES[source]]:
        return own
    return minimum(own, maximum(size - 1, 0)) if source in (BATCH, HEAD) else None
