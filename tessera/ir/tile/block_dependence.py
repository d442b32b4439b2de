"""Find the results of a kernel that depend on the size of its blocks: loops over all blocks, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tessera.ir.tile.block_facts import (
    COMBINES,
    IDEMPOTENT,
    KINDS,
    TRIP,
    Coordinate,
    Fact,
    Lanes,
    Origin,
    Partial,
    State,
    add_terms,
    coordinates_of,
    is_identity,
)
from tessera.ir.tile.block_tiles import Dependence, TileFacts, strongest
from tessera.ir.tile.records import Body, TileOp
from tessera.types.dim import Dim


class BlockDependence(TileFacts):
    """The facts of a whole kernel, loops included."""

    def accumulate(
        self, op: TileOp, fn: str, facts: Sequence[Fact], numbers: Sequence[int], axes: tuple[Origin, ...]
    ) -> Fact | None:
        """A carried value that is scaled by a weight, or combined with something; None where it is used otherwise."""
        if fn == "fma" and facts[2].state is None:
            product = self.combine(op, "mul", facts[:2], numbers[:2])
            return self.accumulate(op, "add", [product, facts[2]], [op.results[0], numbers[2]], axes)
        if fn == "fma":
            product = self.combine(op, "mul", facts[:2], numbers[:2])
            return self.accumulate(op, "add", [facts[2], product], [numbers[2], op.results[0]], axes)
        if len(facts) != 2:
            return None
        carried, other = facts if facts[0].state is not None else (facts[1], facts[0])
        state = carried.state
        assert state is not None
        is_weight = bool(other.weight) and other.is_exact and not other.shift and not other.partial
        if fn in ("mul", "div") and is_weight and (fn == "mul" or carried is facts[0]):
            factor = -1.0 if fn == "div" else 1.0
            addend = state.addend and replace(state.addend, weight=add_terms(state.addend.weight, other.weight, factor))
            scale = add_terms(state.scale, other.weight, factor)
            return replace(carried, axes=axes, state=replace(state, scale=scale, addend=addend, is_chain=False))
        kind = KINDS.get(fn, "")
        if fn == "sub" and carried is facts[0]:
            kind = "sum"
        along = any(state.loop in coordinates_of(axis, self.known) for axis in other.axes)
        is_counted = along or state.loop in other.obligations or kind in IDEMPOTENT
        is_counted = is_counted or self.known[state.loop].role in other.marked
        if not kind or state.kind not in ("", kind) or other.state is not None or other.shift or not is_counted:
            return None
        addend = other if state.addend is None else self.combine(op, COMBINES[kind], [state.addend, other], numbers)
        made = State(state.loop, state.index, kind, state.scale, addend, is_chain=False)
        joined = self.plain(facts, axes)
        return replace(joined, state=made, symbol_axes=frozenset())

    def _do_for(self, op: TileOp) -> None:
        assert op.body is not None
        step = op.body.arguments[0]
        coordinate = self.starts.get(step)
        self.index[step] = Dim.symbol(f"%i{step}" if coordinate is None else coordinate.name)
        ends = self._fixed_loop(op, op.body) if coordinate is None else self._block_loop(op, op.body, coordinate)
        trips = frozenset[str]().union(*(self.index[value].symbols & self.known.keys() for value in op.operands[:2]))
        for number, fact in zip(op.results, ends, strict=True):
            missing = trips - fact.masks - fact.obligations.keys()
            found = fact.obligations | {name: Partial(TRIP, op) for name in missing}
            self.facts[number] = fact.with_obligations(found)

    def _fixed_loop(self, op: TileOp, body: Body) -> list[Fact]:
        """A loop whose step is no block of the schedule: what it carries is joined until nothing changes."""
        carried = [self.facts[value] for value in op.operands[2:]]
        for _ in range(4):
            self.facts.update(zip(body.arguments[1:], carried, strict=True))
            self.run(body)
            ends = [self.join(op, one, self.facts[end]) for one, end in zip(carried, body.results, strict=True)]
            if ends == carried:
                break
            carried = ends
        return carried

    def join(self, op: TileOp, first: Fact, second: Fact) -> Fact:
        """What holds of a value that is one of two."""
        for one, other in ((first, second), (second, first)):
            kinds = {partial.kind for _, partial in other.partial}
            if one.number is not None and all(is_identity(one.number, kind) for kind in kinds) and other.state is None:
                axes = tuple(strongest(origins) for origins in zip(one.axes, other.axes, strict=True))
                return replace(other, axes=axes, number=one.number if other.number == one.number else None)
        axes, strays = self.join_axes([first.axes, second.axes])
        is_same = (first.shift, first.weight, first.state) == (second.shift, second.weight, second.state)
        kinds = [{name: one.kind for name, one in fact.partial} for fact in (first, second)]
        if strays or not is_same or kinds[0] != kinds[1]:
            return self.opaque([first, second], op, axes, strays)
        return replace(
            self.plain([first, second], axes),
            shift=first.shift,
            weight=first.weight,
            state=first.state,
            partial=first.partial,
            is_exact=first.is_exact and second.is_exact,
        )

    def _block_loop(self, op: TileOp, body: Body, coordinate: Coordinate) -> list[Fact]:
        """A loop over the blocks of a coordinate: partial results that it accumulates are then of all blocks."""
        starts = [self.facts[value] for value in op.operands[2:]]
        for index, (number, start) in enumerate(zip(body.arguments[1:], starts, strict=True)):
            self.facts[number] = replace(
                start, number=None, partial=(), shift=(), weight=(), is_exact=False, state=State(coordinate.name, index)
            )
        self.run(body)
        old = [self.roots.get(value, value) for value in body.arguments[1:]]
        new = [self.roots.get(value, value) for value in body.results]
        finish = _Finish(self, op, coordinate, dict(zip(new, old, strict=True)))
        ends = [finish.of(index, start, self.facts[body.results[index]]) for index, start in enumerate(starts)]
        # A running maximum that ends free of blocks takes its weight with it.
        left = {symbol for symbol, end in zip(new, ends, strict=True) if end is None or not end.is_free}
        total: list[Fact] = []
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            if end is not None and end.weight and not left.intersection(symbol for symbol, _ in end.weight):
                end = replace(end, weight=(), symbol_axes=frozenset())
            total.append(finish.total(index, start, end, self.facts[body.results[index]]))
        return total


class _Finish:
    """The end of a loop over blocks; `before` names the carried value of each of its results as a symbol."""

    def __init__(self, walk: BlockDependence, op: TileOp, coordinate: Coordinate, before: Mapping[int, int]) -> None:
        self.walk, self.op, self.coordinate, self.before = walk, op, coordinate, before

    def of(self, index: int, start: Fact, end: Fact) -> Fact | None:
        """What the loop adds to a carried value over all blocks; None where it is no accumulation."""
        state, name = end.state, self.coordinate.name
        if state is None or (state.loop, state.index) != (name, index):
            return None
        addend = state.addend
        if addend is None or addend.shift or addend.state is not None:
            return None
        # With W the weight of the carried value: it was scaled from W of the old symbols to W of the new ones.
        if any(symbol not in self.before for symbol, _ in addend.weight):
            return None
        before = tuple((self.before[symbol], value) for symbol, value in addend.weight)
        if add_terms(before, state.scale) != addend.weight:
            return None
        found = addend.obligations
        mine = found.pop(name, None)
        along = any(name in coordinates_of(axis, self.walk.known) for axis in addend.axes)
        is_fixed = self.coordinate.role in addend.marked
        if mine is None and not along and not is_fixed and state.kind not in IDEMPOTENT:
            return None
        if mine is not None and (mine.kind != state.kind or along):
            return None
        if any(one.kind != state.kind for one in found.values()):
            return None
        axes = tuple(
            Lanes(name, state.kind) if name in coordinates_of(axis, self.walk.known) else axis for axis in addend.axes
        )
        self._pin(index, state, addend)
        kept = replace(addend, axes=axes, seen=addend.seen - {name}, is_exact=False, number=None)
        return kept.with_obligations(found)

    def _pin(self, index: int, state: State, addend: Fact) -> None:
        """The bits of float sums depend on where blocks end, but for one chain of multiply-adds."""
        type = self.walk.types[self.op.results[index]]
        is_exact = not type.dtype.is_float or state.kind in IDEMPOTENT or (state.is_chain and not addend.weight)
        if not is_exact and self.coordinate.role:
            self.walk.pinned[self.coordinate.role] = None

    def total(self, index: int, start: Fact, added: Fact | None, end: Fact) -> Fact:
        """The carried value after the loop."""
        walk, op, state = self.walk, self.op, end.state
        number = op.results[index]
        if added is not None and state is not None:
            if is_identity(start.number, state.kind):
                return replace(added, axes=tuple(map(_first, start.axes, added.axes)))
            return walk.combine(op, COMBINES[state.kind], [start, added], [op.operands[2 + index], number])
        is_unchanged = state is not None and not state.kind and not state.scale
        if is_unchanged:
            return start
        name = self.coordinate.name
        along = any(name in coordinates_of(axis, walk.known) for axis in end.axes)
        depends = walk.depends([end])
        is_marked = self.coordinate.role in end.marked and name not in depends
        if state is None and not along and (is_marked or name not in end.seen | depends):
            return walk.join(op, start, end)
        axes = tuple(None if name in coordinates_of(axis, walk.known) else axis for axis in end.axes)
        made = walk.opaque([start, end], op, axes, frozenset([name]))
        return replace(made, seen=made.seen - {name})


def _first(start: Origin, added: Origin) -> Origin:
    return added if added is not None else start


RULE = "rule: a schedule says how a kernel runs, and never changes its results"
FIX = (
    "load the whole dim in one tile, with `T.d` or `:`, or accumulate over its blocks in a loop such as "
    '`for k in tile.range_k(x, T.k)`; `scope="block"` or `tile.per_block` computes on each block, whose size it fixes'
)


def describe_dependence(found: Dependence) -> str:
    """The sentence that says what depends on which block, with the numbers."""
    block = _block(found.coordinate)
    cause = found.cause or found.store
    if found.kind == "program":
        return f"each program adds to the result once, and how many there are depends on {block}"
    if found.kind == TRIP:
        return f"a loop ends by {block}, and no mask makes its last iterations count for nothing"
    if cause.name in ("reduce", "arg_reduce"):
        return f"`{cause.values['kind']}` is of {block} alone, and the result depends on its size"
    if cause.name == "dot":
        return f"`dot` contracts {block} alone, and the result depends on its size"
    if cause.name == "for":
        return f"a loop carries what depends on {block}, and is no accumulation over all of them"
    if cause.name in ("load", "store", "coordinate"):
        return f"this uses {block} as a whole, and the result depends on its size"
    return f"`{cause.values.get('fn', cause.name)}` uses {block} as a whole, and the result depends on its size"


def _block(coordinate: Coordinate) -> str:
    extent = "" if coordinate.extent is None else f" of {coordinate.extent}"
    role = f" (`{coordinate.role}`)" if coordinate.role else ""
    return f"one block of {coordinate.size}{extent} elements{role}"
