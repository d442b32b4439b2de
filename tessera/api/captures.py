"""What a specialization took from outside its function, so that each call sees what is there now.

The rule: whatever a function read from outside while it was traced is watched. A tensor that went into the program is
an input, read at each call from the place where it was found. Everything else (numbers, flags, strings, which tensor
is which, the forms of containers and objects) is part of what the program was made for: where it has changed, the
function is traced again. `outside.py` says which places a function can read.

Between calls each place is compared by identity. Only where one differs is the function looked at again: equal values
in other objects (a new dict of new weights) are the same program, reading from the new places. A tensor that did not go
into the program counts by its dtype and shape, unless Python read its elements; a NumPy array, whose reads nobody sees,
by identity. Not seen are changes inside objects written in C, elements that change in place after Python read them, and
what NumPy read of an array that went into the program besides.

A tensor that no place holds was made while tracing, from what is watched: it is a constant of the program. What the
function itself changes while it is traced, a list that it appends to or a number that it counts up, is not watched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

from tessera.api.outside import MISSING, Get, Outside, Same
from tessera.frontend.concrete import concrete_type, is_array, is_concrete
from tessera.frontend.pytree import static_key

Forms: TypeAlias = "list[tuple[str, Hashable]]"


class Captures:
    """The places outside a function that one specialization depends on.

    `before` is what was there before its trace, and `read` are the tensors whose elements Python read during it, and
    the mesh where it asked for one: a program that speaks with other ranks is made for the mesh around it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Mapping[str, Any],
        before: Outside,
        lifted: Sequence[Any],
        read: Sequence[Any] = (),
    ) -> None:
        self._function, self._arguments = function, arguments
        found = Outside(function, arguments, before.names)
        self._ignored = _changed(before.forms, found.forms)
        if self._ignored:
            found = Outside(function, arguments, found.names, self._ignored)
        numbers = {id(tensor): number for number, tensor in enumerate(lifted)}
        owners = [(at, numbers.get(id(place.value))) for at, place in enumerate(found.places)]
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

    def _adopt(self, found: Outside, arguments: Mapping[str, Any]) -> None:
        """Read and compare at these places from now on."""
        self._paths, self._arguments = [place.path for place in found.places], arguments
        reads: dict[int, tuple[Get, Any]] = {number: ({None: it}.get, None) for number, it in self._pinned.items()}
        watched: list[tuple[Get, Any, Any]] = []
        if self.meshes:
            watched.append((_mesh_in_force(), None, _mesh_in_force()()))
        pairs: list[tuple[tuple[Get, Any], tuple[Get, Any]]] = []
        for at, place in enumerate(found.places):
            number, here = self._inputs.get(at), (place.get, place.key)
            if number is None:
                if not place.is_fixed:
                    watched.append((*here, place.value))
            elif number in reads:
                pairs.append((reads[number], here))
            else:
                reads[number] = here
            if number is not None and id(place.value) in self._read:
                watched.append((*here, place.value))
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
            found = Outside(self._function, arguments, self._names, self._ignored)
            if self._form_of(found) != self._form:
                return None
            self._adopt(found, arguments)
            tensors = self.tensors()
        return tensors

    def _form_of(self, found: Outside) -> Forms:
        """What two looks must have in common for one program to serve both."""
        numbers: dict[int, int] = {}
        form = [*found.forms, ("", tuple([place.path for place in found.places]))]
        if self.meshes:
            form.append(("the mesh", _mesh_in_force()()))
        for at, place in enumerate(found.places):
            value = place.value
            if at in self._inputs:
                form.append((place.path, (concrete_type(value), numbers.setdefault(id(value), at))))
            if id(value) in self._read:
                form.append((place.path, Same(value)))
            elif at not in self._inputs and is_concrete(value):
                form.append((place.path, _unread_form(value)))
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
    from tessera.runtime.ranks.mesh import Mesh  # noqa: PLC0415 - few functions ask for anything

    return [one for one in read if isinstance(one, Mesh)]


def _mesh_in_force() -> Callable[..., Any]:
    """What says which mesh is around."""
    from tessera.runtime.ranks.mesh import mesh_in_force  # noqa: PLC0415 - few functions speak with other ranks

    return mesh_in_force


def _changed(before: Forms, after: Forms) -> frozenset[str]:
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


def _unread_form(value: Any) -> Hashable:
    """Of a tensor that is no input of the program: all of a number, else what code can read without its elements."""
    type = concrete_type(value)
    if value.shape == () or type is None or type.size.value == 1:
        return (type, static_key(value))
    return Same(value) if is_array(value) else type
