"""Building blocks of attention: causal masks, the online softmax, and dropout inside a kernel.

Online softmax (Milakov and Gimelshein, 2018): scores are visited in blocks, with a running maximum `m` and sum `l` per
row; when a block raises the maximum, `l` and the accumulator are rescaled by `exp(m_old - m_new)`. Whether a block's
exponentials are taken relative to its own maximum (`softmax_online`) or directly to the running one is decided by who
uses them: `softmax_accumulate` asks for the latter, so each exponential is computed once.
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import DTypeError
from tessera.frontend.kernel.block_scope import in_scope
from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.elementwise import Coordinates, where
from tessera.frontend.kernel.indexing import TensorRef, axis_names, clip, coordinate_tile, mask_beyond
from tessera.frontend.kernel.reductions import reduce, shift_of
from tessera.frontend.kernel.scalar import exp, maximum
from tessera.frontend.kernel.tiles import (
    INF,
    Operand,
    Tile,
    binary,
    cast_to,
    constant,
    make_tile,
    number_of,
    tile_of,
    to_compute_dtype,
)
from tessera.ir.graph.ops.random import PHILOX_KEY_STEPS, PHILOX_MULTIPLIERS, PHILOX_ROUNDS
from tessera.ir.tile.records import Memory, TileOp
from tessera.types.dim import Dim
from tessera.types.dim import maximum as larger
from tessera.types.dim import minimum as smaller
from tessera.types.dtype import DType, f32, f64, i32, u32, u64
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

# `dot` and `transpose` of tiles.


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

    def materialize(self) -> Tile:
        """The transposed tile: a load with its axes swapped, or through scratch memory."""
        if self._made is not None:
            return self._made
        b, tile = current(), self.tile
        made: Tile = tile.origin.load(b, (1, 0)) if tile.origin is not None else _through_memory(b, tile)
        self._made = made
        return made


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
    if hasattr(x, "lazy_transpose"):
        return x.lazy_transpose()
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


def dot(a: Any, b: Any, acc: Any = None, *, accum: DType | None = None, scope: str = "row") -> Tile:
    """`a @ b` of tiles [M, K] and [K, N], plus `acc`: each element is a chain of fused multiply-adds over k.

    The accumulator is f32 for floats (f64 for f64) and i32 for integers, unless `accum`, `acc` or the type of a tensor
    says otherwise, as in `bf16 @ accum(f64)`. `acc + tile.dot(a, b)` is the same as `tile.dot(a, b, acc)`. With
    `scope="block"` it is the dot of one block along K, whose size is then fixed.
    """
    return in_scope(scope, _dot(a, b, acc, accum))


def _dot(a: Any, b: Any, acc: Any, accum: DType | None) -> Tile:
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
    dtype = accum or _declared_accumulator(a, b) or _accumulator(left.dtype, right.dtype)
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


def _declared_accumulator(*operands: Any) -> DType | None:
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


# Random numbers on tiles: Philox4x32-10 by key and element index, with the same numbers as ops on whole tensors.

KEY = "key"
"""The name of the last operand of a kernel that uses random numbers."""


def keep_mask(b: KernelBuilder, tile: Tile, share: float, key: Any) -> Tile:
    """True for a fraction of the elements, by the index of each in the whole tensor."""
    source = key if isinstance(key, TensorRef) else getattr(b, "key", None)
    if not isinstance(source, TensorRef):
        raise b.fail("this kernel has no random key", "give it a parameter `key`, made with `tessera.random.key(seed)`")
    bits = _draw(b, _counter(b, tile), _word(b, source, 0, tile.shape), _word(b, source, 1, tile.shape))
    # The upper 24 bits of the first word, as `bernoulli` of whole tensors reads it.
    upper = binary("shr", bits, constant(b, 8, tile.shape, u32))
    return binary("lt", upper, constant(b, round(share * 2.0**24), tile.shape, u32))


def _counter(b: KernelBuilder, tile: Tile) -> Tile:
    """The row-major number of each element: leading dims of the grid, then rows, then columns."""
    names, _ = axis_names(b, tile.axes)
    total = Dim.constant(0)
    for name in sorted(axis for axis in b.axes if axis.startswith("_b")):
        total = total * b.axes[name].extent + Dim.symbol(name)
    for name, axis, size in zip(names, tile.axes, tile.shape, strict=True):
        extent = (axis.dim or axis.bound) if axis is not None else None
        total = total * (extent if extent is not None else Dim.constant(size)) + Dim.symbol(name)
    return cast_to(b, coordinate_tile(b, total, tile.axes, tile.shape), u64)


def _word(b: KernelBuilder, key: TensorRef, index: int, shape: tuple[int, ...]) -> Tile:
    """A word of the key at every element."""
    values = {"coords": (), "axes": (), "map": (Dim.constant(index),), "bounds": (), "pad": 0}
    one = b.tile("load", [key.number], values, key.type.with_shape(()))
    type = key.type.with_shape(shape)
    return Tile(b.tile("broadcast", [one], {"axes": ()}, type), type, [None] * len(shape))


def _draw(b: KernelBuilder, counter: Tile, key: Tile, stream: Tile) -> Tile:
    """The first of four random words for each element."""
    shape = counter.shape

    def low(tile: Tile) -> Tile:
        return cast_to(b, tile, u32)

    def high(tile: Tile) -> Tile:
        return cast_to(b, binary("shr", tile, constant(b, 32, shape, u64)), u32)

    def multiply(word: Tile, multiplier: int) -> Tile:
        return binary("mul", cast_to(b, word, u64), constant(b, multiplier, shape, u64))

    c0, c1, c2, c3 = low(counter), high(counter), low(stream), high(stream)
    k0, k1 = low(key), high(key)
    for _ in range(PHILOX_ROUNDS):
        first, second = multiply(c0, PHILOX_MULTIPLIERS[0]), multiply(c2, PHILOX_MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            binary("xor", binary("xor", high(second), c1), k0),
            low(second),
            binary("xor", binary("xor", high(first), c3), k1),
            low(first),
        )
        k0 = binary("add", k0, constant(b, PHILOX_KEY_STEPS[0], shape, u32))
        k1 = binary("add", k1, constant(b, PHILOX_KEY_STEPS[1], shape, u32))
    return c0


def mask_causal(scores: Any, rows: Any, cols: Any) -> Tile:
    """Scores with -inf where the column is after the row; called as a statement, it rebinds `scores`.

    `rows` is `tile.row_index()`, `cols` is `tile.col_index(step)`. The last row is aligned with the last column, so
    queries that continue a cache attend to all of it; `row_index(offset)` sets the index of the first row instead.
    """
    b = current()
    tile = to_compute_dtype(b, tile_of(b, "mask_causal", scores))
    if not tile.dtype.is_float:
        raise DTypeError(
            f"`mask_causal` takes scores that are floats, as masked ones become -inf; got {tile.dtype}",
            span=b.span,
            fix="cast the scores first: `S = tile.cast(S, f32)`",
        )
    if not isinstance(rows, Coordinates) or not isinstance(cols, Coordinates):
        raise b.fail(
            "`mask_causal` takes rows and columns", "write `tile.mask_causal(S, tile.row_index(), tile.col_index(n))`"
        )
    if len(tile.shape) != 2 or (rows.size, cols.size) != tile.shape:
        raise b.misfit(f"`mask_causal` of {list(tile.shape)} got {rows.size} rows and {cols.size} columns")
    if rows.offset is not None:
        first = rows.offset - (cols.offset or 0)
    else:
        if rows.axis.bound is None:
            raise b.fail("the rows of this program have no extent yet", "load with `rows=T.m` first")
        first = (cols.axis.bound or Dim.constant(0)) - rows.axis.bound
    seen = Dim.symbol(rows.axis.name) + 1 + first
    bound = seen if cols.axis.bound is None else smaller(cols.axis.bound, seen)
    aligned = Tile(tile.number, tile.type, (rows.axis, cols.axis), pad_value=tile.pad_value, shape=tile.shape)
    masked = clip(b, aligned, 1, bound, -INF)
    # Blocks of columns after the last row of this block are all -inf, so the loop may end before them.
    masked.loop_end = (cols.axis.name, larger(0, smaller(cols.axis.bound or seen, seen + rows.size - 1)))
    if isinstance(scores, Tile):
        masked.origin = None
        scores.become(masked)
    return masked


class Exponentials(Operand):
    """`exp(S - max S)` of a block of scores, computed lazily: the consumer may ask for another shift.

    `softmax_accumulate` shifts by the running maximum directly, so that each exponential is computed once.
    """

    def __init__(self, b: KernelBuilder, scores: Tile, top: Tile) -> None:
        self.b, self.scores, self.top = b, scores, top
        self._made: Tile | None = None

    @property
    def dtype(self) -> Any:
        return self.scores.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.scores.shape

    def shifted_by(self, top: Tile) -> Tile:
        """The exponentials of the scores, shifted by a number for each row."""
        weights = exp(self.scores - top[:, None])
        weights.pad_value, weights.loop_end = 0.0, self.scores.loop_end
        return weights

    def materialize(self) -> Tile:
        if self._made is None:
            self._made = self.shifted_by(shift_of(self.top))
        return self._made

    def as_dot_operand(self, which: str) -> Tile:
        return self.materialize()


class RowSum(Operand):
    """The sums of exponentials by row, computed lazily."""

    def __init__(self, exponentials: Exponentials) -> None:
        self.exponentials = exponentials
        self._made: Tile | None = None

    def materialize(self) -> Tile:
        if self._made is None:
            self._made = reduce(self.exponentials.materialize(), 1, "sum")
        return self._made


def softmax_online(scores: Any) -> tuple[Any, Tile, Any]:
    """Of a block of scores: its exponentials relative to each row's maximum, those maxima, and the sums by row."""
    b = current()
    tile = to_compute_dtype(b, tile_of(b, "softmax_online", scores))
    if len(tile.shape) != 2:
        raise b.misfit(f"`softmax_online` takes rows and columns, got {list(tile.shape)}")
    loop_end = tile.loop_end
    rows = mask_beyond(b, tile, 1, -INF)
    rows.loop_end = loop_end
    b.numeric["n"] = None
    top = reduce(rows, 1, "max")
    exponentials = Exponentials(b, rows, top)
    return exponentials, top, RowSum(exponentials)


def softmax_accumulate(
    acc: Any,
    m: Any,
    l: Any,  # noqa: E741 - the document's name
    P: Any,
    V: Any,
    m_c: Any,
    l_c: Any,
) -> tuple[Tile, Tile, Tile]:
    """Accumulate a block: both sums are rescaled to the larger maximum, then `acc + P V` and `l + l_c`.

    The exponentials are rounded to the dtype of `V` before the dot.
    """
    b = current()
    acc_tile, top, total = (tile_of(b, "softmax_accumulate", value) for value in (acc, m, l))
    new = maximum(top, m_c)
    shift = shift_of(new)
    kept = exp(top - shift)
    if isinstance(P, Exponentials):
        probabilities = P.shifted_by(shift)
        block = reduce(probabilities, 1, "sum")
    else:
        scale = exp(tile_of(b, "softmax_accumulate", m_c) - shift)
        probabilities = tile_of(b, "softmax_accumulate", P)
        loop_end, pad_value = probabilities.loop_end, probabilities.pad_value
        probabilities = probabilities * scale[:, None]
        probabilities.loop_end, probabilities.pad_value = loop_end, pad_value
        block = tile_of(b, "softmax_accumulate", l_c) * scale
    values = dot_operand(b, V, "right")
    loop_end, pad_value = probabilities.loop_end, probabilities.pad_value
    weights = cast_to(b, probabilities, values.dtype)
    weights.pad_value = pad_value
    result = dot(weights, values, acc_tile * kept[:, None]), new, total * kept + block
    for tile in result:
        tile.loop_end = loop_end
    return result


def dropout_in_kernel(x: Any, p: Any, *, key: Any = None) -> Tile:
    """The tile with a fraction `p` of its elements zeroed and the others scaled up to keep the mean.

    Random numbers come from the kernel's random key and the element's index in the whole tensor, so the mask does not
    depend on the schedule.
    """
    b = current()
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0.0 <= p <= 1.0:
        raise b.fail(f"`p` is a fraction in 0..1, got {p!r}")
    tile = to_compute_dtype(b, tile_of(b, "dropout_in_kernel", x))
    if p == 0.0:
        return tile
    kept = keep_mask(b, tile, 1.0 - p, key)
    scaled = tile * (1.0 / (1.0 - p)) if p < 1.0 else tile
    found = where(kept, scaled, 0.0)
    found.pad_value, found.loop_end = tile.pad_value, tile.loop_end
    return found
