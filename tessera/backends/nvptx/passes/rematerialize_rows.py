"""Compute again, where it is read, what a kernel would store to scratch and load."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.rematerialize import Recipe, find_recipes
from tessera.backends.nvptx.row_plan import REMATERIALIZED, ROWS
from tessera.ir.base.passes import Pass
from tessera.ir.tile.typed_ops import KernelOp, LoadOp


class RematerializeRows(Pass):
    """Replace loads of scratch by the ops that computed it, in kernels with `nvptx.rows = "rematerialized"`.

    Before: a loop that stores `exp(x - max)` to a scratch row, and one that loads it. After: two loops that compute
    it, each from the row in memory, and no scratch. `plan_rows` chooses it for rows that no registers hold.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp) and ROWS.of(op) == REMATERIALIZED:
                for buffer, recipe in find_recipes(op).items():
                    rematerialize(buffer, recipe)


def rematerialize(buffer: SSAValue, recipe: Recipe) -> None:
    """Compute what is loaded from a buffer in each loop that loads it; the buffer and its store go."""
    for load in [use.operation for use in buffer.uses]:
        if not isinstance(load, LoadOp):
            continue
        values: dict[SSAValue, SSAValue] = {recipe.index: load.at[0]}
        block = load.parent_block()
        assert block is not None
        for op in recipe.ops:
            block.insert_op_before(op.clone(values), load)
        load.result.replace_all_uses_with(values[recipe.value])
        load.detach()
        load.erase()
    scratch = buffer.owner
    assert isinstance(scratch, Operation)
    for op in (recipe.store, scratch):
        op.detach()
        op.erase()
