"""Pytrees: nested dicts, lists, tuples, named tuples and dataclasses as a flat list of leaves and a form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias

from tessera.diagnostics.codes import PytreeError
from tessera.frontend.several import several
from tessera.types.frozen import frozen

Children: TypeAlias = "tuple[Sequence[Any], Hashable]"


@frozen
class Node:
    """How one container type comes apart and back together.

    `split` gives the children and what else must be remembered (keys, field names), `join` undoes it, and `steps`
    gives the text that leads from the container to each child: `['w']`, `[0]`, `.weight`.
    """

    split: Callable[[Any], Children]
    join: Callable[[type[Any], Hashable, Sequence[Any]], Any]
    steps: Callable[[Hashable, int], Sequence[str]]


@frozen
class Tree:
    """The form of a value without its leaves; `type` is None for a leaf. Two values of one form compare equal."""

    type: type[Any] | None = None
    data: Hashable = None
    children: tuple[Tree, ...] = ()

    @property
    def is_leaf(self) -> bool:
        return self.type is None

    @property
    def leaf_count(self) -> int:
        return 1 if self.type is None else sum(child.leaf_count for child in self.children)

    def __str__(self) -> str:
        if self.type is None:
            return "*"
        steps = node_of(self.type).steps(self.data, len(self.children))
        inner = ", ".join(f"{step}: {child}" for step, child in zip(steps, self.children, strict=True))
        return f"{self.type.__name__}({inner})"


LEAF = Tree()


def flatten(value: Any, *, as_written: bool = False) -> tuple[list[Any], Tree]:
    """The leaves of a value, in a fixed order, and its form.

    Keys of dicts are in order, so that dicts of the same keys have one form; `as_written` keeps them as they were put.

    >>> flatten({"b": (1, 2), "a": 3})[0]
    [3, 1, 2]
    """
    leaves: list[Any] = []
    return leaves, _flatten_into(value, leaves, as_written)


def _flatten_into(value: Any, leaves: list[Any], as_written: bool) -> Tree:
    kind = _type_of(value)
    node = _NODES.get(kind) or _discovered(kind)
    if node is None:
        leaves.append(value)
        return LEAF
    children, data = (list(value.values()), tuple(value)) if as_written and kind is dict else node.split(value)
    return Tree(kind, data, tuple([_flatten_into(child, leaves, as_written) for child in children]))


def _type_of(value: Any) -> type[Any]:
    kind: type[Any] = value.__class__
    return kind


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The value of form `tree` with these leaves."""
    if tree.leaf_count != len(leaves):
        raise PytreeError(f"a tree of {tree.leaf_count} leaves cannot be made from {len(leaves)}")
    return _unflatten(tree, iter(leaves))


def _unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    if tree.type is None:
        return next(leaves)
    children = [_unflatten(child, leaves) for child in tree.children]
    return node_of(tree.type).join(tree.type, tree.data, children)


def leaf_paths(tree: Tree, root: str = "") -> list[str]:
    """The path of each leaf, in the order of `flatten`.

    >>> leaf_paths(flatten({"w": [1, 2]})[1], "params")
    ["params['w'][0]", "params['w'][1]"]
    """
    if tree.type is None:
        return [root]
    steps = node_of(tree.type).steps(tree.data, len(tree.children))
    return [path for step, child in zip(steps, tree.children, strict=True) for path in leaf_paths(child, root + step)]


def map_leaves(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """`function` applied to each leaf; further values must have the same form, and give further arguments.

    >>> map_leaves(lambda a, b: a + b, {"x": 1}, {"x": 2})
    {'x': 3}
    """
    leaves, tree = flatten(value)
    columns = [leaves]
    for other in others:
        more, form = flatten(other)
        if form != tree:
            raise PytreeError(f"two trees differ in form: {tree} and {form}")
        columns.append(more)
    return unflatten(tree, [function(*row) for row in zip(*columns, strict=True)])


def register(
    kind: type[Any],
    split: Callable[[Any], Children],
    join: Callable[[Hashable, Sequence[Any]], Any],
    *,
    fields: Sequence[str] = (),
) -> None:
    """Make `kind` a container: `split(value)` gives (children, data) and `join(data, children)` the value again.

    `fields` names the children in paths, where they are attributes.
    """
    if not isinstance(kind, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PytreeError(
            f"`register_tree` takes a class, got {kind!r}", fix="give it the class, not one of its values"
        )
    for name, function in (("split", split), ("join", join)):
        if not callable(function):
            raise PytreeError(
                f"`register_tree` takes `{name}` as a function, got {function!r}", fix="see its docstring"
            )
    if kind in _NODES:
        raise PytreeError(f"`{kind.__name__}` is a container already")

    def steps(data: Hashable, count: int) -> Sequence[str]:
        return [f".{name}" for name in fields] if fields else _index_steps(data, count)

    _NODES[kind] = Node(split, lambda _, data, children: join(data, children), steps)
    _LEAF_TYPES.discard(kind)


def _index_steps(_: Hashable, count: int) -> list[str]:
    return [f"[{index}]" for index in range(count)]


def _key_steps(data: Hashable, _: int) -> list[str]:
    return [f"[{key!r}]" for key in _strings(data)]


def _field_steps(data: Hashable, _: int) -> list[str]:
    return [f".{name}" for name in _strings(data)]


def _strings(data: Hashable) -> tuple[Any, ...]:
    return several(data)


def _split_dict(value: dict[Any, Any]) -> Children:
    try:
        keys = tuple(sorted(value))
    except TypeError:
        # Keys of several types have no order; the one they were put in is the best there is.
        keys = tuple(value)
    return [value[key] for key in keys], keys


def _join_dict(kind: type[Any], data: Hashable, children: Sequence[Any]) -> Any:
    return kind(zip(_strings(data), children, strict=True))


def _split_dataclass(value: Any) -> Children:
    names = tuple(field.name for field in dataclasses.fields(value))
    return [getattr(value, name) for name in names], names


def _join_dataclass(kind: type[Any], data: Hashable, children: Sequence[Any]) -> Any:
    # Not through `__init__`: it may check or change what it is given, and fields may be `init=False`.
    made = object.__new__(kind)
    for name, child in zip(_strings(data), children, strict=True):
        object.__setattr__(made, name, child)
    return made


def _join_namedtuple(kind: type[Any], _: Hashable, children: Sequence[Any]) -> Any:
    return kind(*children)


_DATACLASS = Node(_split_dataclass, _join_dataclass, _field_steps)
_NAMEDTUPLE = Node(lambda value: (tuple(value), value._fields), _join_namedtuple, _field_steps)
_NODES: dict[type[Any], Node] = {
    dict: Node(_split_dict, _join_dict, _key_steps),
    list: Node(lambda value: (value, None), lambda _, __, children: list(children), _index_steps),
    tuple: Node(lambda value: (value, None), lambda _, __, children: tuple(children), _index_steps),
    type(None): Node(lambda _: ((), None), lambda _, __, ___: None, _index_steps),
}
_LEAF_TYPES: set[type[Any]] = set()


def _discovered(kind: type[Any]) -> Node | None:
    """The node of a type met for the first time: a named tuple or a dataclass that is not one of our own values."""
    if kind in _LEAF_TYPES:
        return None
    if tuple in kind.__mro__ and hasattr(kind, "_fields"):
        return _NODES.setdefault(kind, _NAMEDTUPLE)
    if dataclasses.is_dataclass(kind) and not kind.__module__.startswith("tessera."):
        return _NODES.setdefault(kind, _DATACLASS)
    _LEAF_TYPES.add(kind)
    return None


def container_named(name: str) -> type[Any] | None:
    """The container of Tessera's own that has a name, where it is loaded."""
    own = (kind for kind in _NODES if kind.__module__.startswith("tessera."))
    return next((kind for kind in own if kind.__name__ == name), None)


def node_of(kind: type[Any]) -> Node:
    """How a container type comes apart and together."""
    node = _NODES.get(kind) or _discovered(kind)
    assert node is not None, f"`{kind.__name__}` is in a tree but is no container"
    return node
