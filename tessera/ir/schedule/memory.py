"""Placing buffers in one workspace: slots of symbolic size that buffers take in turn, and the check that none meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.types.dim import Dim, maximum
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_most

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@frozen
class Life:
    """A buffer: its bytes, and the steps at which it begins and ends to be needed, both included."""

    bytes: Dim
    start: int
    end: int

    def meets(self, other: Life) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass
class _Slot:
    size: Dim
    lives: list[Life] = field(default_factory=list[Life])


@frozen
class Layout:
    """Where each buffer starts, and how many bytes there are in all."""

    offsets: tuple[Dim, ...]
    total: Dim


def aligned(size: Dim) -> Dim:
    """The size rounded up to whole cache lines."""
    exact = size % ALIGNMENT
    return size if exact.value == 0 else size.ceildiv(ALIGNMENT) * ALIGNMENT


def lay_out(lives: Sequence[Life]) -> Layout:
    """Offsets at which no two buffers needed at one time overlap, for any values of the dims.

    Where all sizes are numbers, the largest buffers are placed first, each as low as others allow that live when it
    does. Where they are not, buffers take slots in order of their start: a free slot of their very size, else one known
    to be large enough, else one that grows to the larger of the two. A slot is never larger than all its buffers
    together, so the total is at most what it would be without reuse.
    """
    if all(life.bytes.is_static for life in lives):
        return _packed(lives)
    slots: list[_Slot] = []
    taken: list[int] = [0] * len(lives)
    for number in sorted(range(len(lives)), key=lambda number: lives[number].start):
        life = lives[number]
        size = aligned(life.bytes)
        free = [at for at, slot in enumerate(slots) if not any(life.meets(other) for other in slot.lives)]
        at = _best(slots, free, size)
        if at is None:
            at = len(slots)
            slots.append(_Slot(size))
        slots[at].size = _larger(slots[at].size, size)
        slots[at].lives.append(life)
        taken[number] = at
    starts: list[Dim] = []
    total = Dim.constant(0)
    for slot in slots:
        starts.append(total)
        total = total + slot.size
    return Layout(tuple(starts[at] for at in taken), total)


def _packed(lives: Sequence[Life]) -> Layout:
    sizes = [aligned(life.bytes).value or 0 for life in lives]
    starts: dict[int, int] = {}
    for number in sorted(range(len(lives)), key=lambda number: (-sizes[number], lives[number].start)):
        at = 0
        for other in sorted(starts, key=lambda other: starts[other]):
            if lives[number].meets(lives[other]):
                if at + sizes[number] <= starts[other]:
                    break
                at = max(at, starts[other] + sizes[other])
        starts[number] = at
    total = max((starts[number] + sizes[number] for number in starts), default=0)
    return Layout(tuple(Dim.constant(starts[number]) for number in range(len(lives))), Dim.constant(total))


def _best(slots: Sequence[_Slot], free: Sequence[int], size: Dim) -> int | None:
    def rank(at: int) -> tuple[int, int]:
        held = slots[at].size
        if held == size:
            return (0, at)
        if is_at_most(size, held):
            # The tightest of those that fit, where the difference is a number.
            return (1, (held - size).value or 0)
        return (2, at) if is_at_most(held, size) else (3, at)

    return min(free, key=rank, default=None)


def _larger(left: Dim, right: Dim) -> Dim:
    if is_at_most(left, right):
        return right
    return left if is_at_most(right, left) else maximum(left, right)


def naive_total(lives: Sequence[Life]) -> Dim:
    """The bytes that all buffers take side by side."""
    total = Dim.constant(0)
    for life in lives:
        total = total + aligned(life.bytes)
    return total


def first_overlap(lives: Sequence[Life], layout: Layout, sizes: dict[str, int]) -> tuple[int, int] | None:
    """Two buffers that are needed at one time and share a byte, for given sizes; None where there are none."""
    spans = [
        (offset.evaluate(sizes), offset.evaluate(sizes) + life.bytes.evaluate(sizes))
        for life, offset in zip(lives, layout.offsets, strict=True)
    ]
    for left in range(len(lives)):
        for right in range(left + 1, len(lives)):
            (a, b), (c, d) = spans[left], spans[right]
            if lives[left].meets(lives[right]) and a < d and c < b and a < b and c < d:
                return left, right
    return None
