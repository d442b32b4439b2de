"""The names that a piece of code reads: its globals, and the attributes it asks objects for."""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

from tessera.types.frozen import frozen

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
