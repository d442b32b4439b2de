"""One or several: arguments that may be given either way."""

from __future__ import annotations

from typing import Any


def is_several(value: Any) -> bool:
    """Whether a value is a tuple or a list."""
    return isinstance(value, tuple | list)


def several(value: Any) -> tuple[Any, ...]:
    """A tuple or list as a tuple, and anything else as a tuple of one."""
    return tuple(value) if is_several(value) else (value,)
