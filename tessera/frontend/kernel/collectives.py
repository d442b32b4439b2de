"""Collectives of tiles: what the same program has on every rank of a mesh axis, reduced or gathered.

A collective says where in a whole tensor its tile lies: that is what ranks exchange, so the bytes do not depend on the
blocks of a schedule, and ranks that differ in them would still agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import DTypeError, KernelError
from tessera.diagnostics.error import format_count
from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder, current
from tessera.frontend.kernel.extents import Axis
from tessera.frontend.kernel.indexing import Access, DimAccess, access_of
from tessera.frontend.kernel.tiles import Tile, cast_to, tile_of, unbroadcast
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.ir.base.arrays import RANK_REDUCTIONS
from tessera.ir.tile.collective_parts import COLLECTIVES
from tessera.ir.tile.records import TileOp
from tessera.runtime.ranks.world import mesh_in_force
from tessera.types.dim import Dim
from tessera.types.dtype import f32


def all_reduce(x: Any, axis: str, op: str = "sum") -> Tile:
    """The tile that this program has on every rank of mesh axis `axis`, reduced by `op`, rank 0 first; all get it.

    `op` is `sum`, `prod`, `max`, `min` or `mean`. The tile keeps its dtype: narrow floats are reduced in f32, and
    rounded once; integers become f32 for a mean. Bits are those of `dist.all_reduce` of the whole tensor. All ranks
    reach a collective equally often, so it stands in no loop over blocks.
    """
    b = current()
    tile = _reduce_ranks(b, "all_reduce", x, op)
    values = {**_mesh(b, "all_reduce", axis), "op": op}
    return _emit(b, "all_reduce", [tile], values, 1)[0]


def all_gather(x: Any, axis: str) -> tuple[Tile, ...]:
    """The tile that this program has on each rank of mesh axis `axis`: a tuple of tiles, rank 0 first.

    A Python loop over them is unrolled: `for rank, part in enumerate(tile.all_gather(x, "tp")): ...`.
    """
    b = current()
    tile = unbroadcast(b, tile_of(b, "all_gather", x))
    values = _mesh(b, "all_gather", axis)
    return _emit(b, "all_gather", [tile], values, values["size"][0].value)


def reduce_scatter(parts: Any, axis: str, op: str = "sum") -> Tile:
    """Tile `r` of `parts` of every rank of mesh axis `axis`, reduced by `op` for rank `r`, rank 0 first.

    `parts` has a tile for each rank, all of one shape; `op` and dtypes are as for `all_reduce`.
    """
    b = current()
    values = _mesh(b, "reduce_scatter", axis)
    ranks = values["size"][0].value
    tiles = [_reduce_ranks(b, "reduce_scatter", part, op) for part in as_tuple(parts)] if is_sequence(parts) else []
    if len(tiles) != ranks:
        got = f"{len(tiles)} tile{'s' * (len(tiles) != 1)}" if tiles else type(parts).__name__
        raise b.fail(
            f"`reduce_scatter` takes a tile for each of the {ranks} ranks of `{axis}`, got {got}",
            "give it a tuple, rank 0 first, as in `(tile.load(x, 0, T.m, T.n), tile.load(x, 1, T.m, T.n))`",
        )
    if len({(tile.shape, tile.dtype) for tile in tiles}) > 1:
        listed = " and ".join(dict.fromkeys(f"{list(tile.shape)} of {tile.dtype}" for tile in tiles))
        raise b.misfit(f"`reduce_scatter` takes tiles of one shape and dtype, got {listed}")
    return _emit(b, "reduce_scatter", tiles, {**values, "op": op}, 1)[0]


def check_uniform(b: KernelBuilder) -> None:
    """Raises KernelError (T0206) for a kernel that communicates, and asks which rank it is on.

    Python decides at compile time, so that ranks would have different kernels, and meet at different collectives.
    """
    found = next((op for op in b.body.ops if op.name in COLLECTIVES), None)
    if found is not None and b.rank_span is not None:
        raise KernelError(
            f"`rank()` is another number on each rank, and `{found.name}` needs one kernel on all of them",
            span=b.rank_span,
            notes=("rule: every rank reaches a collective equally often", *_where(found)),
            fix="give the kernel a tensor that says what its rank does, such as `ts.array(ts.dist.rank())`",
        )


def _where(op: TileOp) -> tuple[str, ...]:
    return (f"`{op.name}` is at {op.span}",) if op.span is not None else ()


def _reduce_ranks(b: KernelBuilder, fn: str, x: Any, op: str) -> Tile:
    """The operand of a reduction over ranks."""
    tile = unbroadcast(b, tile_of(b, fn, x))
    if op not in RANK_REDUCTIONS:
        raise b.fail(f"`op` is one of {', '.join(RANK_REDUCTIONS)}, got {op!r}")
    if tile.dtype.is_bool:
        raise DTypeError(f"`{fn}` reduces numbers, got bool", span=b.span, fix="cast it first: `tile.cast(x, i32)`")
    return cast_to(b, tile, f32) if op == "mean" and not tile.dtype.is_float else tile


def _mesh(b: KernelBuilder, fn: str, axis: Any) -> dict[str, Any]:
    """Mesh axis and how many ranks it has; raises where ranks could not all be here, equally often."""
    if b.loops:
        raise b.fail(
            f"`{fn}` is in a loop over blocks, whose iterations ranks need not have equally many of",
            "accumulate in the loop, and communicate after it; a loop over a Python `range` is unrolled",
            "rule: every rank reaches a collective equally often",
        )
    around = mesh_in_force()
    if axis not in around.sizes:
        listed = ", ".join(f"`{name}` ({format_count(size, 'rank')})" for name, size in around.axes) or "no axis"
        raise b.fail(
            f"`{fn}` is over mesh axis `{axis}`, and the mesh in force has {listed}",
            f"call the kernel within `with tessera.dist.mesh({axis}=...)`" if not around.axes else "name one of them",
        )
    return {"axis": axis, "size": (Dim.constant(around.sizes[axis]),)}


def _emit(b: KernelBuilder, name: str, tiles: Sequence[Tile], values: dict[str, Any], count: int) -> tuple[Tile, ...]:
    access, shape = _place(b, name, tiles[0])
    operands = [*(tile.number for tile in tiles), *access.operands]
    type = tiles[0].type
    numbers = b.emit(name, operands, {**values, **access.values, "shape": shape}, [type] * count)
    return tuple(Tile(number, type, tiles[0].axes) for number in numbers)


def _place(b: KernelBuilder, name: str, tile: Tile) -> tuple[Access, tuple[Dim, ...]]:
    """Where a tile lies in the tensor that ranks exchange, and the dims of that."""
    entries: list[DimAccess] = []
    for axis, size in zip(tile.axes, tile.shape, strict=True):
        found = _whole_axis(b, name, axis) or Axis(b.zero(), None, Dim.constant(size))
        entries.append(DimAccess(Dim.symbol(found.name), found, size))
    shape = tuple(entry.axis.dim for entry in entries if entry.axis is not None and entry.axis.dim is not None)
    return access_of(b, entries), shape


def _whole_axis(b: KernelBuilder, name: str, axis: Axis | None) -> Axis | None:
    """The axis of the whole tensor that an axis of a tile is a block of; None for one that the program has alone."""
    if axis is None or axis.name not in b.coords:
        return None
    known = b.axes.get(axis.name)
    if known is None:
        return axis if axis.dim is not None else None
    if known.extent == UNKNOWN:
        raise b.fail(f"nothing was loaded along `{known.name[1:]}` before `{name}`, so nobody knows how long it is")
    return Axis(known.name, known.extent, known.extent)
