"""Planning the workspace: offsets of temporaries with symbolic sizes, and the check that no two overlap.

Buffers whose lifetimes are disjoint may share bytes. With sizes that are numbers this is interval packing, and the
largest first is a good heuristic. With symbolic sizes offsets must hold for all values of the dims, so nothing can be
placed "in the gap that is left"; instead buffers share *slots*. A slot is as large as its largest buffer, which is
known only where the prover can compare them, and is `max(a, b)` otherwise; the offset of a slot is the sum of those
before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tessera.types.dim import Dim, maximum
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_most

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@frozen
class Lifetime:
    """A buffer: its bytes, and the steps of the program at which it is first and last needed, both included."""

    bytes: Dim
    start: int
    end: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass
class _Slot:
    size: Dim
    lifetimes: list[Lifetime] = field(default_factory=list[Lifetime])


@frozen
class Layout:
    """Where each buffer starts, and how many bytes there are in all."""

    offsets: tuple[Dim, ...]
    total: Dim


def aligned(size: Dim) -> Dim:
    """The size rounded up to whole cache lines."""
    exact = size % ALIGNMENT
    return size if exact.value == 0 else size.ceildiv(ALIGNMENT) * ALIGNMENT


def lay_out(lifetimes: Sequence[Lifetime]) -> Layout:
    """Offsets at which no two buffers that are alive at the same time overlap, for any values of the dims.

    Where all sizes are numbers, the largest buffers are placed first, each at the lowest offset that those alive at the
    same time allow. Where they are not, buffers take slots in order of their start: a free slot of their very size,
    else one known to be large enough, else one that grows to the larger of the two. A slot is never larger than all its
    buffers together, so the total is at most what it would be without reuse.
    """
    if all(lifetime.bytes.is_static for lifetime in lifetimes):
        return _pack(lifetimes)
    slots: list[_Slot] = []
    taken: list[int] = [0] * len(lifetimes)
    for number in sorted(range(len(lifetimes)), key=lambda number: lifetimes[number].start):
        lifetime = lifetimes[number]
        size = aligned(lifetime.bytes)
        free = [at for at, slot in enumerate(slots) if not any(lifetime.overlaps(other) for other in slot.lifetimes)]
        at = _best(slots, free, size)
        if at is None:
            at = len(slots)
            slots.append(_Slot(size))
        slots[at].size = _larger(slots[at].size, size)
        slots[at].lifetimes.append(lifetime)
        taken[number] = at
    starts: list[Dim] = []
    total = Dim.constant(0)
    for slot in slots:
        starts.append(total)
        total = total + slot.size
    return Layout(tuple(starts[at] for at in taken), total)


def _pack(lifetimes: Sequence[Lifetime]) -> Layout:
    sizes = [aligned(lifetime.bytes).value or 0 for lifetime in lifetimes]
    starts: dict[int, int] = {}
    for number in sorted(range(len(lifetimes)), key=lambda number: (-sizes[number], lifetimes[number].start)):
        at = 0
        for other in sorted(starts, key=lambda other: starts[other]):
            if lifetimes[number].overlaps(lifetimes[other]):
                if at + sizes[number] <= starts[other]:
                    break
                at = max(at, starts[other] + sizes[other])
        starts[number] = at
    total = max((starts[number] + sizes[number] for number in starts), default=0)
    return Layout(tuple(Dim.constant(starts[number]) for number in range(len(lifetimes))), Dim.constant(total))


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


def naive_total(lifetimes: Sequence[Lifetime]) -> Dim:
    """The bytes that all buffers take without sharing any."""
    total = Dim.constant(0)
    for lifetime in lifetimes:
        total = total + aligned(lifetime.bytes)
    return total


def first_overlap(lifetimes: Sequence[Lifetime], layout: Layout, sizes: dict[str, int]) -> tuple[int, int] | None:
    """Two buffers that are alive at the same time and share a byte, for given sizes; None where there are none."""
    spans = [
        (offset.evaluate(sizes), offset.evaluate(sizes) + lifetime.bytes.evaluate(sizes))
        for lifetime, offset in zip(lifetimes, layout.offsets, strict=True)
    ]
    for left in range(len(lifetimes)):
        for right in range(left + 1, len(lifetimes)):
            (a, b), (c, d) = spans[left], spans[right]
            if lifetimes[left].overlaps(lifetimes[right]) and a < d and c < b and a < b and c < d:
                return left, right
    return None
