"""Evaluating a group's values on tiles: views become index maps, pointwise ops call their blocks.

Demand-driven: a kernel asks for a value at an index map and gets a tile; what that needs is loaded or computed on the
way. So any fusable set of ops becomes one kernel, and a value is computed exactly where, and as often as, it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from xdsl.ir import SSAValue

from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import find_spec
from tessera.ir.base.index_maps import IndexMap, broadcast_at, compose, linear
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.tile.facets import Gather, Pointwise, View
from tessera.ir.tile.language import Place, PointBuilder, TileBuilder
from tessera.types.dim import Dim


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

    A value is asked for at an index map (one expression per dim) and a place (which coordinates run along the tile).
    `ready` holds values that exist as tiles already, with the axes they have; `buffers` those in memory. Everything
    else is computed from its operands. What was asked for twice in one loop body is computed once.
    """

    def __init__(self, body: Tape, tile: TileBuilder, buffers: Mapping[int, SSAValue], flat: bool) -> None:
        self.body, self.tile, self.flat = body, tile, flat
        self.buffers = dict(buffers)
        self.ready: dict[int, tuple[SSAValue, tuple[str, ...]]] = {}
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

    def value(self, value: int, at: IndexMap, place: Place) -> SSAValue:
        """The tile of a value in its own dtype."""
        key = (value, at, place.axes, place.sizes)
        for memory in reversed(self._memory):
            if key in memory:
                return memory[key]
        found = self._make(value, at, place)
        self._memory[-1][key] = found
        return found

    def computed(self, value: int, at: IndexMap, place: Place) -> SSAValue:
        """The tile of a value in the dtype that arithmetic is done in."""
        return self.tile.cast(self.value(value, at, place), self.body.types[value].dtype.compute)

    def _make(self, value: int, at: IndexMap, place: Place) -> SSAValue:
        if value in self.ready:
            return self._broadcast(*self.ready[value], place)
        if value in self.buffers:
            return self.load(value, at, place)
        record = self.makers[value]
        lower = spec_of(record).lower
        outer, self.tile.span = self.tile.span, record.span
        try:
            if isinstance(lower, View):
                ((source, where),) = operand_reads(self.body, record, value, at)
                return self.value(source, where, place)
            if isinstance(lower, Gather):
                return self._gather(lower, record, value, at, place)
            assert isinstance(lower, Pointwise), f"{record.op} is not computed on tiles"
            return self._pointwise(lower, record, value, at, place)
        finally:
            self.tile.span = outer

    def _broadcast(self, tile: SSAValue, axes: tuple[str, ...], place: Place) -> SSAValue:
        if axes == place.axes:
            return tile
        return self.tile.broadcast(tile, place.sizes, [place.axes.index(axis) for axis in axes])

    def span_of(self, value: int) -> Span | None:
        """The location of a value in the user's program."""
        return self.makers[value].span if value in self.makers else None

    def load(self, value: int, at: IndexMap, place: Place, **options: Any) -> SSAValue:
        buffer = self.buffers[value]
        where = (linear(at, self.body.types[value].shape),) if self.flat else at
        return self.tile.load(buffer, where, place, **options)

    def _gather(self, lower: Gather, record: Record, value: int, at: IndexMap, place: Place) -> SSAValue:
        (data, where), *others = operand_reads(self.body, record, value, at)
        indices = [self.value(operand, map, place) for operand, map in others]
        assert data in self.buffers, "what is gathered from is in memory"
        checked = record.attributes.get("checked")
        if checked is None:
            return self.load(data, where, place, indices=indices)
        # Nothing is clamped: a window masks an out-of-bounds index, which is reported before the kernel runs.
        types = [self.body.types[operand] for operand in record.operands]
        read = lower.maps(types, [self.body.types[result] for result in record.results], record.attributes)[0]
        pairs = zip(read, types[0].shape, strict=True)
        windows = [part for index, extent in pairs if _is_indexed(index) for part in (index, extent)]
        return self.load(data, where, place, indices=indices, windows=windows, checked=checked)

    def _pointwise(self, lower: Pointwise, record: Record, value: int, at: IndexMap, place: Place) -> SSAValue:
        out = self.body.types[value]
        reads = operand_reads(self.body, record, value, at)
        tiles = [self.computed(operand, where, place) for operand, where in reads]
        made: Any = lower.block(PointBuilder(self.tile, place, tuple(at)), tiles, record.attributes, out)
        if isinstance(made, SSAValue):
            return self.tile.cast(cast("SSAValue", made), out.dtype)
        for result, tile in zip(record.results, made, strict=True):
            key = (result, at, place.axes, place.sizes)
            self._memory[-1][key] = self.tile.cast(tile, self.body.types[result].dtype)
        return self._memory[-1][(value, at, place.axes, place.sizes)]


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
            return
        record = self.makers[value]
        lower = spec_of(record).lower
        for operand, where in operand_reads(self.body, record, value, at):
            self.visit(operand, where)
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
