"""`static_key`: what tells one Python value from another where a program depends on it, finer than `==`."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any

from tessera.types.dim import Dim
from tessera.types.dtype import DType

# Values of these types are the same wherever they are equal; the type itself is part of the key.
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
        # The text has the sign of zero, and one spelling for every NaN.
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
        # Field by field, whatever equality the class has: a finer key costs a trace, a coarser one is a wrong result.
        names = [item.name for item in dataclasses.fields(value) if item.compare]
        return (kind, tuple([static_key(getattr(value, name)) for name in names]))
    return (kind, value)


def is_single(kind: type[Any]) -> bool:
    """Whether values of a type are one Python object each, for which `==` between values of that type is enough."""
    return kind in _SINGLE


def is_value(value: Any) -> bool:
    """Whether a value is all there is to know: one equal to it, wherever it lies, is as good."""
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
