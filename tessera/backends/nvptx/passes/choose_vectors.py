"""Decide how many neighbours of a tile one thread has, from how far each access is known to be aligned."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.access_groups import MOST, known_alignment, run_of
from tessera.backends.nvptx.row_plan import MOST_NEIGHBOURS
from tessera.backends.nvptx.text import WARP
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.types import shaped_type
from tessera.ir.target.typed_ops import ArgReduceOp, KernelOp, LoadOp, ReduceOp, StoreOp, TailOp

WIDEST_OF_PAIRS = 8
"""Neighbours that one thread has at most, unless all elements are bytes: the widest access, of two-byte elements."""
_CONTROL = ("kernel", "programs", "loop", "tail", "yield", "return")
_MEMORY = ("index", "load", "store", "fetch")
_VALUES = ("elementwise", "select", "cast", "bitcast", "round", "constant", "coordinate", "clip", "broadcast")


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
        if isinstance(op, LoadOp | StoreOp):
            op.align = known_alignment(op)


def choose_vector(kernel: KernelOp) -> int:
    """Neighbours that one thread has: as many as one instruction moves, and the most of all where none can."""
    accesses = [op for op in kernel.walk() if isinstance(op, LoadOp | StoreOp) and op.axes]
    widths = {shaped_type(op.buffer).dtype.bytes for op in accesses}
    found = MOST if widths == {1} and is_elementwise(kernel) else WIDEST_OF_PAIRS
    for op in accesses:
        run = run_of(op)
        if op.pattern == "contiguous" or run > 1:
            found = min(found, max(1, op.align // shaped_type(op.buffer).dtype.bytes))
        if op.pattern == "contiguous" and is_elementwise(kernel) and not isinstance(op.parent_op(), TailOp):
            found = min(found, run)
    return min(found, _neighbours_of_reduced_rows(kernel))


def is_elementwise(kernel: KernelOp) -> bool:
    """Whether a kernel computes each element from those at its own index: any number of neighbours does as well."""
    return all(op.name.removeprefix("ttarget.") in (*_CONTROL, *_MEMORY, *_VALUES) for op in kernel.walk())


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
