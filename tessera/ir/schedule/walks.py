"""Whether a side of a product is read along single dims of the memory that holds it, as copies of whole tiles are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.ir.schedule.emit.joined_dims import groups_of
from tessera.ir.schedule.emit.maps import delinear, linear, simplify
from tessera.ir.tile.facets import ContractionMaps, IndexMap
from tessera.types.dim import Dim

SIDES = (("_m", "_k"), ("_k", "_n"))
"""What each side of a product is walked along."""


def side_at(maps: ContractionMaps, side: int) -> IndexMap:
    """Where a product reads one of its sides, over the rows, columns and products summed of a block."""
    where: dict[str, Dim] = {}
    for letter, extents in (("m", maps.m), ("n", maps.n), ("k", maps.k)):
        parts = delinear(Dim.symbol(f"_{letter}"), extents)
        where.update({f"{letter}{axis}": part for axis, part in enumerate(parts)})
    return tuple(simplify(place.substitute(where)) for place in (maps.lhs, maps.rhs)[side])


def is_walkable(at: Sequence[Dim], shape: Sequence[Dim], axes: Sequence[str]) -> bool:
    """Whether each axis goes along one dim, element by element, and one of them along the last."""
    groups = groups_of(shape, [at])
    joined = [linear(at[first:end], shape[first:end]) if end > first + 1 else at[first] for first, end in groups]
    dims = {axis: [dim for dim, place in enumerate(joined) if axis in place.symbols] for axis in axes}
    if any(len(found) > 1 for found in dims.values()):
        return False
    steps: Mapping[str, Dim | None] = {axis: _step(joined[found[0]], axis) for axis, found in dims.items() if found}
    is_along = any(found == [len(joined) - 1] for found in dims.values())
    return is_along and all(step is not None and step.value == 1 for step in steps.values())


def _step(place: Dim, axis: str) -> Dim | None:
    parts = place.coefficient(axis)
    return None if parts is None or axis in parts[1].symbols else parts[0]
