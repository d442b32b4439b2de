"""Expressions over coordinates by lane: scalars where they do not vary, vectors of i64 where they do."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Atom, Dim
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_least


@frozen
class LaneCoordinate:
    """The coordinate that runs along lanes: lane `l` stands at `start + l`."""

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
        return self._divided(atom, first, second)

    def _divided(self, atom: Atom, first: Value, second: Value) -> Value:
        f = self.f
        zero, one = (Value(second.type, f.splat(f.const_i(n), self.lanes).text) for n in (0, 1))
        is_zero = f.icmp("eq", second, zero)
        divisor = f.select(is_zero, one, second)
        if is_at_least(atom.args[0], 0) and is_at_least(atom.args[1], 0) and not self.tiles:
            found = f.op("udiv" if atom.kind == "floordiv" else "urem", first, divisor)
        else:
            rest = f.op("srem", first, divisor)
            off = f.op("and", f.icmp("ne", rest, zero), f.icmp("slt", f.op("xor", rest, divisor), zero))
            if atom.kind == "mod":
                return f.select(off, f.op("add", rest, divisor), rest)
            quotient = f.op("sdiv", first, divisor)
            found = f.select(off, f.op("sub", quotient, one), quotient)
        return f.select(is_zero, zero, found)
