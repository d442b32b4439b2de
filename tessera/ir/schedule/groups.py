"""Groups of records, and which of them must run before which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tessera.ir.schedule.program import Program
from tessera.ir.schedule.rows import RowSpace
from tessera.types.dim import Dim

LARGEST = 64
"""Records up to which groups grow: larger kernels gain nothing, hold more values than registers, and compile slowly."""


@dataclass
class Group:
    """Records that become one kernel; `space` is where a row group stands, `copies` a free value it materializes."""

    number: int
    kind: str
    shape: tuple[Dim, ...]
    records: list[int] = field(default_factory=list[int])
    space: RowSpace | None = None
    copies: int | None = None

    def has_room(self, more: int = 1) -> bool:
        """Whether the group may take in so many records."""
        return len(self.records) + more <= LARGEST

    @property
    def first(self) -> int:
        return min(self.records, default=-1)


@dataclass(frozen=True)
class Grouping:
    """Groups in an order in which they can run.

    `owner` is the group of each solid record, `inlined` the values that are computed where they are read although they
    are not free.
    """

    program: Program
    groups: tuple[Group, ...]
    owner: dict[int, Group]
    inlined: frozenset[int]


class Order:
    """Which groups depend on which, kept closed under transitivity as sets of bits."""

    def __init__(self) -> None:
        self.before: list[int] = []

    def add(self) -> int:
        self.before.append(0)
        return len(self.before) - 1

    def depends(self, group: int, on: int) -> bool:
        return bool(self.before[group] >> on & 1)

    def needs(self, group: int, others: Iterable[int]) -> None:
        """Record that `group` runs after the others, and with it all that run after `group`."""
        more = 0
        for other in others:
            if other != group:
                more |= self.before[other] | 1 << other
        if more & ~self.before[group]:
            self.before[group] |= more
            bit = 1 << group
            self.before = [held | self.before[group] if held & bit else held for held in self.before]

    def may_merge(self, left: int, right: int) -> bool:
        """Whether no third group lies between the two."""
        for a, b in ((left, right), (right, left)):
            between = self.before[b] & ~(1 << a)
            if any(between >> k & 1 and self.depends(k, a) for k in range(len(self.before))):
                return False
        return True

    def merge(self, kept: int, gone: int) -> None:
        both = (self.before[kept] | self.before[gone]) & ~(1 << kept | 1 << gone)
        self.before[kept] = self.before[gone] = both
        bits = 1 << kept | 1 << gone
        self.before = [held | both | bits if held & bits else held for held in self.before]
