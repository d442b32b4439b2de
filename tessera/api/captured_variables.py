"""Variables that a function captures: what its code reads of them, and whether they still are as it was traced."""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache, cached_property, lru_cache, partial
from operator import is_
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias, cast

from tessera.frontend.concrete import concrete_type, is_array, is_concrete
from tessera.frontend.pytree import is_value, static_key
from tessera.runtime.foreign import adopt
from tessera.types.frozen import frozen

# The names that a piece of code reads: its globals, and the attributes it asks objects for.

ALL_ATTRIBUTES = "*"
"""Stands among the attributes of code that may ask for any of them."""

# With one of these, code asks for attributes by names that it does not spell.
_ANY = frozenset({"getattr", "hasattr", "vars", "attrgetter", "asdict", "astuple", "fields", "__dict__", "dir"})


@frozen
class Names:
    """What code reads, by name."""

    globals: frozenset[str]
    attributes: frozenset[str]


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """The names that code and the functions inside it read; those that are only written are not among them."""
    found_globals, attributes = set[str](), set[str]()
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found_globals.add(step.argval)
        elif step.opcode in dis.hasname and not step.opname.startswith(("STORE", "DELETE")):
            attributes.add(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = names_of(constant)
            found_globals |= inner.globals
            attributes |= inner.attributes
    if (found_globals | attributes) & _ANY:
        attributes.add(ALL_ATTRIBUTES)
    return Names(frozenset(found_globals), frozenset(attributes))


# Every captured variable that a function may read while it is traced, found by walking from the function itself.

Get: TypeAlias = Callable[[Any, Any], Any]

MISSING: Any = object()
"""The value of a variable that is not set."""

OPEN: Any = object()
"""The value of a variable that stands for the size or the items of a container, while they are as they were."""

_SCALARS = (int, float, str, bool, bytes, type(None))
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for every class that Python code makes
_FEW = 64  # a table of numbers that is larger is one variable, and not one for each entry
_INSTALLED = ("site-packages", "dist-packages")
_OWN_MODELS = ("tessera.nn", "tessera.api.kv_cache")
_UNCALLED = frozenset({"__init__", "__new__", "__repr__", "__del__", "__init_subclass__", "__class_getitem__"})


class Same:
    """An object as a key: equal to itself alone, and kept alive for as long as the key is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@frozen
class Variable:
    """Where a value was found: `get(key, MISSING)` reads it again, `path` is what a person would write.

    What is fixed cannot change while the object that holds it stays: the item of a tuple is.
    """

    path: str
    get: Get
    key: Any
    value: Any
    is_fixed: bool = False


class CapturedVariables:
    """What a walk found: `variables` in the order of the walk, and `forms`, paths with what tells two walks apart.

    Two walks with equal forms and tensors alike give the same trace. `names` are the attributes that code asks for.
    Nothing at or below the paths `ignored` is looked at.
    """

    def __init__(
        self,
        function: Any,
        arguments: Mapping[str, Any],
        names: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self.names: frozenset[str] = names
        self._ignored = ignored
        while True:
            # A name that is found late may be an attribute of an object that was visited early.
            self._found: set[str] = set(self.names)
            self._walk(function, arguments)
            if len(self._found) == len(self.names):
                return
            self.names = frozenset(self._found)

    def _walk(self, function: Any, arguments: Mapping[str, Any]) -> None:
        self.variables: list[Variable] = []
        self.forms: list[tuple[str, Hashable]] = []
        self._waiting: deque[tuple[str, Any]] = deque([("", function)])
        self._numbers: dict[int, int] = {}
        self._owners: set[tuple[int, Any]] = set()
        self._kept: list[Any] = []
        for path, value in arguments.items():
            self._add_fixed(path, value)
        while self._waiting:
            path, value = self._waiting.popleft()
            if not is_concrete(value):  # whether it was read as a tensor, only the trace knows
                self.forms.append((path, self._visit_form(path, value)))

    def _visit_form(self, path: str, value: Any) -> Hashable:
        if value.__class__ in _SCALARS or is_value(value) or is_array(value):
            return static_key(value)
        number = self._numbers.setdefault(id(value), len(self._numbers))
        if number < len(self._kept):
            return ("again", number)
        self._kept.append(value)  # bound methods and the like are made anew at each look, and ids are used again
        return self._form(path, value)

    def _form(self, path: str, value: Any) -> Hashable:
        """What tells two values of a variable apart; what it contains waits for its own visit."""
        kind: type[Any] = value.__class__
        if isinstance(value, FunctionType):
            self._enter_function(path, value)
            # Into what others made nobody looks, and their decorators give many functions one code.
            is_closed = path and value.__closure__ and _is_foreign(value)
            return (kind, Same(value if is_closed else value.__code__))
        if isinstance(value, MethodType | partial):
            self._enter_parts(path, value)
            return (kind,)
        if isinstance(value, list | tuple | deque):
            return self._sequence(path, value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, dict):
            return self._dict(path, value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, set | frozenset):
            return self._set(path, value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, ModuleType | type):
            if not _is_foreign(value) and not (isinstance(value, type) and issubclass(value, Enum)):
                self._enter_namespace(path, value)
            return Same(value)
        if (wrapped := _wrapped_function(value)) is not None:
            self._enter_wrapped(path, value, wrapped)
            return Same(value)
        if not _is_transparent(kind):
            return Same(value)
        self._enter_object(path, value)
        return Same(kind)

    def _add(self, path: str, owner: Any, get: Get, key: Any, value: Any) -> None:
        if path in self._ignored:
            return
        if (id(owner), key) not in self._owners:
            self._owners.add((id(owner), key))
            self.variables.append(Variable(path, get, key, value))
            self._watch_definition(path, value)
        self._waiting.append((path, value))

    def _watch_definition(self, path: str, value: Any) -> None:
        """Of a function, its code and defaults too, which can be set; those of the jitted one are of when it was."""
        if isinstance(value, FunctionType) and not _is_foreign(value):
            self._add_check(path, watch_definition(value))

    def _add_fixed(self, path: str, value: Any) -> None:
        self.variables.append(Variable(path, {None: value}.get, None, value, is_fixed=True))
        self._waiting.append((path, value))

    def _add_check(self, path: str, get: Get) -> None:
        """A variable whose value is `OPEN` for as long as what was seen of a container holds."""
        self.variables.append(Variable(path, get, None, OPEN))

    def _add_name(self, path: str, owner: Any, scope: Mapping[str, Any], name: str) -> None:
        """A global or a member of a module or class: watched, unless it is a module, which is only entered."""
        value = scope[name]
        if not isinstance(value, ModuleType):
            self._add(path, owner, scope.get, name, value)
        elif not _is_foreign(value):
            self._waiting.append((path, value))

    def _add_definition(self, path: str, owners: Sequence[type[Any]], name: str, function: Any) -> None:
        """A method of the last of some classes: watched there, and in those before it, where another would hide it."""
        if path in self._ignored:
            return
        for owner in owners:
            held: Mapping[str, Any] = vars(owner)
            if (id(owner), name) not in self._owners and (owner is owners[-1] or name not in held):
                self._owners.add((id(owner), name))
                self.variables.append(Variable(path, held.get, name, held.get(name, MISSING)))
                self._watch_definition(path, function)
        self._waiting.append((path, function))

    def _enter_function(self, path: str, function: FunctionType) -> None:
        if path and _is_foreign(function):
            return
        names, scope = names_of(function.__code__), function.__globals__
        # What a transform gives is code of ours around a function, whose names it has: none of its own changes.
        is_ours = str(scope.get("__name__", "")).startswith("tessera.") and _is_library(scope["__name__"])
        self._found |= names.attributes if not is_ours else frozenset()
        for name in sorted(names.globals & scope.keys()) if not is_ours else ():
            self._add_name(name, scope, scope, name)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            get = _cell_getter(cell)
            if is_ours:
                self._add_fixed(name, get(None, MISSING))
            else:
                self._add(name, cell, get, None, get(None, MISSING))
        prefix = path or function.__name__
        if path:
            # Those of the jitted function itself come with each call, as arguments.
            for number, item in enumerate(function.__defaults__ or ()):
                self._add_fixed(f"{prefix}.__defaults__[{number}]", item)
            for name, item in (function.__kwdefaults__ or {}).items():
                self._add_fixed(f"{prefix}.__kwdefaults__[{name!r}]", item)
        held = vars(function)
        for name in self._names_in(held):
            self._add(f"{prefix}.{name}", held, held.get, name, held[name])

    def _enter_wrapped(self, path: str, value: Any, wrapped: Any) -> None:
        """What a wrapper is made of, and the derivatives that it was given."""
        self._waiting.append((path + ".function", wrapped))
        if (held := _rule_holder(value)) is not None:
            for name in _RULES:
                self._add(f"{path}.{name}", held, held.get, name, held[name])

    def _enter_parts(self, path: str, value: Any) -> None:
        if isinstance(value, MethodType):
            self._add_fixed(f"{path}.__self__" if path else "self", value.__self__)
            self._add_fixed(f"{path}.__func__" if path else "", value.__func__)
            return
        self._add_fixed(f"{path}.func" if path else "", value.func)
        for number, item in enumerate(value.args):
            self._add_fixed(f"{path}.args[{number}]", item)
        for name, item in value.keywords.items():
            self._add(f"{path}.keywords[{name!r}]", value.keywords, value.keywords.get, name, item)

    def _sequence(self, path: str, items: Any) -> Hashable:
        kind, held = items.__class__, tuple(items)
        if isinstance(items, tuple):
            for number, item in enumerate(held):
                self._add_fixed(f"{path}[{number}]", item)
        elif all(item.__class__ in _SCALARS for item in held):
            self._add_check(path, _same_items(items, held))
            return (kind, static_key(held))
        else:
            self._add_check(path, _same_count(items))
            for number, item in enumerate(held):
                self._add(f"{path}[{number}]", items, _item_getter(items), number, item)
        return (kind, len(held))

    def _dict(self, path: str, items: dict[Any, Any]) -> Hashable:
        held = dict(items)
        if len(held) > _FEW and all(item.__class__ in _SCALARS for item in held.values()):
            self._add_check(path, _same_pairs(items, held))
            return (items.__class__, static_key({_key_or_same(key): item for key, item in held.items()}))
        self._add_check(path, _same_count(items))
        for key, item in held.items():
            self._add(f"{path}[{key!r}]", items, items.get, key, item)
        return (items.__class__, tuple([_key_or_same(key) for key in held]))

    def _set(self, path: str, items: Any) -> Hashable:
        held: frozenset[Any] = frozenset(items)
        kind: Hashable = items.__class__
        if not isinstance(items, frozenset):
            self._add_check(path, lambda _, default: OPEN if held == items else default)
        return (kind, frozenset([_key_or_same(item) for item in held]))

    def _enter_namespace(self, path: str, value: Any) -> None:
        """What code names in a module, or in a class and those it comes from."""
        if isinstance(value, ModuleType):
            held = vars(value)
            # Only what is spelled: it has everything that its program has.
            for name in sorted(self._found & held.keys()):
                self._add_name(f"{path}.{name}", held, held, name)
            return
        owners = _own_classes(value)
        for at, owner in enumerate(owners):
            for name in self._names_in(vars(owner)):
                self._enter_member(f"{path}.{name}", owners[: at + 1], name)

    def _enter_member(self, path: str, owners: Sequence[type[Any]], name: str) -> None:
        """What a name is in the last of some classes, each of which is asked before the next."""
        held: Mapping[str, Any] = vars(owners[-1])
        function = _function_of(held[name])
        if function is not None:
            self._add_definition(path, owners, name, function)
        elif not hasattr(held[name].__class__, "__get__"):
            self._add_name(path, owners[-1], held, name)

    def _enter_object(self, path: str, value: Any) -> None:
        held: Mapping[str, Any] = getattr(value, "__dict__", {})
        prefix = f"{path}." if path else ""
        if ALL_ATTRIBUTES in self._found:
            self._add_check(path, _same_count(held))
        for name in self._names_in(held):
            self._add(prefix + name, held, held.get, name, held[name])
        owners = _own_classes(value.__class__)
        for at, owner in enumerate(owners):
            for name, member in dict(vars(owner)).items():
                if name.startswith("__") and name.endswith("__"):
                    if isinstance(member, FunctionType) and name not in _UNCALLED:
                        self._add_definition(prefix + name, owners[: at + 1], name, member)
                elif member.__class__.__name__ == "member_descriptor" and self._is_named(name):
                    self._add_slot(prefix + name, value, name)
                elif self._is_named(name) and name not in held:
                    self.variables.append(Variable(prefix + name, held.get, name, MISSING))
                    self._enter_member(prefix + name, owners[: at + 1], name)

    def _add_slot(self, path: str, value: Any, name: str) -> None:
        get: Get = partial(getattr, value)
        self._add(path, value, get, name, get(name, MISSING))

    def _is_named(self, name: str) -> bool:
        return name in self._found or (ALL_ATTRIBUTES in self._found and not name.startswith("__"))

    def _names_in(self, held: Mapping[str, Any]) -> Iterator[str]:
        return (name for name in sorted(held, key=str) if self._is_named(name))


def _is_foreign(value: Any) -> bool:
    """Whether a module, class or function belongs to a library, and not to the program."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return not isinstance(name, str) or _is_library(name)


def _own_classes(kind: type[Any]) -> list[type[Any]]:
    """A class and those it comes from, as far as they are the program's, in the order they are asked for a member."""
    return [owner for owner in kind.__mro__ if not _is_foreign(owner)]


@cache
def _is_library(name: str) -> bool:
    top = name.split(".", 1)[0]
    if top == "tessera":
        return not name.startswith(_OWN_MODELS)
    if top in sys.stdlib_module_names:
        return True
    file = str(getattr(sys.modules.get(name), "__file__", None) or "")
    return any(folder in file for folder in _INSTALLED) and not _uses_this_package(top)


@cache
def _uses_this_package(top: str) -> bool:
    """Whether a package has anything of ours among its names: only then can code of its own be traced."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".", 1)[0] == top]
    for value in [value for module in modules for value in list(vars(module).values())]:
        kind = cast("type[Any]", type(value))  # and not its `__class__`, which may be computed, and warn
        if issubclass(kind, ModuleType | type | FunctionType):
            owner = value.__name__ if issubclass(kind, ModuleType) else value.__module__
            if str(owner).split(".", 1)[0] == "tessera":
                return True
    return False


def _is_jitted(value: Any) -> bool:
    return value.__class__.__module__ == "tessera.api.jit"


def _wrapped_function(value: Any) -> Any:
    """The function that a jitted one, a custom one or a kernel is made of; None for anything else."""
    if _is_jitted(value) or _is_of(value, "tessera.api.custom", "CustomFunction"):
        return value.function
    return value.definition.function if _is_of(value, "tessera.api.kernel", "Kernel") else None


_RULES = ("vjp", "backward", "jvp")


def _rule_holder(value: Any) -> Mapping[str, Any] | None:
    """The attributes among which are the derivatives that a function or a kernel was given."""
    is_kernel = _is_of(value, "tessera.api.kernel", "Kernel")
    if not is_kernel and not _is_of(value, "tessera.api.custom", "CustomFunction"):
        return None
    held: Mapping[str, Any] = (value.definition if is_kernel else value).__dict__
    return held


def _is_of(value: Any, module: str, name: str) -> bool:
    """Whether a value is of a class of ours, which need not be loaded."""
    kind = value.__class__
    return kind.__module__ == module and kind.__name__ == name


def _is_transparent(kind: type[Any]) -> bool:
    """Whether all state of objects of a type is in their attributes: none of its bases is written in C."""
    if kind.__module__.startswith("tessera."):
        return not _is_library(kind.__module__)
    return kind is SimpleNamespace or all(base is object or bool(base.__flags__ & _HEAP) for base in kind.__mro__)


def _function_of(member: Any) -> Any:
    """The function that runs when a member of a class is read or called; None where it is data."""
    if isinstance(member, FunctionType) or _is_jitted(member):
        return member
    if isinstance(member, staticmethod | classmethod):
        return member.__func__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _cell_getter(cell: Any) -> Get:
    def get(_: Any, default: Any) -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return default  # a cell that is not filled yet holds nothing

    return get


def _item_getter(items: Any) -> Get:
    def get(index: int, default: Any) -> Any:
        return items[index] if index < len(items) else default

    return get


def _same_count(items: Any) -> Get:
    count = len(items)
    return lambda _, default: OPEN if len(items) == count else default


def _same_items(items: Any, seen: tuple[Any, ...]) -> Get:
    count = len(seen)
    return lambda _, default: OPEN if len(items) == count and all(map(is_, items, seen)) else default


def _same_pairs(items: dict[Any, Any], seen: dict[Any, Any]) -> Get:
    keys, values = tuple(seen), tuple(seen.values())
    of_keys, of_values = _same_items(items, keys), _same_items(items.values(), values)
    return lambda _, default: OPEN if of_keys(_, default) is OPEN and of_values(_, default) is OPEN else default


def watch_definition(function: Any) -> Get:
    """A getter that gives `OPEN` while the parts of a function that can be set are those of now.

    It is asked in calls that take half a microsecond: names of a few objects are compared, and none is made.
    """
    code, defaults, named = function.__code__, function.__defaults__, function.__kwdefaults__
    if not named:
        return lambda _, default: (
            OPEN
            if function.__code__ is code and function.__defaults__ is defaults and not function.__kwdefaults__
            else default
        )
    of_named = _same_pairs(named, dict(named))  # it can be filled anew as it is

    def get(_: Any, default: Any) -> Any:
        is_same = function.__code__ is code and function.__defaults__ is defaults and function.__kwdefaults__ is named
        return of_named(_, default) if is_same else default

    return get


def _key_or_same(value: Any) -> Hashable:
    return static_key(value) if is_value(value) else Same(value)


# What a specialization captured, so that each call sees the values of now.

Forms: TypeAlias = "list[tuple[str, Hashable]]"


class Captures:
    """The captured variables that one specialization depends on.

    `before` is what was there before its trace, and `read` are the tensors whose elements Python read during it, and
    the mesh where it asked for one: a program that communicates with other ranks is made for the mesh around it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        before: CapturedVariables,
        lifted: Sequence[Any],
        read: Sequence[Any] = (),
    ) -> None:
        self._function, self._arguments = function, arguments
        found = CapturedVariables(function, arguments, before.names)
        self._ignored = _changed_paths(before.forms, found.forms)
        if self._ignored:
            found = CapturedVariables(function, arguments, found.names, self._ignored)
        numbers = {id(tensor): number for number, tensor in enumerate(lifted)}
        owners = [(at, numbers.get(id(variable.value))) for at, variable in enumerate(found.variables)]
        self._inputs = {at: number for at, number in owners if number is not None}
        self._pinned = {number: tensor for number, tensor in enumerate(lifted) if number not in self._inputs.values()}
        self._types = [concrete_type(tensor) for tensor in lifted]
        self.meshes = meshes_in(read)
        self._read = {id(tensor): tensor for tensor in read}
        self._names, self._form = found.names, self._form_of(found)
        self._adopt(found, arguments)

    @property
    def paths(self) -> list[str]:
        """Where each captured tensor is read, as a person would write it; empty for a constant made while tracing."""
        named: dict[int, str] = {}
        for at, number in self._inputs.items():
            named.setdefault(number, self._paths[at])
        return [named.get(number, "") for number in range(len(self._types))]

    def _adopt(self, found: CapturedVariables, arguments: Mapping[str, Any]) -> None:
        """Read and compare these variables from now on."""
        self._paths, self._arguments = [variable.path for variable in found.variables], arguments
        reads: dict[int, tuple[Get, Any]] = {number: ({None: it}.get, None) for number, it in self._pinned.items()}
        watched: list[tuple[Get, Any, Any]] = []
        if self.meshes:
            watched.append((_mesh_in_force(), None, _mesh_in_force()()))
        pairs: list[tuple[tuple[Get, Any], tuple[Get, Any]]] = []
        for at, variable in enumerate(found.variables):
            number, here = self._inputs.get(at), (variable.get, variable.key)
            if number is None:
                if not variable.is_fixed:
                    watched.append((*here, variable.value))
            elif number in reads:
                pairs.append((reads[number], here))
            else:
                reads[number] = here
            if number is not None and id(variable.value) in self._read:
                watched.append((*here, variable.value))
        # One assignment, so that a call in another thread sees all of the old or all of the new.
        self.current = tuple(watched), tuple(pairs), tuple(reads[number] for number in range(len(self._types)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is read and nothing can change."""
        return not any(self.current)

    def tensors(self) -> list[Any] | None:
        """The captured tensors as they are now; None where something else has changed, or may have."""
        watched, pairs, reads = self.current
        for get, key, seen in watched:
            if get(key, MISSING) is not seen:
                return None
        for (first, first_key), (second, second_key) in pairs:
            if first(first_key, MISSING) is not second(second_key, MISSING):
                return None
        return [get(key, MISSING) for get, key in reads]

    def tensors_for(self, arguments: Mapping[str, Any]) -> list[Any] | None:
        """As `tensors`, for a call with these static arguments, after a look at everything where that is needed."""
        is_same = all(arguments[name] is value for name, value in self._arguments.items())
        tensors = self.tensors() if is_same else None
        if tensors is None or [concrete_type(tensor) for tensor in tensors] != self._types:
            found = CapturedVariables(self._function, arguments, self._names, self._ignored)
            if self._form_of(found) != self._form:
                return None
            self._adopt(found, arguments)
            tensors = self.tensors()
        return tensors

    def _form_of(self, found: CapturedVariables) -> Forms:
        """What two looks must have in common for one program to serve both."""
        numbers: dict[int, int] = {}
        form = [*found.forms, ("", tuple([variable.path for variable in found.variables]))]
        if self.meshes:
            form.append(("the mesh", _mesh_in_force()()))
        for at, variable in enumerate(found.variables):
            value = variable.value
            if at in self._inputs:
                form.append((variable.path, (concrete_type(value), numbers.setdefault(id(value), at))))
            if id(value) in self._read:
                form.append((variable.path, Same(value)))
            elif at not in self._inputs and is_concrete(value):
                form.append((variable.path, _unread_form(value)))
        return form

    def differences(self, other: Captures) -> list[str]:
        """The paths of what differs between two specializations of one signature."""
        mine, others = dict(self._form), dict(other._form)
        changed = [path for path in {**mine, **others} if mine.get(path) != others.get(path)]
        return [path for path in changed if path] or ["the function"]


def meshes_in(read: Sequence[Any]) -> list[Any]:
    """What a trace asked for that is a mesh."""
    if not read:
        return []
    from tessera.runtime.ranks.world import Mesh  # noqa: PLC0415 - few functions ask for anything

    return [one for one in read if isinstance(one, Mesh)]


def _mesh_in_force() -> Callable[..., Any]:
    """What says which mesh is around."""
    from tessera.runtime.ranks.world import mesh_in_force  # noqa: PLC0415 - few functions communicate with other ranks

    return mesh_in_force


def _changed_paths(before: Forms, after: Forms) -> frozenset[str]:
    """The paths of what is different after; what was empty before is filled, and not changed."""
    empty = (static_key(None), Same(MISSING))
    old, new = _by_path(before), _by_path(after)
    return frozenset(
        path for path, forms in old.items() if path in new and new[path] != forms and forms[0] not in empty
    )


def _by_path(forms: Forms) -> dict[str, list[Hashable]]:
    found: dict[str, list[Hashable]] = {}
    for path, form in forms:
        found.setdefault(path, []).append(form)
    return found


def _unread_form(given: Any) -> Hashable:
    """Of a tensor that is no input of the program: all of a number, else what code can read without its elements."""
    value = adopt(given)
    type = concrete_type(value)
    if value.shape == () or type is None or type.size.value == 1:
        return (type, static_key(value))
    return Same(given) if value is not given or is_array(given) else type
