"""Attention in one pass over keys, as in FlashAttention-2 (Dao, 2023).

A program has a block of queries of one head. It loops over blocks of keys with an online softmax: a running maximum and
sum per row, and an accumulator that is rescaled whenever the maximum grows, so that scores are never stored. Scores are
kept in base 2: queries are scaled by `scale * log2(e)` once, masks by `log2(e)`, and `exp2` replaces `exp`. A causal
program ends its loop at the last key that its last query sees. On tensor cores (`NarrowAttention`) queries are
multiplied unscaled, and the scale goes into the argument of `exp2` as one multiply-add.

Attention that splits its keys (over a cache, or where the caller asks for it) goes over parts of the keys, each by
itself from nothing, and joins them in order. Maxima are integers there (rounded up, in base 2): the factors of a join
are powers of two, exact wherever they are computed. So a program with all parts has the bits of many programs with a
part each (`attention_parts.py`), and a row those of any block of queries it is in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion, tile_type
from tessera.stdlib.kernels.call import Call
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType, bf16, f16, f64
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

KEYS = 256
"""Keys of a block. It decides when the sum is rescaled, so it is part of the result (numeric), and never tuned."""
NARROW_KEYS = 128
"""The same for WGMMA."""
WARP_KEYS = 64
"""The same for `mma.sync`, whose machines have less shared memory, and for wide heads."""
LINE = 16
"""Keys of the narrowest block for WGMMA, and elements of K of an instruction."""
NARROW_HEAD, WIDE_HEAD = 128, 256
"""Head sizes up to which shared memory holds such blocks of keys, and up to which registers hold the accumulators."""
SMALL_HEAD = 64
SMALL_TIMES = {64: (2, 1.0, 3.0), 192: (1, 1.0, 2.3), 128: (1, 1.1, 2.6)}
"""Queries of a program with such heads: how many share a multiprocessor, what 64 of them take for a block of keys, and
for the start and the end of a program. Two CTAs with a warpgroup each are also the smallest, so that the last wave is
fuller, and causal programs, of which they are the best, have less of the diagonal; three warpgroups read keys a third
as often, which shows where keys are few. By 14 shapes on an H200, of 128 to 4697 keys."""
FEW_KEYS = 96
"""Keys up to which three programs of 64 queries are on a multiprocessor, where heads are small as well. 1000 x 8 heads
of 100 queries to 60 keys took 205 us on an H200, and 142 with blocks of 128, which copy keys once."""
QUERIES = (128, 64, 32, 96)
"""Candidates for the queries of a block, which change only the speed."""
THREAD_QUERIES = (32, 64, 128)
"""The same for GPU kernels without tensor cores, where lengths are not known."""
_WHOLE = 256
"""A head up to this size is one tile; a larger or dynamic one is processed in parts."""
_PART = 64
_THREAD_PART = 32
"""Columns of such a part without tensor cores."""
NARROW_BITS = 16
"""Bits of a result up to which a reciprocal that was rounded to f32 is as good as a division."""
_LOG2E = math.log2(math.e)
_LN2 = math.log(2)
_LOW = float("-inf")


def bounds_of(name: str, size: Dim, tile: int) -> dict[str, Dim]:
    """The bound of an axis, where tiles may reach beyond it: none of nothing fits."""
    return {} if size.value and size.value % tile == 0 else {name: size}


@frozen
class Extent:
    """A dim cut into tiles: `bounds` is empty where they always fit."""

    name: str
    size: Dim
    tile: int

    @property
    def at(self) -> Dim:
        return Dim.symbol(self.name)

    @property
    def bounds(self) -> dict[str, Dim]:
        return bounds_of(self.name, self.size, self.tile)

    @property
    def is_one(self) -> bool:
        return self.size.value is not None and self.size.value <= self.tile


@frozen
class QueryView:
    """Where queries are: shapes that their arguments are seen as, the index of a query there, and bounds of tiles."""

    shapes: Mapping[int, Sequence[Dim]]
    at: Sequence[Dim]
    bounds: Mapping[str, Dim]


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
        self.rows = Extent("_i", self._row_count, int(call.choose("attention.queries", self._candidates)))
        self.keys: Extent = Extent("_j", self._key_count, self.width)
        self.head = self._in_tiles("_d", q.shape[3], _THREAD_PART if self.is_by_threads else _PART)
        self.columns: Extent = self._in_tiles("_e", v.shape[3], _PART)
        # Values of no columns still have rows to store: log-sum-exps, or maxima and sums.
        columns = self.columns.size if len(call.results) == 1 else maximum(self.columns.size, 1)
        parts = [] if self.columns.is_one else [columns.ceildiv(self.columns.tile)]
        self.grid = self._grid()
        self.queries = self._view_queries()
        self.b: TileBuilder = call.builder([*self.grid, *parts], shapes=self.queries.shapes, warps=self.warps)
        self.coords = self._coordinates()
        # A head of one part starts at 0.
        self.coords["_e"] = self.b.index(0) if self.columns.is_one else self._start(len(self.grid), _PART)
        self.factor = self._make_factor()

    @property
    def warps(self) -> int:
        """Warps of a program, 0 where the backend says."""
        return 0

    def _in_tiles(self, name: str, size: Dim, part: int) -> Extent:
        """The size of a head: one tile, or parts."""
        return Extent(name, size, size.value if size.value and self._is_whole(size.value) else part)

    def _is_whole(self, size: int) -> bool:
        if not self.is_by_threads or self.call.machine.shared == 0:
            return size <= _WHOLE
        # Rows that a warp cannot share evenly are held by single threads, which is good for few of them only; a dot has
        # both operands in shared memory.
        return (size < _PART or size % 32 == 0) and self._bytes(self.rows.tile, size) <= self.call.machine.shared

    def _bytes(self, rows: int, size: int) -> int:
        """Shared memory that dots by threads have their operands in, of so many columns."""
        item = self.dtype.bytes
        scores = rows * size * item + self.width * (size * item + 16)
        return max(scores, rows * (self.width * item + 16) + self.width * size * item)

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

    def _view_queries(self) -> QueryView:
        """Where queries are in their argument."""
        return QueryView({}, self.call.at(0, self._query_at), self._make_bounds(self.rows, self.head))

    @property
    def _key_at(self) -> list[Dim]:
        """The index of a key and its value, without the last axis."""
        return [Dim.symbol("_b"), Dim.symbol("_g"), self.keys.at]

    @property
    def is_cached(self) -> bool:
        """Whether keys come from a KV cache, whose filled length is an operand."""
        return is_cached(self.call)

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

    def _make_keys_region(self, other: Extent, **coords: SSAValue) -> TileRegion:
        """A block of keys (or values): keys that no query of the block sees are not read."""
        region = self._make_region(self.keys, other, **coords)
        bounds = {**region.bounds, "_j": self._end} if self.is_causal or self.is_cached else region.bounds
        return region.along(region.axes, region.sizes, bounds)

    def _make_bounds(self, *extents: Extent) -> dict[str, Dim]:
        return {name: bound for extent in extents for name, bound in extent.bounds.items()}

    def _make_region(self, *extents: Extent, **coords: SSAValue) -> TileRegion:
        names, sizes = tuple(extent.name for extent in extents), tuple(extent.tile for extent in extents)
        return TileRegion({**self.coords, **coords}, names, sizes, self._make_bounds(*extents))

    def write(self) -> SpecOp:
        b = self.b
        first = self._queries(b.index(0)) if self._has_first else None
        self._finish(*self._attend_all(first))
        return b.finish()

    @property
    def is_split(self) -> bool:
        """Whether keys are taken in parts, which are joined."""
        return self.part > 0

    @property
    def part(self) -> int:
        """Keys of a part, 0 where all are taken in one pass. It decides where sums are joined, so it is not tuned."""
        return int(self.call.attributes.get("part", 0))

    def _attend_all(self, first: SSAValue | None) -> list[SSAValue]:
        """The accumulator, the maximum and the sum of all keys that a query of the block sees."""
        b, end = self.b, self._round_up(self._end, self.width)
        if not self.is_split or (self.keys.size.value is not None and self.keys.size.value <= self.part):
            return self._attend(first, b.index(0), b.index(end, self.coords))

        def attend_part(s: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            stop = minimum(Dim.symbol("_s") + self.part, end)
            return join_parts(b, carried, self._attend(first, s, b.index(stop, {**self.coords, "_s": s})))

        return b.loop(b.index(0), b.index(end, self.coords), self.part, attend_part, self._nothing())

    def _nothing(self) -> list[SSAValue]:
        b, rows = self.b, self.rows.tile
        start = [b.full(0.0, (rows, self.columns.tile), self.dtype), b.full(_LOW, (rows,), self.dtype)]
        return [*start, b.full(0.0, (rows,), self.dtype)]

    def _attend(self, first: SSAValue | None, low: SSAValue, high: SSAValue) -> list[SSAValue]:
        """The same of some keys alone."""

        def block(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            return self._attend_block(first, j, carried)

        return self.b.loop(low, high, self.width, block, self._nothing())

    def _attend_block(self, first: SSAValue | None, j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return self._accumulate(self._mask(self._scores(first, j), j), j, carried)

    def _finish(self, *found: SSAValue) -> None:
        """Store the result, and the log-sum-exp where one is wanted."""
        acc, top, total = found
        if self.call.outputs[0] is not None or self.call.epilogue is not None:
            self._store(acc, self._divisor(total))
        self._finish_rows(top, total)

    def _divisor(self, total: SSAValue) -> SSAValue:
        """Sums, with 1 for a query that sees no key: it has a sum of 0, and gives 0."""
        b, rows = self.b, self.rows.tile
        none = b.elementwise("eq", total, b.full(0.0, (rows,), self.dtype))
        return b.select(none, b.full(1.0, (rows,), self.dtype), total)

    def _store(self, acc: SSAValue, divisor: SSAValue) -> None:
        b, epilogue = self.b, self.call.epilogue
        out = b.cast(self._quotient(acc, divisor), self.call.results[0].dtype)
        region, at = self._make_region(self.rows, self.columns), [*self._row_at, self.columns.at]
        if self.call.outputs[0] is not None:
            b.store(out, self.call.output(b, 0), at, region)
        if epilogue is not None:
            epilogue.store(b, out, region, at)

    def _finish_rows(self, top: SSAValue, total: SSAValue) -> None:
        """Store the log-sum-exps, where they are wanted."""
        b = self.b
        if len(self.call.results) > 1 and self.call.outputs[1] is not None:
            lse = b.elementwise("add", self._natural(top), b.elementwise("log", total))
            self._store_rows(lse, self.call.output(b, 1))

    def _quotient(self, acc: SSAValue, divisor: SSAValue) -> SSAValue:
        return divide_rows(self.b, acc, divisor, self.call.results[0].dtype, is_split=self.is_split)

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
        q = self._load_queries(d)
        return self.b.elementwise("mul", q, self._scale(self._make_region(self.rows, self.head)))

    def _load_queries(self, d: SSAValue) -> SSAValue:
        b = self.b
        region = self._make_region(self.rows, self.head, _d=d)
        region = region.along(region.axes, region.sizes, self.queries.bounds)
        return b.cast(b.load(self.call.input(b, 0), self.queries.at, region), self.dtype)

    def _scale(self, region: TileRegion) -> SSAValue:
        if isinstance(self.factor, SSAValue):
            return self.b.broadcast(self.factor, region.sizes, ())
        return self.b.full(self.factor, region.sizes, self.dtype)

    def _make_factor(self) -> float | SSAValue:
        """The scale in base 2."""
        return self._make_scale(_LOG2E)

    def _make_scale(self, base: float) -> float | SSAValue:
        """The scale times a number, in f64 and rounded once: the same for a head dim that is known here or in a run."""
        b, given, size = self.b, self.call.attributes["scale"], self.head.size
        if given is None and size.value is not None:
            given = 1.0 / math.sqrt(max(size.value, 1))
        if given is not None:
            return float(given * base)
        count = b.coordinate_of(maximum(size, 1), TileRegion(self.coords, (), (), {}))
        scale = b.elementwise("div", b.full(1.0, (), f64), b.elementwise("sqrt", b.cast(count, f64)))
        return b.cast(b.elementwise("mul", scale, b.full(base, (), f64)), self.dtype)

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

        scores = b.full(0.0, (self.rows.tile, self.keys.tile), self.dtype)
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
            tile = b.cast(
                b.load(self.call.input(b, number), self.call.at(number, self._mask_at(mask)), region), self.dtype
            )
            scores = b.elementwise("fma", tile, b.full(_LOG2E, region.sizes, self.dtype), scores)
        seen = self._filled if self.is_cached else region.bounds.get("_j")
        if self.is_causal:
            seen = minimum(self._filled, self._seen)
        if seen is None:
            return scores
        return b.clip(scores, "_j", _LOW, region.along(region.axes, region.sizes, {"_j": seen}))

    def _mask_at(self, mask: TensorType) -> list[Dim]:
        """The index of a mask: trailing dims of [b, h, i, j], a static 1 is broadcast."""
        names = ("_b", "_h", "_i", "_j")[4 - mask.rank :]
        return [
            Dim.constant(0) if dim.value == 1 else Dim.symbol(name) for name, dim in zip(names, mask.shape, strict=True)
        ]

    def _accumulate(self, scores: SSAValue, j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        """The online softmax: sums so far are rescaled to the new maximum, then this block is added."""
        acc, top, total = carried
        weights, kept, new, total = self._weigh(scores, top, total)
        return [self._add_values(weights, kept, j, acc), new, total]

    def _weigh(self, scores: SSAValue, top: SSAValue, total: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue, SSAValue]:
        """The weights of a block, what sums so far are rescaled by, and the new maximum and sum."""
        b = self.b
        new = b.elementwise("max", top, self._top_of(scores))
        weights, kept = self._exp2(scores, top, self._shift(new))
        total = b.elementwise("add", b.elementwise("mul", total, kept), b.reduce(weights, "sum", 1))
        return weights, kept, new, total

    def _shift(self, top: SSAValue) -> SSAValue:
        """What is subtracted from scores: 0 in rows that have seen no key, as -inf - -inf would be NaN."""
        b, rows = self.b, self.rows.tile
        nothing = b.elementwise("eq", top, b.full(_LOW, (rows,), self.dtype))
        return b.select(nothing, b.full(0.0, (rows,), self.dtype), top)

    def _add_values(self, weights: SSAValue, kept: SSAValue, j: SSAValue, acc: SSAValue) -> SSAValue:
        """The accumulator, rescaled, and the weighted values of a block."""
        acc = self.b.elementwise("mul", acc, self._across(kept, self.columns.tile))
        return self._multiply(weights, j, acc)

    def _multiply(self, weights: SSAValue, j: SSAValue, acc: SSAValue) -> SSAValue:
        """The accumulator and the weighted values of a block."""
        b = self.b
        at = self.call.at(2, [*self._key_at, self.columns.at])
        v = b.load(self.call.input(b, 2), at, self._make_keys_region(self.columns, _j=j))
        return b.dot(self._left(weights), b.cast(v, self.dtype), acc)

    def _top_of(self, scores: SSAValue) -> SSAValue:
        """What rows of scores are compared by: their maximum, or the next integer where keys are split."""
        found = self.b.reduce(scores, "max", 1)
        return self.b.elementwise("ceil", found) if self.is_split else found

    def _exp2(self, scores: SSAValue, top: SSAValue, shift: SSAValue) -> tuple[SSAValue, SSAValue]:
        """`exp2` of the scores, and of the maximum so far, minus the shift."""
        b = self.b
        weights = b.elementwise("exp2", b.elementwise("sub", scores, self._across(shift, self.keys.tile)))
        return weights, b.elementwise("exp2", b.elementwise("sub", top, shift))

    def _left(self, weights: SSAValue) -> SSAValue:
        """The weights as the left operand of the dot with values."""
        return weights


def join_parts(b: TileBuilder, before: Sequence[SSAValue], part: Sequence[SSAValue]) -> list[SSAValue]:
    """Accumulators, maxima and sums of parts so far, and of one more."""
    (acc, top, total), (more, other, added) = before, part
    new = b.elementwise("max", top, other)

    def across(rows: SSAValue) -> SSAValue:
        return b.broadcast(rows, tile_type(acc).shape, range(tile_type(rows).rank))

    kept, taken = join_factors(b, (top, other), new)
    total = b.elementwise("add", b.elementwise("mul", total, kept), b.elementwise("mul", added, taken))
    acc = b.elementwise("fma", more, across(taken), b.elementwise("mul", acc, across(kept)))
    return [acc, new, total]


def join_factors(b: TileBuilder, tops: Sequence[SSAValue], new: SSAValue) -> list[SSAValue]:
    """What was summed with maxima is multiplied by, for their maximum `new`.

    Differences of maxima are integers, and factors below the smallest normal number are 0: powers of two are exact,
    whether the machine's own exp2 gives them or a polynomial.
    """
    type = tile_type(new)
    zero, lowest = b.full(0.0, type.shape, type.dtype), -126.0 if type.dtype.bits == 32 else -1022.0
    # Where nothing was seen yet 0 is subtracted: -inf - -inf would be NaN.
    shift = b.select(b.elementwise("eq", new, b.full(_LOW, type.shape, type.dtype)), zero, new)

    def factor(old: SSAValue) -> SSAValue:
        change = b.elementwise("sub", old, shift)
        is_lost = b.elementwise("lt", change, b.full(lowest, type.shape, type.dtype))
        return b.select(is_lost, zero, b.elementwise("exp2", change))

    return [factor(top) for top in tops]


def divide_rows(b: TileBuilder, acc: SSAValue, divisor: SSAValue, dtype: DType, *, is_split: bool) -> SSAValue:
    """Accumulators over the sums of their rows, before they are rounded to a dtype.

    Rows of parts that become two bytes are multiplied by the reciprocal of their sum, rounded to f32: kernels for one
    query and for many, on threads or on tensor cores, have the same bits then, and a row has one division.
    """
    rows, type = tile_type(divisor), tile_type(acc)
    axes = range(rows.rank)
    if not is_split or dtype.bits > NARROW_BITS:
        return b.elementwise("div", acc, b.broadcast(divisor, type.shape, axes))
    inverse = b.elementwise("div", b.full(1.0, rows.shape, rows.dtype), divisor)
    return b.elementwise("mul", acc, b.broadcast(inverse, type.shape, axes))


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
        has_wgmma, count = "wgmma" in self.call.features, self.call.operands[1].shape[2].value
        # Keys that a whole block has more are masked, and add 0 to what is there: bits are the same without them.
        return min(self._most_keys, -(-count // LINE) * LINE) if has_wgmma and count else self._most_keys

    @property
    def _most_keys(self) -> int:
        """Keys of a whole block."""
        return NARROW_KEYS if "wgmma" in self.call.features and self._head_size <= NARROW_HEAD else WARP_KEYS

    @property
    def _head_size(self) -> int:
        return self.call.operands[0].shape[3].value or 0

    def _in_tiles(self, name: str, size: Dim, part: int) -> Extent:
        """Heads are whole tiles: what is copied beyond their end are zeros, which add nothing."""
        return Extent(name, size, -(-(size.value or part) // LINE) * LINE)

    @property
    def _candidates(self) -> tuple[int, ...]:
        rows = self._row_count.value
        if rows is not None and (rows <= 64 or (self._waits_most and -(-rows // 64) % 2)):
            return (64, 128)
        if self._head_size != SMALL_HEAD:
            return (128, 64)
        # Registers of three warpgroups hold no second accumulator, and no mask.
        is_plain = not self.is_split and not self._masks and (self._key_count.value or 1) % self.width == 0
        sizes = [size for size in SMALL_TIMES if size <= 128 or is_plain]
        return tuple(sizes if self.is_causal else sorted(sizes, key=self._time_of))

    @property
    def _waits_most(self) -> bool:
        """Whether keys are so few that programs wait for most of their time, and rows that are none cost as others."""
        return 0 < (self._key_count.value or 0) <= min(self.width, FEW_KEYS)

    def _time_of(self, size: int) -> float:
        """How long all programs of so many queries take, in blocks of 64 queries by keys on a multiprocessor."""
        beside, block, start = SMALL_TIMES[size]
        queries, keys = self._row_count.value, self._key_count.value
        heads = (self.batch * self.heads).value
        if queries is None or keys is None or heads is None:
            return float(size)
        tiles, machines = -(-queries // size), max(1, self.call.machine.blocks) * beside
        waves, blocks = -(-heads * tiles // machines), -(-keys // self.width) * self.width / self._most_keys
        return waves * beside * size / 64 * (block * blocks + start)

    def _queries(self, d: SSAValue) -> SSAValue:
        return self._load_queries(d)

    def _view_queries(self) -> QueryView:
        """Queries as TMA copies them: rows walk a dim of their own, which views of one query or of heads do not have.

        A single query walks a dim of 1. Heads that lie side by side in the last dim of their argument, as in the result
        of one projection, walk the first of the two dims that it is seen as; rows beyond are read, and not stored.
        """
        view, number = super()._view_queries(), self.call.inputs[0]
        shape, at, rows = list(self.call.arguments[number].shape), list(view.at), self.rows.at
        if self.call.epilogue is not None or self.call.inputs.count(number) > 1:
            return view
        walked = [dim for dim, expr in enumerate(at) if self.rows.name in expr.symbols]
        if not walked and self.rows.size.value == 1:
            return QueryView({number: [*shape[:-1], Dim.constant(1), shape[-1]]}, [*at[:-1], rows, at[-1]], view.bounds)
        heads, size = at[-1] - self.head.at, self.head.size
        is_aside = (
            walked == [len(shape) - 1] and (heads // size) * size == heads and (shape[-1] // size) * size == shape[-1]
        )
        if not is_aside:
            return view
        count, first = shape[-1] // size, heads // size
        bounds = {**view.bounds, self.rows.name: count - first.substitute({self.rows.name: Dim.constant(0)})}
        return QueryView({number: [*shape[:-1], count, size]}, [*at[:-1], first, self.head.at], bounds)

    def _make_keys_region(self, other: Extent, **coords: SSAValue) -> TileRegion:
        region = self._make_region(self.keys, other, **coords)
        # Whole blocks are read, except beyond the length of a cache.
        bounds = {**region.bounds, "_j": self._filled} if self.is_cached else region.bounds
        return region.along(region.axes, region.sizes, bounds)

    @property
    def _is_masked(self) -> bool:
        return bool(self._masks)

    def _attend(self, first: SSAValue | None, low: SSAValue, high: SSAValue) -> list[SSAValue]:
        """Keys of one block are all there are: nothing was summed before that would be rescaled."""
        is_able = "wgmma" in self.call.features and not self.is_cached
        if not is_able or not 0 < (self.keys.size.value or 0) <= self.width:
            return super()._attend(first, low, high)
        b = self.b
        none = b.full(0.0, (self.rows.tile, self.columns.tile), self.dtype)
        scores = self._mask(self._scores(first, low), low)
        top = self._top_of(scores)
        weights, _ = self._exp2(scores, top, self._shift(top))
        return [self._multiply(weights, low, none), top, b.reduce(weights, "sum", 1)]

    def _mask(self, scores: SSAValue, j: SSAValue) -> SSAValue:
        if self._is_masked:
            scores = self.b.elementwise("mul", scores, self._scale(self._make_region(self.rows, self.keys, _j=j)))
        return super()._mask(scores, j)

    def _top_of(self, scores: SSAValue) -> SSAValue:
        if self._is_masked or not self.is_split:
            return super()._top_of(scores)
        b = self.b
        top = b.elementwise("mul", b.reduce(scores, "max", 1), self._scale(self._make_region(self.rows)))
        return b.elementwise("ceil", top)

    def _exp2(self, scores: SSAValue, top: SSAValue, shift: SSAValue) -> tuple[SSAValue, SSAValue]:
        if self._is_masked:
            return super()._exp2(scores, top, shift)
        b, rows = self.b, self._make_region(self.rows)
        scale = self._scale(rows)
        # Maxima of parts are scaled already.
        lowered = b.elementwise("neg", shift if self.is_split else b.elementwise("mul", shift, scale))
        wide = self._scale(self._make_region(self.rows, self.keys, _j=b.index(0)))
        weights = b.elementwise("exp2", b.elementwise("fma", scores, wide, self._across(lowered, self.width)))
        change = b.elementwise("sub", top, shift)
        if not self.is_split:
            # The difference is scaled, and not each of both: rows whose maximum stays are kept as they are. A block of
            # which a row sees no key changes no bit then, whatever rows share the program.
            change = b.elementwise("mul", change, scale)
        return weights, b.elementwise("exp2", change)

    def _left(self, weights: SSAValue) -> SSAValue:
        return self.b.cast(self.b.cast(weights, self.call.operands[2].dtype), self.dtype)

    def _natural(self, top: SSAValue) -> SSAValue:
        if self._is_masked or self.is_split:
            return super()._natural(top)
        b, rows = self.b, self._make_region(self.rows)
        factor = b.elementwise("mul", self._scale(rows), b.full(_LN2, rows.sizes, self.dtype))
        return b.elementwise("mul", top, factor)


def is_cached(call: Call) -> bool:
    """Whether keys come from a KV cache, whose filled length is an operand."""
    return len(call.operands) > 3 and call.operands[3].dtype.is_integer


def is_narrow(call: Call) -> bool:
    """Whether the call runs on tensor cores: 2-byte floats, a supported head, an order-preserving scale."""
    given, head = call.attributes["scale"], call.operands[0].shape[3].value
    dtypes = {operand.dtype for operand in call.operands[:3]}
    # A head is a multiple of a swizzle line of shared memory, 128 bytes; TMA fills the last line of a head with zeros,
    # whose rows begin at multiples of 16 bytes.
    line = 8 if "wgmma" in call.features else 64
    widest = WIDE_HEAD if "wgmma" in call.features else NARROW_HEAD
    fits = head is not None and head % line == 0 and call.operands[2].shape[3].value == head and head <= widest
    # Memory beyond the length of a cache must not be read, and only TMA copies can be bounded by it; only they go on
    # from one part of the keys to the next.
    is_whole = not is_cached(call) and not call.attributes.get("part")
    fits = fits and (is_whole or "wgmma" in call.features)
    return "mma.sync" in call.features and dtypes <= {bf16, f16} and len(dtypes) == 1 and fits and (given or 1.0) > 0
