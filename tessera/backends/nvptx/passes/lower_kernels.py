"""Lower every tile kernel of a module to Target IR for a GPU that has no matrix units, or whose are not wanted."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.gpus import DEFAULT, GPUS
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import replace_ops


@dataclass(frozen=True)
class LowerKernels(Pass):
    """Put a `ttarget.kernel` of threads and warps in the place of each `ttile.kernel`, for the GPU `machine`.

    Before: `ttile.kernel @k` with tiles that nobody holds. After: `ttarget.kernel @k` with `threads` for a program,
    `vector` neighbours to a thread, accesses at linear offsets, and shared memory where threads meet.
    """

    machine: str = DEFAULT

    def run(self, module: ModuleOp) -> None:
        backend = NvptxBackend(GPUS[self.machine])
        replace_ops(module, "ttile.kernel", backend.lower)
