"""Which cells an access touches: index maps, bounds and windows of a load or store, evaluated on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from tessera.ir.base.arrays import Array
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.sites import Site
from tessera.ir.tile.typed_ops import IndexOp
from tessera.types.dim import Atom, Dim
from tessera.types.frozen import frozen

# What is known of an index before a kernel runs: its expression, and the ends of loops that are numbers.


def index_expr(index: SSAValue) -> Dim | None:
    """The expression of an index, over sizes and the names it has for other indices; None for one of a loop or memory.

    A number, or anything else that holds whatever names stand for, can be read from it as it is.
    """
    return index.owner.expr if isinstance(index.owner, IndexOp) else None


def size_expr(index: SSAValue) -> Dim | None:
    """The expression of an index that is computed from sizes alone, or None."""
    return index.owner.expr if isinstance(index.owner, IndexOp) and not index.owner.at else None


def known_ends(loop: SpecOp) -> tuple[int, int] | None:
    """Where a loop begins and ends, if both are numbers."""
    low, high = (None if expr is None else expr.value for expr in map(index_expr, loop.operands[:2]))
    return None if low is None or high is None else (low, high)


# Accesses of a kernel as integer sets: what isl decides exactly where indices are affine, and safely where not.


@dataclass
class Affine:
    """Writes conditions in isl's language; what is not affine becomes a number of which little is known.

    `exact` tells whether nothing was widened on the way, so that a point of a set is a real one.
    """

    sizes: Sequence[str]
    suffix: str = ""
    exact: bool = field(default=True, init=False)
    conditions: list[str] = field(default_factory=list[str], init=False)
    extra: list[str] = field(default_factory=list[str], init=False)
    _names: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _fresh: dict[Dim, str] = field(default_factory=dict[Dim, str], init=False)

    def name(self, symbol: str) -> str:
        """The isl name of a size or variable."""
        if symbol in self.sizes:
            return f"S{self.sizes.index(symbol)}"
        return self._names.setdefault(symbol, f"v{len(self._names)}{self.suffix}")

    def text(self, dim: Dim) -> str:
        parts: list[str] = []
        for monomial, coefficient in dim.terms:
            if not monomial:
                parts.append(str(coefficient))
            elif len(monomial) == 1:
                parts.append(f"{coefficient} * {self._atom(monomial[0])}")
            else:
                parts.append(f"{coefficient} * {self._unknown(Dim(((monomial, 1),)))}")
        return "(" + " + ".join(f"({part})" for part in parts) + ")" if parts else "0"

    def _atom(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return self.name(atom.name)
        first, second = atom.args
        if atom.kind in ("max", "min"):
            return f"{atom.kind}({self.text(first)}, {self.text(second)})"
        if second.value is not None and second.value > 0:
            inner = self.text(first)
            return f"floor({inner} / {second.value})" if atom.kind == "floordiv" else f"({inner} mod {second.value})"
        found = self._unknown(Dim((((atom,), 1),)))
        if atom.kind == "mod":
            modulus = self.text(second)
            self.conditions.append(f"({modulus} <= 0 or (0 <= {found} and {found} < {modulus}))")
        return found

    def _unknown(self, dim: Dim) -> str:
        self.exact = False
        if dim not in self._fresh:
            self._fresh[dim] = f"u{len(self._fresh)}{self.suffix}"
            self.extra.append(self._fresh[dim])
            if dim.symbols <= set(self.sizes):
                self.conditions.append(f"{self._fresh[dim]} >= 0")
        return self._fresh[dim]

    def domain(self, site: Site) -> None:
        """The conditions under which a site's indices are what they are."""
        if site.gathered:
            self.exact = False
        for variable in site.variables:
            name, low, high = self.name(variable.name), self.text(variable.low), self.text(variable.high)
            self.conditions += [f"{low} <= {name}", f"{name} < {high}"]
            if variable.step != 1:
                self.conditions.append(f"({name} - {low}) mod {variable.step} = 0")
        for axis in site.axes:
            if axis.bound is not None:
                self.conditions.append(f"{self.text(axis.dim)} < {self.text(axis.bound)}")
        for expr, extent in site.windows:
            self.conditions += [f"0 <= {self.text(expr)}", f"{self.text(expr)} < {self.text(extent)}"]

    @property
    def parameters(self) -> str:
        return "[" + ", ".join(f"S{number}" for number in range(len(self.sizes))) + "]"

    @property
    def inner_names(self) -> list[str]:
        """All variables, in the order in which they were named, then what is not affine."""
        return [*self._names.values(), *self.extra]

    def variable(self, symbol: str) -> str:
        """The isl name of a variable; empty for a size, and for what no condition names."""
        return self._names.get(symbol, "")


def size_conditions(sizes: Sequence[str], guards: Iterable[tuple[Dim, Dim]]) -> list[str]:
    """Sizes are at least 0, and equal where a guard on them says so."""
    equal: list[str] = []
    for left, right in guards:
        writer = Affine(sizes)
        text = f"{writer.text(left)} = {writer.text(right)}"
        # A guard that is not affine, or names other sizes, says nothing here.
        if left.symbols | right.symbols <= set(sizes) and writer.exact:
            equal.append(text)
    return [f"S{number} >= 0" for number in range(len(sizes))] + equal


def alike(sizes: Sequence[str]) -> list[str]:
    """All sizes equal: then nearly every fact that a caller may rely on holds, so a point here is a real mistake."""
    return [f"S{number} = S0" for number in range(1, len(sizes))]


def isl_set(parameters: str, names: Sequence[str], conditions: Sequence[str]) -> Any:
    """The set of all points that meet the conditions."""
    return _parse_set(f"{parameters} -> {{ [{', '.join(names)}] : {' and '.join(conditions) or 'true'} }}")


@lru_cache(maxsize=256)
def _parse_set(text: str) -> Any:
    """The set that a text means; sites of unrolled loops ask the same, and no set ever changes."""
    import islpy  # noqa: PLC0415 - large, and only debug builds and tests ask

    return islpy.Set(text)


def point_of(found: Any, sizes: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """One point of a set that is not empty: the value of every size and name, the smallest where there is one."""
    import islpy  # noqa: PLC0415

    point = (found.lexmin() if found.is_bounded() else found).sample_point()
    values: dict[str, int] = {}
    for number, size in enumerate(sizes):
        values[size] = point.get_coordinate_val(islpy.dim_type.param, number).to_python()
    for number, name in enumerate(names):
        values[name] = point.get_coordinate_val(islpy.dim_type.set, number).to_python()
    return values


def evaluate_at(values: Mapping[str, int], dim: Dim, writer: Affine) -> int:
    """An expression at a point."""
    env = {symbol: values[symbol] for symbol in dim.symbols & values.keys()}
    env |= {symbol: values[name] for symbol in dim.symbols if (name := writer.variable(symbol)) in values}
    return dim.evaluate(env)


Number: TypeAlias = "int | Array"
"""One number for the whole tile, or one for each element along some of its axes."""


def evaluate(dim: Dim, env: Mapping[str, Number]) -> Any:
    """The value of an expression whose symbols stand for numbers or arrays; division by zero is zero."""
    total: Any = 0
    for monomial, coefficient in dim.terms:
        product: Any = coefficient
        for atom in monomial:
            product = product * _atom(atom, env)
        total = total + product
    return total


def _atom(atom: Atom, env: Mapping[str, Number]) -> Any:
    if atom.kind == "symbol":
        return env[atom.name]
    first, second = (evaluate(arg, env) for arg in atom.args)
    if isinstance(first, int) and isinstance(second, int):
        return Atom(atom.kind, "", (Dim.constant(first), Dim.constant(second))).evaluate({})
    with np.errstate(divide="ignore"):
        return _ARRAYS[atom.kind](first, second)


_ARRAYS: dict[str, Any] = {"floordiv": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum}


@frozen
class Cells:
    """The cells of a buffer that one access touches: an index per dim, all of the tile's shape, and what is inside.

    Where `inside` does not hold the indices mean nothing.
    """

    indices: tuple[Array, ...]
    inside: Array

    def flat(self, shape: Sequence[int]) -> Array:
        """Row-major numbers of the touched cells, in row-major order of the tile."""
        if not self.indices:
            return np.zeros(int(self.inside.sum()), np.int64)
        return np.ravel_multi_index(tuple(index[self.inside] for index in self.indices), tuple(shape))


def along(
    coords: Mapping[str, int], axes: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int]
) -> dict[str, Number]:
    """What each name stands for at every element: sizes and coordinates, those of axes growing along the tile."""
    env: dict[str, Number] = {**sizes, **coords}
    for position, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        steps = np.arange(size, dtype=np.int64)
        env[axis] = env[axis] + steps.reshape([size if at == position else 1 for at in range(len(shape))])
    return env


def cells_of(
    values: Mapping[str, Any], env: Mapping[str, Number], shape: Sequence[int], gathered: Sequence[Array]
) -> Cells:
    """The cells of an access with attributes `values`, where `env` comes from `along`."""
    whole = tuple(shape)
    scope = {**env, **{f"t{number}": tile.astype(np.int64) for number, tile in enumerate(gathered)}}
    inside = np.ones(whole, np.bool_)
    for axis, bound in zip(values["axes"], values["bounds"], strict=True):
        if bound.value != -1:
            inside &= env[axis] < evaluate(bound, scope)
    windows = values["windows"]
    for expr, extent in zip(windows[::2], windows[1::2], strict=True):
        index = evaluate(expr, scope)
        inside &= (index >= 0) & (index < evaluate(extent, scope))
    indices = (np.broadcast_to(np.asarray(evaluate(expr, scope), np.int64), whole) for expr in values["map"])
    return Cells(tuple(indices), inside)
