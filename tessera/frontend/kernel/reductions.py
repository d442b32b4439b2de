"""Functions that combine elements of a tile: reductions, scans, softmax of whole rows, warp shuffles and votes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tessera.frontend.kernel.block_scope import in_scope
from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.elementwise import full, where
from tessera.frontend.kernel.indexing import mask_beyond
from tessera.frontend.kernel.rows import NeedsNumber
from tessera.frontend.kernel.scalar import exp
from tessera.frontend.kernel.tiles import (
    INF,
    Operand,
    Tile,
    binary,
    cast_to,
    make_tile,
    number_of,
    tile_of,
    to_compute_dtype,
    unbroadcast,
)
from tessera.ir.tile.records import INDEX, Body, Memory, TileOp
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType
from tessera.types.promotion import reduction_identity
from tessera.types.shape import TensorType

KINDS = ("sum", "prod", "max", "min", "any", "all")


def identity(kind: str, dtype: DType) -> Any:
    """The identity of a reduction in kernels, where sums start with 0.0."""
    return 0.0 if kind == "sum" and dtype.is_float else reduction_identity(kind, dtype)


def reduce(x: Any, axis: int = -1, kind: Any = "sum", *, start: Any = None, scope: str = "row") -> Tile:
    """Reduce an axis by `sum`, `prod`, `max`, `min`, `any` or `all`, in a balanced binary tree.

    A function of two tiles, the result so far and the next element, reduces sequentially; where the axis may end within
    the tile, `start` is its identity. A result may not depend on block sizes (T0504): the axis is a whole dim, or a
    loop accumulates over its blocks. With `scope="block"` it is a reduction of each block, and fixes the block's size.
    """
    return in_scope(scope, _reduce(x, axis, kind, start))


def _reduce(x: Any, axis: int, kind: Any, start: Any) -> Tile:
    b = current()
    tile = to_compute_dtype(b, tile_of(b, "reduce", x))
    if not callable(kind) and kind not in KINDS:
        raise b.fail(f"`kind` is one of {', '.join(KINDS)} or a function, got {kind!r}")
    rank = len(tile.shape)
    if not -rank <= axis < rank:
        raise b.misfit(f"`axis` must be in {-rank}..{rank - 1}, got {axis}")
    axis %= rank
    if callable(kind):
        own: Any = kind
        return _reduce_by_function(b, tile, axis, own, start)
    tile = unbroadcast(b, tile)
    whole = mask_beyond(b, tile, axis, identity(kind, tile.dtype))
    kept = tile.type.shape[:axis] + tile.type.shape[axis + 1 :]
    axes = tile.axes[:axis] + tile.axes[axis + 1 :]
    return make_tile(b, "reduce", [whole.number], {"kind": kind, "axis": axis}, tile.type.with_shape(kept), axes)


def check_whole(tile: Tile, axis: int) -> None:
    """Raises NeedsNumber for a tile that may be longer along an axis than the dim it holds: the axis must end there."""
    origin = tile.axes[axis]
    if origin is not None and origin.name == "_z" and origin.dim is not None and origin.dim.value is None:
        raise NeedsNumber(origin.dim)


def _reduce_by_function(
    b: KernelBuilder, tile: Tile, axis: int, combine: Callable[[Tile, Tile], Tile], start: Any
) -> Tile:
    """A reduction by a function of the user's: the last element of its scan."""
    if len(tile.shape) > 2:
        raise b.misfit(f"a function reduces tiles of rank 1 or 2, got {list(tile.shape)}")
    if start is None:
        check_whole(tile, axis)
    whole = mask_beyond(b, tile, axis, 0 if start is None else start)
    if start is None and whole is not tile:
        raise b.fail(
            "the axis may end within the tile, and the identity of the function is unknown",
            "give its identity: `tile.reduce(x, axis, function, start=0.0)`",
        )
    return _Scan(b, whole, axis, exclusive=False, reverse=False).run(combine, 0, is_own=True, is_last=True)


def sum(x: Any, axis: int = -1, *, scope: str = "row") -> Tile:
    """The sum along an axis."""
    return reduce(x, axis, "sum", scope=scope)


def max(x: Any, axis: int = -1, *, scope: str = "row") -> Tile:
    """The largest along an axis; NaN if there is one."""
    return reduce(x, axis, "max", scope=scope)


def min(x: Any, axis: int = -1, *, scope: str = "row") -> Tile:
    """The smallest along an axis; NaN if there is one."""
    return reduce(x, axis, "min", scope=scope)


def tile_reduce_rowmax(x: Any, *, scope: str = "row") -> Tile:
    """The largest of each row."""
    return reduce(x, -1, "max", scope=scope)


def tile_reduce_rowsum(x: Any, *, scope: str = "row") -> Tile:
    """The sum of each row."""
    return reduce(x, -1, "sum", scope=scope)


def shift_of(top: Tile) -> Tile:
    """What to subtract from rows with these maxima: 0 where a maximum is -inf, since -inf - -inf is NaN."""
    return where(top == -INF, 0.0, top)


def tile_softmax_rmax(x: Any, eps: float = 0.0, *, scope: str = "row") -> Tile:
    """The softmax of whole rows, with each row's maximum subtracted first; `eps` is added to the sums."""
    b = current()
    tile = to_compute_dtype(b, tile_of(b, "tile_softmax_rmax", x))
    if len(tile.shape) != 2:
        raise b.misfit(f"`tile_softmax_rmax` takes rows and columns, got {list(tile.shape)}")
    rows = mask_beyond(b, tile, 1, -INF)
    weights = exp(rows - shift_of(reduce(rows, 1, "max"))[:, None])
    weights.pad_value = 0.0
    total = reduce(weights, 1, "sum")
    if eps:
        total = total + eps
    return in_scope(scope, weights / where(total == 0.0, 1.0, total)[:, None])


def softmax(x: Any, *, scope: str = "row") -> Tile:
    """The softmax of whole rows."""
    return tile_softmax_rmax(x, scope=scope)


_SCAN_FUNCTIONS: dict[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def scan(
    x: Any,
    combine: Any = "sum",
    axis: int = -1,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    start: Any = None,
    scope: str = "row",
) -> Tile:
    """A sequential scan along an axis: each element combined with all before it.

    `combine` is `sum`, `prod`, `max`, `min`, or a function of two tiles, the result so far and the next element; then
    `start` is the first value of an exclusive scan. `scope` is as in `reduce`.
    """
    b = current()
    tile = to_compute_dtype(b, tile_of(b, "scan", x))
    rank = len(tile.shape)
    if rank not in (1, 2) or not -rank <= axis < rank:
        raise b.misfit(f"`scan` takes an axis of a tile of rank 1 or 2, got axis {axis} of {list(tile.shape)}")
    function: Any = combine
    if reverse:
        check_whole(tile, axis % rank)
    if callable(combine):
        begin = 0 if start is None else start
        if exclusive and start is None:
            raise b.fail("an exclusive scan by a function needs `start`, its first value")
    else:
        if combine not in _SCAN_FUNCTIONS:
            raise b.fail(f"`combine` is one of {', '.join(_SCAN_FUNCTIONS)} or a function, got {combine!r}")
        begin, function = identity(combine, tile.dtype), partial(binary, _SCAN_FUNCTIONS[combine])
    lines = _Scan(b, tile, axis % rank, exclusive=exclusive, reverse=reverse)
    return in_scope(scope, lines.run(function, begin, callable(combine)))


class _Scan:
    """A scan through private scratch memory: a loop along the axis that carries a slice across it."""

    def __init__(self, b: KernelBuilder, tile: Tile, axis: int, *, exclusive: bool, reverse: bool) -> None:
        self.b, self.tile, self.axis = b, tile, axis
        self.exclusive, self.reverse = exclusive, reverse
        self.type = TensorType.of(tile.shape, tile.dtype)
        self.across = tuple(name for number, name in enumerate(("_r", "_c")[: len(tile.shape)]) if number != axis)
        self.kept = tuple(size for number, size in enumerate(tile.shape) if number != axis)

    def run(self, combine: Callable[[Tile, Tile], Tile], begin: Any, is_own: bool, *, is_last: bool = False) -> Tile:
        """All elements of the scan, or the last one only."""
        b, count = self.b, self.tile.shape[self.axis]
        names = ("_r", "_c")[: len(self.tile.shape)]
        zero = b.coords[b.zero()]
        zeros = [zero] * len(names)
        (source,) = b.emit("scratch", (), {"space": "private"}, [Memory(self.type)])
        (target,) = b.emit("scratch", (), {"space": "private"}, [Memory(self.type)])
        whole = self._access(names)
        b.emit("store", [number_of(b, self.tile), source, *zeros], {**whole, "mode": "set"})
        b.emit("barrier")
        line = full(self.kept, begin, self.tile.dtype)
        first = 0
        if is_own and not self.exclusive:
            # A function has no identity: the first element starts the scan.
            line = self._read(source, self._step(0))
            self._write(line, target, self._step(0))
            first = 1
        self._loop(first, count, line, source, target, combine)
        b.emit("barrier")
        if is_last:
            return self._read(target, self._step(count - 1))
        return make_tile(b, "load", [target, *zeros], {**whole, "pad": 0}, self.type, self.tile.axes)

    def _access(self, axes: tuple[str, ...]) -> dict[str, Any]:
        names = ("_r", "_c")[: len(self.tile.shape)]
        none = tuple(Dim.constant(-1) for _ in axes)
        return {"coords": names, "axes": axes, "map": tuple(map(Dim.symbol, names)), "bounds": none}

    def _step(self, step: int) -> int:
        count = self.tile.shape[self.axis]
        return self.b.index(Dim.constant(count - 1 - step if self.reverse else step))

    def _operands(self, at: int) -> list[int]:
        zero = self.b.coords[self.b.zero()]
        return [at if number == self.axis else zero for number in range(len(self.tile.shape))]

    def _read(self, buffer: int, at: int) -> Tile:
        type = TensorType.of(self.kept, self.tile.dtype)
        values = {**self._access(self.across), "pad": 0}
        axes = [axis for number, axis in enumerate(self.tile.axes) if number != self.axis]
        return make_tile(self.b, "load", [buffer, *self._operands(at)], values, type, axes)

    def _write(self, line: Tile, buffer: int, at: int) -> None:
        operands = [number_of(self.b, line), buffer, *self._operands(at)]
        self.b.emit("store", operands, {**self._access(self.across), "mode": "set"})

    def _combine(self, combine: Callable[[Tile, Tile], Any], before: Tile, here: Tile) -> Tile:
        """The result of the function for two slices, checked: of their shape, cast to their dtype."""
        b, given = self.b, combine(before, here)
        if not isinstance(given, Operand):
            raise b.fail(
                f"the function of a reduction must return a tile, got {given!r}",
                f"return a tile, as in `lambda before, here: before + here`, or `tile.full({list(before.shape)}, ...)`",
            )
        after = cast_to(b, given.materialize(), before.dtype)
        if after.shape != before.shape:
            raise b.misfit(
                f"the function of a scan takes tiles of {list(before.shape)}, and returns {list(after.shape)}"
            )
        return after

    def _loop(
        self, first: int, count: int, line: Tile, source: int, target: int, combine: Callable[[Tile, Tile], Tile]
    ) -> None:
        b = self.b
        if b.is_native:
            for step in range(first, count):
                at = self._step(step)
                after = self._combine(combine, line, self._read(source, at))
                self._write(line if self.exclusive else after, target, at)
                line = after
            return
        low, high = b.index(Dim.constant(first)), b.index(Dim.constant(count))
        step, carried = b.new(INDEX), b.new(line.type)
        body, name = Body(arguments=(step, carried)), b.fresh_name("_s")
        b.coords[name] = step
        with b.inside(body, name):
            at = step if not self.reverse else b.index(Dim.constant(count - 1) - Dim.symbol(name))
            before = Tile(carried, line.type, line.axes)
            after = self._combine(combine, before, self._read(source, at))
            self._write(before if self.exclusive else after, target, at)
            body.results = (number_of(b, after),)
        results = (b.new(line.type),)
        b.add(TileOp("for", (low, high, number_of(b, line)), {"step": 1}, results, b.span, body))


tile_scan = scan


# Warp shuffles and votes: exchanges along the last axis of a tile, in segments of a warp or less.

WARP = 32
VOTES = {"any": "bool", "all": "bool", "ballot": "u32", "count": "i32"}
SHUFFLES = ("down", "up", "index")


def _in_segments(b: KernelBuilder, fn: str, x: Any, width: Any) -> Tile:
    """The tile with its broadcast materialized; raises unless segments fill its last axis."""
    tile = tile_of(b, fn, x)
    if tile.shape:
        check_whole(tile, len(tile.shape) - 1)
    if not tile.shape:
        raise b.misfit(f"`{fn}` works along the last axis of a tile, and a scalar has none")
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= WARP or width & (width - 1):
        raise b.fail(f"`width` is a power of two up to {WARP}, got {width!r}")
    if tile.shape[-1] % width:
        last = tile.shape[-1]
        raise b.misfit(
            f"segments of {width} lanes must fill the last axis, which has {last} elements",
            fix=f"write `width={last & -last if last else 1}`, or use tiles whose rows are multiples of a segment",
        )
    return unbroadcast(b, tile)


def _lane(b: KernelBuilder, by: Any, width: int) -> int:
    if isinstance(by, bool) or not isinstance(by, int) or not 0 <= by < width:
        raise b.fail(f"`by` must be in 0..{width - 1}, as segments have {width} lanes, got {by!r}")
    return by


def shuffle(x: Any, mode: str, by: int, width: int = WARP) -> Tile:
    """Warp shuffle: each element from another lane of its segment of the last axis.

    `mode` is `down` or `up`, by `by` lanes, or `index`, from lane `by`. Where the segment has no such lane an element
    keeps its value.
    """
    b = current()
    tile = _in_segments(b, "shuffle", x, width)
    if mode not in SHUFFLES:
        raise b.fail(f"`mode` is one of {', '.join(SHUFFLES)}, got {mode!r}")
    values = {"mode": mode, "by": _lane(b, by, width), "width": width}
    return make_tile(b, "shuffle", [tile.number], values, tile.type, tile.axes)


def butterfly(x: Any, by: int, width: int = WARP) -> Tile:
    """Butterfly shuffle: each element from the lane whose number is its own xor `by`."""
    b = current()
    tile = _in_segments(b, "butterfly", x, width)
    return make_tile(b, "butterfly", [tile.number], {"by": _lane(b, by, width), "width": width}, tile.type, tile.axes)


def vote(x: Any, kind: str = "any", width: int = WARP) -> Tile:
    """Warp vote: a reduction of the bools of each segment, broadcast to all of its lanes.

    `any` and `all` are bools, `count` is how many are true (i32), and `ballot` which (u32, lane 0 is the lowest bit).
    Out-of-bounds elements do not vote.
    """
    b = current()
    tile = _in_segments(b, "vote", x, width)
    if kind not in VOTES:
        raise b.fail(f"`kind` is one of {', '.join(VOTES)}, got {kind!r}")
    if not tile.dtype.is_bool:
        raise b.fail(f"`vote` takes bools, got {tile.dtype}", "compare first: `x > 0`")
    inside = mask_beyond(b, tile, len(tile.shape) - 1, kind == "all")
    type = TensorType.of(tile.shape, BY_NAME[VOTES[kind]])
    return make_tile(b, "vote", [inside.number], {"kind": kind, "width": width}, type, tile.axes)
