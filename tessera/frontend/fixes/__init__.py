"""Fix-its: for an error, the edit of the user's source that fixes the program; loaded only when an error is raised."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def fixes_of(kind: str) -> Any:
    """The module of one kind of fixes: `operands`, `arguments` or `statements`."""
    return import_module(f"tessera.frontend.fixes.{kind}")
