"""Elementwise functions of tiles: `fma`, `where`, `cast`, `zeros`, `full`, `broadcast`, row and column indices."""

from __future__ import annotations

from typing import Any

from tessera.frontend.kernel.builder import UNKNOWN, ProgramAxis, current
from tessera.frontend.kernel.extents import Axis, Extent, Index, Loop, RowExtent, roles_of
from tessera.frontend.kernel.indexing import coordinate_tile
from tessera.frontend.kernel.tiles import (
    Operand,
    Tile,
    broadcast_shape,
    broadcast_to,
    cast_to,
    check_dtype,
    constant,
    make_tile,
    operand,
    result_axes,
    tile_of,
)
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.types.dim import Dim
from tessera.types.dtype import DType, dtype_help, f32, find_dtype
from tessera.types.shape import TensorType


def fma(a: Any, b: Any, c: Any) -> Tile:
    """`a * b + c`, rounded once."""
    builder = current()
    tiles = [tile_of(builder, "fma", value) for value in (a, b, c) if not isinstance(value, int | float)]
    dtype = tiles[0].dtype.compute
    check_dtype(builder, "fma", dtype)
    shape = broadcast_shape(builder, "fma", [tile.shape for tile in tiles])
    parts = [operand(builder, value, dtype, shape) for value in (a, b, c)]
    numbers = [broadcast_to(builder, tile, shape) for tile in parts]
    return make_tile(
        builder, "elementwise", numbers, {"fn": "fma"}, TensorType.of(shape, dtype), result_axes(parts, shape)
    )


def where(condition: Any, a: Any, b: Any) -> Tile:
    """`a` where the condition holds, else `b`."""
    builder = current()
    test = tile_of(builder, "where", condition)
    if not test.dtype.is_bool:
        raise builder.fail(f"`where` takes a bool condition, got {test.dtype}", "compare the tile with a number")
    given = [value.materialize() if isinstance(value, Operand) else value for value in (a, b)]
    tiles = [value for value in given if isinstance(value, Tile)]
    dtype = tiles[0].dtype if len({tile.dtype for tile in tiles}) == 1 else tiles[0].dtype.compute if tiles else f32
    shape = broadcast_shape(builder, "where", [test.shape, *(tile.shape for tile in tiles)])
    parts = [operand(builder, value, dtype, shape) for value in given]
    numbers = [broadcast_to(builder, tile, shape) for tile in (test, *parts)]
    return make_tile(builder, "select", numbers, {}, TensorType.of(shape, dtype), result_axes([*parts, test], shape))


def cast(x: Any, dtype: Any) -> Tile:
    """The tile in another dtype: floats round to nearest even, floats to integers truncate and stay in range."""
    return cast_to(current(), tile_of(current(), "cast", x), as_dtype(dtype))


def bitcast(x: Any, dtype: Any) -> Tile:
    """The same bits as another dtype of that size."""
    b, wanted = current(), as_dtype(dtype)
    tile = tile_of(b, "bitcast", x)
    if tile.dtype.bits != wanted.bits:
        raise b.fail(f"`bitcast` keeps the bits: {tile.dtype} has {tile.dtype.bits} bits, {wanted} {wanted.bits}")
    type = tile.type.with_dtype(wanted)
    number = b.tile("bitcast", [tile.number], {}, type)
    return Tile(number, type, tile.axes, shape=tile.shape, broadcast_axes=tile.broadcast_axes)


def as_dtype(dtype: Any) -> DType:
    """A dtype, its name, or that of another library."""
    found = find_dtype(dtype)
    if found is None:
        raise current().fail(f"{dtype!r} is not a dtype", dtype_help(dtype))
    return found


def zeros(shape: Any, dtype: Any = f32) -> Tile:
    """A tile of zeros."""
    return full(shape, 0, dtype)


def full(shape: Any, value: Any, dtype: Any = f32) -> Tile:
    """A tile filled with one number."""
    b, sizes = current(), shape_of(shape)
    tile = constant(b, value, [int(size) for size in sizes], as_dtype(dtype))
    tile.axes = tuple(_axis(size) for size in sizes)
    b.blocks.sized[tile.number] = tuple(",".join(sorted(roles_of(size))) for size in sizes)
    return tile


def _axis(size: Any) -> Axis | None:
    """The rows of this program, or a whole dim, for a tile with one element or row for each of them."""
    b = current()
    if isinstance(size, RowExtent):
        return Axis(b.zero(), size.dim, size.dim)
    known = b.axes.get(f"_{size.role}") if isinstance(size, Extent) and size.role == "m" else None
    return Axis(known.name, known.extent, known.extent) if known is not None else None


def shape_of(shape: Any) -> tuple[Any, ...]:
    """The sizes of a tile, which must be static."""
    given = as_tuple(shape) if is_sequence(shape) else (shape,)
    for size in given:
        if isinstance(size, Index):
            size.__index__()
        elif isinstance(size, bool) or not isinstance(size, int):
            raise current().fail(f"tile sizes are integers, got {type(size).__name__}")
    return tuple(size if isinstance(size, int) else size.__index__() for size in given)


def broadcast(x: Any, shape: Any) -> Tile:
    """The tile broadcast to a shape: along axes of one element, and along new leading axes."""
    b, tile = current(), tile_of(current(), "broadcast", x)
    sizes = tuple(int(size) for size in shape_of(shape))
    if broadcast_shape(b, "broadcast", [tile.shape, sizes]) != sizes:
        raise b.misfit(f"{list(tile.shape)} does not broadcast to {list(sizes)}")
    axes = result_axes([tile], sizes)
    return Tile(broadcast_to(b, tile, sizes), tile.type.with_shape(sizes), axes, pad_value=tile.pad_value)


class Coordinates(Operand):
    """The row or column index in the whole tensor of each element of a tile; materialized as i64 on use."""

    def __init__(self, axis: Axis, size: int, offset: Dim | None) -> None:
        self.axis, self.size, self.offset = axis, size, offset

    def materialize(self) -> Tile:
        expr = Dim.symbol(self.axis.name) + (self.offset if self.offset is not None else 0)
        return coordinate_tile(current(), expr, [self.axis], (self.size,))


def row_index(offset: Any = None) -> Coordinates:
    """The row indices of this program's block in the whole tensor, plus `offset` if given."""
    axis = current().declared_axis("m")
    return Coordinates(_along(axis), axis.size, _offset(offset))


def _along(axis: ProgramAxis) -> Axis:
    bound = None if axis.extent == UNKNOWN else axis.extent
    return Axis(axis.name, bound, bound)


def col_index(block: Any = None, offset: Any = None) -> Coordinates:
    """The column indices of a loop step, of this program's block, or of a whole dim (`T.d`)."""
    b = current()
    if isinstance(block, Loop):
        return Coordinates(Axis(block.name, block.bound), block.size, _offset(offset))
    if isinstance(block, Extent) and block.role == "d":
        dim = block.dim if isinstance(block, RowExtent) else None
        return Coordinates(Axis(b.zero(), dim, dim or Dim.constant(int(block))), int(block), _offset(offset))
    if block is not None and not (isinstance(block, Extent) and block.role == "n"):
        raise b.fail(
            f"{type(block).__name__} has no columns",
            "write `tile.col_index(step)` in a tile loop, `tile.col_index(T.d)` for a whole dim, or nothing",
        )
    axis = b.declared_axis("n")
    return Coordinates(_along(axis), axis.size, _offset(offset))


def _offset(offset: Any) -> Dim | None:
    if offset is None:
        return None
    if isinstance(offset, Index):
        return offset.dim
    if isinstance(offset, Extent):
        raise current().fail(f"`T.{offset.role}` is a size, and an offset is an index", "omit it")
    if isinstance(offset, int) and not isinstance(offset, bool):
        return Dim.constant(offset)
    raise current().fail(f"an offset is an integer or an index, got {type(offset).__name__}")
