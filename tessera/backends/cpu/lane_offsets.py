"""How offsets with quotients and remainders grow from lane to lane: evenly for a while, or in an order that is known.

Between multiples of its divisors an offset grows evenly (`find_run`), which holds for most vectors where divisors are
long. Where they are short, several rows share a vector, and an operand that is broadcast along them has offsets such as
`i floordiv 3` or `i mod 3`. From a multiple of the period on, lane by lane, these grow in a way that does not depend on
where the vector is (`lanes_apart`); what lanes read then lies within few elements of each other, and in place of a
gather, ten times as long, those are loaded and shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.llvm.instructions import Value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Atom, Dim, atom_dim
from tessera.types.frozen import frozen

_FARTHEST = 4
"""The most elements from lane to lane; farther apart, an address for each lane costs no more."""


def can_pick(step: int | None, lanes: int) -> bool:
    """Whether lanes so far apart are picked from vectors; None is a step that is not known."""
    return step is not None and 1 <= abs(step) <= _FARTHEST and lanes > 1 and lanes & (lanes - 1) == 0


# Between multiples of divisors.


@frozen
class Run:
    """How an offset grows as long as no quotient in it changes, and of each quotient its remainder.

    A remainder comes with its divisor and how it grows itself: as long as it stays below the one and above 0, the
    quotient is the same.
    """

    step: int
    remainders: tuple[tuple[Dim, Dim, int], ...]


def find_run(offset: Dim, axis: str, lanes: int) -> Run | None:
    """How an offset grows with an axis between multiples of its divisors; None where vectors hardly lie between two."""
    quotients: dict[tuple[Dim, Dim, int], Dim] = {}
    flat = _without_quotients(offset, axis, lanes, quotients)
    parts = None if flat is None or not quotients else flat.coefficient(axis)
    step = None if parts is None else parts[0].value
    if step is None or not (step in (0, 1) or can_pick(step, lanes)):
        return None
    return Run(step, tuple(quotients))


def _without_quotients(dim: Dim, axis: str, lanes: int, quotients: dict[tuple[Dim, Dim, int], Dim]) -> Dim | None:
    """The dim with a symbol for each quotient of what varies with the axis; None where it is of another kind."""
    total = Dim.constant(0)
    for monomial, coefficient in dim.terms:
        term = Dim.constant(coefficient)
        for atom in monomial:
            own = atom_dim(atom.kind, *atom.args) if atom.args else Dim.symbol(atom.name)
            if atom.args and axis in own.symbols:
                found = _split_atom(atom, axis, lanes, quotients)
                if found is None:
                    return None
                own = found
            term = term * own
        total = total + term
    return total


def _split_atom(atom: Atom, axis: str, lanes: int, quotients: dict[tuple[Dim, Dim, int], Dim]) -> Dim | None:
    """A quotient as a symbol, a remainder as what is left; None where the quotient changes with most vectors."""
    above, below = atom.args
    inner = _without_quotients(above, axis, lanes, quotients)
    parts = None if inner is None else inner.coefficient(axis)
    if atom.kind not in ("floordiv", "mod") or axis in below.symbols or inner is None or parts is None:
        return None
    slope = parts[0].value
    if slope is None or (slope and below.value is not None and below.value < 2 * lanes * abs(slope)):
        return None
    key = atom_dim("mod", above, below), below, slope
    quotient = quotients.setdefault(key, Dim.symbol(f"_q{len(quotients)}"))
    return quotient if atom.kind == "floordiv" else inner - below * quotient


# Behind multiples of periods.

_SPAN = 2
"""Vectors of neighbours that are loaded for one vector at most."""


def lanes_apart(dim: Dim, axis: str, lanes: Sequence[int], multiple: int) -> tuple[int, ...] | None:
    """How far an expression is in each lane from the first, where `axis` is a multiple and the lane's number.

    None where that depends on more than the lane.
    """
    found = _tabulate(dim, axis, lanes, multiple, is_whole=True)
    return None if found is None else tuple(one - found[1][0] for one in found[1])


def are_near(apart: Sequence[int]) -> bool:
    """Whether the elements of lanes so far apart are shuffled from neighbours."""
    return max(apart) - min(apart) < _SPAN * len(apart)


def _tabulate(
    dim: Dim, axis: str, lanes: Sequence[int], multiple: int, *, is_whole: bool
) -> tuple[int, list[int]] | None:
    """How much an expression grows from multiple to multiple, and its values for lanes behind the first of them.

    Of a whole offset, terms without the axis are left out, as all lanes have them; inside a quotient they are known.
    """
    slope, values = 0, [0] * len(lanes)
    for monomial, coefficient in dim.terms:
        term = Dim(((monomial, coefficient),))
        if axis not in term.symbols:
            if not is_whole and term.value is None:
                return None
            values = values if is_whole else [one + coefficient for one in values]
            continue
        part = _tabulate_atom(monomial[0], axis, lanes, multiple) if len(monomial) == 1 else None
        if part is None:
            return None
        slope += coefficient * part[0]
        values = [one + coefficient * more for one, more in zip(values, part[1], strict=True)]
    return slope, values


def _tabulate_atom(atom: Atom, axis: str, lanes: Sequence[int], multiple: int) -> tuple[int, list[int]] | None:
    """The same of an axis, a quotient or a remainder; a divisor must divide what its dividend grows by."""
    if not atom.args:
        return multiple, list(lanes)
    above, below = atom.args
    inner, divisor = _tabulate(above, axis, lanes, multiple, is_whole=False), below.value
    if atom.kind not in ("floordiv", "mod") or inner is None or not divisor or inner[0] % divisor:
        return None
    if atom.kind == "floordiv":
        return inner[0] // divisor, [one // divisor for one in inner[1]]
    return 0, [one % divisor for one in inner[1]]


def load_near(f: FunctionText, first: Value, stored: str, apart: Sequence[int]) -> Value:
    """Elements so far from the address of lane 0; nothing is read but what is between the nearest and the farthest."""
    low, count = min(apart), max(apart) - min(apart) + 1
    begin = f.gep(first, f.const_i(low), stored) if low else first
    if count == 1:
        return f.splat(f.load(begin, stored), len(apart))
    return f.shuffle(f.load(begin, vector(stored, count)), None, [one - low for one in apart])
