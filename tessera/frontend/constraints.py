"""Constraints of a function: parsed at decoration, imposed on its trace, and explained where a call violates one."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import ConstraintError, GuardError
from tessera.diagnostics.error import HERE, Fix, FixLike, Span, find_nearest, user_span
from tessera.frontend.annotations import Parameter
from tessera.frontend.bind import Signature, dim_name, fit_argument_fix, input_types, named_sizes, size_expressions
from tessera.frontend.fixes import fixes_of
from tessera.frontend.shape_inference import Facts
from tessera.types.annotation import TensorAnnotation
from tessera.types.constraint import Constraint, ConstraintSolver
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace

ATTRIBUTE = "__tessera_constraints__"
"""The attribute in which `@constrain` leaves its constraints for `jit`."""


def parse_constraints(texts: Iterable[str] | str, span: Span | None = None) -> tuple[Constraint, ...]:
    """The constraints that strings in the call at `span` state; raises `ConstraintError` (T0105) at an invalid one."""
    if not isinstance(texts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConstraintError(f"{texts!r} is not a constraint", fix='write it as a string: `"D % 8 == 0"`')
    listed = (texts,) if isinstance(texts, str) else tuple(texts)
    found: list[Constraint] = []
    for text in listed:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConstraintError(f"{text!r} is not a constraint", fix='write it as a string: `"D % 8 == 0"`')
        where = _literal(span, text)
        found.append(replace(Constraint.parse(text, where), span=where))
    return tuple(found)


def _literal(span: Span | None, text: str) -> Span | None:
    """The span of the string literal inside the call."""
    for line in range(span.line, max(span.line, span.end_line) + 1) if span is not None else ():
        assert span is not None
        here = Span(span.file, line)
        for quoted in (f'"{text}"', f"'{text}'"):
            column = here.source_line.find(quoted) + 1
            if column:
                return Span(span.file, line, column, line, column + len(quoted))
    return span


def collect_constraints(
    function: Callable[..., Any], parameters: Sequence[Parameter], given: Sequence[Constraint], *, is_open: bool
) -> tuple[Constraint, ...]:
    """All constraints of a function; raises where they contradict each other or name an unknown size.

    `is_open` where dims without annotation are dynamic: then names are checked when the function is traced.
    """
    found = (*getattr(function, ATTRIBUTE, ()), *given)
    if not is_open:
        names = {name for parameter in parameters for name in _names(parameter.annotation)}
        _eliminate(found, names | {parameter.name for parameter in parameters if not parameter.is_annotated})
    contradiction = ConstraintSolver(found).contradiction
    if contradiction is not None:
        raise contradiction_error(contradiction.because[-1], contradiction.because)
    return found


def _names(annotation: Any) -> set[str]:
    """The dims that an annotation names, in containers and fields too."""
    if isinstance(annotation, TensorAnnotation):
        return set(annotation.symbols)
    inner = [*typing.get_args(annotation), *getattr(annotation, "__annotations__", {}).values()]
    return {name for item in inner for name in _names(item)}


def contradiction_error(
    constraint: Constraint, because: Sequence[Constraint], span: Span | None = HERE
) -> ConstraintError:
    """The error for a constraint that others contradict, with the location of each."""
    others = [item for item in because if item is not constraint]
    where = constraint.span if span is HERE else span
    message = (
        f"`{constraint.text}` contradicts {quote_all(others)}" if others else f"`{constraint.text}` can never hold"
    )
    if not constraint.symbols:
        message = f"`{constraint.text}` does not hold here: lhs is {constraint.left}, rhs is {constraint.right}"
        others = [] if where == constraint.span else [constraint]
    return ConstraintError(message, span=where, notes=locations(others))


def quote_all(constraints: Sequence[Constraint]) -> str:
    """Constraints in a sentence."""
    *first, last = (f"`{item.text}`" for item in constraints)
    return f"{', '.join(first)} and {last}" if first else last


def locations(constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """Where constraints are declared, for the notes of an error."""
    return tuple(f"`{item.text}` is declared at {item.span}" for item in constraints if item.span is not None)


# Into a trace.


def impose(trace: Trace, constraints: Sequence[Constraint], signature: Signature) -> None:
    """Impose the declared constraints of a function on its trace: each is proved, or becomes a guard."""
    numbers = static_numbers(signature)
    relations = declared_sizes(signature)
    free, derived = _complete(_with_numbers(constraints, numbers), relations, trace.facts.order.keys())
    trace.facts.names.update({**{name: Dim.constant(value) for name, value in numbers.items()}, **derived})
    for item in free:
        assume_constraint(trace, item.substitute(derived), item.span)


def _with_numbers(constraints: Sequence[Constraint], numbers: Mapping[str, int]) -> list[Constraint]:
    """The constraints with static arguments as numbers, and all other names as dims."""
    names = {name: Dim.symbol(dim_name(name)) for item in constraints for name in item.symbols}
    env = {name: Dim.constant(numbers[name]) if name in numbers else dim for name, dim in names.items()}
    return [item.substitute(env) for item in constraints]


def assume_constraint(trace: Trace, constraint: Constraint, span: Span | None, notes: Sequence[str] = ()) -> None:
    """Assume a constraint from here on: nothing to check where it is proved, an error where refuted, else a guard.

    `span` and `notes` are for the error: where it was required, and what its names stand for.
    """
    facts = trace.facts
    constraint = _resolve_names(facts, constraint, span)
    answer = facts.solver_in_use().decide(constraint)
    if answer.is_refuted:
        raise contradiction_error(constraint, answer.because, span).with_notes(*notes, *_paths(trace, constraint))
    if answer.is_proved:
        facts.proved.append((constraint.text, answer.because))
        return
    for left, right in constraint.equalities():
        facts.assume(left, right, f"`{constraint.text}`", constraint.span, constraint)


def _resolve_names(facts: Facts, constraint: Constraint, span: Span | None) -> Constraint:
    """The constraint with names substituted that stand for numbers and other sizes."""
    constraint = constraint.substitute({name: dim for name, dim in facts.names.items() if name in constraint.symbols})
    unknown = sorted(constraint.symbols - facts.order.keys())
    if unknown:
        raise _unknown_name(constraint, unknown[0], facts.order, span)
    return constraint


def _unknown_name(constraint: Constraint, name: str, known: Iterable[str], span: Span | None) -> ConstraintError:
    listed_sizes = list(known)
    sizes = ", ".join(f"`{other}`" for other in listed_sizes)
    return ConstraintError(
        f"`{constraint.text}` uses `{name}`, which is not a size here",
        span=span,
        notes=(f"the sizes are {sizes}" if sizes else "no size has a name",),
        fix=lambda span: _nearest_name(span, constraint.text, name, listed_sizes),
    )


def _nearest_name(span: Span | None, text: str, name: str, known: Sequence[str]) -> Fix | str:
    """The fix for a misspelt size: the closest name."""
    from tessera.diagnostics.edit import edit_text  # noqa: PLC0415 - for errors alone

    advice = f'name it in an annotation (`Tensor["{name}", f32]`), or give its size (`require(..., {name}=x.shape[0])`)'
    close = find_nearest(name, known, cutoff=0.5)
    if not close:
        return advice
    changed = re.sub(rf"\b{re.escape(name)}\b", close[0], text)
    return edit_text(span, text, changed, f"there is a size named `{close[0]}`") or advice


def declared_sizes(signature: Signature) -> list[Constraint]:
    """What annotations say of names that no input has alone: `x_1 = 2*D`."""
    return [_equality(size, dim) for size, dim in size_expressions(signature, input_types(signature)[0])]


def _equality(size: Dim, dim: Dim) -> Constraint:
    return replace(Constraint.equality(size, dim), written=f"{size} = {dim}")


def _complete(
    constraints: Sequence[Constraint], relations: Sequence[Constraint], known: Iterable[str]
) -> tuple[list[Constraint], dict[str, Dim]]:
    """Constraints and those relations that the known names decide, and the names that are eliminated from them."""
    names = set(known)
    relations = [item for item in relations if not item.symbols <= names]
    derived = _eliminate(constraints, names, relations)
    return [*(item for item in relations if item.substitute(derived).symbols <= names), *constraints], derived


def _eliminate(
    constraints: Sequence[Constraint], known: Iterable[str], relations: Sequence[Constraint] = ()
) -> dict[str, Dim]:
    """Names that no input has, each from an equality that gives it: `Dh` is `D // H` by `D = H*Dh`.

    Raises `ConstraintError` at a constraint with a name that nothing gives; `relations` may have such.
    """
    known, env = set(known), dict[str, Dim]()
    while True:
        substituted = [item.substitute(env) for item in constraints]
        equalities = [*(item.substitute(env) for item in relations), *substituted]
        found = next((pair for item in equalities if (pair := _solve_for_unknown(item, known)) is not None), None)
        if found is None:
            break
        env = {name: dim.substitute({found[0]: found[1]}) for name, dim in env.items()}
        env[found[0]] = found[1]
    for item, original in zip(substituted, constraints, strict=True):
        for name in sorted(item.symbols - known):
            own = {size for relation in relations for size in relation.left.symbols}
            raise _unknown_name(original, name, sorted(known - own), original.span)
    return env


def _solve_for_unknown(constraint: Constraint, known: set[str]) -> tuple[str, Dim] | None:
    """The one unknown name of an equality, and the size that it must be."""
    unknown = constraint.symbols - known
    if len(unknown) != 1 or not constraint.is_equality:
        return None
    (name,) = unknown
    parts = (constraint.left - constraint.right).coefficient(name)
    if parts is None:
        return None
    factor, remainder = (parts[0], -parts[1]) if not _is_negative(parts[0]) else (-parts[0], parts[1])
    return name, remainder if factor.value == 1 else remainder // factor


def _is_negative(dim: Dim) -> bool:
    return all(coefficient < 0 for _, coefficient in dim.terms)


def _paths(trace: Trace, constraint: Constraint) -> tuple[str, ...]:
    """Where each name of a constraint is a size of an input."""
    found: dict[str, str] = {}
    for name, value in zip(trace.tape.names, trace.tape.inputs, strict=True):
        for axis, dim in enumerate(trace.tape.types[value].shape):
            if dim.symbol_name in constraint.symbols and str(dim) not in found:
                found[str(dim)] = f"`{dim}` is `{name}.shape[{axis}]`"
    return tuple(found[name] for name in sorted(found))


def _declared_dims(
    parameters: Sequence[Parameter], arguments: Mapping[str, Any]
) -> Iterator[tuple[int, str, Any, int, Dim]]:
    """Each size that an annotation declares: the position and name of the parameter, the tensor, the axis, the dim."""
    from tessera.frontend.pytree import flatten  # noqa: PLC0415 - see below

    for position, parameter in enumerate(parameters):
        leaves, tree = flatten(arguments.get(parameter.name)) if parameter.is_annotated else ([], None)
        for leaf, annotation in zip(leaves, parameter.annotations(tree) if tree is not None else (), strict=True):
            for axis, dim in enumerate(annotation.dims if annotation is not None else ()):
                if dim.symbols and axis < len(leaf.shape):
                    yield position, parameter.name, leaf, axis, dim


def impose_on_call(
    trace: Any, constraints: Sequence[Constraint], parameters: Sequence[Parameter], arguments: Mapping[str, Any]
) -> dict[str, Dim]:
    """Impose the constraints of a function called inside a trace on the sizes of its arguments there.

    Gives what their names stand for: integer arguments, dims, and sizes that the constraints derive of those.
    """
    from tessera.frontend.size import Size, dim_of  # noqa: PLC0415 - only functions with constraints come here

    env, sources, edits = dict[str, Dim](), dict[str, str](), dict[str, Callable[[int], FixLike]]()
    relations: list[Constraint] = []
    for name, value in arguments.items():
        if isinstance(value, int | Size) and not isinstance(value, bool):
            env[name] = dim_of(value)
    for position, parameter, leaf, axis, dim in _declared_dims(parameters, arguments):
        name = dim.symbol_name
        if name is None:
            name = f"{parameter}_{axis}_{len(relations)}"
            relations.append(_equality(Dim.symbol(name), dim))
        if name not in env:
            env[name] = dim_of(leaf.shape[axis])
            sources[name] = f"`{name}` is {env[name]} from `{parameter}.shape[{axis}]`"
            if leaf is arguments[parameter]:
                edits[name] = partial(_fit_fix, parameter, position, leaf.shape, axis)
    here = user_span()
    completed, derived = _complete(constraints, relations, env.keys())
    for item in completed:
        notes = [sources[name] for name in sorted(item.symbols & sources.keys())]
        try:
            assume_constraint(trace, item.substitute(derived).substitute(env), here, notes)
        except ConstraintError as error:
            raise error.with_fix(_fix_of_call(item, constraints, env, edits)) from None
    return {**{name: dim.substitute(env) for name, dim in derived.items()}, **env}


def _fit_fix(name: str, position: int, shape: Sequence[Any], axis: int, size: int) -> FixLike:
    calls = fixes_of("arguments")
    return calls.fit_argument(calls.argument_at(name, position), tuple(shape), axis, size)


def _fix_of_call(
    constraint: Constraint,
    rules: Sequence[Constraint],
    env: Mapping[str, Dim],
    edits: Mapping[str, Callable[[int], FixLike]],
) -> FixLike:
    """The argument padded or sliced to a size that satisfies the constraints, where they depend on one static size."""
    name, *others = sorted(constraint.symbols) or [""]
    size = env[name].value if name in env else None
    if others or size is None or name not in edits:
        return None
    wanted = _next_size([rule for rule in rules if rule.symbols == constraint.symbols], name, size)
    return None if wanted is None else edits[name](wanted)


# At a call.


def static_numbers(signature: Signature) -> dict[str, int]:
    """The arguments that are Python integers, which constraints may name."""
    pairs = zip(signature.paths(), signature.leaves, strict=True)
    return {path: leaf.static for path, leaf in pairs if leaf.dtype is None and type(leaf.static) is int}


def check_call(constraints: Sequence[Constraint], signature: Signature, tensors: Sequence[Any]) -> None:
    """Check the sizes of a call against the declared constraints, before anything is traced for them."""
    sizes = named_sizes(signature, tensors)
    numbers = static_numbers(signature)
    free, derived = _complete(_with_numbers(constraints, numbers), declared_sizes(signature), sizes.keys())
    known = [item.substitute(derived) for item in free]
    for item in known:
        error = violation_error(item, sizes, numbers, BoundCall(signature, tensors, known))
        if error is not None:
            raise error


@frozen
class BoundCall:
    """A call and all constraints on its sizes, from which a fix is found."""

    signature: Signature
    tensors: Sequence[Any]
    rules: Sequence[Constraint]

    def fix(self, constraint: Constraint, size: int, path: str) -> FixLike:
        """The argument padded to the next size that satisfies its constraints, or sliced to the last."""
        (name,) = constraint.symbols
        wanted = _next_size([rule for rule in self.rules if rule.symbols == constraint.symbols], name, size)
        if wanted is None:
            return None
        edit = fit_argument_fix(self.signature, self.tensors, path, wanted)
        advice = f"{'pad' if wanted > size else 'slice'} `{path}` from {size} to {wanted}"
        return lambda span: (edit(span) if callable(edit) else None) or advice


def violation_error(
    constraint: Constraint,
    sizes: Mapping[str, tuple[int, str]],
    numbers: Mapping[str, int],
    call: BoundCall | None = None,
) -> GuardError | None:
    """The error for sizes that violate a constraint, with path, value and declaration; None where they satisfy it."""
    values = {name: size for name, (size, _) in sizes.items()}
    if not constraint.symbols <= values.keys() or constraint.holds(values):
        return None
    names = sorted(constraint.symbols)
    given = sorted(Constraint.parse(constraint.text, None).symbols & numbers.keys())
    notes = (
        *(f"`{name}` is {sizes[name][0]} from `{sizes[name][1]}`" for name in names),
        *(f"`{name}` is {numbers[name]}, an argument of the call" for name in given),
        *locations([constraint]),
    )
    if len(names) == 1:
        size, path = sizes[names[0]]
        message = f"`{path}` is {size}, but `{constraint.text}` must hold"
        return GuardError(message, notes=notes, fix=call.fix(constraint, size, path) if call is not None else None)
    left, right = constraint.left.evaluate(values), constraint.right.evaluate(values)
    values_text = f"lhs is {left} and rhs is {right}"
    if constraint.high is not None:
        values_text = f"it is {left}, and the range is {right}..={constraint.high.evaluate(values)}"
    return GuardError(f"`{constraint.text}` must hold, but {values_text}", notes=notes)


_FURTHEST = 4096
"""How many sizes are tried to satisfy all constraints; constraints on remainders repeat long before."""


def _next_size(rules: Sequence[Constraint], name: str, size: int) -> int | None:
    """The next larger size that satisfies all constraints, else the next smaller; an empty axis cannot be padded."""
    if not size:
        return None
    value = ConstraintSolver(rules).value(name)
    first, last = max(size + 1, value.low), min(size - 1, value.high)
    larger = range(first, first + _FURTHEST)
    smaller = range(last, max(0, last - _FURTHEST), -1)
    return next((item for item in chain(larger, smaller) if all(rule.holds({name: item}) for rule in rules)), None)
