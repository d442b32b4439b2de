"""Decide where a program keeps its row between its loops, and how many warps share it."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx import row_plan
from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.text import WARP, row_symbols
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr, shaped_type
from tessera.ir.target.limits import MOST_ROW_WARPS
from tessera.ir.tile.typed_ops import ElementwiseOp, ForOp, KernelOp, LoadOp, ScratchOp, SelectOp, TreeOp
from tessera.types.frozen import frozen
from tessera.types.machine import MAX_REGISTERS, Multiprocessor, Usage, occupancy
from tessera.types.numerics import LEAF

# What kernels reach on an H200 with these numbers is recorded in `benchmarks/results/gpu-rows.json`, and for other
# widths in `gpu-row-lengths.json` and `gpu-widths.json` (`python -m benchmarks.gpu rows` and `widths`).

IN_REGISTERS = 144
"""Elements of a row that one thread keeps in registers, of 255: more spill once temporaries are beside them."""
MOST_LEAVES = 4
"""Leaves of a row that a warp keeps in registers: 128 elements a thread."""
BLOCK_WARPS, WIDE_BLOCK_WARPS = 8, 10
"""Warps of the blocks of a cluster that shares a row, and the most of them that leave none without a leaf.

While one block of a multiprocessor waits for its row, others compute or store.
"""
RESIDENT_WARPS, FEW_WARPS, CROWDED_WARPS = 32, 30, 36
"""Warps of a multiprocessor that have a leaf each where little is computed of it: 64 registers to a thread.

Where blocks of such a size are fewer than 30 warps together, 36 with 56 registers do better: rows of 12288 elements
of bf16 then reach 0.97 (softmax) and 0.98 (layernorm) of a copy on an H200, 0.81 and 0.80 in two blocks of 12 warps.
"""
RESIDENT_WARPS_OF_TWO, SYMBOLIC_WARPS_OF_TWO = 24, 16
"""The same where each has a leaf of two tensors, as in a backward pass: 80 registers to a thread.

With 64 a gradient of softmax spills 80 bytes of each. Of a symbolic width it has 128: with 80 it spills 156 bytes.
"""
MULTIPROCESSOR = Multiprocessor(warps=64, blocks=32, shared=228 << 10)
"""What blocks share; of registers all NVIDIA GPUs of ten years have as many."""
OF_ROWS, OF_AN_ACCUMULATOR, OF_MASKS = 128, 40, 24
"""Registers of a thread of a program that goes through rows, for each sum along columns, and for masks.

So the gradient of a norm of layers has 224, and that of mean squares 167, without a spill.
"""
MOST_CARRIED = 128
"""Bytes of a row that a thread has loaded while it computes the row before: 32 registers, two tensors of 2 bytes."""
MOST_ROW_BLOCKS = 8
"""Blocks of a cluster that every GPU with clusters has."""
ROW_WARPS = 16
"""Warps of a block that share a row of known width at most."""
WIDE_LEAVES = 128
"""Leaves of the widest rows of symbolic width that blocks of a cluster share: 131072 elements."""
WIDEST = 16
"""Bytes that one thread moves in one instruction."""
LIGHT_LEAVES, LIGHT = 2, 60
"""Leaves that a warp keeps in registers whatever is computed of them, and ops of a kernel up to which it keeps more.

Cross entropy of 50304 classes with its gradient, 66 ops, spills 1756 bytes of each thread with 4 leaves to a warp;
softmax has 24 of them, a norm of layers 53.
"""


@frozen
class PlanRows(Pass):
    """Write `nvptx.rows`, `nvptx.warps_per_row`, `nvptx.row_blocks` and `nvptx.leaves` on kernels that reduce rows.

    Softmax and norms go over a row two or three times. Memory is read once where the row stays in registers: those of
    as many warps as it has leaves, in a block, or in up to 8 blocks of a cluster where it has more than one block
    keeps. Without clusters one block has up to 16 warps with up to 4 leaves each. A leaf is summed by itself, so that
    bits are those of one warp. Kernels whose loops are not over leaves keep what one thread can; what fits no registers
    stays in memory.

    Before: a `ttile.kernel @softmax` with loops to 16384 by 1024. After: the same with `nvptx.rows = "registers"`,
    `nvptx.warps_per_row = 16`, `nvptx.blocks = 2` and `nvptx.leaves = 1`. Before: `@softmax` with loops to `N`.
    After: `@softmax__aligned` for rows of a multiple of 8 elements and `@softmax__shared` for any, with a warp to each
    leaf of a row in a block, and the same in a cluster of blocks for wider rows, in front of `@softmax` as it was; a
    launch takes one by `N`, and its block has the warps that `N` needs.
    """

    has_clusters: bool = True

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            leaves = row_plan.leaves_of(kernel)
            if leaves is not None and leaves.value is not None:
                plan_leaves(kernel, leaves.value, self.has_clusters)
            elif leaves is not None and not kernel.variant_of:
                for made in clone_for_widths(kernel, self.has_clusters):
                    module.body.block.insert_op_before(made, kernel)
            elif leaves is None and row_plan.reduces_rows(kernel):
                plan_static_rows(kernel)


def plan_leaves(kernel: KernelOp, leaves: int, has_clusters: bool) -> None:
    """Decide for rows that are divided by leaves: as many warps as leaves, or each several of them."""
    has_many = goes_through_rows(kernel)
    if row_plan.THREADS.of(kernel) != WARP or (leaves <= 1 and not has_many):
        return
    is_run = any(row_plan.run_length(loop.low) for loop in row_plan.loops_in(kernel))
    most = MOST_LEAVES if is_light(kernel) else LIGHT_LEAVES
    if has_clusters and not is_run:
        # Of two tensors, and of sums along columns, a block of many warps has no registers.
        is_plain = not has_many and len(row_tensors(kernel)) < 2
        is_one = is_plain and resident_blocks(kernel, leaves) > 0 and leaves <= most_in_block(kernel)
        blocks, warps, each = (1, leaves, 1) if is_one else divide_leaves(leaves)
        most = LIGHT_LEAVES
    else:
        each = -(-leaves // ROW_WARPS)
        blocks, warps = 1, -(-leaves // each)
    if each <= most:
        row_plan.BLOCKS.write(kernel, resident_blocks(kernel, warps) if has_clusters and each == 1 else 0)
        row_plan.CARRIES_ROWS.write(kernel, has_many and each == 1 and can_carry(kernel, warps))
        row_plan.WARPS_PER_ROW.write(kernel, warps)
        row_plan.ROW_BLOCKS.write(kernel, blocks)
        row_plan.LEAVES.write(kernel, each)
        row_plan.ROWS.write(kernel, row_plan.REGISTERS)


def is_light(kernel: KernelOp) -> bool:
    """Whether little is computed of a row."""
    return sum(isinstance(op, ElementwiseOp | SelectOp) for op in kernel.walk()) <= LIGHT


def resident_blocks(kernel: KernelOp, warps: int) -> int:
    """Blocks of so many warps that a multiprocessor holds where each has one leaf; 0 where registers decide that."""
    if goes_through_rows(kernel):
        return count_blocks(kernel, warps)
    if max(map(_element_bytes, row_plan.ops_in(kernel))) > 4 or not is_light(kernel):
        return 0
    if len(row_tensors(kernel)) > 1:
        return RESIDENT_WARPS_OF_TWO // warps
    blocks = RESIDENT_WARPS // warps
    return blocks if blocks * warps >= FEW_WARPS else max(blocks, CROWDED_WARPS // warps)


def goes_through_rows(kernel: KernelOp) -> bool:
    """Whether programs of a kernel go through several rows."""
    return any(map(row_plan.is_row_loop, row_plan.loops_in(kernel)))


def most_in_block(kernel: KernelOp) -> int:
    """Leaves of the widest rows of known width that a block has: of which it holds two, or that can be copied ahead."""
    width, size = row_plan.tile_width(kernel).value, min_bytes(kernel)
    return MOST_ROW_WARPS if width is not None and width * size % WIDEST == 0 else CROWDED_WARPS // 2


def count_blocks(kernel: KernelOp, warps: int, more: int = 0) -> int:
    """The same of programs that go through rows, whose accumulators of columns are in registers too; at least 1.

    `more` are registers of a thread beside what all of them have.
    """
    usage = Usage(WARP * warps, min(MAX_REGISTERS, count_registers(kernel) + more), 0)
    return max(1, occupancy(MULTIPROCESSOR, usage).blocks)


def count_registers(kernel: KernelOp) -> int:
    """Registers of a thread of programs that go through rows, about."""
    scratch = [shaped_type(op.result) for op in kernel.walk() if isinstance(op, ScratchOp) and op.space != "shared"]
    widths = [type.shape[0].value or 0 for type in scratch if type.rank == 1]
    # Where the last leaf of columns has fewer rows, each row is in a loop that may not run.
    trees = [op.parent_op() for op in kernel.walk() if isinstance(op, TreeOp)]
    is_masked = any(width % LEAF for width in widths) or any(
        isinstance(loop, ForOp) and loop.parent_op() is not kernel for loop in trees
    )
    return OF_ROWS + OF_AN_ACCUMULATOR * len(widths) + OF_MASKS * is_masked


def can_carry(kernel: KernelOp, warps: int) -> bool:
    """Whether programs that go through rows have registers for the next one, without fewer blocks for want of them."""
    each = sum(shaped_type(row).dtype.bytes for row in row_tensors(kernel)) * LEAF // WARP
    if each > MOST_CARRIED or count_registers(kernel) + each // 4 > MAX_REGISTERS:
        return False
    return count_blocks(kernel, warps, each // 4) == count_blocks(kernel, warps)


def row_tensors(kernel: KernelOp) -> set[SSAValue]:
    """Tensors of which a program reads its row."""
    found: set[SSAValue] = set()
    for loop in row_plan.loops_in(kernel):
        inside = {loop.body.block.args[0], *(value for op in loop.body.block.ops for value in op.results)}
        loads = [op for op in loop.body.block.ops if isinstance(op, LoadOp) and _element_bytes(op)]
        found |= {op.operands[0] for op in loads if any(value not in inside for value in op.operands[1:])}
    return found


def _element_bytes(op: Operation) -> int:
    """Bytes of the elements of a row that an op loads."""
    type = op.result.type if isinstance(op, LoadOp) else None
    return type.dtype.bytes if isinstance(type, TileAttr) and type.shape else 0


def divide_leaves(leaves: int) -> tuple[int, int, int]:
    """Blocks of a cluster for a row, warps of each, and leaves of each warp: few warps are left without a leaf.

    >>> divide_leaves(8), divide_leaves(16), divide_leaves(50), divide_leaves(200)
    ((1, 8, 1), (2, 8, 1), (5, 10, 1), (8, 13, 2))
    """
    each = -(-leaves // (MOST_ROW_BLOCKS * ROW_WARPS))
    shares = -(-leaves // each)
    if shares <= BLOCK_WARPS:
        return 1, shares, each
    most = max(WIDE_BLOCK_WARPS, -(-shares // MOST_ROW_BLOCKS))
    choices = [(blocks, -(-shares // blocks)) for blocks in range(1, MOST_ROW_BLOCKS + 1)]
    blocks, warps = min(
        (one for one in choices if one[1] <= most),
        key=lambda one: (one[0] * one[1] - shares, abs(one[1] - BLOCK_WARPS)),
    )
    return blocks, warps, each


def plan_static_rows(kernel: KernelOp) -> None:
    """Keep rows in registers whose width is known and which a program's threads can hold."""
    counts = [row_plan.trip_count(loop) for loop in row_plan.loops_in(kernel)]
    each = max(1, max(row_plan.tile_sizes(kernel)) // row_plan.THREADS.of(kernel))
    if all(count is not None and count * each <= IN_REGISTERS for count in counts):
        row_plan.ROWS.write(kernel, row_plan.REGISTERS)


def clone_for_widths(kernel: KernelOp, has_clusters: bool) -> list[KernelOp]:
    """Kernels for rows of a symbolic width whose leaves have a warp each, to stand beside the one for any width.

    A launch takes one by the width: of rows that begin at multiples of 16 bytes, or of any, in a block of few warps, of
    many, or in a cluster.
    """
    # Where registers decide how many blocks there are, those of so many threads have twice as many registers.
    most = MOST_ROW_WARPS if resident_blocks(kernel, MOST_ROW_WARPS) else MOST_ROW_WARPS // 2
    wide = min(most, CROWDED_WARPS // 2)
    sizes = [(BLOCK_WARPS, 1), (wide, 1), *([(most, WIDE_LEAVES // most)] if has_clusters else [])]
    forms = [(*size, multiple) for size in sizes for multiple in (WIDEST // min_bytes(kernel), 1)]
    is_size = bool(row_plan.symbol_of_width(row_plan.tile_width(kernel)))
    return [
        clone_for_width(kernel, name, *form)
        for name, form in zip(row_symbols(kernel.symbol), forms, strict=False)
        if is_size or form[2] == 1
    ]


def clone_for_width(kernel: KernelOp, name: str, warps: int, blocks: int, multiple: int) -> KernelOp:
    """The kernel for rows that warps of so many blocks share, if their width is a multiple of a number."""
    made = kernel.clone()
    made.symbol, made.variant_of = name, kernel.symbol
    row_plan.WARPS_PER_ROW.write(made, warps)
    row_plan.ROW_BLOCKS.write(made, blocks)
    resident = resident_blocks(kernel, warps)
    has_two = len(row_tensors(kernel)) > 1
    row_plan.BLOCKS.write(made, min(resident, SYMBOLIC_WARPS_OF_TWO // warps) if has_two else resident)
    row_plan.MULTIPLE.write(made, multiple)
    row_plan.LEAVES.write(made, 1)
    row_plan.ROWS.write(made, row_plan.REGISTERS)
    return made


def min_bytes(kernel: KernelOp) -> int:
    """Bytes of the smallest elements of a row, 2 at least: of smaller ones a thread has no more neighbours."""
    sizes = [size for size in map(_element_bytes, row_plan.ops_in(kernel)) if size]
    return max(2, min(sizes, default=2))
