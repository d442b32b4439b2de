"""Constraints of a function: read at decoration, put into a trace, and explained where a call breaks one."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import ConstraintError, GuardError
from tessera.diagnostics.error import HERE, Fix, FixLike
from tessera.diagnostics.span import Span, user_span
from tessera.frontend.annotations import Parameter
from tessera.frontend.bind import Signature, dim_name, fit_argument_fix, named_sizes
from tessera.frontend.fixes import fixes_of
from tessera.frontend.shape_inference import Facts
from tessera.types.annotation import TensorAnnotation
from tessera.types.constraint import Constraint, ConstraintSolver
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace

ATTRIBUTE = "__tessera_constraints__"
"""Where `@constrain` leaves what it was given, for `jit` to find."""


def parse_constraints(texts: Iterable[str] | str, span: Span | None = None) -> tuple[Constraint, ...]:
    """The constraints of texts in the call at `span`; raises `ConstraintError` (T0105) at one that is none."""
    if not isinstance(texts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConstraintError(f"{texts!r} is not a constraint", fix='write it as text: `"D % 8 == 0"`')
    listed = (texts,) if isinstance(texts, str) else tuple(texts)
    found: list[Constraint] = []
    for text in listed:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConstraintError(f"{text!r} is not a constraint", fix='write it as text: `"D % 8 == 0"`')
        place = _literal(span, text)
        found.append(replace(Constraint.parse(text, place), span=place))
    return tuple(found)


def _literal(span: Span | None, text: str) -> Span | None:
    """The string itself, inside the call that it stands in."""
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
    """All constraints of a function; raises where they contradict each other or name what is no size of it.

    `is_open` where dims without a name in the annotations are free: then names are looked at when it is traced.
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
    """The error for a constraint that others exclude, with the place of each."""
    others = [item for item in because if item is not constraint]
    where = constraint.span if span is HERE else span
    message = (
        f"`{constraint.text}` contradicts {quote_all(others)}" if others else f"`{constraint.text}` can never hold"
    )
    if not constraint.symbols:
        sides = f"the left side is {constraint.left}, the right side {constraint.right}"
        message = f"`{constraint.text}` does not hold here: {sides}"
        others = [] if where == constraint.span else [constraint]
    return ConstraintError(message, span=where, notes=locations(others))


def quote_all(constraints: Sequence[Constraint]) -> str:
    """Constraints in a sentence."""
    *first, last = (f"`{item.text}`" for item in constraints)
    return f"{', '.join(first)} and {last}" if first else last


def locations(constraints: Iterable[Constraint]) -> tuple[str, ...]:
    """Where constraints stand, for the notes of an error."""
    return tuple(f"`{item.text}` stands at {item.span}" for item in constraints if item.span is not None)


# Into a trace.


def impose(trace: Trace, constraints: Sequence[Constraint], signature: Signature) -> None:
    """Make the declared constraints of a function facts of its trace: proved, or guarded from now on."""
    numbers = static_numbers(signature)
    names = {name: Dim.symbol(dim_name(name)) for item in constraints for name in item.symbols}
    env = {name: Dim.constant(numbers[name]) if name in numbers else dim for name, dim in names.items()}
    free = [item.substitute(env) for item in constraints]
    derived = _eliminate(free, trace.facts.order.keys())
    trace.facts.names.update({**{name: Dim.constant(value) for name, value in numbers.items()}, **derived})
    for item in free:
        assume_constraint(trace, item.substitute(derived), item.span)


def assume_constraint(trace: Trace, constraint: Constraint, span: Span | None, notes: Sequence[str] = ()) -> None:
    """Take a constraint for true from here on: free where it is proved, an error where it is refuted, else a guard.

    `span` and `notes` are for the error: who asked for it, and what its names stand for.
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
    """The constraint with names put in that stand for numbers and for other sizes."""
    constraint = constraint.substitute({name: dim for name, dim in facts.names.items() if name in constraint.symbols})
    unknown = sorted(constraint.symbols - facts.order.keys())
    if unknown:
        raise _unknown_name(constraint, unknown[0], facts.order, span)
    return constraint


def _unknown_name(constraint: Constraint, name: str, known: Iterable[str], span: Span | None) -> ConstraintError:
    listed_sizes = list(known)
    sizes = ", ".join(f"`{other}`" for other in listed_sizes)
    return ConstraintError(
        f"`{constraint.text}` names `{name}`, which is no size here",
        span=span,
        notes=(f"the sizes are {sizes}" if sizes else "no size has a name",),
        fix=lambda span: _nearest_name(span, constraint.text, name, listed_sizes),
    )


def _nearest_name(span: Span | None, text: str, name: str, known: Sequence[str]) -> Fix | str:
    """The size whose name is nearly the one that is none."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone

    from tessera.diagnostics.edit import edit_text  # noqa: PLC0415

    advice = f'name it in an annotation (`Tensor["{name}", f32]`), or give its size (`require(..., {name}=x.shape[0])`)'
    close = get_close_matches(name, known, 1, 0.5)
    if not close:
        return advice
    changed = re.sub(rf"\b{re.escape(name)}\b", close[0], text)
    return edit_text(span, text, changed, f"there is a size named `{close[0]}`") or advice


def _eliminate(constraints: Sequence[Constraint], known: Iterable[str]) -> dict[str, Dim]:
    """Names that no input has, each from an equality that gives it: `Dh` is `D // H` by `D = H*Dh`.

    Raises `ConstraintError` at a constraint with a name that nothing gives.
    """
    known, env = set(known), dict[str, Dim]()
    while True:
        rest = [item.substitute(env) for item in constraints]
        found = next((pair for item in rest if (pair := _defined(item, known)) is not None), None)
        if found is None:
            break
        env = {name: dim.substitute({found[0]: found[1]}) for name, dim in env.items()}
        env[found[0]] = found[1]
    for item, original in zip(rest, constraints, strict=True):
        for name in sorted(item.symbols - known):
            raise _unknown_name(original, name, sorted(known), original.span)
    return env


def _defined(constraint: Constraint, known: set[str]) -> tuple[str, Dim] | None:
    """The one unknown name of an equality, and the size that it must be."""
    unknown = constraint.symbols - known
    if len(unknown) != 1 or not constraint.is_equality:
        return None
    (name,) = unknown
    parts = (constraint.left - constraint.right).coefficient(name)
    if parts is None:
        return None
    factor, rest = (parts[0], -parts[1]) if not _is_negative(parts[0]) else (-parts[0], parts[1])
    return name, rest if factor.value == 1 else rest // factor


def _is_negative(dim: Dim) -> bool:
    return all(coefficient < 0 for _, coefficient in dim.terms)


def _paths(trace: Trace, constraint: Constraint) -> tuple[str, ...]:
    """Where each name of a constraint is a size of an input."""
    found: dict[str, str] = {}
    for name, value in zip(trace.tape.names, trace.tape.inputs, strict=True):
        for axis, dim in enumerate(trace.tape.types[value].shape):
            if dim.symbol_name in constraint.symbols:
                found.setdefault(dim.symbol_name or "", f"`{dim}` is `{name}.shape[{axis}]`")
    return tuple(found[name] for name in sorted(found))


def impose_on_call(
    trace: Any, constraints: Sequence[Constraint], parameters: Sequence[Parameter], arguments: Mapping[str, Any]
) -> None:
    """Constraints of a function that is called inside a trace, on the sizes that it is given there."""
    from tessera.frontend.pytree import flatten  # noqa: PLC0415
    from tessera.frontend.size import Size, dim_of  # noqa: PLC0415 - only functions with constraints come here

    env, sources, edits = dict[str, Dim](), dict[str, str](), dict[str, Callable[[int], FixLike]]()
    for position, parameter in enumerate(parameters):
        value = arguments.get(parameter.name)
        if isinstance(value, int | Size) and not isinstance(value, bool):
            env[parameter.name] = dim_of(value)
        if not parameter.is_annotated:
            continue
        leaves, tree = flatten(value)
        for leaf, annotation in zip(leaves, parameter.annotations(tree), strict=True):
            for axis, dim in enumerate(annotation.dims) if annotation is not None else ():
                name = dim.symbol_name
                if name is not None and name not in env and axis < len(leaf.shape):
                    env[name] = dim_of(leaf.shape[axis])
                    sources[name] = f"`{name}` is {env[name]} from `{parameter.name}.shape[{axis}]`"
                    if tree.is_leaf:
                        edits[name] = partial(_fit_fix, parameter.name, position, leaf.shape, axis)
    here = user_span()
    derived = _eliminate(constraints, env.keys())
    for item in constraints:
        notes = [sources[name] for name in sorted(item.symbols & sources.keys())]
        try:
            assume_constraint(trace, item.substitute(derived).substitute(env), here, notes)
        except ConstraintError as error:
            raise error.with_fix(_fix_of_call(item, constraints, env, edits)) from None


def _fit_fix(name: str, position: int, shape: Sequence[Any], axis: int, size: int) -> FixLike:
    calls = fixes_of("arguments")
    return calls.fit_argument(calls.argument_at(name, position), tuple(shape), axis, size)


def _fix_of_call(
    constraint: Constraint,
    rules: Sequence[Constraint],
    env: Mapping[str, Dim],
    edits: Mapping[str, Callable[[int], FixLike]],
) -> FixLike:
    """The argument padded or cut to a size that keeps the rules, where one size that is a number decides."""
    name, *others = sorted(constraint.symbols) or [""]
    size = env[name].value if name in env else None
    if others or size is None or name not in edits:
        return None
    wanted = _next_size([rule for rule in rules if rule.symbols == constraint.symbols], name, size)
    return None if wanted is None else edits[name](wanted)


# At a call.


def static_numbers(signature: Signature) -> dict[str, int]:
    """The arguments that are plain Python integers, which constraints may name."""
    pairs = zip(signature.paths(), signature.leaves, strict=True)
    return {path: leaf.static for path, leaf in pairs if leaf.dtype is None and type(leaf.static) is int}


def check_call(constraints: Sequence[Constraint], signature: Signature, tensors: Sequence[Any]) -> None:
    """Hold the sizes of a call against the declared constraints, before anything is traced for them."""
    sizes = named_sizes(signature, tensors)
    numbers = static_numbers(signature)
    names = {name: Dim.symbol(dim_name(name)) for item in constraints for name in item.symbols}
    env = {name: Dim.constant(numbers[name]) if name in numbers else dim for name, dim in names.items()}
    free = [item.substitute(env) for item in constraints]
    derived = _eliminate(free, sizes.keys())
    known = [item.substitute(derived) for item in free]
    for item in known:
        error = violation_error(item, sizes, numbers, BoundCall(signature, tensors, known))
        if error is not None:
            raise error


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call, and all rules that its sizes must keep: what it takes to say how one of them could be kept."""

    signature: Signature
    tensors: Sequence[Any]
    rules: Sequence[Constraint]

    def fix(self, constraint: Constraint, size: int, path: str) -> FixLike:
        """The argument padded to the next size that keeps every rule of its own, or cut to the last."""
        (name,) = constraint.symbols
        wanted = _next_size([rule for rule in self.rules if rule.symbols == constraint.symbols], name, size)
        if wanted is None:
            return None
        edit = fit_argument_fix(self.signature, self.tensors, path, wanted)
        advice = f"{'pad' if wanted > size else 'cut'} `{path}` from {size} to {wanted}"
        return lambda span: (edit(span) if callable(edit) else None) or advice


def violation_error(
    constraint: Constraint,
    sizes: Mapping[str, tuple[int, str]],
    numbers: Mapping[str, int],
    call: BoundCall | None = None,
) -> GuardError | None:
    """The error for sizes that break a constraint: path, value, rule and where it stands; None where they do not."""
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
    sides = f"the left side is {left}, the right side {right}"
    if constraint.high is not None:
        sides = f"it is {left}, and the range is {right}..={constraint.high.evaluate(values)}"
    return GuardError(f"`{constraint.text}` must hold, but {sides}", notes=notes)


_FURTHEST = 4096
"""How far a size that keeps the rules is looked for by trying; rules about remainders repeat long before."""


def _next_size(rules: Sequence[Constraint], name: str, size: int) -> int | None:
    """The next larger size that keeps all rules, else the next smaller one; an empty axis has nothing to pad."""
    if not size:
        return None
    value = ConstraintSolver(rules).value(name)
    first, last = max(size + 1, value.low), min(size - 1, value.high)
    larger = range(first, min(first + _FURTHEST, value.high + 1))
    smaller = range(last, max(0, value.low - 1, last - _FURTHEST), -1)
    return next((item for item in chain(larger, smaller) if all(rule.holds({name: item}) for rule in rules)), None)
