"""Blocks of elements in vector registers: their layout, expressions by lane, and square transposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.cpu.lane_offsets import lanes_apart
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import VectorAttr
from tessera.ir.target.llvm.convert import compute_type, storage_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, constant_of, dim_value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import ClipOp, LoadOp, StoreOp
from tessera.types.dim import Atom, Dim, atom_dim, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_least

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter
    from tessera.ir.target.typed_ops import LoopOp


def register_type(dtype: DType) -> str:
    """The LLVM type of one element of a block: narrow floats stay as stored until they are converted."""
    return storage_type(dtype) if dtype.is_float and dtype.compute is not dtype else compute_type(dtype)


class Layout:
    """The layout of a block in registers: `rows` (all axes but the last), each of `chunks` vectors of `lanes`."""

    def __init__(self, sizes: Sequence[int], register: int) -> None:
        self.sizes = tuple(sizes)
        last = self.sizes[-1] if self.sizes else 1
        self.lanes = min(register, last)
        if last % self.lanes:
            self.lanes = 1
        self.chunks = last // self.lanes
        self.rows = math.prod(self.sizes[:-1])

    @property
    def count(self) -> int:
        return self.rows * self.chunks

    def position(self, number: int) -> tuple[tuple[int, ...], int]:
        """The indices along the outer axes, and the first element along the last, of a vector."""
        row, chunk = divmod(number, self.chunks)
        outer: list[int] = []
        for size in reversed(self.sizes[:-1]):
            row, index = divmod(row, size)
            outer.append(index)
        return tuple(reversed(outer)), chunk * self.lanes

    def number(self, outer: Sequence[int], chunk: int) -> int:
        row = 0
        for size, index in zip(self.sizes[:-1], outer, strict=True):
            row = row * size + index
        return row * self.chunks + chunk


class Vectors:
    """The vectors of a block, each written at its first use, so that chains of ops are emitted one after the other."""

    def __init__(self, layout: Layout, dtype: DType, make: Callable[[int], Value]) -> None:
        self.layout, self.dtype = layout, dtype
        self._make = make
        self._made: dict[int, Value] = {}
        self.depth = 0
        """Blocks that a vector may have to be made of first, one of the other."""

    @staticmethod
    def of(layout: Layout, dtype: DType, values: Sequence[Value]) -> Vectors:
        return Vectors(layout, dtype, list(values).__getitem__)

    def __getitem__(self, number: int) -> Value:
        if number not in self._made:
            self._made[number] = self._make(number)
        return self._made[number]

    def all(self) -> list[Value]:
        return [self[number] for number in range(self.layout.count)]

    @property
    def type(self) -> str:
        return vector(register_type(self.dtype), self.layout.lanes)


# Expressions over coordinates by lane: scalars where they do not vary, vectors of i64 where they do.


@frozen
class LaneCoordinate:
    """The coordinate that runs along lanes: lane `l` is at `start + l`.

    `start` is `first` behind a multiple of `multiple`.
    """

    name: str
    start: Index
    lanes: int
    first: int = 0
    multiple: int = 1

    def apart(self, dim: Dim) -> tuple[int, ...] | None:
        """How far a dim of this coordinate is in each lane from the first, where the lane alone decides that."""
        return lanes_apart(dim, self.name, range(self.first, self.first + self.lanes), self.multiple)


def lane_values(
    f: FunctionText, dim: Dim, env: Mapping[str, Index], along: LaneCoordinate | None, tiles: Mapping[str, Value]
) -> Value:
    """The value of a dim in every lane: a scalar when no lane differs, else a vector.

    `env` gives sizes and the coordinates that do not vary; `tiles` vectors of i64 by name.
    """
    varying = set(tiles) | ({along.name} if along is not None else set[str]())
    if not dim.symbols & varying:
        return dim_value(f, dim, env)
    if along is not None and not dim.symbols & tiles.keys():
        parts = dim.coefficient(along.name)
        if parts is not None:
            return _ramp(f, dim_value(f, parts[0], env), dim_value(f, parts[1], env), along)
        apart = along.apart(dim) if along.lanes > 1 else None
        if apart is not None:
            # One division for all lanes: vectors of 64 bits are divided lane by lane.
            start = f.splat(dim_value(f, dim, {**env, along.name: along.start}), along.lanes)
            return f.op("add", start, f.lanes_const("i64", apart))
    return _Varying(f, env, along, tiles).value(dim)


def _ramp(f: FunctionText, step: Value, base: Value, along: LaneCoordinate) -> Value:
    """`base + step * (start + lane)`."""
    first = f.add(base, f.mul(step, along.start))
    if along.lanes == 1:
        return first
    lanes = f.iota("i64", along.lanes)
    scaled = lanes if step.text == "1" else f.op("mul", lanes, f.splat(step, along.lanes))
    return f.op("add", f.splat(first, along.lanes), scaled)


@frozen
class _Varying:
    """Any expression, on vectors."""

    f: FunctionText
    env: Mapping[str, Index]
    along: LaneCoordinate | None
    tiles: Mapping[str, Value]

    @property
    def lanes(self) -> int:
        if self.along is not None:
            return self.along.lanes
        return next(iter(self.tiles.values())).lanes

    def value(self, dim: Dim) -> Value:
        f = self.f
        if not dim.symbols & (self.tiles.keys() | ({self.along.name} if self.along else set[str]())):
            return f.splat(dim_value(f, dim, self.env), self.lanes)
        total: Value | None = None
        for monomial, coefficient in dim.terms:
            part = f.splat(f.const_i(coefficient), self.lanes)
            for number, atom in enumerate(monomial):
                factor = self._atom(atom)
                part = factor if number == 0 and coefficient == 1 else f.op("mul", part, factor)
            total = part if total is None else f.op("add", total, part)
        assert total is not None
        return total

    def _atom(self, atom: Atom) -> Value:
        f = self.f
        if atom.kind == "symbol":
            if atom.name in self.tiles:
                return self.tiles[atom.name]
            if self.along is not None and atom.name == self.along.name:
                return _ramp(f, f.const_i(1), f.const_i(0), self.along)
            return f.splat(f.index(self.env[atom.name]), self.lanes)
        if self._divides_evenly(atom):
            return self._divide_ramp(atom)
        first, second = (self.value(arg) for arg in atom.args)
        if atom.kind in ("max", "min"):
            return f.intrinsic("smax" if atom.kind == "max" else "smin", first, second)
        return self._divide(atom, first, second)

    def _divides_evenly(self, atom: Atom) -> bool:
        """Whether what grows by one from lane to lane is divided by a constant, `(x + c) mod 7`."""
        if self.along is None or atom.kind not in ("floordiv", "mod") or atom.args[0].symbols & self.tiles.keys():
            return False
        parts, divisor = atom.args[0].coefficient(self.along.name), atom.args[1].value
        return parts is not None and parts[0].value == 1 and divisor is not None and 0 < divisor < 2**30

    def _divide_ramp(self, atom: Atom) -> Value:
        """The first lane is divided as a scalar; the others are so near to it that small numbers tell their quotients.

        64-bit vectors cannot be divided, nor multiplied in one instruction.
        """
        f, along, lanes = self.f, self.along, self.lanes
        assert along is not None
        divisor, first = atom.args[1].value or 1, {**self.env, along.name: along.start}
        remainder = dim_value(f, atom_dim("mod", *atom.args), first)
        near = f.op("add", f.splat(f.cast("trunc", remainder, "i32"), lanes), f.iota("i32", lanes))
        if divisor >= lanes:
            quotient = f.cast("zext", f.icmp("uge", near, f.const("i32", divisor, lanes)), "i32")
        else:  # exact: numbers below two vectors of lanes times a divisor below one are below 2^16
            scaled = f.op("mul", near, f.const("i32", 2**16 // divisor + 1, lanes))
            quotient = f.op("lshr", scaled, f.const("i32", 16, lanes))
        if atom.kind == "mod":
            return f.cast("zext", f.op("sub", near, f.op("mul", quotient, f.const("i32", divisor, lanes))), "i64")
        base = dim_value(f, atom_dim("floordiv", *atom.args), first)
        return f.op("add", f.splat(base, lanes), f.cast("zext", quotient, "i64"))

    def _divide(self, atom: Atom, first: Value, second: Value) -> Value:
        f = self.f
        zero, one = (Value(second.type, f.splat(f.const_i(n), self.lanes).text) for n in (0, 1))
        is_zero = f.icmp("eq", second, zero)
        divisor = f.select(is_zero, one, second)
        if is_at_least(atom.args[0], 0) and is_at_least(atom.args[1], 0) and not self.tiles:
            found = f.op("udiv" if atom.kind == "floordiv" else "urem", first, divisor)
        else:
            remainder = f.op("srem", first, divisor)
            off = f.op("and", f.icmp("ne", remainder, zero), f.icmp("slt", f.op("xor", remainder, divisor), zero))
            if atom.kind == "mod":
                return f.select(off, f.op("add", remainder, divisor), remainder)
            quotient = f.op("sdiv", first, divisor)
            found = f.select(off, f.op("sub", quotient, one), quotient)
        return f.select(is_zero, zero, found)


# Square transposes of vectors in registers.


def transpose(f: FunctionText, rows: Sequence[Value]) -> list[Value]:
    """As many vectors as each has lanes (a power of two), transposed.

    First within 128-bit lanes, by interleaving; then the 128-bit blocks themselves. Every step is one shuffle.
    """
    lanes = rows[0].lanes
    assert len(rows) == lanes
    per = min(lanes, 16 // bytes_of(rows[0].element))
    groups = lanes // per
    inner = [_within_blocks(f, rows[g * per : (g + 1) * per], per) for g in range(groups)]
    columns: list[Value | None] = [None] * lanes
    for j in range(per):
        for block, value in enumerate(_across_blocks(f, [inner[g][j] for g in range(groups)], per)):
            columns[block * per + j] = value
    return [column for column in columns if column is not None]


def can_transpose(lanes: int, size: int) -> bool:
    """Whether vectors of so many lanes, elements of so many bytes, can be transposed."""
    return lanes > 1 and lanes & (lanes - 1) == 0 and lanes * size <= 64


def _within_blocks(f: FunctionText, rows: Sequence[Value], per: int) -> list[Value]:
    """Transpose each `per` by `per` block of `per` rows: result `j` holds column `j` of every block.

    Halves of the rows are interleaved among themselves, then with each other, in runs that grow.
    """
    count = len(rows)
    if count == 1:
        return list(rows)
    first, second = (_within_blocks(f, half, per) for half in (rows[: count // 2], rows[count // 2 :]))
    pairs = zip(first, second, strict=True)
    return [_interleave(f, a, b, per, high, count // 2) for a, b in pairs for high in (0, 1)]


def _interleave(f: FunctionText, a: Value, b: Value, per: int, high: int, run: int) -> Value:
    """The low or high half of each block of `a` and `b`, alternating in runs of elements."""
    lanes, mask = a.lanes, list[int]()
    for block in range(0, lanes, per):
        start = block + high * per // 2
        for position in range(0, per // 2, run):
            mask += [start + position + step for step in range(run)]
            mask += [lanes + start + position + step for step in range(run)]
    return f.shuffle(a, b, mask)


def _across_blocks(f: FunctionText, vectors: Sequence[Value], per: int) -> list[Value]:
    """Transpose the blocks of as many vectors as each has blocks: 1, 2 or 4."""
    if len(vectors) == 1:
        return list(vectors)
    if len(vectors) == 2:
        return [_blocks(f, vectors[0], vectors[1], per, (block, 2 + block)) for block in (0, 1)]
    assert len(vectors) == 4
    first = [[_blocks(f, vectors[a], vectors[a + 1], per, (s, s + 2, s + 4, s + 6)) for s in (0, 1)] for a in (0, 2)]
    return [
        _blocks(f, first[0][block % 2], first[1][block % 2], per, (s, s + 2, s + 4, s + 6))
        for block in range(4)
        for s in (block // 2,)
    ]


def _blocks(f: FunctionText, a: Value, b: Value, per: int, picks: Sequence[int]) -> Value:
    """Whole blocks picked from `a` then `b`."""
    return f.shuffle(a, b, [pick * per + step for pick in picks for step in range(per)])


# Two rewrites of loops and blocks of ops while they are written: split reductions, and a version without edges.

# Loops over rows in two: first the reductions of several rows, then what each row does with its result. A reduction
# ends in a chain of dependent steps, and what follows waits for it; a CPU looks too few instructions ahead to begin the
# next row meanwhile. Reductions of several rows in one short loop overlap.

_ROWS = 16
"""Rows reduced before the first of them is finished: few enough to stay in the nearest cache."""
_WORTH = 4
"""Vectors of a row from which on its reduction is worth a loop of its own."""
_PURE = frozenset(["load", "clip", "reduce", "elementwise", "select", "constant", "index", "cast", "broadcast"])


@frozen
class Split:
    """A body in two: the ops that reduce, the ops of the second loop, and the scalars kept between them."""

    first: tuple[SpecOp, ...]
    second: tuple[SpecOp, ...]
    saved: tuple[SSAValue, ...]


def find_split(op: LoopOp) -> Split | None:
    """How the body of a loop is cut, or None where there is nothing to gain, or rows may see each other."""
    block = op.regions[0].block
    ops = [part for part in block.ops if isinstance(part, SpecOp)]
    if op.step != 1 or len(block.args) != 1 or any(part.regions for part in ops):
        return None
    reduced = _depending_on_reductions(ops)
    wanted = [part.operands[0] for part in ops if part.spec.short_name == "broadcast" and part.operands[0] in reduced]
    first = _slice(ops, wanted)
    if not wanted or not all(part.spec.short_name in _PURE for part in first):
        return None
    if not all(_keeps_to_its_row(part, ops, block.args[0]) for part in first if isinstance(part, LoadOp)):
        return None
    second = [part for part in ops if part not in first or not any(value in reduced for value in part.results)]
    used = {value for part in second for value in part.operands}
    saved = [value for part in first if part not in second for value in part.results if value in used]
    if any(not isinstance(value.type, VectorAttr) or value.type.shape for value in saved):
        return None
    return Split(tuple(first), tuple(second), tuple(saved))


def _depending_on_reductions(ops: Sequence[SpecOp]) -> set[SSAValue]:
    """What is computed from the reduction of a long row, directly or not."""
    found: set[SSAValue] = set()
    for op in ops:
        if _is_long_reduction(op) or any(value in found for value in op.operands):
            found.update(op.results)
    return found


def _is_long_reduction(op: SpecOp) -> bool:
    if op.spec.short_name != "reduce":
        return False
    type = op.operands[0].type
    return isinstance(type, VectorAttr) and len(type.shape) == 1 and (type.shape[0].value or 0) >= _WORTH * 16


def _slice(ops: Sequence[SpecOp], wanted: Sequence[SSAValue]) -> list[SpecOp]:
    """The ops that some values are computed by."""
    needed = set(wanted)
    for op in reversed(ops):
        if any(value in needed for value in op.results):
            needed.update(op.operands)
    return [op for op in ops if any(value in needed for value in op.results)]


def _keeps_to_its_row(load: LoadOp, ops: Sequence[SpecOp], row: SSAValue) -> bool:
    """Whether no other row writes what this one reads, so that it may be read before they do."""
    for op in ops:
        if not isinstance(op, StoreOp):
            if op.spec.short_name not in (*_PURE, "yield") and load.operands[0] in op.operands:
                return False
        elif op.operands[1] is load.operands[0] and not _is_same_part(load, op, row):
            return False
    return True


def _is_same_part(load: LoadOp, store: StoreOp, row: SSAValue) -> bool:
    """Whether both access the same part of a row, and no two rows share it."""
    names, offset = load.coords, load.offset
    if (names, offset) != (store.coords, store.offset):
        return False
    pairs = list(zip(load.operands[1:], store.operands[2:], strict=False))
    if len(pairs) != len(names) or not all(_is_same_index(*pair) for pair in pairs):
        return False
    at = [name for name, (index, _) in zip(names, pairs, strict=True) if index is row]
    parts = offset.coefficient(at[0]) if len(at) == 1 else None
    widths = [_elements(load.results[0]), _elements(store.operands[0])]
    return parts is not None and parts[0].value is not None and all(width <= parts[0].value for width in widths)


def _elements(value: SSAValue) -> int:
    assert isinstance(value.type, VectorAttr)
    return product(value.type.shape).value or 0


def _is_same_index(a: SSAValue, b: SSAValue) -> bool:
    if a is b:
        return True
    makers = [value.owner for value in (a, b)]
    exprs = [
        op.value("expr")
        for op in makers
        if isinstance(op, SpecOp) and op.spec.short_name == "index" and not op.operands
    ]
    return len(exprs) == 2 and exprs[0] == exprs[1]


def emit_split(emitter: Emitter, op: LoopOp, split: Split) -> None:
    """Write the two loops, a few rows at a time."""
    f = emitter.f
    low, high, _ = emitter.bounds(op)
    emitter.prepare_body(op)
    slots: dict[SSAValue, tuple[Value, str]] = {}
    for value in split.saved:
        layout, dtype = emitter.layout(value)
        type_ = Vectors(layout, dtype, lambda _: Value("", "")).type
        slots[value] = (f.alloca(type_, _ROWS), type_)

    def rows(base: Value) -> None:
        end = f.smin(f.add(base, _ROWS), high)

        def reduce(row: Value) -> None:
            def save() -> None:
                for value, (slot, type_) in slots.items():
                    f.store(emitter.blocks[value][0], f.gep(slot, f.sub(row, base), type_))

            _emit_iteration(emitter, op, row, split.first, save)

        def finish(row: Value) -> None:
            for value, (slot, type_) in slots.items():
                layout, dtype = emitter.layout(value)
                emitter.blocks[value] = Vectors.of(layout, dtype, [f.load(f.gep(slot, f.sub(row, base), type_), type_)])
            _emit_iteration(emitter, op, row, split.second, lambda: None)

        f.loop(base, end, 1, reduce)
        f.loop(base, end, 1, finish)

    f.loop(low, high, _ROWS, rows)


def _emit_iteration(emitter: Emitter, op: SpecOp, row: Value, ops: Sequence[SpecOp], then: Callable[[], None]) -> None:
    emitter.indices[op.regions[0].block.args[0]] = row
    with emitter.own_reads():
        emitter.run_ops(ops, then)


# Loops that may take seconds, in strips: between two of them a kernel sees that its call is stopped, as by Ctrl-C.

_STRIP, _STRIP_OF_LOOPS = 1 << 16, 64
"""Iterations of a loop, and of one with loops in it, that are over in some milliseconds."""


def leave_when_stopped(f: FunctionText, done: Value, leave: Callable[[], None] | None = None) -> None:
    """Return where the call is stopped; not asked where nothing is `done` yet, as in all that is short.

    `leave` returns where there is more to do than that.
    """
    f.if_(f.icmp("ne", done, 0), lambda: f.if_(f.call("tessera_is_stopped", [], "i1"), leave or f.ret))


def loop_in_strips(
    f: FunctionText,
    low: Index,
    high: Index,
    step: int,
    body: Callable[[Value, list[Value]], list[Value]],
    carried: Sequence[Value],
    *,
    has_loops: bool = False,
) -> list[Value]:
    """`f.loop`, in strips where it may be long; `f` is a function without a result."""
    strip = step * (_STRIP_OF_LOOPS if has_loops else _STRIP)
    first, last = constant_of(low), constant_of(high)
    if first is not None and last is not None and last - first <= strip:
        return f.loop(low, high, step, body, carried)

    def part(start: Value, values: list[Value]) -> list[Value]:
        leave_when_stopped(f, f.sub(start, low))
        return f.loop(start, f.smin(f.add(start, strip), high), step, body, values, is_nonempty=True)

    return f.loop(low, high, strip, part, carried)


# The remainder of a block of ops in two versions: one where nothing reaches beyond an edge, one where something may.

_ALIKE = ("coords", "axes", "axis", "bound")

"""Vectors of a clipped row from which on one branch costs less than a mask for each."""


@frozen
class Version:
    """What is known where one of two versions is written: whether the whole row of this clip is there."""

    clip: ClipOp
    is_inside: bool

    def is_whole(self, clip: SpecOp) -> bool:
        """Whether a clip cuts nothing off: it has the bound that was asked about, at the same coordinates."""
        ours = (self.clip.operands[1:], *(self.clip.value(name) for name in _ALIKE))
        return self.is_inside and ours == (clip.operands[1:], *(clip.value(name) for name in _ALIKE))


def is_worth_versions(emitter: Emitter, op: SpecOp) -> bool:
    """Whether an op is the clip of a row long enough to ask once whether all of it is there."""
    if not isinstance(op, ClipOp) or emitter.version is not None:
        return False
    layout, _ = emitter.layout(op.result)
    axes, bound = op.axes, op.bound
    return len(axes) == 1 and op.axis == axes[0] not in bound.symbols and layout.count >= _WORTH


def emit_versions(emitter: Emitter, ops: Sequence[SpecOp], then: Callable[[], None] | None = None) -> None:
    """Write `ops`, which begin with a clip, and what `then` writes: for whole rows, and for others."""
    clip, ended = ops[0], ops[-1]
    assert isinstance(clip, ClipOp)
    given = ended.operands if ended.spec.short_name == "yield" else ()
    _write_what_is_used(emitter, ops)

    def arm(is_inside: bool) -> list[Value]:
        emitter.version = Version(clip, is_inside)
        emitter.forget()
        emitter.run_ops(ops, then)
        emitter.forget()
        return [vector for value in given for vector in emitter.blocks[value].all()]

    merged = emitter.f.if_(_is_inside(emitter, clip), lambda: arm(True), lambda: arm(False))
    emitter.version = None
    emitter.bind(given, merged)


def _is_inside(emitter: Emitter, clip: ClipOp) -> Value:
    f, axis = emitter.f, clip.axis
    env = emitter.env_of(clip, clip.coords, 1)
    layout, _ = emitter.layout(clip.result)
    left = f.sub(dim_value(f, clip.bound, env), env[axis])
    return f.icmp("sge", left, layout.sizes[-1])


def _write_what_is_used(emitter: Emitter, ops: Sequence[SpecOp]) -> None:
    """What both versions read is written before they part."""
    emitter.settle_all()
    used: dict[SSAValue, None] = {value: None for op in ops for part in op.walk() for value in part.operands}
    for value in used:
        if value in emitter.blocks:
            emitter.blocks[value].all()
