"""Attention on GPUs without tensor cores, of lengths that are known: programs whose blocks fit the lengths.

A program of few scores has four warps and half of the shared memory of a multiprocessor, so that two run there: while
one waits for keys or values the other multiplies. One of 64 queries has eight and runs alone, but reads less of shared
memory for each multiply-add, which is what limits both. A block has 256 keys, which decides when sums are rescaled, but
what it lacks of them would only add zeros: the last block of a program has as many keys as are left, in powers of two,
and the bits of a whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from xdsl.ir import SSAValue

from tessera.stdlib.kernels.attention import KEYS, Attention, Extent, NarrowAttention, is_cached, is_narrow
from tessera.stdlib.kernels.attention_parts import GroupedAttention
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, next_power_of_two
from tessera.types.dtype import f32

QUERIES = (32, 64, 16, 8)
"""Candidates for the queries of a block, which change only the speed."""
LEAST_KEYS = 32
"""Keys of the narrowest block."""
PIECE = 64
"""Columns of values that are in shared memory together, where a whole head is too large."""
SCORES = 64 * 256
"""Scores that the threads of a program hold at most."""
SMALL_SCORES, SMALL_HELD = 64 * 128, 100 * 128
"""What four warps hold at most: scores, and these and accumulators."""
LOADED, AHEAD = 128, 64
"""Elements of a tile that a thread holds on its way to shared memory, and while it multiplies another."""
STEP, STREAMED_ROWS, STREAMED_HEAD = 32, 32, 256
"""Elements of K of a step in which dots copy what they multiply, two at least, rows from which on they do, and columns
of which threads have accumulators."""
ALONE, BESIDE = 24, 3
"""How many queries more a program would have in the time that it waits for others: 24 alone, and beside another a third
of the columns of a head up to that, by times of 32 and 64 queries on an H200. Threads that hold 16 x 4 scores read 20
numbers of shared memory for 64 multiply-adds, which takes longer than these: narrower pieces of values cost more."""
LONELY = 52
"""The same where dots copy in steps, and shared memory holds no second program that multiplies meanwhile: with heads of
192, blocks of 64 queries took 1.04 and 1.13 times as long on an H200 as those of 32."""
_BLOCK_BYTES = 1024
"""Shared memory that a block has beside its own."""


def block_of(count: int) -> int:
    """Keys of a block that has at least so many, up to a whole one."""
    return min(KEYS, max(LEAST_KEYS, next_power_of_two(count)))


class ThreadAttention(Attention):
    """Emits one kernel; a program has a block of queries of one head, and all columns of the values."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        size, start = self.columns.size.value or 1, 0
        whole = self._is_whole(size)
        self.pieces: list[tuple[int, Extent]] = [(0, self.columns)] if whole else []
        while not whole and start < size:
            tile = min(PIECE, max(16, next_power_of_two(size - start)))
            self.pieces.append((start, Extent(self.columns.name, self.columns.size, tile)))
            start += tile

    @property
    def width(self) -> int:
        return block_of(self._key_count.value or KEYS)

    @property
    def warps(self) -> int:
        return self._warps_of(self.rows.tile)

    def _warps_of(self, rows: int) -> int:
        """Four where a thread holds what it must of so many queries; 0 leaves it to the backend, which has eight."""
        columns = self.call.operands[2].shape[3].value or 1
        scores, sums = rows * self.width, rows * columns
        return 4 if scores <= SMALL_SCORES and scores + sums <= SMALL_HELD else 0

    def _in_tiles(self, name: str, size: Dim, part: int) -> Extent:
        if name == "_e":
            return Extent(name, size, size.value or 1)
        # Parts that leave nothing over: what is left would have code of its own.
        return super()._in_tiles(name, size, part if (size.value or 0) % 16 else gcd(size.value or part, part))

    def _is_whole(self, size: int) -> bool:
        """Whether a head is one tile: threads hold it on the way to shared memory, which holds both operands of dots.

        Rows that a warp cannot share evenly are held by single threads, which is good for few of them only.
        """
        if self._streams:
            return self._streamed_bytes(self.rows.tile, size) <= self.call.machine.shared
        is_even, rows = size < PIECE or size % 32 == 0, self.rows.tile
        return is_even and self._is_held(size, LOADED) and self._bytes(rows, size) <= self._most_bytes(rows)

    def _is_held(self, size: int, most: int) -> bool:
        """Whether a thread holds at most so many elements of a tile of keys or values."""
        return self.width * size <= most * 32 * (self._warps_of(self.rows.tile) or 8)

    @property
    def _prefetches(self) -> bool:
        """Whether registers hold a tile while another is multiplied, so that it is loaded before that."""
        fits = self._is_held(max(self.head.tile, self.columns.size.value or 1), AHEAD)
        return self.head.is_one and len(self.pieces) == 1 and fits and not self._streams

    @property
    def _streams(self) -> bool:
        return self._streams_of(self.rows.tile)

    def _streams_of(self, rows: int) -> bool:
        """Whether keys and values are copied in steps of K while others are multiplied, and are in no registers."""
        operands = self.call.operands[:3]
        sizes = [operands[number].shape[3].value or 1 for number in (0, 2)]
        is_plain = all(operand.dtype is f32 for operand in operands)
        is_long = rows >= STREAMED_ROWS and self.width >= 2 * STEP <= sizes[0]
        return is_plain and is_long and all(size % STEP == 0 and size <= STREAMED_HEAD for size in sizes)

    def _streamed_bytes(self, rows: int, size: int) -> int:
        """Shared memory of such dots: an operand in whole, with padding, and two steps of the other."""
        item = self.dtype.bytes
        scores = rows * (size * item + 16) + 2 * self.width * (STEP * item + 4)
        return max(scores, rows * (self.width * item + 16) + 2 * STEP * size * item)

    def _most_bytes(self, rows: int) -> int:
        """Shared memory of a program: half of what there is, where it has four warps."""
        most = self.call.machine.shared
        return most // 2 - _BLOCK_BYTES if self._warps_of(rows) and most > 2 * _BLOCK_BYTES else most

    @property
    def _candidates(self) -> tuple[int, ...]:
        # Threads hold all scores of their queries.
        held = [rows for rows in QUERIES if rows * self.width <= SCORES]
        return tuple(sorted(held, key=self._time_of))

    def _time_of(self, rows: int) -> int:
        """How long all programs of so many queries take, in queries: those of the last that are none count as well."""
        heads, count = (self.batch * self.heads).value or 1, self._row_count.value or 1
        programs, machines = heads * -(-count // rows), max(1, self.call.machine.blocks)
        beside = min(2 if self._warps_of(rows) else 1, -(-programs // machines))
        rounds = -(-programs // (machines * beside))
        columns, half = self.call.operands[2].shape[3].value or 1, self.call.machine.shared // 2 - _BLOCK_BYTES
        if self._streams_of(rows) and self._streamed_bytes(rows, columns) > half:
            return rounds * (rows + LONELY)
        return rounds * beside * (rows + (min(ALONE, columns // BESIDE) if beside > 1 else ALONE))

    def _attend_all(self, first: SSAValue | None) -> list[SSAValue]:
        count = self.keys.size.value or 0
        if not count:
            return self._nothing()
        if not self.is_causal or count <= PIECE:
            return self._attend_to(first, count)
        # Programs see any number of keys: whole blocks, where more than half of the last is seen, and then halves.
        keys, found, at = self.keys, self._nothing(), Dim.constant(0)
        for tile in (KEYS, KEYS // 2, KEYS // 4):
            if tile <= block_of(count):
                self.keys = Extent(keys.name, keys.size, tile)
                unseen = tile // 2 if tile > KEYS // 4 else 0
                length = maximum(0, self._end - at + (tile - 1 - unseen)) // tile * tile
                found, at = self._loop(first, at, length, found), at + length
        self.keys = keys
        return found

    def _loop(self, first: SSAValue | None, at: Dim, length: Dim, carried: list[SSAValue]) -> list[SSAValue]:
        """Blocks of keys from one on, of a length that they have in all; the first keys of the next are carried."""
        b, tile = self.b, self.keys.tile
        prefetches = tile == KEYS and self._prefetches and self.call.operands[1].dtype is self.dtype

        def place(more: int, step: SSAValue) -> SSAValue:
            return b.index(at + Dim.symbol("_step") + more, {**self.coords, "_step": step})

        def block(step: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            if not prefetches:
                return self._attend_block(first, place(0, step), carried)
            following: list[SSAValue] = []

            def load() -> None:
                following.append(self._load_keys(place(tile, step), self._end))

            *sums, keys = carried
            return [*self._attend_block(first, place(0, step), sums, keys, load), *following]

        start = [self._load_keys(b.index(at, self.coords), self._end)] if prefetches else []
        found = b.loop(b.index(0), b.index(length, self.coords), tile, block, [*carried, *start])
        return found[: len(carried)]

    def _attend_to(self, first: SSAValue | None, count: int) -> list[SSAValue]:
        """All keys: whole blocks, then one of as many as are left."""
        b, end, keys = self.b, count // KEYS * KEYS, self.keys
        found = self._nothing()
        if end:
            found = self._loop(first, Dim.constant(0), Dim.constant(end), found)
        if end < count:
            self.keys = Extent(keys.name, keys.size, block_of(count - end))
            found = self._attend_block(first, b.index(end), found)
            self.keys = keys
        return found

    def _nothing(self) -> list[SSAValue]:
        _, *rows = super()._nothing()
        b = self.b
        return [*(b.full(0.0, (self.rows.tile, piece.tile), self.dtype) for _, piece in self.pieces), *rows]

    def _attend_block(
        self,
        first: SSAValue | None,
        j: SSAValue,
        carried: list[SSAValue],
        keys: SSAValue | None = None,
        prefetch: Callable[[], None] = lambda: None,
    ) -> list[SSAValue]:
        """Scores, softmax, sums; values are loaded before scores where registers hold them; `prefetch` before sums."""
        b, (*sums, top, total) = self.b, carried
        scores, values = self._score(first, j, keys)
        weights, kept, new, total = self._weigh(self._mask(scores, j), top, total)
        prefetch()
        found: list[SSAValue] = []
        for number, acc in enumerate(sums):
            values = values or self._load_values(number, j)
            self._choose(number)
            scaled = b.elementwise("mul", acc, self._across(kept, self.columns.tile))
            made, values = b.dot(weights, values, scaled), None
            if self.keys.tile < KEYS:
                # Keys that a whole block has more add 0: that leaves all numbers but -0, which is 0 then.
                made = b.elementwise("add", made, b.full(0.0, (self.rows.tile, self.columns.tile), self.dtype))
            found.append(made)
        return [*found, new, total]

    def _score(self, first: SSAValue | None, j: SSAValue, keys: SSAValue | None) -> tuple[SSAValue, SSAValue | None]:
        """The scores of a block, and its values where they are loaded already."""
        if not self._prefetches or first is None:
            return self._scores(first, j), None
        b = self.b
        keys = keys or self._load_keys(j)
        values = self._load_values(0, j)
        nothing = b.full(0.0, (self.rows.tile, self.keys.tile), self.dtype)
        return b.dot(first, b.transpose(keys), nothing), values

    def _load_keys(self, j: SSAValue, end: Dim | None = None) -> SSAValue:
        """A block of keys, up to `end` where it may be beyond it."""
        b, at = self.b, self.call.at(1, [*self._key_at, self.head.at])
        region = self._make_keys_region(self.head, _j=j, _d=b.index(0))
        if end is not None:
            region = region.along(region.axes, region.sizes, {**region.bounds, "_j": end})
        return b.cast(b.load(self.call.input(b, 1), at, region), self.dtype)

    def _load_values(self, number: int, j: SSAValue) -> SSAValue:
        """A piece of the values."""
        self._choose(number)
        b, at = self.b, self.call.at(2, [*self._key_at, self.columns.at])
        return b.cast(b.load(self.call.input(b, 2), at, self._make_keys_region(self.columns, _j=j)), self.dtype)

    def _choose(self, number: int) -> None:
        """Have columns be those of a piece."""
        start, self.columns = self.pieces[number]
        self.coords["_e"] = self.b.index(start)

    def _finish(self, *found: SSAValue) -> None:
        *sums, top, total = found
        if self.call.outputs[0] is not None or self.call.epilogue is not None:
            divisor = self._divisor(total)
            for number, acc in enumerate(sums):
                self._choose(number)
                self._store(acc, divisor)
        self._choose(0)
        if len(self.pieces) > 1:
            self.columns = Extent(self.columns.name, self.columns.size, self.columns.size.value or 1)
        self._finish_rows(top, total)


def _is_known(call: Call) -> bool:
    """Whether threads of a GPU compute it, in f32, of lengths that are known, and in one pass."""
    shapes = [dim.value for operand in call.operands[:3] for dim in operand.shape[2:]]
    is_one = not is_cached(call) and not call.attributes.get("part")
    is_single = call.operands[0].dtype.compute.bits == 32
    return call.lanes == 32 and is_one and is_single and all(shapes) and call.machine.shared > 0


def _kind_of(call: Call) -> type[Attention]:
    if is_narrow(call):
        return GroupedAttention if GroupedAttention.takes(call) else NarrowAttention
    return ThreadAttention if _is_known(call) else Attention


ATTENTION = LibraryKernel(
    "attention",
    "softmax(q kT * scale + mask) v, in one pass over the keys.",
    lambda call: [_kind_of(call)(call).write()],
)
