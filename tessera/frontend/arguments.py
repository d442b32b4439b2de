"""Arguments of functions on tensors: missing and unexpected ones, and checks of numbers, bools, strings and tuples."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from tessera.diagnostics.calls import explain_call
from tessera.diagnostics.codes import ArgumentError, PositionError
from tessera.diagnostics.error import Span
from tessera.diagnostics.frames import hide_frames, unquote_annotations
from tessera.frontend.call_plans import call_planned
from tessera.frontend.concrete import Tracer, adopt_all, is_array, is_in_host_memory, is_tensor
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import Size
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.types.dtype import parse_dtype
from tessera.types.shape import TensorType

# Calls with missing or unexpected arguments.


def explain_wrong_calls(function: Callable[..., Any], module: str = "", name: str = "") -> Callable[..., Any]:
    """The function, with calls that miss an argument or have an unexpected one raised as ArgumentError (T0202).

    Tensors of other libraries are ours from here on. `module` is where pickle looks for it, `name` what users call it.
    """

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            made = call_planned(function, args, given)
            if made is not NotImplemented:
                return made
            adopted, values = adopt_all(args), adopt_all([*given.values()]) if given else ()
            if adopted is not args or given:
                args, given = (*adopted,), dict(zip(given, values, strict=True))
                made = call_planned(function, args, given)
            return function(*args, **given) if made is NotImplemented else made
        except Exception as error:
            try:
                raise explain_call(function, args, given, error, name)
            except Exception as explained:
                hide_frames(explained)
                raise

    unquote_annotations(function)
    call.__module__ = module or function.__module__
    return call


def check_int(op: str, name: str, value: Any) -> int:
    """An integer: an int, or an integer scalar of NumPy; not a bool, a symbolic size or a tensor."""
    if isinstance(value, bool | Tracer | Size | type) or is_tensor(value):
        _refuse(op, name, "an int", value)
    try:
        return operator.index(value)
    except TypeError:
        _refuse(op, name, "an int", value)


MOST_REPEATS = 10_000
"""How often a function that is written with ops repeats some of them: the program has them all."""


def check_repeats(op: str, name: str, value: Any, least: int = 1) -> int:
    """An integer that says how many ops, or results, a program gets."""
    count = check_int(op, name, value)
    if not least <= count <= MOST_REPEATS:
        raise ArgumentError(f"`{op}` takes `{name}` from {least} to {MOST_REPEATS}, got {count}")
    return count


def check_number(op: str, name: str, value: Any) -> float:
    """A number: an int, a float, or a scalar of NumPy; an int stays one where no float represents it exactly."""
    is_number = isinstance(value, int | float) or (is_array(value) and value.ndim == 0)
    if isinstance(value, bool) or not is_number:
        _refuse(op, name, "a number", value)
    try:
        as_float = float(value)
    except (TypeError, ValueError, OverflowError):
        _refuse(op, name, "a number", value)
    return value if type(value) is int and value != as_float else as_float


def check_bool(op: str, name: str, value: Any) -> bool:
    """A bool; 0 and 1 are numbers."""
    is_bool = isinstance(value, bool) or (is_array(value) and value.ndim == 0 and value.dtype.kind == "b")
    return bool(value) if is_bool else _refuse(op, name, "True or False", value)


def check_string(op: str, name: str, value: Any) -> str:
    """A string."""
    return value if isinstance(value, str) else _refuse(op, name, "a string", value)


def check_choice(
    op: str, name: str, value: Any, choices: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> str:
    """One of several strings; `elsewhere` says what to write for the names that other libraries have for them."""
    if isinstance(value, str) and value in choices:
        return value
    *others, last = (f'"{choice}"' for choice in choices)
    close = elsewhere.get(value) if elsewhere and isinstance(value, str) else None
    return _refuse(op, name, f"{', '.join(others)} or {last}", value, f"write {close}" if close else None)


def check_callables(op: str, **functions: Any) -> None:
    """Raise unless these arguments are callable, by their names."""
    for name, function in functions.items():
        if not callable(function):
            _refuse(op, name, "a function", function)


def check_sequence(op: str, name: str, value: Any, count: int | None = None) -> tuple[Any, ...]:
    """A tuple or list, of `count` items if given."""
    if not is_sequence(value):
        _refuse(op, name, "a tuple or list", value)
    if count is not None and len(value) != count:
        _refuse(op, name, f"a tuple of {count}", value)
    return as_tuple(value)


_WRITTEN = {
    "an int": "2",
    "a number": "0.5",
    "True or False": "True",
    "a string": '"..."',
    "a function": "lambda x: x",
    "a tuple or list": "(1, 2)",
}
"""An example of an argument of each kind."""


def _refuse(op: str, name: str, wanted: str, value: Any, fix: str | None = None) -> NoReturn:
    example = _WRITTEN.get(wanted)
    usual = f"write {wanted}, as in `{name}={example}`" if example else f"give `{name}` {wanted}"
    raise ArgumentError(f"`{op}` takes `{name}` as {wanted}, got {describe_value(value)}", fix=fix or usual)


def check_labels(name: str, scores: Any, labels: Any, ignored: int | None = None) -> None:
    """Raise for a label beyond the classes of `scores` [..., classes], where the values of labels are known."""
    shape: Any = getattr(scores, "shape", ())
    classes = shape[-1] if shape else None
    if not isinstance(classes, int) or not is_in_host_memory(labels):
        return
    import numpy as np  # noqa: PLC0415 - where there are values alone

    values = np.asarray(labels)
    if values.dtype.kind not in "iu" or not values.size or int(values.max()) < classes:
        return
    wrong = np.argwhere((values >= classes) & (True if ignored is None else values != ignored)).tolist()
    if wrong:
        raise PositionError(
            f"`{name}` got the label {values[tuple(wrong[0])]} at {wrong[0]}, and there are {classes} classes",
            notes=(
                f"{len(wrong)} of {values.size} labels are beyond the classes",
                f"rule: labels are 0..{classes - 1}, and a negative one does not count",
            ),
            fix="make `logits` of as many classes as there are, or a label negative where there is none",
        )


def describe_value(value: Any) -> str:
    """A wrong value as an error shows it: short, and with its type where that helps."""
    if isinstance(value, Tracer) or is_array(value) or is_tensor(value):
        sizes: Any = getattr(value, "shape", ())
        return f"a tensor of shape {list(sizes)}"
    text = repr(value)
    short = text if len(text) <= 40 and "\n" not in text else f"{text.splitlines()[0][:37]}..."
    return (
        short if value is None or isinstance(value, bool | int | float | str) else f"{short} ({type(value).__name__})"
    )


_KINDS: dict[str, Callable[[str, str, Any], Any]] = {
    "int": check_int,
    "float": check_number,
    "bool": check_bool,
    "str": check_string,
    "dtype": lambda _, __, value: parse_dtype(value),
}


def check_strings(op: str, name: str, given: Iterable[str] | str) -> tuple[str, ...]:
    """One name, or an iterable of them."""
    if isinstance(given, str):
        return (given,)
    try:
        return tuple([check_string(op, name, one) for one in given])
    except TypeError:
        message = f"`{op}` takes `{name}` as strings, got {given!r}"
        raise ArgumentError(message, fix=f'write `{name}=("name",)`') from None


def check_attributes(
    spec: OpSpec, attributes: Mapping[str, Any], span: Span | None, types: Sequence[TensorType] = ()
) -> dict[str, Any]:
    """The attributes of an op, each checked against its declared kind; raises `ArgumentError` (T0202)."""
    full = spec.complete(attributes, types) if types else spec.with_defaults(attributes)

    def check(op: str) -> dict[str, Any]:
        for item in spec.attributes:
            value = full[item.name]
            if value is not item.default:
                full[item.name] = _check_attribute(op, item, value)
        return full

    try:
        return check(spec.short_name)
    except ArgumentError:
        from tessera.frontend.fixes.operands import users_name  # noqa: PLC0415 - for errors alone

        name = users_name(spec, span)
    try:
        return check(name)
    except ArgumentError as error:
        raise error.at(span) from None


def _check_attribute(op: str, item: Attribute, value: Any) -> Any:
    if value is None:
        # In the IR every attribute may be None; a user may pass None only where it is the default.
        return _refuse(op, item.name, "a value", value) if item.default is not None and item.kind in _KINDS else None
    check = _KINDS.get(item.kind)
    if check is not None:
        return check(op, item.name, value)
    several_of = _KINDS.get(item.kind.removesuffix("s"))
    if several_of is not None:
        return tuple([several_of(op, item.name, part) for part in check_sequence(op, item.name, value)])
    return value
