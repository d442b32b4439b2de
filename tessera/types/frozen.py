"""`frozen`: a frozen dataclass with slots, made in a fraction of the time that the standard library takes for one.

The front end declares some fifty value classes, and a program in the disk cache runs in less time than `dataclasses`
takes to generate and compile six methods for each. Here only `__init__` is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Like `@dataclass(frozen=True, slots=True)`, without keyword-only fields and ordering."""
    # Without methods to generate, `dataclass` only registers the fields, so that `fields` and `replace` work.
    declared: Any = dataclass(init=False, repr=False, eq=False)(cls)
    items = fields(declared)
    made = _with_slots(declared, items)
    compared = [item.name for item in items if item.compare]
    methods = {
        "__init__": _initializer(made, items),
        "__eq__": _equality(made, compared),
        "__hash__": _hash(compared),
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": _state,
        "__setstate__": _restore,
    }
    for name, method in methods.items():
        # Python sets `__hash__` to None in a class that defines `__eq__`.
        if made.__dict__.get(name) is None:
            setattr(made, name, method)
    return made


def _with_slots(cls: Any, items: Sequence[Field[Any]]) -> Any:
    """The class made again with slots, which can only be given at creation."""
    names = {item.name for item in items}
    body = {name: value for name, value in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
    body["__slots__"] = tuple(item.name for item in items if item.name not in inherited)
    body["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, body)


def _initializer(cls: Any, items: Sequence[Field[Any]]) -> Callable[..., None]:
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = ["self"], list[str]()
    for number, item in enumerate(items):
        name, given = item.name, item.name
        scope[f"set_{number}"] = getattr(cls, name).__set__  # sets the slot directly, past `__setattr__`
        if item.default_factory is not MISSING:
            scope[f"new_{number}"] = item.default_factory
            given = f"new_{number}()" + (f" if {name} is MISSING else {name}" if item.init else "")
        elif item.default is not MISSING:
            scope[f"default_{number}"] = item.default
            given = name if item.init else f"default_{number}"
        elif not item.init:
            continue
        if item.init:
            default = "MISSING" if item.default_factory is not MISSING else f"default_{number}"
            is_needed = item.default is MISSING and item.default_factory is MISSING
            parameters.append(name if is_needed else f"{name}={default}")
        lines.append(f"set_{number}(self, {given})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"])
    # Compiled as part of this file, so that errors of `__post_init__` show the line of the user's call.
    exec(compile(text, __file__, "exec"), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {item.name: item.type for item in items if item.init} | {"return": None}
    return made


def _equality(cls: Any, names: Sequence[str]) -> Callable[[Any, Any], bool]:
    if not names:
        return lambda self, other: other.__class__ is self.__class__ or NotImplemented
    get = attrgetter(*names)

    def equal(self: Any, other: Any) -> bool:
        # Most that is compared is one object.
        return self is other or (get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented)

    return equal


def _hash(names: Sequence[str]) -> Callable[[Any], int]:
    if not names:
        return lambda self: hash(())
    get = attrgetter(*names)
    return lambda self: hash(get(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse(self: Any, name: str, value: Any = None) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__name__}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _restore(self: Any, state: Sequence[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)
