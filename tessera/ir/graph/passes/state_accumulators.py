"""Have every op that sums state its accumulator."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.policy_casts import default_accumulator, is_summing


class StateAccumulators(Pass):
    """Write the default accumulator on ops that state none.

    Before: `%0 = tgraph.matmul %a, %b : (bf16, bf16) -> bf16`. After: `%0 = tgraph.matmul %a, %b {accumulate = f32}`.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.walk():
            if (
                isinstance(op, SpecOp)
                and "accumulate" in op.kinds
                and op.value("accumulate") is None
                and is_summing(op.values())
            ):
                types = [tensor_value(value) for value in op.operands]
                op.set_value("accumulate", default_accumulator(op.spec.short_name, types, tensor_value(op.results[0])))
