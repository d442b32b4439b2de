"""Pytrees: containers as a flat list of leaves and a form; keys of static leaves; fast paths for a known form."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tessera.diagnostics.codes import PytreeError
from tessera.frontend.concrete import scalar_tensor
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.frontend.bind import Leaf


# Arguments that may be one value or a sequence of them.


def is_sequence(value: Any) -> bool:
    """Whether a value is a tuple or a list."""
    return isinstance(value, tuple | list)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A tuple or list as a tuple, and anything else as a tuple of one."""
    return tuple(value) if is_sequence(value) else (value,)


# Keys of static values: what distinguishes Python values on which a program depends.

# Equal values of these types are interchangeable; the type itself is part of the key.
_EXACT = frozenset({int, bool, str, bytes, type(None), type(...), type(NotImplemented), range, Dim, DType})
_SINGLE = frozenset({int, bool, str, bytes, type(None), type(...)})


def static_key(value: Any) -> Hashable:
    """A key that is equal for two values exactly where a trace cannot tell them apart.

    `==` is too coarse: 1, 1.0 and True are equal, as are 0.0 and -0.0, and so are tuples and frozen dataclasses of
    them; and it is too fine for NaN, which equals nothing. Raises TypeError for a value that cannot key a cache.
    """
    kind: type[Any] = value.__class__
    if kind in _EXACT:
        return (kind, value)
    if kind in (float, complex):
        # `repr` keeps the sign of zero, and is the same for every NaN.
        return (kind, repr(value))
    if isinstance(value, Enum):
        return (kind, value.name)
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return (kind, tuple([static_key(item) for item in items]))
    return _rare_key(kind, value)


def _rare_key(kind: type[Any], value: Any) -> Hashable:
    if isinstance(value, frozenset):
        members: frozenset[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return (kind, frozenset([static_key(item) for item in members]))
    if kind is slice:
        return (kind, static_key(value.start), static_key(value.stop), static_key(value.step))
    if isinstance(value, Mapping):
        pairs: Mapping[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return (kind, tuple([(static_key(name), static_key(item)) for name, item in pairs.items()]))
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return (kind, str(value.dtype), tuple(value.shape), value.tobytes())
    hash(value)
    if _is_frozen_record(kind):
        # Field by field, whatever `__eq__` the class has: a finer key costs a trace, a coarser one gives wrong results.
        names = [item.name for item in dataclasses.fields(value) if item.compare]
        return (kind, tuple([static_key(getattr(value, name)) for name in names]))
    return (kind, value)


def is_single(kind: type[Any]) -> bool:
    """Whether values of a type are scalars, for which `==` between values of that type is enough."""
    return kind in _SINGLE


def is_value(value: Any) -> bool:
    """Whether a value is immutable: an equal one can replace it."""
    kind: type[Any] = value.__class__
    if kind in _EXACT or kind in (float, complex, slice) or isinstance(value, Enum):
        return True
    if isinstance(value, tuple | frozenset):
        items: Any = value  # pyright: ignore[reportUnknownVariableType]
        return all(is_value(item) for item in items)
    if _is_frozen_record(kind):
        return all(is_value(getattr(value, item.name)) for item in dataclasses.fields(value))
    return False


def _is_frozen_record(kind: Any) -> bool:
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


# Pytrees: nested dicts, lists, tuples, named tuples and dataclasses as a flat list of leaves and a form.

Children: TypeAlias = "tuple[Sequence[Any], Hashable]"


@frozen
class Node:
    """How one container type is flattened and rebuilt.

    `split` returns the children and auxiliary data (keys, field names), `join` is its inverse, and `steps` returns the
    path from the container to each child: `['w']`, `[0]`, `.weight`.
    """

    split: Callable[[Any], Children]
    join: Callable[[type[Any], Hashable, Sequence[Any]], Any]
    steps: Callable[[Hashable, int], Sequence[str]]


@frozen
class Tree:
    """The structure of a value without its leaves; `type` is None for a leaf. Equal structures compare equal."""

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
        """The form as one would write it: `{'w': tensor, 'b': (tensor, tensor)}`."""
        if self.type is None:
            return "tensor"
        if self.type is type(None):
            return "None"
        parts = list(map(str, self.children))
        if self.type is list:
            return f"[{', '.join(parts)}]"
        if self.type is tuple:
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        if self.type is dict:
            return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(as_tuple(self.data), parts, strict=True))}}}"
        steps = node_of(self.type).steps(self.data, len(parts))
        fields = [f"{step.lstrip('.')}={part}" for step, part in zip(steps, parts, strict=True)]
        return f"{self.type.__name__}({', '.join(fields)})"


LEAF = Tree()
MOST_NESTED = 100
"""Levels of containers: far more than models have, and few enough for Python's stack."""


def flatten(value: Any, *, keep_order: bool = False) -> tuple[list[Any], Tree]:
    """The leaves of a value, in a fixed order, and its form.

    Keys of dicts are sorted, so that dicts of the same keys have one form; `keep_order` keeps insertion order. Raises
    PytreeError where containers nest deeper than `MOST_NESTED`, as of a list that holds itself.

    >>> flatten({"b": (1, 2), "a": 3})[0]
    [3, 1, 2]
    """
    leaves: list[Any] = []
    return leaves, _flatten_into(value, leaves, keep_order, MOST_NESTED)


def _flatten_into(value: Any, leaves: list[Any], keep_order: bool, levels: int) -> Tree:
    kind = _type_of(value)
    node = _NODES.get(kind) or _discover_node(kind)
    if node is None:
        leaves.append(value)
        return LEAF
    if not levels:
        raise PytreeError(
            f"containers nest {MOST_NESTED} deep at most, and this `{kind.__name__}` is deeper, or holds itself",
            fix="give the tensors in fewer levels, as in one list or dict",
        )
    children, data = (list(value.values()), tuple(value)) if keep_order and kind is dict else node.split(value)
    return Tree(kind, data, tuple([_flatten_into(child, leaves, keep_order, levels - 1) for child in children]))


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


def leaves_like(tree: Tree, value: Any, *, has_none: bool = False) -> list[Any] | None:
    """The leaves of a value in the order of a form, whatever the order of keys in it; None where the forms differ.

    With `has_none`, None stands for any part of the form, and each leaf of that part is None.

    >>> leaves_like(flatten({"b": 1, "a": 2}, keep_order=True)[1], {"a": "A", "b": "B"})
    ['B', 'A']
    """
    if value is None and has_none:
        return [None] * tree.leaf_count
    kind = _type_of(value)
    node = _NODES.get(kind) or _discover_node(kind)
    if tree.type is None:
        return [value] if node is None else None
    if node is None or kind is not tree.type:
        return None
    children, data = node.split(value)
    if kind is dict:
        held = cast("dict[Any, Any]", value)
        keys = as_tuple(tree.data)
        if held.keys() == set(keys):
            children, data = [held[key] for key in keys], tree.data
    if data != tree.data or len(children) != len(tree.children):
        return None
    found: list[Any] = []
    for child, own in zip(tree.children, children, strict=True):
        leaves = leaves_like(child, own, has_none=has_none)
        if leaves is None:
            return None
        found += leaves
    return found


def leaf_paths(tree: Tree, root: str = "") -> list[str]:
    """The path of each leaf, in the order of `flatten`.

    >>> leaf_paths(flatten({"w": [1, 2]})[1], "params")
    ["params['w'][0]", "params['w'][1]"]
    """
    if tree.type is None:
        return [root]
    steps = node_of(tree.type).steps(tree.data, len(tree.children))
    return [path for step, child in zip(steps, tree.children, strict=True) for path in leaf_paths(child, root + step)]


_STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<key>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]]*)\]")


def leaf_names(tree: Tree) -> list[str]:
    """A name for each leaf, as other libraries write them; the path as Python writes it where two would be the same.

    >>> leaf_names(flatten({"layers": [{"w": 1}, {"w": 2}]})[1])
    ['layers.0.w', 'layers.1.w']
    """
    paths = leaf_paths(tree)
    names = [".".join(map(_plain_step, _STEP.finditer(path))) or "value" for path in paths]
    counts = Counter(names)
    return [path if counts[name] > 1 else name for path, name in zip(paths, names, strict=True)]


def _plain_step(match: re.Match[str]) -> str:
    return match["field"] or match["key"].strip("'\"")


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
    fields: Sequence[str] | Callable[[Any], Sequence[str]] = (),
) -> None:
    """Make `kind` a container: `split(value)` returns (children, data), and `join(data, children)` the value.

    `fields` names the children in paths, where they are attributes; where they differ from value to value, it is a
    function of the data.
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
        names = fields(data) if callable(fields) else fields
        return [f".{name}" for name in names] if names else _index_steps(data, count)

    def split_checked(value: Any) -> Children:
        found: Any = split(value)
        if not (is_sequence(found) and len(found) == 2 and is_sequence(found[0])):
            raise PytreeError(
                f"`split` of `{kind.__name__}` must return (children, data), got {found!r}",
                fix="return a pair of a sequence of children, and what `join` needs besides them",
            )
        return found

    _NODES[kind] = Node(split_checked, lambda _, data, children: join(data, children), steps)
    _LEAF_TYPES.discard(kind)


def _index_steps(_: Hashable, count: int) -> list[str]:
    return [f"[{index}]" for index in range(count)]


def _key_steps(data: Hashable, _: int) -> list[str]:
    return [f"[{key!r}]" for key in _strings(data)]


def _field_steps(data: Hashable, _: int) -> list[str]:
    return [f".{name}" for name in _strings(data)]


def _strings(data: Hashable) -> tuple[Any, ...]:
    return as_tuple(data)


def _split_dict(value: dict[Any, Any]) -> Children:
    try:
        keys = tuple(sorted(value))
    except TypeError:
        # Keys of mixed types cannot be sorted: insertion order it is.
        keys = tuple(value)
    return [value[key] for key in keys], keys


def _join_dict(kind: type[Any], data: Hashable, children: Sequence[Any]) -> Any:
    return kind(zip(_strings(data), children, strict=True))


def _split_dataclass(value: Any) -> Children:
    names = tuple(field.name for field in dataclasses.fields(value))
    return [getattr(value, name) for name in names], names


def _join_dataclass(kind: type[Any], data: Hashable, children: Sequence[Any]) -> Any:
    # Not through `__init__`: it may check or change its arguments, and fields may be `init=False`.
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


def _discover_node(kind: type[Any]) -> Node | None:
    """The node of a type seen for the first time: a named tuple, or a dataclass that is not one of Tessera's."""
    if kind in _LEAF_TYPES:
        return None
    if tuple in kind.__mro__ and hasattr(kind, "_fields"):
        return _NODES.setdefault(kind, _NAMEDTUPLE)
    if dataclasses.is_dataclass(kind) and not kind.__module__.startswith("tessera."):
        return _NODES.setdefault(kind, _DATACLASS)
    _LEAF_TYPES.add(kind)
    return None


def is_record(kind: type[Any]) -> bool:
    """Whether the data of a container are the names of its fields: a dataclass or named tuple nobody registered."""
    return (_NODES.get(kind) or _discover_node(kind)) in (_DATACLASS, _NAMEDTUPLE)


def container_named(name: str) -> type[Any] | None:
    """Tessera's container type of this name, if it is loaded."""
    own = (kind for kind in _NODES if kind.__module__.startswith("tessera."))
    return next((kind for kind in own if kind.__name__ == name), None)


def node_of(kind: type[Any]) -> Node:
    """The node of a container type."""
    node = _NODES.get(kind) or _discover_node(kind)
    assert node is not None, f"`{kind.__name__}` is in a pytree but is not a container"
    return node


# Fast paths: functions generated for one form flatten and rebuild values without building a `Tree` to compare.

Flattener: TypeAlias = "Callable[[Any, list[Any]], bool]"
Unflattener: TypeAlias = "Callable[[Iterator[Any]], Any]"

_NUMBERS = (bool, int, float)


def make_flattener(tree: Tree, leaves: Iterator[Leaf]) -> Flattener:
    """A function that appends the tensors of a value to a list, or returns False if the value has another form.

    `leaves` are those of the form, in order: a static one must be equal, a declared scalar may be a Python number.
    """
    if tree.is_leaf:
        return _flatten_leaf(next(leaves))
    kind, data = tree.type, tree.data
    children = [make_flattener(child, leaves) for child in tree.children]
    if kind is dict:
        return _flatten_dict(as_tuple(data), children)
    if kind in (list, tuple):
        return _flatten_sequence(kind, children)
    return _flatten_node(kind, data, children)


def _flatten_leaf(leaf: Leaf) -> Flattener:
    dtype = leaf.dtype

    def take_scalar(value: Any, out: list[Any]) -> bool:
        out.append(scalar_tensor(value, dtype) if value.__class__ in _NUMBERS else value)
        return True

    def take(value: Any, out: list[Any]) -> bool:
        out.append(value)
        return True

    def take_tensor(value: Any, out: list[Any]) -> bool:
        out.append(value)
        return value.__class__ not in _NUMBERS  # without annotation a Python number is static

    def take_float(value: Any, out: list[Any]) -> bool:
        out.append(value)
        return value.__class__ is float

    if dtype is None:
        return _match_static(leaf.static, leaf.key)
    if leaf.is_number:
        return take_float
    if leaf.dims:
        return take
    return take_scalar if leaf.is_declared else take_tensor


def _match_static(static: Any, key: Hashable) -> Flattener:
    kind: type[Any] = static.__class__

    def take_single(value: Any, _: list[Any]) -> bool:
        return value is static or (value.__class__ is kind and value == static)

    def take_value(value: Any, _: list[Any]) -> bool:
        return value is static or (value.__class__ is kind and static_key(value) == key)

    def take_object(value: Any, _: list[Any]) -> bool:
        # Objects that compare equal may have different contents; the trace depends on those of this one.
        return value is static

    if is_single(kind):
        return take_single
    return take_value if is_value(static) else take_object


def _flatten_dict(keys: Sequence[Any], children: Sequence[Flattener]) -> Flattener:
    pairs, count = list(zip(keys, children, strict=True)), len(keys)

    def take(value: Any, out: list[Any]) -> bool:
        if value.__class__ is not dict or len(value) != count:
            return False
        # The order of keys is part of the form: a function that goes through them sees it.
        for (key, child), own in zip(pairs, value, strict=True):
            if (own is not key and own != key) or not child(value[own], out):
                return False
        return True

    return take


def _flatten_sequence(kind: Any, children: Sequence[Flattener]) -> Flattener:
    count = len(children)

    def take(value: Any, out: list[Any]) -> bool:
        if value.__class__ is not kind or len(value) != count:
            return False
        return all(child(item, out) for child, item in zip(children, value, strict=True))

    return take


def _flatten_node(kind: Any, data: Any, children: Sequence[Flattener]) -> Flattener:
    split = node_of(kind).split

    def take(value: Any, out: list[Any]) -> bool:
        if value.__class__ is not kind:
            return False
        items, found = split(value)
        return found == data and all(child(item, out) for child, item in zip(children, items, strict=True))

    return take


def make_unflattener(tree: Tree) -> Unflattener:
    """A function that builds a value of this form from its leaves."""
    if tree.type is None:
        return next
    kind, data = tree.type, tree.data
    children, join = [make_unflattener(child) for child in tree.children], node_of(kind).join
    if kind is tuple:  # the form of most results of several tensors
        count = len(children)
        if all(child.is_leaf for child in tree.children):
            return lambda leaves: tuple(islice(leaves, count))
        return lambda leaves: tuple([child(leaves) for child in children])

    def make(leaves: Iterator[Any]) -> Any:
        return join(kind, data, [child(leaves) for child in children])

    return make
