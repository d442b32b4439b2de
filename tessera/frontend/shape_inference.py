"""Shape inference while tracing: equalities of symbolic dims proved, assumed (and guarded at run time) or refuted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from tessera.diagnostics.codes import BroadcastError, DTypeError, ShapeError, SpecializationError
from tessera.diagnostics.error import Fix, Span, TesseraError
from tessera.frontend.fixes import fixes_of
from tessera.frontend.pytree import is_sequence
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Guard, Record, Tape
from tessera.types.dim import Atom, Dim, maximum, minimum
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType, is_at_least, is_refuted

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace
    from tessera.types.constraint import Answer, Constraint, ConstraintSolver


# Dims under lower bounds of their symbols: which `min` and `max` the bounds decide, and which dims they make 1.


def resolve_min_max(dim: Dim, at_least: Mapping[str, int]) -> Dim:
    """The dim without the `min` and `max` that lower bounds of its symbols decide.

    >>> n = Dim.symbol("N")
    >>> str(resolve_min_max(minimum(n, 4) + maximum(n - 1, 0), {"N": 4}))
    'N + 3'
    """
    if dim.symbols.isdisjoint(at_least):
        return dim
    total = Dim.constant(0)
    for monomial, count in dim.terms:
        part = Dim.constant(count)
        for atom in monomial:
            part = part * _resolve_atom(atom, at_least)
        total = total + part
    return total


def _resolve_atom(atom: Atom, at_least: Mapping[str, int]) -> Dim:
    if atom.kind == "symbol":
        return Dim.symbol(atom.name)
    left, right = (resolve_min_max(part, at_least) for part in atom.args)
    if atom.kind in ("min", "max"):
        # Symbols are at least 0, so substituting `symbol + bound` covers exactly the values above the bounds.
        gap = (left - right).substitute({name: Dim.symbol(name) + least for name, least in at_least.items()})
        if is_at_least(gap, 0):
            return right if atom.kind == "min" else left
        if is_at_least(-gap, 0):
            return left if atom.kind == "min" else right
        return minimum(left, right) if atom.kind == "min" else maximum(left, right)
    return left // right if atom.kind == "floordiv" else left % right


_LARGE = (1_000_003, 2_000_029)


def least_value_for_one(dim: Dim) -> tuple[str, int] | None:
    """The symbol of a dim and the least value of it from which on the dim is 1; None where there is none.

    >>> least_value_for_one(minimum(Dim.symbol("N"), 1))
    ('N', 1)
    """
    if len(dim.symbols) != 1:
        return None
    (symbol,) = dim.symbols
    if any(dim.evaluate({symbol: value}) != 1 for value in _LARGE):
        return None
    for least in sorted({1, *(value for number in _numbers(dim) for value in (number, number + 1) if value > 1)}):
        if resolve_min_max(dim, {symbol: least}).value == 1:
            return symbol, least
    return None


def _numbers(dim: Dim) -> set[int]:
    """The absolute values of all numbers in a dim."""
    found = {abs(count) for _, count in dim.terms}
    for monomial, _ in dim.terms:
        for atom in monomial:
            found |= {number for part in atom.args for number in _numbers(part)}
    return found


# Facts about symbolic dims. A shape rule that needs `a == b` for two symbolic dims cannot ask for their values: the
# trace serves all of them. So the equality is proved (from the form of the dims, or by declared constraints), refuted
# (an error at the user's line), or assumed: one symbol is replaced by the other dim wherever it occurs, and whatever
# cannot be expressed as such a substitution becomes a guard, which compiled code checks at run time.


class Asker(Protocol):
    """What needed an equality: an op at a line of the user's code."""

    def name_operands(self, message: str) -> str:
        """A message with operands named as in the user's source."""
        ...

    def shape_fix(self) -> Fix | None:
        """The edit of the op's operands after which nothing needs to be assumed."""
        ...


@frozen
class Assumption:
    """`left == right` was needed at `span`, for reason `what`; `constraint` is the declared one behind it, if any.

    `what` is stored with compiled code, so it does not depend on names in the source; `asker` can rephrase it.
    """

    left: Dim
    right: Dim
    what: str
    span: Span | None
    constraint: Constraint | None = None
    asker: Asker | None = None

    @property
    def rule(self) -> str:
        """The reason, with operands named as in the user's source."""
        return self.what if self.asker is None else self.asker.name_operands(self.what)


@dataclass
class Facts:
    """Equalities among dims; `declared` are the symbolic dims that annotations name.

    A declared dim may be equal to another dim, or to the size of an argument without annotation; the program may not
    specialize it to a number. `at_least` are lower bounds that slices of symbolic dims need.

    With constraints, `solver` holds them and all assumptions; `derived` are the equalities of shapes that they prove,
    and `proved` is a string for each of these and for each redundant constraint, with the constraints that prove it.
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
        """Number the symbols of an input in order of appearance."""
        for dim in type.shape:
            for symbol in sorted(dim.symbols):
                self.order.setdefault(symbol, len(self.order))

    def resolve(self, dim: Dim) -> Dim:
        """The dim with all equalities substituted."""
        dim = self._substitute(dim)
        return resolve_min_max(dim, self.at_least) if self.at_least else dim

    def _substitute(self, dim: Dim) -> Dim:
        while self.values and dim.symbols & self.values.keys():
            dim = dim.substitute(self.values)
        return dim

    def assume_one(self, dim: Dim, what: str, span: Span | None) -> bool:
        """Assume that a dim is 1 which is 1 for all but small sizes, as that of `x[:1]`; False for any other dim."""
        dim = self.resolve(dim)
        found = least_value_for_one(dim)
        if dim.value == 1 or found is None:
            return dim.value == 1
        symbol, least = found
        self.assume(minimum(Dim.symbol(symbol), least), Dim.constant(least), f"{what}, with {symbol} >= {least}", span)
        self.at_least[symbol] = max(least, self.at_least.get(symbol, 0))
        return True

    def solver_in_use(self) -> ConstraintSolver:
        """The solver, made at the first constraint."""
        if self.solver is None:
            from tessera.types.constraint import Constraint, ConstraintSolver  # noqa: PLC0415 - few functions have any

            known = [Constraint.equality(item.left, item.right, item.span) for item in self.assumptions]
            self.solver = ConstraintSolver(known)
        return self.solver

    def decide(self, left: Dim, right: Dim) -> Answer | None:
        """Whether constraints prove or refute `left == right`; None without constraints."""
        if self.solver is None:
            return None
        from tessera.types.constraint import Constraint  # noqa: PLC0415 - see above

        return self.solver.decide(Constraint.equality(left, right))

    def derive(self, item: Assumption, because: tuple[Constraint, ...]) -> Dim:
        """Note an equality that constraints prove, for later passes over the shapes; returns the dim that both are."""
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
        """Assume `left == right` from here on; returns the dim that both are.

        `given` are numbers that a declared dim may equal: static sizes of arguments without annotation.
        """
        item = Assumption(left, right, what, span, constraint, asker)
        self.assumptions.append(item)
        self._tell_solver(left, right, span, constraint)
        left, right = self.resolve(left), self.resolve(right)
        solved = self._solve(left, right)
        if solved is None:
            return left if left.is_static or not right.is_static else right
        symbol, value = solved
        is_fixed = value.is_static and symbol in self.declared and value.value not in given
        if is_fixed and constraint is None:
            raise SpecializationError(
                f"`{symbol}` is declared symbolic, but this op specializes it to {value}",
                span=span,
                notes=(f"rule: {item.rule}",),
                fix=lambda span: fixes_of("operands").annotation_fix(span, symbol, value),
            )
        self.values = {name: dim.substitute({symbol: value}) for name, dim in self.values.items()}
        self.values[symbol] = value
        if symbol in self.at_least and value.symbol_name is not None:
            self.at_least[value.symbol_name] = max(self.at_least[symbol], self.at_least.get(value.symbol_name, 0))
        return self.resolve(left)

    def _tell_solver(self, left: Dim, right: Dim, span: Span | None, constraint: Constraint | None) -> None:
        if self.solver is None:
            return
        from tessera.types.constraint import Constraint  # noqa: PLC0415 - see above

        equality = constraint or Constraint.equality(left, right, span)
        if equality not in self.solver.constraints:
            self.solver.add(equality)

    def _solve(self, left: Dim, right: Dim) -> tuple[str, Dim] | None:
        """The equality as `symbol = value`, for the symbol that appeared last; None where it has no such form."""
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
        """Substitute all equalities into the types and attributes of a finished tape; the others become its guards."""
        if self.values or self.at_least:
            resolve_tape(tape, self)
        seen: set[tuple[Dim, Dim]] = set()
        for item in (*self.assumptions, *self.derived):
            # Without lower bounds: a guard that states such a bound would prove itself.
            left, right = self._substitute(item.left), self._substitute(item.right)
            if left != right and (left, right) not in seen:
                seen.add((left, right))
                tape.guards.append(Guard(left, right, item.what, item.span))


def resolve_tape(tape: Tape, facts: Facts) -> None:
    """Put all equalities so far into the types and attributes of a tape."""
    tape.types[:] = [_resolve_type(type, facts) for type in tape.types]
    tape.records[:] = [_resolve_record(record, facts) for record in tape.records]


def _resolve_type(type: TensorType, facts: Facts) -> TensorType:
    return TensorType(tuple(facts.resolve(dim) for dim in type.shape), type.dtype)


def _resolve_record(record: Record, facts: Facts) -> Record:
    changed = {name: _resolve_attribute(value, facts) for name, value in record.attributes.items()}
    return record if _same(changed, record.attributes) else replace(record, attributes=changed)


def _resolve_attribute(value: Any, facts: Facts) -> Any:
    if isinstance(value, Dim):
        return facts.resolve(value)
    if isinstance(value, Tape):
        resolve_tape(value, facts)
        return value
    if is_sequence(value):
        return tuple(_resolve_attribute(item, facts) for item in value)
    return value


def _same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return all(left[name] is right[name] for name in left)


MOST_BYTES = 2**63 - 1
"""The most bytes of one tensor: offsets are signed 64-bit integers."""


def check_bytes(spec: OpSpec, results: Sequence[TensorType], span: Span | None) -> None:
    """Raise for a result that no machine can address, while the user's line is known."""
    for type in results:
        size = type.size.value
        if size is not None and size * type.dtype.bits > MOST_BYTES * 8:
            bytes = -(-size * type.dtype.bits // 8)
            raise ShapeError(
                f"`{spec.name.split('.', 1)[1]}` gives {type}: {size} elements, {bytes} bytes",
                span=span,
                notes=(f"rule: a tensor has at most 2^63 - 1 = {MOST_BYTES} bytes",),
                fix="compute a part of it at a time",
            )


def check_sizes(trace: Trace, op: str, sizes: Iterable[Dim], span: Span | None) -> None:
    """Refuse sizes that are below zero, and guard those that may be: what is none could only fail as memory."""
    for size in sizes:
        if size.symbol_name is not None or (size.value is not None and size.value >= 0):
            continue
        known = trace.resolve(size)
        if is_at_least(-known, 1):
            raise ShapeError(f"`{op}` got a size below zero: {known}", span=span, fix="sizes are 0 or more")
        if not is_at_least(known, 0) and known.symbols <= trace.facts.order.keys():
            from tessera.frontend.constraints import assume_constraint  # noqa: PLC0415 - few functions have any
            from tessera.types.constraint import Constraint  # noqa: PLC0415

            assume_constraint(trace, Constraint(known, ">=", Dim.constant(0), span=span), span)


class Inference:
    """The `InferContext` of one op of a trace."""

    __slots__ = ("attributes", "operands", "span", "spec", "trace", "types")

    def __init__(
        self,
        trace: Trace,
        spec: OpSpec,
        operands: tuple[int, ...],
        span: Span | None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self.trace, self.spec, self.operands, self.span = trace, spec, operands, span
        self.attributes = attributes or {}
        self.types: list[TensorType] | None = None

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        facts = self.trace.facts
        left, right = facts.resolve(left), facts.resolve(right)
        if left == right:
            return left
        if is_refuted(left, right):
            raise self.fail(f"{what}: {left} and {right} differ")
        answer = facts.decide(left, right)
        if answer is not None and answer.is_proved:
            return facts.derive(Assumption(left, right, what, self.span), answer.because)
        if answer is not None and answer.is_refuted:
            from tessera.frontend.constraints import locations, quote_all  # noqa: PLC0415 - few functions have any

            error = self.fail(f"{what}: {left} and {right} differ because of {quote_all(answer.because)}")
            raise error.with_notes(*locations(answer.because)) if isinstance(error, TesseraError) else error
        self.types = self._types()  # as they are before the assumption: afterwards both dims are the same
        try:
            return facts.assume(left, right, what, self.span, given=self._given_sizes(), asker=self)
        except SpecializationError as error:
            raise error.with_fix(self.shape_fix()) from None

    def stretches(self, dim: Dim, other: Dim, what: str) -> bool:
        """Whether a dim is assumed to be a broadcast 1: that of `x[:1]` is, beside one that may be larger."""
        facts = self.trace.facts
        return least_value_for_one(facts.resolve(other)) is None and facts.assume_one(dim, what, self.span)

    def _given_sizes(self) -> frozenset[int]:
        """The static sizes of operands that come from arguments without annotation."""
        given = self.trace.given
        types = [self.trace.tape.types[value] for value in self.operands if value in given]
        return frozenset(dim.value for type in types for dim in type.shape if dim.value is not None)

    def fail(self, message: str, *, help: str = "") -> Exception:
        kind = BroadcastError if "cannot broadcast" in message else ShapeError
        return kind(
            self.name_operands(message), span=self.span, notes=self._notes(), fix=self.shape_fix() or help or None
        )

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        from tessera.frontend.fixes.operands import dtype_fix  # noqa: PLC0415 - for errors alone

        fix = dtype_fix(self.spec, self._types(), self.attributes, self.span)
        return DTypeError(self.name_operands(message), span=self.span, notes=self._notes(), fix=fix or help or None)

    def name_operands(self, message: str) -> str:
        """The message with operands named as in the user's source."""
        if not any(mark in message for mark in (".shape[", "_safe`", "` of ")):
            return message
        from tessera.frontend.fixes.operands import in_users_words  # noqa: PLC0415 - for errors and guards alone

        inputs, names = self.trace.tape.inputs, self.trace.tape.names
        is_named = not self.trace.is_eager
        known = [names[inputs.index(value)] if is_named and value in inputs else "" for value in self.operands]
        return in_users_words(self.spec, message, known, self.span)

    def shape_fix(self) -> Fix | None:
        """The edit after which the shape rule holds without assumptions, if there is one."""
        from tessera.frontend.fixes.operands import shape_fix  # noqa: PLC0415 - for errors alone

        return shape_fix(self.spec, self._types(), self.attributes, self.span)

    def _types(self) -> list[TensorType]:
        if self.types is not None:
            return self.types
        types = [self.trace.tape.types[value] for value in self.operands]
        return [type.with_shape(self.trace.resolve(dim) for dim in type.shape) for type in types]

    def _notes(self) -> tuple[str, ...]:
        """Where each operand was defined, once each; for eager ops by the text in the source, or the position."""
        if not self.trace.is_eager:
            return tuple(dict.fromkeys(self.trace.origin(value) for value in self.operands))
        from tessera.frontend.fixes.operands import operand_notes  # noqa: PLC0415 - for errors alone

        return operand_notes(self.spec, [self.trace.tape.types[value] for value in self.operands], self.span)
