"""Evaluating a group's values on tiles: views become index maps, pointwise ops call their blocks.

Demand-driven: a kernel asks for a value at an index map and gets a tile; what that needs is loaded or computed on the
way. So any fusable set of ops becomes one kernel, and a value is computed exactly where, and as often as, it is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from tessera.diagnostics.error import Span
from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.index_maps import IndexMap, broadcast_at, compose, delinear, linear, simplify
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.base.types import BufferAttr
from tessera.ir.tile.facets import ContractionMaps, Gather, Pointwise, Reduction, View
from tessera.ir.tile.language import PointBuilder, TileBuilder, TileRegion
from tessera.ir.tile.typed_ops import FetchOp, LoadOp, StoreOp
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType, i32, i64
from tessera.types.frozen import frozen
from tessera.types.numerics import LEAF
from tessera.types.shape import is_at_least

# Reductions along a loop: what a loop carries, how a tile is accumulated, and how the lanes are reduced at the end.

_JOIN = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def identity(kind: str, dtype: DType) -> Any:
    """The result of a reduction of no elements."""
    if kind in ("sum", "any"):
        return False if dtype.is_bool else 0
    if kind in ("prod", "all"):
        return True if dtype.is_bool else 1
    highest = kind in ("min", "argmin")
    if dtype.is_float:
        return math.inf if highest else -math.inf
    if dtype.is_bool:
        return highest
    if dtype.kind == "uint":
        return (1 << dtype.bits) - 1 if highest else 0
    return (1 << (dtype.bits - 1)) - 1 if highest else -(1 << (dtype.bits - 1))


def carried_dtypes(body: Tape, record: Record) -> list[DType]:
    """The dtypes of a reduction's accumulator, and of the index beside it where that is what is looked for.

    The operand's compute dtype for min and max, the result's for a sum, or what the op states.
    """
    kind, asked = spec_of(record).lower.kind, record.attributes.get("accumulate")
    source, result = (body.types[value].dtype.compute for value in (record.operands[0], record.results[0]))
    if kind in ("argmax", "argmin"):
        # 32 bits are half the vectors, where all indices are known to fit, with those of lanes beyond the end.
        size = product(body.types[record.operands[0]].shape).value
        return [source, i32 if size is not None and size < (1 << 31) - LEAF else i64]
    return [source if kind in ("max", "min") else result if asked is None else asked.compute]


@frozen
class Reducer:
    """One reduction of a pass: its lanes are a tile whose first axis is reduced at the end.

    Where a lane does not meet its elements `in_order`, an argreduce compares indices of equal ones.
    """

    tile: TileBuilder
    record: Record
    body: Tape
    lower: Reduction
    shape: tuple[int, ...]
    in_order: bool = True

    @property
    def is_argreduce(self) -> bool:
        return self.lower.kind in ("argmax", "argmin")

    def with_shape(self, shape: tuple[int, ...]) -> Reducer:
        """The same with lanes of a shape."""
        return replace(self, shape=shape)

    @property
    def width(self) -> int:
        """How many tiles are carried."""
        return len(self.dtypes)

    @property
    def dtype(self) -> DType:
        """The accumulator's dtype."""
        return self.dtypes[0]

    @property
    def _asked(self) -> DType | None:
        """The accumulator dtype that the op states, if it states one."""
        return self.record.attributes.get("accumulate")

    @property
    def dtypes(self) -> list[DType]:
        """The dtypes of the tiles that are carried."""
        return carried_dtypes(self.body, self.record)

    @property
    def _index(self) -> DType:
        """The dtype of indices while a row is reduced."""
        return self.dtypes[-1]

    @property
    def _no_index(self) -> int:
        """The index of no element while a row is reduced: above all others."""
        return (1 << (self._index.bits - 1)) - 1

    def start(self) -> list[SSAValue]:
        self.tile.span = self.record.span
        first = self.tile.full(identity(self.lower.kind, self.dtype), self.shape, self.dtype)
        return [first, self.tile.full(self._no_index, self.shape, self._index)] if self.is_argreduce else [first]

    def step(
        self, carried: Sequence[SSAValue], operand: SSAValue, region: TileRegion, here: SSAValue | None = None
    ) -> list[SSAValue]:
        """What is carried on with one more tile; `here` are its indices, where they are not those of the region."""
        tile = self.tile
        tile.span = self.record.span
        value = tile.cast(operand, self.dtype)
        value = tile.clip(value, "_r", identity(self.lower.kind, self.dtype), region)
        if not self.is_argreduce:
            joined = tile.elementwise(_JOIN[self.lower.kind], carried[0], value)
            is_narrow = self._asked is not None and self._asked.compute is not self._asked
            return [tile.round(joined, format=str(self._asked)) if is_narrow else joined]
        best, at = carried
        if here is None:
            here = tile.cast(tile.coordinate_of(Dim.symbol("_r"), region), self._index)
        takes = self._is_better(value, best)
        if not self.in_order:
            is_earlier = tile.elementwise("lt", here, at)
            takes = tile.elementwise("or", takes, tile.elementwise("and", self._is_equal(value, best), is_earlier))
        return [tile.select(takes, value, best), tile.select(takes, here, at)]

    def _is_better(self, value: SSAValue, best: SSAValue) -> SSAValue:
        """Where an argreduce takes a value instead of the best one so far; the first NaN is better than all.

        A lane that meets its elements in order has the first of equal ones already. One that nothing beat has no
        index: if that is all of them they are all the identity, and the first is at 0.
        """
        tile, is_max = self.tile, self.lower.kind == "argmax"
        if not self.dtype.is_float:
            return tile.elementwise("gt" if is_max else "lt", value, best)
        no_better = tile.elementwise("le" if is_max else "ge", value, best)
        is_number = tile.elementwise("eq", best, best)
        return tile.elementwise("and", tile.elementwise("not", no_better), is_number)

    def _is_equal(self, value: SSAValue, best: SSAValue) -> SSAValue:
        """Where the index decides; all NaN are equal."""
        tile, is_equal = self.tile, self.tile.elementwise("eq", value, best)
        if not self.dtype.is_float:
            return is_equal
        are_nan = (tile.elementwise("ne", one, one) for one in (value, best))
        return tile.elementwise("or", is_equal, tile.elementwise("and", *are_nan))

    def finish(self, carried: Sequence[SSAValue], axis: int = 0) -> SSAValue:
        """The result: the lanes along an axis reduced."""
        self.tile.span = self.record.span
        out = self.body.types[self.record.results[0]].dtype
        if self.is_argreduce:
            index = self.tile.arg_reduce(carried[0], carried[1], self.lower.kind, axis)
            # The index of an empty row is 0, and of one that is all identity.
            shape = self.shape[:axis] + self.shape[axis + 1 :]
            is_empty = self.tile.elementwise("eq", index, self.tile.full(self._no_index, shape, self._index))
            return self.tile.cast(self.tile.select(is_empty, self.tile.full(0, shape, self._index), index), out)
        return self.round(self.tile.reduce(carried[0], self.lower.kind, axis))

    def combine(self, first: SSAValue, second: SSAValue) -> SSAValue:
        """Two accumulators as one."""
        return self.tile.elementwise(_JOIN[self.lower.kind], first, second)

    def round(self, total: SSAValue) -> SSAValue:
        """A total in the dtype of the result."""
        return self.tile.cast(total, self.body.types[self.record.results[0]].dtype)


# Copies of whole tiles: TMA and cp.async go along single dims of memory, so buffers have as few as serve.

_SPLIT = ("mod", "floordiv")


def join_dims(kernel: SpecOp) -> None:
    """Give the arguments of a kernel the fewest dims with which each access is at one index of a whole dim.

    `x[m floordiv S, m mod S, k]` of [B, S, K] is `x[m, k]` of [B S, K]: the same elements of the same memory.
    """
    block = kernel.regions[0].block
    for number in range(len(block.args)):
        _join(block, number)


def _join(block: Block, number: int) -> None:
    argument = block.args[number]
    users = {use.operation for use in argument.uses}
    accesses = [op for op in users if isinstance(op, LoadOp | StoreOp | FetchOp) and _is_access(op, argument)]
    assert isinstance(argument.type, BufferAttr)
    shape = argument.type.shape
    runs = joined_runs(shape, [op.map for op in accesses])
    # Copies that read windows see the dims of an image.
    is_windowed = any(isinstance(op, LoadOp) and op.windows for op in accesses)
    if len(accesses) < len(users) or len(runs) == len(shape) or is_windowed:
        return
    joined = argument.type.data.with_shape([product(shape[first:end]) for first, end in runs])
    for op in accesses:
        op.map = tuple(linear(op.map[first:end], shape[first:end]) for first, end in runs)
    Rewriter.replace_value_with_new_type(argument, BufferAttr.of(joined))


def _is_access(op: LoadOp | StoreOp | FetchOp, argument: SSAValue) -> bool:
    """Whether an argument is the buffer of an access, and no other operand of it."""
    return op.buffer is argument and list(op.operands).count(argument) == 1


def joined_runs(shape: Sequence[Dim], maps: Sequence[Sequence[Dim]]) -> list[tuple[int, int]]:
    """Runs of dims, each the shortest that all maps walk as one, or a single dim."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < len(shape):
        ends = [
            end
            for end in range(first + 2, len(shape) + 1)
            if maps and all(_is_one(at[first:end], shape[first:end]) for at in maps)
        ]
        found.append((first, min(ends, default=first + 1)))
        first = found[-1][1]
    return found


def _is_one(at: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether indices that are parts of a split coordinate are that coordinate when they are linearized."""
    parts = [index for index, size in zip(at, shape, strict=True) if size.value != 1]
    is_split = len(parts) > 1 and all(_is_split(index) for index in parts)
    return is_split and shape[-1].value != 1 and not _is_split(linear(at, shape))


def _is_split(index: Dim) -> bool:
    return any(atom.kind in _SPLIT for monomial, _ in index.terms for atom in monomial)


def tile_coordinates(maps: ContractionMaps) -> dict[str, Dim]:
    """The dims `b0`, `m0`, `n0`, `k0`, ... of a contraction, over the coordinates `_b0`, `_m`, `_n`, `_k` of tiles."""
    where = {f"b{axis}": Dim.symbol(f"_b{axis}") for axis in range(len(maps.batch))}
    for letter, extents in (("m", maps.m), ("n", maps.n), ("k", maps.k)):
        parts = delinear(Dim.symbol(f"_{letter}"), extents)
        where.update({f"{letter}{axis}": part for axis, part in enumerate(parts)})
    return where


def operand_at(maps: ContractionMaps, number: int) -> IndexMap:
    """The index of a contraction's lhs (0) or rhs (1), over the coordinates of its tiles."""
    where = tile_coordinates(maps)
    return tuple(simplify(index.substitute(where)) for index in (maps.lhs, maps.rhs)[number])


def axes_of(maps: ContractionMaps, number: int) -> dict[str, Dim]:
    """The axes of a tile of the lhs (0) or rhs (1), each with its extent; `_k` goes on to where operands end."""
    k = product(maps.k) if maps.cut is None else maps.cut.substitute(tile_coordinates(maps))
    extents = {"_m": product(maps.m), "_n": product(maps.n), "_k": k}
    return {axis: extents[axis] for axis in (("_m", "_k"), ("_k", "_n"))[number]}


def is_walkable(at: Sequence[Dim], shape: Sequence[Dim], axes: Mapping[str, Dim], may_cut: bool = False) -> bool:
    """Whether each axis runs along one dim, element by element, to its end, and one of them along the last.

    With `may_cut`, outer dims may go on where an axis ends. Dims of one element at the end are no dims of memory.
    """
    while shape and shape[-1].value == 1:
        at, shape = at[:-1], shape[:-1]
    runs = joined_runs(shape, [at])
    joined = [linear(at[first:end], shape[first:end]) if end > first + 1 else at[first] for first, end in runs]
    sizes = [product(shape[first:end]) for first, end in runs]
    dims = {axis: [dim for dim, index in enumerate(joined) if axis in index.symbols] for axis in axes}
    if any(len(found) > 1 for found in dims.values()):
        return False
    steps: Mapping[str, Dim | None] = {axis: _step(joined[found[0]], axis) for axis, found in dims.items() if found}
    has_last = any(found == [len(joined) - 1] for found in dims.values())
    if not has_last or any(step is None or step.value != 1 for step in steps.values()):
        return False
    kept = {axis: found[0] for axis, found in dims.items() if found and not (may_cut and found[0] < len(joined) - 1)}
    return all(joined[dim].substitute({axis: axes[axis]}) == sizes[dim] for axis, dim in kept.items())


def _step(index: Dim, axis: str) -> Dim | None:
    parts = index.coefficient(axis)
    return None if parts is None or axis in parts[1].symbols else parts[0]


def spec_of(record: Record) -> OpSpec:
    """The declaration of a record's op."""
    spec = find_spec(record.op)
    assert spec is not None, record.op
    return spec


def producers(body: Tape) -> dict[int, Record]:
    """The record that makes each value."""
    return {value: record for record in body.records for value in record.results}


def operand_reads(body: Tape, record: Record, value: int, at: IndexMap) -> list[tuple[int, IndexMap]]:
    """The operands of a view, gather or pointwise op, each with the index at which it is read for a result at `at`.

    Of other ops, which do not read element by element, there are none.
    """
    types, lower = body.types, spec_of(record).lower
    outs = [types[result] for result in record.results]
    if isinstance(lower, View):
        maps = lower.maps(types[record.operands[0]], outs, record.attributes)
        return [(record.operands[0], compose(maps[record.results.index(value)], at))]
    if isinstance(lower, Gather):
        maps = lower.maps([types[operand] for operand in record.operands], outs, record.attributes)
        return [(operand, compose(map, at)) for operand, map in zip(record.operands, maps, strict=True)]
    if isinstance(lower, Pointwise):
        return [(operand, broadcast_at(types[operand], types[value], at)) for operand in record.operands]
    return []


class Evaluator:
    """Emits tiles of the values of a body where they are needed.

    A value is asked for at an index map (one expression per dim) and a region (which coordinates run along the tile).
    `ready` holds values that exist as tiles already, with the axes they have; `buffers` those in memory. Everything
    else is computed from its operands. What was asked for twice in one loop body is computed once.
    """

    def __init__(self, body: Tape, tile: TileBuilder, buffers: Mapping[int, SSAValue], flat: bool) -> None:
        self.body, self.tile, self.flat = body, tile, flat
        self.buffers = dict(buffers)
        self.ready: dict[int, tuple[SSAValue, tuple[str, ...]]] = {}
        self.boxes: dict[int, Callable[[IndexMap], tuple[int, IndexMap]]] = {}
        """Of an assembly all of whose elements that are asked for are in one box: the operand, and its index."""
        self.makers = producers(body)
        self._memory: list[dict[Any, SSAValue]] = [{}]

    @contextmanager
    def scope(self) -> Any:
        """A loop body: tiles emitted inside are not visible after it."""
        self._memory.append({})
        try:
            yield
        finally:
            self._memory.pop()

    def value(self, value: int, at: IndexMap, region: TileRegion) -> SSAValue:
        """The tile of a value in its own dtype."""
        key = (value, at, region.axes, region.sizes)
        for memory in reversed(self._memory):
            if key in memory:
                return memory[key]
        found = self._make(value, at, region)
        self._memory[-1][key] = found
        return found

    def keep(self, value: int, at: IndexMap, region: TileRegion, tile: SSAValue) -> None:
        """Let a tile be the value's in the loop body at hand."""
        self._memory[-1][value, at, region.axes, region.sizes] = tile

    def compute(self, value: int, at: IndexMap, region: TileRegion) -> SSAValue:
        """The tile of a value in the dtype that arithmetic is done in."""
        return self.tile.cast(self.value(value, at, region), self.body.types[value].dtype.compute)

    def _make(self, value: int, at: IndexMap, region: TileRegion) -> SSAValue:
        if value in self.ready:
            return self._broadcast(*self.ready[value], region)
        if value in self.buffers:
            return self.load(value, at, region)
        record = self.makers[value]
        lower = spec_of(record).lower
        outer, self.tile.span = self.tile.span, record.span
        try:
            if isinstance(lower, View):
                ((source, where),) = operand_reads(self.body, record, value, at)
                return self.value(source, where, region)
            if isinstance(lower, Gather):
                return self._gather(lower, record, value, at, region)
            if value in self.boxes:
                return self.value(*self.boxes[value](tuple(at)), region)
            assert isinstance(lower, Pointwise), f"{record.op} is not computed on tiles"
            return self._pointwise(lower, record, value, at, region)
        finally:
            self.tile.span = outer

    def _broadcast(self, tile: SSAValue, axes: tuple[str, ...], region: TileRegion) -> SSAValue:
        if axes == region.axes:
            return tile
        return self.tile.broadcast(tile, region.sizes, [region.axes.index(axis) for axis in axes])

    def span_of(self, value: int) -> Span | None:
        """The location of a value in the user's program."""
        return self.makers[value].span if value in self.makers else None

    def load(self, value: int, at: IndexMap, region: TileRegion, **options: Any) -> SSAValue:
        """A tile of what is in memory, as it is or through views: a group may read it in another order."""
        while value not in self.buffers:
            ((value, at),) = operand_reads(self.body, self.makers[value], value, at)
        buffer = self.buffers[value]
        where = (linear(at, self.body.types[value].shape),) if self.flat else at
        return self.tile.load(buffer, where, region, **options)

    def _gather(self, lower: Gather, record: Record, value: int, at: IndexMap, region: TileRegion) -> SSAValue:
        (data, where), *others = operand_reads(self.body, record, value, at)
        indices = [self.value(operand, map, region) for operand, map in others]
        assert data in self.buffers, "what is gathered from is in memory"
        if lower.fill is not None:
            shape = self.body.types[data].shape
            windows = [part for axis in padded_axes(self.body, record) for part in (where[axis], shape[axis])]
            return self.load(data, where, region, windows=windows, pad=lower.fill(record.attributes))
        checked = record.attributes.get("checked")
        if checked is None and not record.attributes.get("masked"):
            return self.load(data, where, region, indices=indices)
        # A window masks an out-of-bounds index, which reads 0, or is reported before the kernel runs.
        types = [self.body.types[operand] for operand in record.operands]
        read = lower.maps(types, [self.body.types[result] for result in record.results], record.attributes)[0]
        pairs = zip(read, types[0].shape, strict=True)
        windows = [part for index, extent in pairs if _is_indexed(index) for part in (index, extent)]
        return self.load(data, where, region, indices=indices, windows=windows, checked=checked)

    def _pointwise(self, lower: Pointwise, record: Record, value: int, at: IndexMap, region: TileRegion) -> SSAValue:
        out = self.body.types[value]
        reads = operand_reads(self.body, record, value, at)
        tiles = [self.compute(operand, where, region) for operand, where in reads]
        made: Any = lower.block(PointBuilder(self.tile, region, tuple(at)), tiles, record.attributes, out)
        if isinstance(made, SSAValue):
            return self.tile.cast(cast("SSAValue", made), out.dtype)
        for result, tile in zip(record.results, made, strict=True):
            key = (result, at, region.axes, region.sizes)
            self._memory[-1][key] = self.tile.cast(tile, self.body.types[result].dtype)
        return self._memory[-1][(value, at, region.axes, region.sizes)]


def padded_axes(body: Tape, record: Record) -> list[int]:
    """The axes of what a gather reads along which some element may be outside."""
    types, outs = ([body.types[value] for value in values] for values in (record.operands, record.results))
    read = spec_of(record).lower.maps(types, outs, record.attributes)[0]
    sizes = {f"d{axis}": size for axis, size in enumerate(outs[0].shape)}
    return [axis for axis, size in enumerate(types[0].shape) if not _is_inside(read[axis], size, sizes)]


def _is_inside(index: Dim, size: Dim, sizes: Mapping[str, Dim]) -> bool:
    """Whether an index that is linear in coordinates of these sizes is known to be one of a dim."""
    lowest = highest = index
    for name in sizes.keys() & index.symbols:
        parts = index.coefficient(name)
        if parts is None or parts[0].value is None:
            return False
        ends = (0, sizes[name] - 1) if parts[0].value > 0 else (sizes[name] - 1, 0)
        lowest, highest = lowest.substitute({name: ends[0]}), highest.substitute({name: ends[1]})
    return is_at_least(lowest, 0) and is_at_least(size - highest, 1)


def _is_indexed(read: Dim) -> bool:
    """Whether an index is the value of an index operand, as `t0` is."""
    name = read.symbol_name or ""
    return name[:1] == "t" and name[1:].isdigit()


class Leaves:
    """What `Evaluator` would load, without emitting anything: addresses, and coordinates used as numbers."""

    def __init__(self, body: Tape, in_memory: Sequence[int]) -> None:
        self.body, self.in_memory = body, set(in_memory)
        self.makers = producers(body)
        self.addresses: list[Dim] = []
        self.reads: dict[int, int] = {}
        """How often each value in memory is read for one element."""
        self.numbers: list[Dim] = []
        self.stops: set[int] = set()
        self._seen: set[Any] = set()

    def visit(self, value: int, at: IndexMap) -> None:
        if value in self.stops or (value, at) in self._seen:
            return
        self._seen.add((value, at))
        types = self.body.types
        if value in self.in_memory:
            self.addresses.append(linear(at, types[value].shape))
            self.reads[value] = self.reads.get(value, 0) + 1
            return
        record = self.makers[value]
        lower = spec_of(record).lower
        for operand, where in operand_reads(self.body, record, value, at):
            self.visit(operand, where)
            if isinstance(lower, Gather) and lower.fill is not None:
                # They are compared with bounds one by one.
                self.numbers += [where[axis] for axis in padded_axes(self.body, record)]
        if isinstance(lower, Pointwise):
            lower.block(_Probe(self, at), [None] * len(record.operands), record.attributes, types[value])
        elif not isinstance(lower, View | Gather):
            for operand in record.operands:
                self.visit(operand, tuple(at))


class _Probe:
    """A `PointBuilder` that emits nothing, to learn which coordinates a block reads."""

    def __init__(self, leaves: Leaves, at: IndexMap) -> None:
        self._leaves, self._at = leaves, at

    def coordinate(self, axis: int) -> None:
        self._leaves.numbers.append(self._at[axis])

    def __getattr__(self, name: str) -> Any:
        def ignore(*tiles: Any, **options: Any) -> None:
            return None

        return ignore
