"""Radix sorts by all threads of a program: a pass over the row for each byte of its keys, the lowest byte first.

Keys are ordered as unsigned integers: floats by their bits, with both zeros as one, and NaN behind all numbers. One
read of the row counts the bytes of all passes. A pass goes through the row in parts of a few elements to a thread. Each
warp finds among its own elements, 32 neighbours at a time, how many before each have the same byte: lanes with the same
byte know each other by a ballot for every bit of it. Counts of all warps, summed in order, then say where each element
goes. So equal keys stay in order, and all threads do the same work at any data. A part of a longer row is put in order
in shared memory first, so that neighbours in memory are written by neighbours among threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tessera.backends.nvptx import values
from tessera.backends.nvptx.text import ALL_LANES, WARP, assembly, shuffle, special, warp_barrier
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of
from tessera.ir.target.llvm.vector_ops import KeySort
from tessera.types.dtype import DType, f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

ITEMS = 8
"""Elements of a part that a thread has: as many registers for keys, indices, bytes and ranks each."""
LEAST = 1024
"""Elements of a row from which on passes cost less than merges: about 10 of those."""
MOST_BITS = 32
"""Bits of keys up to which passes are fewer than merges."""
_BITS, DIGITS = 8, 256
"""Bits of a digit, and how many digits there are."""


_INFINITY, _MISSING = 0x7F800000, 0xFFFF0000
"""The bits of infinity in f32, beyond which there are no numbers, and the order of what is none, behind that of all."""


def has_radix_sort(dtype: DType, count: int | None) -> bool:
    """Whether a row is sorted by the bytes of its keys: enough of them, and of few bytes each."""
    # Narrower floats are compared in f32.
    is_ordered = dtype is f32 if dtype.is_float else dtype.bytes * 8 <= MOST_BITS
    return count is not None and LEAST <= count < 1 << 31 and is_ordered


class RadixSort(KeySort):
    """One sort, written; `lines` are pointers to keys and indices, and to spare memory for both.

    Where the spare memory is that of keys and indices themselves, a row is one part, which threads hold meanwhile.
    """

    def __init__(self, emitter: Emitter, dtype: DType, index: DType, descending: bool) -> None:
        super().__init__(emitter.f, dtype, descending, values.memory_type(dtype), values.memory_type(index))
        f, self.emitter = emitter.f, emitter
        self.passes, self.warps = -(-dtype.bits // _BITS), emitter.threads // WARP
        self.lane, self.warp = f.urem(emitter.thread, WARP), f.udiv(emitter.thread, WARP)
        self.below = special(f, "lanemask.lt")
        self.size = emitter.threads * ITEMS
        """Elements of a part."""

    def _place(self, is_in_place: bool) -> None:
        """Lay out shared memory: totals of passes, counts of warps, and for longer rows shifts and a part."""
        f, numbers = self.f, DIGITS * (self.passes + self.warps)
        own = 0 if is_in_place else 2 * DIGITS * 4 + self.size * (bytes_of(self.element) + bytes_of(self.index_type))
        self.totals = self.emitter.exchange(4 * numbers + own)
        self.counts = f.gep(self.totals, f.add(f.mul(self.warp, DIGITS), DIGITS * self.passes), "i32")
        """Where this warp counts the digits of its elements."""
        self.sums, self.shifts = (f.gep(self.totals, numbers + at * DIGITS, "i32") for at in range(2))
        """How many elements of a part have each digit, and how far they go from where they are in it."""
        staged = f.gep(self.shifts, DIGITS, "i32")
        self.staged = f.gep(staged, f.mul(self.size, bytes_of(self.index_type)), "i8"), staged
        """Keys and indices of a part, indices first: these are the wider ones."""

    def write(self, lines: list[Value], count: Value) -> None:
        f, emitter = self.f, self.emitter
        self._place(lines[0] == lines[2])
        self._count_digits(lines[0], count)
        self._sum_digits(count)
        now, size = lines, self.size
        is_in_place = lines[0] == lines[2]

        def move(number: int, now: list[Value]) -> list[Value]:
            f.loop(0, count, size, lambda at: self._move_part(now, number, at, count))
            emitter.wait()
            return [] if is_in_place else [*now[2:], *now[:2]]

        for number in range(self.passes):
            needed = f.icmp("ne", f.load(self._total(number, DIGITS - 1), "i32"), f.const("i32", 0))
            found = f.if_(
                needed,
                lambda number=number, now=now: move(number, now),
                lambda now=now: [] if is_in_place else now,
            )
            now = found or now
        last, last_indices, *_ = now

        def copy_back(at: Value) -> None:
            self.put(lines[0], lines[1], at, self.key(last, at), self.index(last_indices, at))

        if not is_in_place:
            f.if_(
                f.icmp("ne", last, lines[0]),
                lambda: f.loop(emitter.thread, count, emitter.threads, copy_back) and None,
            )

    # What a key is.

    def order(self, key: Value) -> Value:
        """A key as an i32 in whose order, without a sign, elements are sorted.

        Bits that are 0 in all numbers are 0 in all of these, so that passes over them are left out.
        """
        f, size = self.f, 8 * bytes_of(self.element)
        word = f.bitcast(key, f"i{size}")
        word = word if size == 32 else f.cast("zext", word, "i32")
        sign = f.const("i32", 1 << size - 1)
        if self.dtype.is_float:
            magnitude = f.op("and", word, f.const("i32", (1 << size - 1) - 1))
            is_missing = f.icmp("ugt", magnitude, f.const("i32", _INFINITY))
            is_below = f.icmp("eq" if self.descending else "ne", f.op("and", word, sign), f.const("i32", 0))
            moved = [f.op(name, sign, magnitude) for name in ("sub", "add")]
            return f.select(is_missing, f.const("i32", _MISSING), f.select(is_below, moved[0], moved[1]))
        if self.dtype.kind == "int":
            word = f.op("xor", word, sign)
        return f.op("xor", word, f.const("i32", (1 << size) - 1)) if self.descending else word

    def digit(self, order: Value, number: int) -> Value:
        f = self.f
        return f.op("and", f.op("lshr", order, f.const("i32", _BITS * number)), f.const("i32", DIGITS - 1))

    # How many have each digit.

    def _total(self, number: int, digit: Index | Value) -> Value:
        """Where the total of a digit is, of a pass by its number: then the start of its elements."""
        f = self.f
        at = f.cast("zext", digit, "i64") if isinstance(digit, Value) and digit.type == "i32" else digit
        return f.gep(self.totals, f.add(at, number * DIGITS), "i32")

    def _count_digits(self, keys: Value, count: Value) -> None:
        f, emitter = self.f, self.emitter
        zero, one = f.const("i32", 0), f.const("i32", 1)
        f.loop(
            emitter.thread,
            DIGITS * self.passes,
            emitter.threads,
            lambda at: f.store(zero, f.gep(self.totals, at, "i32")),
        )
        emitter.wait()
        last = f.sub(count, 1)

        def count_some(at: Value) -> None:
            places = [f.add(at, number * emitter.threads) for number in range(ITEMS)]
            orders = [self.order(self.key(keys, f.smin(place, last))) for place in places]
            for place, order in zip(places, orders, strict=True):

                def add(order: Value = order) -> None:
                    for number in range(self.passes):
                        f.atomic("add", self._total(number, self.digit(order, number)), one)

                f.if_(f.icmp("slt", place, count), add)

        f.loop(emitter.thread, count, emitter.threads * ITEMS, count_some)
        emitter.wait()

    def _sum_lanes(self, value: Value) -> Value:
        """The sum of a value over the lanes up to this one."""
        f, gap = self.f, 1
        while gap < WARP:
            other = f.call(
                "llvm.nvvm.shfl.sync.up.i32", [ALL_LANES, value, Value("i32", str(gap)), Value("i32", "0")], "i32"
            )
            value = f.select(f.icmp("sge", self.lane, gap), f.op("add", value, other), value)
            gap *= 2
        return value

    def _sum_digits(self, count: Value) -> None:
        """The totals of each pass become what is before: one warp has those of a pass, a few neighbours to a lane.

        Where all elements have one digit, those are all 0, so that a pass is left out which would move nothing.
        """
        f, each = self.f, DIGITS // WARP

        def sum_pass() -> None:
            first = f.add(f.mul(self.warp, DIGITS), f.mul(self.lane, each))
            places = [f.gep(self.totals, f.add(first, number), "i32") for number in range(each)]
            found = [f.load(place, "i32") for place in places]
            own = found[0]
            for value in found[1:]:
                own = f.op("add", own, value)
            before = f.op("sub", self._sum_lanes(own), own)
            whole = f.cast("trunc", count, "i32")
            is_one = f.const("i1", False)
            for value in found:
                is_one = f.op("or", is_one, f.icmp("eq", value, whole))
            votes = f.call("llvm.nvvm.vote.ballot.sync", [ALL_LANES, is_one], "i32")
            is_needed = f.icmp("eq", votes, f.const("i32", 0))
            before, *found = (f.select(is_needed, value, f.const("i32", 0)) for value in (before, *found))
            for place, value in zip(places, found, strict=True):
                f.store(before, place)
                before = f.op("add", before, value)

        f.if_(f.icmp("slt", self.warp, self.passes), sum_pass)
        self.emitter.wait()

    # A pass.

    def _move_part(self, lines: list[Value], number: int, start: Value, count: Value) -> None:
        """The elements of one part to where their digits say."""
        f, emitter = self.f, self.emitter
        first = f.add(f.add(start, f.mul(self.warp, WARP * ITEMS)), self.lane)
        last = f.sub(count, 1)
        places = [f.add(first, WARP * item) for item in range(ITEMS)]
        read = [f.smin(place, last) for place in places]
        keys, indices = ([find(line, place) for place in read] for find, line in zip(
            (self.key, self.index), lines[:2], strict=True))  # fmt: skip
        is_there = [f.icmp("slt", place, count) for place in places]
        # What is beyond the end has the last digit, and comes behind all who have it too.
        beyond = f.const("i32", DIGITS - 1)
        digits = [
            f.select(inside, self.digit(self.order(key), number), beyond)
            for key, inside in zip(keys, is_there, strict=True)
        ]
        ranks = self._rank(digits)
        emitter.wait()
        if lines[0] != lines[2]:
            self._sum_part(number)
            self._put_in_order(keys, indices, digits, ranks)
            self._write_part(lines, number, start, count)
            return
        total = self._total(number, emitter.thread)

        def sum_warps() -> None:
            f.store(self._sum_warps(f.load(total, "i32")), total)

        f.if_(f.icmp("slt", emitter.thread, DIGITS), sum_warps)
        emitter.wait()
        for key, index, digit, rank, inside in zip(keys, indices, digits, ranks, is_there, strict=True):
            at = f.cast("zext", f.op("add", f.load(self._count(digit), "i32"), rank), "i64")
            f.if_(inside, partial(self.put, lines[2], lines[3], at, key, index))

    # Parts of a row that goes through memory.

    def _sum_part(self, number: int) -> None:
        """Where the digits of a part begin in it, and how far that is from where they go."""
        f, emitter, thread = self.f, self.emitter, self.emitter.thread
        has_digit = f.icmp("slt", thread, DIGITS)
        own = f.gep(self.sums, thread, "i32")

        def sum_own() -> None:
            counts = [f.load(self._total(self.passes + warp, thread), "i32") for warp in range(self.warps)]
            total = counts[0]
            for value in counts[1:]:
                total = f.op("add", total, value)
            f.store(total, own)

        def find_starts() -> None:
            total = f.load(own, "i32")
            before = f.const("i32", 0)
            for warp in range(DIGITS // WARP - 1):
                other = f.load(f.gep(self.sums, f.add(self.lane, warp * WARP), "i32"), "i32")
                before = f.op("add", before, f.select(f.icmp("sgt", self.warp, warp), other, f.const("i32", 0)))
            for lanes in (16, 8, 4, 2, 1):
                before = f.op("add", before, shuffle(f, before, "bfly", lanes))
            start = f.op("sub", f.op("add", before, self._sum_lanes(total)), total)
            place = self._total(number, thread)
            goes = f.load(place, "i32")
            f.store(f.op("sub", goes, start), f.gep(self.shifts, thread, "i32"))
            f.store(f.op("add", goes, total), place)
            self._sum_warps(start)

        f.if_(has_digit, sum_own)
        emitter.wait()
        f.if_(has_digit, find_starts)
        emitter.wait()

    def _put_in_order(self, keys: list[Value], indices: list[Value], digits: list[Value], ranks: list[Value]) -> None:
        """The elements of a part to shared memory, in the order of their digits."""
        f = self.f
        for key, index, digit, rank in zip(keys, indices, digits, ranks, strict=True):
            at = f.cast("zext", f.op("add", f.load(self._count(digit), "i32"), rank), "i64")
            self.put(self.staged[0], self.staged[1], at, key, index)
        self.emitter.wait()

    def _write_part(self, lines: list[Value], number: int, start: Value, count: Value) -> None:
        """The elements of a part from shared memory to where they go; what is beyond the end is behind all others."""
        f, emitter = self.f, self.emitter
        there = f.sub(count, start)
        for item in range(ITEMS):
            at = f.add(emitter.thread, item * emitter.threads)

            def write(at: Value = at) -> None:
                key, index = self.key(self.staged[0], at), self.index(self.staged[1], at)
                digit = f.cast("zext", self.digit(self.order(key), number), "i64")
                shift = f.cast("sext", f.load(f.gep(self.shifts, digit, "i32"), "i32"), "i64")
                self.put(lines[2], lines[3], f.add(at, shift), key, index)

            f.if_(f.icmp("slt", at, there), write)

    def _count(self, digit: Value) -> Value:
        return self.f.gep(self.counts, self.f.cast("zext", digit, "i64"), "i32")

    def _rank(self, digits: list[Value]) -> list[Value]:
        """How many elements of this warp are before each that have the same digit; counts are those of all then."""
        f = self.f
        warp_barrier(f)
        for at in range(DIGITS // WARP):
            f.store(f.const("i32", 0), f.gep(self.counts, f.add(self.lane, at * WARP), "i32"))
        warp_barrier(f)
        found: list[Value] = []
        for digit in digits:
            same = self._same(digit)
            place = self._count(digit)
            rank = f.op("add", f.load(place, "i32"), f.intrinsic("ctpop", f.op("and", same, self.below)))
            warp_barrier(f)
            above = f.op("lshr", same, f.cast("trunc", f.index(self.lane), "i32"))
            is_last = f.icmp("eq", above, f.const("i32", 1))
            f.if_(is_last, lambda rank=rank, place=place: f.store(f.op("add", rank, f.const("i32", 1)), place))
            warp_barrier(f)
            found.append(rank)
        return found

    def _same(self, digit: Value) -> Value:
        """The lanes that have the same digit as this one, as bits."""
        # Two instructions beside the test and the vote of a bit: LLVM makes three of what has no assembly.
        bits = [
            f"and.b32 B, $1, {1 << bit}; setp.ne.u32 P, B, 0; vote.sync.ballot.b32 V, P, -1; "
            "selp.b32 B, -1, 0, P; xor.b32 V, V, B; or.b32 D, D, V;"
            for bit in range(_BITS)
        ]
        text = f"{{ .reg .pred P; .reg .b32 B, V, D; mov.b32 D, 0; {' '.join(bits)} not.b32 $0, D; }}"
        return assembly(self.f, text, "=r,r", [digit], "i32")

    def _sum_warps(self, start: Value) -> Value:
        """The counts of a digit by all warps become where the elements of each begin, from `start` on; the end."""
        f, thread = self.f, self.emitter.thread
        places = [self._total(self.passes + warp, thread) for warp in range(self.warps)]
        counts = [f.load(place, "i32") for place in places]
        for place, found in zip(places, counts, strict=True):
            f.store(start, place)
            start = f.op("add", start, found)
        return start
