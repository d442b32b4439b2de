"""`Size`: a symbolic dim as Python code sees it while tracing: it has arithmetic, but no value."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import index
from typing import Any, NoReturn, TypeAlias

from tessera.diagnostics.codes import ShapeError, SpecializationError
from tessera.diagnostics.error import FixLike, Span, readable, user_span
from tessera.diagnostics.frames import guard_class
from tessera.frontend.concrete import Tracer
from tessera.frontend.fixes import fixes_of
from tessera.ir.base import dispatch
from tessera.types.dim import Dim

Proof: TypeAlias = "Callable[[Dim], bool]"


def _operator(combine: Callable[[Dim, Dim], Dim], *, divides: bool = False) -> Callable[[Size, Any], Any]:
    """The method of an operator that gives a size; one that divides takes no 0, as none of an integer does."""

    def method(self: Size, other: Any) -> Any:
        if isinstance(other, float):
            _refuse(self, "combined with a float", _scalar_fix)
        if isinstance(other, bool) or not isinstance(other, int | Size | Dim):
            return NotImplemented
        if divides and isinstance(other, int) and other == 0:
            raise ShapeError(f"`{self}` is divided by 0", fix="divide by a size of at least 1")
        return size_of(combine(self.dim, dim_of(other)))

    return method


@guard_class
class Size:
    """A symbolic dim of a traced tensor.

    Sizes add, multiply and divide into sizes. A comparison that holds (or fails) for every value gives a bool; any
    other comparison is a `Condition`, which may be required (`tessera.require(S % 8 == 0)`). Whatever else needs the
    value would specialize the dim, and raises `SpecializationError` (T0205).
    """

    __slots__ = ("dim",)

    def __init__(self, dim: Dim) -> None:
        self.dim = dim

    def __repr__(self) -> str:
        return readable(str(self.dim))

    def __hash__(self) -> int:
        return hash(self.dim)

    __add__ = __radd__ = _operator(Dim.__add__)
    __mul__ = __rmul__ = _operator(Dim.__mul__)
    __sub__, __rsub__ = _operator(Dim.__sub__), _operator(lambda own, given: given - own)
    __floordiv__, __mod__ = _operator(Dim.__floordiv__, divides=True), _operator(Dim.__mod__, divides=True)
    __rfloordiv__, __rmod__ = _operator(lambda own, given: given // own), _operator(lambda own, given: given % own)

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, int) and not isinstance(power, bool) and 0 <= power <= _HIGHEST_POWER:
            return size_of(prod([self.dim] * power, start=Dim.constant(1)))
        if not isinstance(power, int | float | Size):
            return NotImplemented
        return _refuse(self, "raised to a power", _scalar_fix)

    def __rpow__(self, base: Any) -> Any:
        if not isinstance(base, int | float):
            return NotImplemented
        return _refuse(self, "an exponent", _scalar_fix)

    def __rtruediv__(self, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        return _refuse(self, "a divisor", _scalar_fix)

    def __neg__(self) -> Any:
        return size_of(-self.dim)

    def __truediv__(self, other: Any) -> Any:
        if not isinstance(other, int | float | Size | Dim):
            return NotImplemented
        return _refuse(self, "divided with `/`", "write `//` for a size, or divide a tensor by it")

    def __eq__(self, other: object) -> bool:
        return _compare(self, other, "==", _is_zero, _is_never_zero)

    def __ne__(self, other: object) -> bool:
        return _compare(self, other, "!=", _is_never_zero, _is_zero)

    def __lt__(self, other: Any) -> bool:
        return _compare(self, other, "<", lambda gap: _at_most(gap, -1), lambda gap: _at_least(gap, 0))

    def __le__(self, other: Any) -> bool:
        return _compare(self, other, "<=", lambda gap: _at_most(gap, 0), lambda gap: _at_least(gap, 1))

    def __gt__(self, other: Any) -> bool:
        return _compare(self, other, ">", lambda gap: _at_least(gap, 1), lambda gap: _at_most(gap, 0))

    def __ge__(self, other: Any) -> bool:
        return _compare(self, other, ">=", lambda gap: _at_least(gap, 0), lambda gap: _at_most(gap, -1))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        return _refuse(self, "converted to a number", lambda span: fixes_of("statements").size_fix(span, _LOOP_HELP))

    def __int__(self) -> int:
        return _refuse(self, "converted to a number", lambda span: _itself_fix(span, "int"))

    def __float__(self) -> float:
        return _refuse(self, "converted to a number", lambda span: _itself_fix(span, "float"))

    def __format__(self, spec: str) -> str:
        """Its name where nothing more is asked; the format of a number needs the number."""
        return repr(self) if not spec else _refuse(self, f"formatted with `:{spec}`", "write it without a format")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse(self, "given to NumPy", _scalar_fix)

    def __array_ufunc__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse(self, "given to NumPy", _scalar_fix)


def _itself_fix(span: Span | None, called: str) -> Any:
    """The size itself in place of `int(size)`, or ours of a function that wants a number, as `math.sqrt` does."""
    advice = "use it in tensor arithmetic instead, where it stays symbolic"
    found = fixes_of("operands").itself_fix(span, advice, (called,))
    return found if found != advice else fixes_of("statements").scalar_size_fix(span, advice)


def _scalar_fix(span: Span | None) -> Any:
    return fixes_of("statements").scalar_size_fix(span, _SCALAR_HELP)


_HIGHEST_POWER = 8
"""The highest power of a size that is a size again: a higher one is more likely a mistake."""
_SCALAR_HELP = "convert it to a scalar tensor first, as in `tessera.ops.cast(x.shape[1], tessera.f32) ** -0.5`"
_LOOP_HELP = "loop with `tessera.fori_loop` or `tessera.scan`, or write a number in the annotation to make it static"


def _refuse(size: Size, what: str, help: FixLike) -> NoReturn:
    raise SpecializationError(
        f"`{size}` is a symbolic dim and cannot be {what} here",
        notes=("one trace serves all values of it, so the value is unknown while tracing",),
        fix=help,
    )


def length_of(size: Any) -> int:
    """A size for `len`, which must return an int."""
    if isinstance(size, int):
        return size
    _refuse(size, "converted to a number", lambda span: fixes_of("operands").length_fix(span))


def loop_range(size: Any) -> range:
    """The iterations of a Python loop over an axis of this size: each is traced by itself (unrolled)."""
    if isinstance(size, int):
        return range(size)
    _refuse(size, "the length of a Python loop", lambda span: fixes_of("statements").size_fix(span, _LOOP_HELP))


def size_of(dim: Dim) -> Any:
    """What Python code sees of a dim: an int where it is static, else a `Size`."""
    return Size(dim) if dim.value is None else dim.value


def dim_of(value: Any) -> Dim:
    """The dim of an int, a `Size`, a `Dim`, or a NumPy integer; raises `ShapeError` (T0101) for anything else."""
    if isinstance(value, Size):
        return value.dim
    if isinstance(value, Dim):
        return value
    if isinstance(value, bool | type) or not hasattr(value, "__index__"):
        raise _not_a_size_error(value)
    try:
        return Dim.constant(index(value))
    except TypeError:
        raise _not_a_size_error(value) from None


def _not_a_size_error(value: Any) -> ShapeError:
    if isinstance(value, Tracer):
        advice = "pass it as a Python int, which is static, or take a size from a shape, as in `x.shape[0]`"
        return ShapeError(f"a size must be known while tracing, and {value!r} is traced", fix=advice)
    text = repr(value)
    return ShapeError(f"{text if len(text) <= 40 else type(value).__name__} is not a size", fix="a size is an int")


@guard_class
class Condition:
    """A comparison of sizes that holds for some values only: it may be required, or decided by constraints.

    `answer` is what the constraints of the trace prove; None where they do not decide it.
    """

    __slots__ = ("answer", "left", "relation", "right", "span")

    def __init__(self, left: Dim, relation: str, right: Dim, span: Span | None, answer: bool | None) -> None:
        self.left, self.relation, self.right, self.span, self.answer = left, relation, right, span, answer

    def __repr__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"

    def __bool__(self) -> bool:
        if self.answer is not None:
            return self.answer
        raise SpecializationError(
            f"the branch `{self}` depends on a symbolic dim",
            span=self.span,
            notes=(f"`{self.left}` is symbolic, and the condition holds for some of its values only",),
            fix=lambda span: fixes_of("operands").branch_fix(span),
        )


def _compare(own: Size, other: Any, relation: str, holds: Proof, fails: Proof) -> Any:
    """A bool where the comparison has the same answer for all values of symbolic dims, else a `Condition`."""
    if isinstance(other, bool) or not isinstance(other, int | Size | Dim):
        return NotImplemented
    right = dim_of(other)
    trace = dispatch.tracing()
    resolve = getattr(trace, "resolve", None)
    gap = own.dim - right if resolve is None else resolve(own.dim - right)
    if holds(gap):
        return True
    if fails(gap):
        return False
    condition = Condition(own.dim, relation, right, user_span(), _by_constraints(trace, own.dim, relation, right))
    return condition if trace is not None else bool(condition)


def _by_constraints(trace: Any, left: Dim, relation: str, right: Dim) -> bool | None:
    facts = getattr(trace, "facts", None)
    if facts is None or facts.solver is None:
        return None
    from tessera.types.constraint import Constraint  # noqa: PLC0415 - few functions have any

    answer = facts.solver.decide(Constraint(left, relation, right))
    return answer.is_proved if answer.is_proved or answer.is_refuted else None


def _is_zero(gap: Dim) -> bool:
    return gap.value == 0


def _at_least(gap: Dim, bound: int) -> bool:
    """Whether the gap is at least `bound` for all sizes: sizes are never negative, so positive terms only add."""
    return all(count >= 0 for monomial, count in gap.terms if monomial) and _constant(gap) >= bound


def _at_most(gap: Dim, bound: int) -> bool:
    return all(count <= 0 for monomial, count in gap.terms if monomial) and _constant(gap) <= bound


def _is_never_zero(gap: Dim) -> bool:
    return _at_least(gap, 1) or _at_most(gap, -1)


def _constant(gap: Dim) -> int:
    return next((count for monomial, count in gap.terms if not monomial), 0)
