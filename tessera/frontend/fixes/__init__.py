"""Fixes that cure: for an error, the edit of the user's source that makes the program right; loaded by errors alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def fixes_of(kind: str) -> Any:
    """The module of one kind of fixes: `operands`, `arguments`, `calls` or `values`."""
    return import_module(f"tessera.frontend.fixes.{kind}")
