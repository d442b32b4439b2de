"""Arithmetic on blocks of vectors as LLVM text: functions, casts, constants, coordinates, clips, spreads and folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.backends.cpu.blocks import Layout, Vectors, register_type
from tessera.backends.cpu.emit_access import constant_in_register
from tessera.backends.cpu.emit_fold import fold, fold_place
from tessera.backends.cpu.lanes import LaneCoordinate, lane_values
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm import convert, math, rounding
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.types import vector
from tessera.types.dim import Dim
from tessera.types.dtype import i64

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter


def _lazily(emitter: Emitter, op: SpecOp, make: Callable[[int], Value]) -> None:
    layout, dtype = emitter.layout(op.result)
    emitter.blocks[op.result] = Vectors(layout, dtype, make)


def emit_math(emitter: Emitter, op: SpecOp) -> None:
    """A function of each element."""
    operands = [emitter.blocks[value] for value in op.operands]
    name, dtype = op.value("fn"), operands[0].dtype
    _lazily(emitter, op, lambda number: math.emit(emitter.f, name, [block[number] for block in operands], dtype))


def emit_convert(emitter: Emitter, op: SpecOp) -> None:
    """Elements in another dtype."""
    source = emitter.blocks[op.operands[0]]
    _, to = emitter.layout(op.result)
    _lazily(emitter, op, lambda number: _converted(emitter.f, source[number], source.dtype, to))


def emit_round(emitter: Emitter, op: SpecOp) -> None:
    """Elements rounded to fewer bits, in the way that is asked for."""
    source, *random = (emitter.blocks[value] for value in op.operands)

    def make(number: int) -> Value:
        bits = random[0][number] if random else None
        return rounding.round_to(emitter.f, source[number], rounding.Rounding(**op.values(), random=bits))

    _lazily(emitter, op, make)


def emit_bitcast(emitter: Emitter, op: SpecOp) -> None:
    """The bits of elements, seen as another dtype."""
    source = emitter.blocks[op.operands[0]]
    layout, to = emitter.layout(op.result)
    type_ = vector(register_type(to), layout.lanes)
    _lazily(emitter, op, lambda number: emitter.f.bitcast(source[number], type_))


def emit_select(emitter: Emitter, op: SpecOp) -> None:
    """One of two, by element."""
    condition, first, second = (emitter.blocks[value] for value in op.operands)
    _lazily(emitter, op, lambda n: emitter.f.select(condition[n], first[n], second[n]))


def emit_constant(emitter: Emitter, op: SpecOp) -> None:
    """One number everywhere."""
    layout, dtype = emitter.layout(op.result)
    value = op.value("value")
    if isinstance(value, Dim):
        scalar = convert.cast(emitter.f, dim_value(emitter.f, value, emitter.env), i64, dtype)
        _lazily(emitter, op, lambda number: emitter.f.splat(scalar, layout.lanes))
    else:
        _lazily(emitter, op, lambda number: constant_in_register(emitter.f, dtype, value, layout.lanes))


def _at(emitter: Emitter, axes: Sequence[str], env: Mapping[str, Index], layout: Layout, number: int) -> Any:
    """The coordinates of one vector, scalars by name and the one along lanes."""
    outer, first = layout.place(number)
    found = dict(env)
    for axis, index in zip(axes[:-1], outer, strict=True):
        found[axis] = emitter.f.add(found[axis], index)
    if not axes:
        return found, None
    start = emitter.f.add(found[axes[-1]], first)
    found[axes[-1]] = start
    return found, LaneCoordinate(axes[-1], start, layout.lanes)


def emit_coordinate(emitter: Emitter, op: SpecOp) -> None:
    """An expression of the coordinates of each element."""
    layout, _ = emitter.layout(op.result)
    env = emitter.named(op, op.value("coords"), 0)

    def make(number: int) -> Value:
        here, along = _at(emitter, op.value("axes"), env, layout, number)
        value = lane_values(emitter.f, op.value("expr"), here, along, {})
        return value if value.lanes == layout.lanes else emitter.f.splat(value, layout.lanes)

    _lazily(emitter, op, make)


def emit_clip(emitter: Emitter, op: SpecOp) -> None:
    """Elements below a bound along an axis; the others become the identity."""
    source = emitter.blocks[op.operands[0]]
    if emitter.version is not None and emitter.version.is_whole(op):
        emitter.blocks[op.result] = source
        return
    env = emitter.named(op, op.value("coords"), 1)
    layout, axis = source.layout, op.value("axis")

    def make(number: int) -> Value:
        f = emitter.f
        here, along = _at(emitter, op.value("axes"), env, layout, number)
        other = constant_in_register(f, source.dtype, op.value("identity"), layout.lanes)
        if along is not None and along.name in op.value("bound").symbols and layout.lanes > 1:
            bounds = lane_values(f, op.value("bound"), here, along, {})
            inside = f.icmp("slt", f.splat(f.index(here[axis]), layout.lanes), bounds)
            return f.select(inside, source[number], other)
        left = f.sub(dim_value(f, op.value("bound"), here), here[axis])
        if along is not None and along.name == axis and layout.lanes > 1:
            return f.select(f.lane_mask(left, layout.lanes), source[number], other)
        return f.select(f.icmp("sgt", left, 0), source[number], other)

    _lazily(emitter, op, make)


def emit_spread(emitter: Emitter, op: SpecOp) -> None:
    """Rows or columns repeated along the other axes."""
    source = emitter.blocks[op.operands[0]]
    layout, _ = emitter.layout(op.result)
    axes: tuple[int, ...] = op.value("axes")
    rank = len(layout.sizes)

    def make(number: int) -> Value:
        outer, first = layout.place(number)
        if rank - 1 in axes:
            inner = tuple(outer[axis] for axis in axes[:-1])
            return source[source.layout.number(inner, first // source.layout.lanes)]
        indices = [outer[axis] for axis in axes]
        return emitter.f.splat(_element(emitter.f, source, indices), layout.lanes)

    _lazily(emitter, op, make)


def emit_fold(emitter: Emitter, op: SpecOp) -> None:
    """An axis folded to one number."""
    source = emitter.blocks[op.operands[0]]
    layout, dtype = emitter.layout(op.result)
    values = fold(emitter.f, source, op.value("kind"), op.value("axis"), layout)
    emitter.blocks[op.result] = Vectors.of(layout, dtype, values)


def emit_fold_place(emitter: Emitter, op: SpecOp) -> None:
    """Where along an axis its largest or smallest element is."""
    values, places = (emitter.blocks[value] for value in op.operands)
    layout, dtype = emitter.layout(op.result)
    found = fold_place(emitter.f, values, places, op.value("kind"), op.value("axis"), layout)
    emitter.blocks[op.result] = Vectors.of(layout, dtype, found)


def _element(f: FunctionText, source: Vectors, indices: Sequence[int]) -> Value:
    """One element of a block, as a scalar."""
    if not indices:
        return f.extract(source[0], 0)
    chunk, lane = divmod(indices[-1], source.layout.lanes)
    return f.extract(source[source.layout.number(indices[:-1], chunk)], lane)


def _converted(f: FunctionText, value: Value, source: Any, to: Any) -> Value:
    """Between register types: narrow floats are widened first and narrowed last."""
    if source is to:
        return value
    is_narrow = source.is_float and source.compute is not source
    wide = convert.widened(f, value, source) if is_narrow else value
    given = source.compute if is_narrow else source
    if to.is_float and to.compute is not to:
        return convert.narrowed(f, convert.before_narrowing(f, wide, given, to), to)
    return convert.cast(f, wide, given, to.compute)
