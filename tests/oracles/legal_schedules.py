"""Which schedules a matmul of 16-bit floats can have on an H100, by the figures of the CUDA manuals alone.

Written apart from the compiler: an H100 gives a CTA 227 KiB of shared memory, 1024 threads, 255 registers a thread,
and accesses of 16 bytes (CUDA C++ Programming Guide, compute capability 9.0). Each stage holds a block of A and one
of B; the f32 accumulators are held by all threads; 40 registers are left for addresses, masks and loop counters (the
kernel guide).
"""

from __future__ import annotations

from itertools import product
from typing import Any

SHARED, THREADS, REGISTERS, ACCESS, SPARE = 227 * 1024, 1024, 255, 16, 40
BYTES = 2


def legal_points(axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The points of the product of `axes` (m, n, k, warps, stages, vector, swizzle) that fit, first choices slowest."""
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [point for point in points if is_legal(**point)]


def is_legal(
    *, m: int, n: int, k: int, warps: int, stages: int, vector: int | None = None, swizzle: str | None = None
) -> bool:
    """Whether one CTA has what a schedule needs."""
    threads = 32 * warps
    if threads > THREADS or stages * (m * k + k * n) * BYTES > SHARED:
        return False
    if -(-m * n // threads) + SPARE > REGISTERS or m * n < threads:
        return False
    if vector is not None and (vector * BYTES > ACCESS or k % vector or n % vector):
        return False
    return swizzle != "xor" or not (k * BYTES % ACCESS or n * BYTES % ACCESS)
