"""What a trace has assumed about free dims: equalities put into its types, and guards for the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from tessera.diagnostics.codes import SpecializationError
from tessera.diagnostics.error import Fix
from tessera.diagnostics.span import Span
from tessera.frontend.fixes import fixes_of
from tessera.frontend.lower_bounds import one_from, resolved
from tessera.frontend.several import is_several
from tessera.ir.base.tape import Guard, Record, Tape
from tessera.types.dim import Dim, minimum
from tessera.types.frozen import frozen
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.types.constraint import Answer, Constraint, ConstraintSolver


class Asker(Protocol):
    """Who needed an equality: an op at a line of the user's."""

    def named(self, message: str) -> str:
        """A message with operands called what the user calls them."""
        ...

    def shape_fix(self) -> Fix | None:
        """The edit of the op's operands after which nothing would have had to be assumed."""
        ...


@frozen
class Assumption:
    """`left == right` was needed, for this reason, at this place; `constraint` is the rule it is from, if any.

    `what` is what code carries, and is the same for the same op; `asker` can say it in the user's words.
    """

    left: Dim
    right: Dim
    what: str
    span: Span | None
    constraint: Constraint | None = None
    asker: Asker | None = None

    @property
    def rule(self) -> str:
        """The reason in the user's words."""
        return self.what if self.asker is None else self.asker.named(self.what)


@dataclass
class Facts:
    """Equalities among dims; `declared` are the names that the user's annotations leave free.

    A declared dim may meet another dim, or the size of a tensor that is given at the call and not declared; it may not
    be fixed to a number that the program's text decides. `at_least` are bounds that slices of free dims asked for.

    Where there are constraints, `solver` knows them and all that was assumed; `derived` are the equalities that they
    prove of shapes, and `proved` is a text of each and of constraints that others prove, with the constraints it is by.
    """

    declared: frozenset[str] = frozenset()
    order: dict[str, int] = field(default_factory=dict[str, int])
    values: dict[str, Dim] = field(default_factory=dict[str, Dim])
    at_least: dict[str, int] = field(default_factory=dict[str, int])
    assumptions: list[Assumption] = field(default_factory=list[Assumption])
    kept_alive: list[Any] = field(default_factory=list[Any])
    solver: ConstraintSolver | None = None
    names: dict[str, Dim] = field(default_factory=dict[str, Dim])
    proved: list[tuple[str, tuple[Constraint, ...]]] = field(default_factory=list[Any])
    derived: list[Assumption] = field(default_factory=list[Assumption])

    def anchor(self, type: TensorType) -> None:
        """Note the symbols of an input, in the order they are met."""
        for dim in type.shape:
            for symbol in sorted(dim.symbols):
                self.order.setdefault(symbol, len(self.order))

    def known(self, dim: Dim) -> Dim:
        """The dim with all equalities put in."""
        dim = self._substituted(dim)
        return resolved(dim, self.at_least) if self.at_least else dim

    def _substituted(self, dim: Dim) -> Dim:
        while self.values and dim.symbols & self.values.keys():
            dim = dim.substitute(self.values)
        return dim

    def suppose_one(self, dim: Dim, what: str, span: Span | None) -> bool:
        """Take a dim for 1 that is 1 for all but small sizes, as that of `x[:1]` is; False for any other."""
        dim = self.known(dim)
        found = one_from(dim)
        if dim.value == 1 or found is None:
            return dim.value == 1
        symbol, least = found
        self.assume(minimum(Dim.symbol(symbol), least), Dim.constant(least), f"{what}, with {symbol} >= {least}", span)
        self.at_least[symbol] = max(least, self.at_least.get(symbol, 0))
        return True

    def solver_in_use(self) -> ConstraintSolver:
        """The solver, made when there is a first constraint."""
        if self.solver is None:
            from tessera.types.constraint import Constraint, ConstraintSolver  # noqa: PLC0415 - few functions have any

            known = [Constraint.equality(item.left, item.right, item.span) for item in self.assumptions]
            self.solver = ConstraintSolver(known)
        return self.solver

    def decide(self, left: Dim, right: Dim) -> Answer | None:
        """What the constraints say of `left == right`; None where there are none."""
        if self.solver is None:
            return None
        from tessera.types.constraint import Constraint  # noqa: PLC0415 - see above

        return self.solver.decide(Constraint.equality(left, right))

    def derive(self, item: Assumption, because: tuple[Constraint, ...]) -> Dim:
        """Note an equality that the constraints prove, for those that look at the shapes later; the dim both are."""
        self.derived.append(item)
        self.proved.append((f"{item.left} == {item.right}", because))
        left, right = item.left, item.right
        return left if left.is_static or not right.is_static else right

    def assume(
        self,
        left: Dim,
        right: Dim,
        what: str,
        span: Span | None,
        constraint: Constraint | None = None,
        given: Collection[int] = (),
        asker: Asker | None = None,
    ) -> Dim:
        """Take `left == right` for true from here on, and give the dim both are.

        `given` are numbers that a declared dim may be: sizes of tensors that come with the call, undeclared.
        """
        item = Assumption(left, right, what, span, constraint, asker)
        self.assumptions.append(item)
        self._tell_solver(left, right, span, constraint)
        left, right = self.known(left), self.known(right)
        solved = self._solve(left, right)
        if solved is None:
            return left if left.is_static or not right.is_static else right
        symbol, value = solved
        is_fixed = value.is_static and symbol in self.declared and value.value not in given
        if is_fixed and constraint is None:
            raise SpecializationError(
                f"`{symbol}` is declared free, but here it must be {value}",
                span=span,
                notes=(f"rule: {item.rule}",),
                fix=lambda span: fixes_of("values").annotation_fix(span, symbol, value),
            )
        self.values = {name: dim.substitute({symbol: value}) for name, dim in self.values.items()}
        self.values[symbol] = value
        if symbol in self.at_least and value.symbol_name is not None:
            self.at_least[value.symbol_name] = max(self.at_least[symbol], self.at_least.get(value.symbol_name, 0))
        return self.known(left)

    def _tell_solver(self, left: Dim, right: Dim, span: Span | None, constraint: Constraint | None) -> None:
        if self.solver is None:
            return
        from tessera.types.constraint import Constraint  # noqa: PLC0415 - see above

        told = constraint or Constraint.equality(left, right, span)
        if told not in self.solver.constraints:
            self.solver.add(told)

    def _solve(self, left: Dim, right: Dim) -> tuple[str, Dim] | None:
        """The equality as `symbol = value`, replacing the symbol that was met last; None when it is not so simple."""
        gap = left - right
        solutions: list[tuple[str, Dim]] = []
        for symbol in gap.symbols:
            parts = gap.coefficient(symbol)
            if parts is None or parts[0].value not in (1, -1):
                continue
            value = -parts[1] if parts[0].value == 1 else parts[1]
            if value.symbol_name or (value.value is not None and value.value >= 0):
                solutions.append((symbol, value))
        return max(solutions, key=lambda pair: self.order.get(pair[0], 0), default=None)

    def settle(self, tape: Tape) -> None:
        """Put every equality into the types and attributes of a finished tape; what is left becomes its guards."""
        if self.values or self.at_least:
            _substitute(tape, self)
        seen: set[tuple[Dim, Dim]] = set()
        for item in (*self.assumptions, *self.derived):
            # Not by bounds: a guard that is one would be decided by itself.
            left, right = self._substituted(item.left), self._substituted(item.right)
            if left != right and (left, right) not in seen:
                seen.add((left, right))
                tape.guards.append(Guard(left, right, item.what, item.span))


def _substitute(tape: Tape, facts: Facts) -> None:
    tape.types[:] = [_known_type(type, facts) for type in tape.types]
    tape.records[:] = [_known_record(record, facts) for record in tape.records]


def _known_type(type: TensorType, facts: Facts) -> TensorType:
    return TensorType(tuple(facts.known(dim) for dim in type.shape), type.dtype)


def _known_record(record: Record, facts: Facts) -> Record:
    changed = {name: _known_attribute(value, facts) for name, value in record.attributes.items()}
    return record if _same(changed, record.attributes) else replace(record, attributes=changed)


def _known_attribute(value: Any, facts: Facts) -> Any:
    if isinstance(value, Dim):
        return facts.known(value)
    if isinstance(value, Tape):
        _substitute(value, facts)
        return value
    if is_several(value):
        return tuple(_known_attribute(item, facts) for item in value)
    return value


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return all(left[name] is right[name] for name in left)
