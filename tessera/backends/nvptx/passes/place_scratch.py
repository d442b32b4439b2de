"""Decide where the scratch of a program is: in registers, in shared memory, or in global memory of its own."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.emit_radix import ITEMS
from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.backends.nvptx.passes.plan_threads import radix_count
from tessera.backends.nvptx.row_plan import LEAVES, REGISTERS, ROWS, SPACE, THREADS
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import shaped_type
from tessera.ir.tile.typed_ops import KernelOp, ScratchOp, SortOp, TreeOp

SHARED_SCRATCH = 96 << 10
"""Bytes of scratch that are put in a block's shared memory: two blocks of sm_90 fit a multiprocessor with 228 KB."""
_BLOCK = 128
"""Threads of a block that runs several small programs side by side: they divide its shared memory."""


class PlaceScratch(Pass):
    """Write `nvptx.space` on every `ttile.scratch`.

    Before: `ttile.scratch : !ttile.buffer<[4096], f32>` of a program with 256 threads. After: the same with
    `nvptx.space = "shared"`; with "registers" in a kernel that keeps rows there; with "private" where its size is
    symbolic or shared memory is full.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            place_scratch(kernel)


def drop_spares(kernel: KernelOp) -> None:
    """Let sorts of rows that threads have in registers put them back where they were: they need no spare memory."""
    for op in list(kernel.walk()):
        count = radix_count(op) if isinstance(op, SortOp) else None
        if isinstance(op, SortOp) and count is not None and count <= THREADS.of(kernel) * ITEMS:
            spares = [value.owner for value in op.operands[2:4]]
            op.operands[2], op.operands[3] = op.operands[0], op.operands[1]
            for spare in spares:
                if isinstance(spare, ScratchOp) and not tuple(spare.result.uses):
                    spare.detach()
                    spare.erase()


def place_scratch(kernel: KernelOp) -> None:
    """Decide for all scratch of a kernel, in order, as long as it fits in shared memory."""
    threads = THREADS.of(kernel)
    drop_spares(kernel)
    left = SHARED_SCRATCH // max(1, _BLOCK // threads)
    joined = {op.lines for op in kernel.walk() if isinstance(op, TreeOp)}
    for op in kernel.walk():
        if not isinstance(op, ScratchOp):
            continue
        if ROWS.of(kernel) == REGISTERS and op.result not in joined and op.space != "shared":
            SPACE.write(op, "registers")
            continue
        size = shaped_type(op.result).bytes.value
        if LEAVES.of(kernel) and op.result in joined and size is None:
            # Warps have a slot each, whatever the width.
            SPACE.write(op, "registers")
            continue
        fits = size is not None and threads > 1 and size <= left
        if op.space == "shared" or fits:
            SPACE.write(op, "shared")
            left -= (size or 0) if op.space != "shared" else 0
        else:
            SPACE.write(op, "private")
