"""Shape rules run on IR: what the guards of a function make equal, and what a rule may ask there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tessera.types.dim import Dim
from tessera.types.shape import is_refuted
from tessera.types.tensor_type import TensorType

GuardedPair: TypeAlias = tuple[Dim, Dim, str]
"""Two dims that a check at every call makes equal, and what for."""


class RuleError(Exception):
    """A shape rule says no; `advice` is its way out."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message, self.advice = message, advice


class Guards:
    """The equalities of one function, as a substitution where a side is a bare symbol, and as pairs where none is."""

    def __init__(self, pairs: Iterable[GuardedPair] = ()) -> None:
        self.pairs: list[GuardedPair] = []
        self._values: dict[str, Dim] = {}
        self._equal: set[frozenset[Dim]] = set()
        for pair in pairs:
            self.add(*pair)

    def add(self, left: Dim, right: Dim, what: str) -> None:
        self.pairs.append((left, right, what))
        left, right = self.known(left), self.known(right)
        for symbol, value in ((right.symbol_name, left), (left.symbol_name, right)):
            if symbol is not None and symbol not in value.symbols:
                self._values = {name: dim.substitute({symbol: value}) for name, dim in self._values.items()}
                self._values[symbol] = value
                return
        self._equal.add(frozenset((left, right)))

    def known(self, dim: Dim) -> Dim:
        """The dim with what the guards say put in."""
        return dim.substitute(self._values) if self._values else dim

    def are_equal(self, left: Dim, right: Dim) -> bool:
        if left == right:
            return True
        if not self.pairs:
            return False
        left, right = self.known(left), self.known(right)
        return left == right or frozenset((left, right)) in self._equal

    def are_same(self, left: TensorType, right: TensorType) -> bool:
        """Whether two types are one, given the guards."""
        return left == right or (
            left.dtype is right.dtype
            and left.rank == right.rank
            and all(self.are_equal(a, b) for a, b in zip(left.shape, right.shape, strict=True))
        )


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
