"""Arguments of ops that are no tensors: numbers, flags, texts and tuples of them, each checked for what it is."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.span import Span
from tessera.frontend.concrete import Tracer, is_array, is_tensor
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import Size
from tessera.ir.base.spec import Attribute, OpSpec

# Calls of functions on tensors with arguments that they do not have: told by the names that there are.

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "dim": ("axis", "axes", "dims"),
    "dims": ("axes", "axis"),
    "axis": ("axes",),
    "axes": ("axis",),
    "keepdim": ("keepdims",),
    "input": ("x", "a", "q"),
    "other": ("y", "b"),
    "size": ("shape",),
    "is_causal": ("causal",),
    "attn_mask": ("mask",),
    "dropout_p": ("dropout",),
    "unbiased": ("correction",),
    "ddof": ("correction",),
}
"""What other libraries call parameters that functions here have by another name."""


def explain_wrong_calls(function: Callable[..., Any], module: str = "") -> Callable[..., Any]:
    """The function, whose calls with other arguments than it has are errors with a code, a place and a way out.

    It is that of a `module`, where pickled ones are looked for.
    """

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except TypeError as error:
            trace = error.__traceback__
            # One that was raised inside of the function is not about its call.
            if trace is None or trace.tb_next is not None:
                raise
            raise _wrong_call(function, args, given, str(error)) from None

    call.__module__ = module or function.__module__
    return call


def _wrong_call(
    function: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any], said: str
) -> ArgumentError:
    import inspect  # noqa: PLC0415 - for errors alone

    name, signature = function.__name__, inspect.signature(function)
    plain = [one.replace(annotation=one.empty) for place, one in signature.parameters.items() if place != "self"]
    taken = f"it is `{name}{inspect.Signature(plain)}`"
    parameters = [one.name for one in plain]
    unknown = [one for one in given if one not in signature.parameters]
    if unknown:
        wrong = unknown[0]
        message = f"`{name}` has no parameter `{wrong}`"
        return ArgumentError(message, notes=(taken,), fix=_suggest_parameter(wrong, given[wrong], parameters))
    try:
        signature.bind(*args, **given)
    except TypeError as error:
        said = str(error).replace("'", "`")
    return ArgumentError(f"`{name}` is called with other arguments than it has: {said}", notes=(taken,))


def _suggest_parameter(wrong: str, value: Any, parameters: list[str]) -> str:
    """What to write instead of a parameter that there is not."""
    if wrong == "out":
        return "tensors do not change, and results are new ones: write `y = ...` without `out`"
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone

    known = [one for one in _OTHER_NAMES.get(wrong, ()) if one in parameters]
    near = [*known, *get_close_matches(wrong, parameters, 1)]
    if not near:
        return "leave it away"
    shown = f"{value!r}" if isinstance(value, bool | int | float | str) else "..."
    return f"write `{near[0]}={shown}`"


def check_int(op: str, name: str, value: Any) -> int:
    """A whole number: an int or what is one, as an integer of NumPy; not a bool, a size of a free dim or a tensor."""
    if isinstance(value, bool | Tracer | Size | type) or is_tensor(value):
        _refuse(op, name, "an int", value)
    try:
        return operator.index(value)
    except TypeError:
        _refuse(op, name, "an int", value)


def check_number(op: str, name: str, value: Any) -> float:
    """A number: an int or a float, or a scalar of NumPy that is one; an int stays one where no float holds it."""
    is_number = isinstance(value, int | float) or (is_array(value) and value.ndim == 0)
    if isinstance(value, bool) or not is_number:
        _refuse(op, name, "a number", value)
    try:
        as_float = float(value)
    except (TypeError, ValueError, OverflowError):
        _refuse(op, name, "a number", value)
    return value if type(value) is int and value != as_float else as_float


def check_bool(op: str, name: str, value: Any) -> bool:
    """True or False; 0 and 1 are numbers."""
    is_flag = isinstance(value, bool) or (is_array(value) and value.ndim == 0 and value.dtype.kind == "b")
    return bool(value) if is_flag else _refuse(op, name, "True or False", value)


def check_string(op: str, name: str, value: Any) -> str:
    """A text."""
    return value if isinstance(value, str) else _refuse(op, name, "a text", value)


def check_callables(op: str, **functions: Any) -> None:
    """Arguments that must be functions, by their names."""
    for name, function in functions.items():
        if not callable(function):
            _refuse(op, name, "a function", function)


def check_sequence(op: str, name: str, value: Any, count: int | None = None) -> tuple[Any, ...]:
    """A tuple or list, of that many items where it is said."""
    if not is_sequence(value):
        _refuse(op, name, "a tuple or list", value)
    if count is not None and len(value) != count:
        _refuse(op, name, f"a tuple of {count}", value)
    return as_tuple(value)


_WRITTEN = {
    "an int": "2",
    "a number": "0.5",
    "True or False": "True",
    "a text": '"..."',
    "a function": "lambda x: x",
    "a tuple or list": "(1, 2)",
}
"""What an argument of a kind looks like in a call."""


def _refuse(op: str, name: str, wanted: str, value: Any) -> NoReturn:
    example = _WRITTEN.get(wanted)
    raise ArgumentError(
        f"`{op}` takes `{name}` as {wanted}, got {describe_value(value)}",
        fix=f"write {wanted}, as in `{name}={example}`" if example else f"give `{name}` {wanted}",
    )


def describe_value(value: Any) -> str:
    """A wrong value as an error shows it: short, and with its type where that says more."""
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
}


def check_strings(op: str, name: str, given: Iterable[str] | str) -> tuple[str, ...]:
    """One name, or several in anything that holds them."""
    if isinstance(given, str):
        return (given,)
    try:
        return tuple([check_string(op, name, one) for one in given])
    except TypeError:
        raise ArgumentError(f"`{op}` takes `{name}` as texts, got {given!r}", fix=f'write `{name}=("name",)`') from None


def check_attributes(spec: OpSpec, attributes: Mapping[str, Any], span: Span | None) -> dict[str, Any]:
    """The attributes of an op, each of the kind it is declared to be; raises `ArgumentError` (T0202)."""
    full = spec.with_defaults(attributes)
    op = spec.name.split(".", 1)[1]
    try:
        for item in spec.attributes:
            value = full[item.name]
            if value is not item.default:
                full[item.name] = _check_attribute(op, item, value)
    except ArgumentError as error:
        raise error.at(span) from None
    return full


def _check_attribute(op: str, item: Attribute, value: Any) -> Any:
    if value is None:
        # None is a value of every kind in the IR; to a user it is one only where it is the default.
        return _refuse(op, item.name, "a value", value) if item.default is not None and item.kind in _KINDS else None
    check = _KINDS.get(item.kind)
    if check is not None:
        return check(op, item.name, value)
    several_of = _KINDS.get(item.kind.removesuffix("s"))
    if several_of is not None:
        return tuple([several_of(op, item.name, part) for part in check_sequence(op, item.name, value)])
    return value
