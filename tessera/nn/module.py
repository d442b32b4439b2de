"""Modules: frozen dataclasses whose tensors are leaves of a pytree, and whose other fields are part of its form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

from tessera.api.eager import install
from tessera.diagnostics.codes import ArgumentError, PytreeError
from tessera.diagnostics.error import find_nearest
from tessera.frontend import pytree
from tessera.frontend.functions.operands import cast as cast_tensor
from tessera.frontend.functions.operands import dtype_of, is_tensor
from tessera.frontend.pytree import Tree, flatten, leaf_names, static_key, unflatten
from tessera.nn.constructors import check_constructor
from tessera.types.dtype import parse_dtype

install()  # layers run eagerly too

_FORM = "_form"
_LEAF, _BUFFER = "tessera.leaf", "tessera.buffer"


def leaf(**options: Any) -> Any:
    """A field that is a leaf whatever its value is, as a Python number that is to be trained; takes `default`.

    >>> class Scale(ts.nn.Module):
    ...     factor: float = ts.nn.leaf(default=1.0)
    ...
    ...     def __call__(self, x):
    ...         return x * self.factor
    >>> ts.grad(lambda scale, x: scale(x).sum())(Scale(), ts.array([2.0, 3.0])).factor
    Tensor([] f32, 5)
    """
    metadata = {**options.pop("metadata", {}), _LEAF: True}
    return dataclasses.field(**options, metadata=metadata)


def buffer(**options: Any) -> Any:
    """A field with tensors that are state and no parameters, as running means are; `split_buffers` tells them apart.

    >>> class Counter(ts.nn.Module):
    ...     total: ts.Tensor = ts.nn.buffer()
    >>> parameters, buffers = ts.nn.split_buffers(Counter(ts.zeros(())))
    >>> parameters.total is None, buffers.total
    (True, Tensor([] f32, 0))
    """
    return leaf(**options, metadata={_BUFFER: True})


class Form:
    """What a module is without its tensors: its class, names of children, and static fields with their values.

    Equal forms are one object, so comparing them is comparing addresses.
    """

    __slots__ = ("children", "key", "owner", "static")

    owner: type[Any]
    children: tuple[str, ...]
    static: tuple[tuple[str, Any], ...]
    key: Hashable

    def __reduce__(self) -> Any:
        return _form_of, (self.owner, self.children, self.static)


_FORMS: dict[Hashable, Form] = {}


def _form_of(owner: type[Any], children: tuple[str, ...], static: tuple[tuple[str, Any], ...]) -> Form:
    key = (owner, children, tuple([(name, _key_of(owner, name, value)) for name, value in static]))
    found = _FORMS.get(key)
    if found is None:
        found = Form()
        found.owner, found.children, found.static, found.key = owner, children, static, key
        _FORMS[key] = found
    return found


def _key_of(owner: type[Any], name: str, value: Any) -> Hashable:
    try:
        hash(value)
        return static_key(value)
    except TypeError:
        raise PytreeError(
            f"`{owner.__name__}.{name}` is of type `{type(value).__name__}`, which holds no tensor and is not hashable",
            notes=("rule: fields without tensors are static, part of what a program is compiled for",),
            fix="write a tuple in place of the list"
            if isinstance(value, list)
            else "make it hashable, or declare it a leaf: `field: float = nn.leaf()`",
        ) from None


def _is_child(owner: type[Any], name: str, value: Any) -> bool:
    """Whether a value is a tensor, a module, or a container with one in it; raises where a container mixes them."""
    if isinstance(value, Module) or is_tensor(value):
        return True
    leaves, tree = flatten(value)
    if tree.is_leaf:
        return False
    if not _has_modules(tree) and not any(is_tensor(one) for one in leaves):
        return False
    wrong = next(_loose_leaves(tree, iter(leaves)), None)
    if wrong is not None:
        raise PytreeError(
            f"`{owner.__name__}.{name}` has tensors beside {wrong!r}, of type `{type(wrong).__name__}`",
            notes=("rule: a field holds tensors and modules, and is a child, or neither, and is static",),
            fix="make two fields of it, or a module of each part",
        )
    return True


def _has_modules(tree: Tree) -> bool:
    own = tree.type is not None and issubclass(tree.type, Module)
    return own or any(_has_modules(child) for child in tree.children)


def _loose_leaves(tree: Tree, leaves: Iterator[Any]) -> Iterator[Any]:
    """Leaves of a container that are no tensors, apart from those within modules, which declare them."""
    if tree.type is None:
        value = next(leaves)
        if not is_tensor(value):
            yield value
    elif issubclass(tree.type, Module):
        for _ in range(tree.leaf_count):
            next(leaves)
    else:
        for child in tree.children:
            yield from _loose_leaves(child, leaves)


def _classify(module: Module) -> Form:
    """The form of a module that was made by its constructor: which fields are children is seen by their values."""
    owner, children = type(module), list[str]()
    static: list[tuple[str, Any]] = []
    for item in dataclasses.fields(module):  # pyright: ignore[reportArgumentType] - every subclass is a dataclass
        value = getattr(module, item.name)
        if _LEAF in item.metadata or _is_child(owner, item.name, value):
            children.append(item.name)
        else:
            static.append((item.name, value))
    form = _form_of(owner, tuple(children), tuple(static))
    module.__dict__[_FORM] = form
    return form


def form_of(module: Module) -> Form:
    """What a module is without its tensors."""
    return module.__dict__.get(_FORM) or _classify(module)


def _split(module: Module) -> tuple[Sequence[Any], Form]:
    own = module.__dict__
    form = own.get(_FORM) or _classify(module)
    return [own[name] for name in form.children], form


def _join(form: Any, children: Sequence[Any]) -> Any:
    # Not through `__init__`: it may check or change its arguments, and leaves may be of any kind here.
    made = object.__new__(form.owner)
    own = made.__dict__
    own.update(form.static)
    own.update(zip(form.children, children, strict=True))
    own[_FORM] = form
    return made


def _refuse(module: Any, name: str, *_: Any) -> NoReturn:
    raise FrozenInstanceError(
        f"cannot set `{type(module).__name__}.{name}`: a module is a value; make another with "
        f"`module.replace({name}=...)`"
    )


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(leaf, buffer, dataclasses.field))
class Module:
    """A part of a model: a frozen dataclass, made by writing a subclass with typed fields, and called as a function.

    Fields that hold tensors, modules, or lists, tuples and dicts of them are children of a pytree; all others are
    static, which means that programs are compiled for their values, and must be hashable. `nn.leaf()` declares a field
    a leaf whatever it holds. Gradients and moments of optimizers are modules of the same form. By convention the
    classmethod `init` makes a module from a key.

    Weights are tied by use: a layer that is needed twice is one field, called twice. One object in two fields is two
    values after an update, which `ts.train.State.init` refuses.

    >>> class Affine(ts.nn.Module):
    ...     weight: ts.Tensor
    ...     shift: float
    ...
    ...     def __call__(self, x):
    ...         return x * self.weight + self.shift
    >>> model = Affine(ts.array([2.0, 3.0]), 1.0)
    >>> model(ts.array([1.0, 1.0]))
    Tensor([2] f32, [3, 4])
    >>> ts.grad(lambda model, x: model(x).sum())(model, ts.array([5.0, 7.0]))
    Affine(weight=f32[2], shift=1.0)
    """

    torch_axes: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """How the tensors of a layer are stored by PyTorch, where otherwise: permutations of axes by field name."""
    has_parameters: ClassVar[bool] = True
    """Its tensors are what `params` in the layout of a mesh cuts."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        is_written = "__init__" in vars(cls)
        declared: Any = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        if not is_written:
            declared.__init__ = check_constructor(declared, Module)
        declared.__setattr__ = _refuse
        declared.__delattr__ = _refuse
        pytree.register(cls, _split, _join, fields=lambda form: form.children)

    def replace(self, **changes: Any) -> Self:
        """The same module with other values of some fields.

        >>> ts.nn.LayerNorm.init(4).replace(eps=1e-6).eps
        1e-06
        """
        names = [item.name for item in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        unknown = next((name for name in changes if name not in names), None)
        if unknown is not None:
            near = find_nearest(unknown, names)
            raise ArgumentError(
                f"`{type(self).__name__}` has no field `{unknown}`",
                fix=f"write `{near[0]}`" if near else f"its fields are {', '.join(names)}",
            )
        made: Any = self
        return dataclasses.replace(made, **changes)

    def __repr__(self) -> str:
        names = [item.name for item in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        inner = [f"{name}={_show(self.__dict__[name])}" for name in names if name in self.__dict__]
        line = f"{type(self).__name__}({', '.join(inner)})"
        if len(line) <= 100 and "\n" not in line:
            return line
        body = "".join(f"  {one},\n".replace("\n", "\n  ").rstrip(" ") for one in inner)
        return f"{type(self).__name__}(\n{body})"


def _show(value: Any) -> str:
    if is_tensor(value):
        return f"{dtype_of(value)}{list(value.shape)}"
    if pytree.is_sequence(value) and any(isinstance(one, Module) for one in value):
        inner = ",\n".join(map(_show, value)).replace("\n", "\n  ")
        return f"[\n  {inner}\n]"
    return getattr(value, "__name__", None) or repr(value)


# Parts of a tree: which leaves are trained, and in which dtype they are kept.


def cast(tree: Any, dtype: Any) -> Any:
    """A tree with its tensors of floats in another dtype; tensors of integers and bools stay as they are.

    >>> ts.nn.cast(ts.nn.LayerNorm.init(4), ts.bf16)
    LayerNorm(weight=bf16[4], bias=bf16[4], eps=1e-05)
    """
    target = parse_dtype(dtype)
    leaves, form = flatten(tree)
    return unflatten(form, [cast_tensor(one, target) if _is_float(one) else one for one in leaves])


def _is_float(value: Any) -> bool:
    return is_tensor(value) and dtype_of(value).is_float


def partition(tree: Any, is_chosen: Callable[[str, Any], bool]) -> tuple[Any, Any]:
    """Two trees of the same form: one with the leaves of which `is_chosen(name, leaf)`, one with the others.

    Where a leaf is in the other tree, None stands, which has no leaves: `grad` by the first tree leaves the second as
    it is. `combine` puts them together. Names are those of `state_dict`.

    >>> model = ts.nn.Linear.init(ts.random.key(0), 3, 2)
    >>> trained, frozen = ts.nn.partition(model, lambda name, leaf: name == "bias")
    >>> trained.weight is None, frozen.bias is None
    (True, True)
    >>> ts.nn.combine(trained, frozen)
    Linear(weight=f32[3, 2], bias=f32[2])
    """
    leaves, form = flatten(tree)
    chosen = [bool(is_chosen(name, one)) for name, one in zip(leaf_names(form), leaves, strict=True)]
    first = [one if own else None for one, own in zip(leaves, chosen, strict=True)]
    second = [None if own else one for one, own in zip(leaves, chosen, strict=True)]
    return unflatten(form, first), unflatten(form, second)


def split_buffers(tree: Any) -> tuple[Any, Any]:
    """The parameters of a tree of modules, and its buffers, as two trees that `combine` puts together.

    >>> parameters, buffers = ts.nn.split_buffers(ts.nn.BatchNorm.init(4))
    >>> parameters.mean is None, buffers.weight is None
    (True, True)
    """
    leaves, form = flatten(tree)
    is_buffer = _buffer_leaves(form, is_inside=False)
    first = [None if own else one for one, own in zip(leaves, is_buffer, strict=True)]
    second = [one if own else None for one, own in zip(leaves, is_buffer, strict=True)]
    return unflatten(form, first), unflatten(form, second)


def _buffer_leaves(tree: Tree, *, is_inside: bool) -> list[bool]:
    """Of each leaf, whether it is in a field that is declared a buffer."""
    if tree.type is None:
        return [is_inside]
    names: Sequence[str] = ()
    if issubclass(tree.type, Module):
        fields = dataclasses.fields(tree.type)  # pyright: ignore[reportArgumentType] - every subclass is a dataclass
        names = [item.name for item in fields if _BUFFER in item.metadata]
    steps = pytree.node_of(tree.type).steps(tree.data, len(tree.children))
    pairs = zip(steps, tree.children, strict=True)
    return [
        own for step, child in pairs for own in _buffer_leaves(child, is_inside=is_inside or step.lstrip(".") in names)
    ]


def combine(first: Any, second: Any) -> Any:
    """One tree of two that `partition` made: each leaf is that of the tree which has it.

    >>> ts.nn.combine({"a": 1, "b": None}, {"a": None, "b": 2})
    {'a': 1, 'b': 2}
    """
    if first is None or second is None:
        return second if first is None else first
    (left, data), (right, other) = _children(first), _children(second)
    if left is None or right is None or type(first) is not type(second) or data != other or len(left) != len(right):
        raise PytreeError(
            f"`combine` takes two trees of one form with each leaf in one of them, got {type(first).__name__} and "
            f"{type(second).__name__} at one path",
            fix="pass the two trees that `partition` gave",
        )
    children = [combine(one, two) for one, two in zip(left, right, strict=True)]
    kind: type[Any] = first.__class__
    return pytree.node_of(kind).join(kind, data, children)


def _children(value: Any) -> tuple[Sequence[Any] | None, Any]:
    kind: type[Any] = value.__class__
    return (None, None) if flatten(value)[1].is_leaf else pytree.node_of(kind).split(value)
