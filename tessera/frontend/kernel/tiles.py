"""Tiles: the values that a kernel computes with, their operators and broadcasting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import DTypeError, KernelError
from tessera.frontend.concrete import is_array
from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.extents import Axis, Index, check_static, roles_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.types.annotation import TensorAnnotation, annotation_of
from tessera.types.dtype import DType, bool_, f32
from tessera.types.promotion import holds, rounding_of
from tessera.types.shape import TensorType

INF = float("inf")


def _operator(fn: str) -> Callable[[Operand, Any], Tile]:
    return lambda self, other: binary(fn, self, other)


def _reflected_operator(fn: str) -> Callable[[Operand, Any], Tile]:
    return lambda self, other: binary(fn, other, self)


class Operand(ABC):
    """A value that acts as a tile: Python's operators work on it elementwise."""

    __slots__ = ()

    @abstractmethod
    def materialize(self) -> Tile:
        """The tile that it is."""

    __add__, __radd__ = _operator("add"), _reflected_operator("add")
    __sub__, __rsub__ = _operator("sub"), _reflected_operator("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected_operator("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected_operator("div")
    __floordiv__, __rfloordiv__ = _operator("floordiv"), _reflected_operator("floordiv")
    __mod__, __rmod__ = _operator("mod"), _reflected_operator("mod")
    __pow__, __rpow__ = _operator("pow"), _reflected_operator("pow")
    __and__ = _operator("and")
    __or__ = _operator("or")
    __xor__ = _operator("xor")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("shr")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")

    def __eq__(self, other: object) -> Any:
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Any:
        return binary("ne", self, other)

    def __neg__(self) -> Tile:
        return unary("neg", self)

    def __abs__(self) -> Tile:
        return unary("abs", self)

    def __invert__(self) -> Tile:
        return unary("not", self)

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, key: Any) -> Tile:
        return expand_dims(self.materialize(), tuple(as_tuple(key)) if is_sequence(key) else (key,))

    def __matmul__(self, other: Any) -> Tile:
        from tessera.frontend.kernel.attention import dot  # noqa: PLC0415 - it makes tiles

        return dot(self, other)

    def __bool__(self) -> bool:
        raise current().fail("a tile has no bool value", "choose with `tile.where(condition, a, b)`")

    def __iter__(self) -> Any:
        raise current().fail("a tile cannot be iterated over", "work on whole tiles, or reduce along an axis")


class KTile:
    """A tensor that a kernel works on in tiles: `KTile["B*H", "S", "D_h", bf16 @ accum(f32)]`."""

    __slots__ = ()
    if TYPE_CHECKING:
        shape: Any
        dtype: Any

    def __class_getitem__(cls, items: Any) -> TensorAnnotation:
        return annotation_of(items, "KTile")


class Tile(Operand, KTile):
    """A block of values of one dtype and static shape, held by the program.

    `axes` says which elements of a tensor each axis holds, so that the edges of the tensor can be masked; `pad_value`
    is what elements beyond those edges are, where that is known. A tile that is still to be broadcast keeps the
    smaller value: `broadcast_axes` maps the axes of the value to those of `shape`, whose other axes have one element.
    """

    __slots__ = ("axes", "broadcast_axes", "loop_end", "number", "origin", "pad_value", "pending_dot", "shape", "type")

    def __init__(
        self,
        number: int,
        type: TensorType,
        axes: Sequence[Axis | None],
        *,
        pad_value: Any = None,
        shape: tuple[int, ...] | None = None,
        broadcast_axes: tuple[int, ...] | None = None,
    ) -> None:
        self.number, self.type, self.axes, self.pad_value = number, type, tuple(axes), pad_value
        static = tuple(int(dim.value or 0) for dim in type.shape)
        self.shape, self.broadcast_axes = shape if shape is not None else static, broadcast_axes
        self.origin: Any = None
        """The load that made the tile, which may be emitted again with its axes in another order."""
        self.pending_dot: Any = None
        """The dot that made the tile, as long as nothing was added to it: its accumulator can still be replaced."""
        self.loop_end: Any = None
        """A loop coordinate and where it may end: later iterations do not change the tile."""

    def materialize(self) -> Tile:
        return self

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def T(self) -> Any:  # noqa: N802 - as NumPy has it
        """The tile with its two axes swapped."""
        from tessera.frontend.kernel.attention import transpose  # noqa: PLC0415 - it makes tiles

        return transpose(self)

    def become(self, other: Tile) -> None:
        """Become another tile of the same shape: for functions that rebind their argument."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def __repr__(self) -> str:
        return f"Tile({list(self.shape)}, {self.dtype})"


# Making tiles.


def make_tile(
    b: KernelBuilder,
    name: str,
    operands: Sequence[int],
    values: Any,
    type: TensorType,
    axes: Any,
    pad_value: Any = None,
) -> Tile:
    """The tile that a new op gives."""
    return Tile(b.tile(name, operands, values, type), type, axes, pad_value=pad_value)


def number_of(b: KernelBuilder, tile: Tile) -> int:
    """The value of a tile, broadcast to its shape."""
    if tile.broadcast_axes is None:
        return tile.number
    return b.tile("broadcast", [tile.number], {"axes": tile.broadcast_axes}, tile.type.with_shape(tile.shape))


def constant(b: KernelBuilder, value: Any, shape: Sequence[int], dtype: DType) -> Tile:
    """A tile of one number."""
    check_static(value)
    if roles_of(value):
        from tessera.frontend.kernel.block_scope import check_number  # noqa: PLC0415 - it makes tiles

        check_number(b, value)
    number = float(value) if dtype.is_float else bool(value) if dtype.is_bool else int(value)
    type = TensorType.of(shape, dtype)
    return make_tile(b, "constant", (), {"value": number}, type, [None] * len(shape), number)


def unbroadcast(b: KernelBuilder, tile: Tile) -> Tile:
    """The tile with its pending broadcast materialized."""
    if tile.broadcast_axes is None:
        return tile
    return Tile(number_of(b, tile), TensorType.of(tile.shape, tile.dtype), tile.axes, pad_value=tile.pad_value)


def cast_to(b: KernelBuilder, tile: Tile, dtype: DType) -> Tile:
    """The tile in another dtype."""
    if tile.dtype is dtype:
        return tile
    type = tile.type.with_dtype(dtype)
    number = b.tile("cast", [tile.number], {"rounding": rounding_of(tile.dtype, dtype)}, type)
    found = Tile(
        number, type, tile.axes, pad_value=tile.pad_value, shape=tile.shape, broadcast_axes=tile.broadcast_axes
    )
    found.origin = tile.origin.cast(dtype) if tile.origin is not None else None
    found.loop_end = tile.loop_end
    return found


def to_compute_dtype(b: KernelBuilder, tile: Tile) -> Tile:
    """The tile in the dtype that arithmetic is done in."""
    return cast_to(b, tile, tile.dtype.compute)


def expand_dims(tile: Tile, key: tuple[Any, ...]) -> Tile:
    """`tile[:, None]`: axes of one element inserted."""
    b = current()
    if any(item is not None and item != slice(None) for item in key) or not any(item is None for item in key):
        raise b.fail(
            "a tile is indexed with `:` and `None` only", "write `x[:, None]` to broadcast a column along rows"
        )
    kept = [axis for axis, item in enumerate(key) if item is not None]
    if len(kept) != len(tile.shape):
        raise b.misfit(f"{len(kept)} axes are indexed and the tile has {len(tile.shape)}: {list(tile.shape)}")
    own = tile.broadcast_axes or tuple(range(len(tile.shape)))
    sizes, axes = iter(tile.shape), iter(tile.axes)
    shape = tuple(1 if item is None else next(sizes) for item in key)
    new_axes = [None if item is None else next(axes) for item in key]
    broadcast_axes = tuple(kept[axis] for axis in own)
    return Tile(tile.number, tile.type, new_axes, pad_value=tile.pad_value, shape=shape, broadcast_axes=broadcast_axes)


def broadcast_shape(b: KernelBuilder, fn: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to."""
    rank = max(len(shape) for shape in shapes)
    found: list[int] = []
    for axis in range(rank):
        sizes = {shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0} - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            raise b.misfit(
                f"`{fn}` takes tiles that broadcast, and {listed} do not",
                fix="broadcast a column with `x[:, None]`",
            )
        found.append(sizes.pop() if sizes else 1)
    return tuple(int(size) for size in found)


def broadcast_to(
    b: KernelBuilder, tile: Tile, shape: tuple[int, ...], axes: Sequence[Axis | None] | None = None
) -> int:
    """The value of a tile broadcast to a shape with these `axes`."""
    if tile.broadcast_axes is None and tile.shape == shape:
        return tile.number
    is_row = tile.broadcast_axes is None and len(tile.shape) == 1 and len(shape) == 2
    if axes is not None and tile.origin is not None and is_row:
        # Loading the same row for every row is an index map, and needs no broadcast.
        repeated = tile.origin.load_rows(b, axes[0], shape[0])
        if repeated is not None:
            return repeated.number
    offset = len(shape) - len(tile.shape)
    own = tile.broadcast_axes or tuple(range(len(tile.shape)))
    kept = [axis for axis in own if tile.shape[axis] == shape[axis + offset]]
    if len(kept) != len(own):
        raise b.fail("a computed axis of one element cannot be broadcast", "reduce it away and use `[:, None]`")
    axes_kept = tuple(axis + offset for axis in kept)
    return b.tile("broadcast", [tile.number], {"axes": axes_kept}, tile.type.with_shape(shape))


def result_axes(tiles: Sequence[Tile], shape: tuple[int, ...]) -> list[Axis | None]:
    """The axes of a result: those of the first operand that has them, one with a bound before one without."""
    found: list[Axis | None] = []
    for number in range(len(shape)):
        offered: list[Axis] = []
        for tile in tiles:
            at = number - len(shape) + len(tile.shape)
            axis = tile.axes[at] if at >= 0 and tile.shape[at] == shape[number] else None
            if axis is not None:
                offered.append(axis)
        found.append(next((axis for axis in offered if axis.bound is not None), offered[0] if offered else None))
    return found


def operand(b: KernelBuilder, value: Any, dtype: DType, shape: tuple[int, ...]) -> Tile:
    """A tile, number or index as an operand beside tiles of `shape` that compute in `dtype`."""
    if isinstance(value, Tile):
        return cast_to(b, value, dtype)
    if isinstance(value, Index):
        from tessera.frontend.kernel.indexing import number_tile  # noqa: PLC0415 - it makes tiles

        return cast_to(b, number_tile(b, value.dim, shape), dtype)
    if is_array(value) and not value.shape:
        value = value.item()  # a scalar of NumPy
    if isinstance(value, bool | int | float):
        if isinstance(value, float) and not dtype.is_float:
            raise b.fail(
                f"{value} is a float beside a tile of {dtype}", "cast the tile to f32 first: `tile.cast(x, f32)`"
            )
        return constant(b, value, shape, dtype)
    message = f"{type(value).__name__} beside a tile is neither a tile nor a number"
    if is_array(value):
        raise b.fail(message, "pass the array to the kernel as a parameter, and load a tile of it")
    raise not_a_tile_error(b, message, value)


def _common_dtype(b: KernelBuilder, fn: str, first: Tile, second: Tile) -> DType:
    """The dtype that both operands compute in: only lossless conversions are implicit."""
    left, right = first.dtype.compute, second.dtype.compute
    if left is right or holds(left, right):
        return left
    if holds(right, left):
        return right
    raise DTypeError(f"`{fn}` has operands of {left} and {right}", span=b.span, fix="cast one of them with `tile.cast`")


def check_dtype(b: KernelBuilder, fn: str, dtype: DType) -> None:
    """Raises DTypeError (T0102) for a scalar function that is not defined on elements of this dtype."""
    function = SCALAR_FUNCTIONS[fn]
    if function.emission_for(dtype):
        return
    kinds = {"bools": function.emit_bool, "integers": function.emit_integer, "floats": function.emit}
    raise DTypeError(
        f"`{fn}` takes tiles of {' or '.join(kind for kind, emission in kinds.items() if emission)}, got {dtype}",
        span=b.span,
        fix="cast the tile first: `tile.cast(x, i32)`"
        if dtype.is_bool
        else "compare the tile with a number, or take its bits as integers with `tile.bitcast`",
    )


def unary(fn: str, value: Any) -> Tile:
    """A scalar function at every element."""
    b = current()
    tile = to_compute_dtype(b, tile_of(b, fn, value))
    function = SCALAR_FUNCTIONS[fn]
    if not function.takes_integers and not tile.dtype.is_float:
        tile = cast_to(b, tile, f32)
    check_dtype(b, fn, tile.dtype)
    type = tile.type.with_dtype(bool_) if function.is_predicate else tile.type
    number = b.tile("elementwise", [tile.number], {"fn": fn}, type)
    pad_value = tile.pad_value if function.keeps_zero and tile.pad_value == 0 else None
    return Tile(number, type, tile.axes, pad_value=pad_value, shape=tile.shape, broadcast_axes=tile.broadcast_axes)


def tile_of(b: KernelBuilder, fn: str, value: Any) -> Tile:
    """The operand of function `fn` as a tile; raises where it is none."""
    if not isinstance(value, Operand):
        raise not_a_tile_error(b, f"`{fn}` takes a tile, got {type(value).__name__}", value)
    return value.materialize()


def not_a_tile_error(b: KernelBuilder, message: str, *values: Any) -> KernelError:
    """The error for a value that should be a tile; for a tensor it says how to load one."""
    from tessera.frontend.kernel.suggestions import tensor_refusal  # noqa: PLC0415 - it is written with tiles

    return b.fail(*(tensor_refusal(values) or (message,)))


def binary(fn: str, first: Any, second: Any) -> Tile:
    """A binary scalar function at every element, after broadcasting."""
    b = current()
    given = [value.materialize() if isinstance(value, Operand) else value for value in (first, second)]
    tiles = [value for value in given if isinstance(value, Tile)]
    if not tiles:
        raise not_a_tile_error(
            b, f"`{fn}` takes a tile, got {type(first).__name__} and {type(second).__name__}", first, second
        )
    if fn == "add" and len(tiles) == 2 and (chained := _continue_dot(b, *tiles)) is not None:
        return chained
    dtype = _common_dtype(b, fn, tiles[0], tiles[-1])
    if fn in ("div", "pow", "atan2") and not dtype.is_float:
        dtype = f32
    check_dtype(b, fn, dtype)
    first, *others = [(tile.shape, tile.broadcast_axes) for tile in tiles]
    if first[1] is not None and all(other == first for other in others):
        return _binary_before_broadcast(b, fn, given, tiles[0], dtype)
    shape = broadcast_shape(b, fn, [tile.shape for tile in tiles])
    left, right = (operand(b, value, dtype, shape) for value in given)
    type_ = TensorType.of(shape, bool_ if SCALAR_FUNCTIONS[fn].is_predicate else dtype)
    axes = result_axes([left, right], shape)
    numbers = [broadcast_to(b, tile, shape, axes) for tile in (left, right)]
    return make_tile(b, "elementwise", numbers, {"fn": fn}, type_, axes, _pad_of_result(fn, left, right))


def _binary_before_broadcast(b: KernelBuilder, fn: str, given: Sequence[Any], like: Tile, dtype: DType) -> Tile:
    """A function of tiles with the same pending broadcast, or of such and numbers: computed before the broadcast."""
    base = tuple(int(dim.value or 0) for dim in like.type.shape)
    left, right = (operand(b, value, dtype, base) for value in given)
    type_ = TensorType.of(base, bool_ if SCALAR_FUNCTIONS[fn].is_predicate else dtype)
    number = b.tile("elementwise", [left.number, right.number], {"fn": fn}, type_)
    return Tile(
        number,
        type_,
        like.axes,
        pad_value=_pad_of_result(fn, left, right),
        shape=like.shape,
        broadcast_axes=like.broadcast_axes,
    )


def _pad_of_result(fn: str, left: Tile, right: Tile) -> Any:
    if fn in ("add", "sub") and left.pad_value == 0 and right.pad_value == 0:
        return 0
    # 0 times a finite constant stays 0 beyond the edges.
    if fn == "mul" and left.pad_value == 0 and right.pad_value is not None and abs(right.pad_value) < INF:
        return 0
    if fn in ("mul", "div") and left.pad_value == 0 and right.pad_value not in (None, 0, INF, -INF):
        return 0
    return (
        0 if fn == "mul" and right.pad_value == 0 and left.pad_value is not None and abs(left.pad_value) < INF else None
    )


def _continue_dot(b: KernelBuilder, left: Tile, right: Tile) -> Tile | None:
    """`acc + tile.dot(a, b)` accumulates into `acc`, instead of adding two tiles."""
    for acc, new in ((left, right), (right, left)):
        if (
            new.pending_dot is not None
            and acc.pending_dot is None
            and acc.broadcast_axes is None
            and acc.type == new.type
        ):
            return new.pending_dot.onto(b, acc)
    return None
