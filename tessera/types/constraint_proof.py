"""From constraints to bounds, and from bounds to proofs: equalities substituted, divisions expanded, rules added up.

Equalities that give a name a value are substituted everywhere; all others narrow the store. To prove `gap >= 0` the
interval of `gap` is asked first. Where that is too coarse, `gap` is rewritten into something that is at most as large:
a common factor dropped, a quotient or maximum replaced by a bound, a multiple of a known rule subtracted (as Farkas'
lemma adds up linear inequalities), a product bounded by its factors. Each rewriting is sound, so a proof that is found
holds; the search is cut off by `_LEVELS` and `_TRIALS`, and a proof that is not found means "unknown".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from tessera.types.constraint_store import ContradictionError, Linear, NotZero, Rule, Store
from tessera.types.constraint_text import Constraint
from tessera.types.dim import Atom, Dim, Monomial, product

_MOST_TERMS = 24
_LARGEST_COEFFICIENT = 1 << 128
"""Dims beyond these are left as they are: substitution could make them grow without end."""

_BOUNDS = frozenset(("<=", "<", ">=", ">", "in"))

_LEVELS, _TRIALS = 4, 48
"""How many rules a proof may add up, and how many attempts it has."""


class Proofs:
    """The rules of a solver, absorbed; reasons are sets of rules, a bit each."""

    def __init__(self) -> None:
        self.store = Store()
        self._values: dict[str, Dim] = {}
        self._whys: dict[str, int] = {}
        self._resolved: dict[str, tuple[Dim, int]] = {}
        self._facts: dict[Monomial, list[tuple[Dim, int]]] = {}
        self._trials = 0

    def absorb(self, constraints: Iterable[Constraint]) -> None:
        """Take constraints for true, bit by bit; raises `ContradictionError` where they exclude each other."""
        compound = [
            (item, 1 << index) for index, item in enumerate(constraints) if not self._post_simple(item, 1 << index)
        ]
        goals = [(kind, gap, why) for item, why in compound for kind, gap in item.goals()]
        others = [goal for goal in goals if not (goal[0] == "eq" and self._define(goal[1], goal[2]))]
        self._post_definitions()
        for kind, gap, why in others:
            self._post(kind, gap, why)
        if not self.store.propagate():
            self._find_cycles()

    # Equalities: a name with the coefficient 1 or -1 is replaced by the value that the equality gives it.

    def _define(self, gap: Dim, why: int) -> bool:
        """Use `gap == 0` to replace a name; False where it has none that stands alone."""
        gap, known_why = self.resolve(gap)
        why |= known_why
        if gap.value is not None:
            if gap.value:
                raise ContradictionError(why)
            return True
        solved = _solve(gap)
        if solved is None or solved[1].symbols & self._values.keys():
            return False
        name, value = solved
        self._values[name], self._whys[name] = value, why
        self._resolved.clear()
        return True

    def _post_definitions(self) -> None:
        """Tie each name to what stands for it, once all that is known has been substituted there."""
        for name in self._values:
            if name not in self._resolved:
                self._resolve(name)
            value, why = self._resolved[name]
            terms, constant = self.store.form(value)
            self.store.post(Linear((*terms, (-1, self.store.symbol(name))), constant, True, why))
            if any(coefficient < 0 for _, coefficient in value.terms):
                self._note(value, why)  # the name was at least 0, and so must be what stands for it

    def resolve(self, dim: Dim) -> tuple[Dim, int]:
        """The dim with names replaced by what they are equal to, and the rules that say so."""
        names = dim.symbols & self._values.keys()
        if not names:
            return dim, 0
        for name in names:
            if name not in self._resolved:
                self._resolve(name)
        env = {name: self._resolved[name][0] for name in names}
        why = self._may_replace(dim, env)
        if why is None:
            return dim, 0
        return dim.substitute(env), reduce(int.__or__, (self._resolved[name][1] for name in names), why)

    def _resolve(self, name: str) -> None:
        """Work out the value of a name down to names that have none, each once; chains may be long, so no recursion."""
        stack = [name]
        while stack:
            value, why = self._values[stack[-1]], self._whys[stack[-1]]
            inner = value.symbols & self._values.keys()
            pending = [other for other in inner if other not in self._resolved]
            if pending:
                stack += pending
                continue
            env = {other: self._resolved[other][0] for other in inner}
            reason = self._may_replace(value, env) if inner else None
            if reason is not None:
                value = value.substitute(env)
                why = reduce(int.__or__, (self._resolved[other][1] for other in inner), why | reason)
            self._resolved[stack.pop()] = value, why

    def _may_replace(self, dim: Dim, env: dict[str, Dim]) -> int | None:
        """The reasons why names in a dim may be replaced: it stays small, and no 0 // 0 is taken for exact; or None."""
        if not _is_small(dim, env):
            return None
        why = 0
        for atom in _atoms(dim):
            if not any(arg.symbols & env.keys() for arg in atom.args):
                continue
            inner = [found for arg in atom.args if (found := self._may_replace(arg, env)) is not None]
            if len(inner) < len(atom.args):
                return None
            divisor = atom.args[1].substitute(env)
            value = self.store.evaluate(divisor)
            if atom.kind == "floordiv" and not divisor.value and value.low < 1:
                return None
            why = reduce(int.__or__, inner, why | value.why)
        return why

    # Everything else narrows the store, and is kept to be added up with others.

    def _post(self, kind: str, gap: Dim, why: int) -> None:
        gap, known_why = self.resolve(gap)
        why |= known_why
        if gap.value is not None:
            holds = gap.value >= 0 if kind == "ge" else (gap.value == 0) == (kind == "eq")
            if not holds:
                raise ContradictionError(why)
            return
        if kind == "eq" and self._post_class(gap, why):
            return
        terms, constant = self.store.form(gap)
        if kind == "ne":
            self.store.post(NotZero(terms, constant, why))
            return
        self.store.post(Linear(terms, constant, kind == "eq", why))
        self._note(gap, why)
        if kind == "eq":
            self._note(-gap, why)

    def _post_simple(self, item: Constraint, why: int) -> bool:
        """`S <= 8192` and `D % 8 == 0`, the most common ones, bound a single name directly."""
        name, bound = item.left.symbol_name, item.right.value
        high = bound if item.high is None else item.high.value
        if bound is None or high is None:
            return False
        if name is None:
            (monomial, _), *tail = item.left.terms or (((), 0),)
            is_bare = not tail and len(monomial) == 1 and monomial[0].kind == "mod" and monomial[0].args[0].symbol_name
            return (
                bool(is_bare) and item.is_equality and self._post_class(item.left - bound if bound else item.left, why)
            )
        node, relation = self.store.symbol(name), item.relation
        if relation not in _BOUNDS:
            return False
        if relation in (">=", ">", "in"):
            self.store.raise_low(node, bound + (relation == ">"), why)
        if relation in ("<=", "<", "in"):
            self.store.lower_high(node, high - (relation == "<"), why)
        return True

    def _post_class(self, gap: Dim, why: int) -> bool:
        """`a % 8 == 3` is a residue class of `a`, with no need for a quotient and a remainder."""
        (monomial, coefficient), *tail = gap.terms
        if len(monomial) != 1 or monomial[0].kind != "mod" or abs(coefficient) != 1 or len(tail) > 1:
            return False
        residue = -coefficient * (tail[0][1] if tail else 0)
        dividend, modulus = monomial[0].args[0], monomial[0].args[1].value
        if (tail and tail[0][0]) or modulus is None or not 0 <= residue < modulus:
            return False
        self.store.intersect_class(self.store.node_of(dividend), modulus, residue, why)
        return True

    def _note(self, gap: Dim, why: int) -> None:
        """Keep `gap >= 0`, to be found by what it bounds from above."""
        if len(gap.terms) > 1:
            for monomial, coefficient in gap.terms:
                if coefficient < 0 and monomial:
                    self._facts.setdefault(monomial, []).append((gap, why))

    def _find_cycles(self) -> None:
        """Rules such as `x < y` and `y < x` push each other up for ever; added up they are a contradiction."""
        for gap, why in {gap: why for facts in self._facts.values() for gap, why in facts}.items():
            opposite = self.at_least_zero(-gap - 1)
            if opposite is not None:
                raise ContradictionError(opposite | why)

    def why_excluded(self, rule: Rule) -> int | None:
        """The reasons why a rule cannot hold, or None."""
        with self.store.supposing(rule):
            try:
                self.store.propagate()
            except ContradictionError as error:
                return error.why
        return None

    # Proofs.

    def simplify(self, gap: Dim) -> tuple[Dim, int]:
        """A dim of the same sign, with all that is known substituted and expanded."""
        gap, why = self.resolve(gap)
        for _ in range(8):
            if gap.value is not None:
                break
            step = next((found for atom in _atoms(gap) if (found := self._simpler(gap, atom)) is not None), None)
            if step is None or len(step[0].terms) > _MOST_TERMS:
                break
            gap, why = step[0], why | step[1]
        return gap, why

    def _simpler(self, gap: Dim, atom: Atom) -> tuple[Dim, int] | None:
        value = self.store.evaluate_atom(atom)
        if value.is_fixed:
            return _replace_atom(gap, atom, Dim.constant(value.low)), value.why
        if atom.kind == "symbol":
            return None
        first, second = atom.args
        if atom.kind in ("max", "min"):
            for smaller, larger in ((first, second), (second, first)):
                why = self.at_least_zero(larger - smaller, level=1)
                if why is not None:
                    return _replace_atom(gap, atom, larger if atom.kind == "max" else smaller), why
            return None
        if atom.kind == "mod":
            whys = self.at_least_zero(first, level=1), self.at_least_zero(second - first - 1, level=1)
            return None if None in whys else (_replace_atom(gap, atom, first), (whys[0] or 0) | (whys[1] or 0))
        return self._without_division(gap, atom)

    def _without_division(self, gap: Dim, atom: Atom) -> tuple[Dim, int] | None:
        """`second * gap`, with `second * (first // second)` written as `first` less the remainder that is known."""
        first, second = atom.args
        divisor = self.store.evaluate(second)
        left = self.store.evaluate_atom(Atom("mod", "", atom.args))
        if divisor.low < 1 or not left.is_fixed:
            return None
        factor, remainder = _split(gap, atom)
        return factor * (first - left.low) + remainder * second, divisor.why | left.why

    def at_least_zero(self, gap: Dim, level: int = _LEVELS) -> int | None:
        """The reasons why `gap >= 0`, or None where no proof is found."""
        self._trials = _TRIALS
        return self._at_least_zero(gap, level)

    def _at_least_zero(self, gap: Dim, level: int) -> int | None:
        value = self.store.evaluate(gap)
        if value.low >= 0:
            return value.why
        self._trials -= 1
        if level <= 0 or self._trials <= 0 or len(gap.terms) > _MOST_TERMS:
            return None
        for attempt in (self._drop_factor, self._expand_atoms, self._subtract_facts, self._bound_products):
            found = attempt(gap, level - 1)
            if found is not None:
                return found
        return None

    def _drop_factor(self, gap: Dim, level: int) -> int | None:
        """A common factor that is at least 0 does not matter."""
        for atom in gap.terms[0][0]:
            if all(atom in monomial for monomial, _ in gap.terms):
                value = self.store.evaluate_atom(atom)
                parts = _divide(gap, atom)
                found = self._at_least_zero(parts, level) if value.low >= 0 else None
                return None if found is None else found | value.why
        return None

    def _expand_atoms(self, gap: Dim, level: int) -> int | None:
        """A quotient by what it is at least or at most; a maximum or minimum by its parts."""
        for atom in _atoms(gap):
            times, remainder = _split(gap, atom)
            if atom.kind in ("symbol", "mod") or times.value is None:
                continue
            factor = times.value
            first, second = atom.args
            if atom.kind in ("max", "min"):
                found = [self._at_least_zero(remainder + arg * factor, level) for arg in atom.args]
                whys = [why for why in found if why is not None]
                # c*max(a, b) is at least either of c*a and c*b when c > 0, and is one of them in any case
                if (atom.kind == "max") == (factor > 0):
                    return whys[0] if whys else None
                return whys[0] | whys[1] if len(whys) == 2 else None
            if second.value is not None and second.value > 0:
                # `a // c >= n` says `a >= c*n`, and `a // c <= n` says `a <= c*n + c - 1`, for an integer n;
                # where a factor does not divide n, all that is used is that c*(a // c) is in a - c + 1..=a
                is_whole = all(coefficient % factor == 0 for _, coefficient in remainder.terms)
                slack = second.value - 1 if (factor > 0) != is_whole else 0
                return self._at_least_zero((first - slack) * factor + remainder * second.value, level)
        return None

    def _subtract_facts(self, gap: Dim, level: int) -> int | None:
        """`gap` is a multiple of a rule and something else that is at least zero."""
        for monomial, coefficient in gap.terms:
            if coefficient >= 0 or not monomial:
                continue
            for fact, why in self._facts.get(monomial, ()):
                other = next(count for factors, count in fact.terms if factors == monomial)
                if self._trials <= 0 or abs(coefficient * other) > _LARGEST_COEFFICIENT:
                    return None
                found = self._at_least_zero(gap * -other - fact * -coefficient, level)
                if found is not None:
                    return found | why
        return None

    def _bound_products(self, gap: Dim, level: int) -> int | None:
        """From `a >= 2` and `b >= 1` follows `(a - 2)*(b - 1) >= 0`, so `a*b` is at least `a + 2*b - 2`."""
        for monomial, coefficient in gap.terms:
            if coefficient <= 0 or len(monomial) < 2:
                continue
            first, second = Dim(((monomial[:1], 1),)), Dim(((monomial[1:], 1),))
            one, other = self.store.evaluate(first), self.store.evaluate(second)
            if one.low < 0 or other.low < 0 or one.low + other.low == 0:
                continue
            below = second * one.low + first * other.low - one.low * other.low
            found = self._at_least_zero(gap + (below - first * second) * coefficient, level)
            if found is not None:
                return found | one.why | other.why
        return None


def _solve(gap: Dim) -> tuple[str, Dim] | None:
    """`gap == 0` as (name, value): the name that stands most alone; None where none stands alone."""
    for monomial, coefficient in reversed(gap.terms):
        if len(monomial) == 1 and monomial[0].kind == "symbol" and coefficient in (1, -1):
            name = monomial[0].name
            remainder = gap - Dim(((monomial, coefficient),))
            if name not in remainder.symbols:
                return name, remainder if coefficient == -1 else -remainder
    return None


def _is_small(dim: Dim, env: dict[str, Dim]) -> bool:
    """Whether putting `env` into a dim keeps it short enough to work with: in terms, factors and coefficients."""
    total = 0
    for monomial, coefficient in dim.terms:
        count, degree = 1, 0
        for atom in monomial:
            value = env.get(atom.name) if atom.kind == "symbol" else None
            degree += 1 if value is None else _degree(value)
            count *= 1 if value is None else len(value.terms)
            if not all(_is_small(arg, env) for arg in atom.args):
                return False
        total += count
        if total > _MOST_TERMS or degree > _MOST_TERMS or abs(coefficient) > _LARGEST_COEFFICIENT:
            return False
    return True


def _degree(value: Dim) -> int:
    """The most factors of a term; a coefficient beyond use counts as too many."""
    is_large = any(abs(coefficient) > _LARGEST_COEFFICIENT for _, coefficient in value.terms)
    return _MOST_TERMS + 1 if is_large else max((len(monomial) for monomial, _ in value.terms), default=0)


def _atoms(dim: Dim) -> dict[Atom, None]:
    """The atoms of a dim, in order; those inside others are not among them."""
    return {atom: None for monomial, _ in dim.terms for atom in monomial}


def _split(dim: Dim, atom: Atom) -> tuple[Dim, Dim]:
    """(`a`, `b`) with `dim == a * atom + b`; `a` has the atom where `dim` has a power of it."""
    with_atom: list[tuple[Monomial, int]] = []
    without: list[tuple[Monomial, int]] = []
    for monomial, coefficient in dim.terms:
        if atom in monomial:
            at = monomial.index(atom)
            with_atom.append((monomial[:at] + monomial[at + 1 :], coefficient))
        else:
            without.append((monomial, coefficient))
    return Dim(tuple(with_atom)) + 0, Dim(tuple(without)) + 0


def _divide(dim: Dim, atom: Atom) -> Dim:
    """The dim divided by an atom that every term has."""
    terms: list[tuple[Monomial, int]] = []
    for monomial, coefficient in dim.terms:
        at = monomial.index(atom)
        terms.append((monomial[:at] + monomial[at + 1 :], coefficient))
    return Dim(tuple(terms)) + 0


def _replace_atom(dim: Dim, atom: Atom, value: Dim) -> Dim:
    """The dim with a value in place of an atom."""
    total = Dim.constant(0)
    for monomial, coefficient in dim.terms:
        factors = [value if factor == atom else Dim((((factor,), 1),)) for factor in monomial]
        total = total + product(factors) * coefficient
    return total
