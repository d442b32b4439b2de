"""Sorts by all threads of a program: runs in registers, then merges of which every thread has parts of one length.

A thread sorts runs of a few neighbours in registers by exchanges of neighbours, which keep equal ones in order. Then
pairs of runs are merged, with a barrier after each length. A thread has as many neighbours of what a merge gives as it
has of a run: where they come from in both runs is found by a binary search along the diagonal of the merge, whatever
their lengths, and from there on it takes the next of either. So all threads do the same work at any data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.backends.nvptx import values
from tessera.backends.nvptx.emit_radix import DIGITS, RadixSort, has_radix_sort
from tessera.ir.base.types import shaped_type
from tessera.ir.target import typed_ops as ops
from tessera.ir.target.llvm.instructions import Value, constant_of
from tessera.ir.target.llvm.vector_ops import KeySort
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

RUN = 8
"""Neighbours that a thread has: of a run, and of what a merge gives."""
_TRUE = Value("i1", "true")


def emit_sort(emitter: Emitter, op: ops.SortOp) -> None:
    """A stable sort of keys and their indices: by merges, or by the bytes of keys where those are fewer passes."""
    lines = [emitter.buffers[value] for value in (op.keys, op.indices, op.spare_keys, op.spare_indices)]
    dtypes = shaped_type(op.keys).dtype, shaped_type(op.indices).dtype
    count = emitter.f.index(emitter.indices[op.count])
    by_bytes = emitter.threads >= DIGITS and has_radix_sort(dtypes[0], constant_of(count))
    sort = (RadixSort if by_bytes else BlockSort)(emitter, *dtypes, bool(op.descending))
    sort.write(lines, count)


class BlockSort(KeySort):
    """One sort, written; `lines` are pointers to keys and indices, and to spare memory for both."""

    def __init__(self, emitter: Emitter, dtype: DType, index: DType, descending: bool) -> None:
        super().__init__(emitter.f, dtype, descending, values.memory_type(dtype), values.memory_type(index))
        self.emitter = emitter

    def write(self, lines: list[Value], count: Value) -> None:
        f, emitter = self.f, self.emitter
        keys, indices, _, _ = lines
        first, step = f.mul(emitter.thread, RUN), f.index(emitter.threads * RUN)
        f.loop(first, count, step, lambda at: self._sort_run(keys, indices, at, count))
        emitter.wait()

        def merge(state: list[Value]) -> list[Value]:
            width, *now = state
            f.loop(first, count, step, lambda at: self._merge(now, at, width, count))
            emitter.wait()
            return [f.mul(width, 2), *now[2:], *now[:2]]

        _, last, last_indices, *_ = f.while_(
            [f.const_i(RUN), *lines], lambda state: f.icmp("slt", state[0], count), merge
        )

        def copy_back(at: Value) -> None:
            self.put(keys, indices, at, self.key(last, at), self.index(last_indices, at))

        f.if_(f.icmp("ne", last, keys), lambda: f.loop(emitter.thread, count, emitter.threads, copy_back) and None)

    def _put_there(self, keys: Value, indices: Value, at: Value, end: Value, found: list[tuple[Value, Value]]) -> None:
        """Neighbours from `at` on, as far as they are before `end`."""
        f = self.f
        for number, (key, index) in enumerate(found):
            there = f.add(at, number)
            is_there = f.icmp("slt", there, end)
            f.if_(is_there, lambda there=there, key=key, index=index: self.put(keys, indices, there, key, index))

    def _sort_run(self, keys: Value, indices: Value, at: Value, count: Value) -> None:
        """One run: neighbours are swapped where the second must come first, as often as there are elements."""
        f = self.f
        last = f.sub(count, 1)
        places = [f.smin(f.add(at, number), last) for number in range(RUN)]
        found = [(self.key(keys, place), self.index(indices, place)) for place in places]
        # What is beyond the end comes before nothing, and stays where it is.
        is_there = [f.icmp("slt", f.add(at, number), count) for number in range(RUN)]
        for step in range(RUN):
            for left in range(step % 2, RUN - 1, 2):
                (a, a_index), (b, b_index) = found[left], found[left + 1]
                goes = f.op("and", is_there[left + 1], self.is_before(b, a))
                found[left] = f.select(goes, b, a), f.select(goes, b_index, a_index)
                found[left + 1] = f.select(goes, a, b), f.select(goes, a_index, b_index)
        self._put_there(keys, indices, at, count, found)

    def _merge(self, lines: list[Value], at: Value, width: Value, count: Value) -> None:
        """Some neighbours of what the merge of two runs gives; of equal ones those of the left run go first."""
        f = self.f
        keys, indices, to_keys, to_indices = lines
        double = f.mul(width, 2)
        low = f.mul(f.udiv(at, double), double)
        middle, high = f.smin(f.add(low, width), count), f.smin(f.add(low, double), count)
        left, right = self._split(keys, f.sub(at, low), low, middle, high)
        last_left, last_right = f.sub(middle, 1), f.sub(high, 1)
        a, b = self.key(keys, f.smin(left, last_left)), self.key(keys, f.smin(right, last_right))
        taken: list[tuple[Value, Value]] = []
        for _ in range(RUN):
            is_over = f.icmp("sge", left, middle)
            is_right = f.op("or", is_over, self.is_before(b, a))
            is_right = f.op("and", is_right, f.icmp("slt", right, high))
            taken.append((f.select(is_right, b, a), f.smin(f.select(is_right, right, left), last_right)))
            one = f.cast("zext", is_right, "i64")
            left, right = f.add(left, f.sub(1, one)), f.add(right, one)
            following = self.key(keys, f.select(is_right, f.smin(right, last_right), f.smin(left, last_left)))
            a, b = f.select(is_right, a, following), f.select(is_right, following, b)
        found = [(key, self.index(indices, place)) for key, place in taken]
        self._put_there(to_keys, to_indices, at, high, found)

    def _split(self, keys: Value, diagonal: Value, low: Value, middle: Value, high: Value) -> tuple[Value, Value]:
        """Where both runs are when so many of their elements are merged: as many of the left one as can go first."""
        f = self.f
        begin = f.smax(f.sub(diagonal, f.sub(high, middle)), 0)
        end = f.smin(diagonal, f.sub(middle, low))

        def narrow(state: list[Value]) -> list[Value]:
            first, last = state
            half = f.udiv(f.add(first, last), 2)
            own = self.key(keys, f.add(low, half))
            other = self.key(keys, f.sub(f.add(middle, f.sub(diagonal, 1)), half))
            goes = f.op("xor", self.is_before(other, own), _TRUE)
            return [f.select(goes, f.add(half, 1), first), f.select(goes, last, half)]

        found, _ = f.while_([begin, end], lambda state: f.icmp("slt", state[0], state[1]), narrow)
        return f.add(low, found), f.sub(f.add(middle, diagonal), found)
