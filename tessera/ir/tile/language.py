"""`TileWriter`: the tile language as functions, each of which writes one op; `TileBuilder` writes a kernel of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.ir.base.block_ops import VOTES
from tessera.ir.base.build import OpWriter
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import BY_NAME, DType, bool_, i64
from tessera.types.frozen import frozen
from tessera.types.promotion import rounding_of
from tessera.types.shape import TensorType


@frozen
class TileRegion:
    """The region of a tile: coordinates by name, which of them run along the tile, its sizes, and their bounds.

    `bounds` gives the extent of an axis that may be cut short; axes without one always fit.
    """

    coords: Mapping[str, SSAValue]
    axes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    bounds: Mapping[str, Dim] = field(default_factory=dict[str, Dim])

    def with_coords(self, **coords: SSAValue) -> TileRegion:
        return TileRegion({**self.coords, **coords}, self.axes, self.sizes, self.bounds)

    def along(self, axes: Sequence[str], sizes: Sequence[int], bounds: Mapping[str, Dim]) -> TileRegion:
        return TileRegion(self.coords, tuple(axes), tuple(sizes), dict(bounds))

    @property
    def bound_list(self) -> tuple[Dim, ...]:
        return tuple(self.bounds.get(axis, Dim.constant(-1)) for axis in self.axes)


class TileWriter(OpWriter):
    """Writes ops on tiles, into a block that moves into loop bodies and back out."""

    dialect = DIALECT

    def _tile(self, name: str, operands: Sequence[SSAValue], values: Mapping[str, Any], type: TensorType) -> SSAValue:
        return self.emit(name, operands, values, [TileAttr.of(type)]).result

    # Indices and control.

    def program_id(self, axis: int) -> SSAValue:
        return self.emit("program_id", (), {"axis": axis}, [INDEX]).result

    def index(self, expr: DimLike, coords: Mapping[str, SSAValue] | None = None) -> SSAValue:
        """An expression over coordinates and the kernel's sizes."""
        expr = Dim.of(expr)
        used = {name: value for name, value in (coords or {}).items() if name in expr.symbols}
        return self.emit("index", list(used.values()), {"names": tuple(used), "expr": expr}, [INDEX]).result

    def loop(
        self,
        low: SSAValue,
        high: SSAValue,
        step: int,
        body: Callable[[SSAValue, list[SSAValue]], Sequence[SSAValue]],
        carried: Sequence[SSAValue] = (),
    ) -> list[SSAValue]:
        """`for i in range(low, high, step)`: `body(i, carried)` gives what is carried on; returns the last."""
        inner = Block(arg_types=[INDEX, *[value.type for value in carried]])
        with self._inside(inner):
            results = body(inner.args[0], list(inner.args[1:]))
            self.emit("yield", results)
        types = [value.type for value in carried]
        return list(self.emit("for", [low, high, *carried], {"step": step}, types, [inner]).results)

    @contextmanager
    def _inside(self, block: Block) -> Any:
        outer, self.block = self.block, block
        try:
            yield
        finally:
            self.block = outer

    # Memory.

    def scratch(self, shape: Sequence[DimLike], dtype: DType, *, space: str = "private") -> SSAValue:
        """Memory of the program; in `shared`, elements at other indices see a store only after a barrier."""
        return self.emit("scratch", (), {"space": space}, [BufferAttr.of(TensorType.of(shape, dtype))]).result

    def barrier(self) -> None:
        """All workers of the program wait for each other."""
        self.emit("barrier")

    def load(
        self,
        buffer: SSAValue,
        map: Sequence[Dim],
        region: TileRegion,
        *,
        pad: Any = 0,
        indices: Sequence[SSAValue] = (),
        windows: Sequence[Dim] = (),
        checked: Any = None,
    ) -> SSAValue:
        """A tile of a buffer, where `map` says; see `ops/access.py`."""
        assert isinstance(buffer.type, BufferAttr)
        values = {**self._access(map, region, windows), "pad": pad, "checked": checked}
        operands = [buffer, *self._coord_operands(values, region), *indices]
        return self._tile("load", operands, values, TensorType.of(region.sizes, buffer.type.dtype))

    def store(
        self,
        tile: SSAValue,
        buffer: SSAValue,
        map: Sequence[Dim],
        region: TileRegion,
        *,
        mode: str = "set",
        indices: Sequence[SSAValue] = (),
        windows: Sequence[Dim] = (),
        checked: Any = None,
    ) -> None:
        values = {**self._access(map, region, windows), "mode": mode, "checked": checked}
        self.emit("store", [tile, buffer, *self._coord_operands(values, region), *indices], values)

    def fetch(self, buffer: SSAValue, map: Sequence[Dim], coords: Mapping[str, SSAValue]) -> SSAValue:
        """An index that is read from memory."""
        used = {name: value for name, value in coords.items() if any(name in expr.symbols for expr in map)}
        values = {"coords": tuple(used), "map": tuple(map)}
        return self.emit("fetch", [buffer, *used.values()], values, [INDEX]).result

    def sort(
        self, keys: SSAValue, indices: SSAValue, spares: Sequence[SSAValue], count: SSAValue, **order: bool
    ) -> None:
        """The first `count` of two lines of memory in order of the keys; see `ir/base/block_ops.py`."""
        self.emit("sort", [keys, indices, *spares, count], order)

    def tree(self, lines: SSAValue, count: SSAValue, kind: str) -> None:
        """The first `count` lines of memory joined into the first one; see `ir/base/block_ops.py`."""
        self.emit("tree", [lines, count], {"kind": kind})

    def _access(self, map: Sequence[Dim], region: TileRegion, windows: Sequence[Dim]) -> dict[str, Any]:
        names = set(region.axes).union(*(expr.symbols for expr in (*map, *windows, *region.bound_list)))
        return {
            "coords": tuple(name for name in region.coords if name in names),
            "axes": region.axes,
            "map": tuple(map),
            "bounds": region.bound_list,
            "windows": tuple(windows),
        }

    def _coord_operands(self, values: Mapping[str, Any], region: TileRegion) -> list[SSAValue]:
        return [region.coords[name] for name in values["coords"]]

    # Arithmetic.

    def elementwise(self, fn: str, *tiles: SSAValue) -> SSAValue:
        type = tile_type(tiles[0])
        return self._tile(
            "elementwise", tiles, {"fn": fn}, type.with_dtype(bool_) if SCALAR_FUNCTIONS[fn].is_predicate else type
        )

    def select(self, condition: SSAValue, first: SSAValue, second: SSAValue) -> SSAValue:
        return self._tile("select", (condition, first, second), {}, tile_type(first))

    def cast(self, tile: SSAValue, dtype: DType) -> SSAValue:
        type = tile_type(tile)
        if type.dtype is dtype:
            return tile
        return self._tile("cast", (tile,), {"rounding": rounding_of(type.dtype, dtype)}, type.with_dtype(dtype))

    def round(self, tile: SSAValue, bits: SSAValue | None = None, **conversion: str) -> SSAValue:
        """The values as numbers of a format, still in f32: format, rounding, saturation, denormals."""
        return self._tile("round", (tile,) if bits is None else (tile, bits), conversion, tile_type(tile))

    def bitcast(self, tile: SSAValue, dtype: DType) -> SSAValue:
        return self._tile("bitcast", (tile,), {}, tile_type(tile).with_dtype(dtype))

    def full(self, value: Any, shape: Sequence[DimLike], dtype: DType) -> SSAValue:
        return self._tile("constant", (), {"value": value}, TensorType.of(shape, dtype))

    def coordinate_of(self, expr: Dim, region: TileRegion) -> SSAValue:
        """The value of `expr` at every element."""
        coords = tuple(name for name in region.coords if name in expr.symbols or name in region.axes)
        values = {"coords": coords, "axes": region.axes, "expr": expr}
        return self._tile("coordinate", [region.coords[n] for n in coords], values, TensorType.of(region.sizes, i64))

    def clip(self, tile: SSAValue, axis: str, identity: Any, region: TileRegion) -> SSAValue:
        """The tile with what lies beyond the bound of `axis` replaced; the tile itself when nothing can."""
        if axis not in region.bounds:
            return tile
        used = region.bounds[axis].symbols.union(region.axes)
        coords = tuple(name for name in region.coords if name in used)
        values = {
            "coords": coords,
            "axes": region.axes,
            "axis": axis,
            "bound": region.bounds[axis],
            "identity": identity,
        }
        return self._tile("clip", [tile, *[region.coords[name] for name in coords]], values, tile_type(tile))

    def reduce(self, tile: SSAValue, kind: str, axis: int) -> SSAValue:
        type = tile_type(tile)
        shape = type.shape[:axis] + type.shape[axis + 1 :]
        return self._tile("reduce", (tile,), {"kind": kind, "axis": axis}, type.with_shape(shape))

    def arg_reduce(self, values: SSAValue, indices: SSAValue, kind: str, axis: int) -> SSAValue:
        type = tile_type(indices)
        shape = type.shape[:axis] + type.shape[axis + 1 :]
        return self._tile("arg_reduce", (values, indices), {"kind": kind, "axis": axis}, type.with_shape(shape))

    def softmax(self, tile: SSAValue, eps: float = 0.0) -> SSAValue:
        """The softmax of whole rows; `tile-expand-softmax` expands it."""
        return self._tile("softmax", (tile,), {"eps": eps}, tile_type(tile))

    def attend(
        self, scores: SSAValue, values: SSAValue, acc: SSAValue, top: SSAValue, total: SSAValue
    ) -> Sequence[SSAValue]:
        """One more block of an attention: accumulators, maxima and sums of exp after it."""
        types = [value.type for value in (acc, top, total)]
        return self.emit("attend", (scores, values, acc, top, total), {}, types).results

    def shuffle(self, tile: SSAValue, mode: str, by: int, width: int = 32) -> SSAValue:
        """Each element from another lane of its segment of the last axis; see `ir/base/block_ops.py`."""
        return self._tile("shuffle", (tile,), {"mode": mode, "by": by, "width": width}, tile_type(tile))

    def butterfly(self, tile: SSAValue, by: int, width: int = 32) -> SSAValue:
        """Each element from the lane across."""
        return self._tile("butterfly", (tile,), {"by": by, "width": width}, tile_type(tile))

    def vote(self, tile: SSAValue, kind: str, width: int = 32) -> SSAValue:
        """What the bools of a segment say together, for each of its lanes."""
        type = tile_type(tile)
        return self._tile("vote", (tile,), {"kind": kind, "width": width}, type.with_dtype(BY_NAME[VOTES[kind]]))

    def broadcast(self, tile: SSAValue, shape: Sequence[DimLike], axes: Sequence[int]) -> SSAValue:
        type = tile_type(tile)
        return self._tile("broadcast", (tile,), {"axes": tuple(axes)}, type.with_shape(shape))

    def dot(self, lhs: SSAValue, rhs: SSAValue, acc: SSAValue) -> SSAValue:
        return self._tile("dot", (lhs, rhs, acc), {}, tile_type(acc))

    def transpose(self, tile: SSAValue) -> SSAValue:
        type = tile_type(tile)
        return self._tile("transpose", (tile,), {}, type.with_shape(type.shape[::-1]))


class TileBuilder(TileWriter):
    """Writes one kernel."""

    def __init__(
        self,
        symbol: str,
        arguments: Sequence[TensorType],
        *,
        symbols: Sequence[str],
        grid: Sequence[DimLike],
        writes: Sequence[int],
        kind: str,
        schedule: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(Block(arg_types=[BufferAttr.of(type) for type in arguments]))
        self.arguments: list[SSAValue] = list(self.block.args)
        values = {
            "symbol": symbol,
            "symbols": tuple(symbols),
            "grid": tuple(Dim.of(dim) for dim in grid),
            "writes": tuple(writes),
            "kind": kind,
            **({"schedule": dict(schedule)} if schedule else {}),
        }
        self._kernel = (values, self.block)

    def finish(self) -> SpecOp:
        """The kernel, ended."""
        values, block = self._kernel
        assert block is self.block, "a loop is still open"
        self.emit("return")
        return make(DIALECT["kernel"], values=values, types=(), regions=[block])


def tile_type(value: SSAValue) -> TensorType:
    """The shape and dtype of a tile."""
    assert isinstance(value.type, TileAttr)
    return value.type.data


def buffer_type(value: SSAValue) -> TensorType:
    """The shape and dtype of a buffer."""
    assert isinstance(value.type, BufferAttr)
    return value.type.data


@frozen
class PointBuilder:
    """What a `Pointwise` block gets: the language, with the tile's shape and the result's coordinates filled in."""

    tile: TileBuilder
    region: TileRegion
    at: tuple[Dim, ...]

    def elementwise(self, fn: str, *tiles: Any) -> Any:
        return self.tile.elementwise(fn, *tiles)

    def select(self, condition: Any, first: Any, second: Any) -> Any:
        return self.tile.select(condition, first, second)

    def cast(self, tile: Any, dtype: DType) -> Any:
        return self.tile.cast(tile, dtype)

    def round(self, tile: Any, bits: Any = None, **conversion: str) -> Any:
        return self.tile.round(tile, bits, **conversion)

    def bitcast(self, tile: Any, dtype: DType) -> Any:
        return self.tile.bitcast(tile, dtype)

    def constant(self, value: Any, dtype: DType) -> Any:
        """The same number everywhere; a symbolic dim is the number it has at run time."""
        if isinstance(value, Dim):
            return self.cast(self.tile.coordinate_of(value, self.region), dtype)
        return self.tile.full(value, self.region.sizes, dtype)

    def coordinate(self, axis: int) -> Any:
        """The coordinate of the result along `axis`, as i64."""
        return self.tile.coordinate_of(self.at[axis], self.region)
