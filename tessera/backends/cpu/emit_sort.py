"""Indices read from memory, and the stable merge sort of `ttarget.sort`: runs by insertion, then merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.convert import storage_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.ir.target.typed_ops import FetchOp, SortOp

RUN = 8
"""Elements sorted by insertion before anything is merged."""


def emit_fetch(emitter: Any, op: FetchOp) -> None:
    """A scalar load, made 64 bits wide."""
    f: FunctionText = emitter.f
    buffer = op.operands[0].type
    assert isinstance(buffer, BufferAttr)
    element = storage_type(buffer.dtype)
    offset = dim_value(f, op.offset, emitter.env_of(op, op.coords, 1))
    loaded = f.load(f.gep(emitter.buffers[op.operands[0]], offset, element), element)
    emitter.indices[op.result] = f.cast("sext" if buffer.dtype.kind == "int" else "zext", loaded, "i64")


def emit_sort(emitter: Any, op: SortOp) -> None:
    """A call of the sort of this dtype, written once in a module."""
    f: FunctionText = emitter.f
    buffers = [emitter.buffers[value] for value in op.operands[:4]]
    for buffer in buffers:
        emitter.settle(buffer)
    type = op.operands[0].type
    assert isinstance(type, BufferAttr)
    arguments = [("ptr", name) for name in ("keys", "indices", "spare_keys", "spare_indices")]
    sort = _Sort(type.dtype, bool(op.descending))
    key = ("sort", type.dtype.name, sort.descending)
    name = f.module.outline(key, f"sort_{type.dtype.name}", [*arguments, ("i64", "count")], sort.write)
    f.call(name, [*buffers, f.index(emitter.indices[op.operands[4]])])


class _Sort:
    """Writes one sort; a row is a pair of pointers, to keys and to their indices."""

    def __init__(self, dtype: DType, descending: bool) -> None:
        self.dtype, self.descending = dtype, descending
        self.element = storage_type(dtype)

    def write(self, f: FunctionText) -> None:
        self.f = f
        keys, indices, spare_keys, spare_indices, count = f.arguments
        f.loop(0, count, RUN, lambda low: self._insert(keys, indices, low, f.smin(f.add(low, RUN), count)))

        def merge_all(state: list[Value]) -> list[Value]:
            width, *lines = state
            double = f.mul(width, 2)

            def merge(low: Value) -> None:
                middle = f.smin(f.add(low, width), count)
                self._merge(lines, low, middle, f.smin(f.add(low, double), count))

            f.loop(0, count, double, merge)
            return [double, *lines[2:], *lines[:2]]

        start = [f.const_i(RUN), keys, indices, spare_keys, spare_indices]
        _, last, last_indices, *_ = f.while_(start, lambda state: f.icmp("slt", state[0], count), merge_all)

        def copy_back() -> None:
            f.call("memcpy", [keys, last, f.mul(count, bytes_of(self.element))], "ptr")
            f.call("memcpy", [indices, last_indices, f.mul(count, 8)], "ptr")

        f.if_(f.icmp("ne", last, keys), copy_back)
        f.ret()

    def _is_before(self, a: Value, b: Value) -> Value:
        """Whether `a` must come before `b`; NaN comes before nothing, all numbers before NaN."""
        f = self.f
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "int" else "u"
            return f.icmp(f"{sign}gt" if self.descending else f"{sign}lt", a, b)
        ordered = f.fcmp("ogt" if self.descending else "olt", a, b)
        missing = f.op("and", f.fcmp("ord", a, a), f.fcmp("uno", b, b))
        return f.op("or", ordered, missing)

    def _key(self, keys: Value, at: Index) -> Value:
        return self.f.load(self.f.gep(keys, at, self.element), self.element)

    def _put(self, keys: Value, indices: Value, at: Index, key: Value, index: Value) -> None:
        self.f.store(key, self.f.gep(keys, at, self.element))
        self.f.store(index, self.f.gep(indices, at, "i64"))

    def _insert(self, keys: Value, indices: Value, low: Value, high: Value) -> None:
        f = self.f

        def take(at: Value) -> None:
            key, index = self._key(keys, at), f.load(f.gep(indices, at, "i64"), "i64")

            def is_larger_before(state: list[Value]) -> Value:
                (hole,) = state
                return f.if_(
                    f.icmp("sgt", hole, low),
                    lambda: self._is_before(key, self._key(keys, f.sub(hole, 1))),
                    lambda: f.const("i1", False),
                )[0]

            def move_up(state: list[Value]) -> list[Value]:
                (hole,) = state
                before = f.sub(hole, 1)
                self._put(keys, indices, hole, self._key(keys, before), f.load(f.gep(indices, before, "i64"), "i64"))
                return [before]

            (hole,) = f.while_([at], is_larger_before, move_up)
            self._put(keys, indices, hole, key, index)

        f.loop(f.add(low, 1), high, 1, take)

    def _merge(self, lines: list[Value], low: Value, middle: Value, high: Value) -> None:
        """Two neighbouring runs, into the same range of the other row."""
        f = self.f
        keys, indices, to_keys, to_indices = lines

        def both(state: list[Value]) -> Value:
            left, right = state
            return f.op("and", f.icmp("slt", left, middle), f.icmp("slt", right, high))

        def step(state: list[Value]) -> list[Value]:
            left, right = state
            a, b = self._key(keys, left), self._key(keys, right)
            # An element of the right run is taken only if it must come first: equal ones stay in order.
            is_right = self._is_before(b, a)
            taken = f.select(is_right, right, left)
            index = f.load(f.gep(indices, taken, "i64"), "i64")
            self._put(to_keys, to_indices, f.sub(f.add(left, right), middle), f.select(is_right, b, a), index)
            one = f.cast("zext", is_right, "i64")
            return [f.add(left, f.sub(1, one)), f.add(right, one)]

        left, right = f.while_([low, middle], both, step)

        def copy_remainder(begin: Value, end: Value, shift: Value) -> None:
            """The remainder of one run; `shift` is how far it moves."""
            f.loop(
                begin,
                end,
                1,
                lambda at: self._put(
                    to_keys, to_indices, f.add(at, shift), self._key(keys, at), f.load(f.gep(indices, at, "i64"), "i64")
                ),
            )

        copy_remainder(left, middle, f.sub(right, middle))
        copy_remainder(right, high, f.sub(left, middle))
