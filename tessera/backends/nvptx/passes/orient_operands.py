"""Load the operands of dots that threads compute along memory."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from tessera.backends.nvptx.mma.fit import dots_in, thread_kernels
from tessera.ir.base.dialect_of import make
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.typed_ops import DotOp, LoadOp


class OrientOperands(Pass):
    """Load an operand of a `ttile.dot` by multiply-adds that is contiguous across its rows as memory has it.

    Lanes then read neighbours, and several at a time; threads read it transposed from shared memory, where dots have
    their operands anyway. On an H200 that is +7 % for 2048 x 2048 x 2048 in f32 by rows.

    Before: `%b = ttile.load %w {axes = ["k", "n"], map = [n, k]}` of 64 x 128 and `ttile.dot %a, %b, %acc`. After:
    `%c = ttile.load %w {axes = ["n", "k"], map = [n, k]}` of 128 x 64, and the dot of `%b = ttile.transpose %c`. What
    others read too is left alone.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            for dot in dots_in(kernel):
                orient_operands(dot)


def orient_operands(dot: DotOp) -> None:
    """Do it to the operands of one dot."""
    for value in (dot.lhs, dot.rhs):
        load = value.owner
        if isinstance(load, LoadOp) and _is_across(load) and len(list(load.result.uses)) == 1:
            tile = load.result.type
            assert isinstance(tile, TileAttr)
            type = TileAttr.of(tile.data.with_shape(tile.shape[::-1]))
            values = {**load.values(), "axes": load.axes[::-1], "bounds": load.bounds[::-1]}
            along = make(load.spec, list(load.operands), values, types=[type], span=load.span)
            transposed = make(DIALECT["transpose"], [along.results[0]], {}, types=[tile], span=load.span)
            Rewriter.replace_op(load, [along, transposed])


def _is_across(load: LoadOp) -> bool:
    """Whether columns of a tile are what is contiguous in memory."""
    if len(load.axes) != 2 or not load.map or load.windows or load.hints or len(load.at) != len(load.coords):
        return False
    return load.axes[0] in load.map[-1].symbols and load.axes[1] not in load.map[-1].symbols
