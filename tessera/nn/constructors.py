"""Calls of modules by sizes, which is how PyTorch makes them: answered with the `init` that makes tensors of sizes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tessera.diagnostics.calls import SAME, explain_call
from tessera.diagnostics.codes import ArgumentError


def check_constructor(owner: type[Any], base: type[Any]) -> Callable[..., None]:
    """The constructor that a dataclass made, which also refuses numbers where tensors and modules (`base`) belong."""
    construct: Any = owner.__init__
    holders: list[str] | None = None

    @functools.wraps(construct)
    def check(self: Any, *args: Any, **given: Any) -> None:
        nonlocal holders
        try:
            construct(self, *args, **given)
        except TypeError as error:
            if type(error) is not TypeError:
                raise  # one of ours, about the value of a field
            raise _explain(owner, construct, (self, *args), given, error) from None
        if holders is None:  # not before: an annotation may name a class of further below
            holders = [item.name for item in dataclasses.fields(owner) if _holds_tensors(owner, base, item.type)]
        check_fields(self, holders, args, given)

    return check


def check_fields(module: Any, holders: list[str], args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Raise where a field of tensors and modules alone is a size; the arguments are those of the constructor."""
    owner: type[Any] = module.__class__
    for name in holders:
        value = getattr(module, name)
        if _is_of_numbers(value):
            raise ArgumentError(
                f"`{owner.__name__}` takes `{name}` as a tensor or a module, got {value!r}",
                notes=("rule: the constructor takes what a module holds; `init` makes that, from sizes",),
                fix=_advise(owner, args, given),
            )


def _is_of_numbers(value: Any) -> bool:
    """Whether a value is a number, or a list of some, as sizes are."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_of_numbers, value))  # pyright: ignore[reportUnknownArgumentType]
    return isinstance(value, int | float)


def _holds_tensors(owner: type[Any], base: type[Any], annotation: Any) -> bool:
    """Whether a field is of tensors and modules alone, as far as its annotation says."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    names = [part.strip().partition("[")[0] for part in text.split("|")]
    others = [name for name in names if name != "None" and name.rpartition(".")[2] != "Tensor"]
    kinds = [functools.reduce(_member, name.split("."), sys.modules[owner.__module__]) for name in others]
    return names != ["None"] and all(isinstance(kind, type) and issubclass(kind, base) for kind in kinds)


def _member(home: Any, name: str) -> Any:
    return getattr(home, name, None)


def _explain(
    owner: type[Any], construct: Any, args: tuple[Any, ...], given: Mapping[str, Any], error: TypeError
) -> Exception:
    """The error for a call that does not fit the constructor; the same one where it was raised for another reason."""
    found = explain_call(construct, args, given, error, owner.__name__)
    if isinstance(found, ArgumentError) and (hasattr(owner, "init") or hasattr(owner, "of")):
        return ArgumentError(found.message, notes=found.notes, fix=_advise(owner, args[1:], given))
    return found


def _advise(owner: type[Any], args: tuple[Any, ...], given: Mapping[str, Any]) -> str:
    """What to write in place of a call of the constructor, with the sizes that were passed where they fit."""
    name = owner.__name__
    if hasattr(owner, "of"):
        return f"write `{name}.of(first, second)`"
    if not hasattr(owner, "init"):
        return f"pass what `{name}` holds, as in `ts.array([1.0, 2.0])`"
    signature = inspect.signature(owner.init)
    parameters = signature.parameters
    key = ["ts.random.key(0)"] * (next(iter(parameters), "") == "key")
    sizes = [_show(value) for value in args]
    named = {
        next((own for own in (one, *SAME.get(one, ())) if own in parameters), one): _show(value)
        for one, value in given.items()
    }
    try:
        signature.bind(*key, *sizes, **named)
    except TypeError:
        needed = [one for one in parameters.values() if one.default is one.empty and one.name != "key"]
        sizes = [one.name for one in needed if one.kind is one.POSITIONAL_OR_KEYWORD]
        named = {one.name: "..." for one in needed if one.kind is one.KEYWORD_ONLY}
    written = ", ".join([*key, *sizes, *(f"{one}={value}" for one, value in named.items())])
    return f"write `{name}.init({written})`"


def _show(value: Any) -> str:
    only = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return repr(only) if isinstance(only, int | float | str | tuple | list) else "..."  # pyright: ignore[reportUnknownArgumentType]
