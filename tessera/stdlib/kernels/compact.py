"""Scatters of a GPU whose updates have an order: programs own rows of the result, and look for the indices of theirs.

Every program reads all indices, a few thousand at a time, and compacts those of its own rows to a list in their order:
lanes of a warp add up who of them has one, and warps add up theirs. Then it takes the list in order, some entries at a
time, so that their updates are read side by side. So equal indices are one program's, whose threads have a column each
and take its updates in order: the bits are those of one index after the other. Where rows have few columns of their
own, those of all dims before the axis are columns too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion, buffer_type, tile_type
from tessera.stdlib.kernels.call import Call
from tessera.types.dim import Dim, maximum, minimum, next_power_of_two, product
from tessera.types.dtype import DType, i32, i64
from tessera.types.frozen import frozen

WARP = 32
TILE = WARP * WARP
"""Elements that are compacted at a time: as many segments of a warp as it has lanes."""


Lists = Sequence[tuple[SSAValue, SSAValue]]
"""Tiles, each with the buffer of the list that its elements go to."""


@frozen
class Kept:
    """Elements of a tile that go to lists: those of a mask, and to other lists those of another."""

    mask: SSAValue
    lists: Lists
    other: SSAValue | None = None
    others: Lists = ()


class Compaction:
    """Writes code that moves the elements of tiles for which a mask holds to the end of lists, in order.

    Elements of a second mask are counted in the upper half of the bits.
    """

    def __init__(self, b: TileBuilder, tiles: int, dtype: DType = i32) -> None:
        self.b, self.dtype, self.half = b, dtype, dtype.bits // 2
        # One more than a warp has lanes: the last counts of all warps are then in 32 banks.
        self.counts = b.scratch([tiles, WARP, WARP + 1], dtype, space="shared")
        self.ends = b.scratch([tiles, WARP], dtype, space="shared")

    def append(self, tiles: Sequence[Kept], start: SSAValue) -> SSAValue:
        """Tiles of `TILE` elements to lists, from `start` on, and where the lists end then; no barrier follows.

        All tiles are counted before anyone waits: what one waits for, others do meanwhile.
        """
        b = self.b
        region = TileRegion({"_e": b.index(0)}, ("_e",), (TILE,))
        warps = TileRegion({"_s": b.index(0)}, ("_s",), (WARP,))
        found = [self._add_up(self._ones(kept), region, "_e") for kept in tiles]
        for number, tile in enumerate(found):
            at = [Dim.constant(number), Dim.symbol("_e") // WARP, Dim.symbol("_e") % WARP]
            b.store(tile, self.counts, at, region)
        b.barrier()
        last = [Dim.symbol("_s"), Dim.constant(WARP - 1)]
        totals = [b.load(self.counts, [Dim.constant(number), *last], warps) for number in range(len(tiles))]
        for number, tile in enumerate([self._add_up(total, warps, "_s") for total in totals]):
            b.store(tile, self.ends, [Dim.constant(number), Dim.symbol("_s")], warps)
        b.barrier()
        before = Dim.symbol("_e") // WARP - 1
        for number, (kept, own) in enumerate(zip(tiles, found, strict=True)):
            line = Dim.constant(number)
            base = b.load(self.ends, [line, maximum(before, 0)], region, windows=[before, Dim.constant(WARP)])
            place = b.elementwise("add", b.broadcast(start, (TILE,), ()), b.elementwise("add", base, own))
            self._store(kept.mask, place if kept.other is None else self.part(place, 0), kept.lists, region)
            if kept.other is not None:
                self._store(kept.other, self.part(place, self.half), kept.others, region)
            total = b.load(self.ends, [line, Dim.constant(WARP - 1)], TileRegion({}))
            start = b.elementwise("add", start, total)
        return start

    def _ones(self, kept: Kept) -> SSAValue:
        b = self.b
        value = b.select(kept.mask, b.full(1, (TILE,), self.dtype), b.full(0, (TILE,), self.dtype))
        return value if kept.other is None else b.select(kept.other, b.full(1 << self.half, (TILE,), self.dtype), value)

    def part(self, counts: SSAValue, shift: int) -> SSAValue:
        """One of two counts."""
        b, shape = self.b, tile_type(counts).shape
        if shift:
            return b.elementwise("shr", counts, b.full(shift, shape, self.dtype))
        return b.elementwise("and", counts, b.full((1 << self.half) - 1, shape, self.dtype))

    def _store(self, mask: SSAValue, ends: SSAValue, lists: Lists, region: TileRegion) -> None:
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
_TAKEN, _MANY = 4, 8
"""Entries of the list that are taken at a time, and where a thread has one column of each."""
_MOST_COLUMNS = 512
_THREADS = 256
_PROGRAMS = 2
"""Programs on each multiprocessor: as many as its registers hold at a time, since each reads all indices."""


def has_few_columns(outer: Dim, inner: Dim) -> bool:
    """Whether a warp has no columns enough in one row, but finds more of them in others."""
    return inner.value is not None and inner.value < WARP and outer.value != 1


class OwnedScatter:
    """Writes the kernel: programs over `outer`, blocks of columns, and parts of the rows of the result.

    Where rows have few columns, `outer` is part of these.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        x, updates, *indices = call.operands
        self.outer, *self.extents, self.inner = x.shape
        self.rows, self.count = product(self.extents), updates.shape[1]
        self.number = len(indices)
        self.is_flat = has_few_columns(self.outer, self.inner)
        self.columns = self.outer * self.inner if self.is_flat else self.inner
        self.programs = _PROGRAMS * max(1, call.machine.blocks)
        self.width = self._choose_width()
        self.taken = _MANY if self.width <= _THREADS else _TAKEN

    def _choose_width(self) -> int:
        """Columns of a program: fewer where all rows of the result would leave programs idle."""
        columns, outer = self.columns.value, 1 if self.is_flat else self.outer.value or 1
        if columns is None:
            return _MOST_COLUMNS
        width = min(_MOST_COLUMNS, max(WARP, next_power_of_two(columns)))
        rows = self.rows.value or self.programs
        while width > WARP and outer * -(-columns // width) * rows < self.programs:
            width //= 2
        return width

    def write(self) -> SpecOp:
        call, blocks = self.call, self.columns.ceildiv(self.width)
        outer = Dim.constant(1) if self.is_flat else self.outer
        parts = max(1, self.programs // max(1, (outer * blocks).value or 1))
        parts = min(parts, max(1, self.rows.value or parts))
        result = call.outputs[0]
        assert result is not None
        shapes = {result: (self.outer, self.rows, self.inner)}
        self.b = b = call.builder([outer, blocks, Dim.constant(parts)], "owned", shapes, warps=_THREADS // WARP)
        capacity = TILE * _TILES
        self.compaction = Compaction(b, _TILES)
        self.positions, self.owned = (b.scratch([capacity + self.taken], i64, space="shared") for _ in range(2))
        self.cell = b.scratch([1], i32, space="shared")
        own, part = self.rows.ceildiv(parts), Dim.symbol("_p") * self.rows.ceildiv(parts)
        coords = {"_p": b.program_id(2)}
        low, high = b.index(part, coords), b.index(minimum(self.rows, part + own), coords)
        b.loop(b.index(0), b.index(self.count), capacity, lambda at, _: self._take_indices(at, low, high))
        return b.finish()

    def _take_indices(self, start: SSAValue, low: SSAValue, high: SSAValue) -> list[SSAValue]:
        """Some tiles of indices: those of own rows to the list, then the list in order."""
        b = self.b
        regions: list[TileRegion] = []
        for number in range(_TILES):
            at = b.index(Dim.symbol("_i") + number * TILE, {"_i": start})
            coords = {"_n": at, "_low": low, "_high": high}
            regions.append(TileRegion(coords, ("_n",), (TILE,), {"_n": self.count}))
        tiles: list[Kept] = []
        for region, rows in [(region, self._find_rows(region)) for region in regions]:
            ends = [b.coordinate_of(Dim.symbol(name), region) for name in ("_low", "_high")]
            is_own = b.elementwise("and", b.elementwise("ge", rows, ends[0]), b.elementwise("lt", rows, ends[1]))
            place = b.coordinate_of(Dim.symbol("_n"), region)
            tiles.append(Kept(is_own, [(place, self.positions), (rows, self.owned)]))
        total = self.compaction.append(tiles, b.full(0, (), i32))
        b.store(total, self.cell, [Dim.constant(0)], TileRegion({}))
        b.barrier()
        count = b.fetch(self.cell, [Dim.constant(0)], {})
        b.loop(b.index(0), count, self.taken, lambda at, _: self._take_updates(at, count))
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
        whole = self.columns.value is not None and self.columns.value % self.width == 0
        bounds: Mapping[str, Dim] = {} if whole else {"_j": self.columns}
        lists = [Dim.symbol("_m") + number for number in range(self.taken)]
        windows = [[Dim.symbol("_count") - 1 - entry, Dim.constant(TILE * _TILES)] for entry in lists]
        for number, entry in enumerate(lists):
            coords[f"_n{number}"] = b.fetch(self.positions, [entry], {"_m": at})
            coords[f"_r{number}"] = b.fetch(self.owned, [entry], {"_m": at})
        region = TileRegion(coords, ("_j",), (self.width,), bounds)
        outer, column = Dim.symbol("_o"), Dim.symbol("_j")
        if self.is_flat:
            outer, column = column // self.inner, column % self.inner
        places = [[outer, Dim.symbol(f"_r{number}"), column] for number in range(self.taken)]
        sources = [[outer, Dim.symbol(f"_n{number}"), column] for number in range(self.taken)]
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
