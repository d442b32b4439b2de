"""Which cells an access touches: index maps, bounds and windows of a load or store, evaluated on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.types.dim import Atom, Dim

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


@dataclass(frozen=True)
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
        env[axis] = env[axis] + steps.reshape([-1 if at == position else 1 for at in range(len(shape))])
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
        place = evaluate(expr, scope)
        inside &= (place >= 0) & (place < evaluate(extent, scope))
    indices = (np.broadcast_to(np.asarray(evaluate(expr, scope), np.int64), whole) for expr in values["map"])
    return Cells(tuple(indices), inside)
