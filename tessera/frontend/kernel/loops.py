"""Loops over blocks: what a body changes is carried, types stay what they were, and masked steps are left out."""

from __future__ import annotations

import ast
from typing import Any

from tessera.frontend.kernel.source import assigned_names
from tessera.frontend.kernel.structure import Blocks, Slot
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
    changed = [name for name in assigned_names(node.body) if name in env and name != node.target.id]
    start: dict[str, Tile] = {}
    for name in changed:
        value = env[name].materialized() if isinstance(env[name], Operand) else env[name]
        if isinstance(value, Tile):
            start[name] = _settled(b, value)
    others = {name: env[name] for name in changed if name not in start}
    low, body, step = b.index(Dim.constant(0)), Body(), b.new(INDEX)
    coordinate = b.fresh(over.letter)
    inner = dict(env)
    for name, tile in start.items():
        inner[name] = Tile(b.new(tile.type), tile.type, tile.axes)
    inner[node.target.id] = Loop(coordinate, over.size, over.extent, is_whole=over.is_whole)
    body.arguments = (step, *(inner[name].number for name in start))
    b.coords[coordinate] = step
    stored, b.has_stores = b.has_stores, False
    evaluator.env = inner
    with b.inside(body, coordinate):
        evaluator.statements(node.body)
        b.span = evaluator.source.span(node)
        ends = {name: _ended(evaluator, node, name, start[name]) for name in start}
        body.results = tuple(number_of(b, tile) for tile in ends.values())
    _check_others(evaluator, node, others)
    evaluator.env = env
    high = _high(b, over, coordinate, ends)
    b.has_stores = stored or b.has_stores
    results = [b.new(tile.type) for tile in start.values()]
    values: dict[str, Any] = {"step": over.size}
    if over.prefetch:
        values["prefetch"] = over.prefetch
    operands = (low, b.index(high), *(tile.number for tile in start.values()))
    b.add(TileOp("for", operands, values, tuple(results), b.span, body))
    for (name, tile), number in zip(start.items(), results, strict=True):
        env[name] = Tile(number, tile.type, _axes(tile, ends[name], coordinate))
    from tessera.frontend.kernel.evaluate import GONE  # noqa: PLC0415 - which writes loops

    for name in assigned_names(node.body):
        env.setdefault(name, GONE)
    env.setdefault(node.target.id, GONE)


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
