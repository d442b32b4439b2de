"""Folding blocks across rows and lanes, in the halving tree that docs/guide/numerics.md fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.backends.cpu.blocks import Layout, Vectors
from tessera.ir.target.llvm import math
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def fold(f: FunctionText, source: Vectors, kind: str, axis: int, out: Layout) -> list[Value]:
    """The vectors of the folded block."""

    def join(a: Sequence[Value], b: Sequence[Value]) -> tuple[Value, ...]:
        return (math.emit(f, _JOIN[kind], [a[0], b[0]], source.dtype),)

    return [parts[0] for parts in _fold_all(f, [source], axis, out, join)]


def fold_place(f: FunctionText, values: Vectors, places: Vectors, kind: str, axis: int, out: Layout) -> list[Value]:
    """The places of extremes: greater values first, then lower places; NaN before all."""
    dtype = values.dtype

    def join(a: Sequence[Value], b: Sequence[Value]) -> tuple[Value, ...]:
        takes = _takes(f, a, b, kind, dtype)
        return f.select(takes, b[0], a[0]), f.select(takes, b[1], a[1])

    return [parts[1] for parts in _fold_all(f, [values, places], axis, out, join)]


def _takes(f: FunctionText, a: Sequence[Value], b: Sequence[Value], kind: str, dtype: DType) -> Value:
    """Whether `b` comes before `a`."""
    beats = math.emit(f, "gt" if kind == "argmax" else "lt", [b[0], a[0]], dtype)
    equal = math.emit(f, "eq", [b[0], a[0]], dtype)
    earlier = f.icmp("slt", b[1], a[1])
    if dtype.is_float:
        a_nan, b_nan = (math.emit(f, "isnan", [value], dtype) for value in (a[0], b[0]))
        equal = f.op("or", equal, f.op("and", a_nan, b_nan))
        a_number = f.op("xor", a_nan, f.const_like(a_nan, True))
        beats = f.op("or", beats, f.op("and", b_nan, a_number))
    return f.op("or", beats, f.op("and", equal, earlier))


def _fold_all(
    f: FunctionText,
    sources: Sequence[Vectors],
    axis: int,
    out: Layout,
    join: Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...]],
) -> list[tuple[Value, ...]]:
    layout = sources[0].layout
    if axis < len(layout.sizes) - 1:
        return [_fold_rows(sources, axis, layout, out, number, join) for number in range(out.count)]
    rows = layout.count // layout.chunks
    found: list[tuple[Value, ...]] = []
    for row in range(rows):
        parts = [tuple(source[row * layout.chunks + chunk] for source in sources) for chunk in range(layout.chunks)]
        found.append(_fold_lanes(f, _fold_parts(parts, join), layout.lanes, join))
    return _gathered(f, found, out)


def _fold_rows(
    sources: Sequence[Vectors],
    axis: int,
    layout: Layout,
    out: Layout,
    number: int,
    join: Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...]],
) -> tuple[Value, ...]:
    outer, first = out.place(number)
    chunk = first // out.lanes
    parts = [
        tuple(source[layout.number((*outer[:axis], i, *outer[axis:]), chunk)] for source in sources)
        for i in range(layout.sizes[axis])
    ]
    return _fold_parts(parts, join)


def _fold_parts(
    parts: list[tuple[Value, ...]], join: Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...]]
) -> tuple[Value, ...]:
    """Part i with i + half, half of the next power of two; a part without a partner goes on as it is."""
    while len(parts) > 1:
        half = 1 << (len(parts) - 1).bit_length() - 1
        parts = [join(part, parts[i + half]) if i + half < len(parts) else part for i, part in enumerate(parts[:half])]
    return parts[0]


def _fold_lanes(
    f: FunctionText,
    parts: Sequence[Value],
    lanes: int,
    join: Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...]],
) -> tuple[Value, ...]:
    """Lane i with i + half, down to one lane, as a scalar."""
    current = tuple(parts)
    if lanes & (lanes - 1):
        return _fold_parts([tuple(f.extract(value, lane) for value in current) for lane in range(lanes)], join)
    while lanes > 1:
        half = lanes // 2
        low = tuple(f.shuffle(value, None, range(half)) for value in current)
        high = tuple(f.shuffle(value, None, range(half, lanes)) for value in current)
        if half == 1:
            low = tuple(f.extract(value, 0) for value in current)
            high = tuple(f.extract(value, 1) for value in current)
        current, lanes = join(low, high), half
    return current


def _gathered(f: FunctionText, scalars: Sequence[tuple[Value, ...]], out: Layout) -> list[tuple[Value, ...]]:
    """Scalars of a folded last axis as vectors of the new last axis."""
    if out.lanes == 1:
        return list(scalars)
    found: list[tuple[Value, ...]] = []
    for number in range(out.count):
        group = scalars[number * out.lanes : (number + 1) * out.lanes]
        vectors: list[Value] = []
        for part in range(len(group[0])):
            made = f.splat(group[0][part], out.lanes)
            for lane, scalar in enumerate(group[1:], 1):
                made = f.insert(made, scalar[part], lane)
            vectors.append(made)
        found.append(tuple(vectors))
    return found
