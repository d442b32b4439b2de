"""Scatters of a GPU whose updates have an order: programs own rows of the result, and look for the indices of theirs.

Every program reads all indices, a few thousand at a time, and compacts those of its own rows to a list in their order:
lanes of a warp add up who of them has one, and warps add up theirs. Then it takes the list in order, some entries at a
time, so that their updates are read side by side. So equal indices are one program's, whose threads have a column each
and take its updates in order: the bits are those of one index after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion, buffer_type, tile_type
from tessera.stdlib.kernels.call import Call
from tessera.types.dim import Dim, maximum, minimum, product
from tessera.types.dtype import DType, i32, i64

WARP = 32
TILE = WARP * WARP
"""Elements that are compacted at a time: as many segments of a warp as it has lanes."""


class Compaction:
    """Writes code that moves the elements of tiles for which a mask holds to the end of lists, in order."""

    def __init__(self, b: TileBuilder, dtype: DType = i32) -> None:
        self.b, self.dtype, self.half = b, dtype, dtype.bits // 2
        self.counts = b.scratch([TILE], dtype, space="shared")
        self.ends = b.scratch([WARP], dtype, space="shared")

    def append(
        self,
        is_kept: SSAValue,
        start: SSAValue,
        moved: Sequence[tuple[SSAValue, SSAValue]],
        is_other: SSAValue | None = None,
        others: Sequence[tuple[SSAValue, SSAValue]] = (),
    ) -> SSAValue:
        """Tiles of `TILE` elements to lists, from `start` on, and where the lists end then; no barrier follows.

        Elements of a second mask go to lists of their own: their number is counted in the upper half of the bits.
        """
        b = self.b
        region = TileRegion({"_e": b.index(0)}, ("_e",), (TILE,))
        warps = TileRegion({"_s": b.index(0)}, ("_s",), (WARP,))
        value = b.select(is_kept, b.full(1, (TILE,), self.dtype), b.full(0, (TILE,), self.dtype))
        if is_other is not None:
            value = b.select(is_other, b.full(1 << self.half, (TILE,), self.dtype), value)
        found = self._add_up(value, region, "_e")
        b.store(found, self.counts, [Dim.symbol("_e")], region)
        b.barrier()
        totals = b.load(self.counts, [Dim.symbol("_s") * WARP + WARP - 1], warps)
        b.store(self._add_up(totals, warps, "_s"), self.ends, [Dim.symbol("_s")], warps)
        b.barrier()
        before = Dim.symbol("_e") // WARP - 1
        base = b.load(self.ends, [maximum(before, 0)], region, windows=[before, Dim.constant(WARP)])
        place = b.elementwise("add", b.broadcast(start, (TILE,), ()), b.elementwise("add", base, found))
        for mask, lists, shift in ((is_kept, moved, 0), (is_other, others, self.half)):
            if mask is not None:
                self._store(mask, self.part(place, shift) if is_other is not None else place, lists, region)
        return b.elementwise("add", start, b.load(self.ends, [Dim.constant(WARP - 1)], TileRegion({})))

    def part(self, counts: SSAValue, shift: int) -> SSAValue:
        """One of two counts."""
        b, shape = self.b, tile_type(counts).shape
        if shift:
            return b.elementwise("shr", counts, b.full(shift, shape, self.dtype))
        return b.elementwise("and", counts, b.full((1 << self.half) - 1, shape, self.dtype))

    def _store(
        self, mask: SSAValue, ends: SSAValue, lists: Sequence[tuple[SSAValue, SSAValue]], region: TileRegion
    ) -> None:
        b, ones = self.b, self.b.full(1, (TILE,), self.dtype)
        place = b.select(mask, b.elementwise("sub", ends, ones), b.full(-1, (TILE,), self.dtype))
        for tile, line in lists:
            (size,) = buffer_type(line).shape
            inside = [Dim.symbol("t0"), size]
            b.store(tile, line, [Dim.symbol("t0")], region, indices=[b.cast(place, i64)], windows=inside)

    def _add_up(self, tile: SSAValue, region: TileRegion, axis: str) -> SSAValue:
        """Each element of a segment of a warp with all before it."""
        b = self.b
        lane = b.coordinate_of(Dim.symbol(axis) % WARP, region)
        by = 1
        while by < WARP:
            joined = b.elementwise("add", tile, b.shuffle(tile, "up", by))
            is_there = b.elementwise("ge", lane, b.full(by, region.sizes, tile_type(lane).dtype))
            tile = b.select(is_there, joined, tile)
            by *= 2
        return tile


_TILES = 4
"""Tiles of indices that are read before the list is taken."""
_TAKEN = 4
"""Entries of the list that are taken at a time."""
_MOST_COLUMNS = 512
_PROGRAMS = 8
"""Programs on each multiprocessor: while one waits for memory, others do not."""


class OwnedScatter:
    """Writes the kernel: programs over `outer`, blocks of columns, and parts of the rows of the result."""

    def __init__(self, call: Call) -> None:
        self.call = call
        x, updates, *indices = call.operands
        self.outer, *self.extents, self.inner = x.shape
        self.rows, self.count = product(self.extents), updates.shape[1]
        self.number = len(indices)
        columns = self.inner.value
        self.width = _MOST_COLUMNS
        if columns is not None:
            self.width = min(_MOST_COLUMNS, max(WARP, 1 << max(0, columns - 1).bit_length()))

    def write(self) -> SpecOp:
        call, blocks = self.call, self.inner.ceildiv(self.width)
        others = (self.outer * blocks).value
        parts = max(1, _PROGRAMS * max(1, call.machine.blocks) // max(1, others or 1))
        result = call.outputs[0]
        assert result is not None
        shapes = {result: (self.outer, self.rows, self.inner)}
        self.b = b = call.builder([self.outer, blocks, Dim.constant(parts)], "owned", shapes, warps=8)
        capacity = TILE * _TILES
        self.compaction = Compaction(b)
        self.places, self.owned = (b.scratch([capacity + _TAKEN], i64, space="shared") for _ in range(2))
        self.cell = b.scratch([1], i32, space="shared")
        own, part = self.rows.ceildiv(parts), Dim.symbol("_p") * self.rows.ceildiv(parts)
        coords = {"_p": b.program_id(2)}
        low, high = b.index(part, coords), b.index(minimum(self.rows, part + own), coords)
        b.loop(b.index(0), b.index(self.count), capacity, lambda at, _: self._take_indices(at, low, high))
        return b.finish()

    def _take_indices(self, start: SSAValue, low: SSAValue, high: SSAValue) -> list[SSAValue]:
        """Some tiles of indices: those of own rows to the list, then the list in order."""
        b, total = self.b, self.b.full(0, (), i32)
        regions: list[TileRegion] = []
        for number in range(_TILES):
            at = b.index(Dim.symbol("_i") + number * TILE, {"_i": start})
            coords = {"_n": at, "_low": low, "_high": high}
            regions.append(TileRegion(coords, ("_n",), (TILE,), {"_n": self.count}))
        found = [self._find_rows(region) for region in regions]
        for region, rows in zip(regions, found, strict=True):
            ends = [b.coordinate_of(Dim.symbol(name), region) for name in ("_low", "_high")]
            is_own = b.elementwise("and", b.elementwise("ge", rows, ends[0]), b.elementwise("lt", rows, ends[1]))
            place = b.coordinate_of(Dim.symbol("_n"), region)
            total = self.compaction.append(is_own, total, [(place, self.places), (rows, self.owned)])
        b.store(total, self.cell, [Dim.constant(0)], TileRegion({}))
        b.barrier()
        count = b.fetch(self.cell, [Dim.constant(0)], {})
        b.loop(b.index(0), count, _TAKEN, lambda at, _: self._take_updates(at, count))
        return []

    def _find_rows(self, region: TileRegion) -> SSAValue:
        """The row of the result that each index names; -1 beyond the indices, and where nothing is written."""
        b, call = self.b, self.call
        rows, is_there = b.full(0, (TILE,), i64), None
        for axis, extent in enumerate(self.extents):
            index = b.cast(b.load(call.input(b, 2 + axis), [Dim.symbol("_n")], region), i64)
            size = b.coordinate_of(extent, region)
            rows = b.elementwise("add", b.elementwise("mul", rows, size), index)
            if call.attributes["drops"]:
                inside = b.elementwise("lt", index, size)
                is_there = inside if is_there is None else b.elementwise("and", is_there, inside)
        rows = rows if is_there is None else b.select(is_there, rows, b.full(-1, (TILE,), i64))
        return b.clip(rows, "_n", -1, region)

    def _take_updates(self, at: SSAValue, count: SSAValue) -> list[SSAValue]:
        """Some entries of the list: all that they read first, then one after the other."""
        b, call = self.b, self.call
        coords: dict[str, SSAValue] = {"_o": b.program_id(0), "_m": at, "_count": count}
        coords["_j"] = b.index(Dim.symbol("_p") * self.width, {"_p": b.program_id(1)})
        whole = self.inner.value is not None and self.inner.value % self.width == 0
        bounds: Mapping[str, Dim] = {} if whole else {"_j": self.inner}
        lists = [Dim.symbol("_m") + number for number in range(_TAKEN)]
        windows = [[Dim.symbol("_count") - 1 - entry, Dim.constant(TILE * _TILES)] for entry in lists]
        for number, entry in enumerate(lists):
            coords[f"_n{number}"] = b.fetch(self.places, [entry], {"_m": at})
            coords[f"_r{number}"] = b.fetch(self.owned, [entry], {"_m": at})
        region = TileRegion(coords, ("_j",), (self.width,), bounds)
        places = [[Dim.symbol("_o"), Dim.symbol(f"_r{number}"), Dim.symbol("_j")] for number in range(_TAKEN)]
        sources = [[Dim.symbol("_o"), Dim.symbol(f"_n{number}"), Dim.symbol("_j")] for number in range(_TAKEN)]
        numbers = [b.load(self.owned, [entry], TileRegion({"_m": at})) for entry in lists]
        updates = [
            b.load(call.input(b, 1), source, region, windows=inside)
            for source, inside in zip(sources, windows, strict=True)
        ]
        results: list[SSAValue] = updates
        if (mode := str(call.attributes["mode"])) != "set":
            olds = [
                b.load(call.output(b, 0), place, region, windows=inside)
                for place, inside in zip(places, windows, strict=True)
            ]
            results = []
            for number, (old, update) in enumerate(zip(olds, updates, strict=True)):
                for before, result in zip(numbers, results, strict=False):
                    is_same = b.broadcast(b.elementwise("eq", before, numbers[number]), (self.width,), ())
                    old = b.select(is_same, result, old)
                made, narrow = b.elementwise(mode, old, update), call.narrow_accumulator
                results.append(made if narrow is None else b.round(made, format=narrow))
        for result, place, inside in zip(results, places, windows, strict=True):
            b.store(result, call.output(b, 0), place, region, windows=inside)
        return []
