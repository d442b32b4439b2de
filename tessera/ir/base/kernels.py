"""Kernels that users wrote, by name: what an op that calls one asks for, without knowing who wrote it or how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.tensor_type import TensorType


@frozen
class Outcome:
    """What a kernel gives for operands of some types: its results, and dims that must then be equal."""

    results: tuple[TensorType, ...]
    equalities: tuple[tuple[Dim, Dim, str], ...]


class UserKernel(Protocol):
    """A kernel with its static arguments and its schedule."""

    def outcome(self, types: Sequence[TensorType]) -> Outcome:
        """The shape rule."""
        ...

    def reference(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The meaning, on NumPy arrays."""
        ...

    def write(self, call: Any) -> list[Any]:
        """The tile kernels of a call, in the order they run."""
        ...

    @property
    def place(self) -> str:
        """Where it was written: a file and a line."""
        ...

    @property
    def vjp(self) -> Any:
        """What differentiates it, or None: a function of operands, results and gradients of the results."""
        ...


KERNELS: dict[str, UserKernel] = {}
"""Every kernel that a program of this process calls, by name and digest."""


def register(name: str, kernel: UserKernel) -> None:
    """Let programs call a kernel by a name, which says what it computes."""
    KERNELS[name] = kernel
