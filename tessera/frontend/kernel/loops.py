"""Loops over blocks: ranges, the values a loop carries, and pipelines of buffers that are prefetched."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.extents import Axis, Loop, dim_of, roles_of
from tessera.frontend.kernel.indexing import DimAccess, Origin, TensorRef
from tessera.frontend.kernel.memory import load
from tessera.frontend.kernel.source import GONE, assigned_names
from tessera.frontend.kernel.tiles import Operand, Tile, number_of, unbroadcast
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.ir.tile.block_facts import Coordinate
from tessera.ir.tile.records import INDEX, Body, TileOp
from tessera.types.dim import Dim, maximum
from tessera.types.dim import minimum as smaller

# Pipelines of buffers. A kernel never writes what it reads, so a block that was loaded one iteration ago equals the
# block that would be loaded now. Therefore a loop carries no tiles for slots: it loads at the start of each iteration
# what the iteration before has asked for, and the compiler schedules the copy, its prefetch distance and the wait.


class Slot:
    """One buffer of a pipeline, and the tile in it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.tile: Tile | None = None
        self.is_prefetch = False
        """Whether it was filled for a later iteration, which may not come."""

    def next(self) -> Slot:
        """Advance to the next buffer; what was loaded before stays readable for `slot_count - 1` iterations."""
        return self.pipeline.advance()

    def load(self, x: Any, *positions: Any, **named: Any) -> None:
        """Start the copy of a tile into this slot: of this iteration, or with `k.next` of the next."""
        if self.tile is not None and self in self.pipeline.held:
            raise current().fail(
                "this slot is full and was not read", "call `slot.next()` before the next copy, or read it first"
            )
        self.is_prefetch = any(isinstance(one, Loop) and one.is_prefetch for one in (*positions, *named.values()))
        named.setdefault("stages", self.pipeline.slot_count)
        self.tile = load(x, *positions, **named)
        self.pipeline.held.append(self)

    def read(self) -> Tile:
        """The tile, after its copy has completed."""
        if self.tile is None:
            raise current().fail("this slot is read before it was filled", "call `slot.load(...)` first")
        if self in self.pipeline.held:
            self.pipeline.held.remove(self)
        return self.tile


class Pipeline:
    """Buffers that are prefetched: `with tile.pipeline(slot_count=2) as slot:`."""

    def __init__(self, slot_count: int) -> None:
        if not isinstance(slot_count, int) or slot_count not in (2, 3):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise current().fail(f"`slot_count` is 2 or 3, got {slot_count}")
        self.slot_count = slot_count
        self.slots = [Slot(self) for _ in range(slot_count)]
        self.held: list[Slot] = []
        self.at = 0
        self._is_open = False

    def __enter__(self) -> Slot:
        self._is_open = True
        return self.slots[0]

    def __exit__(self, kind: object, *_: object) -> None:
        self._is_open = False
        unread = [slot for slot in self.held if not slot.is_prefetch]
        if kind is None and unread:
            raise current().fail(f"{_slots(unread)} filled and never read", "read every slot that is loaded")

    def advance(self) -> Slot:
        """The next slot, empty or prefetched."""
        if not self._is_open:
            raise current().fail("a slot is used after the end of its pipeline")
        self.at = (self.at + 1) % self.slot_count
        slot = self.slots[self.at]
        if slot not in self.held:
            slot.tile = None
        return slot

    def distance(self, slot: Slot) -> int:
        """The distance of a slot from the current one, in buffers."""
        return (self.slots.index(slot) - self.at) % self.slot_count

    def slot(self, distance: int) -> Slot:
        return self.slots[(self.at + distance) % self.slot_count]


def pipeline(slot_count: int = 2) -> Pipeline:
    """A pipeline of 2 or 3 buffers; the compiler schedules the copies and the waits for them."""
    return Pipeline(slot_count)


def _slots(slots: Sequence[Slot]) -> str:
    return "a slot was" if len(slots) == 1 else f"{len(slots)} slots were"


class PrefetchedBlock:
    """A block that is loaded before a loop at `steps.first`, and in each iteration for the next."""

    def __init__(self, tile: Tile, what: str) -> None:
        self.tile, self.what = tile, what

    def inside(self, b: KernelBuilder, over: Any, coordinate: str) -> Tile:
        """The block of this iteration, loaded at its start."""
        return self._origin(b, over, coordinate, 0).load(b)

    def check(self, b: KernelBuilder, over: Any, coordinate: str, end: Any) -> None:
        """Raises where an iteration ends with another block than the next one."""
        wanted = self._origin(b, over, coordinate, over.size)
        found: Origin | None = end.origin if isinstance(end, Tile) else None
        if found is None or found.tensor is not wanted.tensor or found.entries != wanted.entries:
            raise b.fail(
                f"{self.what} is the first block before this loop, but not the next block at the end of an iteration",
                "load it at `k.next`, where `k` is the index of this loop",
            )

    def after(self, b: KernelBuilder, over: Any) -> Tile:
        """The block after the last iteration."""
        steps = maximum(0, over.extent.ceildiv(over.size))
        return self._origin(b, over, b.define_coordinate("_after", steps * over.size), 0).load(b)

    def _origin(self, b: KernelBuilder, over: Any, coordinate: str, by: int) -> Origin:
        """The load with the first blocks replaced by those of a coordinate, `by` elements further."""
        names = {
            name: b.offset_coordinate(coordinate, on + by)
            for name, (start, on) in {**b.offsets, **{one: (one, 0) for one in over.starts}}.items()
            if start in over.starts
        }
        origin: Origin = self.tile.origin
        return Origin(
            origin.tensor, tuple(_rename_symbols(entry, names) for entry in origin.entries), origin.values, origin.dtype
        )


def _rename_symbols(entry: DimAccess, names: Mapping[str, str]) -> DimAccess:
    expr = entry.expr.substitute({old: Dim.symbol(new) for old, new in names.items()})
    if entry.axis is None:
        return DimAccess(expr, extent=entry.extent)
    axis = Axis(names.get(entry.axis.name, entry.axis.name), entry.axis.bound, entry.axis.dim)
    return DimAccess(expr, axis, entry.size, extent=entry.extent)


def is_first_block(b: KernelBuilder, tile: Tile, over: Any) -> bool:
    """Whether a tile is a first block of a loop, and so another block in each iteration."""
    names = {axis.name for axis in tile.axes if axis is not None}
    return any(b.offsets.get(name, (name, 0))[0] in over.starts for name in names)


class CarriedSlots:
    """The slots that are full when a loop starts: each iteration fills them for the next."""

    def __init__(self, env: Mapping[str, Any]) -> None:
        self.names = {name: value for name, value in env.items() if isinstance(value, Slot)}
        self.pipelines = list(dict.fromkeys(slot.pipeline for slot in self.names.values()))
        self.distances = {name: slot.pipeline.distance(slot) for name, slot in self.names.items()}
        self.held = {pipeline: {pipeline.distance(slot) for slot in pipeline.held} for pipeline in self.pipelines}
        self.filled: list[tuple[Pipeline, int, PrefetchedBlock]] = []
        for pipeline in self.pipelines:
            for slot in pipeline.held:
                assert slot.tile is not None
                self.filled.append((pipeline, pipeline.distance(slot), PrefetchedBlock(slot.tile, "a filled slot")))

    def begin(self, b: KernelBuilder, over: Any, coordinate: str) -> None:
        """Load them at the start of the body."""
        for pipeline in self.pipelines:
            for slot in pipeline.slots:
                slot.tile = None if slot not in pipeline.held else slot.tile
        # A slot that holds no block of this loop keeps its tile until it is read after the loop.
        self.filled = [entry for entry in self.filled if is_first_block(b, entry[2].tile, over)]
        for pipeline, distance, block in self.filled:
            pipeline.slot(distance).tile = block.inside(b, over, coordinate)

    def end(self, b: KernelBuilder, over: Any, coordinate: str, env: Mapping[str, Any]) -> None:
        """Raises unless an iteration ends with the same slots full, one block further."""
        for pipeline, before in self.held.items():
            now = {pipeline.distance(slot) for slot in pipeline.held}
            if before != now:
                raise b.fail(
                    f"an iteration of this loop starts with {len(before)} full slots, and ends with {len(now)}",
                    "fill before the loop what each iteration fills for the next: "
                    "`steps = tile.range_k(...)`, and load at `steps.first`",
                )
        for pipeline, distance, block in self.filled:
            block.check(b, over, coordinate, pipeline.slot(distance).tile)
        for name, distance in self.distances.items():
            slot = env.get(name)
            if not isinstance(slot, Slot) or slot.pipeline.distance(slot) != distance:
                raise b.fail(
                    f"`{name}` is another slot of its pipeline after an iteration than before it",
                    f"write `{name} = {name}.next()` once for each copy of an iteration",
                )

    def after(self, b: KernelBuilder, over: Any, env: dict[str, Any]) -> None:
        """Load them after the loop."""
        for pipeline, distance, block in self.filled:
            pipeline.slot(distance).tile = block.after(b, over)
        for name, distance in self.distances.items():
            env[name] = self.names[name].pipeline.slot(distance)


class Blocks:
    """A loop over blocks of a dim: the front end emits one loop op, the interpreter iterates.

    `is_whole` where it is a dim of a tensor, not an extent that the kernel computed.
    """

    def __init__(self, extent: Dim, size: int, letter: str, prefetch: int | None, *, is_whole: bool) -> None:
        self.extent, self.size, self.letter, self.prefetch = extent, int(size), letter, prefetch
        self.is_whole, self.role = is_whole, ",".join(sorted(roles_of(size)))
        self.starts: list[str] = []
        """The coordinates of first blocks, used before the loop."""

    @property
    def first(self) -> Loop:
        """The first block, for loads before the loop; `first.next` is the one after it."""
        name = current().define_coordinate("_first", Dim.constant(0))
        self.starts.append(name)
        return Loop(name, self.size, self.extent, is_whole=self.is_whole, is_prefetch=True)

    def __iter__(self) -> Iterator[Loop]:
        return current().steps(self)


def range_n(shape: Any, size: Any, *, prefetch: int | None = None) -> Blocks:
    """Blocks of `size` along the rows of a shape, or along a single size.

    `prefetch` is how many blocks to prefetch, on machines with asynchronous copies: 0 for none; by default the
    compiler chooses. It never changes a result.
    """
    return _blocks(shape, -2, size, "_j", prefetch)


def range_k(shape: Any, size: Any, *, prefetch: int | None = None) -> Blocks:
    """Blocks of `size` along the columns of a shape, or along a single size."""
    return _blocks(shape, -1, size, "_k", prefetch)


def range_m(shape: Any, size: Any, *, prefetch: int | None = None) -> Blocks:
    """Blocks of `size` along the rows of a shape, or along a single size."""
    return _blocks(shape, -2, size, "_i", prefetch)


def steps(extent: Any, by: Any, *, prefetch: int | None = None) -> Blocks:
    """Steps of `by` along a size."""
    return _blocks(extent, -1, by, "_k", prefetch)


def _blocks(shape: Any, axis: int, size: Any, letter: str, prefetch: int | None) -> Blocks:
    b = current()
    given: Any = shape
    if isinstance(shape, TensorRef):
        given = shape.shape
    is_shape = is_sequence(given)
    if is_shape:
        dims = as_tuple(given)
        given = dims[axis] if len(dims) >= -axis else dims[-1]
    extent = dim_of(given)
    if extent is None:
        raise b.fail(f"a loop takes a shape or a size, got {type(shape).__name__}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise b.fail(f"the step of a loop is a positive integer, got {size!r}", "write `T.n`, or a number")
    if prefetch is not None and (not isinstance(prefetch, int) or not 0 <= prefetch <= 8):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise b.fail(f"`prefetch` is 0..8 blocks, got {prefetch}")
    return Blocks(extent, size, letter, prefetch, is_whole=is_shape or extent.symbol_name is not None)


def write_loop(evaluator: Any, node: ast.For, over: Blocks) -> None:
    """Emit `for step in tile.range_...`: `evaluator` has the variables, and evaluates the body once."""
    b, env = evaluator.b, evaluator.env
    if not isinstance(node.target, ast.Name):
        raise evaluator.refuse(node.target, "a loop over blocks has one index", "write `for n in tile.range_n(...)`")
    carried = _Carried(evaluator, node, over)
    start = carried.start
    low, body, step = b.index(Dim.constant(0)), Body(), b.new(INDEX)
    coordinate = b.fresh_name(over.letter)
    inner = dict(env)
    for name, tile in start.items():
        inner[name] = Tile(b.new(tile.type), tile.type, tile.axes)
    inner[node.target.id] = Loop(coordinate, over.size, over.extent, is_whole=over.is_whole)
    body.arguments = (step, *(inner[name].number for name in start))
    b.coords[coordinate], b.loop_extents[coordinate] = step, (over.extent, over.size)
    b.blocks.loops[step] = over.extent
    if over.role and (over.extent.value is None or over.extent.value > over.size):
        b.blocks.starts[step] = Coordinate(f"%{coordinate}", over.role, over.size, over.extent, is_loop=True)
    stored, b.has_stores = b.has_stores, False
    evaluator.env = inner
    with b.inside(body, coordinate):
        carried.begin(b, inner, coordinate)
        evaluator.statements(node.body)
        b.span = evaluator.source.span(node)
        ends = carried.end(b, coordinate)
        body.results = tuple(number_of(b, tile) for tile in ends.values())
    evaluator.env = env
    high = _high(b, over, coordinate, ends)
    b.has_stores = stored or b.has_stores
    results = [b.new(tile.type) for tile in start.values()]
    values: dict[str, Any] = {"step": over.size, **({"block": over.role} if over.role else {})}
    if over.prefetch is not None:
        # The block being read, and those being prefetched.
        values.update(prefetch=over.prefetch, buffers=over.prefetch + 1)
    operands = (low, b.index(high), *(tile.number for tile in start.values()))
    b.add(TileOp("for", operands, values, tuple(results), b.span, body))
    for (name, tile), number in zip(start.items(), results, strict=True):
        env[name] = Tile(number, tile.type, _axes(tile, ends[name], coordinate))
    carried.after(b, env)


class _Carried:
    """What a loop carries: tiles, prefetched blocks, and slots of pipelines."""

    def __init__(self, evaluator: Any, node: ast.For, over: Blocks) -> None:
        self.evaluator, self.node, self.over = evaluator, node, over
        assert isinstance(node.target, ast.Name)
        b, env, index = evaluator.b, evaluator.env, node.target.id
        changed = [name for name in assigned_names(node.body) if name in env and name != index]
        self.start: dict[str, Tile] = {}
        self.prefetched: dict[str, PrefetchedBlock] = {}
        for name in changed:
            value = env[name].materialize() if isinstance(env[name], Operand) else env[name]
            if isinstance(value, Tile) and is_first_block(b, value, over):
                self.prefetched[name] = _prefetched_block(evaluator, node, name, value)
            elif isinstance(value, Tile):
                self.start[name] = unbroadcast(b, value)
        self.others = {name: env[name] for name in changed if name not in self.start and name not in self.prefetched}
        self.slots = CarriedSlots(env)

    def begin(self, b: Any, env: dict[str, Any], coordinate: str) -> None:
        """Load, at the start of the body, the blocks that were prefetched for this iteration."""
        self.slots.begin(b, self.over, coordinate)
        env.update({name: block.inside(b, self.over, coordinate) for name, block in self.prefetched.items()})

    def end(self, b: Any, coordinate: str) -> dict[str, Tile]:
        """The carried tiles at the end of the body; raises for a change that a loop cannot carry."""
        env = self.evaluator.env
        ends = {name: _end_tile(self.evaluator, self.node, name, tile) for name, tile in self.start.items()}
        self.slots.end(b, self.over, coordinate, env)
        for name, block in self.prefetched.items():
            block.check(b, self.over, coordinate, env[name])
        _check_others(self.evaluator, self.node, self.others)
        return ends

    def after(self, b: Any, env: dict[str, Any]) -> None:
        """Bind the names after the loop; those assigned in its body only are gone."""
        env.update({name: block.after(b, self.over) for name, block in self.prefetched.items()})
        self.slots.after(b, self.over, env)
        assert isinstance(self.node.target, ast.Name)
        for name in (*assigned_names(self.node.body), self.node.target.id):
            env.setdefault(name, GONE)


def _prefetched_block(evaluator: Any, node: ast.For, name: str, tile: Tile) -> PrefetchedBlock:
    """A tile that was loaded before the loop for its first iteration."""
    if tile.origin is None:
        raise evaluator.refuse(
            node,
            f"`{name}` is computed from the first block of this loop, and would be another block in each iteration",
            "carry the block as it was loaded, and compute in the loop",
        )
    return PrefetchedBlock(tile, f"`{name}`")


def _end_tile(evaluator: Any, node: ast.For, name: str, start: Tile) -> Tile:
    """The tile of a name at the end of the body; raises where its type changed."""
    value = evaluator.env[name]
    value = value.materialize() if isinstance(value, Operand) else value
    if not isinstance(value, Tile):
        raise evaluator.refuse(node, f"`{name}` is a tile before this loop and {type(value).__name__} at its end")
    end = unbroadcast(evaluator.b, value)
    if end.type != start.type:
        raise evaluator.b.misfit(
            f"`{name}` is {start.type} before this loop and {end.type} after an iteration",
            "rule: what a loop carries keeps its shape and dtype",
            fix=f"cast it at the end of the loop: `{name} = tile.cast({name}, {start.dtype})`"
            if end.shape == start.shape
            else "give it the shape it ends with before the loop",
        )
    return end


def _check_others(evaluator: Any, node: ast.For, others: dict[str, Any]) -> None:
    """Raise for a non-tile that changes in the loop: its body is evaluated once for all iterations."""
    for name, before in others.items():
        after = evaluator.env[name]
        if after is before or isinstance(before, Slot) or (isinstance(after, int | float | str) and after == before):
            continue
        raise evaluator.refuse(
            node,
            f"`{name}` is {before!r} before this loop and changes in it; a loop carries tiles only",
            f"make `{name}` a tile, or compute it from the loop's index",
        )


def _axes(start: Tile, end: Tile, coordinate: str) -> tuple[Axis | None, ...]:
    """The axes of a carried tile after the loop: those at the end of the body, except the loop's own."""
    known = [None if axis is not None and axis.name == coordinate else axis for axis in end.axes]
    return tuple(after or before for before, after in zip(start.axes, known, strict=True))


def _high(b: Any, over: Blocks, coordinate: str, ends: dict[str, Tile]) -> Dim:
    """The upper bound of the loop: less than its dim where later iterations change nothing."""
    high = over.extent
    narrowed = {tile.loop_end for tile in ends.values()}
    if ends and len(narrowed) == 1 and not b.has_stores:
        (found,) = narrowed
        if found is not None and found[0] == coordinate:
            high = found[1]
    if b.schedule.triangular is not None and {"_m", "_n"} <= b.axes.keys():
        rows, columns = b.axes["_m"], b.axes["_n"]
        m, n = Dim.symbol("_m"), Dim.symbol("_n")
        is_lower = b.schedule.triangular == "lower"
        distance = m + rows.size - n if is_lower else n + columns.size - m
        high = high * smaller(1, maximum(0, distance))
    return high
