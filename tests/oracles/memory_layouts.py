"""What a layout of buffers must keep: no two that are alive together share a byte, and none is worse than no reuse."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.schedule.host_program.memory import Layout, Lifetime, align_bytes
from tessera.types.dim import Dim


def naive_total(lifetimes: Sequence[Lifetime]) -> Dim:
    """The bytes that all buffers take without sharing any."""
    total = Dim.constant(0)
    for lifetime in lifetimes:
        total = total + align_bytes(lifetime.bytes)
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
