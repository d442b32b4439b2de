"""Who is told when Python reads the elements of a tensor: a trace asks, for what it reads is part of its program."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

READERS: list[Callable[[Any], None]] = []
"""Called with each tensor that is read; empty outside of traces, where reading costs one look at it."""


@contextmanager
def noted() -> Generator[list[Any]]:
    """Within it, the tensors whose elements Python reads are put into the list it gives."""
    found: list[Any] = []
    READERS.append(found.append)
    try:
        yield found
    finally:
        # Not `remove`: it compares lists, and with it the tensors in them.
        READERS[:] = [reader for reader in READERS if getattr(reader, "__self__", None) is not found]


def tell(tensor: Any) -> None:
    """Let those who ask know that a tensor is read."""
    for reader in READERS:
        reader(tensor)
