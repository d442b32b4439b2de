"""Clone kernels with dots for the launches that tensor cores do not take."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.host import unaligned_kernels
from tessera.backends.nvptx.mma.fit import dots_in, mark_plain, tile_kernels
from tessera.backends.nvptx.text import fallback_symbol
from tessera.ir.base.passes import Pass
from tessera.ir.schedule.plan import programs_in
from tessera.types.frozen import frozen
from tessera.types.machine import PLAIN


@frozen
class AddFallbacks(Pass):
    """Put `@k__plain`, which threads compute by multiply-adds, behind each kernel `@k` with dots.

    Passes that follow rewrite `@k` for tensor cores, so what it was is kept first: TMA has no descriptor of an empty
    tensor, and a launch with one goes to the clone. `nvptx-prune-fallbacks` drops it where no launch can need it.

    Before: `ttile.kernel @k` with a `ttile.dot`. After: the same, and a `ttile.kernel @k__plain {variant_of = "k"}`
    whose dot has `unit = "multiply-adds"`. Kernels of the host program `tsched.module` whose arguments begin at any
    address get no clone: they are on multiply-adds themselves, and say so by `reasons`.
    """

    def run(self, module: ModuleOp) -> None:
        unaligned = unaligned_in(module)
        for kernel in tile_kernels(module):
            units = {dot.unit for dot in dots_in(kernel)}
            if not units or units == {PLAIN} or kernel.variant_of:
                continue
            if kernel.symbol in unaligned:
                mark_plain(kernel)
                kernel.set_value("reasons", ("its arguments begin anywhere",))
                continue
            clone = kernel.clone()
            clone.set_value("symbol", fallback_symbol(kernel.symbol))
            clone.set_value("variant_of", kernel.symbol)
            mark_plain(clone)
            module.body.block.insert_op_after(clone, kernel)


def unaligned_in(module: ModuleOp) -> frozenset[str]:
    """Kernels that the host program calls with arguments which begin at any address; none without a host program."""
    return frozenset[str]().union(*map(unaligned_kernels, programs_in(module)))
