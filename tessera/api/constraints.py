"""Rules about sizes, on a function (`constrain`) and inside one (`require`), and what else `jit` is given by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tessera.api.jit import CONSTRAINTS, Jit
from tessera.diagnostics.codes import ArgumentError, ConstraintError
from tessera.diagnostics.error import Span, user_span
from tessera.frontend.annotations import Parameter
from tessera.frontend.constraints import assume_constraint, parse_constraints
from tessera.frontend.size import Condition, dim_of
from tessera.ir.base import dispatch
from tessera.types.constraint import Constraint

if TYPE_CHECKING:
    from tessera.types.constraint import Constraint


# What few functions give `jit` as texts: parameters whose tensors are donated, and rules of sizes.


def donated_names(names: Sequence[str], parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """The parameters whose tensors are donated, each once; raises ArgumentError (T0202) for one that has none."""
    known = [parameter.name for parameter in parameters if not parameter.static]
    for name in names:
        if name not in known:
            raise ArgumentError(
                f"`jit` takes names of parameters with tensors as `donate`, and `{name}` is none",
                fix=f"parameters are {', '.join(known)}" if known else "leave `donate` out",
            )
    return tuple(sorted(set(names)))


def numbers_of(names: Sequence[str], paths: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the tensors that belong to some parameters, by the paths of all (`cache.K`, `layers[0]['w']`)."""
    owners = [path.replace("[", ".").split(".")[0] for path in paths]
    return tuple(number for number, owner in enumerate(owners) if owner in names)


def parse_rules(constraints: Iterable[str] | str) -> Sequence[Constraint]:
    """Rules that sizes must keep, as they were written."""
    return parse_constraints(constraints, user_span())


F = TypeVar("F", bound=Callable[..., Any])


def constrain(*constraints: str) -> Callable[[F], F]:
    """Declare constraints on the sizes of a function's arguments; written above or below `@jit`.

    Raises: ConstraintError (T0105) at decoration, where a rule is none or contradicts another.

    >>> @ts.jit
    ... @ts.constrain("D % 4 == 0", "B in 1..=4096")
    ... def halves(x: ts.Tensor["B", "D", ts.f32]):
    ...     return x.reshape(x.shape[0], 4, x.shape[1] // 4)
    >>> halves(ts.ones((2, 8))).shape
    (2, 4, 2)
    """
    rules = parse_constraints(constraints, user_span())

    def decorate(function: F) -> F:
        if isinstance(function, Jit):
            return function.with_function(function.function, rules)  # pyright: ignore[reportReturnType]
        setattr(function, CONSTRAINTS, (*rules, *getattr(function, CONSTRAINTS, ())))
        return function

    return decorate


def require(condition: Any, **sizes: Any) -> None:
    """Require a constraint on sizes from here on: a string that names dims, or a comparison of sizes.

    Inside `jit`, what is proved already costs nothing, what cannot hold is an error at this line, and everything else
    becomes part of the guard of every call. Eagerly, the sizes are known and the constraint is checked immediately.
    `sizes` gives names to sizes: `require("S <= 8192", S=x.shape[1])`.

    Raises: ConstraintError (T0105).

    >>> @ts.jit
    ... def pairs(x: ts.Tensor["N", ts.f32]):
    ...     ts.require(x.shape[0] % 2 == 0)
    ...     return x.reshape(x.shape[0] // 2, 2)
    >>> pairs(ts.ones(6)).shape
    (3, 2)
    """
    here = user_span()
    trace: Any = dispatch.tracing()
    constraint = _constraint(condition, here)
    if constraint is None:
        return
    constraint = constraint.substitute({name: dim_of(size) for name, size in sizes.items()})
    if trace is not None:
        assume_constraint(trace, constraint, here)
        return
    if constraint.symbols:
        name = min(constraint.symbols)
        raise ConstraintError(
            f"`{constraint.text}` names `{name}`, which has no size outside `jit`",
            span=here,
            fix=f"give it one: `require(..., {name}=x.shape[0])`",
        )
    if not constraint.holds({}):
        given = ", ".join(f"`{name}` is {size}" for name, size in sorted(sizes.items()))
        raise ConstraintError(f"`{constraint.text}` does not hold{f': {given}' if given else ''}", span=here)


def _constraint(condition: Any, here: Span | None) -> Constraint | None:
    """The rule that is demanded; None for one that is true already."""
    if isinstance(condition, str):
        return Constraint.parse(condition, here)
    if isinstance(condition, Condition):
        return Constraint(condition.left, condition.relation, condition.right, span=here)
    if isinstance(condition, bool):
        if condition:
            return None
        what = f"`{_argument(here)}`" if here is not None and _argument(here) else "this requirement"
        raise ConstraintError(f"{what} does not hold", span=here, notes=("all its sizes are known here",))
    raise ConstraintError(
        f"`require` takes a rule about sizes, got {type(condition).__name__}",
        span=here,
        fix='write `require(x.shape[0] % 8 == 0)` or `require("D % 8 == 0")`',
    )


def _argument(here: Span) -> str:
    """What stands between the parentheses of a call, where it is on one line."""
    call = here.source_line[here.column - 1 :][: here.width]
    return call.partition("(")[2].removesuffix(")") if here.line == here.end_line else ""
