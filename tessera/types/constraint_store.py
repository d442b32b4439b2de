"""Sizes and what is computed from them, each with an interval and a residue class that rules make narrower.

This is constraint propagation over the product of two abstract domains: intervals, and congruences (`x = r mod m`).
A store has a node for every size, and for every product, quotient, remainder, minimum and maximum that a constraint
mentions. A rule ties nodes together and runs whenever one that it watches has become narrower; each narrowing is sound
on its own, so rules may run in any order, and stopping early (`RUNS`) only claims less. A node that becomes empty is a
contradiction. Every bound carries `why`, the set of facts it rests on, as the bits of an int: union is `|`, and an
error names exactly the constraints that clash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import reduce
from math import gcd
from typing import NamedTuple, Protocol, TypeAlias

from tessera.types.dim import Atom, Dim, Monomial

# What is known of one integer: an interval and a residue class, with arithmetic that never claims too much.

BIG = 1 << 62
"""Bounds at or beyond it are no bounds: larger numbers would only make the solver slow."""
_LARGEST_MODULUS = 1 << 40


class ContradictionError(Exception):
    """Two facts exclude each other; `why` is the set of facts, a bit each."""

    def __init__(self, why: int) -> None:
        super().__init__("the constraints contradict each other")
        self.why = why


class Value(NamedTuple):
    """All `x` with `low <= x <= high` and `x % modulus == residue`; a modulus of 1 says nothing.

    `why` is the set of facts this rests on, a bit each.
    """

    low: int = -BIG
    high: int = BIG
    modulus: int = 1
    residue: int = 0
    why: int = 0

    @property
    def is_fixed(self) -> bool:
        return self.low == self.high

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0 or self.residue % self.modulus != 0


def exactly(number: int, why: int = 0) -> Value:
    """One number; beyond the bounds of the domain it is only known by its residues."""
    if -BIG < number < BIG:
        return Value(number, number, 1, 0, why)
    low, high = (BIG - 1, BIG) if number > 0 else (-BIG, 1 - BIG)
    return Value(low, high, _LARGEST_MODULUS, number % _LARGEST_MODULUS, why)


def residue_class(value: Value) -> tuple[int, int]:
    """The modulus and residue; a fixed number is a class of modulus 0."""
    return (0, value.low) if value.low == value.high else (value.modulus, value.residue)


def _in_class(low: int, high: int, modulus: int, residue: int, why: int) -> Value:
    """A value with its class in range; a class of modulus 0 is a number, which its interval may be too wide to say."""
    if modulus == 0:
        return exactly(residue, why)
    if modulus > _LARGEST_MODULUS:
        modulus = gcd(modulus, _LARGEST_MODULUS)
    return Value(max(-BIG, min(low, BIG - 1)), min(BIG, max(high, 1 - BIG)), modulus, residue % modulus, why)


def _bounded_multiply(x: int, y: int) -> int:
    """`x * y` of two bounds, where BIG stands for infinity."""
    return max(-BIG, min(BIG, x * y))


def plus(a: Value, b: Value) -> Value:
    """All sums."""
    low = -BIG if a.low <= -BIG or b.low <= -BIG else a.low + b.low
    high = BIG if a.high >= BIG or b.high >= BIG else a.high + b.high
    (first, one), (second, other) = residue_class(a), residue_class(b)
    return _in_class(low, high, gcd(first, second), one + other, a.why | b.why)


def scale(a: Value, factor: int) -> Value:
    """All multiples by one number."""
    return times(a, exactly(factor)) if factor != 1 else a


def times(a: Value, b: Value) -> Value:
    """All products."""
    if a.low >= 0 and b.low >= 0:
        low, high = a.low * b.low, min(BIG, a.high * b.high)
    else:
        corners = [_bounded_multiply(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        low, high = min(corners), max(corners)
    (first, one), (second, other) = residue_class(a), residue_class(b)
    modulus = gcd(first * second, first * other, second * one)
    return _in_class(low, high, modulus, one * other, a.why | b.why)


def quotient(a: Value, b: Value) -> Value:
    """All `x // y`, which is 0 for a `y` of 0."""
    why = a.why | b.why
    if b.is_fixed and b.low == 0:
        return exactly(0, why)
    if b.low < 0:
        return Value(why=why)
    # A divisor of at least 1 moves every number towards zero, and one of 0 gives 0.
    least, most = max(b.low, 1), max(b.high, 1)
    low = a.low if a.low <= -BIG else min(a.low // least, a.low // most)
    high = a.high if a.high >= BIG else max(a.high // least, a.high // most)
    if b.low == 0:
        low, high = min(low, 0), max(high, 0)
    return Value(low, high, 1, 0, why)


def remainder(a: Value, b: Value) -> Value:
    """All `x % y`, which is 0 for a `y` of 0."""
    why = a.why | b.why
    if b.low < 0:
        return Value(why=why)
    if a.low >= 0 and a.high < b.low:
        return a._replace(why=why)
    high = BIG if b.high >= BIG else max(0, b.high - 1)
    if a.low >= 0:
        high = min(high, a.high)
    if b.low < 1:
        return Value(0, high, 1, 0, why)
    # x % y differs from x by a multiple of y, so it keeps the class of both.
    modulus = gcd(residue_class(a)[0], *residue_class(b))
    residue = residue_class(a)[1] % modulus
    return exactly(residue, why) if b.is_fixed and modulus == b.low else Value(0, high, modulus, residue, why)


def min_or_max(kind: str, a: Value, b: Value) -> Value:
    """All `max(x, y)` or `min(x, y)`."""
    choose = max if kind == "max" else min
    (first, one), (second, other) = residue_class(a), residue_class(b)
    modulus = gcd(first, second, one - other)
    return _in_class(choose(a.low, b.low), choose(a.high, b.high), modulus, one, a.why | b.why)


def apply_atom(kind: str, a: Value, b: Value) -> Value:
    """An atom of a dim (`floordiv`, `mod`, `max`, `min`) on all values of its two arguments."""
    if kind == "floordiv":
        return quotient(a, b)
    return remainder(a, b) if kind == "mod" else min_or_max(kind, a, b)


def intersect_classes(modulus: int, residue: int, other: int, other_residue: int) -> tuple[int, int] | None:
    """The class of numbers in both classes; None when there is none. A class too fine to keep leaves the first."""
    common = gcd(modulus, other)
    if (residue - other_residue) % common:
        return None
    step = other // common
    joined = modulus * step
    if joined > _LARGEST_MODULUS:
        return modulus, residue
    shift = (other_residue - residue) // common * pow(modulus // common, -1, step) % step if step > 1 else 0
    return joined, (residue + modulus * shift) % joined


def solve_class(factor: int, target: int, modulus: int) -> tuple[int, int] | None:
    """The class of `x` with `factor * x == target` modulo `modulus`; None when there is no such `x`."""
    common = gcd(factor, modulus)
    if target % common:
        return None
    step = abs(modulus // common)
    if step <= 1:
        return 1, 0
    return step, target // common * pow(factor // common, -1, step) % step


Terms: TypeAlias = tuple[tuple[int, int], ...]
"""A sum: (coefficient, node) each."""

RUNS = 12
"""How often one rule may run in one pass: rules that push each other up for ever stop here, having claimed nothing."""


class Rule(Protocol):
    """A rule between nodes; it runs whenever one of `watched` has become narrower."""

    @property
    def watched(self) -> Sequence[int]: ...

    def run(self, store: Store) -> None: ...


class Store:
    """Nodes by number: symbols, products, quotients and their kin; low, high and class of each with its reasons."""

    def __init__(self) -> None:
        self.low: list[int] = []
        self.high: list[int] = []
        self.modulus: list[int] = []
        self.residue: list[int] = []
        self.low_why: list[int] = []
        self.high_why: list[int] = []
        self.class_why: list[int] = []
        self._watchers: list[list[Rule]] = []
        self._symbols: dict[str, int] = {}
        self._atoms: dict[Atom, int] = {}
        self._products: dict[Monomial, int] = {}
        self._queue: deque[Rule] = deque()
        self._queued: set[Rule] = set()

    def _node(self, low: int = -BIG, high: int = BIG) -> int:
        self.low.append(low)
        self.high.append(high)
        self.modulus.append(1)
        for column in (self.residue, self.low_why, self.high_why, self.class_why):
            column.append(0)
        self._watchers.append([])
        return len(self.low) - 1

    @property
    def _columns(self) -> tuple[list[int], ...]:
        return (self.low, self.high, self.modulus, self.residue, self.low_why, self.high_why, self.class_why)

    def symbol(self, name: str) -> int:
        """The node of a size, which is never negative."""
        found = self._symbols.get(name)
        if found is None:
            found = self._symbols[name] = self._node(0)
        return found

    def atom(self, atom: Atom) -> int:
        """The node of an atom, with the rule that ties it to its arguments."""
        if atom.kind == "symbol":
            return self.symbol(atom.name)
        found = self._atoms.get(atom)
        if found is None:
            first, second = (self.node_of(arg) for arg in atom.args)
            found = self._atoms.get(atom)
            if found is not None:  # the quotient made its remainder, or conversely
                return found
            if atom.kind in ("max", "min"):
                found = self._atoms[atom] = self._node()
                self.post(MinMaxRule(atom.kind, found, first, second))
            else:
                found = self._divide(atom, first, second)
        return found

    def _divide(self, atom: Atom, first: int, second: int) -> int:
        """Quotient and remainder come together: each says something of the other."""
        quotient, remainder = self._node(), self._node()
        self._atoms[Atom("floordiv", "", atom.args)] = quotient
        self._atoms[Atom("mod", "", atom.args)] = remainder
        self.post(Division(quotient, remainder, first, second))
        return quotient if atom.kind == "floordiv" else remainder

    def monomial(self, monomial: Monomial) -> int:
        """The node of a product of atoms."""
        if len(monomial) == 1:
            return self.atom(monomial[0])
        found = self._products.get(monomial)
        if found is None:
            factors = [self.atom(atom) for atom in monomial]
            found = self._products[monomial] = self._node()
            self.post(ProductRule(found, factors))
        return found

    def form(self, dim: Dim) -> tuple[Terms, int]:
        """A dim as a sum of nodes and a number."""
        constant, terms = 0, list[tuple[int, int]]()
        for monomial, coefficient in dim.terms:
            if not monomial:
                constant = coefficient
            elif len(monomial) == 1 and monomial[0].kind == "symbol":
                terms.append((coefficient, self.symbol(monomial[0].name)))
            else:
                terms.append((coefficient, self.monomial(monomial)))
        return tuple(terms), constant

    def node_of(self, dim: Dim) -> int:
        """One node that is worth what the dim is worth."""
        terms, constant = self.form(dim)
        if len(terms) == 1 and terms[0][0] == 1 and constant == 0:
            return terms[0][1]
        node = self._node()
        self.post(Linear((*terms, (-1, node)), constant, True))
        return node

    def post(self, rule: Rule) -> None:
        """Let a rule watch its nodes, and run it in the next pass."""
        for node in rule.watched:
            self._watchers[node].append(rule)
        self._schedule(rule)

    def _schedule(self, rule: Rule) -> None:
        if rule not in self._queued:
            self._queued.add(rule)
            self._queue.append(rule)

    def propagate(self) -> bool:
        """Run rules until nothing changes; False where some had to be stopped. Raises `ContradictionError`."""
        runs: dict[Rule, int] = {}
        is_calm = True
        try:
            while self._queue:
                rule = self._queue.popleft()
                self._queued.discard(rule)
                count = runs[rule] = runs.get(rule, 0) + 1
                if count > RUNS:
                    is_calm = False
                    continue
                rule.run(self)
        finally:
            self._queue.clear()
            self._queued.clear()
        return is_calm

    @contextmanager
    def supposing(self, rule: Rule) -> Generator[None]:
        """Within it a rule holds for the sake of argument; afterwards all is as it was."""
        kept = [column.copy() for column in self._columns]
        self.post(rule)
        try:
            yield
        finally:
            for node in rule.watched:
                self._watchers[node].remove(rule)
            for column, old in zip(self._columns, kept, strict=True):
                column[: len(old)] = old

    def value(self, node: int) -> Value:
        why = self.low_why[node] | self.high_why[node] | self.class_why[node]
        return Value(self.low[node], self.high[node], self.modulus[node], self.residue[node], why)

    def raise_low(self, node: int, bound: int, why: int) -> None:
        """Note that a node is at least `bound`."""
        if bound <= self.low[node]:
            return
        modulus = self.modulus[node]
        if modulus > 1:
            bound += (self.residue[node] - bound) % modulus
            why |= self.class_why[node]
        self.low[node] = min(bound, BIG - 1)
        self.low_why[node] = why
        self._propagate(node)

    def lower_high(self, node: int, bound: int, why: int) -> None:
        """Note that a node is at most `bound`."""
        if bound >= self.high[node]:
            return
        modulus = self.modulus[node]
        if modulus > 1:
            bound -= (bound - self.residue[node]) % modulus
            why |= self.class_why[node]
        self.high[node] = max(bound, 1 - BIG)
        self.high_why[node] = why
        self._propagate(node)

    def intersect_class(self, node: int, modulus: int, residue: int, why: int) -> None:
        """Note that a node is `residue` modulo `modulus`."""
        known = self.modulus[node]
        joined = intersect_classes(known, self.residue[node], modulus, residue % modulus)
        if joined is None:
            raise ContradictionError(self.class_why[node] | why)
        if joined[0] == known:
            return
        self.modulus[node], self.residue[node] = joined
        self.class_why[node] |= why
        low, high = self.low[node], self.high[node]
        if low > -BIG and (low - joined[1]) % joined[0]:
            self.low[node] = min(low + (joined[1] - low) % joined[0], BIG - 1)
            self.low_why[node] |= self.class_why[node]
        if high < BIG and (high - joined[1]) % joined[0]:
            self.high[node] = max(high - (high - joined[1]) % joined[0], 1 - BIG)
            self.high_why[node] |= self.class_why[node]
        self._propagate(node)

    def intersect(self, node: int, value: Value) -> None:
        """Narrow a node to a value."""
        self.raise_low(node, value.low, value.why)
        self.lower_high(node, value.high, value.why)
        self.intersect_class(node, value.modulus, value.residue, value.why)

    def _propagate(self, node: int) -> None:
        if self.low[node] > self.high[node]:
            raise ContradictionError(self.low_why[node] | self.high_why[node])
        for rule in self._watchers[node]:
            self._schedule(rule)

    def evaluate(self, dim: Dim) -> Value:
        """What is known of a dim, from its nodes where it has some, else from its parts; makes no nodes."""
        total = exactly(0)
        for monomial, coefficient in dim.terms:
            total = plus(
                total, scale(self._evaluate_monomial(monomial), coefficient) if monomial else exactly(coefficient)
            )
        return total

    def _evaluate_monomial(self, monomial: Monomial) -> Value:
        if len(monomial) == 1:
            return self.evaluate_atom(monomial[0])
        product = reduce(times, (self.evaluate_atom(atom) for atom in monomial))
        node = self._products.get(monomial)
        return product if node is None else _narrower(product, self.value(node))

    def evaluate_atom(self, atom: Atom) -> Value:
        if atom.kind == "symbol":
            node = self._symbols.get(atom.name)
            return Value(low=0) if node is None else self.value(node)
        first, second = (self.evaluate(arg) for arg in atom.args)
        found = apply_atom(atom.kind, first, second)
        node = self._atoms.get(atom)
        return found if node is None else _narrower(found, self.value(node))


def _narrower(a: Value, b: Value) -> Value:
    """The intersection of two values."""
    low, high = max(a.low, b.low), min(a.high, b.high)
    joined = intersect_classes(a.modulus, a.residue, b.modulus, b.residue)
    why = a.why | b.why
    if joined is None or low > high:
        raise ContradictionError(why)
    return Value(low, high, *joined, why)


class Linear:
    """`sum of terms + constant` is at least zero, or equal to it."""

    def __init__(self, terms: Terms, constant: int, is_equal: bool, why: int = 0) -> None:
        self.terms, self.constant, self.is_equal, self.why = terms, constant, is_equal, why
        self.watched = [node for _, node in terms]

    def run(self, store: Store) -> None:
        self._at_least(store, 1)
        if self.is_equal:
            self._at_least(store, -1)
            self._classes(store)

    def _at_least(self, store: Store, sign: int) -> None:
        """Each term makes up for what all others lack at their most."""
        low, high = store.low, store.high
        total, free = sign * self.constant, -1
        for index, (coefficient, node) in enumerate(self.terms):
            bound = high[node] if coefficient * sign > 0 else low[node]
            if bound >= BIG or bound <= -BIG:
                if free >= 0:
                    return
                free = index
            else:
                total += coefficient * sign * bound
        if free >= 0:
            self._tighten(store, sign, free, total)
            return
        if total < 0:
            raise ContradictionError(self._reasons(store, sign, -1))
        for index, (coefficient, node) in enumerate(self.terms):
            factor = coefficient * sign
            self._tighten(store, sign, index, total - factor * (high[node] if factor > 0 else low[node]))

    def _tighten(self, store: Store, sign: int, index: int, others: int) -> None:
        """`factor * node + others >= 0`, where `others` is the maximum of all other terms."""
        coefficient, node = self.terms[index]
        factor = coefficient * sign
        if factor > 0:
            bound = -(others // factor)
            if bound > store.low[node]:
                store.raise_low(node, bound, self._reasons(store, sign, index))
        else:
            bound = others // -factor
            if bound < store.high[node]:
                store.lower_high(node, bound, self._reasons(store, sign, index))

    def _reasons(self, store: Store, sign: int, without: int) -> int:
        why = self.why
        for index, (coefficient, node) in enumerate(self.terms):
            if index != without:
                why |= store.high_why[node] if coefficient * sign > 0 else store.low_why[node]
        return why

    def _classes(self, store: Store) -> None:
        """Modulo what all other terms are multiples of, a term is known."""
        low, high, known = store.low, store.high, store.modulus
        unclassed = sum(known[node] == 1 and low[node] != high[node] for _, node in self.terms)
        if unclassed > 1 and all(abs(coefficient) == 1 for coefficient, _ in self.terms):
            return
        values = [store.value(node) for _, node in self.terms]
        classes = [residue_class(value) for value in values]
        moduli = [coefficient * modulus for (coefficient, _), (modulus, _) in zip(self.terms, classes, strict=True)]
        whole = self.constant + sum(c * residue for (c, _), (_, residue) in zip(self.terms, classes, strict=True))
        for index, (coefficient, node) in enumerate(self.terms):
            others = gcd(*moduli[:index], *moduli[index + 1 :])
            if others == 1:
                continue
            why = reduce(int.__or__, (value.why for at, value in enumerate(values) if at != index), self.why)
            solved = solve_class(coefficient, coefficient * classes[index][1] - whole, others)
            if solved is None:
                raise ContradictionError(why)
            store.intersect_class(node, *solved, why)


class NotZero:
    """`sum of terms + constant` is not zero: it cuts a bound of the last term that is not fixed."""

    def __init__(self, terms: Terms, constant: int, why: int) -> None:
        self.terms, self.constant, self.why = terms, constant, why
        self.watched = [node for _, node in terms]

    def run(self, store: Store) -> None:
        values = [(coefficient, node, store.value(node)) for coefficient, node in self.terms]
        free = [item for item in values if not item[2].is_fixed]
        if len(free) > 1:
            return
        total = self.constant + sum(coefficient * value.low for coefficient, _, value in values if value.is_fixed)
        why = reduce(int.__or__, (value.why for _, _, value in values), self.why)
        if not free:
            if total == 0:
                raise ContradictionError(why)
            return
        coefficient, node, value = free[0]
        if total % coefficient:
            return
        hole = -total // coefficient
        if value.low == hole:
            store.raise_low(node, hole + 1, why)
        elif value.high == hole:
            store.lower_high(node, hole - 1, why)


class ProductRule:
    """A node is the product of others."""

    def __init__(self, result: int, factors: Sequence[int]) -> None:
        self.result, self.factors = result, factors
        self.watched = list(dict.fromkeys((result, *factors)))

    def run(self, store: Store) -> None:
        values = [store.value(node) for node in self.factors]
        store.intersect(self.result, reduce(times, values))
        if not all(value.low >= 0 for value in values):
            return
        result = store.value(self.result)
        for index, node in enumerate(self.factors):
            others = reduce(times, (value for at, value in enumerate(values) if at != index))
            _divide_back(store, node, others, result)


def _divide_back(store: Store, node: int, others: Value, result: Value) -> None:
    """`node * others == result`, all at least 0."""
    why = others.why | result.why
    if others.low >= 1 and result.high < BIG:
        store.lower_high(node, result.high // others.low, why)
    if result.low >= 1:
        store.raise_low(node, -(-result.low // others.high) if 0 < others.high < BIG else 1, why)
    if others.is_fixed and others.low:
        solved = solve_class(others.low, result.residue, result.modulus) if result.modulus > 1 else (1, 0)
        if solved is None:
            raise ContradictionError(why)
        store.intersect_class(node, *solved, why)


class Division:
    """`quotient` and `remainder` of one node by another, both 0 where the divisor is 0."""

    def __init__(self, quotient: int, remainder: int, dividend: int, divisor: int) -> None:
        self.quotient, self.remainder, self.dividend, self.divisor = quotient, remainder, dividend, divisor
        self.watched = list(dict.fromkeys((quotient, remainder, dividend, divisor)))

    def run(self, store: Store) -> None:
        first, second = store.value(self.dividend), store.value(self.divisor)
        store.intersect(self.quotient, apply_atom("floordiv", first, second))
        store.intersect(self.remainder, apply_atom("mod", first, second))
        if second.low < 1:
            return
        if second.is_fixed:
            terms = ((1, self.dividend), (-second.low, self.quotient), (-1, self.remainder))
            Linear(terms, 0, True, second.why).run(store)
            return
        whole = plus(times(store.value(self.quotient), second), store.value(self.remainder))
        store.intersect(self.dividend, whole._replace(why=whole.why | second.why))


class MinMaxRule:
    """A node is the larger, or the smaller, of two others."""

    def __init__(self, kind: str, result: int, first: int, second: int) -> None:
        self.kind, self.result, self.first, self.second = kind, result, first, second
        self.watched = list(dict.fromkeys((result, first, second)))

    def run(self, store: Store) -> None:
        first, second = store.value(self.first), store.value(self.second)
        store.intersect(self.result, apply_atom(self.kind, first, second))
        result = store.value(self.result)
        limit: Callable[[int, int, int], None] = store.lower_high if self.kind == "max" else store.raise_low
        bound = result.high if self.kind == "max" else result.low
        for node in (self.first, self.second):
            limit(node, bound, result.why)
        for other, node in ((first, self.second), (second, self.first)):
            # What cannot reach the result leaves the other one to be it.
            if other.high < result.low if self.kind == "max" else other.low > result.high:
                store.intersect(node, result._replace(why=result.why | other.why))
