"""`dot` and `transpose` of tiles."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import DTypeError
from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.indexing import mask_beyond
from tessera.frontend.kernel.tiles import Operand, Tile, cast_to, constant, make_tile, number_of, tile_of
from tessera.ir.tile.records import Memory, TileOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32, f64, i32
from tessera.types.frozen import frozen
from tessera.types.tensor_type import TensorType


class Transposed(Operand):
    """A lazily transposed tile: `dot` reads it as it is, anything else materializes it."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self._made: Tile | None = None

    @property
    def T(self) -> Tile:  # noqa: N802 - as NumPy has it
        return self.tile

    @property
    def dtype(self) -> DType:
        return self.tile.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tile.shape[::-1]

    def for_dot(self, b: KernelBuilder) -> Tile:
        tile = self.tile
        type = tile.type.with_shape(tile.type.shape[::-1])
        return make_tile(b, "transpose", [number_of(b, tile)], {}, type, tile.axes[::-1], tile.pad_value)

    def materialized(self) -> Tile:
        """The transposed tile: a load with its axes swapped, or through scratch memory."""
        if self._made is not None:
            return self._made
        b, tile = current(), self.tile
        made_: Tile = tile.origin.load(b, (1, 0)) if tile.origin is not None else _through_memory(b, tile)
        self._made = made_
        return made_


def _through_memory(b: KernelBuilder, tile: Tile) -> Tile:
    """Store by rows and load by columns, in private scratch memory."""
    type = TensorType.of(tile.shape, tile.dtype)
    (scratch,) = b.emit("scratch", (), {"space": "private"}, [Memory(type)])
    zero = b.coords[b.zero()]
    coords, none = ("_r", "_c"), (Dim.constant(-1), Dim.constant(-1))
    map = (Dim.symbol("_r"), Dim.symbol("_c"))
    access = {"coords": coords, "map": map, "bounds": none}
    b.emit("store", [number_of(b, tile), scratch, zero, zero], {**access, "axes": coords, "mode": "set"})
    b.emit("barrier")
    swapped = type.with_shape(type.shape[::-1])
    values = {**access, "axes": coords[::-1], "pad": 0}
    return make_tile(b, "load", [scratch, zero, zero], values, swapped, tile.axes[::-1], tile.pad_value)


def transpose(x: Any) -> Any:
    """A tile with its two axes swapped."""
    b = current()
    if isinstance(x, Transposed):
        return x.tile
    if hasattr(x, "transposed"):
        return x.transposed()
    tile = tile_of(b, "transpose", x)
    if len(tile.shape) != 2:
        raise b.misfit(f"`transpose` swaps two axes, and the tile is {list(tile.shape)}")
    return Transposed(tile)


@frozen
class PendingDot:
    """A dot that was emitted with a zero accumulator, which may still be replaced."""

    lhs: Tile
    rhs: Tile
    ops: tuple[TileOp, ...]

    def onto(self, b: KernelBuilder, acc: Tile) -> Tile:
        """The dot with `acc` as its accumulator, in one chain of multiply-adds."""
        if tuple(b.body.ops[-2:]) == self.ops:
            del b.body.ops[-2:]
        return _emit(b, self.lhs, self.rhs, acc)


def dot(a: Any, b: Any, acc: Any = None, *, accum: DType | None = None) -> Tile:
    """`a @ b` of tiles [M, K] and [K, N], plus `acc`: each element is a chain of fused multiply-adds over k.

    The accumulator is f32 for floats (f64 for f64) and i32 for integers, unless `accum`, `acc` or the type of a tensor
    says otherwise, as in `bf16 @ accum(f64)`. `acc + tile.dot(a, b)` is the same as `tile.dot(a, b, acc)`.
    """
    builder = current()
    left, right = dot_operand(builder, a, "left"), dot_operand(builder, b, "right")
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
        raise builder.misfit(
            f"`dot` multiplies [M, K] by [K, N], got {list(left.shape)} by {list(right.shape)}",
            *(["the inner sizes differ"] if len(left.shape) == len(right.shape) == 2 else []),
            fix="transpose one of them with `tile.transpose`",
        )
    if left.dtype.is_float != right.dtype.is_float:
        raise DTypeError(f"`dot` multiplies {left.dtype} by {right.dtype}", span=builder.span, fix="cast one of them")
    left, right = mask_beyond(builder, left, 1, 0), mask_beyond(builder, right, 0, 0)
    if acc is not None:
        return _emit(builder, left, right, tile_of(builder, "dot", acc))
    dtype = accum or _declared(a, b) or _accumulator(left.dtype, right.dtype)
    zero = constant(builder, 0, (left.shape[0], right.shape[1]), dtype)
    found = _emit(builder, left, right, zero)
    found.pending_dot = PendingDot(left, right, tuple(builder.body.ops[-2:]))
    return found


def dot_operand(b: KernelBuilder, value: Any, which: str) -> Tile:
    """An operand of `dot`: tiles and lazily transposed tiles as they are, tile parameters as this program's block."""
    if isinstance(value, Transposed):
        return value.for_dot(b)
    if hasattr(value, "as_dot_operand"):
        return value.as_dot_operand(which)
    return tile_of(b, "dot", value)


def _declared(*operands: Any) -> DType | None:
    """The accumulator that the type of an operand declares: `bf16 @ accum(f64)`."""
    for value in operands:
        tile = value.tile if isinstance(value, Transposed) else value
        origin = tile.origin if isinstance(tile, Tile) else None
        tensor = origin.tensor if origin is not None else getattr(value, "tensor", None)
        if tensor is not None and tensor.policy.accum is not None:
            return tensor.policy.accum
    return None


def _accumulator(*dtypes: DType) -> DType:
    if any(dtype.is_float for dtype in dtypes):
        return f64 if f64 in dtypes else f32
    return i32 if all(dtype.bits <= 32 for dtype in dtypes) else next(dtype for dtype in dtypes if dtype.bits > 32)


def _emit(b: KernelBuilder, left: Tile, right: Tile, acc: Tile) -> Tile:
    wanted = (left.shape[0], right.shape[1])
    if acc.shape != wanted:
        raise b.misfit(f"the accumulator of this dot must be {list(wanted)}, got {list(acc.shape)}")
    b.has_dots = True
    start = cast_to(b, acc, acc.dtype.compute)
    axes = (left.axes[0] or acc.axes[0], right.axes[1] or acc.axes[1])
    type = TensorType.of(wanted, start.dtype)
    return make_tile(b, "dot", [number_of(b, tile) for tile in (left, right, start)], {}, type, axes)
