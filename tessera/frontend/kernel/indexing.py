"""Indexing of tensors by tiles: indices become index maps, edges become bounds, and coordinates become tiles.

An access has one affine expression for each dim of the tensor, over the coordinates of the grid, of loops and of the
axes of the tile. Elements beyond the edge of a tensor are masked by the bound of their axis; an index that a kernel
computes has a window instead, an (index, extent) pair, unless it is proved in bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.extents import (
    NO_ROW,
    NO_ROW_FIX,
    Axis,
    Extent,
    IndexBounds,
    Loop,
    RowExtent,
    dim_of,
    index_of,
    roles_of,
)
from tessera.frontend.kernel.rows import NeedsNumber
from tessera.frontend.kernel.tiles import (
    Operand,
    Tile,
    broadcast_shape,
    broadcast_to,
    cast_to,
    expand_dims,
    result_axes,
    unary,
)
from tessera.ir.tile.block_facts import Coordinate
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType, i32, i64
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType


class TensorRef:
    """A tensor in memory, as a kernel sees it: a shape and a dtype, read with `tile.load`.

    `filled` replaces dims by their filled length, where that is less: the length of a cache.
    """

    def __init__(
        self,
        name: str,
        number: int,
        type: TensorType,
        policy: Policy = SILENT,
        filled: dict[int, Dim] | None = None,
        *,
        is_result: bool = False,
    ) -> None:
        self.name, self.number, self.type, self.policy = name, number, type, policy
        self.filled, self.is_result = filled or {}, is_result

    @property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(self.filled.get(axis, dim) for axis, dim in enumerate(self.type.shape))

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims: numbers where they are known, indices where they are not."""
        return tuple(index_of(dim) for dim in self.dims)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


@frozen
class DimAccess:
    """One dim of an access: its index expression, and, for an axis of the tile, that axis and its size.

    `indices` is an integer tile that gives the index of each element instead (a gather). Where `extent` is given,
    indices outside of `0..extent` are not accessed.
    """

    expr: Dim
    axis: Axis | None = None
    size: int = 0
    indices: Tile | None = None
    extent: Dim | None = None


def dim_access(b: KernelBuilder, tensor: TensorRef, axis: int, position: Any) -> DimAccess:
    """The access of one dim by an index: this program's block, a loop step, the whole dim, a slice, or one element."""
    dim = tensor.dims[axis]
    if isinstance(position, Operand):
        return _gather(b, tensor, dim, position.materialize())
    if isinstance(position, Loop):
        return _loop_block(b, tensor, axis, position)
    if isinstance(position, Extent) and position.role in ("m", "n"):
        name = b.program_axis(position.role, dim, int(position))
        return DimAccess(Dim.symbol(name), Axis(name, dim, dim), int(position))
    if isinstance(position, Extent) and position.role == "k":
        raise b.fail(
            "`k` is the size of a loop step, not an index",
            "loop with `for k in tile.range_k(x.shape, T.k)` and use `k`",
        )
    if isinstance(position, Extent) or position is None or position == slice(None):
        return _whole_dim(b, tensor, axis, position)
    if isinstance(position, slice):
        return _slice_of_dim(b, tensor, axis, position)  # pyright: ignore[reportUnknownArgumentType]
    given = dim_of(position)
    if given is None:
        raise b.fail(
            f"{type(position).__name__} is not an index into `{tensor.name}`",
            "an index is `T.m`, `T.n`, `T.d`, the index of a tile loop, an integer, an integer tile, a slice, or `:`",
        )
    return DimAccess(given, extent=_element_window(b, tensor, axis, given))


def _element_window(b: KernelBuilder, tensor: TensorRef, axis: int, at: Dim) -> Dim | None:
    """Require one element to be in bounds: proved, refuted, or guarded; a computed index is masked instead.

    Returns the extent to mask by, where the index is not proved to be in bounds.
    """
    dim = tensor.type.shape[axis]
    if at.symbols & set(b.coords):
        return None if IndexBounds(b).is_inside(at, dim) else dim
    rule = f"element {at} of dim {axis} of `{tensor.name}`, which has {dim}"
    if at.value is not None and (at.value < 0 or (dim.value is not None and at.value >= dim.value)):
        raise b.misfit(f"there is no {rule}", "rule: indices count from 0, not from the end")
    b.require_equal(maximum(at, 0), at, f"a kernel accesses {rule}")
    b.require_equal(minimum(at + 1, dim), at + 1, f"a kernel accesses {rule}")
    return None


def _slice_of_dim(b: KernelBuilder, tensor: TensorRef, axis: int, position: slice[Any, Any, Any]) -> DimAccess:
    """`slice(start, stop)`: a static number of elements of a dim."""
    start, stop = dim_of(0 if position.start is None else position.start), dim_of(position.stop)
    stop = tensor.dims[axis] if position.stop is None else stop
    length = stop - start if start is not None and stop is not None and position.step is None else Dim.constant(0)
    if length.value is None and not length.symbols & set(b.coords):
        raise NeedsNumber(length)
    size = length.value
    if start is None or size is None or size < 1 or (start.value or 0) < 0:
        raise b.fail(
            f"{position} is not a valid slice of dim {axis} of `{tensor.name}`",
            "a slice has step 1 and a length known at compile time: `slice(0, 64)`",
        )
    if not start.symbols & set(b.coords):
        b.require_equal(maximum(start, 0), start, f"a slice of dim {axis} of `{tensor.name}` starts at {start}")
    # The axis bound masks elements past the end of the dim; a window masks those before its start.
    is_proved = not start.symbols & set(b.coords) or IndexBounds(b).is_natural(start)
    name = b.define_coordinate("_part", start)
    roles = roles_of(position.start, position.stop)
    if roles and not start.symbols & set(b.coords):
        b.blocks.starts[b.coords[name]] = Coordinate(f"%{name}", ",".join(sorted(roles)), size, tensor.dims[axis], True)
    extent = None if is_proved else tensor.type.shape[axis]
    return DimAccess(Dim.symbol(name), Axis(name, tensor.dims[axis]), size, extent=extent)


def _gather(b: KernelBuilder, tensor: TensorRef, dim: Dim, numbers: Tile) -> DimAccess:
    if not numbers.dtype.is_integer:
        raise b.fail(
            f"a tile of {numbers.dtype} is not an index into `{tensor.name}`", "cast it to integers, such as i32"
        )
    b.positions.append((tensor.name, numbers.number))
    return DimAccess(Dim.constant(0), indices=numbers, extent=dim)


def _loop_block(b: KernelBuilder, tensor: TensorRef, axis: int, loop: Loop) -> DimAccess:
    dim = tensor.dims[axis]
    if loop.name not in b.coords:
        raise b.fail("the index of a loop is used after the loop")
    bound = loop.bound
    if loop.is_whole and not (dim.symbols | bound.symbols) & set(b.coords):
        b.require_equal(
            bound, dim, f"a loop over {bound} elements indexes dim {axis} of `{tensor.name}`, which has {dim}"
        )
    elif bound != dim and not dim.symbols & set(b.coords):
        difference = (dim - bound).value
        if difference is None or difference < 0:
            bound = minimum(bound, dim)
    return DimAccess(Dim.symbol(loop.name), Axis(loop.name, bound), loop.size)


def _whole_dim(b: KernelBuilder, tensor: TensorRef, axis: int, position: Any) -> DimAccess:
    dim = tensor.type.shape[axis]
    if dim.value is None:
        return _symbolic_dim(b, tensor, axis, position)
    if not dim.value:
        raise b.misfit(*NO_ROW, fix=NO_ROW_FIX)
    if isinstance(position, Extent) and int(position) != dim.value:
        raise b.misfit(
            f"`T.d` is {int(position)}, and dim {axis} of `{tensor.name}` has {dim} elements",
            "rule: `d` is the last dim of the first tensor of rank 2 or more",
            fix=f"write `slice(None)` for all of `{tensor.name}`, whatever its size",
        )
    bound = tensor.filled.get(axis)
    return DimAccess(Dim.symbol(b.zero()), Axis(b.zero(), bound, dim), dim.value)


def _symbolic_dim(b: KernelBuilder, tensor: TensorRef, axis: int, position: Any) -> DimAccess:
    """A whole symbolic dim in a tile that may be longer: elements beyond its end are masked."""
    dim = tensor.type.shape[axis]
    if isinstance(position, Extent) and not isinstance(position, RowExtent):
        raise NeedsNumber(dim)
    size = b.row_size(dim)
    if isinstance(position, RowExtent):
        b.require_equal(position.dim, dim, f"`T.d` is the whole of dim {axis} of `{tensor.name}`")
        size = int(position)
    return DimAccess(Dim.symbol(b.zero()), Axis(b.zero(), tensor.filled.get(axis, dim), dim), size)


def dim_accesses(b: KernelBuilder, tensor: TensorRef, positions: Sequence[Any]) -> list[DimAccess]:
    """One entry for each dim: leading dims without an index are those of the grid."""
    rank = tensor.type.rank
    if len(positions) > rank:
        raise b.misfit(f"`{tensor.name}` has {rank} dims, and {len(positions)} indices are given")
    count = rank - len(positions)
    leading = [DimAccess(_leading(b, tensor, number, count)) for number in range(count)]
    return leading + [dim_access(b, tensor, count + at, position) for at, position in enumerate(positions)]


def _leading(b: KernelBuilder, tensor: TensorRef, number: int, count: int) -> Dim:
    """The coordinate of a batch dim: dims are aligned from the last; fewer heads are shared by equal groups."""
    dim = tensor.dims[number]
    known = sum(name.startswith("_b") for name in b.axes)
    if not known:
        for axis in range(count):
            b.batch_axis(axis, tensor.dims[axis])
        known = count
    axis = known - count + number
    if axis < 0:
        raise b.misfit(f"`{tensor.name}` has {count} leading dims, and the grid has {known}")
    name, extent = f"_b{axis}", b.axes[f"_b{axis}"].extent
    if dim == extent:
        return Dim.symbol(name)
    if dim.value == 1:
        return Dim.constant(0)
    if any({extent, dim} == {left, right} for left, right, _ in b.equalities):
        return Dim.symbol(name)
    b.require_equal(
        extent % dim, Dim.constant(0), f"leading dim {number} of `{tensor.name}` divides that of the grid, {extent}"
    )
    return Dim.symbol(name) // (extent // dim)


@frozen
class Access:
    """An access: coordinates and their operands, the axes of the tile, the index map, the bounds.

    `tiles` are integer tiles, `t0`, `t1`, ... of the map; `windows` are (index, extent) pairs that mask elements.
    """

    coords: tuple[str, ...]
    operands: tuple[int, ...]
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    kept: tuple[Axis | None, ...]
    tiles: tuple[int, ...] = ()
    windows: tuple[Dim, ...] = ()

    @property
    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = {"coords": self.coords, "axes": self.axes, "map": self.map, "bounds": self.bounds}
        return {**found, "windows": self.windows} if self.windows else found


def access_of(
    b: KernelBuilder, entries: Sequence[DimAccess], order: Sequence[int] | None = None, mask: Tile | None = None
) -> Access:
    """The access of these entries; `order` permutes the axes of the tile.

    Elements where `mask` is false are not accessed.
    """
    group = IndexGroup(b, entries)
    running = group.axes_among(entries)
    listed = running if order is None else [running[number] for number in order]
    names, scope = axis_names(b, [axis for axis, _, _ in listed])
    map = [entry.expr for entry in entries]
    for name, (_, _, dim) in zip(names, listed, strict=True):
        if dim is not None:
            map[dim] = Dim.symbol(name)
    sizes = tuple(size for _, size, _ in listed)
    bounds = tuple(_bound(axis, size) for axis, size, _ in listed)
    tiles, windows = group.index_tiles(map, sizes)
    for at, entry in zip(map, entries, strict=True):
        if entry.extent is not None and entry.indices is None:
            windows += [at, entry.extent]
    if mask is not None:
        tiles.append(_mask_index(b, mask, sizes))
        windows += [Dim.symbol(f"t{len(tiles) - 1}"), Dim.constant(1)]
    used = set(names).union(*(expr.symbols for expr in (*map, *bounds, *windows)))
    coords = tuple(name for name in scope if name in used)
    kept = tuple(axis for axis, _, _ in listed)
    operands = tuple(scope[name] for name in coords)
    return Access(coords, operands, names, sizes, tuple(map), bounds, kept, tuple(tiles), tuple(windows))


AccessAxis: TypeAlias = "tuple[Axis | None, int, int | None]"
"""An axis of an accessed tile: its coordinate axis, size, and the dim it indexes, if any."""


class IndexGroup:
    """The integer tiles among the indices of an access: they broadcast to one shape, as in NumPy."""

    def __init__(self, b: KernelBuilder, entries: Sequence[DimAccess]) -> None:
        self.b = b
        self.tiles = [(dim, entry.indices) for dim, entry in enumerate(entries) if entry.indices is not None]
        self.extents = [entry.extent for entry in entries if entry.indices is not None]
        found = [tile for _, tile in self.tiles]
        self.shape = broadcast_shape(b, "load", [tile.shape for tile in found]) if found else ()
        self.axes = result_axes(found, self.shape)
        self.before = 0

    def axes_among(self, entries: Sequence[DimAccess]) -> list[AccessAxis]:
        """The axes of the tile in order of dims; those of the group are at the dim of its first tile."""
        first = self.tiles[0][0] if self.tiles else len(entries)
        last = self.tiles[-1][0] if self.tiles else -1
        found: list[AccessAxis] = []
        for dim, entry in enumerate(entries):
            if dim == first:
                self.before = len(found)
                found += [(axis, size, None) for axis, size in zip(self.axes, self.shape, strict=True)]
            elif entry.axis is not None:
                if first < dim < last:
                    raise self.b.fail("a block is between two index tiles", "use index tiles for adjacent dims")
                found.append((entry.axis, entry.size, dim))
        if self.tiles and len(found) > 2:
            raise self.b.misfit(f"a tile has at most two axes, and this one would have {len(found)}")
        return found

    def index_tiles(self, map: list[Dim], sizes: tuple[int, ...]) -> tuple[list[int], list[Dim]]:
        """The index tiles at every element of the access, and the windows that keep them in bounds."""
        tiles: list[int] = []
        windows: list[Dim] = []
        after = len(sizes) - self.before - len(self.shape)
        key = (None,) * self.before + (slice(None),) * len(self.shape) + (None,) * after
        for (dim, tile), extent in zip(self.tiles, self.extents, strict=True):
            if tile.shape != self.shape or tile.broadcast_axes is not None:
                tile = Tile(broadcast_to(self.b, tile, self.shape), tile.type.with_shape(self.shape), self.axes)
            if None in key and self.shape:  # a scalar broadcasts by itself
                tile = expand_dims(tile, key)
            map[dim] = Dim.symbol(f"t{len(tiles)}")
            assert extent is not None
            windows += [map[dim], extent]
            tiles.append(broadcast_to(self.b, tile, sizes))
        return tiles, windows


def _mask_index(b: KernelBuilder, mask: Tile, sizes: tuple[int, ...]) -> int:
    """A mask as an index: 0 where an element is accessed, and 1, which a window of extent 1 excludes, where not."""
    if not mask.dtype.is_bool:
        raise b.fail(f"`mask` is a tile of bool, got {mask.dtype}", "compare the tile with a number")
    if broadcast_shape(b, "mask", [mask.shape, sizes]) != sizes:
        raise b.misfit(f"a mask of {list(mask.shape)} does not broadcast to {list(sizes)}")
    return broadcast_to(b, cast_to(b, unary("not", mask), i32), sizes)


def axis_names(b: KernelBuilder, axes: Sequence[Axis | None]) -> tuple[tuple[str, ...], dict[str, int]]:
    """A name for each axis, no two the same, and all coordinates by name."""
    scope, names = dict(b.coords), list[str]()
    for axis in axes:
        name = axis.name if axis is not None and axis.name in b.coords else b.zero()
        scope.setdefault(name, b.coords[name])
        unique, count = name, 0
        while unique in names or (count and unique in b.coords):
            count += 1
            unique = f"{name}_{count}"
        scope[unique] = b.coords[name]
        names.append(unique)
    return tuple(names), scope


def _bound(axis: Axis | None, size: int) -> Dim:
    if axis is None or axis.bound is None or (axis.name == "_z" and axis.bound.value == size):
        return Dim.constant(-1)
    return axis.bound


@frozen
class Origin:
    """A load that may be emitted again with its axes in another order."""

    tensor: TensorRef
    entries: tuple[DimAccess, ...]
    values: dict[str, Any]
    dtype: DType

    def cast(self, dtype: DType) -> Origin:
        return Origin(self.tensor, self.entries, self.values, dtype)

    def load(self, b: KernelBuilder, order: Sequence[int] | None = None) -> Tile:
        access = access_of(b, self.entries, order)
        type = TensorType.of(access.sizes, self.tensor.dtype)
        operands = [self.tensor.number, *access.operands, *access.tiles]
        number = b.tile("load", operands, {**access.values, **self.values}, type)
        tile = Tile(number, type, access.kept, pad_value=self.values["pad"])
        is_plain = order is None and not access.tiles
        tile.origin = Origin(self.tensor, self.entries, self.values, type.dtype) if is_plain else None
        return cast_to(b, tile, self.dtype)

    def load_rows(self, b: KernelBuilder, axis: Axis | None, count: int) -> Tile | None:
        """The load of one axis repeated for each row of a block; None where the rows have no coordinate."""
        if axis is None or axis.name not in b.coords or axis.name == "_z":
            return None
        access = access_of(b, self.entries)
        if axis.name in access.axes or access.windows:
            return None
        coords = (axis.name, *(name for name in access.coords if name != axis.name))
        known = dict(zip(access.coords, access.operands, strict=True)) | {axis.name: b.coords[axis.name]}
        values = {
            "coords": coords,
            "axes": (axis.name, *access.axes),
            "map": access.map,
            "bounds": (_bound(axis, count), *access.bounds),
        }
        type = TensorType.of((count, *access.sizes), self.tensor.dtype)
        number = b.tile("load", [self.tensor.number, *(known[n] for n in coords)], {**values, **self.values}, type)
        return cast_to(b, Tile(number, type, (axis, *access.kept), pad_value=self.values["pad"]), self.dtype)


def clip(b: KernelBuilder, tile: Tile, axis: int, bound: Dim, identity: Any) -> Tile:
    """The tile with elements at or beyond `bound` along an axis replaced by `identity`."""
    names, scope = axis_names(b, tile.axes)
    coords = tuple(name for name in scope if name in names or name in bound.symbols)
    values = {"coords": coords, "axes": names, "axis": names[axis], "bound": bound, "identity": identity}
    number = b.tile("clip", [tile.number, *(scope[name] for name in coords)], values, tile.type)
    return Tile(number, tile.type, tile.axes, pad_value=identity)


def mask_beyond(b: KernelBuilder, tile: Tile, axis: int, identity: Any) -> Tile:
    """The tile with elements beyond the edge of an axis replaced by the identity of a reduction."""
    found = tile.axes[axis]
    is_same = tile.pad_value is not None and tile.pad_value == identity
    if found is None or found.bound is None or is_same or found.name not in b.coords:
        return tile
    if _bound(found, tile.shape[axis]).value == -1:
        return tile
    return clip(b, tile, axis, found.bound, identity)


def coordinate_tile(b: KernelBuilder, expr: Dim, axes: Sequence[Axis | None], shape: Sequence[int]) -> Tile:
    """The value of an expression at every element, as i64; `axes` are named in it by their coordinates."""
    names, scope = axis_names(b, axes)
    coords = tuple(name for name in scope if name in names or name in expr.symbols)
    type = TensorType.of(shape, i64)
    values = {"coords": coords, "axes": names, "expr": expr}
    return Tile(b.tile("coordinate", [scope[name] for name in coords], values, type), type, axes)


def number_tile(b: KernelBuilder, dim: Dim, shape: tuple[int, ...]) -> Tile:
    """A number known at run time, at every element of a tile."""
    b.zero()
    return coordinate_tile(b, dim, [None] * len(shape), shape)
