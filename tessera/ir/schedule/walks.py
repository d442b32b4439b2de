"""Whether a side of a product is read along single dims of the memory that holds it, as copies of whole tiles are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.ir.base.index_maps import IndexMap, delinear, linear, simplify
from tessera.ir.schedule.emit.joined_dims import groups_of
from tessera.ir.tile.facets import ContractionMaps
from tessera.types.dim import Dim, product


def side_at(maps: ContractionMaps, side: int) -> IndexMap:
    """Where a product reads one of its sides, over the rows, columns and products summed of a block."""
    where: dict[str, Dim] = {}
    for letter, extents in (("m", maps.m), ("n", maps.n), ("k", maps.k)):
        parts = delinear(Dim.symbol(f"_{letter}"), extents)
        where.update({f"{letter}{axis}": part for axis, part in enumerate(parts)})
    return tuple(simplify(place.substitute(where)) for place in (maps.lhs, maps.rhs)[side])


def axes_of(maps: ContractionMaps, side: int) -> dict[str, Dim]:
    """What a side of a product is walked along, and how far."""
    extents = {"_m": product(maps.m), "_n": product(maps.n), "_k": product(maps.k)}
    return {axis: extents[axis] for axis in (("_m", "_k"), ("_k", "_n"))[side]}


def is_walkable(at: Sequence[Dim], shape: Sequence[Dim], axes: Mapping[str, Dim], may_cut: bool = False) -> bool:
    """Whether each axis goes along one dim, element by element, to its end, and one of them along the last.

    With `may_cut`, outer dims may go on where an axis ends.
    """
    groups = groups_of(shape, [at])
    joined = [linear(at[first:end], shape[first:end]) if end > first + 1 else at[first] for first, end in groups]
    sizes = [product(shape[first:end]) for first, end in groups]
    dims = {axis: [dim for dim, place in enumerate(joined) if axis in place.symbols] for axis in axes}
    if any(len(found) > 1 for found in dims.values()):
        return False
    steps: Mapping[str, Dim | None] = {axis: _step(joined[found[0]], axis) for axis, found in dims.items() if found}
    is_along = any(found == [len(joined) - 1] for found in dims.values())
    if not is_along or any(step is None or step.value != 1 for step in steps.values()):
        return False
    kept = {axis: found[0] for axis, found in dims.items() if found and not (may_cut and found[0] < len(joined) - 1)}
    return all(joined[dim].substitute({axis: axes[axis]}) == sizes[dim] for axis, dim in kept.items())


def _step(place: Dim, axis: str) -> Dim | None:
    parts = place.coefficient(axis)
    return None if parts is None or axis in parts[1].symbols else parts[0]
