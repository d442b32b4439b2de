"""Loops over blocks: what a body changes is carried, types stay what they were, and masked steps are left out."""

from __future__ import annotations

import ast
from typing import Any

from tessera.frontend.kernel.pipelines import Ahead, CarriedSlots, Slot, begins_ahead
from tessera.frontend.kernel.source import assigned_names
from tessera.frontend.kernel.structure import Blocks
from tessera.frontend.kernel.tiles import Axis, Loop, Operand, Tile, number_of
from tessera.ir.tile.records import INDEX, Body, TileOp
from tessera.types.dim import Dim, maximum
from tessera.types.dim import minimum as smaller
from tessera.types.tensor_type import TensorType


def write_loop(evaluator: Any, node: ast.For, over: Blocks) -> None:
    """Write `for step in tile.range_...`: `evaluator` has the names, and evaluates the body once."""
    b, env = evaluator.b, evaluator.env
    if not isinstance(node.target, ast.Name):
        raise evaluator.refuse(node.target, "a loop over blocks gives one index", "write `for n in tile.range_n(...)`")
    carried = _Carried(evaluator, node, over)
    start = carried.start
    low, body, step = b.index(Dim.constant(0)), Body(), b.new(INDEX)
    coordinate = b.fresh(over.letter)
    inner = dict(env)
    for name, tile in start.items():
        inner[name] = Tile(b.new(tile.type), tile.type, tile.axes)
    inner[node.target.id] = Loop(coordinate, over.size, over.extent, is_whole=over.is_whole)
    body.arguments = (step, *(inner[name].number for name in start))
    b.coords[coordinate], b.runs[coordinate] = step, (over.extent, over.size)
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
    values: dict[str, Any] = {"step": over.size}
    if over.prefetch is not None:
        # What is read, and what is ahead of it.
        values.update(prefetch=over.prefetch, buffers=over.prefetch + 1)
    operands = (low, b.index(high), *(tile.number for tile in start.values()))
    b.add(TileOp("for", operands, values, tuple(results), b.span, body))
    for (name, tile), number in zip(start.items(), results, strict=True):
        env[name] = Tile(number, tile.type, _axes(tile, ends[name], coordinate))
    carried.after(b, env)


class _Carried:
    """What a loop changes: tiles that go from step to step, blocks that are a step ahead, and slots of pipelines."""

    def __init__(self, evaluator: Any, node: ast.For, over: Blocks) -> None:
        self.evaluator, self.node, self.over = evaluator, node, over
        assert isinstance(node.target, ast.Name)
        b, env, index = evaluator.b, evaluator.env, node.target.id
        changed = [name for name in assigned_names(node.body) if name in env and name != index]
        self.start: dict[str, Tile] = {}
        self.ahead: dict[str, Ahead] = {}
        for name in changed:
            value = env[name].materialized() if isinstance(env[name], Operand) else env[name]
            if isinstance(value, Tile) and begins_ahead(b, value, over):
                self.ahead[name] = _ahead(evaluator, node, name, value)
            elif isinstance(value, Tile):
                self.start[name] = _settled(b, value)
        self.others = {name: env[name] for name in changed if name not in self.start and name not in self.ahead}
        self.slots = CarriedSlots(env)

    def begin(self, b: Any, env: dict[str, Any], coordinate: str) -> None:
        """Load, at the start of the body, what the step before has asked for."""
        self.slots.begin(b, self.over, coordinate)
        env.update({name: block.inside(b, self.over, coordinate) for name, block in self.ahead.items()})

    def end(self, b: Any, coordinate: str) -> dict[str, Tile]:
        """The tiles that the body ends with; raises where what it changes cannot go on to the next step."""
        env = self.evaluator.env
        ends = {name: _ended(self.evaluator, self.node, name, tile) for name, tile in self.start.items()}
        self.slots.end(b, self.over, coordinate, env)
        for name, block in self.ahead.items():
            block.check(b, self.over, coordinate, env[name])
        _check_others(self.evaluator, self.node, self.others)
        return ends

    def after(self, b: Any, env: dict[str, Any]) -> None:
        """Names as they are after the loop; those of its body alone have no value any more."""
        from tessera.frontend.kernel.evaluate import GONE  # noqa: PLC0415 - which writes loops

        env.update({name: block.after(b, self.over) for name, block in self.ahead.items()})
        self.slots.after(b, self.over, env)
        assert isinstance(self.node.target, ast.Name)
        for name in (*assigned_names(self.node.body), self.node.target.id):
            env.setdefault(name, GONE)


def _ahead(evaluator: Any, node: ast.For, name: str, tile: Tile) -> Ahead:
    """A tile that was loaded before the loop for its first step."""
    if tile.origin is None:
        raise evaluator.refuse(
            node,
            f"`{name}` is computed from the first block of this loop, and means another block in each step",
            "carry the block as it was loaded, and compute in the loop",
        )
    return Ahead(tile, f"`{name}`")


def _settled(b: Any, tile: Tile) -> Tile:
    """A tile in its own shape."""
    if tile.spread is None:
        return tile
    return Tile(number_of(b, tile), TensorType.of(tile.shape, tile.dtype), tile.axes)


def _ended(evaluator: Any, node: ast.For, name: str, start: Tile) -> Tile:
    """What a name is at the end of the body, of the type it had before."""
    value = evaluator.env[name]
    value = value.materialized() if isinstance(value, Operand) else value
    if not isinstance(value, Tile):
        raise evaluator.refuse(node, f"`{name}` is a tile before this loop and {type(value).__name__} at its end")
    end = _settled(evaluator.b, value)
    if end.type != start.type:
        raise evaluator.b.misfit(
            f"`{name}` is {start.type} before this loop and {end.type} after a step of it",
            "rule: what a loop carries keeps its shape and dtype",
            fix=f"cast it at the end of the loop: `{name} = tile.cast({name}, {start.dtype})`"
            if end.shape == start.shape
            else "give it the shape it ends with before the loop",
        )
    return end


def _check_others(evaluator: Any, node: ast.For, others: dict[str, Any]) -> None:
    """Refuse what is no tile and differs from step to step: the body is written once for all of them."""
    for name, before in others.items():
        after = evaluator.env[name]
        if after is before or isinstance(before, Slot) or (isinstance(after, int | float | str) and after == before):
            continue
        raise evaluator.refuse(
            node,
            f"`{name}` is {before!r} before this loop and changes in it; a loop carries tiles alone",
            f"make `{name}` a tile, or compute it from the loop's index",
        )


def _axes(start: Tile, end: Tile, coordinate: str) -> tuple[Axis | None, ...]:
    """Where elements come from after the loop: whatever the body knows, except of the loop itself."""
    known = [None if axis is not None and axis.name == coordinate else axis for axis in end.axes]
    return tuple(after or before for before, after in zip(start.axes, known, strict=True))


def _high(b: Any, over: Blocks, coordinate: str, ends: dict[str, Tile]) -> Dim:
    """Where the loop ends: earlier than its dim where all later steps change nothing."""
    high = over.extent
    narrowed = {tile.narrow for tile in ends.values()}
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
