"""Where a function's outside tensors come from, so that each call reads what is there now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, TypeAlias

Reader: TypeAlias = Callable[[], Any]

_DEPTH = 4


def reader_of(function: Callable[..., Any], tensor: Any, arguments: Sequence[Any] = ()) -> Reader:
    """How to read an outside tensor again: by the name the function uses for it, else the tensor itself.

    Names are the function's globals and closure, its static `arguments` (a method's instance is one), and what lies
    below them in containers and attributes. A tensor that was made while tracing has no name; it stays the one seen.
    """
    given = ((argument, lambda argument=argument: argument) for argument in arguments)
    for root, read in (*_roots(function), *given):
        path = _path_to(root, tensor, _DEPTH)
        if path is not None:
            return _following(read, path)
    return lambda: tensor


Step: TypeAlias = Callable[[Any], Any]


def _roots(function: Callable[..., Any]) -> Iterator[tuple[Any, Reader]]:
    target: Any = getattr(function, "__func__", function)
    owner = getattr(function, "__self__", None)
    if owner is not None:
        yield owner, lambda: owner
    code, scope = getattr(target, "__code__", None), getattr(target, "__globals__", {})
    if code is None:
        yield function, lambda: function
        return
    for cell in target.__closure__ or ():
        try:
            yield cell.cell_contents, lambda cell=cell: cell.cell_contents
        except ValueError:
            continue  # a cell that is not filled yet holds no tensor
    for name in sorted(_names(code)):
        if name in scope:
            yield scope[name], lambda name=name: scope[name]


def _names(code: CodeType) -> set[str]:
    """Every global name that a function or the functions inside it may read."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _path_to(root: Any, tensor: Any, depth: int) -> list[Step] | None:
    """The steps from a value to the tensor inside it, or None."""
    if root is tensor:
        return []
    if depth == 0:
        return None
    for step, child in _children(root):
        path = _path_to(child, tensor, depth - 1)
        if path is not None:
            return [step, *path]
    return None


def _children(value: Any) -> Iterator[tuple[Step, Any]]:
    if isinstance(value, dict):
        items: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        for key, child in items.items():
            yield lambda holder, key=key: holder[key], child
    elif isinstance(value, list | tuple):
        for index, child in enumerate(value):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
            yield lambda holder, index=index: holder[index], child
    else:
        for name in _attribute_names(value):
            yield lambda holder, name=name: getattr(holder, name), getattr(value, name)


def _attribute_names(value: Any) -> list[str]:
    if isinstance(value, type) or callable(value):
        return []
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return list(getattr(value, "__dict__", {}))


def _following(read: Reader, path: list[Step]) -> Reader:
    def read_again() -> Any:
        value = read()
        for step in path:
            value = step(value)
        return value

    return read_again if path else read
