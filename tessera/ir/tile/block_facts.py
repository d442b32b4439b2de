"""What is known of a value of a kernel for all block sizes: which elements its axes hold, and how it depends on blocks.

The results of a kernel may not depend on its schedule. A value is free of blocks when each of its elements is a
function of that element's index in a whole tensor. It stops being so when an axis that holds one block is reduced,
when the start of a block is used as a number, or when tiles of two different blocks meet. Such a dependence is an
obligation, kept per coordinate in `Fact.partial`, and it ends in three ways: a loop over all blocks of the coordinate
accumulates partial results by their own function; an atomic of the same function does it over programs; or the
dependence is on a running maximum that cancels, as in an online softmax. For the last, a value that depends on blocks
may stand as a symbol: `x - m` is `x` shifted by `-m`, `exp(x - m)` has the weight `-m`, and weights of products add
up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isinf, log
from typing import Any, TypeAlias

from tessera.ir.tile.records import TileOp
from tessera.types.dim import Atom, Dim
from tessera.types.frozen import frozen

OTHER, TRIP = "", "trip"
"""Kinds of dependence that are no partial reduction: any, and a trip count that depends on a block."""
COMBINES = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
"""The function that combines two partial results of each kind of reduction."""
KINDS = {fn: kind for kind, fn in COMBINES.items()}
IDENTITIES: dict[str, Any] = {"sum": 0, "prod": 1, "max": -inf, "min": inf, "any": False, "all": True}
IDEMPOTENT = ("max", "min", "any", "all")


@frozen
class Coordinate:
    """A start of blocks: `size` elements each, of the block `role` (`m`, `n`, `k`) of the schedule."""

    name: str
    role: str
    size: int
    extent: Dim | None = None
    is_loop: bool = False


@frozen
class Lanes:
    """An axis that a loop over blocks of `coordinate` accumulated into by `kind`: reducing it so gives the whole."""

    coordinate: str
    kind: str


@frozen
class Sized:
    """An axis of equal elements, as many as a block of the schedule has: `role`."""

    role: str


Origin: TypeAlias = "Dim | Lanes | Sized | None"
"""The first element of an axis in the whole tensor; None where all elements of the axis are equal."""


@frozen
class Partial:
    """A dependence on blocks of a coordinate: a partial reduction of some kind, or any other; and the op it is from."""

    kind: str
    op: TileOp | None


@frozen
class State:
    """A value carried by a loop so far: carried value `index`, combined by `kind` with `addend` in this iteration.

    `scale` is the weight that the carried value was multiplied by.
    """

    loop: str
    index: int
    kind: str = ""
    scale: tuple[tuple[int, float], ...] = ()
    addend: Fact | None = None
    is_chain: bool = True
    """Whether it is one chain of multiply-adds, whose bits do not depend on blocks."""


@frozen
class Fact:
    """What is known of one value."""

    axes: tuple[Origin, ...] = ()
    partial: tuple[tuple[str, Partial], ...] = ()
    seen: frozenset[str] = frozenset()
    """Coordinates by whose elements, or groups of them, the value differs."""
    shift: tuple[tuple[int, float], ...] = ()
    weight: tuple[tuple[int, float], ...] = ()
    symbol_axes: frozenset[int] = frozenset()
    """Axes along which symbols of `shift` and `weight` differ."""
    masks: frozenset[str] = frozenset()
    """Coordinates of the conditions under which elements were replaced by a constant."""
    number: Any = None
    """The constant that the value is, if it is one."""
    marked: frozenset[str] = frozenset()
    """Blocks of the schedule that the author fixed for this value."""
    state: State | None = None
    is_exact: bool = False
    """Whether it is the sum of its `shift` symbols, or the product that `weight` says, and nothing beside."""

    @property
    def obligations(self) -> dict[str, Partial]:
        return dict(self.partial)

    @property
    def is_free(self) -> bool:
        """Whether it does not depend on blocks."""
        return not (self.partial or self.shift or self.weight or self.state)

    def with_obligations(self, found: Mapping[str, Partial]) -> Fact:
        return replace(self, partial=tuple(sorted(found.items(), key=lambda item: item[0])))


def add_terms(
    first: Iterable[tuple[int, float]], second: Iterable[tuple[int, float]], factor: float = 1.0
) -> tuple[tuple[int, float], ...]:
    """`first + factor * second` of symbols with coefficients, those that cancel left out."""
    total = dict(first)
    for symbol, coefficient in second:
        total[symbol] = total.get(symbol, 0.0) + factor * coefficient
    return tuple(sorted((symbol, value) for symbol, value in total.items() if abs(value) > 1e-9))


def scale_terms(terms: Iterable[tuple[int, float]], factor: float) -> tuple[tuple[int, float], ...]:
    """Symbols with their coefficients multiplied."""
    return add_terms((), terms, factor)


def split_coordinates(expr: Dim, known: Mapping[str, Coordinate]) -> tuple[frozenset[str], frozenset[str]]:
    """The coordinates whose blocks an expression depends on, and those it depends on by whole groups of elements.

    `c // 128` has one value in a block that starts at `c`, and the same for each of its elements, where the block's
    size divides 128.
    """
    raw, grouped = set[str](), set[str]()
    for monomial, _ in expr.terms:
        for atom in monomial:
            names = _atom_symbols(atom) & known.keys()
            if atom.kind == "floordiv" and all(_is_grouped(atom, known[name]) for name in names):
                grouped |= names
            else:
                raw |= names
    return frozenset(raw), frozenset(grouped - raw)


def _atom_symbols(atom: Atom) -> frozenset[str]:
    return frozenset([atom.name]) if atom.kind == "symbol" else frozenset[str]().union(*(a.symbols for a in atom.args))


def _is_grouped(atom: Atom, coordinate: Coordinate) -> bool:
    """Whether `(q*c + r) // g` is the same for all elements of every block that starts at `c`."""
    first, second = atom.args
    parts = first.coefficient(coordinate.name)
    if parts is None or second.value is None or second.value <= 0:
        return False
    factor, offset = (part.value for part in parts)
    if factor is None or offset is None or factor <= 0:
        return False
    return not second.value % (factor * coordinate.size) and not offset % (factor * coordinate.size)


def coordinates_of(origin: Origin, known: Mapping[str, Coordinate]) -> frozenset[str]:
    """The coordinates whose blocks an axis holds."""
    return frozenset(origin.symbols & known.keys()) if isinstance(origin, Dim) else frozenset()


def combined_kind(fn: str, facts: Sequence[Fact], name: str) -> str:
    """What a function makes of partial results over blocks of coordinate `name`: a partial result, or anything."""
    kinds = [fact.obligations[name].kind if name in fact.obligations else None for fact in facts]
    found = [kind for kind in kinds if kind is not None]
    kind = found[0]
    if any(other != kind for other in found) or kind in (OTHER, TRIP):
        return TRIP if set(found) == {TRIP} else OTHER
    if kind == "sum":
        return "sum" if _is_linear(fn, kinds) else OTHER
    if fn == COMBINES[kind] and (len(found) == 2 or kind in IDEMPOTENT):
        return kind
    # max(x) + c is max(x + c).
    is_moved = kind in ("max", "min") and len(found) == 1 and (fn == "add" or (fn == "sub" and kinds[0] is not None))
    return kind if is_moved else OTHER


def _is_linear(fn: str, kinds: Sequence[str | None]) -> bool:
    count = sum(kind is not None for kind in kinds)
    if fn == "fma":
        return kinds[2] is not None and (kinds[0] is None) != (kinds[1] is None)
    rules = {"neg": True, "add": count == 2, "sub": count == 2, "mul": count == 1}
    return rules.get(fn, fn == "div" and kinds[1:] == [None])


def is_identity(number: Any, kind: str) -> bool:
    """Whether a constant is the identity of a kind of reduction."""
    return number is not None and kind in IDENTITIES and number == IDENTITIES[kind]


EXPONENTIALS = {"exp": 1.0, "exp2": log(2.0)}


def combine_symbols(fn: str, facts: Sequence[Fact]) -> tuple[Any, Any] | None:
    """Shift and weight of a function's result; None where its dependence on symbols is of neither form."""
    shifts, weights = [fact.shift for fact in facts], [fact.weight for fact in facts]
    if not any(shifts) and not any(weights):
        return (), ()
    if fn == "neg" and not weights[0]:
        return scale_terms(shifts[0], -1.0), ()
    if fn in EXPONENTIALS and not weights[0]:
        return (), scale_terms(shifts[0], EXPONENTIALS[fn])
    if fn in ("add", "sub"):
        return _combine_sum(fn, facts)
    if fn == "fma":
        product = combine_symbols("mul", facts[:2])
        made = None if product is None else replace(facts[0], number=None, shift=product[0], weight=product[1])
        return None if made is None else _combine_sum("add", [made, facts[2]])
    if fn not in ("mul", "div"):
        return None
    return _combine_factors(fn, facts)


def keeps_exact(fn: str, facts: Sequence[Fact], shift: Any) -> bool:
    """Whether a result is nothing beside its symbols: no number is added to a shift, none multiplies a weight."""
    if fn in ("mul", "div") and shift:
        return all(fact.is_exact or fact.number is not None for fact in facts)
    neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(fn)
    return all(fact.is_exact or (neutral is not None and fact.number == neutral) for fact in facts)


def _combine_sum(fn: str, facts: Sequence[Fact]) -> tuple[Any, Any] | None:
    first, second = facts
    if not first.weight and not second.weight:
        return add_terms(first.shift, second.shift, -1.0 if fn == "sub" else 1.0), ()
    for one, other in ((first, second), (second, first)):
        if one.number == 0 and not other.shift:
            return (), other.weight
    is_same = first.weight == second.weight and not first.shift and not second.shift
    return ((), first.weight) if is_same else None


def _combine_factors(fn: str, facts: Sequence[Fact]) -> tuple[Any, Any] | None:
    first, second = facts
    if first.shift or second.shift:
        (one, factor) = (first, second.number) if first.shift else (second, first.number)
        if factor is None or one.weight or isinf(factor) or not factor or (one is second and fn == "div"):
            return None
        return scale_terms(one.shift, 1.0 / factor if fn == "div" else float(factor)), ()
    return (), add_terms(first.weight, second.weight, -1.0 if fn == "div" else 1.0)
