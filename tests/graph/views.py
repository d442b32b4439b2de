"""Reading through index maps: what a view or a set of pieces gives, one element at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.ir.base.index_maps import IndexMap
from tessera.ir.tile.facets import Piece


def read(x: Array, index_map: IndexMap, shape: Sequence[int], env: Mapping[str, int] | None = None) -> Array:
    """`out[d] = x[map(d)]`; every index must be in range."""
    out = np.zeros(tuple(shape), x.dtype)
    for place in np.ndindex(*shape):
        sizes = {**(env or {}), **{f"d{axis}": at for axis, at in enumerate(place)}}
        index = tuple(dim.evaluate(sizes) for dim in index_map)
        assert all(0 <= at < size for at, size in zip(index, x.shape, strict=True)), f"{index} of {x.shape}"
        out[place] = x[index]
    return out


def assemble(arrays: Sequence[Array], pieces: Sequence[Piece], shape: Sequence[int]) -> Array:
    """The boxes put together; each cell must be written exactly once."""
    out = np.zeros(tuple(shape), arrays[0].dtype)
    written = np.zeros(tuple(shape), np.int64)
    for piece in pieces:
        start, extent = ([dim.evaluate({}) for dim in dims] for dims in (piece.start, piece.extent))
        box = tuple(slice(first, first + size) for first, size in zip(start, extent, strict=True))
        written[box] += 1
        out[box] = piece.fill if piece.operand is None else read(arrays[piece.operand], piece.map, extent)
    assert (written == 1).all()
    return out
