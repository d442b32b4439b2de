"""`debug_print` and `io_callback`: calls of Python from the middle of a compiled function, in order."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import ArgumentError, RuntimeArgumentError, TracingError
from tessera.frontend.concrete import Tracer, is_concrete
from tessera.frontend.functions.operands import dtype_of
from tessera.frontend.scopes import active_trace
from tessera.frontend.size import dim_of
from tessera.frontend.trace import Trace
from tessera.frontend.traced_number import TracedNumber
from tessera.ir.base import dispatch
from tessera.types.annotation import TensorAnnotation
from tessera.types.dtype import f32
from tessera.types.shape import TensorType

_FORMATTER = string.Formatter()


def debug_print(text: str, *values: Any, **named: Any) -> None:
    """Print `text` with values put into it as `str.format` does, each time the program comes to it.

    Under `jit` it runs in order with all other io, also in branches and loops. Tensors are shown as numbers or nested
    lists; a format such as `{:.3f}` is that of each element. Has the effect `io`.

    >>> @ts.jit
    ... def f(x: ts.Tensor["N", ts.f32]):
    ...     ts.debug_print("sum = {:.1f}", x.sum())
    ...     return x
    >>> f(ts.ones(3))
    sum = 3.0
    Tensor([3] f32, [1, 1, 1])
    """
    form, tensors = _split(text, values, named)
    if active_trace() is not None:
        dispatch.apply("debug_print", tensors, {"format": form})
        return
    from tessera.api.eager import Tensor  # noqa: PLC0415 - tracing needs no runtime
    from tessera.runtime.callback import show  # noqa: PLC0415

    show(form, [Tensor.of(tensor) for tensor in tensors])


def _split(text: str, values: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The text with all that is no tensor put in already, and the tensors, which it counts from 0."""
    tensors: list[Any] = []
    parts: list[str] = []
    automatic = 0
    for literal, field, spec, conversion in _parse(text):
        parts.append(literal.replace("{", "{{").replace("}", "}}"))
        if field is None:
            continue
        if field == "":
            field, automatic = str(automatic), automatic + 1
        value = _looked_up(text, field, values, named)
        value = value.tensor if type(value) is TracedNumber else value
        if isinstance(value, Tracer) or is_concrete(value):
            dtype = dtype_of(value)
            # Whether a format fits elements is a question of their kind alone, so that any one of them answers it.
            _format(1.0 if dtype.is_float else dtype.is_bool or 1, spec, f"elements of {dtype}")
            parts.append(f"{{{len(tensors)}{':' + spec if spec else ''}}}")
            tensors.append(value)
        else:
            converted = value if conversion is None else _FORMATTER.convert_field(value, cast("Any", conversion))
            shown = _format(converted, spec, repr(value))
            parts.append(shown.replace("{", "{{").replace("}", "}}"))
    return "".join(parts), tensors


def _format(value: Any, spec: str | None, what: str) -> str:
    try:
        return format(value, spec or "")
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"`debug_print` cannot show {what} as `{{:{spec}}}`: {error}") from None


def _parse(text: Any) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(_FORMATTER.parse(text))
    except (TypeError, ValueError) as error:
        raise TracingError(
            f"`debug_print` takes a text with a `{{}}` for each value: {error}", fix='write `debug_print("x = {}", x)`'
        ) from None


def _looked_up(text: str, field: str, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
    try:
        return _FORMATTER.get_field(field, values, named)[0]
    except (IndexError, KeyError, AttributeError, TypeError):
        count = f"{len(values)} value{'' if len(values) == 1 else 's'}"
        have = ", ".join([count, *(f"`{name}`" for name in named)])
        raise TracingError(
            f"`debug_print` has nothing to show for `{{{field}}}` in {text!r}: it was given {have}",
            fix="give one value for each `{}` of the text, by position or by name",
        ) from None


def io_callback(function: Callable[..., Any], *values: Any, result: Any = None, deterministic: bool = False) -> Any:
    """Call a Python function with tensors each time the program comes to it; what it gives goes on in the program.

    `result` says what that is: an annotation (`Tensor["N", 4, f32]`), a tensor of the same form, or a tuple of them;
    None where it gives nothing. The function gets its own copies. Calls keep their order with all other io, also in
    branches and loops, and what the function raises is raised by the call of the program. Has the effect `io`;
    `deterministic` promises that equal arguments always give equal results.

    Raises: CallbackError (T0709) at run time where the function gives something else than `result` says.

    >>> @ts.jit
    ... def f(x: ts.Tensor["N", ts.f32]):
    ...     return ts.io_callback(lambda v: [2 * e for e in v.tolist()], x, result=x) + 1.0
    >>> f(ts.ones(2))
    Tensor([2] f32, [3, 3])
    """
    if not callable(function):
        raise TracingError(
            f"`io_callback` calls a function, got {function!r}", fix="give it a function, and the tensors after it"
        )
    for value in values:
        dtype_of(value)
    is_single = not isinstance(result, tuple)
    declared = cast("tuple[Any, ...]", (result,) if is_single else result)
    types = [_declared_type(one) for one in declared if result is not None]
    trace = active_trace()
    if trace is not None:
        assert isinstance(trace, Trace), "users' functions are traced by this frontend"
        attributes = {
            "slot": trace.add_function(function),
            "shapes": tuple(type.shape for type in types),
            "dtypes": tuple(type.dtype for type in types),
            "deterministic": deterministic,
            "function": getattr(function, "__name__", type(function).__name__),
        }
        given = dispatch.apply("io_callback", values, attributes)
    else:
        from tessera.api.eager import Tensor  # noqa: PLC0415 - tracing needs no runtime
        from tessera.runtime.callback import call  # noqa: PLC0415

        wanted = [(type.dtype.name, _sizes(type)) for type in types]
        given = tuple(call(function, [Tensor.of(value) for value in values], wanted))
    if result is None:
        return None
    return given[0] if is_single else tuple(given)


def _declared_type(one: Any) -> TensorType:
    if isinstance(one, TensorAnnotation):
        _check_known(one)
        return TensorType(one.dims, one.dtype or f32)
    if isinstance(one, Tracer) or is_concrete(one):
        shape: Sequence[Any] = cast("Any", one).shape
        return TensorType(tuple(dim_of(size) for size in shape), dtype_of(one))
    raise TracingError(
        f"`result` of `io_callback` is {one!r}, which says no shape and dtype",
        fix='write it as `Tensor["N", 4, f32]`, give a tensor of that form, or a tuple of these',
    )


def _check_known(annotation: TensorAnnotation) -> None:
    """Sizes of a result are known before it is there, so their names are those of arguments."""
    trace = active_trace()
    while getattr(trace, "parent", None) is not None:
        trace = trace.parent
    if trace is None:
        return
    known = {name for value in trace.tape.inputs for dim in trace.tape.types[value].shape for name in dim.symbols}
    unknown = sorted(annotation.symbols - known)
    if unknown:
        raise TracingError(
            f"`{unknown[0]}` in the result `{annotation}` of `io_callback` is no size of an argument",
            notes=(f"sizes of arguments are {', '.join(f'`{name}`' for name in sorted(known))}",) if known else (),
            fix="name sizes of arguments, or write a number",
        )


def _sizes(type: TensorType) -> tuple[int, ...]:
    if any(dim.value is None for dim in type.shape):
        raise RuntimeArgumentError(f"`io_callback` outside of `jit` needs sizes in `result`, got {type}")
    return tuple(dim.value or 0 for dim in type.shape)
