"""Indices read from memory, and the merge sort behind `ttarget.sort`: runs by insertion, then merged to and fro."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.convert import storage_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType

RUN = 8
"""Elements sorted by insertion before anything is merged."""


def emit_fetch(emitter: Any, op: SpecOp) -> None:
    """A scalar load, made 64 bits wide."""
    f: FunctionText = emitter.f
    buffer = op.operands[0].type
    assert isinstance(buffer, BufferAttr)
    element = storage_type(buffer.dtype)
    offset = dim_value(f, op.value("offset"), emitter.env_of(op, op.value("coords"), 1))
    loaded = f.load(f.gep(emitter.buffers[op.operands[0]], offset, element), element)
    emitter.indices[op.result] = f.cast("sext" if buffer.dtype.kind == "int" else "zext", loaded, "i64")


def emit_sort(emitter: Any, op: SpecOp) -> None:
    """A call of the sort of this dtype, written once in a module."""
    f: FunctionText = emitter.f
    buffers = [emitter.buffers[value] for value in op.operands[:4]]
    for buffer in buffers:
        emitter.settle(buffer)
    type = op.operands[0].type
    assert isinstance(type, BufferAttr)
    arguments = [("ptr", name) for name in ("keys", "places", "spare_keys", "spare_places")]
    sort = _Sort(type.dtype, bool(op.value("descending")))
    key = ("sort", type.dtype.name, sort.descending)
    name = f.module.outline(key, f"sort_{type.dtype.name}", [*arguments, ("i64", "count")], sort.write)
    f.call(name, [*buffers, f.index(emitter.indices[op.operands[4]])])


class _Sort:
    """The writing of one sort; lines of memory are pairs of pointers, to keys and to places."""

    def __init__(self, dtype: DType, descending: bool) -> None:
        self.dtype, self.descending = dtype, descending
        self.element = storage_type(dtype)

    def write(self, f: FunctionText) -> None:
        self.f = f
        keys, places, spare_keys, spare_places, count = f.arguments
        f.loop(0, count, RUN, lambda low: self._insert(keys, places, low, f.smin(f.add(low, RUN), count)))

        def merge_all(state: list[Value]) -> list[Value]:
            width, *lines = state
            double = f.mul(width, 2)

            def merge(low: Value) -> None:
                middle = f.smin(f.add(low, width), count)
                self._merge(lines, low, middle, f.smin(f.add(low, double), count))

            f.loop(0, count, double, merge)
            return [double, *lines[2:], *lines[:2]]

        start = [f.const_i(RUN), keys, places, spare_keys, spare_places]
        _, last, last_places, *_ = f.while_(start, lambda state: f.icmp("slt", state[0], count), merge_all)

        def bring_back() -> None:
            f.call("memcpy", [keys, last, f.mul(count, bytes_of(self.element))], "ptr")
            f.call("memcpy", [places, last_places, f.mul(count, 8)], "ptr")

        f.if_(f.icmp("ne", last, keys), bring_back)
        f.ret()

    def _is_before(self, a: Value, b: Value) -> Value:
        """Whether `a` must stand in front of `b`; NaN stands in front of nothing, all numbers in front of it."""
        f = self.f
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "int" else "u"
            return f.icmp(f"{sign}gt" if self.descending else f"{sign}lt", a, b)
        ordered = f.fcmp("ogt" if self.descending else "olt", a, b)
        missing = f.op("and", f.fcmp("ord", a, a), f.fcmp("uno", b, b))
        return f.op("or", ordered, missing)

    def _key(self, keys: Value, at: Index) -> Value:
        return self.f.load(self.f.gep(keys, at, self.element), self.element)

    def _put(self, keys: Value, places: Value, at: Index, key: Value, place: Value) -> None:
        self.f.store(key, self.f.gep(keys, at, self.element))
        self.f.store(place, self.f.gep(places, at, "i64"))

    def _insert(self, keys: Value, places: Value, low: Value, high: Value) -> None:
        f = self.f

        def take(at: Value) -> None:
            key, place = self._key(keys, at), f.load(f.gep(places, at, "i64"), "i64")

            def is_larger_before(state: list[Value]) -> Value:
                (hole,) = state
                return f.if_(
                    f.icmp("sgt", hole, low),
                    lambda: self._is_before(key, self._key(keys, f.sub(hole, 1))),
                    lambda: f.const("i1", False),
                )[0]

            def shift(state: list[Value]) -> list[Value]:
                (hole,) = state
                before = f.sub(hole, 1)
                self._put(keys, places, hole, self._key(keys, before), f.load(f.gep(places, before, "i64"), "i64"))
                return [before]

            (hole,) = f.while_([at], is_larger_before, shift)
            self._put(keys, places, hole, key, place)

        f.loop(f.add(low, 1), high, 1, take)

    def _merge(self, lines: list[Value], low: Value, middle: Value, high: Value) -> None:
        """Two runs that lie one behind the other, into the same stretch of the other line."""
        f = self.f
        keys, places, to_keys, to_places = lines

        def both(state: list[Value]) -> Value:
            left, right = state
            return f.op("and", f.icmp("slt", left, middle), f.icmp("slt", right, high))

        def step(state: list[Value]) -> list[Value]:
            left, right = state
            a, b = self._key(keys, left), self._key(keys, right)
            # Only a right one that must stand in front is taken: equal ones stay in order.
            is_right = self._is_before(b, a)
            taken = f.select(is_right, right, left)
            place = f.load(f.gep(places, taken, "i64"), "i64")
            self._put(to_keys, to_places, f.sub(f.add(left, right), middle), f.select(is_right, b, a), place)
            one = f.cast("zext", is_right, "i64")
            return [f.add(left, f.sub(1, one)), f.add(right, one)]

        left, right = f.while_([low, middle], both, step)

        def rest(begin: Value, end: Value, ahead: Value) -> None:
            """What is left of one run; `ahead` is how far its new place lies from its old one."""
            f.loop(
                begin,
                end,
                1,
                lambda at: self._put(
                    to_keys, to_places, f.add(at, ahead), self._key(keys, at), f.load(f.gep(places, at, "i64"), "i64")
                ),
            )

        rest(left, middle, f.sub(right, middle))
        rest(right, high, f.sub(left, middle))
