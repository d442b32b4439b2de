"""Random bodies for hypothesis: pointwise trees over views, their reductions, products with epilogues, boxes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

from tessera.ir.base.tape import Tape
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer

Draw: TypeAlias = st.DrawFn
Shape: TypeAlias = tuple[Dim, ...]

DTYPES = (dt.f32, dt.f32, dt.f64, dt.bf16, dt.f16, dt.i8, dt.u8, dt.i16, dt.i32, dt.u32, dt.i64, dt.bool_)
SIZES = (0, 1, 2, 3, 5, 8, 16, 17, 31, 33, 40)
_FLOAT = ("add", "sub", "mul", "maximum", "minimum")
_INTEGER = (*_FLOAT, "bitwise_and", "bitwise_or", "bitwise_xor")
_BOOL = ("logical_and", "logical_or", "logical_xor")
_LIMIT = 1000
"""Elements of a space: the interpreter walks them one program after the other."""


@dataclass(frozen=True)
class Sample:
    """A body and sizes to run it at."""

    body: Tape
    sizes: Mapping[str, int]

    def __repr__(self) -> str:
        types = [str(self.body.types[value]) for value in self.body.inputs]
        lines = [f"{r.results} = {r.op} {r.operands} {dict(r.attributes)}" for r in self.body.records]
        return f"{dict(self.sizes)} inputs {types} outputs {self.body.outputs}\n" + "\n".join(lines)


@dataclass
class Space:
    """Dims with their sizes, small enough together."""

    shape: Shape
    sizes: dict[str, int]

    def size(self, dim: Dim) -> int:
        return dim.evaluate(self.sizes)


def space(draw: Draw, rank: int, *, least: int = 0) -> Space:
    """A shape of free and fixed dims, and sizes for the free ones."""
    shape: list[Dim] = []
    sizes: dict[str, int] = {}
    total = 1
    for name in "ABCDE"[:rank]:
        choices = [size for size in SIZES if size >= least and size * max(total, 1) <= _LIMIT] or [1]
        size = draw(st.sampled_from(choices))
        total *= max(size, 1)
        if draw(st.booleans()):
            sizes[name] = size
            shape.append(Dim.symbol(name))
        else:
            shape.append(Dim.constant(size))
    return Space(tuple(shape), sizes)


def leaf(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    """A tensor of a shape, read from memory through some view."""
    views: list[Callable[[Draw, Writer, Shape, DType], int]] = [_plain, _broadcast]
    if shape:
        views += [_transpose, _flip, _roll, _stride, _flatten, _repeat]
    return draw(st.sampled_from(views))(draw, w, shape, dtype)


def _plain(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    return w.input(shape, dtype)


def _broadcast(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    first = draw(st.integers(0, len(shape)))
    kept = [dim if draw(st.booleans()) else Dim.constant(1) for dim in shape[first:]]
    return w.op("broadcast_to", w.input(kept, dtype), shape=shape)


def _transpose(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    axes = draw(st.permutations(range(len(shape))))
    source: list[Dim] = [shape[0]] * len(shape)
    for place, axis in enumerate(axes):
        source[axis] = shape[place]
    return w.op("transpose", w.input(source, dtype), axes=tuple(axes))


def _flip(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return w.op("flip", w.input(shape, dtype), axes=tuple(sorted(axes)))


def _roll(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    axis = draw(st.integers(0, len(shape) - 1))
    return w.op("roll", w.input(shape, dtype), axes=(axis,), shifts=(draw(st.integers(-3, 3)),))


def _stride(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    """Every second element from the front or the back of something larger, along one axis."""
    axis = draw(st.integers(0, len(shape) - 1))
    source = [*shape[:axis], shape[axis] * 2 + 1, *shape[axis + 1 :]]
    start, stop, step = [Dim.constant(0)] * len(shape), list(source), [1] * len(shape)
    if draw(st.booleans()):
        start[axis], stop[axis], step[axis] = Dim.constant(1), shape[axis] * 2 + 1, 2
    else:
        start[axis], stop[axis], step[axis] = shape[axis] * 2, Dim.constant(0), -2
    return w.op("slice", w.input(source, dtype), start=tuple(start), stop=tuple(stop), step=tuple(step))


def _flatten(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    at = draw(st.integers(0, len(shape) - 1))
    joined = shape[at]
    for dim in shape[at + 1 :]:
        joined = joined * dim
    return w.op("reshape", w.input([*shape[:at], joined], dtype), shape=shape)


def _repeat(draw: Draw, w: Writer, shape: Shape, dtype: DType) -> int:
    """A vector taken apart twice over: its elements lie neither together nor evenly."""
    value = w.input(shape, dtype)
    axis = draw(st.integers(0, len(shape) - 1))
    twice = w.op("repeat", value, repeats=2, axis=axis)
    zero = tuple(Dim.constant(0) for _ in shape)
    return w.op("slice", twice, start=zero, stop=shape, step=tuple(1 for _ in shape))


def tree(draw: Draw, w: Writer, shape: Shape, dtype: DType, levels: int, values: Sequence[int] = ()) -> int:
    """Pointwise ops over leaves, and over `values` that are there already."""
    own = [value for value in values if w.tape.types[value].dtype is dtype]
    if levels == 0:
        return draw(st.sampled_from(own)) if own and draw(st.booleans()) else leaf(draw, w, shape, dtype)
    kind = draw(st.sampled_from(("binary", "binary", "cast", "where", "number")))
    if kind == "cast":
        source = draw(st.sampled_from([other for other in DTYPES if other is not dtype]))
        return w.op("cast", tree(draw, w, shape, source, levels - 1, values), dtype=dtype)
    if kind == "where":
        condition = tree(draw, w, shape, dt.bool_, levels - 1, values)
        return w.op("where", condition, tree(draw, w, shape, dtype, levels - 1, values), leaf(draw, w, shape, dtype))
    if kind == "number" and shape:
        axis = draw(st.integers(0, len(shape) - 1))
        places = w.op("iota", shape=shape, axis=axis, dtype=dt.i32)
        number = w.op(
            "cast", w.op("bitwise_and", places, w.op("full", value=7, shape=shape, dtype=dt.i32)), dtype=dtype
        )
        return w.op(_binary(draw, dtype), tree(draw, w, shape, dtype, levels - 1, values), number)
    first = tree(draw, w, shape, dtype, levels - 1, values)
    return w.op(_binary(draw, dtype), first, tree(draw, w, shape, dtype, levels - 1, values))


def _binary(draw: Draw, dtype: DType) -> str:
    return draw(st.sampled_from(_BOOL if dtype.is_bool else _FLOAT if dtype.is_float else _INTEGER))


@st.composite
def maps(draw: Draw) -> Sample:
    """Pointwise bodies of rank 0 to 4, one or two results."""
    area = space(draw, draw(st.integers(0, 4)))
    w = Writer()
    outputs = [
        tree(draw, w, area.shape, draw(st.sampled_from(DTYPES)), draw(st.integers(1, 2)))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return Sample(w.body(*dict.fromkeys(outputs)), area.sizes)


@st.composite
def rows(draw: Draw) -> Sample:
    """Reductions over any axes, what follows from them in the row, and what follows in the whole space."""
    rank = draw(st.integers(1, 4))
    area = space(draw, rank, least=1)
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    w = Writer()
    dtype = draw(st.sampled_from(DTYPES))
    x = tree(draw, w, area.shape, dtype, draw(st.integers(0, 2)))
    kinds = (
        ("any", "all") if dtype.is_bool else ("max", "min", "sum", *(("argmax", "argmin") if len(axes) == 1 else ()))
    )
    found = w.op(draw(st.sampled_from(kinds)), x, axes=axes, keepdims=True)
    outputs = [found]
    if draw(st.booleans()):
        row = w.op("cast", found, dtype=dtype) if w.tape.types[found].dtype is not dtype else found
        full = w.op(_binary(draw, dtype), x, w.op("broadcast_to", row, shape=area.shape))
        outputs.append(full)
        if draw(st.booleans()):
            kind = draw(st.sampled_from(("any",) if dtype.is_bool else ("max", "sum")))
            outputs.append(w.op(kind, full, axes=axes, keepdims=draw(st.booleans())))
    kept = draw(st.sets(st.sampled_from(outputs), min_size=1))
    return Sample(w.body(*sorted(kept)), area.sizes)


@st.composite
def contractions(draw: Draw) -> Sample:
    """Contractions of two operands, each as stored or transposed, with a pointwise epilogue."""
    area = space(draw, draw(st.integers(0, 1)) + 3)
    *batch, m, n, k = area.shape
    w = Writer()
    dtype = draw(st.sampled_from((dt.f32, dt.f32, dt.f64, dt.bf16, dt.i8, dt.i32)))
    lhs, rhs = _operand(draw, w, batch, m, k, dtype), _operand(draw, w, batch, k, n, dtype)
    out = w.op("matmul", lhs, rhs)
    shape = w.tape.types[out].shape
    outputs = [out]
    if draw(st.booleans()):
        outputs.append(tree(draw, w, shape, draw(st.sampled_from(DTYPES)), 1, (out,)))
    if draw(st.booleans()):
        outputs.append(w.op(_binary(draw, dtype), out, _broadcast(draw, w, shape, w.tape.types[out].dtype)))
    kept = draw(st.sets(st.sampled_from(outputs), min_size=1))
    return Sample(w.body(*sorted(kept)), area.sizes)


def _operand(draw: Draw, w: Writer, batch: Sequence[Dim], rows: Dim, columns: Dim, dtype: DType) -> int:
    if draw(st.booleans()):
        return w.input([*batch, rows, columns], dtype)
    last = len(batch) + 1
    return w.op("transpose", w.input([*batch, columns, rows], dtype), axes=(*range(last - 1), last, last - 1))


@st.composite
def boxes(draw: Draw) -> Sample:
    """Concatenations and paddings."""
    rank = draw(st.integers(1, 3))
    area = space(draw, rank)
    dtype = draw(st.sampled_from(DTYPES))
    w = Writer()
    axis = draw(st.integers(0, rank - 1))
    if draw(st.booleans()):
        ends = [tuple(Dim.constant(draw(st.integers(0, 3))) for _ in area.shape) for _ in range(2)]
        return Sample(w.body(w.op("pad", w.input(area.shape, dtype), low=ends[0], high=ends[1], value=1)), area.sizes)
    parts = [
        w.input(
            [*area.shape[:axis], draw(st.sampled_from((area.shape[axis], Dim.constant(3)))), *area.shape[axis + 1 :]],
            dtype,
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    return Sample(w.body(w.op("concat", *parts, axis=axis)), area.sizes)
