"""The mesh: ranks by their places along named axes, and the one that is in force where code runs."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from math import prod
from typing import Any

from tessera.types.frozen import frozen


@frozen
class Mesh:
    """Axes with their sizes, in order; the ranks of the last axis are next to each other.

    >>> mesh = mesh_of((("dp", 2), ("tp", 2)))
    >>> mesh.group("dp", 3), mesh.group("tp", 3), mesh.place("tp", 3)
    ((1, 3), (2, 3), 1)
    """

    axes: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return prod(size for _, size in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(self.axes)

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """The ranks that differ from one in their place along an axis alone, in order; it is among them."""
        step, count = self._step(axis), self.sizes[axis]
        first = rank - self.place(axis, rank) * step
        return tuple([first + at * step for at in range(count)])

    def place(self, axis: str, rank: int) -> int:
        """The number of a rank along an axis."""
        return rank // self._step(axis) % self.sizes[axis]

    def _step(self, axis: str) -> int:
        """How far apart neighbours along an axis are."""
        names = [name for name, _ in self.axes]
        return prod(size for _, size in self.axes[names.index(axis) + 1 :])

    def __str__(self) -> str:
        return f"mesh({', '.join(f'{name}={size}' for name, size in self.axes)})"


@cache
def mesh_of(axes: tuple[tuple[str, int], ...]) -> Mesh:
    """The one mesh of these axes, so that equal ones are the same object."""
    return Mesh(axes)


NONE = mesh_of(())
MESH: ContextVar[Mesh] = ContextVar("mesh", default=NONE)


def mesh_in_force(_key: Any = None, _missing: Any = None) -> Mesh:
    """The mesh around the code that runs; what a watched place is read with."""
    return MESH.get()
