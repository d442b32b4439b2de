"""Decide how many neighbours of a tile one thread has, from how far each access is known to be aligned."""

from __future__ import annotations

from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.backends.nvptx.access_groups import (
    MOST,
    WIDEST,
    group_of,
    is_transposing,
    known_alignment,
    overlapping_loads,
    run_of,
    strided_load,
)
from tessera.backends.nvptx.layout import Layout
from tessera.backends.nvptx.row_plan import MOST_NEIGHBOURS
from tessera.backends.nvptx.text import WARP
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.types import shaped_type
from tessera.ir.target.typed_ops import ArgReduceOp, KernelOp, LoadOp, ReduceOp, ScratchOp, StoreOp, TailOp

WIDEST_OF_PAIRS = 8
"""Neighbours that one thread has at most, unless all elements are bytes: the widest access, of two-byte elements."""
MANY = 4
"""Loads of single elements from which on threads side by side read neighbours: a warp then has whole lines of each."""
RARE = 8
"""Tiles of a row from which on its tail is a small part of it."""
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
    accesses = [op for op in kernel.walk() if isinstance(op, LoadOp | StoreOp) and op.axes and not _is_held(op.buffer)]
    accesses = [op for op in accesses if not _is_small(op, kernel.threads)]
    widths = {shaped_type(op.buffer).dtype.bytes for op in accesses}
    found = MOST if widths == {1} and is_elementwise(kernel) else WIDEST_OF_PAIRS
    for op in accesses:
        if op.pattern == "contiguous":
            # What begins anywhere is loaded one by one, for a vector that is stored.
            width = WIDEST if isinstance(op, LoadOp) and is_elementwise(kernel) else op.align
            found = min(found, max(1, width // shaped_type(op.buffer).dtype.bytes))
            if isinstance(op, StoreOp) and is_elementwise(kernel) and not _is_rare(op):
                found = min(found, run_of(op))
    if is_elementwise(kernel):
        shifted = overlapping_loads(kernel)
        if sum(_is_scattered(op, kernel, found, op in shifted) for op in accesses) >= MANY:
            return 1
    if not is_elementwise(kernel) and any(run_of(op) > 1 for op in accesses if op.pattern == "indexed"):
        found = min(found, WIDEST // min(widths))
    return min(found, _neighbours_of_reduced_rows(kernel))


def _is_rare(op: StoreOp) -> bool:
    """Whether a store is of the tail of a long row: how it moves its elements matters little."""
    tile = sizes_of(op.block)
    sizes = [bound.value or RARE * prod(tile) for bound in op.bounds]
    return isinstance(op.parent_op(), TailOp) and max(sizes, default=0) >= RARE * prod(tile)


def _is_scattered(op: LoadOp | StoreOp, kernel: KernelOp, vector: int, is_shifted: bool) -> bool:
    """Whether a load reads the neighbours of a thread one by one."""
    if not isinstance(op, LoadOp) or op.pattern == "uniform":
        return False
    layout = Layout(sizes_of(op.result), kernel.threads, vector)
    is_whole = strided_load(op, layout, is_shifted=is_shifted) is not None or is_transposing(op, layout)
    return not is_whole and group_of(op, layout, shaped_type(op.buffer).dtype.bytes, 0) == 1


def is_elementwise(kernel: KernelOp) -> bool:
    """Whether a kernel computes each element from those at its own index: any number of neighbours does as well."""
    return all(op.name.removeprefix("ttarget.") in (*_CONTROL, *_MEMORY, *_VALUES) for op in kernel.walk())


def _is_small(op: LoadOp | StoreOp, threads: int) -> bool:
    """Whether a tile leaves no thread of several warps two neighbours, whatever its access can move."""
    tile = op.block if isinstance(op, StoreOp) else op.result
    return threads > WARP and prod(sizes_of(tile)) <= threads


def _is_held(buffer: SSAValue) -> bool:
    """Whether memory is registers, which no instruction moves."""
    return isinstance(buffer.owner, ScratchOp) and buffer.owner.space == "registers"


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
