"""Trees of a known form, taken apart and put together by functions made for that form: no form is built to compare."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from tessera.frontend.bind import Leaf
from tessera.frontend.concrete import scalar_tensor
from tessera.frontend.several import several
from tessera.frontend.static_key import is_single, is_value, static_key
from tessera.frontend.tree import Tree, node_of

Take: TypeAlias = "Callable[[Any, list[Any]], bool]"
Make: TypeAlias = "Callable[[Iterator[Any]], Any]"

_NUMBERS = (bool, int, float)


def taker(tree: Tree, leaves: Iterator[Leaf]) -> Take:
    """A function that puts the tensors of a value into a list, or says that the value is of another form.

    `leaves` are those of the form, in order: a static one must be equal, a declared scalar may be a Python number.
    """
    if tree.is_leaf:
        return _leaf_taker(next(leaves))
    kind, data = tree.type, tree.data
    children = [taker(child, leaves) for child in tree.children]
    if kind is dict:
        return _dict_taker(several(data), children)
    if kind in (list, tuple):
        return _sequence_taker(kind, children)
    return _node_taker(kind, data, children)


def _leaf_taker(leaf: Leaf) -> Take:
    dtype = leaf.dtype

    def take_scalar(value: Any, out: list[Any]) -> bool:
        out.append(scalar_tensor(value, dtype) if value.__class__ in _NUMBERS else value)
        return True

    def take(value: Any, out: list[Any]) -> bool:
        out.append(value)
        return True

    def take_tensor(value: Any, out: list[Any]) -> bool:
        out.append(value)
        return value.__class__ not in _NUMBERS  # a number that no annotation calls a tensor is part of the program

    if dtype is None:
        return _static_taker(leaf.static, leaf.key)
    if leaf.dims:
        return take
    return take_scalar if leaf.is_declared else take_tensor


def _static_taker(static: Any, key: Hashable) -> Take:
    kind: type[Any] = static.__class__

    def take_single(value: Any, _: list[Any]) -> bool:
        return value is static or (value.__class__ is kind and value == static)

    def take_value(value: Any, _: list[Any]) -> bool:
        return value is static or (value.__class__ is kind and static_key(value) == key)

    def take_object(value: Any, _: list[Any]) -> bool:
        # Objects that call themselves equal may hold different things; what was traced is what this one holds.
        return value is static

    if is_single(kind):
        return take_single
    return take_value if is_value(static) else take_object


def _dict_taker(keys: Sequence[Any], children: Sequence[Take]) -> Take:
    pairs, count = list(zip(keys, children, strict=True)), len(keys)

    def take(value: Any, out: list[Any]) -> bool:
        if value.__class__ is not dict or len(value) != count:
            return False
        for key, child in pairs:  # noqa: SIM110 - a generator would cost more than the loop
            if key not in value or not child(value[key], out):
                return False
        return True

    return take


def _sequence_taker(kind: Any, children: Sequence[Take]) -> Take:
    count = len(children)

    def take(value: Any, out: list[Any]) -> bool:
        if value.__class__ is not kind or len(value) != count:
            return False
        return all(child(item, out) for child, item in zip(children, value, strict=True))

    return take


def _node_taker(kind: Any, data: Any, children: Sequence[Take]) -> Take:
    split = node_of(kind).split

    def take(value: Any, out: list[Any]) -> bool:
        if value.__class__ is not kind:
            return False
        items, found = split(value)
        return found == data and all(child(item, out) for child, item in zip(children, items, strict=True))

    return take


def maker(tree: Tree) -> Make:
    """A function that makes a value of this form from its leaves."""
    if tree.type is None:
        return next
    kind, data = tree.type, tree.data
    children, join = [maker(child) for child in tree.children], node_of(kind).join

    def make(leaves: Iterator[Any]) -> Any:
        return join(kind, data, [child(leaves) for child in children])

    return make
