"""Decide how many neighbours of a tile one thread has, from how far each access is known to be aligned."""

from __future__ import annotations

from math import gcd, prod

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.row_plan import ALIGNED, MOST_NEIGHBOURS
from tessera.backends.nvptx.text import WARP
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.types import shaped_type
from tessera.ir.target.limits import buffer_alignment, index_multiple, multiple_of
from tessera.ir.target.typed_ops import ArgReduceOp, KernelOp, LoadOp, ReduceOp, StoreOp

MOST = 8
"""Neighbours that one thread has at most: 16 bytes of two-byte elements, the widest access of the machine."""


class ChooseVectors(Pass):
    """Write `align` on every access and `vector` on every `ttarget.kernel` of threads.

    A thread has as many neighbours along the last axis as one access can move: 16 bytes, where rows begin at multiples
    of that. All tiles of a kernel share the number, so that elementwise ops move nothing between threads.

    Before: `ttarget.load` of bf16 at `4096*p + i` with `align = 2`. After: `align = 16`, and `vector = 8`.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp) and op.threads:
                if MOST_NEIGHBOURS.of(op) not in (1, 2, 4, 8, 16):
                    refuse(op, f"neighbours of a thread are a power of two up to 16, got {MOST_NEIGHBOURS.of(op)}")
                align_accesses(op)
                op.vector = min(choose_vector(op), MOST_NEIGHBOURS.of(op))


def align_accesses(kernel: KernelOp) -> None:
    """Write down how far each access is known to be aligned."""
    for op in kernel.walk():
        if not isinstance(op, LoadOp | StoreOp):
            continue
        item = shaped_type(op.buffer).dtype.bytes
        multiples = dict(zip(op.coords, map(index_multiple, op.at), strict=False))
        steps = multiple_of(op.offset, {**multiples, **dict.fromkeys(op.axes[:-1], 1)})
        start = buffer_alignment(op.buffer)
        known = gcd(gcd(start, item * steps) if steps else start, ALIGNED)
        op.align = max(item, known & -known)


def choose_vector(kernel: KernelOp) -> int:
    """Neighbours that one thread has: as many as one instruction moves, and the most of all where none can."""
    found = MOST
    for op in kernel.walk():
        if isinstance(op, LoadOp | StoreOp) and op.axes and op.pattern == "contiguous":
            found = min(found, max(1, op.align // shaped_type(op.buffer).dtype.bytes))
    return min(found, _neighbours_of_reduced_rows(kernel))


def _neighbours_of_reduced_rows(kernel: KernelOp) -> int:
    """4 bytes where whole rows are reduced by several warps, since what is no neighbour is joined without exchange."""
    found = MOST
    for op in kernel.walk():
        if isinstance(op, ReduceOp | ArgReduceOp):
            sizes = sizes_of(op.operands[0])
            if kernel.threads > WARP and sizes[op.axis] == prod(sizes) >= 4 * kernel.threads:
                loads = (part for part in kernel.walk() if isinstance(part, LoadOp))
                found = 4 // min([4, *(shaped_type(load.result).dtype.bytes for load in loads)])
    return found
