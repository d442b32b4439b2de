"""What each op of a kernel makes of facts on blocks: indices, memory, tiles and stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from tessera.ir.tile.block_facts import (
    COMBINES,
    IDEMPOTENT,
    OTHER,
    TRIP,
    Coordinate,
    Fact,
    Lanes,
    Origin,
    Partial,
    Sized,
    combine_symbols,
    combined_kind,
    coordinates_of,
    is_identity,
    keeps_exact,
    split_coordinates,
)
from tessera.ir.tile.records import Body, Memory, TileOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

_SYMBOLIC = ("add", "sub", "neg", "mul", "div", "exp", "exp2", "fma")
"""Functions of which values that depend on blocks may be operands as symbols."""
_ACCUMULATED = {"atomic_add": "sum", "add": "sum", "atomic_max": "max", "atomic_min": "min"}


@frozen
class Dependence:
    """A stored value that depends on the blocks of a coordinate: what makes it so, and where it is stored."""

    coordinate: Coordinate
    kind: str
    cause: TileOp | None
    store: TileOp


class TileFacts(ABC):
    """Walks over a kernel once: `found` is what depends on blocks.

    `coordinates` are the values that blocks start at, by number; `sized` the constants whose axes are as long as a
    block. `pinned` are the blocks that bits depend on, `marked` those that the author fixed.
    """

    def __init__(
        self,
        types: Sequence[Any],
        coordinates: Mapping[int, Coordinate],
        sized: Mapping[int, tuple[str, ...]] | None = None,
    ) -> None:
        self.types, self.starts, self.sized = types, coordinates, sized or {}
        self.known = {coordinate.name: coordinate for coordinate in coordinates.values()}
        for number, roles in self.sized.items():
            for role, size in zip(roles, types[number].shape, strict=True):
                self.known[_size_name(role)] = Coordinate(_size_name(role), role, size.value or 0, None, is_loop=True)
        self.index: dict[int, Dim] = {}
        self.facts: dict[int, Fact] = {}
        self.memory: dict[int, Fact] = {}
        self.roots: dict[int, int] = {}
        self.symbols: dict[int, frozenset[str]] = {}
        self.makers: dict[int, TileOp] = {}
        self.found: list[Dependence] = []
        self.pinned: dict[str, None] = {}
        self.marked: dict[str, None] = {}
        self._same: dict[Any, int] = {}

    def run(self, body: Body) -> None:
        for op in body.ops:
            if op.name != "barrier":
                getattr(self, f"_do_{op.name}", self._do_other)(op)
            self.makers.update(dict.fromkeys(op.results, op))
            if len(op.results) == 1 and op.body is None and op.results[0] in self.facts:
                self._intern(op)

    def _intern(self, op: TileOp) -> None:
        """One number for values that are the same for all blocks' sake: repeated ops, and broadcasts of a value."""
        operands = tuple(self.roots.get(operand, operand) for operand in op.operands)
        if op.name == "broadcast":
            self.roots[op.results[0]] = operands[0]
        elif op.name not in ("load", "scratch"):
            key = (op.name, operands, repr(sorted(op.values.items())))
            self.roots[op.results[0]] = self._same.setdefault(key, op.results[0])

    # Indices and memory.

    def _do_program_id(self, op: TileOp) -> None:
        self.index[op.results[0]] = self._start(op.results[0], Dim.symbol(f"%p{op.values['axis']}"))

    def _do_index(self, op: TileOp) -> None:
        names = dict(zip(op.values["names"], (self.index[value] for value in op.operands), strict=True))
        self.index[op.results[0]] = self._start(op.results[0], op.values["expr"].substitute(names))

    def _do_fetch(self, op: TileOp) -> None:
        names = dict(zip(op.values["coords"], (self.index[value] for value in op.operands[1:]), strict=True))
        used = frozenset[str]().union(*(expr.substitute(names).symbols for expr in op.values["map"]))
        # Depends on the blocks that its own index depends on, in no way that is known.
        total = Dim.symbol(f"%f{op.results[0]}")
        for name in sorted(used & self.known.keys()):
            total = total + Dim.symbol(name)
        self.index[op.results[0]] = total

    def _start(self, number: int, expr: Dim) -> Dim:
        found = self.starts.get(number)
        return expr if found is None else Dim.symbol(found.name)

    def _do_scratch(self, op: TileOp) -> None:
        memory = self.types[op.results[0]]
        rank = memory.type.rank if isinstance(memory, Memory) else 0
        self.memory[op.results[0]] = Fact(axes=(None,) * rank)

    def _do_sort(self, op: TileOp) -> None:
        for number in op.operands[:4]:
            found = self.memory.get(number, Fact())
            names = frozenset[str]().union(*(coordinates_of(axis, self.known) for axis in found.axes))
            self.memory[number] = self.opaque([found], op, (None,) * len(found.axes), names)

    def _access(self, op: TileOp, first: int) -> tuple[Fact, dict[str, Dim]]:
        """What the indices of an access depend on, with the origins of its axes; and its maps, axes kept by name."""
        values, names = op.values, op.values["coords"]
        starts = dict(zip(names, (self.index[value] for value in op.operands[first : first + len(names)]), strict=True))
        tiles = [self.facts[value] for value in op.operands[first + len(names) :]]
        inner = {name: start for name, start in starts.items() if name not in values["axes"]}
        exprs = [*values.get("map", ()), *values.get("bounds", ()), *values.get("windows", ())]
        exprs += [values[name] for name in ("expr", "bound") if name in values]
        raw, grouped = frozenset[str](), frozenset[str]()
        for expr in exprs:
            parts = split_coordinates(expr.substitute(inner), self.known)
            raw, grouped = raw | parts[0], grouped | parts[1]
        axes = tuple(starts[name] for name in values["axes"])
        seen = grouped.union(*(coordinates_of(axis, self.known) for axis in axes), *(tile.seen for tile in tiles))
        if any(not tile.is_free for tile in tiles):
            raw = raw | self.depends(tiles)
        fact = Fact(axes=axes, seen=seen).with_obligations({name: Partial(OTHER, op) for name in raw})
        return fact, inner

    def _do_load(self, op: TileOp) -> None:
        fact, inner = self._access(op, 1)
        held = self.memory.get(op.operands[0])
        if held is not None:
            fact = self._from_memory(op, fact, held, inner)
        self.facts[op.results[0]] = fact

    def _from_memory(self, op: TileOp, fact: Fact, held: Fact, inner: Mapping[str, Dim]) -> Fact:
        """A tile of scratch: its axes are those that were stored, and one element of an axis depends on its block."""
        names = op.values["axes"]
        axes: list[Origin] = [None] * len(names)
        raw = fact.obligations | held.obligations
        for expr, origin in zip(op.values["map"], held.axes, strict=True):
            along = [name for name in names if name in expr.symbols]
            if len(along) == 1 and expr == Dim.symbol(along[0]):
                axes[names.index(along[0])] = origin
            else:
                raw |= {name: Partial(OTHER, op) for name in coordinates_of(origin, self.known)}
        return replace(fact, axes=tuple(axes), seen=fact.seen | held.seen).with_obligations(raw)

    def _do_store(self, op: TileOp) -> None:
        value, access = self.facts[op.operands[0]], self._access(op, 2)[0]
        held = self.memory.get(op.operands[1])
        if held is None:
            self._sink(op, value, access)
            return
        names = op.values["axes"]
        axes = list(held.axes)
        for dim, expr in enumerate(op.values["map"]):
            along = [name for name in names if expr == Dim.symbol(name)]
            if along and value.axes[names.index(along[0])] is not None:
                axes[dim] = value.axes[names.index(along[0])]
        found = held.obligations | access.obligations
        found |= {name: Partial(OTHER, op) for name in self.depends([value]) - access.obligations.keys()}
        self.memory[op.operands[1]] = replace(held, axes=tuple(axes), seen=held.seen | value.seen).with_obligations(
            found
        )

    def _sink(self, op: TileOp, value: Fact, access: Fact) -> None:
        """What is stored outside: its dependences are found, but for partial results that an atomic accumulates."""
        # What comes by a symbol, such as a shift by a block's own sum, no atomic makes good.
        symbolic = self.depends([value.with_obligations({})])
        found = {name: one.kind for name, one in value.partial} | dict.fromkeys(symbolic, OTHER)
        kind = _ACCUMULATED.get(op.values.get("mode", "set"), "")
        causes = {name: one.op for name, one in value.partial}
        found = {name: how for name, how in found.items() if not (kind and how == kind)}
        for origin, place in zip(value.axes, access.axes, strict=True):
            for name in self._find_strays([origin, place]):
                found.setdefault(name, OTHER)
        for name, one in access.partial:
            if self.known[name].role not in value.marked:
                found.setdefault(name, OTHER)
                causes.setdefault(name, one.op)
        if kind == "sum":
            partial = value.obligations.keys() | value.seen | access.seen
            lacking = [one.name for one in self.known.values() if not one.is_loop and one.name not in partial]
            found |= {name: "program" for name in lacking if name not in found}
        for name, how in found.items():
            self.found.append(Dependence(self.known[name], how, causes.get(name) or self._cause(value, op), op))

    def _cause(self, value: Fact, op: TileOp) -> TileOp:
        """The op that made a value depend on blocks."""
        symbols = [self.makers[symbol] for symbol, _ in (*value.shift, *value.weight) if symbol in self.makers]
        return next((one.op for _, one in value.partial if one.op is not None), symbols[0] if symbols else op)

    # Tiles.

    def _do_constant(self, op: TileOp) -> None:
        rank = self.types[op.results[0]].rank
        roles = self.sized.get(op.results[0]) or ("",) * rank
        axes = tuple(Sized(role) if role else None for role in roles)
        value = op.values["value"]
        self.facts[op.results[0]] = Fact(axes=axes, number=value if isinstance(value, bool | int | float) else None)

    def _do_coordinate(self, op: TileOp) -> None:
        fact = self._access(op, 0)[0]
        used, names = op.values["expr"].symbols, op.values["axes"]
        axes = tuple(axis if name in used else None for name, axis in zip(names, fact.axes, strict=True))
        self.facts[op.results[0]] = replace(fact, axes=axes)

    def _do_per_block(self, op: TileOp) -> None:
        value = self.facts[op.operands[0]]
        roles = frozenset(self.known[name].role for name in self.depends([value]))
        self.marked |= dict.fromkeys(sorted(roles))
        # An axis along blocks whose size is fixed is an axis like any other.
        fixed = {one.name for one in self.known.values() if one.role in roles}
        axes = tuple(None if fixed & coordinates_of(axis, self.known) else axis for axis in value.axes)
        self.facts[op.results[0]] = Fact(axes=axes, seen=value.seen, marked=value.marked | roles)

    def _do_cast(self, op: TileOp) -> None:
        value = self.facts[op.operands[0]]
        if value.state is not None:
            value = replace(value, state=replace(value.state, is_chain=False))
        self.facts[op.results[0]] = value

    def _do_round(self, op: TileOp) -> None:
        self._elementwise(op, "round", [op.operands[0]])

    def _do_bitcast(self, op: TileOp) -> None:
        self._elementwise(op, "bitcast", op.operands)

    def _do_broadcast(self, op: TileOp) -> None:
        value, placed = self.facts[op.operands[0]], op.values["axes"]
        axes: list[Origin] = [None] * self.types[op.results[0]].rank
        for own, axis in zip(value.axes, placed, strict=True):
            axes[axis] = own
        moved = frozenset(placed[axis] for axis in value.symbol_axes)
        self.facts[op.results[0]] = replace(value, axes=tuple(axes), symbol_axes=moved)

    def _do_transpose(self, op: TileOp) -> None:
        value = self.facts[op.operands[0]]
        if value.state is not None:
            value = self.opaque([value], op, value.axes)
        moved = frozenset(1 - axis for axis in value.symbol_axes)
        self.facts[op.results[0]] = replace(value, axes=value.axes[::-1], symbol_axes=moved)

    def _do_elementwise(self, op: TileOp) -> None:
        self._elementwise(op, op.values["fn"], op.operands)

    def _elementwise(self, op: TileOp, fn: str, operands: Sequence[int]) -> None:
        facts = [self.facts[operand] for operand in operands]
        self.facts[op.results[0]] = self.combine(op, fn, facts, operands)

    def combine(self, op: TileOp, fn: str, facts: Sequence[Fact], numbers: Sequence[int]) -> Fact:
        """The fact of a function of values; `numbers` are what those are called as symbols."""
        axes, strays = self.join_axes([fact.axes for fact in facts])
        if strays:
            return self.opaque(facts, op, axes, strays)
        states = [fact for fact in facts if fact.state is not None]
        if len(states) == 1 and (made := self.accumulate(op, fn, facts, numbers, axes)) is not None:
            return made
        # `m - shift` of a block's maximum and a symbol stays a sum of symbols, which may cancel.
        has_both = any(fact.shift for fact in facts) and any(fact.partial for fact in facts)
        made = None if states or has_both else self._combine_partials(op, fn, facts, axes)
        if made is None and fn in _SYMBOLIC:
            made = self._combine_symbols(fn, facts, numbers, axes)
        return self.opaque(facts, op, axes) if made is None else made

    def plain(self, facts: Sequence[Fact], axes: tuple[Origin, ...]) -> Fact:
        """A fact with what is joined whatever the function is."""
        joined = [
            frozenset[Any]().union(*(getattr(one, name) for one in facts)) for name in ("seen", "masks", "marked")
        ]
        symbols = frozenset[int]().union(*(fact.symbol_axes for fact in facts))
        return Fact(axes=axes, seen=joined[0], masks=joined[1], marked=joined[2], symbol_axes=symbols)

    def _combine_partials(self, op: TileOp, fn: str, facts: Sequence[Fact], axes: tuple[Origin, ...]) -> Fact | None:
        """Partial results combined into partial results; None where they are used otherwise."""
        symbols = combine_symbols(fn, facts)
        if symbols is None:
            return None
        along = frozenset[str]().union(*(coordinates_of(axis, self.known) for axis in axes))
        found: dict[str, Partial] = {}
        for name in dict.fromkeys(name for fact in facts for name, _ in fact.partial):
            is_added_to_zero = fn == "add" and any(fact.number == 0 for fact in facts)
            kinds = {fact.obligations[name].kind for fact in facts if name in fact.obligations}
            kind = kinds.pop() if is_added_to_zero and len(kinds) == 1 else combined_kind(fn, facts, name)
            if kind == OTHER or (name in along and kind != TRIP):
                return None
            cause = next(fact.obligations[name].op for fact in facts if name in fact.obligations)
            found[name] = Partial(kind, cause)
        # Lanes that a loop filled may be scaled, and added to each other; nothing else keeps their sum.
        for lanes in [axis for axis in axes if isinstance(axis, Lanes)]:
            is_moved = fn in ("neg", "mul", "div") if lanes.kind == "sum" else False
            if not is_moved and fn != COMBINES[lanes.kind]:
                return None
        exact = keeps_exact(fn, facts, symbols[0]) and any(symbols)
        made = replace(self.plain(facts, axes), shift=symbols[0], weight=symbols[1], is_exact=exact)
        return made.with_obligations(found)

    def _combine_symbols(
        self, fn: str, facts: Sequence[Fact], numbers: Sequence[int], axes: tuple[Origin, ...]
    ) -> Fact | None:
        """Values that depend on blocks as symbols."""
        named = [self._as_symbol(number, fact) for number, fact in zip(numbers, facts, strict=True)]
        symbols = combine_symbols(fn, named)
        if symbols is None:
            return None
        exact = keeps_exact(fn, named, symbols[0])
        return replace(self.plain(named, axes), shift=symbols[0], weight=symbols[1], is_exact=exact)

    def _as_symbol(self, number: int, fact: Fact) -> Fact:
        if fact.state is None and not fact.partial:
            return fact
        root = self.roots.get(number, number)
        self.symbols[root] = self.symbols.get(root, frozenset()) | self.depends([fact])
        varies = frozenset(axis for axis, origin in enumerate(fact.axes) if origin is not None)
        return Fact(
            axes=fact.axes,
            seen=fact.seen,
            masks=fact.masks,
            marked=fact.marked,
            shift=((root, 1.0),),
            symbol_axes=varies,
            is_exact=True,
        )

    def depends(self, facts: Sequence[Fact]) -> frozenset[str]:
        """The coordinates on whose blocks values depend."""
        found = set[str]()
        for fact in facts:
            found |= fact.obligations.keys()
            found |= {fact.state.loop} if fact.state is not None else set()
            for symbol, _ in (*fact.shift, *fact.weight):
                found |= self.symbols.get(symbol, frozenset())
        return frozenset(found)

    def opaque(
        self, facts: Sequence[Fact], op: TileOp, axes: tuple[Origin, ...], more: frozenset[str] = frozenset()
    ) -> Fact:
        """A value that depends on the blocks of all that its operands depend on, in no way that is known."""
        causes = {name: one.op for fact in facts for name, one in fact.partial}
        lanes = [axis.coordinate for axis in axes if isinstance(axis, Lanes)]
        names = sorted(self.depends(facts) | more | set(lanes))
        kept = tuple(None if isinstance(axis, Lanes) else axis for axis in axes)
        return self.plain(facts, kept).with_obligations(
            {name: Partial(OTHER, causes.get(name) or op) for name in names}
        )

    def join_axes(self, given: Sequence[tuple[Origin, ...]]) -> tuple[tuple[Origin, ...], frozenset[str]]:
        """The origins of a result's axes, and the coordinates by which those of operands differ."""
        strays = frozenset[str]()
        joined: list[Origin] = []
        for origins in zip(*given, strict=True):
            strays |= self._find_strays(origins)
            joined.append(strongest(origins))
        return tuple(joined), strays

    def _find_strays(self, origins: Sequence[Origin]) -> frozenset[str]:
        placed = [origin for origin in origins if isinstance(origin, Dim)]
        found = frozenset[str]()
        for origin in placed[1:]:
            found |= (origin - placed[0]).symbols & self.known.keys()
        return found

    def _do_select(self, op: TileOp) -> None:
        test, *branches = [self.facts[operand] for operand in op.operands]
        self.facts[op.results[0]] = self._choose(op, test, branches)

    def _choose(self, op: TileOp, test: Fact, branches: Sequence[Fact]) -> Fact:
        axes, strays = self.join_axes([fact.axes for fact in (test, *branches)])
        constant = next((fact for fact in branches if fact.number is not None), None)
        value = next((fact for fact in branches if fact is not constant), branches[0])
        if constant is not None:
            numbers = [operand for operand, fact in zip(op.operands[1:], branches, strict=True) if fact is value]
            named = self._as_symbol(numbers[0], value) if numbers else value
            if not test.is_free and named.is_exact and self._is_of_infinity(op.operands[0], named):
                # `where(m == -inf, 0, m)`: where the maximum of a row is -inf, its weights are 0 in any case.
                return replace(named, axes=axes)
            if test.is_free and not strays:
                return self._mask(op, value, constant.number, test.seen, axes)
        if strays or not test.is_free or any(fact.state is not None for fact in branches):
            return self.opaque([test, *branches], op, axes, strays)
        first, second = branches
        is_same = (first.shift, first.weight) == (second.shift, second.weight)
        kinds = [{name: one.kind for name, one in fact.partial} for fact in branches]
        if not is_same or kinds[0] != kinds[1]:
            return self.opaque([test, *branches], op, axes)
        joined = replace(self.plain([test, *branches], axes), shift=first.shift, weight=first.weight)
        return replace(joined, partial=first.partial)

    def _is_of_infinity(self, number: int, value: Fact) -> bool:
        """Whether a condition tells a symbol from infinity alone."""
        test = self.makers.get(number)
        if test is None or test.values.get("fn") not in ("eq", "ne", "gt", "lt"):
            return False
        symbols = {self.roots.get(operand, operand) for operand in test.operands}
        numbers = [self.facts[operand].number for operand in test.operands]
        return {symbol for symbol, _ in value.shift} <= symbols and any(n in (inf, -inf) for n in numbers)

    def _mask(self, op: TileOp, value: Fact, number: Any, seen: frozenset[str], axes: tuple[Origin, ...]) -> Fact:
        """A value with some elements replaced by a constant: the identity keeps a partial result what it is."""
        found = {name: one for name, one in value.partial if not (one.kind == TRIP and name in seen)}
        is_kept = all(one.kind == TRIP or is_identity(number, one.kind) for one in found.values())
        is_shifted = not value.shift or number in (inf, -inf)
        if value.state is not None or not is_kept or not is_shifted or (value.weight and number != 0):
            return self.opaque([value], op, axes)
        masked = replace(
            value, axes=axes, masks=value.masks | seen, seen=value.seen | seen, is_exact=False, number=None
        )
        return masked.with_obligations(found)

    def _do_clip(self, op: TileOp) -> None:
        value, access = self.facts[op.operands[0]], self._access(op, 1)[0]
        axes, strays = self.join_axes([value.axes, access.axes])
        if strays or access.partial:
            self.facts[op.results[0]] = self.opaque([value, access], op, axes, strays)
            return
        names = op.values["axes"]
        others = [axis for name, axis in zip(names, access.axes, strict=True) if name in op.values["bound"].symbols]
        seen = frozenset[str]().union(*(coordinates_of(axis, self.known) for axis in others))
        if not others and value.is_free:
            self.facts[op.results[0]] = replace(value, axes=axes, number=None)
            return
        self.facts[op.results[0]] = self._mask(op, value, op.values["identity"], seen, axes)

    def _do_reduce(self, op: TileOp) -> None:
        kind = op.values["kind"] if op.values["kind"] in COMBINES else OTHER
        self.facts[op.results[0]] = self.reduce(op, self.facts[op.operands[0]], op.values["axis"], kind)

    def _do_arg_reduce(self, op: TileOp) -> None:
        values, indices = (self.facts[operand] for operand in op.operands)
        reduced = self.reduce(op, values, op.values["axis"], OTHER)
        self.facts[op.results[0]] = replace(reduced, seen=reduced.seen | indices.seen)

    def reduce(self, op: TileOp, value: Fact, axis: int, kind: str) -> Fact:
        """A reduction: of an axis that holds one block it is a partial result."""
        origin, axes = value.axes[axis], value.axes[:axis] + value.axes[axis + 1 :]
        symbols = frozenset(other - (other > axis) for other in value.symbol_axes if other != axis)
        names = coordinates_of(origin, self.known)
        if isinstance(origin, Lanes) and origin.kind != kind:
            names = names | {origin.coordinate}
        if isinstance(origin, Sized) and kind not in IDEMPOTENT:
            names = names | {_size_name(origin.role)}
        is_lost = (
            value.state is not None
            or axis in value.symbol_axes
            or (value.shift and kind not in ("max", "min"))
            or (value.weight and kind not in ("sum", "max", "min"))
            or (isinstance(origin, Lanes | Sized) and bool(names))
            or any(one.kind not in (kind, TRIP) or name in names for name, one in value.partial)
        )
        if is_lost:
            return replace(self.opaque([value], op, axes, names), symbol_axes=frozenset())
        reduced = replace(value, axes=axes, symbol_axes=symbols, number=None, is_exact=False)
        return reduced.with_obligations(value.obligations | {name: Partial(kind, op) for name in names})

    def _do_dot(self, op: TileOp) -> None:
        left, right, acc = (self.facts[operand] for operand in op.operands)
        axes = (left.axes[0], right.axes[1])
        inner, strays = self.join_axes([left.axes[1:], right.axes[:1]])
        # As elementwise products of [M, K, N], reduced along K.
        wide = [
            replace(left, axes=(left.axes[0], inner[0], None)),
            replace(
                right, axes=(None, inner[0], right.axes[1]), symbol_axes=frozenset(a + 1 for a in right.symbol_axes)
            ),
        ]
        product = self.combine(op, "mul", wide, op.operands[:2])
        if strays:
            product = self.opaque([product], op, product.axes, strays)
        total = self.reduce(op, product, 1, "sum")
        if acc.number == 0 and acc.state is None:
            self.facts[op.results[0]] = replace(total, axes=axes)
            return
        made = self.combine(op, "add", [acc, total], [op.operands[2], op.results[0]])
        if made.state is not None and acc.state is not None:
            made = replace(made, state=replace(made.state, is_chain=acc.state.is_chain and not acc.state.scale))
        self.facts[op.results[0]] = made

    def _do_softmax(self, op: TileOp) -> None:
        value = self.facts[op.operands[0]]
        names = coordinates_of(value.axes[1], self.known)
        self.facts[op.results[0]] = self.opaque([value], op, value.axes, names) if names or not value.is_free else value

    def _exchange(self, op: TileOp) -> None:
        """Segments of lanes hold the same elements in blocks of any size that is a multiple of theirs."""
        value, width = self.facts[op.operands[0]], op.values["width"]
        origin = value.axes[-1]
        names = coordinates_of(origin, self.known)
        moved = origin.substitute(dict.fromkeys(names, 0)).value if isinstance(origin, Dim) else 0
        is_aligned = moved is not None and not moved % width
        if value.is_free and is_aligned and all(not self.known[name].size % width for name in names):
            self.facts[op.results[0]] = replace(value, number=None)
        else:
            self.facts[op.results[0]] = self.opaque([value], op, value.axes, names)

    _do_shuffle = _do_butterfly = _do_vote = _exchange

    def _collective(self, op: TileOp) -> None:
        """Tiles of the same place on all ranks, element by element."""
        facts = [self.facts[operand] for operand in op.operands if operand in self.facts]
        axes, strays = self.join_axes([fact.axes for fact in facts])
        is_free = not strays and all(fact.is_free for fact in facts)
        made = self.plain(facts, axes) if is_free else self.opaque(facts, op, axes, strays)
        self.facts.update(dict.fromkeys(op.results, made))

    _do_all_reduce = _do_all_gather = _do_reduce_scatter = _collective

    def _do_other(self, op: TileOp) -> None:
        """An op of which nothing is known here."""
        facts = [self.facts[operand] for operand in op.operands if operand in self.facts]
        names = frozenset[str]().union(*(coordinates_of(axis, self.known) for fact in facts for axis in fact.axes))
        for result in op.results:
            type = self.types[result]
            if isinstance(type, TensorType):
                self.facts[result] = self.opaque(facts, op, (None,) * type.rank, names)

    @abstractmethod
    def accumulate(
        self, op: TileOp, fn: str, facts: Sequence[Fact], numbers: Sequence[int], axes: tuple[Origin, ...]
    ) -> Fact | None:
        """A carried value that is scaled by a weight, or combined with something; None where it is used otherwise."""


def _size_name(role: str) -> str:
    return f"%size of {role}"


def strongest(origins: Sequence[Origin]) -> Origin:
    """Of the origins that values have along one axis, the one that says most."""
    for kind in (Lanes, Dim, Sized):
        for origin in origins:
            if isinstance(origin, kind):
                return origin
    return None
