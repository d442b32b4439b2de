"""Arithmetic on blocks of vectors as LLVM text: functions, casts, coordinates, reductions, shuffles and votes.

Nothing is written when an op is met: a block is a function from the number of a vector to its text, called where that
vector is first used. So a chain of ops is written vector by vector, and few of them are alive at a time, whatever the
size of the block is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tessera.backends.cpu.emit_access import constant_in_register
from tessera.backends.cpu.registers import (
    LaneCoordinate,
    Layout,
    Vectors,
    lane_values,
    register_type,
)
from tessera.ir.base.block_ops import partner
from tessera.ir.base.op import SpecOp
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.limits import LINE, index_multiple
from tessera.ir.target.llvm import convert, math
from tessera.ir.target.llvm.convert import storage_type
from tessera.ir.target.llvm.instructions import Index, Value, dim_value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.dtype import DType, i64

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter
    from tessera.ir.target import typed_ops as ttarget


def emit_fetch(emitter: Any, op: ttarget.FetchOp) -> None:
    """A scalar load, made 64 bits wide."""
    f: FunctionText = emitter.f
    buffer = op.operands[0].type
    assert isinstance(buffer, BufferAttr)
    element = storage_type(buffer.dtype)
    offset = dim_value(f, op.offset, emitter.env_of(op, op.coords, 1))
    loaded = f.load(f.gep(emitter.buffers[op.operands[0]], offset, element), element)
    emitter.indices[op.result] = f.cast("sext" if buffer.dtype.kind == "int" else "zext", loaded, "i64")


_TOUCHED = 4
"""Lines that an iteration of a prefetch touches."""


def emit_prefetch(emitter: Any, op: ttarget.PrefetchOp) -> None:
    """A loop over lines, in order: each is touched, and one further on is asked for in L2; none for a small buffer."""
    f: FunctionText = emitter.f
    buffer = op.operands[0].type
    assert isinstance(buffer, BufferAttr)
    size = op.elements * buffer.dtype.bytes

    def ask() -> None:
        offset = dim_value(f, op.offset, emitter.env_of(op, op.coords, 1))
        first = f.gep(emitter.buffers[op.operands[0]], offset, storage_type(buffer.dtype))

        def touch(at: Index) -> None:
            line = f.gep(first, at, "i8")
            f.touch(line)
            f.prefetch(f.gep(line, op.ahead, "i8"), locality=2)

        def touch_some(at: Value) -> None:
            for more in range(0, step, LINE):
                touch(f.add(at, more))

        step = _TOUCHED * LINE
        f.loop(0, size // step * step, step, touch_some)
        for at in range(size // step * step, size, LINE):
            touch(at)

    if op.least:
        f.if_(f.icmp("sge", dim_value(f, buffer.data.bytes, emitter.env), op.least), ask)
    else:
        ask()


def emit_tree(emitter: Any, op: ttarget.TreeOp) -> None:
    """A call of the tree of this dtype, written once in a module."""
    f: FunctionText = emitter.f
    lines = emitter.buffers[op.operands[0]]
    emitter.settle(lines)
    type = op.operands[0].type
    assert isinstance(type, BufferAttr)
    dtype, kind = type.dtype, op.kind
    arguments = [("ptr", "lines"), ("i64", "count"), ("i64", "width")]
    name = f.module.outline(
        ("tree", dtype.name, kind), f"tree_{kind}_{dtype.name}", arguments, lambda g: _write_tree(g, dtype, kind)
    )
    width = dim_value(f, type.shape[1], emitter.env)
    f.call(name, [lines, f.index(emitter.indices[op.operands[1]]), f.index(width)])


def _write_tree(g: FunctionText, dtype: DType, kind: str) -> None:
    """Lines a gap of 1, 2, 4, ... apart are joined, those behind the end left out."""
    lines, count, width = g.arguments
    element = storage_type(dtype)

    def level(state: list[Value]) -> list[Value]:
        (gap,) = state
        double = g.mul(gap, 2)

        def join(line: Value) -> None:
            first = g.gep(lines, g.mul(line, width), element)
            second = g.gep(first, g.mul(gap, width), element)

            def column(at: Value) -> None:
                here = g.gep(first, at, element)
                pair = [g.load(here, element), g.load(g.gep(second, at, element), element)]
                g.store(math.emit(g, _JOIN[kind], pair, dtype), here)

            g.loop(0, width, 1, column)

        g.loop(0, g.sub(count, gap), double, join)
        return [double]

    g.while_([g.const_i(1)], lambda state: g.icmp("slt", state[0], count), level)
    g.ret()


# Reductions across rows and lanes, in the halving tree that numerics fix: element i joins i + half, half of the next
# power of two, until one is left, whatever the width of a register.

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
Parts: TypeAlias = tuple[Value, ...]
"""What is reduced: a value, or a value and its index."""
Join: TypeAlias = Callable[[Parts, Parts], Parts]


def _comes_first(f: FunctionText, a: Sequence[Value], b: Sequence[Value], kind: str, dtype: DType) -> Value:
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


def _reduce_all(f: FunctionText, sources: Sequence[Vectors], axis: int, out: Layout, join: Join) -> list[Parts]:
    layout = sources[0].layout
    if axis < len(layout.sizes) - 1:
        return [_reduce_rows(sources, axis, layout, out, number, join) for number in range(out.count)]
    rows = layout.count // layout.chunks
    found: list[Parts] = []
    for row in range(rows):
        parts = [tuple(source[row * layout.chunks + chunk] for source in sources) for chunk in range(layout.chunks)]
        found.append(_reduce_lanes(f, _reduce_parts(parts, join), layout.lanes, join))
    return _gather_lanes(f, found, out)


def _reduce_rows(sources: Sequence[Vectors], axis: int, layout: Layout, out: Layout, number: int, join: Join) -> Parts:
    outer, first = out.position(number)
    chunk = first // out.lanes
    parts = [
        tuple(source[layout.number((*outer[:axis], i, *outer[axis:]), chunk)] for source in sources)
        for i in range(layout.sizes[axis])
    ]
    return _reduce_parts(parts, join)


def _reduce_parts(parts: list[Parts], join: Join) -> Parts:
    """Part i with i + half, half of the next power of two; a part without a partner goes on as it is."""
    while len(parts) > 1:
        half = 1 << (len(parts) - 1).bit_length() - 1
        parts = [join(part, parts[i + half]) if i + half < len(parts) else part for i, part in enumerate(parts[:half])]
    return parts[0]


def _reduce_lanes(f: FunctionText, parts: Sequence[Value], lanes: int, join: Join) -> Parts:
    """Lane i with i + half, down to one lane, as a scalar."""
    current = tuple(parts)
    if lanes & (lanes - 1):
        return _reduce_parts([tuple(f.extract(value, lane) for value in current) for lane in range(lanes)], join)
    while lanes > 1:
        half = lanes // 2
        low = tuple(f.shuffle(value, None, range(half)) for value in current)
        high = tuple(f.shuffle(value, None, range(half, lanes)) for value in current)
        if half == 1:
            low = tuple(f.extract(value, 0) for value in current)
            high = tuple(f.extract(value, 1) for value in current)
        current, lanes = join(low, high), half
    return current


def _gather_lanes(f: FunctionText, scalars: Sequence[Parts], out: Layout) -> list[Parts]:
    """Scalars of a reduced last axis as vectors of the new last axis."""
    if out.lanes == 1:
        return list(scalars)
    found: list[Parts] = []
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


# Shuffles and votes of segments of lanes: on a CPU all lanes of a program are in registers of one thread.


def _elements(emitter: Any, op: SpecOp) -> list[list[Value]]:
    """The elements of a block, row by row, each as a scalar."""
    f: FunctionText = emitter.f
    source = emitter.blocks[op.operands[0]]
    layout = source.layout
    vectors = [source[number] for number in range(layout.count)]
    rows = [vectors[start : start + layout.chunks] for start in range(0, len(vectors), layout.chunks)]
    return [[f.extract(vector, lane) for vector in row for lane in range(layout.lanes)] for row in rows]


def _put_elements(emitter: Any, op: SpecOp, rows: list[list[Value]]) -> None:
    """Elements as the block that the op gives; LLVM makes shuffles of the extracts and inserts."""
    f: FunctionText = emitter.f
    layout, dtype = emitter.layout(op.result)
    found: list[Value] = []
    for row in rows:
        for start in range(0, len(row), layout.lanes):
            part = row[start : start + layout.lanes]
            whole = part[0]
            if layout.lanes > 1:
                whole = Value(f"<{layout.lanes} x {part[0].type}>", "poison")
                for lane, value in enumerate(part):
                    whole = f.insert(whole, value, lane)
            found.append(whole)
    emitter.blocks[op.result] = Vectors.of(layout, dtype, found)


def emit_shuffle(emitter: Any, op: ttarget.ShuffleOp) -> None:
    """Each element from another lane of its segment."""
    mode, by, width = op.mode, op.by, op.width
    rows = [[row[partner(mode, by, width, lane)] for lane in range(len(row))] for row in _elements(emitter, op)]
    _put_elements(emitter, op, rows)


def emit_vote(emitter: Any, op: ttarget.VoteOp) -> None:
    """The vote of each segment, in all of its lanes."""
    width = op.width
    found: list[list[Value]] = []
    for row in _elements(emitter, op):
        votes: list[Value] = []
        for start in range(0, len(row), width):
            votes += [_vote_of(emitter.f, row[start : start + width], op.kind)] * width
        found.append(votes)
    _put_elements(emitter, op, found)


def _vote_of(f: FunctionText, bools: list[Value], kind: str) -> Value:
    if kind in ("any", "all"):
        whole = bools[0]
        for value in bools[1:]:
            whole = f.op("or" if kind == "any" else "and", whole, value)
        return whole
    total = Value("i32", "0")
    for lane, value in enumerate(bools):
        wide = f.cast("zext", value, "i32")
        if kind == "ballot":
            wide = f.op("shl", wide, Value("i32", str(lane)))
        total = f.op("or" if kind == "ballot" else "add", total, wide)
    return total


_DEEPEST = 100
"""Ops of a chain that are written at their last one's use: each takes three frames of Python's stack."""


def _define(emitter: Emitter, op: SpecOp, make: Callable[[int], Value]) -> None:
    layout, dtype = emitter.layout(op.result)
    block = emitter.blocks[op.result] = Vectors(layout, dtype, make)
    block.depth = 1 + max((emitter.blocks[one].depth for one in op.operands if one in emitter.blocks), default=0)
    if block.depth > _DEEPEST:
        block.all()
        block.depth = 0


_SIDE_BY_SIDE = 2
"""Vectors of which an approximated function is written one after the other. Each is a chain of some 20 to 60 dependent
instructions: of a chain of such functions on one vector a core has little to do at a time, until the next vector
begins. Two are a quarter faster than one in a chain of three, and four no faster than two (measured, Zen 4)."""


def emit_elementwise(emitter: Emitter, op: ttarget.ElementwiseOp) -> None:
    """A function of each element."""
    f, operands = emitter.f, [emitter.blocks[value] for value in op.operands]
    name, dtype = op.fn, operands[0].dtype
    count = emitter.layout(op.result)[0].count
    together = 1 if SCALAR_FUNCTIONS[name].ulp is None else _SIDE_BY_SIDE
    made: dict[int, Value] = {}

    def make(number: int) -> Value:
        if number not in made:
            first = number - number % together
            given = {at: [block[at] for block in operands] for at in range(first, min(first + together, count))}
            made.update({at: math.emit(f, name, values, dtype) for at, values in given.items()})
        return made[number]

    _define(emitter, op, make)


def emit_cast(emitter: Emitter, op: SpecOp) -> None:
    """Elements in another dtype."""
    source = emitter.blocks[op.operands[0]]
    _, to = emitter.layout(op.result)
    _define(emitter, op, lambda number: _convert(emitter.f, source[number], source.dtype, to))


def emit_round(emitter: Emitter, op: SpecOp) -> None:
    """Elements rounded to fewer bits, as the attributes ask."""
    source, *random = (emitter.blocks[value] for value in op.operands)

    def make(number: int) -> Value:
        bits = random[0][number] if random else None
        return convert.round_to(emitter.f, source[number], convert.Rounding(**op.values(), random=bits))

    _define(emitter, op, make)


def emit_bitcast(emitter: Emitter, op: SpecOp) -> None:
    """The bits of elements, seen as another dtype."""
    source = emitter.blocks[op.operands[0]]
    layout, to = emitter.layout(op.result)
    type_ = vector(register_type(to), layout.lanes)
    _define(emitter, op, lambda number: emitter.f.bitcast(source[number], type_))


def emit_select(emitter: Emitter, op: SpecOp) -> None:
    """One of two, by element."""
    condition, first, second = (emitter.blocks[value] for value in op.operands)
    _define(emitter, op, lambda n: emitter.f.select(condition[n], first[n], second[n]))


def emit_constant(emitter: Emitter, op: ttarget.ConstantOp) -> None:
    """One number everywhere."""
    layout, dtype = emitter.layout(op.result)
    value = op.value("value")
    if isinstance(value, Dim):
        scalar = convert.cast(emitter.f, dim_value(emitter.f, value, emitter.env), i64, dtype)
        _define(emitter, op, lambda number: emitter.f.splat(scalar, layout.lanes))
    else:
        _define(emitter, op, lambda number: constant_in_register(emitter.f, dtype, value, layout.lanes))


def _coordinates(
    f: FunctionText,
    op: ttarget.CoordinateOp | ttarget.ClipOp,
    env: Mapping[str, Index],
    layout: Layout,
    number: int,
) -> tuple[dict[str, Index], LaneCoordinate | None]:
    """The coordinates of one vector of a block: scalars by name, and the one along lanes."""
    axes = op.axes
    outer, first = layout.position(number)
    found = dict(env)
    for axis, index in zip(axes[:-1], outer, strict=True):
        found[axis] = f.add(found[axis], index)
    if not axes:
        return found, None
    start = found[axes[-1]] = f.add(found[axes[-1]], first)
    multiple = index_multiple(op.at[op.coords.index(axes[-1])])
    return found, LaneCoordinate(axes[-1], start, layout.lanes, first, multiple)


def emit_coordinate(emitter: Emitter, op: ttarget.CoordinateOp) -> None:
    """An expression of the coordinates of each element."""
    layout, _ = emitter.layout(op.result)
    env = emitter.env_of(op, op.coords, 0)

    def make(number: int) -> Value:
        here, along = _coordinates(emitter.f, op, env, layout, number)
        value = lane_values(emitter.f, op.expr, here, along, {})
        return value if value.lanes == layout.lanes else emitter.f.splat(value, layout.lanes)

    _define(emitter, op, make)


def emit_clip(emitter: Emitter, op: ttarget.ClipOp) -> None:
    """Elements below a bound along an axis; the others become the identity."""
    source = emitter.blocks[op.operands[0]]
    if emitter.version is not None and emitter.version.is_whole(op):
        emitter.blocks[op.result] = source
        return
    env = emitter.env_of(op, op.coords, 1)
    layout, axis = source.layout, op.axis

    def make(number: int) -> Value:
        f = emitter.f
        here, along = _coordinates(emitter.f, op, env, layout, number)
        other = constant_in_register(f, source.dtype, op.identity, layout.lanes)
        if along is not None and along.name in op.bound.symbols and layout.lanes > 1:
            bounds = lane_values(f, op.bound, here, along, {})
            inside = f.icmp("slt", f.splat(f.index(here[axis]), layout.lanes), bounds)
            return f.select(inside, source[number], other)
        left = f.sub(dim_value(f, op.bound, here), here[axis])
        if along is not None and along.name == axis and layout.lanes > 1:
            return f.select(f.lane_mask(left, layout.lanes), source[number], other)
        return f.select(f.icmp("sgt", left, 0), source[number], other)

    _define(emitter, op, make)


def emit_broadcast(emitter: Emitter, op: ttarget.BroadcastOp) -> None:
    """Rows or columns repeated along the other axes."""
    source = emitter.blocks[op.operands[0]]
    layout, _ = emitter.layout(op.result)
    axes: tuple[int, ...] = op.axes
    rank = len(layout.sizes)

    def make(number: int) -> Value:
        outer, first = layout.position(number)
        if rank - 1 in axes:
            inner = tuple(outer[axis] for axis in axes[:-1])
            return source[source.layout.number(inner, first // source.layout.lanes)]
        indices = [outer[axis] for axis in axes]
        return emitter.f.splat(_element(emitter.f, source, indices), layout.lanes)

    _define(emitter, op, make)


def emit_reduce(emitter: Emitter, op: ttarget.ReduceOp) -> None:
    """An axis reduced to one element."""
    f, source = emitter.f, emitter.blocks[op.operands[0]]
    layout, dtype = emitter.layout(op.result)

    def join(a: Parts, b: Parts) -> Parts:
        return (math.emit(f, _JOIN[op.kind], [a[0], b[0]], source.dtype),)

    found = [value for (value,) in _reduce_all(f, [source], op.axis, layout, join)]
    emitter.blocks[op.result] = Vectors.of(layout, dtype, found)


def emit_arg_reduce(emitter: Emitter, op: ttarget.ArgReduceOp) -> None:
    """Where along an axis its minimum or maximum is: lower indices first among equals; NaN before all."""
    f, sources = emitter.f, [emitter.blocks[value] for value in op.operands]
    layout, dtype = emitter.layout(op.result)

    def join(a: Parts, b: Parts) -> Parts:
        takes = _comes_first(f, a, b, op.kind, sources[0].dtype)
        return f.select(takes, b[0], a[0]), f.select(takes, b[1], a[1])

    found = [index for _, index in _reduce_all(f, sources, op.axis, layout, join)]
    emitter.blocks[op.result] = Vectors.of(layout, dtype, found)


def _element(f: FunctionText, source: Vectors, indices: Sequence[int]) -> Value:
    """One element of a block, as a scalar."""
    if not indices:
        return f.extract(source[0], 0)
    chunk, lane = divmod(indices[-1], source.layout.lanes)
    return f.extract(source[source.layout.number(indices[:-1], chunk)], lane)


def _convert(f: FunctionText, value: Value, source: Any, to: Any) -> Value:
    """Between register types: narrow floats are widened first and narrowed last."""
    if source is to:
        return value
    is_narrow = source.is_float and source.compute is not source
    wide = convert.widen(f, value, source) if is_narrow else value
    given = source.compute if is_narrow else source
    if to.is_float and to.compute is not to:
        return convert.narrow(f, convert.before_narrowing(f, wide, given, to), to)
    return convert.cast(f, wide, given, to.compute)
