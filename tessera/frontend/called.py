"""Calls of functions on tensors with arguments that they do not have: told by the names that there are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tessera.diagnostics.codes import ArgumentError

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


def named(function: Callable[..., Any], module: str = "") -> Callable[..., Any]:
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
        return ArgumentError(message, notes=(taken,), fix=_instead(wrong, given[wrong], parameters))
    try:
        signature.bind(*args, **given)
    except TypeError as error:
        said = str(error).replace("'", "`")
    return ArgumentError(f"`{name}` is called with other arguments than it has: {said}", notes=(taken,))


def _instead(wrong: str, value: Any, parameters: list[str]) -> str:
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
