"""`KernelLibrary`: where the kernels of ops come from that are not made from their facets alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.emit.frame import Request


class KernelLibrary(Protocol):
    """Kernels by name, handed to the compiler by who has them."""

    def emit(self, name: str, request: Request) -> Sequence[SpecOp]:
        """The tile kernels of entry `name` for the one library op of `request.body`, in the order they run.

        Each takes the body's inputs and then its outputs as buffers, and is named after `request.name`.
        """
        ...


class NoLibrary:
    """A library without entries."""

    def emit(self, name: str, request: Request) -> Sequence[SpecOp]:
        raise KeyError(f"there is no library to take kernel `{name}` from")
