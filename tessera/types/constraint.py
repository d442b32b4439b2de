"""`ConstraintSolver`: what rules about sizes prove, refute or leave open; usable alone, on text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from tessera.types.constraint_proof import Proofs
from tessera.types.constraint_store import BIG, ContradictionError, Linear, Rule, Value
from tessera.types.constraint_text import Constraint, dim_text
from tessera.types.dim import Dim, DimLike
from tessera.types.frozen import frozen

_MOST_REASONS = 12
"""Longer explanations are given as they were found; shorter ones are tried without each of their parts."""


class Verdict(StrEnum):
    """What a solver says of a constraint: true in all cases, true in none, or neither is known."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@frozen
class Answer:
    """A verdict and the constraints that led to it; none for what is true or false by itself."""

    verdict: Verdict
    because: tuple[Constraint, ...] = ()

    @property
    def is_proved(self) -> bool:
        return self.verdict is Verdict.PROVED

    @property
    def is_refuted(self) -> bool:
        return self.verdict is Verdict.REFUTED

    def __str__(self) -> str:
        reasons = ", ".join(f"`{item.text}`" for item in self.because)
        return f"{self.verdict}{f' by {reasons}' if reasons else ''}"


UNKNOWN = Answer(Verdict.UNKNOWN)


class ConstraintSolver:
    """Rules about sizes, and what follows from them.

    Sizes are integers of at least 0. Answers are sound (what is proved holds for all sizes that the rules allow, what
    is refuted for none of them) and always come: every search has a fixed bound, and what is beyond it is `unknown`.
    Where the rules exclude each other, `contradiction` says so, and every question is refuted by it.

    >>> solver = ConstraintSolver.of("D % 8 == 0", "D = H*Dh")
    >>> print(solver.decide(Constraint.parse("8*(H*Dh // 8) == D")))
    proved by `D % 8 == 0`, `D = H*Dh`
    >>> print(solver.decide(Constraint.parse("D == 100")), solver.decide(Constraint.parse("D <= 64")), sep="; ")
    refuted by `D % 8 == 0`; unknown
    """

    def __init__(self, constraints: Iterable[Constraint] = ()) -> None:
        self.constraints: list[Constraint] = list(constraints)
        self._proofs = Proofs()
        self._is_stale = True
        self._contradiction: int | None = None

    @staticmethod
    def of(*texts: str) -> ConstraintSolver:
        return ConstraintSolver(Constraint.parse(text) for text in texts)

    def add(self, constraint: Constraint) -> None:
        """One more rule."""
        self.constraints.append(constraint)
        self._is_stale = True

    @property
    def contradiction(self) -> Answer | None:
        """The rules that exclude each other, if some were found to."""
        self._settle()
        return None if self._contradiction is None else self._answer(Verdict.REFUTED, self._contradiction)

    def decide(self, constraint: Constraint) -> Answer:
        """Whether a constraint follows from the rules, contradicts them, or neither is known."""
        verdict, why = self._verdict(constraint)
        return UNKNOWN if verdict is Verdict.UNKNOWN else self._answer(verdict, why, constraint)

    def are_equal(self, left: DimLike, right: DimLike) -> bool:
        """Whether two sizes are proved to be one."""
        verdict, _ = self._verdict(Constraint.equality(left, right))
        return verdict is Verdict.PROVED and self._contradiction is None

    def resolve(self, dim: Dim) -> Dim:
        """The dim with all equalities substituted that give a name a value."""
        self._settle()
        try:
            return dim if self._contradiction is not None else self._proofs.resolve(dim)[0]
        except ContradictionError as error:
            self._contradiction = error.why
            return dim

    def value(self, dim: DimLike) -> Value:
        """The interval and the residue class of a size."""
        self._settle()
        if self._contradiction is not None:
            return Value()
        try:
            return self._proofs.store.evaluate(self._proofs.resolve(Dim.of(dim))[0])
        except ContradictionError as error:
            self._contradiction = error.why
            return Value()

    def _settle(self) -> None:
        """Work out what the rules say of each size, when there are new ones."""
        if not self._is_stale:
            return
        self._is_stale, self._contradiction = False, None
        self._proofs = Proofs()
        try:
            self._proofs.absorb(self.constraints)
        except ContradictionError as error:
            self._contradiction = error.why

    def _verdict(self, constraint: Constraint) -> tuple[Verdict, int]:
        self._settle()
        if self._contradiction is not None:
            return Verdict.REFUTED, self._contradiction
        try:
            found = [self._decide(kind, gap) for kind, gap in constraint.goals()]
        except ContradictionError as error:
            self._contradiction = error.why
            return Verdict.REFUTED, error.why
        for verdict, why in found:
            if verdict is Verdict.REFUTED:
                return verdict, why
        if all(verdict is Verdict.PROVED for verdict, _ in found):
            return Verdict.PROVED, _union(why for _, why in found)
        return Verdict.UNKNOWN, 0

    def _decide(self, kind: str, gap: Dim) -> tuple[Verdict, int]:
        """The verdict on one comparison with zero; `ne` is the negation of `eq`."""
        if kind == "ne":
            verdict, why = self._decide("eq", gap)
            return _OPPOSITE[verdict], why
        gap, why = self._proofs.simplify(gap)
        if gap.value is not None:
            holds = gap.value >= 0 if kind == "ge" else gap.value == 0
            return (Verdict.PROVED if holds else Verdict.REFUTED), why
        found = self._by_sign(kind, gap) or self._by_supposing(kind, gap)
        return _OPEN if found is None else (found[0], found[1] | why)

    def _by_sign(self, kind: str, gap: Dim) -> tuple[Verdict, int] | None:
        """From bounds, residues and sums of rules."""
        proofs = self._proofs
        value = proofs.store.evaluate(gap)
        if kind == "eq" and value.excludes_zero:
            return Verdict.REFUTED, value.why
        above, below = proofs.at_least_zero(gap), proofs.at_least_zero(-gap - (1 if kind == "ge" else 0))
        if kind == "ge":
            if above is not None:
                return Verdict.PROVED, above
            return None if below is None else (Verdict.REFUTED, below)
        if above is not None and below is not None:
            return Verdict.PROVED, above | below
        for signed in (gap, -gap):
            apart = proofs.at_least_zero(signed - 1)
            if apart is not None:
                return Verdict.REFUTED, apart
        return None

    def _by_supposing(self, kind: str, gap: Dim) -> tuple[Verdict, int] | None:
        """What would follow from it, and from its opposite: a contradiction decides."""
        terms, constant = self._proofs.store.form(gap)
        self._proofs.store.propagate()
        holds: Rule = Linear(terms, constant, kind == "eq")
        refuted = self._proofs.why_excluded(holds)
        if refuted is not None:
            return Verdict.REFUTED, refuted
        negated = tuple((-coefficient, node) for coefficient, node in terms)
        opposite = [Linear(negated, -constant - 1, False)]
        if kind == "eq":
            opposite.append(Linear(terms, constant - 1, False))
        reasons = [self._proofs.why_excluded(rule) for rule in opposite]
        whys = [why for why in reasons if why is not None]
        return (Verdict.PROVED, _union(whys)) if len(whys) == len(opposite) else None

    def _answer(self, verdict: Verdict, why: int, asked: Constraint | None = None) -> Answer:
        found = [item for index, item in enumerate(self.constraints) if why >> index & 1]
        return Answer(verdict, tuple(self._drop_unneeded(found, verdict, asked)))

    @staticmethod
    def _drop_unneeded(found: Sequence[Constraint], verdict: Verdict, asked: Constraint | None) -> Sequence[Constraint]:
        """The constraints without those that the verdict does not need."""
        if len(found) < 2 or len(found) > _MOST_REASONS:
            return found
        kept = list(found)
        for item in found:
            fewer = [other for other in kept if other is not item]
            solver = ConstraintSolver(fewer)
            solver._settle()
            if asked is None:
                is_enough = solver._contradiction is not None
            else:
                is_enough = solver._contradiction is None and solver._verdict(asked)[0] is verdict
            kept = fewer if is_enough else kept
        return kept


_OPEN = (Verdict.UNKNOWN, 0)
_OPPOSITE = {
    Verdict.PROVED: Verdict.REFUTED,
    Verdict.REFUTED: Verdict.PROVED,
    Verdict.UNKNOWN: Verdict.UNKNOWN,
}


def _union(whys: Iterable[int]) -> int:
    total = 0
    for why in whys:
        total |= why
    return total


@frozen
class Known:
    """What the rules leave of one size."""

    name: str
    value: Value
    definition: Dim | None = None

    def __str__(self) -> str:
        low, high, modulus, residue, _ = self.value
        if self.value.is_fixed:
            return f"{self.name} = {low}"
        text = f"{self.name} in {low}..={high}" if high < BIG else f"{self.name} >= {low}"
        text += f", {self.name} % {modulus} == {residue}" if modulus > 1 else ""
        return text + (f", {self.name} = {dim_text(self.definition)}" if self.definition is not None else "")


@frozen
class Report:
    """What a text of rules and questions amounts to; printed, one line each."""

    contradiction: Answer | None
    sizes: tuple[Known, ...]
    answers: tuple[tuple[Constraint, Answer], ...]

    def __str__(self) -> str:
        if self.contradiction is not None:
            return "contradiction: " + ", ".join(f"`{item.text}`" for item in self.contradiction.because)
        lines = [str(size) for size in self.sizes]
        return "\n".join([*lines, *(f"`{asked.text}` is {answer}" for asked, answer in self.answers)])


def solve(text: str) -> Report:
    """Rules, one a line or several with `;`, and questions, which begin with `?`; `#` begins a comment.

    Raises: ConstraintError (T0105) at a line that is neither.

    >>> print(solve("D % 8 == 0; D in 1..=100  # a size \\n ? D <= 96"))
    D in 8..=96, D % 8 == 0
    `D <= 96` is proved by `D % 8 == 0`, `D in 1..=100`
    """
    lines = [part.strip() for line in text.splitlines() for part in line.split("#")[0].split(";")]
    rules = [Constraint.parse(line, None) for line in lines if line and not line.startswith("?")]
    questions = [Constraint.parse(line[1:], None) for line in lines if line.startswith("?")]
    solver = ConstraintSolver(rules)
    if solver.contradiction is not None:
        return Report(solver.contradiction, (), ())
    names = sorted({name for rule in rules for name in rule.symbols})
    sizes = tuple(Known(name, solver.value(name), _definition(solver, name)) for name in names)
    return Report(None, sizes, tuple((asked, solver.decide(asked)) for asked in questions))


def _definition(solver: ConstraintSolver, name: str) -> Dim | None:
    known = solver.resolve(Dim.symbol(name))
    return None if known.symbol_name == name else known


def main(arguments: Sequence[str]) -> int:
    """`python -m tessera.types.constraint [FILE]`: report on a file, or on what is typed; 1 for a contradiction."""
    import sys  # noqa: PLC0415 - for the command alone
    from pathlib import Path  # noqa: PLC0415

    from tessera.diagnostics.codes import ConstraintError  # noqa: PLC0415

    try:
        report = solve(Path(arguments[0]).read_text(encoding="utf-8") if arguments else sys.stdin.read())
    except (ConstraintError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    return 1 if report.contradiction is not None else 0


__all__ = ["Answer", "Constraint", "ConstraintSolver", "Known", "Report", "Verdict", "dim_text", "main", "solve"]

if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
