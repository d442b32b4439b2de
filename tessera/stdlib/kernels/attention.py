"""Attention in one pass over keys, as in FlashAttention-2 (Dao, 2023).

A program has a block of queries of one head. It loops over blocks of keys with an online softmax: a running maximum and
sum per row, and an accumulator that is rescaled whenever the maximum grows, so that scores are never stored. Scores are
kept in base 2: queries are scaled by `scale * log2(e)` once, masks by `log2(e)`, and `exp2` replaces `exp`. A causal
program ends its loop at the last key that its last query sees. On tensor cores (`NarrowAttention`) queries are
multiplied unscaled, and the scale goes into the argument of `exp2` as one multiply-add.
"""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType, bf16, f16
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

KEYS = 256
"""Keys of a block. It decides when the sum is rescaled, so it is part of the result (numeric), and never tuned."""
NARROW_KEYS = 128
"""The same for WGMMA."""
WARP_KEYS = 64
"""The same for `mma.sync`, whose machines have less shared memory, and for wide heads."""
NARROW_HEAD, WIDE_HEAD = 128, 256
"""Head sizes up to which shared memory holds such blocks of keys, and up to which registers hold the accumulators."""
QUERIES = (128, 64, 32, 96)
"""Candidates for the queries of a block, which change only the speed."""
THREAD_QUERIES = (32, 64, 128)
"""The same for GPU kernels without tensor cores."""
_WHOLE = 256
"""A head up to this size is one tile; a larger or dynamic one is processed in parts."""
_PART = 64
_THREAD_PART = 32
"""Columns of such a part without tensor cores."""
_LOG2E = math.log2(math.e)
_LN2 = math.log(2)
_LOW = float("-inf")


@frozen
class _Extent:
    """A dim cut into tiles: `bounds` is empty where they always fit."""

    name: str
    size: Dim
    tile: int

    @property
    def at(self) -> Dim:
        return Dim.symbol(self.name)

    @property
    def bounds(self) -> dict[str, Dim]:
        return {} if self.size.value is not None and self.size.value % self.tile == 0 else {self.name: self.size}

    @property
    def is_one(self) -> bool:
        return self.size.value == self.tile


class Attention:
    """Emits one kernel; a program has a block of queries of one head, and a part of the values' columns."""

    @property
    def width(self) -> int:
        """Keys of a block."""
        return KEYS

    def __init__(self, call: Call) -> None:
        self.call = call
        q, k, v = call.operands[:3]
        self.batch, self.heads = q.shape[:2]
        self.shared = k.shape[1]
        self.dtype: DType = q.dtype.compute
        self.rows = _Extent("_i", self._row_count, int(call.choose("attention.queries", self._candidates)))
        self.keys = _Extent("_j", self._key_count, self.width)
        self.head = self._in_tiles("_d", q.shape[3], _THREAD_PART if self.is_by_threads else _PART)
        self.columns = self._in_tiles("_e", v.shape[3], _PART)
        parts = [] if self.columns.is_one else [self.columns.size.ceildiv(self.columns.tile)]
        self.grid = self._grid()
        self.b: TileBuilder = call.builder([*self.grid, *parts])
        self.coords = self._coordinates()
        # A head of one part starts at 0.
        self.coords["_e"] = self.b.index(0) if self.columns.is_one else self._start(len(self.grid), _PART)

    def _in_tiles(self, name: str, size: Dim, part: int) -> _Extent:
        """The size of a head: one tile, or parts."""
        return _Extent(name, size, size.value if size.value and self._is_whole(size.value) else part)

    def _is_whole(self, size: int) -> bool:
        if not self.is_by_threads or self.call.machine.shared == 0:
            return size <= _WHOLE
        # Rows that a warp cannot share evenly are held by single threads, which is good for few of them only; a dot has
        # both operands in shared memory.
        rows, item = self.rows.tile, self.dtype.bytes
        scores = rows * size * item + self.width * (size * item + 16)
        sums = rows * (self.width * item + 16) + self.width * size * item
        held = max(scores, sums)
        return (size < _PART or size % 32 == 0) and held <= self.call.machine.shared

    def _start(self, axis: int, tile: int) -> SSAValue:
        """Where the tiles of a program begin along an axis of the grid."""
        return self.b.index(Dim.symbol("_p") * tile, {"_p": self.b.program_id(axis)})

    @property
    def is_by_threads(self) -> bool:
        """Whether a GPU without tensor cores runs it: tiles are fully unrolled there, so code must stay small."""
        return self.call.lanes == 32

    # Index expressions and grid: overridden by kernels with another grid.

    @property
    def _row_count(self) -> Dim:
        return self.call.operands[0].shape[2]

    @property
    def _key_count(self) -> Dim:
        return self.call.operands[1].shape[2]

    def _grid(self) -> list[Dim]:
        return [self.batch, self.heads, self.rows.size.ceildiv(self.rows.tile)]

    def _coordinates(self) -> dict[str, SSAValue]:
        b = self.b
        found = {"_b": b.program_id(0), "_h": b.program_id(1)}
        found["_i"] = self._start(2, self.rows.tile)
        found["_g"] = found["_h"]
        if self.heads != self.shared:
            found["_g"] = b.index(Dim.symbol("_h") // (self.heads // self.shared), found)
        if self.is_cached:
            found["_filled"] = b.fetch(self.call.input(b, 3), self.call.at(3, ()), {})
        return found

    @property
    def _row_at(self) -> list[Dim]:
        """The index of a query and of its result, without the last axis."""
        return [Dim.symbol("_b"), Dim.symbol("_h"), self.rows.at]

    @property
    def _query_at(self) -> list[Dim]:
        return [*self._row_at, self.head.at]

    @property
    def _query_region(self) -> TileRegion:
        return self._make_region(self.rows, self.head)

    @property
    def _key_at(self) -> list[Dim]:
        """The index of a key and its value, without the last axis."""
        return [Dim.symbol("_b"), Dim.symbol("_g"), self.keys.at]

    @property
    def is_cached(self) -> bool:
        """Whether keys come from a KV cache, whose filled length is an operand."""
        return _is_cached(self.call)

    @property
    def _filled(self) -> Dim:
        """The number of valid keys: a cache is never read beyond its length."""
        if not self.is_cached:
            return self.keys.size
        return maximum(0, minimum(self.keys.size, Dim.symbol("_filled")))

    @property
    def _masks(self) -> tuple[TensorType, ...]:
        return () if self.is_cached else self.call.operands[3:]

    @property
    def _candidates(self) -> tuple[int, ...]:
        # Threads hold all scores of their queries.
        if self.is_by_threads:
            return (16, *THREAD_QUERIES) if self.dtype.bits > 32 else THREAD_QUERIES
        return QUERIES

    @property
    def is_causal(self) -> bool:
        """Whether later keys are hidden."""
        return bool(self.call.attributes["causal"])

    @property
    def _seen(self) -> Dim:
        """How many keys query `i` sees under a causal mask: the last query is aligned with the last key."""
        return self.rows.at + 1 + self._filled - self.rows.size

    @property
    def _end(self) -> Dim:
        """How many keys the last query of the block sees."""
        if not self.is_causal:
            return self._filled
        return maximum(0, minimum(self._filled, self._seen + self.rows.tile - 1))

    def _make_keys_region(self, other: _Extent, **coords: SSAValue) -> TileRegion:
        """A block of keys (or values): keys that no query of the block sees are not read."""
        region = self._make_region(self.keys, other, **coords)
        bounds = {**region.bounds, "_j": self._end} if self.is_causal or self.is_cached else region.bounds
        return region.along(region.axes, region.sizes, bounds)

    def _make_region(self, *extents: _Extent, **coords: SSAValue) -> TileRegion:
        bounds = {name: bound for extent in extents for name, bound in extent.bounds.items()}
        names, sizes = tuple(extent.name for extent in extents), tuple(extent.tile for extent in extents)
        return TileRegion({**self.coords, **coords}, names, sizes, bounds)

    def write(self) -> SpecOp:
        b, rows, columns = self.b, self.rows.tile, self.columns.tile
        first = self._queries(b.index(0)) if self._has_first else None
        end = self._round_up(self._end, self.width)

        def block(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            scores = self._mask(self._scores(first, j), j)
            return self._accumulate(scores, j, carried)

        start = [b.full(0.0, (rows, columns), self.dtype), b.full(_LOW, (rows,), self.dtype)]
        start.append(b.full(0.0, (rows,), self.dtype))
        acc, top, total = b.loop(b.index(0), b.index(end, self.coords), self.width, block, start)
        epilogue = self.call.epilogue
        if self.call.outputs[0] is not None or epilogue is not None:
            # A query that sees no key has a sum of 0, and gives 0.
            none = b.elementwise("eq", total, b.full(0.0, (rows,), self.dtype))
            divisor = b.select(none, b.full(1.0, (rows,), self.dtype), total)
            out = b.cast(self._quotient(acc, divisor), self.call.results[0].dtype)
            region, at = self._make_region(self.rows, self.columns), [*self._row_at, self.columns.at]
            if self.call.outputs[0] is not None:
                b.store(out, self.call.output(b, 0), at, region)
            if epilogue is not None:
                epilogue.store(b, out, region, at)
        if len(self.call.results) > 1 and self.call.outputs[1] is not None:
            lse = b.elementwise("add", self._natural(top), b.elementwise("log", total))
            self._store_rows(lse, self.call.output(b, 1))
        return b.finish()

    def _quotient(self, acc: SSAValue, divisor: SSAValue) -> SSAValue:
        return self.b.elementwise("div", acc, self._across(divisor, self.columns.tile))

    def _natural(self, top: SSAValue) -> SSAValue:
        """The maximum of the scores, in base e."""
        return self.b.elementwise("mul", top, self.b.full(_LN2, (self.rows.tile,), self.dtype))

    def _store_rows(self, tile: SSAValue, buffer: SSAValue) -> None:
        """Store a number for each row; of programs with parts of one head, only the first stores."""
        if self.columns.is_one:
            self.b.store(tile, buffer, self._row_at, self._make_region(self.rows))
            return
        region = self._make_region(self.rows, self.columns)
        once = region.along(region.axes, region.sizes, {**region.bounds, self.columns.name: Dim.constant(1)})
        self.b.store(self._across(tile, self.columns.tile), buffer, self._row_at, once)

    def _across(self, column: SSAValue, width: int) -> SSAValue:
        """One number for each row, broadcast along it."""
        return self.b.broadcast(column, (self.rows.tile, width), (0,))

    def _queries(self, d: SSAValue) -> SSAValue:
        """A tile of queries, scaled."""
        b, region = self.b, self._query_region.with_coords(_d=d)
        q = b.cast(b.load(self.call.input(b, 0), self.call.at(0, self._query_at), region), self.dtype)
        return b.elementwise("mul", q, self._scale(region))

    def _scale(self, region: TileRegion) -> SSAValue:
        b, given, size = self.b, self.call.attributes["scale"], self.head.size
        if given is None and size.value is not None:
            given = 1.0 / math.sqrt(max(size.value, 1))
        if given is not None:
            return b.full(given * _LOG2E, region.sizes, self.dtype)
        rows = self._make_region(self.rows)
        root = b.elementwise("sqrt", b.cast(b.coordinate_of(maximum(size, 1), rows), self.dtype))
        scale = b.elementwise("div", b.full(_LOG2E, rows.sizes, self.dtype), root)
        return self._across(scale, self.head.tile)

    @property
    def _has_first(self) -> bool:
        """Whether the first part of queries stays in registers; without tensor cores one loop has all parts."""
        return self.head.is_one or not self.is_by_threads

    def _round_up(self, end: Dim, step: int) -> Dim:
        """The end of a loop: without tensor cores it is rounded up to whole steps, to have no remainder loop."""
        return end.ceildiv(step) * step if self.is_by_threads and end.value is None else end

    def _scores(self, first: SSAValue | None, j: SSAValue) -> SSAValue:
        """Queries times keys: the first part of the head, then the others where it is not one tile."""
        b = self.b

        def part(queries: SSAValue, d: SSAValue, scores: SSAValue) -> SSAValue:
            at = self.call.at(1, [*self._key_at, self.head.at])
            k = b.load(self.call.input(b, 1), at, self._make_keys_region(self.head, _j=j, _d=d))
            return b.dot(queries, b.transpose(b.cast(k, self.dtype)), scores)

        def next_part(d: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            return [part(self._queries(d), d, carried[0])]

        scores = b.full(0.0, (self.rows.tile, self.width), self.dtype)
        if first is not None:
            scores = part(first, b.index(0), scores)
        if self.head.is_one:
            return scores
        start, end = 0 if first is None else self.head.tile, self._round_up(self.head.size, self.head.tile)
        return b.loop(b.index(start), b.index(end), self.head.tile, next_part, [scores])[0]

    def _mask(self, scores: SSAValue, j: SSAValue) -> SSAValue:
        """Scores plus the mask; -inf for keys that are out of bounds or masked."""
        b, region = self.b, self._make_region(self.rows, self.keys, _j=j)
        for number, mask in enumerate(self._masks, 3):
            tile = b.cast(b.load(self.call.input(b, number), self.call.at(number, _mask_map(mask)), region), self.dtype)
            scores = b.elementwise("fma", tile, b.full(_LOG2E, region.sizes, self.dtype), scores)
        seen = self._filled if self.is_cached else region.bounds.get("_j")
        if self.is_causal:
            seen = minimum(self._filled, self._seen)
        if seen is None:
            return scores
        return b.clip(scores, "_j", _LOW, region.along(region.axes, region.sizes, {"_j": seen}))

    def _accumulate(self, scores: SSAValue, j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """The online softmax: sums so far are rescaled to the new maximum, then this block is added."""
        b, rows = self.b, self.rows.tile
        acc, top, total = carried
        new = b.elementwise("max", top, b.reduce(scores, "max", 1))
        # Rows that have seen no key subtract 0: -inf - -inf would be NaN.
        nothing = b.elementwise("eq", new, b.full(_LOW, (rows,), self.dtype))
        shift = b.select(nothing, b.full(0.0, (rows,), self.dtype), new)
        weights, kept = self._exp2(scores, top, shift)
        total = b.elementwise("add", b.elementwise("mul", total, kept), b.reduce(weights, "sum", 1))
        acc = b.elementwise("mul", acc, self._across(kept, self.columns.tile))
        at = self.call.at(2, [*self._key_at, self.columns.at])
        v = b.load(self.call.input(b, 2), at, self._make_keys_region(self.columns, _j=j))
        return [b.dot(self._left(weights), b.cast(v, self.dtype), acc), new, total]

    def _exp2(self, scores: SSAValue, top: SSAValue, shift: SSAValue) -> tuple[SSAValue, SSAValue]:
        """`exp2` of the scores, and of the maximum so far, minus the shift."""
        b = self.b
        weights = b.elementwise("exp2", b.elementwise("sub", scores, self._across(shift, self.width)))
        return weights, b.elementwise("exp2", b.elementwise("sub", top, shift))

    def _left(self, weights: SSAValue) -> SSAValue:
        """The weights as the left operand of the dot with values."""
        return weights


def _mask_map(mask: TensorType) -> list[Dim]:
    """The index of a mask: trailing dims of [b, h, i, j], a static 1 is broadcast."""
    names = ("_b", "_h", "_i", "_j")[4 - mask.rank :]
    return [
        Dim.constant(0) if dim.value == 1 else Dim.symbol(name) for name, dim in zip(names, mask.shape, strict=True)
    ]


class NarrowAttention(Attention):
    """Attention on tensor cores, for 2-byte floats.

    Queries are multiplied unscaled and scores scaled afterwards; weights are rounded to the dtype of the values before
    the dot, their sum is of the unrounded ones. Masked keys have weight 0, which their values are multiplied by.
    """

    @property
    def is_by_threads(self) -> bool:
        return False

    @property
    def width(self) -> int:
        return NARROW_KEYS if "wgmma" in self.call.features and self._head_size <= NARROW_HEAD else WARP_KEYS

    @property
    def _head_size(self) -> int:
        return self.call.operands[0].shape[3].value or 0

    @property
    def _candidates(self) -> tuple[int, ...]:
        # A small head leaves registers for a third warpgroup.
        return (192, 128, 64) if self._head_size == 64 else (128, 64)

    def _queries(self, d: SSAValue) -> SSAValue:
        b, region = self.b, self._query_region.with_coords(_d=d)
        return b.cast(b.load(self.call.input(b, 0), self.call.at(0, self._query_at), region), self.dtype)

    def _make_keys_region(self, other: _Extent, **coords: SSAValue) -> TileRegion:
        region = self._make_region(self.keys, other, **coords)
        # Whole blocks are read, except beyond the length of a cache.
        bounds = {**region.bounds, "_j": self._filled} if self.is_cached else region.bounds
        return region.along(region.axes, region.sizes, bounds)

    @property
    def _is_masked(self) -> bool:
        return bool(self._masks)

    def _mask(self, scores: SSAValue, j: SSAValue) -> SSAValue:
        if self._is_masked:
            scores = self.b.elementwise("mul", scores, self._scale(self._make_region(self.rows, self.keys, _j=j)))
        return super()._mask(scores, j)

    def _exp2(self, scores: SSAValue, top: SSAValue, shift: SSAValue) -> tuple[SSAValue, SSAValue]:
        if self._is_masked:
            return super()._exp2(scores, top, shift)
        b, rows = self.b, self._make_region(self.rows)
        scale = self._scale(rows)
        lowered = b.elementwise("neg", b.elementwise("mul", shift, scale))
        wide = self._scale(self._make_region(self.rows, self.keys, _j=b.index(0)))
        weights = b.elementwise("exp2", b.elementwise("fma", scores, wide, self._across(lowered, self.width)))
        return weights, b.elementwise("exp2", b.elementwise("fma", top, scale, lowered))

    def _left(self, weights: SSAValue) -> SSAValue:
        return self.b.cast(self.b.cast(weights, self.call.operands[2].dtype), self.dtype)

    def _natural(self, top: SSAValue) -> SSAValue:
        if self._is_masked:
            return super()._natural(top)
        b, rows = self.b, self._make_region(self.rows)
        factor = b.elementwise("mul", self._scale(rows), b.full(_LN2, rows.sizes, self.dtype))
        return b.elementwise("mul", top, factor)


def _is_cached(call: Call) -> bool:
    return len(call.operands) > 3 and call.operands[3].dtype.is_integer


def is_narrow(call: Call) -> bool:
    """Whether the call runs on tensor cores: 2-byte floats, a supported head, an order-preserving scale."""
    given, head = call.attributes["scale"], call.operands[0].shape[3].value
    dtypes = {operand.dtype for operand in call.operands[:3]}
    # A head is a multiple of a swizzle line of shared memory: 128 bytes, and 32 for WGMMA.
    line = 16 if "wgmma" in call.features else 64
    widest = WIDE_HEAD if "wgmma" in call.features else NARROW_HEAD
    fits = head is not None and head % line == 0 and call.operands[2].shape[3].value == head and head <= widest
    # Memory beyond the length of a cache must not be read, and only TMA copies can be bounded by it.
    fits = fits and (not _is_cached(call) or "wgmma" in call.features)
    return "mma.sync" in call.features and dtypes <= {bf16, f16} and len(dtypes) == 1 and fits and (given or 1.0) > 0


ATTENTION = LibraryKernel(
    "attention",
    "softmax(q kT * scale + mask) v, in one pass over the keys.",
    lambda call: [(NarrowAttention if is_narrow(call) else Attention)(call).write()],
)


# Split attention for decoding (Flash-Decoding): single queries over parts of the keys, and the combination of parts.


class _Parts(Attention):
    """Emits one kernel: programs over batch, KV heads, blocks of their queries, and parts."""

    @property
    def _group(self) -> Dim:
        """How many query heads share a KV head."""
        return self.heads // self.shared

    @property
    def _part(self) -> int:
        return int(self.call.attributes["keys"])

    @property
    def _is_even(self) -> bool:
        """Whether all parts have the same number of keys."""
        count = self.call.operands[1].shape[2].value
        return count is not None and count % self._part == 0

    @property
    def _row_count(self) -> Dim:
        return self._group

    @property
    def _key_count(self) -> Dim:
        """Keys from the start of the part on: blocks that end with the part never reach those of the next."""
        if self._is_even:
            return Dim.constant(self._part)
        remaining = self.call.operands[1].shape[2] - Dim.symbol("_s")
        return minimum(self._part, remaining) if self._part % self.width else remaining

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (8, 16, 32)

    def _grid(self) -> list[Dim]:
        parts = self.call.operands[1].shape[2].ceildiv(self._part)
        return [self.batch, self.shared, self.rows.size.ceildiv(self.rows.tile), parts]

    def _coordinates(self) -> dict[str, SSAValue]:
        b = self.b
        found = {"_b": b.program_id(0), "_g": b.program_id(1), "_i": self._start(2, self.rows.tile)}
        found |= {"_part": b.program_id(3), "_s": self._start(3, self._part)}
        if self.is_cached:
            found["_filled"] = b.fetch(self.call.input(b, 3), self.call.at(3, ()), {})
        return found

    @property
    def is_causal(self) -> bool:
        """The last query sees all keys."""
        return False

    @property
    def _filled(self) -> Dim:
        """The number of valid keys of the part; parts beyond the length of a cache have none."""
        if not self.is_cached:
            return self.keys.size
        return maximum(0, minimum(self.keys.size, Dim.symbol("_filled") - Dim.symbol("_s")))

    @property
    def _end(self) -> Dim:
        return minimum(self._part, self._filled)

    @property
    def _head(self) -> Dim:
        return self._group * Dim.symbol("_g") + self.rows.at

    @property
    def _row_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), self._head, Dim.symbol("_part")]

    @property
    def _query_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), self._head, Dim.constant(0), self.head.at]

    @property
    def _key_at(self) -> list[Dim]:
        return [Dim.symbol("_b"), Dim.symbol("_g"), Dim.symbol("_s") + self.keys.at]


class _NarrowParts(_Parts, NarrowAttention):
    """The same on tensor cores, whose blocks have 64 rows: those beyond the group are read, but not stored."""

    @property
    def _candidates(self) -> tuple[int, ...]:
        return (64,)

    @property
    def _query_region(self) -> TileRegion:
        region = super()._query_region
        bounds = {**region.bounds, "_i": self.heads - self._group * Dim.symbol("_g")}
        return region.along(region.axes, region.sizes, bounds)

    def _quotient(self, acc: SSAValue, divisor: SSAValue) -> SSAValue:
        """One division per row: dividing the whole block would cost as much as several keys."""
        b = self.b
        inverse = b.elementwise("div", b.full(1.0, (self.rows.tile,), self.dtype), divisor)
        return b.elementwise("mul", acc, self._across(inverse, self.columns.tile))


ATTENTION_PARTS = LibraryKernel(
    "attention_parts",
    "Attention of single queries, each part of the keys by itself.",
    lambda call: [(_NarrowParts if is_narrow(call) else _Parts)(call).write()],
)


# Combining parts: each is weighed by its fraction of the sum of all exponentials, and they are added in order.

_BLOCK = 32
"""Parts whose maximum and sum are reduced together."""
_COLUMNS = 128


def _write_join(call: Call) -> list[SpecOp]:
    """Programs over batch, heads and columns; a loop over the parts carries the columns of the result."""
    (parts, lse), (out,) = call.operands, call.results
    count, width = parts.shape[2], parts.shape[3]
    columns = width.value if width.value and width.value <= 2 * _COLUMNS else _COLUMNS
    b = call.builder([*parts.shape[:2], width.ceildiv(columns)])
    start = b.index(Dim.symbol("_p") * columns, {"_p": b.program_id(2)})
    coords = {"_b": b.program_id(0), "_h": b.program_id(1), "_e": start}
    row, dtype = [Dim.symbol("_b"), Dim.symbol("_h")], lse.dtype.compute
    bounds = {} if width.value is not None and width.value % columns == 0 else {"_e": width}
    region = TileRegion(coords, ("_e",), (columns,), bounds)

    def logarithms(p: SSAValue) -> tuple[SSAValue, TileRegion]:
        at = TileRegion({**coords, "_s": p}, ("_s",), (_BLOCK,), {"_s": count})
        return b.cast(b.load(call.input(b, 1), call.at(1, [*row, Dim.symbol("_s")]), at), dtype), at

    def larger(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        found, at = logarithms(p)
        return [b.elementwise("max", carried[0], b.clip(found, "_s", _LOW, at))]

    low, high = b.index(0), b.index(count)
    tops = b.loop(low, high, _BLOCK, larger, [b.full(_LOW, (_BLOCK,), dtype)])[0]
    top = _finite(call, b, b.reduce(tops, "max", 0))

    def add_exponentials(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        found, at = logarithms(p)
        weights = b.elementwise("exp", b.elementwise("sub", found, b.broadcast(top, (_BLOCK,), ())))
        return [b.elementwise("add", carried[0], b.clip(weights, "_s", 0.0, at))]

    total = b.reduce(b.loop(low, high, _BLOCK, add_exponentials, [b.full(0.0, (_BLOCK,), dtype)])[0], "sum", 0)
    none = b.elementwise("eq", total, b.full(0.0, (), dtype))
    divisor = b.select(none, b.full(1.0, (), dtype), total)

    def add_weighted(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        at = [*row, Dim.symbol("_s")]
        one = b.cast(b.load(call.input(b, 1), call.at(1, at), TileRegion({**coords, "_s": p})), dtype)
        fraction = b.elementwise("div", b.elementwise("exp", b.elementwise("sub", one, top)), divisor)
        part = b.cast(b.load(call.input(b, 0), call.at(0, [*at, Dim.symbol("_e")]), region.with_coords(_s=p)), dtype)
        return [b.elementwise("fma", b.broadcast(fraction, (columns,), ()), part, carried[0])]

    acc = b.loop(low, high, 1, add_weighted, [b.full(0.0, (columns,), dtype)])[0]
    made, where = b.cast(acc, out.dtype), [*row, Dim.constant(0), Dim.symbol("_e")]
    if call.outputs[0] is not None:
        b.store(made, call.output(b, 0), where, region)
    if call.epilogue is not None:
        call.epilogue.store(b, made, region, where)
    return [b.finish()]


def _finite(call: Call, b: TileBuilder, top: SSAValue) -> SSAValue:
    """What to subtract: 0 where a maximum is -inf, since -inf - -inf is NaN."""
    dtype = call.operands[1].dtype.compute
    nothing = b.elementwise("eq", top, b.full(_LOW, (), dtype))
    return b.select(nothing, b.full(0.0, (), dtype), top)


ATTENTION_JOIN = LibraryKernel(
    "attention_join", "Parts of an attention, weighed by their fractions of the sum.", _write_join
)
