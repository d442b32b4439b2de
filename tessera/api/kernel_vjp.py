"""The derivative that a kernel is given: declared with `defvjp`, and checked against the types of every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from tessera.diagnostics.codes import DTypeError, KernelError, ShapeError
from tessera.diagnostics.span import Span
from tessera.frontend.kernel.definition import KernelDefinition, result_annotations
from tessera.frontend.kernel.operands import CACHE_FIELDS
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.trace import Trace
from tessera.ir.base import dispatch
from tessera.types.dim import Dim
from tessera.types.shape import text
from tessera.types.tensor_type import TensorType

_CHECKING: ContextVar[bool] = ContextVar("derivative", default=False)


def is_checking() -> bool:
    """Whether a derivative is being looked at: a kernel in it may ask for numbers, as the one around it does."""
    return _CHECKING.get()


def check_declared(definition: KernelDefinition, function: Callable[..., Any]) -> None:
    """Raises KernelError (T0206) for a derivative that cannot be called with operands, results and their gradients."""
    operands = sum(len(CACHE_FIELDS) if one.kind == "cache" else 1 for one in definition.inputs)
    declared = len(definition.results) or len(result_annotations(definition))
    counts = (declared,) if declared else range(1, 9)
    if any(_takes(function, operands + 2 * count) for count in counts):
        return
    wanted = f"{operands} operands, {declared or 'its'} results and as many gradients"
    total = f", {operands + 2 * declared} tensors in all" if declared else ""
    called = vjp_name(function) if vjp_name(function).isidentifier() else "derivative"
    raise KernelError(
        f"the derivative of `{definition.name}` takes {wanted}{total}, and `{vjp_name(function)}` takes "
        f"{_arity(function)}",
        fix=f"write `def {called}({_listed(definition, declared)})`",
    )


def check_called(
    definition: KernelDefinition,
    operands: Sequence[tuple[str, Any]],
    results: Sequence[Any],
    statics: Mapping[str, Any],
) -> None:
    """Trace the derivative of a kernel for one call: its gradients have the types of the operands.

    It runs on tracers. Raises ShapeError (T0101) and DTypeError (T0102) with both
    types, KernelError (T0206) for another number of gradients.
    """
    function = definition.vjp
    assert function is not None
    outer: Any = dispatch.active()
    trace = Trace()
    given = [trace.add_input(name, _type(value)) for name, value in operands]
    made = [trace.add_input(f"result{at}", _type(value)) for at, value in enumerate(results)]
    asked = [trace.add_input(f"gradient{at}", _type(value)) for at, value in enumerate(results)]
    token = _CHECKING.set(True)
    try:
        with dispatch.recording(trace):
            value = function(*given, *made, *asked, **_named(function, statics))
    finally:
        _CHECKING.reset(token)
    gradients = as_tuple(value) if is_sequence(value) else (value,)
    if len(gradients) != len(operands):
        raise KernelError(
            f"`{vjp_name(function)}`, the derivative of `{definition.name}`, gives {len(gradients)} gradients for "
            f"{len(operands)} operands",
            notes=(_defined(function),),
            fix="give one for each operand in order, None for one that has none",
        )
    for (name, operand), gradient in zip(operands, gradients, strict=True):
        if gradient is not None:
            _check(definition, name, _type(operand), gradient, lambda dim: trace.resolve(outer.resolve(dim)))


def _check(
    definition: KernelDefinition, name: str, operand: TensorType, gradient: Any, known: Callable[[Dim], Dim]
) -> None:
    function = definition.vjp
    assert function is not None
    what = f"`{vjp_name(function)}` gives `{name}` of `{definition.name}` a gradient of"
    if not isinstance(getattr(gradient, "type", None), TensorType):
        raise KernelError(
            f"{what} type {type(gradient).__name__}, which is no tensor",
            notes=(_defined(function),),
            fix="give a tensor, or None for an operand that has no gradient",
        )
    if not operand.dtype.is_float:
        raise DTypeError(
            f"{what} {gradient.type}, and {operand.dtype} has no derivative",
            notes=(_defined(function),),
            fix="give None for it",
        )
    wanted, found = (tuple(map(known, type.shape)) for type in (operand, gradient.type))
    if wanted != found:
        raise ShapeError(
            f"{what} {text(gradient.type.shape)}, and it has {text(operand.shape)}",
            notes=("rule: a gradient has the shape of what it is the gradient of", _defined(function)),
        )
    if gradient.type.dtype is not operand.dtype:
        raise DTypeError(
            f"{what} {gradient.type.dtype}, and it is {operand.dtype}",
            notes=("rule: a gradient has the dtype of what it is the gradient of", _defined(function)),
            fix=f"end with `.cast({operand.dtype})`",
        )


def _type(value: Any) -> TensorType:
    from tessera.frontend.concrete import concrete_type  # noqa: PLC0415 - for captured tensors alone

    found = getattr(value, "type", None)
    made = found if isinstance(found, TensorType) else concrete_type(value)
    assert made is not None, "the operands of a call are tensors"
    return made


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return True  # a callable that does not say
    placed = [item for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    least = sum(item.default is item.empty for item in placed)
    is_open = any(item.kind is item.VAR_POSITIONAL for item in parameters)
    return least <= count and (is_open or count <= len(placed))


def _arity(function: Callable[..., Any]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(item.kind in kinds for item in inspect.signature(function).parameters.values())


def _named(function: Callable[..., Any], statics: Mapping[str, Any]) -> dict[str, Any]:
    """The static arguments that a derivative asks for by keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    kinds = {name: item.kind for name, item in parameters.items()}
    if inspect.Parameter.VAR_KEYWORD in kinds.values():
        return dict(statics)
    return {name: value for name, value in statics.items() if kinds.get(name) is inspect.Parameter.KEYWORD_ONLY}


def _listed(definition: KernelDefinition, declared: int) -> str:
    operands = [
        name
        for one in definition.inputs
        for name in ([f"{one.name}_{field}" for field in CACHE_FIELDS] if one.kind == "cache" else [one.name])
    ]
    results = [parameter.name for parameter in definition.results]
    results = results or (["out"] if declared < 2 else [f"out{at}" for at in range(declared)])
    return ", ".join([*operands, *results, *(f"d_{name}" for name in results)])


def vjp_name(function: Callable[..., Any]) -> str:
    """What a derivative is called in programs."""
    return str(getattr(function, "__name__", type(function).__name__))


def _defined(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    where = str(Span(code.co_filename, code.co_firstlineno, 1)) if code is not None else repr(function)
    return f"the derivative is defined at {where}"


__all__ = ["check_called", "check_declared", "is_checking", "vjp_name"]
