"""Shape rules run on IR: what the guards of a function make equal, and what a rule may ask there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tessera.types.dim import Dim
from tessera.types.shape import TensorType, is_refuted

if TYPE_CHECKING:
    from tessera.types.constraint import ConstraintSolver

GuardedPair: TypeAlias = tuple[Dim, Dim, str]
"""Two dims that a check at every call makes equal, and what for."""


class RuleError(Exception):
    """A shape rule says no; `advice` is its way out."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message, self.advice = message, advice


class Guards:
    """The equalities of one function, as a substitution where a side is a bare symbol, and as pairs where none is.

    What neither settles is asked of a solver, which also sees what bounds and remainders among the pairs imply.
    """

    def __init__(self, pairs: Iterable[GuardedPair] = ()) -> None:
        self.pairs: list[GuardedPair] = []
        self._values: dict[str, Dim] = {}
        self._equal: set[frozenset[Dim]] = set()
        self._solver: ConstraintSolver | None = None
        self._answers: dict[tuple[Dim, Dim], bool] = {}
        for pair in pairs:
            self.add(*pair)

    def add(self, left: Dim, right: Dim, what: str) -> None:
        self.pairs.append((left, right, what))
        self._solver = None
        self._answers.clear()
        left, right = self.resolve(left), self.resolve(right)
        for symbol, value in ((right.symbol_name, left), (left.symbol_name, right)):
            if symbol is not None and symbol not in value.symbols:
                self._values = {name: dim.substitute({symbol: value}) for name, dim in self._values.items()}
                self._values[symbol] = value
                return
        self._equal.add(frozenset((left, right)))

    def resolve(self, dim: Dim) -> Dim:
        """The dim with what the guards say put in."""
        return dim.substitute(self._values) if self._values else dim

    def are_equal(self, left: Dim, right: Dim) -> bool:
        if left == right:
            return True
        if not self.pairs:
            return False
        left, right = self.resolve(left), self.resolve(right)
        return left == right or frozenset((left, right)) in self._equal or self._are_proved_equal(left, right)

    def _are_proved_equal(self, left: Dim, right: Dim) -> bool:
        if not self._equal or is_refuted(left, right):
            return False
        found = self._answers.get((left, right))
        if found is None:
            if self._solver is None:
                self._solver = _solver_of(self.pairs)
            found = self._answers[left, right] = self._solver.are_equal(left, right)
        return found

    def are_same(self, left: TensorType, right: TensorType) -> bool:
        """Whether two types are one, given the guards."""
        return left == right or (
            left.dtype is right.dtype
            and left.rank == right.rank
            and all(self.are_equal(a, b) for a, b in zip(left.shape, right.shape, strict=True))
        )


def _solver_of(pairs: Iterable[GuardedPair]) -> ConstraintSolver:
    from tessera.types.constraint import Constraint, ConstraintSolver  # noqa: PLC0415 - few functions need it

    return ConstraintSolver(Constraint.equality(left, right) for left, right, _ in pairs)


def needed_checks(pairs: Sequence[GuardedPair]) -> list[GuardedPair]:
    """The pairs without those that the ones before them prove: what is proved is not checked."""
    if len(pairs) < 2:
        return list(pairs)
    kept: list[GuardedPair] = []
    solver = _solver_of(())
    for pair in pairs:
        if not solver.are_equal(pair[0], pair[1]):
            kept.append(pair)
            solver = _solver_of(kept)
    return kept


class RuleContext:
    """The `InferContext` of rules run on IR.

    What is neither equal nor refuted goes to `unproved`, which guards it (while a pass builds) or raises (while the
    verifier looks: a function must carry the guards that its shapes rely on).
    """

    def __init__(self, guards: Guards, unproved: Callable[[Dim, Dim, str], None] | None = None) -> None:
        self.guards, self._unproved = guards, unproved

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        if self.guards.are_equal(left, right):
            return left
        if is_refuted(left, right):
            raise self.fail(f"{what}: {left} and {right} differ")
        if self._unproved is None:
            raise self.fail(f"{what}: nothing says that {left} and {right} are equal", help="add it to `guards`")
        self._unproved(left, right, what)
        return left if left.is_static or not right.is_static else right

    def fail(self, message: str, *, help: str = "") -> Exception:
        return RuleError(message, help)

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        return RuleError(message, help)
