"""Blocks of elements in vector registers: their layout, expressions by lane, and square transposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera.ir.target.llvm.convert import compute_type, storage_type
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Atom, Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_least


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
        self.rows = 1
        for size in self.sizes[:-1]:
            self.rows *= size

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
    """The coordinate that runs along lanes: lane `l` is at `start + l`."""

    name: str
    start: Index
    lanes: int


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
        first, second = (self.value(arg) for arg in atom.args)
        if atom.kind in ("max", "min"):
            return f.intrinsic("smax" if atom.kind == "max" else "smin", first, second)
        return self._divide(atom, first, second)

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
