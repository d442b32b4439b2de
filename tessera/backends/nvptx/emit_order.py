"""Indices read from memory, and `ttarget.sort` by all threads of a program: each element finds its own place."""

from __future__ import annotations

from typing import Any

from tessera.backends.nvptx import values
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType


def emit_fetch(emitter: Any, op: SpecOp) -> None:
    """A scalar load, made 64 bits wide; every thread does it."""
    f: FunctionText = emitter.f
    buffer = op.operands[0].type
    assert isinstance(buffer, BufferAttr)
    element = values.memory_type(buffer.dtype)
    offset = dim_value(f, op.value("offset"), emitter.named(op, op.value("coords"), 1))
    loaded = f.load(f.gep(emitter.buffers[op.operands[0]], offset, element), element)
    emitter.indices[op.result] = f.cast("sext" if buffer.dtype.kind == "int" else "zext", loaded, "i64")


def emit_sort(emitter: Any, op: SpecOp) -> None:
    """Runs of 1, 2, 4, ... elements merged in pairs: each element finds its place by itself."""
    type = op.operands[0].type
    assert isinstance(type, BufferAttr)
    _Sort(emitter, type.dtype, bool(op.value("descending"))).write(
        [emitter.buffers[value] for value in op.operands[:4]], emitter.f.index(emitter.indices[op.operands[4]])
    )


class _Sort:
    """The writing of one sort; lines of memory are pairs of pointers, to keys and to places."""

    def __init__(self, emitter: Any, dtype: DType, descending: bool) -> None:
        self.emitter, self.dtype, self.descending = emitter, dtype, descending
        self.f: FunctionText = emitter.f
        self.element = values.memory_type(dtype)

    def write(self, lines: list[Value], count: Value) -> None:
        f, emitter = self.f, self.emitter
        keys, places, _, _ = lines

        def merge(state: list[Value]) -> list[Value]:
            width, *now = state
            f.loop(emitter.thread, count, emitter.threads, lambda at: self._move(now, at, width, count))
            emitter.wait()
            return [f.mul(width, 2), *now[2:], *now[:2]]

        _, last, last_places, *_ = f.while_([f.const_i(1), *lines], lambda state: f.icmp("slt", state[0], count), merge)

        def bring_back(at: Value) -> None:
            self._put(keys, places, at, self._key(last, at), f.load(f.gep(last_places, at, "i64"), "i64"))

        f.if_(f.icmp("ne", last, keys), lambda: f.loop(emitter.thread, count, emitter.threads, bring_back) and None)

    def _key(self, keys: Value, at: Index) -> Value:
        return self.f.load(self.f.gep(keys, at, self.element), self.element)

    def _put(self, keys: Value, places: Value, at: Index, key: Value, place: Value) -> None:
        self.f.store(key, self.f.gep(keys, at, self.element))
        self.f.store(place, self.f.gep(places, at, "i64"))

    def _is_before(self, a: Value, b: Value) -> Value:
        """Whether `a` must stand in front of `b`; NaN stands in front of nothing, all numbers in front of it."""
        f = self.f
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "int" else "u"
            return f.icmp(f"{sign}gt" if self.descending else f"{sign}lt", a, b)
        ordered = f.fcmp("ogt" if self.descending else "olt", a, b)
        missing = f.op("and", f.fcmp("ord", a, a), f.fcmp("uno", b, b))
        return f.op("or", ordered, missing)

    def _move(self, lines: list[Value], at: Value, width: Value, count: Value) -> None:
        """One element to its place in the merged run: past those of its own run before it, and of the other one."""
        f = self.f
        keys, places, to_keys, to_places = lines
        double = f.mul(width, 2)
        low = f.mul(f.udiv(at, double), double)
        middle, high = f.smin(f.add(low, width), count), f.smin(f.add(low, double), count)
        key = self._key(keys, at)
        is_left = f.icmp("slt", at, middle)
        begin, end = f.select(is_left, middle, low), f.select(is_left, high, middle)

        def narrow(state: list[Value]) -> list[Value]:
            first, last = state
            half = f.udiv(f.add(first, last), 2)
            other = self._key(keys, half)
            # Of equal ones those of the left run go first.
            goes = f.select(is_left, self._is_before(other, key), f.op("xor", self._is_before(key, other), _TRUE))
            return [f.select(goes, f.add(half, 1), first), f.select(goes, last, half)]

        found, _ = f.while_([begin, end], lambda state: f.icmp("slt", state[0], state[1]), narrow)
        passed = f.sub(found, begin)
        own = f.select(is_left, at, f.add(f.sub(at, middle), low))
        place = f.load(f.gep(places, at, "i64"), "i64")
        self._put(to_keys, to_places, f.add(own, passed), key, place)


_TRUE = Value("i1", "true")
