"""A driver for tests, whose handles and memory are numbers that it counts up."""

from __future__ import annotations

from typing import Any

_MADE = ("cuStreamCreate", "cuEventCreate", "cuGraphInstantiateWithFlags")


class Numbered:
    """What is asked of it succeeds; what it makes has the next number."""

    step = 4096
    """Bytes from one block of memory to the next."""

    def __init__(self) -> None:
        self.handles, self.blocks = 100, 1 << 20
        self.library: Any = self

    def check(self, code: int, what: str) -> None:
        assert not code, what

    def give(self, name: str, given: tuple[Any, ...]) -> None:
        """Fill in what a function makes."""
        if name in _MADE:
            self.handles += 1
            given[0]._obj.value = self.handles
        elif name in ("cuMemAlloc_v2", "cuMemHostAlloc"):
            self.blocks += self.step
            given[0]._obj.value = self.blocks
