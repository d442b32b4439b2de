"""The stable sort of `ttarget.sort` as LLVM text: by the bytes of keys, or short lines by runs that are merged.

A run is sorted by counting, for a vector of its keys at a time, which of its keys come before each of them: as many
comparisons as pairs, and none that a branch depends on. A long line is sorted by one byte of its keys after the other,
from the lowest: each pass counts nothing, since all are counted in one read before, and writes every element once,
without a comparison or a branch that data decide.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tessera.backends.cpu.registers import leave_when_stopped, loop_in_strips
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.convert import storage_type
from tessera.ir.target.llvm.instructions import Value, bytes_of, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import KeySort
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.ir.target import typed_ops as ttarget

RUN = 32
"""Elements sorted by counting before anything is merged."""
_SHORT = 128
"""Lines that are merged: the counts of all bytes cost more than their few merges."""
_BYTE = 256
"""Values of a byte, each with a counter."""


def emit_sort(emitter: Any, op: ttarget.SortOp) -> None:
    """A call of the sort of this dtype, written once in a module."""
    f: FunctionText = emitter.f
    buffers = [emitter.buffers[value] for value in op.operands[:4]]
    for buffer in buffers:
        emitter.settle(buffer)
    type, index_type = op.operands[0].type, op.operands[1].type
    assert isinstance(type, BufferAttr)
    assert isinstance(index_type, BufferAttr)
    arguments = [("ptr", name) for name in ("keys", "indices", "spare_keys", "spare_indices")]
    dtype, descending = type.dtype, bool(op.descending)
    index = storage_type(index_type.dtype)
    key = ("sort", dtype.name, index, descending)

    def write(g: FunctionText) -> None:
        LineSort(g, dtype, descending, storage_type(dtype), index).write()

    name = f.module.outline(key, f"sort_{dtype.name}", [*arguments, ("i64", "count")], write)
    f.call(name, [*buffers, f.index(emitter.indices[op.operands[4]])])


_PART = 1 << 18
"""Elements of each of two runs that are merged at a time: some milliseconds."""


@frozen
class _Run:
    """Memory for one run: its elements, their keys as integers, and how many come before each."""

    keys: Value
    indices: Value
    ranks: Value
    targets: Value


class LineSort(KeySort):
    """Writes one sort."""

    def write(self) -> None:
        f = self.f
        *lines, count = f.arguments
        f.if_(
            f.icmp("slt", count, _SHORT),
            lambda: self._write_merges(lines, count),
            lambda: self._write_digits(lines, count),
        )
        f.ret()

    def _write_digits(self, lines: list[Value], count: Value) -> None:
        """One byte of the keys after the other, from the lowest: how often each is there, then all to new indices."""
        f, digits = self.f, bytes_of(self.element)
        counts, keys = f.alloca("i64", _BYTE * digits), lines[0]
        f.loop(0, _BYTE * digits, 1, lambda at: f.store(f.const_i(0), f.gep(counts, at, "i64")))

        def count_digits(at: Value, _: list[Value]) -> list[Value]:
            rank = self._rank(self.key(keys, at))
            for digit in range(digits):
                self._increase(f.gep(counts, digit * _BYTE, "i64"), self._digit(rank, digit))
            return []

        loop_in_strips(f, 0, count, 1, count_digits, [])
        now = list(lines)
        for digit in range(digits):
            own = f.gep(counts, digit * _BYTE, "i64")
            some = self._digit(self._rank(self.key(now[0], 0)), digit)
            # Where all have the same byte, they stay as they are.
            is_mixed = f.icmp("ne", f.load(f.gep(own, some, "i64"), "i64"), count)
            now = f.if_(is_mixed, partial(self._move_by_digit, now, own, digit, count), partial(list[Value], now))
        self._copy_back(lines, now, count)

    def _move_by_digit(self, lines: list[Value], counts: Value, digit: int, count: Value) -> list[Value]:
        f = self.f

        def start_after(at: Value, before: list[Value]) -> list[Value]:
            slot = f.gep(counts, at, "i64")
            number = f.load(slot, "i64")
            f.store(before[0], slot)
            return [f.add(before[0], number)]

        f.loop(0, _BYTE, 1, start_after, [f.const_i(0)])

        def move(at: Value, _: list[Value]) -> list[Value]:
            key = self.key(lines[0], at)
            target = self._increase(counts, self._digit(self._rank(key), digit))
            self.put(lines[2], lines[3], target, key, self.index(lines[1], at))
            return []

        loop_in_strips(f, 0, count, 1, move, [])
        return [*lines[2:], *lines[:2]]

    def _increase(self, counts: Value, at: Value) -> Value:
        """One more in a counter; what it was before."""
        f = self.f
        slot = f.gep(counts, at, "i64")
        number = f.load(slot, "i64")
        f.store(f.add(number, 1), slot)
        return number

    def _rank(self, key: Value) -> Value:
        """Keys as unsigned integers in the order of the sort: NaN is the largest, and both zeros are one."""
        f, bits = self.f, 8 * bytes_of(self.element)
        type_ = vector(f"i{bits}", key.lanes)
        if not self.dtype.is_float:
            rank = f.op("xor", key, f.const_like(key, 1 << bits - 1)) if self.dtype.kind == "int" else key
            return f.op("xor", rank, f.const_like(key, -1)) if self.descending else rank
        whole = f.bitcast(f.op("fadd", key, f.const_like(key, 0.0)), type_)
        sign = f.op("ashr", whole, f.const_like(whole, bits - 1))
        rank = f.op("xor", whole, f.op("or", sign, f.const_like(whole, 1 << bits - 1)))
        rank = f.op("xor", rank, f.const_like(whole, -1)) if self.descending else rank
        return f.select(f.fcmp("uno", key, key), f.const_like(whole, -1), rank)

    def _digit(self, rank: Value, digit: int) -> Value:
        f, type_ = self.f, f"i{8 * bytes_of(self.element)}"
        moved = f.op("lshr", rank, f.const(type_, 8 * digit)) if digit else rank
        low = moved if type_ == "i8" else f.cast("trunc", moved, "i8")
        return f.cast("zext", low, "i64")

    def _write_merges(self, lines: list[Value], count: Value) -> None:
        """Runs by counting, then merged in pairs."""
        f = self.f
        keys, indices, spare_keys, spare_indices = lines
        run = _Run(*(f.alloca(type_, RUN) for type_ in (self.element, self.index_type, self._bits, self._bits)))

        def sort(low: Value, _: list[Value]) -> list[Value]:
            self._sort_run(run, f.gep(keys, low, self.element), f.gep(indices, low, self.index_type), f.sub(count, low))
            return []

        loop_in_strips(f, 0, count, RUN, sort, [], has_loops=True)

        def merge_all(state: list[Value]) -> list[Value]:
            width, *lines = state
            double = f.mul(width, 2)

            def merge(low: Value) -> None:
                is_due = f.icmp("eq", f.op("and", low, f.const_i(_PART - 1)), 0)
                leave_when_stopped(f, f.select(is_due, low, f.const_i(0)))
                middle = f.smin(f.add(low, width), count)
                self._merge(lines, low, middle, f.smin(f.add(low, double), count))

            f.loop(0, count, double, merge)
            return [double, *lines[2:], *lines[:2]]

        start = [f.const_i(RUN), keys, indices, spare_keys, spare_indices]
        _, *now = f.while_(start, lambda state: f.icmp("slt", state[0], count), merge_all)
        self._copy_back(lines, now, count)

    def _copy_back(self, lines: list[Value], now: list[Value], count: Value) -> None:
        """What was sorted to where it was taken from, if it is not there."""
        f = self.f
        keys, indices, *_ = lines
        last, last_indices, *_ = now

        def copy() -> None:
            f.call("memcpy", [keys, last, f.mul(count, bytes_of(self.element))], "ptr")
            f.call("memcpy", [indices, last_indices, f.mul(count, bytes_of(self.index_type))], "ptr")

        f.if_(f.icmp("ne", last, keys), copy)

    @property
    def _bits(self) -> str:
        return f"i{8 * bytes_of(self.element)}"

    def _sort_run(self, run: _Run, keys: Value, indices: Value, beyond: Value) -> None:
        """The first elements of a row, `RUN` of them or all, each to where as many are as come before it."""
        f, lanes = self.f, min(RUN, self.f.target.lanes_for(self.element))
        type_, count = vector(self._bits, lanes), f.smin(beyond, RUN)

        def keep(at: Value) -> None:
            inside = f.lane_mask(f.sub(count, at), lanes)
            own = f.masked_load(f.gep(keys, at, self.element), vector(self.element, lanes), inside)
            f.store(own, f.gep(run.keys, at, self.element))
            f.store(self._rank(own), f.gep(run.ranks, at, self._bits))
            found = f.masked_load(f.gep(indices, at, self.index_type), vector(self.index_type, lanes), inside)
            f.store(found, f.gep(run.indices, at, self.index_type))

        def number(at: Value) -> Value:
            return f.splat(at if self._bits == "i64" else f.cast("trunc", at, self._bits), lanes)

        def compare(at: Value) -> None:
            own = f.load(f.gep(run.ranks, at, self._bits), type_)
            position = f.op("add", f.iota(self._bits, lanes), number(at))

            def count_one(other: Value, before: list[Value]) -> list[Value]:
                rank = f.splat(f.load(f.gep(run.ranks, other, self._bits), self._bits), lanes)
                # Of equal ones the first stays the first.
                is_first = f.op("and", f.icmp("eq", rank, own), f.icmp("ult", number(other), position))
                is_before = f.op("or", f.icmp("ult", rank, own), is_first)
                return [f.op("add", before[0], f.cast("zext", is_before, type_))]

            (before,) = f.loop(0, count, 1, count_one, [Value(type_, "zeroinitializer")])
            f.store(before, f.gep(run.targets, at, self._bits))

        def move(at: Value) -> None:
            target = f.load(f.gep(run.targets, at, self._bits), self._bits)
            target = target if self._bits == "i64" else f.cast("zext", target, "i64")
            self.put(keys, indices, target, self.key(run.keys, at), self.index(run.indices, at))

        f.loop(0, count, lanes, keep)
        f.loop(0, count, lanes, compare)
        f.loop(0, count, 1, move)

    def _merge(self, lines: list[Value], low: Value, middle: Value, high: Value) -> None:
        """Two neighbouring runs, into the same range of the other row."""
        f = self.f
        keys, indices, to_keys, to_indices = lines

        def are_before(state: list[Value], ends: list[Value]) -> Value:
            return f.op("and", *(f.icmp("slt", at, end) for at, end in zip(state, ends, strict=True)))

        def step(state: list[Value]) -> list[Value]:
            left, right = state
            a, b = self.key(keys, left), self.key(keys, right)
            # An element of the right run is taken only if it must come first: equal ones stay in order.
            is_right = self.is_before(b, a)
            taken = f.select(is_right, right, left)
            index = self.index(indices, taken)
            self.put(to_keys, to_indices, f.sub(f.add(left, right), middle), f.select(is_right, b, a), index)
            one = f.cast("zext", is_right, "i64")
            return [f.add(left, f.sub(1, one)), f.add(right, one)]

        def part(state: list[Value]) -> list[Value]:
            """Some of both runs: a long merge sees between two parts that its call is stopped."""
            ends = [f.smin(f.add(at, _PART), end) for at, end in zip(state, (middle, high), strict=True)]
            leave_when_stopped(f, f.sub(f.add(*state), f.add(low, middle)))
            return f.while_(state, lambda here: are_before(here, ends), step)

        left, right = f.while_([low, middle], lambda state: are_before(state, [middle, high]), part)

        def copy_remainder(begin: Value, end: Value, shift: Value) -> None:
            """The remainder of one run; `shift` is how far it moves."""

            def copy(at: Value) -> None:
                self.put(to_keys, to_indices, f.add(at, shift), self.key(keys, at), self.index(indices, at))

            f.loop(begin, end, 1, copy)

        copy_remainder(left, middle, f.sub(right, middle))
        copy_remainder(right, high, f.sub(left, middle))
