"""Running a tile kernel on NumPy, one program after the other: the oracle of kernels, to be stepped through with pdb.

Every access is checked: one outside its buffer is a `BoundsError` (T0502) that names kernel, line, program, element
and index. An `Observer` sees each op before it runs and each access after its cells are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.arrays import Array, numpy_dtype, reduce_ranks, round_as, round_to, static
from tessera.ir.base.interpret import InterpretError, Run, handles
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, IndexAttr, TileAttr, shaped_type
from tessera.ir.tile.indexing import Cells, along, cells_of, evaluate
from tessera.runtime.ranks import world
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

# What `ttile.softmax` and `ttile.attend` mean, step by step, for those who run them and those who expand them.

LEAST = float("-inf")


class Steps(Protocol):
    """How a recipe is carried out, whatever tiles are made of."""

    def fn(self, name: str, *tiles: Any) -> Any:
        """A scalar function at every element."""
        ...

    def rows(self, kind: str, tile: Any) -> Any:
        """Each row reduced."""
        ...

    def broadcast(self, column: Any, like: Any) -> Any:
        """A number for each row, at every element of the row."""
        ...

    def full(self, value: float, like: Any) -> Any:
        """One number at every element of a tile like another."""
        ...

    def choose(self, flags: Any, yes: Any, no: Any) -> Any:
        """Elements of one tile or of another."""
        ...

    def narrow_to(self, tile: Any, like: Any) -> Any:
        """The tile in another one's dtype."""
        ...

    def dot(self, lhs: Any, rhs: Any, acc: Any) -> Any:
        """A dot added to accumulators."""
        ...


def softmax(s: Steps, x: Any, eps: float) -> Any:
    """exp of rows less their maxima, divided by their sums."""
    weights = _exponentials(s, x, _shift(s, s.rows("max", x)))
    total = s.rows("sum", weights)
    if eps:
        total = s.fn("add", total, s.full(eps, total))
    whole = s.choose(s.fn("eq", total, s.full(0.0, total)), s.full(1.0, total), total)
    return s.fn("div", weights, s.broadcast(whole, x))


def attend(s: Steps, scores: Any, values: Any, acc: Any, top: Any, total: Any) -> tuple[Any, Any, Any]:
    """Both what was summed so far and the block are scaled to the larger maximum, and added."""
    new = s.fn("max", top, s.rows("max", scores))
    shift = _shift(s, new)
    kept = s.fn("exp", s.fn("sub", top, shift))
    weights = _exponentials(s, scores, shift)
    block = s.rows("sum", weights)
    sums = s.dot(s.narrow_to(weights, values), values, s.fn("mul", acc, s.broadcast(kept, acc)))
    return sums, new, s.fn("add", s.fn("mul", total, kept), block)


def _shift(s: Steps, top: Any) -> Any:
    """What to take off: where nothing was seen any number will do, and -inf would not."""
    return s.choose(s.fn("eq", top, s.full(LEAST, top)), s.full(0.0, top), top)


def _exponentials(s: Steps, x: Any, shift: Any) -> Any:
    return s.fn("exp", s.fn("sub", x, s.broadcast(shift, x)))


@frozen
class Access:
    """One load, store or fetch by one program: which argument (None for scratch), and which of its cells.

    `inside` says of each element of the tile whether it takes part; `cells` are theirs, in row-major order.
    """

    op: SpecOp
    program: tuple[int, ...]
    argument: int | None
    cells: Array
    inside: Array

    @property
    def is_store(self) -> bool:
        return self.op.name == "ttile.store"

    @property
    def buffer(self) -> SSAValue:
        return self.op.operands[1 if self.is_store else 0]


class Observer:
    """Looks on while a kernel runs; does nothing unless a subclass says so."""

    def before(self, run: TileRun, op: SpecOp) -> None:
        """An op is about to run; `run[op.operands[0]]` is the array or number that it takes."""

    def access(self, run: TileRun, access: Access) -> None:
        """A load or store has found its cells, all of them inside the buffer."""


class Breakpoint(Observer):
    """Stops in the debugger before the ops of a source line, or before every op of a name such as `dot`."""

    def __init__(self, line: int = 0, op: str = "") -> None:
        self.line, self.op = line, op

    def before(self, run: TileRun, op: SpecOp) -> None:
        at_line = op.span is not None and op.span.line == self.line
        if at_line or op.name == f"ttile.{self.op}":
            breakpoint()


class TileRun(Run):
    """The state of a kernel's run: its buffers, and the program that is running."""

    def __init__(self, kernel: SpecOp, sizes: Mapping[str, int], observer: Observer | None = None) -> None:
        super().__init__(sizes)
        self.kernel, self.observer = kernel, observer or Observer()
        self.program: tuple[int, ...] = ()
        self.arguments: dict[SSAValue, int] = {arg: arg.index for arg in kernel.regions[0].block.args}

    def op(self, op: SpecOp) -> None:
        self.observer.before(self, op)
        super().op(op)

    def run_programs(self, buffers: Sequence[Array]) -> None:
        """Run every program of the grid, in row-major order."""
        block = self.kernel.regions[0].block
        grid = [max(0, self.size(dim)) for dim in self.kernel.value("grid")]
        for program in itertools.product(*(range(extent) for extent in grid)):
            self.program = program
            self.block(block, buffers)


def run_kernel(
    kernel: SpecOp, buffers: Sequence[Array], sizes: Mapping[str, int], *, observer: Observer | None = None
) -> None:
    """Run a `ttile.kernel` on contiguous arrays, which it writes in place; `sizes` gives each symbol of the kernel.

    An array may have another shape than the buffer's type, with as many elements. Raises BoundsError (T0502) for an
    access outside a buffer, InterpretError where arguments do not fit.
    """
    missing = set(kernel.value("symbols")) - sizes.keys()
    if missing:
        raise InterpretError(f"`@{kernel.value('symbol')}` needs the size `{min(missing)}`")
    run = TileRun(kernel, sizes, observer)
    run.run_programs(buffers_of(run, kernel.regions[0].block, buffers))


def buffers_of(run: Run, block: Block, arrays: Sequence[Array]) -> list[Array]:
    """The arrays in the shapes that the kernel gives its arguments, without copies."""
    if len(arrays) != len(block.args):
        raise InterpretError(f"a kernel takes {len(block.args)} buffers, got {len(arrays)}")
    found: list[Array] = []
    for argument, array in zip(block.args, arrays, strict=True):
        assert isinstance(argument.type, BufferAttr)
        shape = tuple(run.size(dim) for dim in argument.type.shape)
        if array.dtype != numpy_dtype(argument.type.dtype) or array.size != int(np.prod(shape, dtype=np.int64)):
            got = f"{list(array.shape)} of {array.dtype}"
            raise InterpretError(f"buffer {argument.index} is {list(shape)} of {argument.type.dtype}, got {got}")
        if not array.flags.c_contiguous:
            raise InterpretError(f"buffer {argument.index} is not contiguous")
        found.append(array.reshape(shape))
    return found


def _shape(op: SpecOp) -> tuple[int, ...]:
    return _tile_shape(op.results[0].type)


def _tile_shape(type: Any) -> tuple[int, ...]:
    assert isinstance(type, TileAttr)
    return type.sizes


def _dtype(value: SSAValue) -> Any:
    assert isinstance(value.type, TileAttr)
    return value.type.dtype


# Control.


@handles("ttile.program_id")
def _program_id(run: Run, op: SpecOp) -> Sequence[Any]:
    assert isinstance(run, TileRun)
    axis: int = op.value("axis")
    return (run.program[axis],)


@handles("ttile.index")
def _index(run: Run, op: SpecOp) -> Sequence[Any]:
    env = dict(zip(op.value("names"), run.operands(op), strict=True))
    expr: Dim = op.value("expr")
    return (expr.evaluate({**run.dims, **env}),)


@handles("ttile.for")
def _for(run: Run, op: SpecOp) -> Sequence[Any]:
    low, high, *carried = run.operands(op)
    for index in range(low, high, op.value("step")):
        carried = run.block(op.regions[0].block, [index, *carried])
    return tuple(carried)


# Memory.


@handles("ttile.scratch")
def _scratch(run: Run, op: SpecOp) -> Sequence[Any]:
    type = op.results[0].type
    assert isinstance(type, BufferAttr)
    shape = tuple(run.size(dim) for dim in type.shape)
    dtype = numpy_dtype(type.dtype)
    if dtype == np.bool_:
        return (np.ones(shape, np.bool_),)
    # Undefined at first: bytes of all ones are NaN in every float, and an index that no buffer has.
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return (np.full(count, 255, np.uint8).view(dtype).reshape(shape),)


@handles("ttile.barrier")
def _barrier(run: Run, op: SpecOp) -> None:
    """One worker runs here, in order; observers are told as of any op."""


def _cells(run: TileRun, op: SpecOp, first: int, shape: tuple[int, ...]) -> Cells:
    """The cells of a load or store whose buffer is operand `first - 1`; raises BoundsError."""
    operands = op.operands[first:]
    indices = [value for value in operands if isinstance(value.type, IndexAttr)]
    values = op.values()
    coords = {name: run[value] for name, value in zip(values["coords"], indices, strict=True)}
    gathered = [run[value] for value in operands[len(indices) :]]
    env = along(coords, values["axes"], shape, run.dims)
    cells = cells_of(values, env, shape, gathered)
    buffer = run[op.operands[first - 1]]
    for number, (index, extent) in enumerate(zip(cells.indices, buffer.shape, strict=True)):
        outside = cells.inside & ((index < 0) | (index >= extent))
        if outside.any():
            raise _outside(run, op, number, np.argwhere(outside)[0], index, extent)
    argument = run.arguments.get(op.operands[first - 1])
    run.observer.access(run, Access(op, run.program, argument, cells.flat(buffer.shape), cells.inside))
    return cells


def _outside(run: TileRun, op: SpecOp, dim: int, element: Array, index: Array, extent: int) -> BoundsError:
    at = tuple(int(part) for part in element)
    verb = "writes" if op.name == "ttile.store" else "reads"
    sizes = "".join(f", {name} = {size}" for name, size in sorted(run.dims.items()))
    return BoundsError(
        f"`@{run.kernel.value('symbol')}` {verb} index {int(index[at])} of dim {dim}, which has {extent} elements",
        span=op.span,
        notes=(
            f"at element {list(at)} of the tile, in program {list(run.program)}{sizes}",
            f"the index is `{op.value('map')[dim]}`",
        ),
    )


@handles("ttile.load")
def _load(run: Run, op: SpecOp) -> Sequence[Any]:
    assert isinstance(run, TileRun)
    buffer: Array = run[op.operands[0]]
    cells = _cells(run, op, 1, _shape(op))
    tile = np.full(_shape(op), op.value("pad"), buffer.dtype)
    tile[cells.inside] = buffer[tuple(index[cells.inside] for index in cells.indices)]
    return (tile,)


@handles("ttile.store")
def _store(run: Run, op: SpecOp) -> None:
    assert isinstance(run, TileRun)
    tile, buffer = run[op.operands[0]], run[op.operands[1]]
    cells = _cells(run, op, 2, tile.shape)
    # One element after the other in row-major order, so that equal cells have one answer.
    flat, values = buffer.ravel(), tile[cells.inside]
    where = cells.flat(buffer.shape)
    if op.value("mode") == "set":
        flat[where] = values
        return
    dtype, fn = _dtype(op.operands[0]), op.value("mode").removeprefix("atomic_")
    with np.errstate(all="ignore"):
        for cell, value in zip(where, values, strict=True):
            flat[cell] = scalars.apply(fn, [flat[cell].reshape(1), value.reshape(1)], dtype)[0]


@handles("ttile.fetch")
def _fetch(run: Run, op: SpecOp) -> Sequence[Any]:
    assert isinstance(run, TileRun)
    buffer: Array = run[op.operands[0]]
    env = {**run.dims, **_coords(run, op, 1)}
    index = tuple(expr.evaluate(env) for expr in op.value("map"))
    for dim, (at, extent) in enumerate(zip(index, buffer.shape, strict=True)):
        if not 0 <= at < extent:
            raise _outside(run, op, dim, np.zeros(0, np.int64), np.asarray(at), extent)
    cell = np.ravel_multi_index(index, buffer.shape) if index else 0
    argument = run.arguments.get(op.operands[0])
    run.observer.access(run, Access(op, run.program, argument, np.array([cell]), np.ones((), np.bool_)))
    return (int(buffer[index]),)


@handles("ttile.sort")
def _sort(run: Run, op: SpecOp) -> None:
    keys, indices, spare_keys, spare_indices, count = run.operands(op)
    for spare in (spare_keys, spare_indices):
        assert len(spare) >= count, "spare memory is too small"
    order = sorted_order(keys[:count], descending=op.value("descending"))
    keys[:count], indices[:count] = keys[:count][order], indices[:count][order]


@handles("ttile.tree")
def _tree(run: Run, op: SpecOp) -> None:
    lines, count = run.operands(op)
    dtype, fn = shaped_type(op.operands[0]).dtype, _JOINS[op.value("kind")]
    gap = 1
    while gap < count:
        for first in range(0, count - gap, 2 * gap):
            lines[first] = scalars.apply(fn, [lines[first], lines[first + gap]], dtype)
        gap *= 2


def sorted_order(keys: Array, *, descending: bool) -> Array:
    """The order of keys: by value, equal ones as they come, what is not a number last."""
    # Ranks instead of values, as the smallest integer has no opposite.
    _, ranks = np.unique(keys, return_inverse=True)
    ordered = -ranks.astype(np.int64) if descending else ranks.astype(np.int64)
    is_missing = keys != keys  # only NaN is
    return np.argsort(np.where(is_missing, len(keys), ordered), kind="stable")


# Arithmetic.


@handles("ttile.elementwise")
def _elementwise(run: Run, op: SpecOp) -> Sequence[Any]:
    return (scalars.apply(op.value("fn"), run.operands(op), _dtype(op.operands[0])),)


@handles("ttile.cast")
def _cast(run: Run, op: SpecOp) -> Sequence[Any]:
    return (scalars.cast(run[op.operands[0]], dtype=_dtype(op.results[0])),)


@handles("ttile.round")
def _round(run: Run, op: SpecOp) -> Sequence[Any]:
    tile, *bits = run.operands(op)
    return (round_to(tile, **op.values(), bits=bits[0] if bits else None),)


@handles("ttile.bitcast")
def _bitcast(run: Run, op: SpecOp) -> Sequence[Any]:
    tile: Array = run[op.operands[0]]
    # A tile of rank 0 has no axis to view along.
    bits: Array = np.ascontiguousarray(tile).ravel().view(numpy_dtype(_dtype(op.results[0])))
    return (bits.reshape(tile.shape),)


@handles("ttile.select")
def _select(run: Run, op: SpecOp) -> Sequence[Any]:
    condition: Array = run[op.operands[0]]
    first: Array = run[op.operands[1]]
    return (np.where(condition, first, run[op.operands[2]]),)


@handles("ttile.constant")
def _constant(run: Run, op: SpecOp) -> Sequence[Any]:
    value = op.value("value")
    number = run.size(value) if isinstance(value, Dim) else value
    return (np.full(_shape(op), round_as(number, _dtype(op.results[0]))),)


def _coords(run: Run, op: SpecOp, first: int) -> dict[str, int]:
    return {name: run[value] for name, value in zip(op.value("coords"), op.operands[first:], strict=True)}


@handles("ttile.coordinate")
def _coordinate(run: Run, op: SpecOp) -> Sequence[Any]:
    shape = _shape(op)
    env = along(_coords(run, op, 0), op.value("axes"), shape, run.dims)
    dtype = numpy_dtype(_dtype(op.results[0]))
    return (np.broadcast_to(np.asarray(evaluate(op.value("expr"), env), dtype), shape),)


@handles("ttile.clip")
def _clip(run: Run, op: SpecOp) -> Sequence[Any]:
    tile: Array = run[op.operands[0]]
    env = along(_coords(run, op, 1), op.value("axes"), tile.shape, run.dims)
    inside = np.asarray(env[op.value("axis")]) < evaluate(op.value("bound"), env)
    return (np.where(inside, tile, round_as(op.value("identity"), _dtype(op.operands[0]))),)


@handles("ttile.broadcast")
def _broadcast(run: Run, op: SpecOp) -> Sequence[Any]:
    tile, shape, axes = run[op.operands[0]], _shape(op), op.value("axes")
    ordered = np.transpose(tile, np.argsort(axes))
    sizes = iter(ordered.shape)
    broadcast = [next(sizes) if axis in axes else 1 for axis in range(len(shape))]
    return (np.broadcast_to(ordered.reshape(broadcast), shape),)


_JOINS: dict[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


@handles("ttile.reduce")
def _reduce(run: Run, op: SpecOp) -> Sequence[Any]:
    return (_reduce_tree(run[op.operands[0]], op.value("axis"), op.value("kind"), _dtype(op.operands[0])),)


def _reduce_tree(tile: Array, axis: int, kind: str, dtype: Any) -> Array:
    tile = np.moveaxis(tile, axis, 0)
    while tile.shape[0] > 1:
        half = 1 << (tile.shape[0] - 1).bit_length() - 1
        low, high = tile[:half], tile[half:]
        joined = scalars.apply(_JOINS[kind], [low[: len(high)], high], dtype)
        # What has no partner goes on as it is.
        tile = joined if len(high) == half else np.concatenate([joined, low[len(high) :]])
    return tile[0]


@handles("ttile.arg_reduce")
def _arg_reduce(run: Run, op: SpecOp) -> Sequence[Any]:
    values: Array
    indices: Array
    values, indices = (np.moveaxis(run[operand], op.value("axis"), 0) for operand in op.operands)
    reduce: Any = np.max if op.value("kind") == "argmax" else np.min
    missing = values != values  # only NaN is
    with np.errstate(invalid="ignore"):
        chosen = missing | ((values == reduce(values, axis=0)) & ~missing.any(0))
    return (np.where(chosen, indices, np.iinfo(indices.dtype).max).min(0),)


# Matrices.


@handles("ttile.dot")
def _dot(run: Run, op: SpecOp) -> Sequence[Any]:
    lhs, rhs, acc = run.operands(op)
    return (scalars.dot(lhs, rhs, acc),)


@handles("ttile.transpose")
def _transpose(run: Run, op: SpecOp) -> Sequence[Any]:
    return (np.ascontiguousarray(cast("Array", run[op.operands[0]]).T),)


# Collectives: each program of the grid exchanges its tiles with those of other ranks, which are those of the world
# around, processes or threads; each runs its programs one after the other, in one order.


@handles("ttile.all_reduce", "ttile.all_gather", "ttile.reduce_scatter")
def _collective(run: Run, op: SpecOp) -> Sequence[Any]:
    name, ranks = op.spec.short_name, static(op.value("size")[0])
    every = _gather(op, np.stack(run.operands(op)[: ranks if name == "reduce_scatter" else 1]), ranks)
    if name == "all_gather":
        return tuple(every[:, 0])
    own = world.axis_position(op.value("axis"), ranks) if name == "reduce_scatter" else 0
    return (reduce_ranks(list(every[:, own]), op.value("op")),)


def _gather(op: SpecOp, sent: Array, ranks: int) -> Array:
    """The tiles of all ranks, along a first axis."""
    if ranks == 1:
        return sent[None]
    own, every = np.ascontiguousarray(sent), np.empty((ranks, *sent.shape), sent.dtype)
    what = f"{own.dtype} {list(own.shape)} for `{op.name}`"
    memory = (own.ctypes.data, every.ctypes.data, own.nbytes)
    world.wait(world.start("all_gather", op.value("axis"), ranks, memory, what))
    return every


class _Run:
    """The steps of a recipe on arrays, computed in one dtype."""

    def __init__(self, dtype: Any, narrow: Any = None) -> None:
        self.dtype, self.narrow = dtype, narrow

    def fn(self, name: str, *tiles: Array) -> Array:
        return scalars.apply(name, list(tiles), self.dtype)

    def rows(self, kind: str, tile: Array) -> Array:
        return _reduce_tree(tile, 1, kind, self.dtype)

    def broadcast(self, column: Array, like: Array) -> Array:
        return np.broadcast_to(column[:, None], like.shape)

    def full(self, value: float, like: Array) -> Array:
        return np.full(like.shape, value, like.dtype)

    def choose(self, flags: Array, yes: Array, no: Array) -> Array:
        return np.where(flags, yes, no)

    def narrow_to(self, tile: Array, like: Array) -> Array:
        return tile if self.narrow is self.dtype else scalars.cast(tile, dtype=self.narrow)

    def dot(self, lhs: Array, rhs: Array, acc: Array) -> Array:
        return scalars.dot(lhs, rhs, acc)


@handles("ttile.softmax")
def _softmax(run: Run, op: SpecOp) -> Sequence[Any]:
    return (softmax(_Run(_dtype(op.operands[0])), run[op.operands[0]], op.value("eps")),)


@handles("ttile.attend")
def _attend(run: Run, op: SpecOp) -> Sequence[Any]:
    return attend(_Run(_dtype(op.operands[0]), _dtype(op.operands[1])), *run.operands(op))
